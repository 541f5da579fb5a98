// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

var bulk = suite.Section{
	Name:  "bulk",
	Title: "Bulk TCP between local hosts",
	About: "TCP through a router whose neighbours are namespaces with real sockets, GRO, GSO and TSO on, as with containers: the case most likely to lose, since Linux forwards up to " +
		"64 KiB in one go. The sender is pinned to one CPU, the receiver to the other; 128 KiB writes. XDP would see every socket-born buffer and has to step aside. " +
		"\"Linux, again\" is a second router like the first: how far the two are apart is what chance does to every other figure here.",
	Run: runBulk,
}

func runBulk(b *suite.Bench) error {
	lanes, err := b.SocketLanes(nil)
	if err != nil {
		return err
	}
	again, err := b.SocketLane("linux, again", nil)
	if err != nil {
		return err
	}
	lanes = append(lanes, again)
	var turns []measure.Turn
	for _, flows := range []int{1, 4} {
		for _, l := range lanes {
			turns = append(turns, measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
				var rate float64
				err := b.Retry(l.Variant, func() (err error) { rate, err = b.Pump(l, flows, b.GenCPU, b.DutCPU); return err })
				set.Add(plural(flows, "flow"), l.Variant, "throughput", "Gbit/s", rate*8/1e9)
				return err
			}})
		}
	}
	return b.Turns("bulk", 2*b.Size.Rounds, turns)
}
