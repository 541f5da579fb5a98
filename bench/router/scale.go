// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

var scale = suite.Section{
	Name:  "scale",
	Title: "Routes, flows, directions, sizes",
	About: "The same line with the table or the traffic varied. Destinations are drawn uniformly over all routes, so that a large table " +
		"is missed by the CPU's caches as it would be in a core router; before the first round shunt has met nearly all of them. In both directions the router works on one CPU still.",
	Run: runScale,
}

func runScale(b *suite.Bench) error {
	for _, part := range []func(*suite.Bench) error{scaleTraffic, scaleRoutes} {
		if err := part(b); err != nil {
			return err
		}
		if err := b.Undo(); err != nil {
			return err
		}
	}
	return nil
}

// compared are the variants of this section: scaling says little about the others.
var compared = []suite.Variant{{Name: suite.LinuxGRO}, {Name: suite.ShuntXDP, Setup: suite.ShuntAt(graph.XDP)}, {Name: suite.ShuntTC, Setup: suite.ShuntAt(graph.TC)}}

// scaleRoutes holds all tables at once, so that the sizes are compared round by round too.
func scaleRoutes(b *suite.Bench) error {
	var turns []measure.Turn
	for _, n := range extents[b.Size.Name].routes {
		b.Say("making tables of %d routes", n)
		routes := lab.V4Prefixes(n)
		list := compared
		if n > 100_000 {
			list = compared[:2] // a third table of a million says nothing new
		}
		lanes, err := b.Lanes(list, lab.LineOptions{V4: routes})
		if err != nil {
			return err
		}
		for _, l := range lanes {
			w, all := l.AtIngress(), l.Forward("all routes", false, routes)
			if err := meetAll(l, w, all, n); err != nil {
				return err
			}
			turns = append(turns, l.Turn(plural(n, "route"), w, all))
		}
	}
	return b.Turns("routes", b.Size.Rounds, turns)
}

// meetAll sends shunt four packets for each route, so that nearly every destination has been met: what is measured is a router at work. One that has
// just been started, or whose routes have just changed, looks each up first.
func meetAll(l *suite.Lane, w suite.Work, s suite.Stream, routes int) error {
	if l.Engine == nil {
		return nil
	}
	if _, err := w.Threads(); err != nil {
		return err
	}
	g, err := l.Generator(s)
	if err == nil {
		err = g.Start()
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c, err := l.Counters()
		if err != nil {
			return errors.Join(err, g.Stop())
		}
		if c[reason.Fast] >= uint64(4*routes) {
			break
		}
	}
	return g.Stop()
}

// back are prefixes behind the source, for traffic the other way.
var back = lab.Prefixes{First: netip.MustParsePrefix("40.0.0.0/24"), Count: 50}

func scaleTraffic(b *suite.Bench) error {
	routes := lab.V4Prefixes(50)
	lanes, err := b.Lanes(compared, lab.LineOptions{V4: routes})
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for _, l := range lanes {
		if err := l.Node(lab.Dut).AddRoutes(back, "via 10.0.0.2 dev in"); err != nil {
			return err
		}
		one := l.AtIngress()
		there := l.Forward("there", false, routes)
		for _, flows := range []int{1, 10_000} {
			s := l.Forward(fmt.Sprintf("%d flows", flows), false, routes)
			s.Traffic.Flows = flows
			turns = append(turns, l.Turn(plural(flows, "flow"), one, s))
		}
		again := suite.Stream{Name: "back", Port: l.RX(), Traffic: l.RX().Traffic("10.0.1.2", back), CPU: b.GenCPU}
		turns = append(turns, l.Turn("both directions", suite.Work{Ports: []*lab.Port{l.In(), l.Out()}, CPUs: []int{b.DutCPU}}, there, again))
		for _, size := range []int{60, 128, 256, 512, 1024, 1514} {
			s := l.Forward(fmt.Sprintf("%d bytes", size), false, routes)
			s.Traffic.Size = size
			turns = append(turns, l.Turn(fmt.Sprintf("%d bytes", size), one, s))
		}
	}
	return b.Turns("traffic", b.Size.Rounds, turns)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
