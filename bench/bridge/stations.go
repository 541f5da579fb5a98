// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var stationsSection = suite.Section{
	Name:   "stations",
	Title:  "Many stations",
	Budget: budget(180),
	About:  "The same packets through a bridge whose forwarding database holds many other stations, half of them behind each port.",
	Run:    runStations,
}

func runStations(b *suite.Bench) error {
	for _, n := range extents[b.Size.Name].stations {
		if err := b.Part(stationsCase(n), func() error { return measureStations(b, n) }); err != nil {
			return err
		}
	}
	return nil
}

func stationsCase(n int) string { return fmt.Sprintf("%d stations", n) }

func measureStations(b *suite.Bench, n int) error {
	lanes, err := b.Lanes([]suite.Variant{
		{Name: suite.LinuxGRO, Setup: plain.setup("", nil)}, {Name: suite.LinuxNoGRO, Line: suite.LinuxWithoutGRO.Line, Setup: plain.setup("", suite.LinuxWithoutGRO.Setup)},
		{Name: suite.ShuntXDP, Setup: plain.setup(graph.XDP, nil)}, {Name: suite.ShuntTC, Setup: plain.setup(graph.TC, nil)},
	}, lab.LineOptions{V4: flows})
	if err != nil {
		return err
	}
	for _, l := range lanes {
		if err := l.Node(lab.Dut).Feed(others(n-2), "bridge -batch -"); err != nil {
			return fmt.Errorf("adding stations: %w", err)
		}
	}
	settle(lanes)
	var turns []measure.Turn
	for _, l := range lanes {
		turns = append(turns, l.Turn(stationsCase(n), l.AtIngress(), across(l, "plain")))
	}
	return b.Turns(stationsCase(n), extents[b.Size.Name].rounds, turns)
}

// others are commands that make n stations known, as if they had been heard.
func others(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "fdb add 02:99:%02x:%02x:%02x:01 dev %s master dynamic\n", byte(i>>16), byte(i>>8), byte(i), []string{"in", "out"}[i%2])
	}
	return b.String()
}
