// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var dropsSection = suite.Section{
	Name:   "drops",
	Title:  "Dropping what is blacklisted",
	Budget: budget(150),
	About: "Every packet comes from a blacklisted source and is dropped: by a rule in FORWARD, in raw PREROUTING (both iptables-legacy), or at nft's netdev ingress, the earliest place that Linux has. " +
		"One rule, except where the name says 100: there packets come from all of them at random. Cost is the router's run time per packet that it took in. " +
		"\"drop\" is the floor: an XDP program that drops everything, \"drop, address read\" one that looks at the sender's address before.",
	Run: runDrops,
}

// blacklist is a place to drop at.
type blacklist struct {
	name    string
	sources int
	apply   func(*lab.NS, int) error
}

const ingress = `table netdev bench {
	chain ingress { type filter hook ingress device "in" priority 0; ip saddr 20.0.0.1 drop; }
}
`

// Names of cases that targets speak of.
const (
	dropForward = "FORWARD"
	dropRaw     = "raw PREROUTING"
	dropNetdev  = "nft netdev ingress"
)

var blacklists = []blacklist{
	{dropForward, 1, forwardDrops},
	{dropRaw, 1, func(ns *lab.NS, n int) error {
		return ns.Feed("*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A PREROUTING -s "+host(0).String()+" -j DROP\nCOMMIT\n", "iptables-legacy-restore")
	}},
	{dropNetdev, 1, func(ns *lab.NS, n int) error { return ns.Feed(ingress, "nft -f -") }},
	{"FORWARD, 100 sources", 100, forwardDrops},
}

func forwardDrops(ns *lab.NS, n int) error {
	var rs table
	for i := range n {
		rs.forward = append(rs.forward, rule{src: single(host(i)), does: "DROP"})
	}
	return legacy.replace(ns, rs)
}

func runDrops(b *suite.Bench) error {
	for _, list := range blacklists {
		if err := b.Part(list.name, func() error { return dropBy(b, list) }); err != nil {
			return err
		}
	}
	return nil
}

func dropBy(b *suite.Bench, list blacklist) error {
	variants := append(compared[:len(compared):len(compared)], suite.Floor, suite.FloorRead,
		suite.Variant{Name: suite.XDPFilter, Setup: func(l *suite.Lane) error { return l.XDPFilter(addresses(list.sources)) }},
		suite.Variant{Name: suite.Bpfilter, Setup: func(l *suite.Lane) error { return l.Bpfilter(addresses(list.sources)) }})
	lanes, err := openLanes(b, variants)
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for _, l := range lanes {
		l.Count = l.In().Received
		if !isPeer(l.Variant) && l.Variant != suite.DropAll && l.Variant != suite.DropRead {
			if err := list.apply(l.Node(lab.Dut), list.sources); err != nil {
				return err
			}
		}
		s := l.Forward("blacklisted", false, prefixes)
		s.Traffic.Src, s.Traffic.Sources = host(0), list.sources
		turns = append(turns, l.Turn(list.name, l.AtIngress(), s))
	}
	if err := ready(lanes...); err != nil {
		return err
	}
	return b.Turns(list.name, extents[b.Size.Name].rounds, turns)
}
