// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// where asks an address several times who it is that answers there, and prints who has.
func where(args []string) error {
	seen := map[string]bool{}
	for range number(args, 1) {
		said, err := call(args[0], "where", 0)
		if err != nil {
			return err
		}
		seen[said] = true
	}
	fmt.Println(strings.Join(slices.Sorted(maps.Keys(seen)), " "))
	return nil
}

// call is one connection with one question.
func call(addr, what string, n int) (string, error) {
	c, err := ask(addr, what, n)
	if err != nil {
		return "", err
	}
	defer c.Close()
	said, err := io.ReadAll(c)
	if err == nil && len(said) == 0 {
		err = errors.New("nothing was said")
	}
	return string(said), err
}

// calls asks an address again and again, each time by a new connection, until its standard input is at an end. It prints a line for each call that
// failed, and for the first after it that did not, with the time since its start, and at last how many there were.
func calls(args []string) error {
	done := make(chan struct{})
	go func() { io.Copy(io.Discard, os.Stdin); close(done) }()
	pause := 5
	if len(args) > 1 {
		pause = number(args, 1)
	}
	begin := time.Now()
	who := map[string]int{}
	broken := false
	for n, failed := 0, 0; ; n++ {
		select {
		case <-done:
			fmt.Printf("%d calls, %d failed, answered by %d\n", n, failed, len(who))
			return nil
		default:
		}
		said, err := call(args[0], "where", 0)
		if err != nil {
			failed++
			fmt.Printf("%.3f s: %s\n", time.Since(begin).Seconds(), word(err))
		} else {
			who[said]++
			if broken {
				fmt.Printf("%.3f s: answered again\n", time.Since(begin).Seconds())
			}
		}
		broken = err != nil
		time.Sleep(time.Duration(pause) * time.Millisecond)
	}
}

// rate counts the messages of 64 bytes that come back by one connection in a while.
func rate(args []string) error {
	c, err := net.DialTimeout("tcp", args[0], patience)
	if err != nil {
		return err
	}
	defer c.Close()
	limit := time.Duration(number(args, 1)) * time.Millisecond
	c.SetDeadline(time.Now().Add(limit + 20*time.Second))
	fmt.Fprintf(c, "stream 0\n")
	r := bufio.NewReader(c)
	message := make([]byte, 64)
	n, begin := 0, time.Now()
	for ; time.Since(begin) < limit; n++ {
		if _, err := c.Write(message); err != nil {
			return err
		}
		if _, err := io.ReadFull(r, message); err != nil {
			return err
		}
	}
	fmt.Printf("%.0f\n", float64(n)/time.Since(begin).Seconds())
	return nil
}

// pause does nothing until it is told to end, and so holds a pod's namespaces.
func pause([]string) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	return nil
}
