// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var floodsSection = suite.Section{
	Name:   "floods",
	Title:  "What is left to Linux",
	Budget: budget(90),
	About:  "Packets that no fast path of shunt's takes: to a station that the bridge does not know, and to a group. What shunt's look at them costs is all that it can change; the ratio should be close to 1.",
	Run:    runFloods,
}

// The cases, by where their packets go.
var floods = map[string]net.HardwareAddr{
	"unknown station": {0x02, 0x98, 0, 0, 0, 1},
	"group":           {0x01, 0, 0x5e, 1, 1, 1},
}

func runFloods(b *suite.Bench) error {
	lanes, err := b.Lanes([]suite.Variant{
		{Name: suite.LinuxGRO, Setup: plain.setup("", nil)}, {Name: suite.LinuxNoGRO, Line: suite.LinuxWithoutGRO.Line, Setup: plain.setup("", suite.LinuxWithoutGRO.Setup)},
		{Name: suite.ShuntXDP, Setup: plain.setup(graph.XDP, nil)}, {Name: suite.ShuntTC, Setup: plain.setup(graph.TC, nil)},
	}, lab.LineOptions{V4: flows})
	if err != nil {
		return err
	}
	settle(lanes)
	for _, c := range []string{"unknown station", "group"} {
		var turns []measure.Turn
		for _, l := range lanes {
			s := across(l, c)
			s.Traffic.DstMAC = floods[c]
			turns = append(turns, l.Turn(c, l.AtIngress(), s))
		}
		if err := b.Turns(c, extents[b.Size.Name].rounds, turns); err != nil {
			return err
		}
	}
	return nil
}
