// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var latencySection = suite.Section{
	Name:   "latency",
	Title:  "Latency with 128 sessions",
	Budget: budget(120),
	About: "Round trips of 128 parallel sessions with one small message each on its way, through 100 rules by source of which the last one accepts the sessions, and with the same addresses in one ipset. " +
		"\"Wire\": XDP frames bounce between two reflectors through the router, which polls on a CPU of its own. \"Sockets\": TCP between namespaces with real sockets, as netperf's TCP_RR.",
	Run: runLatency,
}

// gateway is one of the two of the paper's table.
type gateway struct {
	name string
	d    dialect
	rs   table
}

var gateways = []gateway{{"100 rules", legacy, source(100)}, {"one ipset", byIPSet, oneSet(100)}}

func runLatency(b *suite.Bench) error {
	for _, part := range []func(*suite.Bench, gateway) error{wireLatency, socketLatency} {
		for _, g := range gateways {
			if err := b.Part(g.name, func() error { return part(b, g) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func wireLatency(b *suite.Bench, g gateway) error {
	c := "wire, " + g.name
	with := func(hook graph.Hook) func(*suite.Lane) error {
		return func(l *suite.Lane) error {
			l.Open = true
			if hook != "" {
				if err := suite.ShuntAt(hook)(l); err != nil {
					return err
				}
			}
			return give(g.d, g.rs, l)
		}
	}
	var turns []measure.Turn
	for _, v := range []suite.Variant{
		{Name: suite.LinuxGRO, Setup: with("")}, {Name: suite.ShuntXDP, Setup: with(graph.XDP)}, {Name: suite.ShuntTC, Setup: with(graph.TC)},
	} {
		t, err := b.WireTurn(c, v, lab.LineOptions{})
		if err != nil {
			return err
		}
		turns = append(turns, t)
	}
	return b.Turns(c, extents[b.Size.Name].rounds, turns)
}

func socketLatency(b *suite.Bench, g gateway) error {
	lanes, err := b.SocketLanes(func(ns *lab.NS) error { return g.d.replace(ns, g.rs) })
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for _, l := range lanes {
		if l.Variant != suite.ShuntXDP { // no way to treat sockets: the router's suite shows what it costs
			turns = append(turns, b.PingPongTurn("sockets, tcp, "+g.name, l, "tcp"))
		}
	}
	return b.Turns("sockets, tcp, "+g.name, extents[b.Size.Name].rounds, turns)
}
