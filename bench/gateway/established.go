// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

var establishedSection = suite.Section{
	Name:   "established",
	Title:  "Established flows",
	Budget: budget(90),
	About: "The way nearly every firewall begins: \"established, related accept\", then 100 source rules that do not match. 50 UDP flows have had packets in both directions for more than two seconds, so that " +
		"connection tracking holds them for assured; the measured packets are theirs, in the direction of the first one.",
	Run: runEstablished,
}

func runEstablished(b *suite.Bench) error {
	for _, d := range []dialect{legacy, nft} {
		if err := b.Part(establishedCase(d), func() error { return measureEstablished(b, d) }); err != nil {
			return err
		}
	}
	return nil
}

func measureEstablished(b *suite.Bench, d dialect) error {
	return measureFlows(b, compared, flowCase{establishedCase(d), prefixes.Count, plain, func(lanes []*suite.Lane) error { return give(d, stateful(source(100)), lanes...) }})
}

func establishedCase(d dialect) string { return "established, then 100 rules, " + string(d) }

// flowCase is a number of flows through routers that were made ready, and established by answers; either may be nil.
type flowCase struct {
	name    string
	flows   int
	answer  answered
	prepare func(lanes []*suite.Lane) error
}

// measureFlows compares variants on flows, all cases in turns.
func measureFlows(b *suite.Bench, variants []suite.Variant, cases ...flowCase) error {
	var all []*suite.Lane
	var turns []measure.Turn
	for _, c := range cases {
		lanes, err := openLanes(b, variants)
		if err != nil {
			return err
		}
		if c.prepare != nil {
			if err := c.prepare(lanes); err != nil {
				return err
			}
		}
		if c.answer != nil {
			if err := establish(b, lanes, c.flows, c.answer); err != nil {
				return err
			}
		}
		for _, l := range lanes {
			stream := l.Forward("plain", false, prefixes)
			stream.Traffic.Flows = c.flows
			turns = append(turns, l.Turn(c.name, l.AtIngress(), stream))
		}
		all = append(all, lanes...)
	}
	if err := ready(all...); err != nil {
		return err
	}
	return b.Turns(cases[len(cases)-1].name, extents[b.Size.Name].rounds, turns)
}
