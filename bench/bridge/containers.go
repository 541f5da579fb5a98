// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var containersSection = suite.Section{
	Name:   "containers",
	Title:  "Containers on one bridge",
	Budget: budget(400),
	About: "Two namespaces with real sockets at the veths of a bridge, as containers are, GRO, GSO and TSO on. One connection, and both ends pinned to one CPU: on two, what is measured is how fast a CPU wakes " +
		"the other. Round trips carry one byte each way, one at a time, as netperf's TCP_RR and UDP_RR; the stream writes 128 KiB at a time, as TCP_STREAM. \"Linux, again\" is a second bridge like the first: how far " +
		"the two are apart is what chance does to the other figures.",
	Run: runContainers,
}

func runContainers(b *suite.Bench) error {
	for _, s := range []situation{plain, called, tracked} {
		if err := b.Part(s.name, func() error { return betweenContainers(b, s) }); err != nil {
			return err
		}
	}
	return nil
}

const (
	linuxAgain = "linux, again"
	shuntAuto  = "shunt auto"
)

func betweenContainers(b *suite.Bench, s situation) error {
	var lanes []*suite.SocketLane
	for _, variant := range []string{suite.LinuxGRO, linuxAgain, shuntAuto} {
		l, err := b.BridgeLane(variant, s.host)
		if err != nil {
			return err
		}
		if variant == shuntAuto {
			if err := b.Accelerate(l, "auto"); err != nil {
				return err
			}
		}
		lanes = append(lanes, l)
	}
	var turns []measure.Turn
	for _, kind := range []string{"tcp", "udp"} {
		for _, l := range lanes {
			turns = append(turns, measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
				rate, err := roundTrips(b, l, kind)
				set.Add(s.name+": "+kind+" round trips", l.Variant, "rate", "round trips/s", rate)
				return err
			}})
		}
	}
	for _, l := range lanes {
		turns = append(turns, measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
			rate, err := b.Pump(l, 1, b.DutCPU, b.DutCPU)
			set.Add(s.name+": tcp stream", l.Variant, "throughput", "Gbit/s", rate*8/1e9)
			return err
		}})
	}
	return b.Turns(s.name, 2*b.Size.Rounds, turns)
}

// host makes a bridge of the ports that containers hang on.
func (s situation) host(ns *lab.NS) error {
	if err := ns.Feed("link add br0 type bridge\nlink set p0 master br0\nlink set p1 master br0\nlink set br0 up\n", "ip -batch -"); err != nil {
		return err
	}
	return s.configure(ns)
}

// roundTrips is how many there are in a second, one after the other.
func roundTrips(b *suite.Bench, l *suite.SocketLane, kind string) (rate float64, err error) {
	pair := l.TCPPair
	if kind == "udp" {
		pair = l.UDPPair
	}
	client, server, err := pair(7000)
	if err != nil {
		return 0, err
	}
	defer unix.Close(client)
	defer unix.Close(server)
	for _, fd := range []int{client, server} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 500_000}); err != nil {
			return 0, os.NewSyscallError("setsockopt", err)
		}
	}
	var stop atomic.Bool
	answering := suite.Pinned(b.DutCPU, func() error {
		for !stop.Load() {
			if err := pass(server, server); err != nil && !errors.Is(err, unix.EAGAIN) {
				return err
			}
		}
		return nil
	})
	asking := suite.Pinned(b.DutCPU, func() error {
		defer stop.Store(true)
		if _, err := unix.Write(client, []byte{1}); err != nil {
			return os.NewSyscallError("write", err)
		}
		begin := time.Now().Add(b.Size.Warm)
		end := begin.Add(b.Size.Measure)
		n := 0
		for now := time.Now(); now.Before(end); now = time.Now() {
			if err := pass(client, client); err != nil {
				return fmt.Errorf("no answer came back: %w", err)
			}
			if now.After(begin) {
				n++
			}
		}
		rate = float64(n) / b.Size.Measure.Seconds()
		return nil
	})
	return rate, errors.Join(<-asking, <-answering)
}

// pass waits for a message and sends it.
func pass(from, to int) error {
	var data [8]byte
	for {
		n, err := unix.Read(from, data[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n > 0 {
			_, err = unix.Write(to, data[:n])
		}
		return err
	}
}
