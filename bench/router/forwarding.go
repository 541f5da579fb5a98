// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var forwarding = suite.Section{
	Name:  "forwarding",
	Title: "Forwarding",
	About: "60-byte UDP packets (62 bytes with IPv6), one per destination at random over 50 prefixes, one queue. They are made on one CPU as XDP frames, " +
		"as from a NIC driver; the router polls on a kernel thread pinned to the other. \"End to end\" has the sink's work on the router's CPU, " +
		"\"router alone\" has it on the generator's. Cost is that thread's run time per packet that arrived.",
	Run: runForwarding,
}

func runForwarding(b *suite.Bench) error {
	prefixes := lab.LineOptions{V4: lab.V4Prefixes(50), V6: lab.V6Prefixes(50)}
	lanes, err := b.Lanes(suite.Variants, prefixes)
	if err != nil {
		return err
	}
	for _, apart := range []bool{false, true} {
		where := "end to end"
		if apart {
			where = "router alone"
		}
		var v4, v6 []measure.Turn
		for _, l := range lanes {
			if err := l.SinkApart(apart); err != nil {
				return err
			}
			w := l.AtIngress()
			v4 = append(v4, l.Turn("ipv4, "+where, w, l.Forward("v4", false, prefixes.V4)))
			v6 = append(v6, l.Turn("ipv6, "+where, w, l.Forward("v6", true, prefixes.V6)))
		}
		if err := b.Turns("ipv4, "+where, b.Size.Rounds, v4); err != nil {
			return err
		}
		if err := b.Turns("ipv6, "+where, b.Size.Rounds, v6); err != nil {
			return err
		}
	}
	return nil
}
