// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var bridgingSection = suite.Section{
	Name:   "bridging",
	Title:  "Bridging",
	Budget: budget(300),
	About: "60-byte UDP packets of 50 flows from one station to another, both known to the bridge, one queue. They are made on one CPU as XDP frames, as from a NIC driver; the bridge polls on a kernel " +
		"thread pinned to the other, and the sink's work is on that CPU too. Cost is that thread's run time per packet that arrived. The bridge calls nothing, then br_netfilter without a rule, then with one that " +
		"asks for the state of connections (the flows are established), as Docker and Kubernetes set it; and last two rules of the bridge's own family that match nothing.",
	Run: runBridging,
}

func runBridging(b *suite.Bench) error {
	for _, s := range situations {
		if err := b.Part(s.name, func() error { return measureBridging(b, s) }); err != nil {
			return err
		}
	}
	return nil
}

func measureBridging(b *suite.Bench, s situation) error {
	lanes, err := b.Lanes(compared(s), lab.LineOptions{V4: flows})
	if err != nil {
		return err
	}
	if s.track {
		if err := establish(lanes); err != nil {
			return err
		}
	}
	settle(lanes)
	var turns []measure.Turn
	for _, l := range lanes {
		turns = append(turns, l.Turn(s.name, l.AtIngress(), across(l, "plain")))
	}
	return b.Turns(s.name, extents[b.Size.Name].rounds, turns)
}

// settle waits until what happened to the bridges has been taken in.
func settle(lanes []*suite.Lane) {
	for _, l := range lanes {
		if l.Engine != nil {
			l.Engine.Settle()
		}
	}
}
