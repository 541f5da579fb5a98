// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

const (
	linuxAgain = "linux, again"
	shuntAuto  = "shunt auto"
	bareHosts  = "host to host"
)

var podsSection = suite.Section{
	Name:   "pods",
	Title:  "Pods of two nodes",
	Budget: budget(600),
	About: "One connection between pods as Flannel joins them, br_netfilter, connection tracking and kube-proxy's rules on; one shunt on each node. Both ends pinned to one CPU: on two, what is measured is how fast a CPU wakes " +
		"the other. Round trips carry one byte each way, one at a time, as netperf's TCP_RR and UDP_RR; the stream writes 128 KiB at a time, as TCP_STREAM. \"Linux, again\" is a second cluster like the first: how far " +
		"the two are apart is what chance does to the other figures. \"Host to host\" is between sockets of the two nodes themselves, without bridge, tunnel and pods.",
	Run: runPods,
}

// way is how two pods reach each other.
type way struct {
	name    string
	backend string
	lane    func(*cluster) *suite.SocketLane
	udp     bool
}

var ways = []way{
	{"two nodes, VXLAN", vxlan, (*cluster).across, true},
	{"two nodes, VXLAN, by a service's address", vxlan, (*cluster).served, false},
	{"two nodes, host-gw", hostGW, (*cluster).across, true},
	{"one node", vxlan, (*cluster).near, true},
}

func runPods(b *suite.Bench) error {
	for _, w := range ways {
		if err := b.Part(w.name, func() error { return measurePods(b, w) }); err != nil {
			return err
		}
	}
	return nil
}

func measurePods(b *suite.Bench, w way) error {
	var lanes []*suite.SocketLane
	for _, variant := range []string{suite.LinuxGRO, linuxAgain, shuntAuto} {
		c, err := kind{backend: w.backend, pairs: 1}.build(b, variant)
		if err != nil {
			return err
		}
		lanes = append(lanes, w.lane(c))
		if variant == suite.LinuxGRO && w.name == ways[0].name {
			lanes = append(lanes, c.bare())
		}
	}
	kinds := []string{"tcp", "udp"}
	if !w.udp {
		kinds = kinds[:1]
	}
	var turns []measure.Turn
	for _, kind := range kinds {
		for _, l := range lanes {
			turns = append(turns, measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
				talked, err := b.Talk(kind, 1, seat(b, l, kind, b.DutCPU))
				if err != nil {
					return err
				}
				suite.AddLatency(set, w.name+": "+kind+" round trips", l.Variant, measure.Of(talked.Times), talked.Rate)
				return nil
			}})
		}
	}
	for _, l := range lanes {
		turns = append(turns, streamTurn(b, w.name, l))
	}
	return b.Turns(w.name, b.Size.Rounds, turns)
}

// seat is a pair on a CPU, for TCP or UDP.
func seat(b *suite.Bench, l *suite.SocketLane, kind string, cpu int) suite.Seat {
	s := suite.Seat{SocketLane: l, CPU: cpu}
	if kind == "udp" && b.Size.Name != "smoke" {
		s.Warm = suite.Assured
	}
	return s
}

// streamTurn measures bulk from one pod to another.
func streamTurn(b *suite.Bench, name string, l *suite.SocketLane) measure.Turn {
	return measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
		rate, err := b.Pump(l, 1, b.DutCPU, b.DutCPU)
		if err != nil {
			return err
		}
		set.Add(name+": tcp stream", l.Variant, "throughput", "Gbit/s", rate*8/1e9)
		return nil
	}}
}
