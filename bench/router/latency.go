// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var latency = suite.Section{
	Name:  "latency",
	Title: "Latency with 128 sessions",
	About: "Round trips of 128 parallel sessions, each with one small message on its way. \"Sockets\": TCP and UDP between namespaces with real sockets, client on one CPU, server on the " +
		"other, as netperf's TCP_RR and UDP_RR do. \"Wire\": 128 XDP frames bounce between two reflectors through the router, which polls on a CPU of its own; nothing " +
		"but the router and two short programs is in the figure, which is where a NIC's neighbours would be.",
	Run: runLatency,
}

func socketLatency(b *suite.Bench) error {
	lanes, err := b.SocketLanes(nil)
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for _, kind := range []string{"tcp", "udp"} {
		for _, l := range lanes {
			turns = append(turns, b.PingPongTurn("sockets, "+kind, l, kind))
		}
	}
	return b.Turns("sockets", b.Size.Rounds, turns)
}

func wireLatency(b *suite.Bench) error {
	var turns []measure.Turn
	for _, v := range compared {
		t, err := b.WireTurn("wire, udp", v, lab.LineOptions{})
		if err != nil {
			return err
		}
		turns = append(turns, t)
	}
	return b.Turns("wire", b.Size.Rounds, turns)
}

func runLatency(b *suite.Bench) error {
	if err := wireLatency(b); err != nil {
		return err
	}
	if err := b.Undo(); err != nil {
		return err
	}
	return socketLatency(b)
}
