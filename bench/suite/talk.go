// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Seat is a pair of containers, and the CPU that both share.
type Seat struct {
	*SocketLane
	CPU  int
	Warm time.Duration // more than the size's, before anything counts
}

// Assured is the Warm of datagrams where connections are tracked: Linux takes such a flow for settled after two seconds (nf_conntrack_udp_packet()).
const Assured = 2200 * time.Millisecond

// Talked is what pairs that talked did.
type Talked struct {
	Rate  float64   // round trips per second while it was measured
	All   int64     // round trips from the beginning
	Times []float64 // of the first pair's round trips while it was measured, µs
}

// RoundTrips is how many of one byte there are in a second, one after the other.
func (b *Bench) RoundTrips(l *SocketLane, kind string) (rate float64, err error) {
	t, err := b.Talk(kind, 1, Seat{SocketLane: l, CPU: b.DutCPU})
	return t.Rate, err
}

// Talk has pairs send a message to and fro, each one after the other, all at once.
func (b *Bench) Talk(kind string, size int, seats ...Seat) (t Talked, err error) {
	err = b.Retry(kind+" round trips", func() error {
		if t, err = b.talk(kind, size, seats...); err == nil && len(t.Times) == 0 {
			err = Spoiled("no answer came in time") // a short look at a busy machine
		}
		return err
	})
	return t, err
}

func (b *Bench) talk(kind string, size int, seats ...Seat) (t Talked, err error) {
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
			return t, err
		}
		fds = append(fds, client, server)
	}
	for _, fd := range fds {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 500_000}); err != nil {
			return t, os.NewSyscallError("setsockopt", err)
		}
	}
	var stop atomic.Bool
	var measured, total atomic.Int64
	var asking, answering []<-chan error
	warm := b.Size.Warm
	for _, s := range seats {
		warm = max(warm, b.Size.Warm+s.Warm)
	}
	begin := time.Now().Add(warm)
	end := begin.Add(b.Size.Measure)
	for i, s := range seats {
		client, server := fds[2*i], fds[2*i+1]
		answering = append(answering, s.Limit.Pinned(s.CPU, func() error {
			data := make([]byte, size)
			for !stop.Load() {
				if err := pass(server, server, data); err != nil && !errors.Is(err, unix.EAGAIN) {
					return err
				}
			}
			return nil
		}))
		asking = append(asking, s.Limit.Pinned(s.CPU, func() error {
			data := make([]byte, size)
			if _, err := unix.Write(client, data); err != nil {
				return os.NewSyscallError("write", err)
			}
			var in, ever int64
			defer func() { measured.Add(in); total.Add(ever) }()
			for now := time.Now(); now.Before(end); {
				if err := pass(client, client, data); err != nil {
					return fmt.Errorf("no answer came back: %w", err)
				}
				then := now
				now = time.Now()
				ever++
				if then.After(begin) {
					in++
					if i == 0 {
						t.Times = append(t.Times, float64(now.Sub(then).Nanoseconds())/1e3)
					}
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
	t.Rate, t.All = float64(measured.Load())/b.Size.Measure.Seconds(), total.Load()
	return t, err
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

// OneWay is how many messages arrive in a second where one thread sends some, and then reads them at the other end: what a packet costs from socket to socket,
// without a thread that has to be woken.
func (b *Bench) OneWay(size int, s Seat) (rate float64, err error) {
	client, server, err := s.UDPPair(7000)
	if err != nil {
		return 0, err
	}
	defer unix.Close(client)
	defer unix.Close(server)
	err = <-s.Limit.Pinned(s.CPU, func() error {
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
			got, err := readAll(server, data)
			if err != nil {
				return err
			}
			if now.After(begin) {
				n += got
			}
		}
		if n == 0 {
			return Spoiled("nothing arrived")
		}
		rate = float64(n) / b.Size.Measure.Seconds()
		return nil
	})
	return rate, err
}

// readAll reads all messages that are there.
func readAll(fd int, data []byte) (n int64, err error) {
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
