// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

var sizesSection = suite.Section{
	Name:   "sizes",
	Title:  "Messages by their size",
	Budget: budget(170),
	About: "The containers of \"Containers on one bridge\", both on one CPU. NetPIPE sends messages of 1 byte to 1 MiB to and fro by TCP: its time is half of a round trip, its bandwidth what that makes. Of the sizes that it takes, the powers of two are " +
		"kept. Beside it messages of 64 bytes by UDP: to and fro one at a time, and one way, where one thread sends 32 and then reads them at the other end.",
	Run: runSizes,
}

// smallest and largest are the messages' sizes in bytes, and the size from which on each is sent fewer times.
const (
	smallest = 1
	large    = 16 << 10
	largest  = 1 << 20
)

func runSizes(b *suite.Bench) error {
	return b.Part("sizes", func() error {
		var turns []measure.Turn
		piped := true
		for _, s := range []situation{plain, tracked} {
			for _, variant := range []string{suite.LinuxGRO, shuntAuto} {
				l, err := containersOn(b, variant, 1, s.host)
				if err != nil {
					return err
				}
				turns = append(turns, smallTurn(b, s, l), measure.Turn{Name: l.Variant + ", NetPIPE", Run: func(set *measure.Set) error {
					if !piped {
						return nil
					}
					err := netPIPE(b, set, s, l)
					if b.Without("NetPIPE", err) {
						piped, err = false, nil
					}
					return err
				}})
			}
		}
		return b.Turns("sizes", extents[b.Size.Name].rounds, turns)
	})
}

// smallTurn measures messages of 64 bytes by UDP.
func smallTurn(b *suite.Bench, s situation, l *suite.SocketLane) measure.Turn {
	const size = 64
	return measure.Turn{Name: l.Variant + ", " + s.name, Run: func(set *measure.Set) error {
		seat := suite.Seat{SocketLane: l, CPU: b.DutCPU}
		talked, err := b.Talk("udp", size, seat)
		if err != nil {
			return err
		}
		set.Add(fmt.Sprintf("%s: udp round trips of %d bytes", s.name, size), l.Variant, "rate", "round trips/s", talked.Rate)
		var rate float64
		err = b.Retry(l.Variant, func() (err error) { rate, err = b.OneWay(size, seat); return err })
		set.Add(fmt.Sprintf("%s: udp of %d bytes, one way", s.name, size), l.Variant, "rate", "packets/s", rate)
		return err
	}}
}

// netPIPE measures all sizes, the larger ones fewer times each.
func netPIPE(b *suite.Bench, set *measure.Set, s situation, l *suite.SocketLane) error {
	n := extents[b.Size.Name].messages
	for _, part := range [][3]int{{smallest, large - 1, n}, {large, largest, max(n/10, 1)}} {
		found, err := b.NetPIPE(l, b.DutCPU, part[0], part[1], part[2])
		if err != nil {
			return err
		}
		for _, m := range found {
			if m.Bytes&(m.Bytes-1) != 0 {
				continue
			}
			set.Add(messageCase(s, m.Bytes), l.Variant, "latency", "µs", m.Latency)
			set.Add(messageCase(s, m.Bytes), l.Variant, "bandwidth", "Gbit/s", m.Megabits/1e3)
		}
	}
	return nil
}

func messageCase(s situation, bytes int) string {
	return fmt.Sprintf("%s: NetPIPE, %s", s.name, byteSize(bytes))
}

// byteSize prints a power of two.
func byteSize(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
