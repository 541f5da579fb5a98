// SPDX-License-Identifier: Apache-2.0

// Command agent is all that containers and pods of tests hold: it serves bytes, fetches them, and says in one line what came of it.
//
// Problem: a comparison of two hosts needs answers that are the same words wherever the same happened, and containers that need no registry.
//
// Mechanism: one static program. "serve" answers on port 80 by TCP (bytes of a pseudo-random sequence, or the hash of what it was sent, or who
// asks) and by UDP (an echo). The other commands ask it, from a container, the host or beyond, and print the outcome without times and ports.
//
// Invariant: it ends by itself, within its timeouts.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long an answer may take before it counts as none.
const patience = time.Second

func main() {
	commands := map[string]func([]string) error{
		"serve": serve, "true": func([]string) error { return nil }, "get": get, "put": put, "who": who, "udp": udp, "name": name, "stream": stream,
		"where": where, "calls": calls, "rate": rate, "pause": pause,
	}
	do := commands[strings.Join(os.Args[1:min(2, len(os.Args))], "")]
	if do == nil {
		fmt.Fprintln(os.Stderr, "usage: agent serve | get ADDR BYTES | put ADDR BYTES | who ADDR | udp ADDR COUNT SIZE SPORT | name NAME | stream ADDR SPORT | where ADDR COUNT | calls ADDR [MILLISECONDS] | rate ADDR MILLISECONDS | pause")
		os.Exit(2)
	}
	if err := do(os.Args[2:]); err != nil {
		fmt.Println(word(err))
	}
}

// word says what went wrong, without ports and times.
func word(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.EHOSTUNREACH):
		return "unreachable"
	case errors.Is(err, syscall.ENETUNREACH):
		return "no route"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.EPERM):
		return "not permitted"
	}
	return err.Error()
}

func number(args []string, i int) int {
	n, err := strconv.Atoi(args[i])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return n
}

// sequence is the same bytes each time.
func sequence() io.Reader { return rand.NewChaCha8([32]byte{1}) }

func serve([]string) error {
	packets, err := net.ListenPacket("udp", ":80")
	if err != nil {
		return err
	}
	go echo(packets)
	l, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go answer(c)
	}
}

func echo(c net.PacketConn) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(b)
		if err == nil {
			c.WriteTo(b[:n], from)
		}
	}
}

// answer serves one connection: a line that says what is wanted, and that.
func answer(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 2 {
		return
	}
	n, _ := strconv.ParseInt(words[1], 10, 64)
	switch words[0] {
	case "get":
		io.CopyN(c, sequence(), n)
	case "put":
		h := sha256.New()
		io.CopyN(h, r, n)
		fmt.Fprintf(c, "%x", h.Sum(nil))
	case "who":
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		fmt.Fprint(c, host)
	case "where":
		host, _, _ := net.SplitHostPort(c.LocalAddr().String())
		fmt.Fprint(c, host)
	case "stream":
		io.Copy(c, r)
	}
}

// ask opens a connection and says what is wanted.
func ask(addr, what string, n int) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = fmt.Fprintf(c, "%s %d\n", what, n)
	return c, err
}

func get(args []string) error {
	n := number(args, 1)
	c, err := ask(args[0], "get", n)
	if err != nil {
		return err
	}
	defer c.Close()
	h := sha256.New()
	got, err := io.Copy(h, c)
	if err != nil {
		return err
	}
	want := sha256.New()
	io.CopyN(want, sequence(), int64(n))
	fmt.Printf("%d bytes, %.4x, as sent: %v\n", got, h.Sum(nil), slices.Equal(h.Sum(nil), want.Sum(nil)))
	return nil
}

func put(args []string) error {
	n := number(args, 1)
	c, err := ask(args[0], "put", n)
	if err != nil {
		return err
	}
	defer c.Close()
	want := sha256.New()
	if _, err := io.CopyN(c, io.TeeReader(sequence(), want), int64(n)); err != nil {
		return err
	}
	sum, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	fmt.Printf("%.8s, as sent: %v\n", sum, string(sum) == fmt.Sprintf("%x", want.Sum(nil)))
	return nil
}

func who(args []string) error {
	c, err := ask(args[0], "who", 0)
	if err != nil {
		return err
	}
	defer c.Close()
	said, err := io.ReadAll(c)
	fmt.Printf("%s\n", said)
	return err
}

// udp sends datagrams one after the other, each when the one before has come back.
func udp(args []string) error {
	count, size := number(args, 1), number(args, 2)
	c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{Port: number(args, 3)}}).Dial("udp", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	back, unlike := 0, 0
	sent, got := make([]byte, size), make([]byte, 1<<16)
	awaited := map[string]bool{} // what was sent and has not come back: a busy machine may be later than the client waits
	in := sequence()
	for i := range count {
		io.ReadFull(in, sent)
		if _, err = c.Write(sent); err != nil {
			break
		}
		awaited[string(sent)] = true
		if back == 0 && i > 0 { // nothing comes back; all are sent all the same, since rules count them
			continue
		}
		c.SetReadDeadline(time.Now().Add(2 * patience)) // the first to a neighbour may wait for ARP to be repeated
		for awaited[string(sent)] {
			n, failed := c.Read(got)
			if err = failed; err != nil {
				break
			}
			back++
			if !awaited[string(got[:n])] {
				unlike++
				break
			}
			delete(awaited, string(got[:n]))
		}
	}
	if back == 0 && err != nil {
		return err
	}
	fmt.Printf("%d of %d back, %d of them changed\n", back, count, unlike)
	return nil
}

func name(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	found, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, args[0])
	if err != nil { // in whatever way it fails: who is asked beyond this host is no matter of the comparison
		return errors.New("no such name")
	}
	fmt.Println(strings.Join(found, " "))
	return nil
}

// stream keeps one connection busy, a message and its echo at a time, until its standard input is at an end. It prints a line for each that came back.
func stream(args []string) error {
	c, err := (&net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{Port: number(args, 1)}}).Dial("tcp", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintf(c, "stream 0\n")
	done := make(chan struct{})
	go func() { io.Copy(io.Discard, os.Stdin); close(done) }()
	sent, got := make([]byte, 4096), make([]byte, 4096)
	for i := uint64(0); ; i++ {
		select {
		case <-done:
			return nil
		default:
		}
		binary.BigEndian.PutUint64(sent, i)
		c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write(sent); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if string(got) != string(sent) {
			return errors.New("another echo than what was sent")
		}
		fmt.Println(i)
		time.Sleep(2 * time.Millisecond)
	}
}
