// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/suite"
)

// seat is a pair of containers, and the CPU that both share.
type seat struct {
	*suite.SocketLane
	cpu int
}

// roundTrips is how many of one byte there are in a second, one after the other.
func roundTrips(b *suite.Bench, l *suite.SocketLane, kind string) (rate float64, err error) {
	rate, _, err = talk(b, kind, 1, seat{l, b.DutCPU})
	return rate, err
}

// talk has pairs send a message to and fro, each one after the other, all at once: how many round trips there are in a second, and how many there were
// in all.
func talk(b *suite.Bench, kind string, size int, seats ...seat) (rate float64, all int64, err error) {
	var fds []int // a client and a server for each pair
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for i, s := range seats {
		pair := s.TCPPair
		if kind == "udp" {
			pair = s.UDPPair
		}
		client, server, err := pair(7000 + i)
		if err != nil {
			return 0, 0, err
		}
		fds = append(fds, client, server)
	}
	for _, fd := range fds {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 500_000}); err != nil {
			return 0, 0, os.NewSyscallError("setsockopt", err)
		}
	}
	var stop atomic.Bool
	var measured, total atomic.Int64
	var asking, answering []<-chan error
	begin := time.Now().Add(b.Size.Warm)
	end := begin.Add(b.Size.Measure)
	for i, s := range seats {
		client, server := fds[2*i], fds[2*i+1]
		answering = append(answering, suite.Pinned(s.cpu, func() error {
			data := make([]byte, size)
			for !stop.Load() {
				if err := pass(server, server, data); err != nil && !errors.Is(err, unix.EAGAIN) {
					return err
				}
			}
			return nil
		}))
		asking = append(asking, suite.Pinned(s.cpu, func() error {
			data := make([]byte, size)
			if _, err := unix.Write(client, data); err != nil {
				return os.NewSyscallError("write", err)
			}
			var in, ever int64
			defer func() { measured.Add(in); total.Add(ever) }()
			for now := time.Now(); now.Before(end); now = time.Now() {
				if err := pass(client, client, data); err != nil {
					return fmt.Errorf("no answer came back: %w", err)
				}
				ever++
				if now.After(begin) {
					in++
				}
			}
			return nil
		}))
	}
	for _, ended := range asking {
		err = errors.Join(err, <-ended)
	}
	stop.Store(true)
	for _, ended := range answering {
		err = errors.Join(err, <-ended)
	}
	return float64(measured.Load()) / b.Size.Measure.Seconds(), total.Load(), err
}

// pass waits for a message and sends it.
func pass(from, to int, data []byte) error {
	for {
		n, err := unix.Read(from, data)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n > 0 {
			_, err = unix.Write(to, data[:n])
		}
		return err
	}
}

// burst is how many messages are on their way at a time where they go one way only.
const burst = 32

// oneWay is how many messages arrive in a second where one thread sends some, and then reads them at the other end: what a packet costs from socket to socket,
// without a thread that has to be woken.
func oneWay(b *suite.Bench, size int, s seat) (rate float64, err error) {
	client, server, err := s.UDPPair(7000)
	if err != nil {
		return 0, err
	}
	defer unix.Close(client)
	defer unix.Close(server)
	err = <-suite.Pinned(s.cpu, func() error {
		data := make([]byte, size)
		begin := time.Now().Add(b.Size.Warm)
		end := begin.Add(b.Size.Measure)
		var n int64
		for now := time.Now(); now.Before(end); now = time.Now() {
			for range burst {
				if _, err := unix.Write(client, data); err != nil {
					return os.NewSyscallError("write", err)
				}
			}
			got, err := drain(server, data)
			if err != nil {
				return err
			}
			if now.After(begin) {
				n += got
			}
		}
		if n == 0 {
			return suite.Spoiled("nothing arrived")
		}
		rate = float64(n) / b.Size.Measure.Seconds()
		return nil
	})
	return rate, err
}

// drain reads all messages that are there.
func drain(fd int, data []byte) (n int64, err error) {
	for {
		_, _, err := unix.Recvfrom(fd, data, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return n, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return n, os.NewSyscallError("recvfrom", err)
		case err == nil:
			n++
		}
	}
}
