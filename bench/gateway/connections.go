// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var connectionsSection = suite.Section{
	Name:   "connections",
	Title:  "New connections",
	Budget: budget(90),
	About: "One TCP connection after the other, masqueraded, between real sockets on a CPU each: connect, a byte there, a byte back, close, as netperf's TCP_CRR. Beginnings and ends of connections are Linux's; what is " +
		"shown is what it costs that shunt looks at them first. \"Reset\" are connections of a round that ended by one: at XDP a veth hands what Linux sends and what is redirected to its peer by two ways, and a server whose CPUs take a handshake's end and the first data " +
		"at the same time may know neither (a race of lookups without a lock in Linux 6.18, inet_ehash_insert()). On veths auto takes TC.",
	Run: runConnections,
}

const caseConnections = "masqueraded connections"

func runConnections(b *suite.Bench) error {
	return b.Part(caseConnections, func() error {
		lanes, err := b.SocketLanes(func(router *lab.NS) error {
			return router.Shell("nft 'table ip masq { chain post { type nat hook postrouting priority srcnat; oifname p1 masquerade; }; }'")
		})
		if err != nil {
			return err
		}
		var turns []measure.Turn
		for _, l := range lanes {
			turns = append(turns, measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
				rate, resets, err := b.Connections(l)
				if err == nil {
					set.Add(caseConnections, l.Variant, "rate", "connections/s", rate)
					set.Add(caseConnections, l.Variant, "reset", "connections", float64(resets))
				}
				return err
			}})
		}
		return b.Turns(caseConnections, extents[b.Size.Name].rounds, turns)
	})
}
