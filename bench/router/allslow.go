// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

var allSlow = suite.Section{
	Name:  "slow",
	Title: "When everything is slow",
	About: "What shunt costs where it does not help: it is attached, and every packet passes every check but the last, then goes to Linux after all, since the " +
		"egress interface is excluded. After some thousand such packets in a row only one in sixteen is looked at (`resting`), which is what is measured here. A third interface is there so that shunt has a reason to be attached. \"Off\" is the same line without shunt. " +
		"An empty program at the same place, which passes everything, tells which part of the price is the kernel's for having any program there.",
	Run: runAllSlow,
}

// threePorts is the usual line with a second way out of the router, dut/alt to sink/alt.
func threePorts(receive lab.Receive) lab.Topology {
	t := lab.Line(lab.LineOptions{Threaded: true, Receive: receive})
	alt := lab.Link{
		A: lab.End{Node: lab.Dut, Name: "alt", Quiet: true, Threaded: true, Receive: receive, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.2.1/24")}},
		B: lab.End{Node: lab.SinkNode, Name: "alt", Wire: true, Receive: lab.ReceiveXDP},
	}
	t.Links = append(t.Links, alt)
	return t
}

// threePortLane builds it, with 50 prefixes behind out and 50 behind alt.
func threePortLane(b *suite.Bench, variant string) (*suite.Lane, error) {
	n, err := lab.Build(lab.UniquePrefix("bench"), threePorts(lab.ReceiveGRO))
	if err != nil {
		return nil, fmt.Errorf("building a line with three ports: %w", err)
	}
	l, err := b.AdoptLane(variant, n)
	if err != nil {
		return nil, err
	}
	dut := l.Node(lab.Dut)
	return l, errors.Join(
		dut.Exec("ip neigh add 10.0.2.2 lladdr %s nud permanent dev alt", n.Port(lab.SinkNode, "alt").MAC),
		dut.AddRoutes(lab.V4Prefixes(50), "via 10.0.1.2 dev out"),
		dut.AddRoutes(back, "via 10.0.2.2 dev alt"),
	)
}

func runAllSlow(b *suite.Bench) error {
	var turns []measure.Turn
	for _, v := range []struct {
		name string
		hook graph.Hook
		idle bool
	}{
		{suite.LinuxGRO, "", false},
		{suite.ShuntXDP, graph.XDP, false}, {suite.IdleXDP, graph.XDP, true},
		{suite.ShuntTC, graph.TC, false}, {suite.IdleTC, graph.TC, true},
	} {
		l, err := threePortLane(b, v.name)
		if err != nil {
			return err
		}
		switch {
		case v.idle:
			err = l.Idle(v.hook, l.In(), l.Port(lab.Dut, "alt"))
		case v.hook != "":
			err = l.Shunt(graph.Policy{Hook: string(v.hook), Exclude: []string{"out"}})
			l.Want = reason.EgressSlow
		}
		if b.Without(v.name, err) {
			continue
		}
		if err != nil {
			return err
		}
		w := l.AtIngress()
		turns = append(turns, l.Turn("egress excluded", w, l.Forward("v4", false, lab.V4Prefixes(50))))
	}
	return b.Turns("slow", 2*b.Size.Rounds, turns)
}
