// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

var bulk = suite.Section{
	Name:  "bulk",
	Title: "Bulk TCP between local hosts",
	About: "TCP through a router whose neighbours are namespaces with real sockets, GRO, GSO and TSO on, as with containers: the case most likely to lose, since Linux forwards up to " +
		"64 KiB in one go. The sender is pinned to one CPU, the receiver to the other; 128 KiB writes. XDP would see every socket-born buffer and has to step aside. " +
		"\"Linux, again\" is a second router like the first: how far the two are apart is what chance does to every other figure here.",
	Run: runBulk,
}

func runBulk(b *suite.Bench) error {
	lanes, err := b.SocketLanes(nil)
	if err != nil {
		return err
	}
	again, err := b.SocketLane("linux, again", nil)
	if err != nil {
		return err
	}
	lanes = append(lanes, again)
	var turns []measure.Turn
	for _, flows := range []int{1, 4} {
		for _, l := range lanes {
			turns = append(turns, measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
				var rate float64
				err := b.Retry(l.Variant, func() (err error) { rate, err = pump(b, l, flows); return err })
				set.Add(plural(flows, "flow"), l.Variant, "throughput", "Gbit/s", rate*8/1e9)
				return err
			}})
		}
	}
	return b.Turns("bulk", 2*b.Size.Rounds, turns)
}

// pump sends as much as goes and returns bytes per second.
func pump(b *suite.Bench, l *suite.SocketLane, flows int) (rate float64, err error) {
	var received atomic.Int64
	var ends []<-chan error
	var clients []int
	for i := range flows {
		client, server, err := l.TCPPair(5000 + i)
		if err != nil {
			return 0, err
		}
		clients = append(clients, client)
		ends = append(ends,
			suite.Pinned(b.GenCPU, func() error { return send(client) }),
			suite.Pinned(b.DutCPU, func() error { return receive(server, &received) }))
	}
	time.Sleep(2 * b.Size.Warm)
	start, before := time.Now(), received.Load()
	time.Sleep(2 * b.Size.Measure)
	rate = float64(received.Load()-before) / time.Since(start).Seconds()
	for _, fd := range clients {
		unix.Shutdown(fd, unix.SHUT_RDWR)
	}
	for _, end := range ends {
		err = errors.Join(err, <-end)
	}
	if err == nil && rate == 0 {
		err = suite.Spoiled("nothing arrived through the router")
	}
	return rate, err
}

// send writes until the socket is shut down.
func send(fd int) error {
	defer unix.Close(fd)
	data := make([]byte, 128<<10)
	for {
		switch _, err := unix.SendmsgN(fd, data, nil, nil, unix.MSG_NOSIGNAL); {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN):
			return os.NewSyscallError("send", err)
		}
	}
}

// receive reads until the end of the stream.
func receive(fd int, received *atomic.Int64) error {
	defer unix.Close(fd)
	data := make([]byte, 128<<10)
	for {
		n, err := unix.Read(fd, data)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECONNRESET), err == nil && n == 0:
			return nil
		case err != nil:
			return os.NewSyscallError("read", err)
		}
		received.Add(int64(max(n, 0)))
	}
}
