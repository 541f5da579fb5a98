// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// extent says how much of what only a gateway has is measured.
type extent struct {
	rounds        int   // of what targets speak of
	sweep         int   // of what only shows how a curve goes on
	rules         []int // numbers of rules of the curves
	many          int   // rules that are "very many"
	headers       int   // to classify
	sets          []int // elements of the large hash:ip and hash:net
	filters       []int // sizes of ClassBench-like sets
	replays       int   // restores of very many rules
	sessions      []int // masqueraded
	conversations int   // with a daemon that is killed
}

var extents = map[string]extent{
	"full":  {5, 3, []int{1, 10, 1000, 10_000}, 10_000, 100_000, []int{1_000_000, 100_000}, []int{1000, 10_000}, 5, []int{1 << 14, 1 << 16, 258_000, 1 << 20}, 100_000},
	"quick": {2, 1, []int{1, 2000}, 2000, 5_000, []int{50_000, 10_000}, []int{1000}, 1, []int{1 << 14}, 5_000},
	"smoke": {1, 1, []int{10}, 50, 100, []int{100, 50}, []int{50}, 1, []int{200}, 300},
}

// prefixes are where packets go, as in the router's suite.
var prefixes = lab.V4Prefixes(50)

var rulesSection = suite.Section{
	Name:   "rules",
	Title:  "Rules",
	Budget: budget(560),
	About: "60-byte UDP packets, one per destination at random over 50 prefixes, through the chain FORWARD. \"Source\" rules ask for one source address each, \"mixed\" rules for five-tuples, ranges, " +
		"negation, lists of ports and interfaces, a tenth of them in a user chain. With \"match last\" the last rule accepts the packets; with \"match random\" each packet's source is that of " +
		"a rule at random. Sets and maps hold as many addresses as there would be rules. Shunt and Linux have the same rules in the same dialect. End to end: router and sink on one CPU. " +
		"Cost is that thread's run time per packet that arrived; \"fast\" is the share of the packets over which shunt decided by itself.",
	Run: runRules,
}

// ruleCase is one rule set under one kind of traffic.
type ruleCase struct {
	kind   string // "source", "mixed"
	n      int
	d      dialect
	random bool
	full   bool // with every variant and all rounds
}

func (c ruleCase) name() string {
	if c.n == 0 {
		return "no rules"
	}
	match := "last"
	if c.random {
		match = "random"
	}
	switch c.d {
	case byIPSet, byNftSet, byNftMap:
		return fmt.Sprintf("%s of %d addresses", c.d, c.n)
	}
	return fmt.Sprintf("%d %s rules, %s, match %s", c.n, c.kind, c.d, match)
}

func (c ruleCase) rules() table {
	switch {
	case c.n == 0:
		return table{}
	case c.d == byIPSet, c.d == byNftSet:
		return oneSet(c.n)
	case c.d == byNftMap:
		return oneMap(c.n)
	case c.random:
		return sourceRandom(c.n)
	case c.kind == "mixed":
		return mixed(c.n)
	}
	return source(c.n)
}

// stream is the traffic that the rules are about.
func (c ruleCase) stream(l *suite.Lane) suite.Stream {
	if !c.random {
		return l.Forward("plain", false, prefixes)
	}
	s := l.Forward(fmt.Sprintf("from %d sources", c.n), false, prefixes)
	s.Traffic.Src, s.Traffic.Sources = host(0), c.n
	return s
}

// targetCases are those that targets speak of.
func targetCases(d dialect) (out []ruleCase) {
	add := func(kind string, n int, d dialect) { out = append(out, ruleCase{kind: kind, n: n, d: d, full: true}) }
	if d == legacy {
		add("source", 0, d) // before any table is there
	}
	add("source", 100, d)
	add("mixed", 100, d)
	add("mixed", 1000, d)
	switch d {
	case legacy:
		add("source", 100, byIPSet)
	case nft:
		add("source", 100, byNftSet)
		add("source", 100, byNftMap)
	}
	return out
}

// sweepCases show how the curves go on.
func sweepCases(d dialect, e extent) (out []ruleCase) {
	for _, n := range e.rules {
		out = append(out, ruleCase{kind: "source", n: n, d: d})
	}
	if d == compat {
		return out
	}
	for _, n := range []int{100, e.many} {
		out = append(out, ruleCase{kind: "source", n: n, d: d, random: true})
	}
	out = append(out, ruleCase{kind: "mixed", n: e.many, d: d})
	if d == legacy {
		return append(out, ruleCase{kind: "source", n: e.many, d: byIPSet})
	}
	return append(out, ruleCase{kind: "source", n: e.many, d: byNftSet}, ruleCase{kind: "source", n: e.many, d: byNftMap})
}

// compared are Linux in its two ways and shunt at its two hooks.
var compared = []suite.Variant{
	suite.Linux, suite.LinuxWithoutGRO,
	{Name: suite.ShuntXDP, Setup: suite.ShuntAt(graph.XDP)},
	{Name: suite.ShuntTC, Setup: suite.ShuntAt(graph.TC)},
}

// runRules first measures what targets speak of in all dialects, then the curves: if time runs out, these are cut short.
func runRules(b *suite.Bench) error {
	e := extents[b.Size.Name]
	dialects := []dialect{legacy, compat, nft}
	for _, part := range []func(dialect) []ruleCase{targetCases, func(d dialect) []ruleCase { return sweepCases(d, e) }} {
		for _, d := range dialects {
			if err := b.Part(string(d), func() error { return measureRules(b, e, d, part(d)) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureRules measures the cases of one dialect on lanes that never had another one.
func measureRules(b *suite.Bench, e extent, d dialect, cases []ruleCase) error {
	variants, rounds := compared, e.rounds
	if !cases[len(cases)-1].full {
		variants, rounds = []suite.Variant{compared[0], compared[2], compared[3]}, e.sweep
	} else if d == legacy {
		variants = append(variants[:len(variants):len(variants)],
			suite.Variant{Name: suite.XDPFilter, Setup: func(l *suite.Lane) error { return l.XDPFilter(addresses(99)) }},
			suite.Variant{Name: suite.Bpfilter, Setup: func(l *suite.Lane) error { return l.Bpfilter(addresses(99)) }})
	}
	lanes, err := openLanes(b, variants)
	if err != nil {
		return err
	}
	for _, c := range cases {
		if b.Late() {
			b.Skip(c.name(), "the section's time was up")
			continue
		}
		b.Say("%s: loading", c.name())
		var turns []measure.Turn
		var with []*suite.Lane
		for _, l := range lanes {
			if !isPeer(l.Variant) {
				with = append(with, l)
			} else if c.n != 100 || c.kind != "source" || c.d != legacy {
				continue // the peer has its own 99 rules; Linux behind it has none
			}
			turns = append(turns, l.Turn(c.name(), l.AtIngress(), c.stream(l)))
		}
		if err := give(c.d, c.rules(), with...); err != nil {
			return err
		}
		if err := b.Turns(c.name(), rounds, turns); err != nil {
			return err
		}
		for _, l := range with {
			if err := c.d.clear(l.Node(lab.Dut)); err != nil {
				return err
			}
		}
	}
	return nil
}

func isPeer(variant string) bool { return variant == suite.XDPFilter || variant == suite.Bpfilter }

// openLanes are lanes of the variants that tell how much was fast.
func openLanes(b *suite.Bench, variants []suite.Variant) ([]*suite.Lane, error) {
	lanes, err := b.Lanes(variants, lab.LineOptions{V4: prefixes})
	for _, l := range lanes {
		l.Open = true
	}
	return lanes, err
}

// addresses are the first n hosts that are dropped.
func addresses(n int) (out []string) {
	for i := range n {
		out = append(out, host(i).String())
	}
	return out
}
