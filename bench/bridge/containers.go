// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var containersSection = suite.Section{
	Name:   "containers",
	Title:  "Containers on one bridge",
	Budget: budget(300),
	About: "Two namespaces with real sockets at the veths of a bridge, as containers are, GRO, GSO and TSO on. One connection, and both ends pinned to one CPU: on two, what is measured is how fast a CPU wakes " +
		"the other. Round trips carry one byte each way, one at a time, as netperf's TCP_RR and UDP_RR; the stream writes 128 KiB at a time, as TCP_STREAM. \"Linux, again\" is a second bridge like the first: how far " +
		"the two are apart is what chance does to the other figures.",
	Run: runContainers,
}

func runContainers(b *suite.Bench) error {
	for _, s := range []situation{plain, called, tracked} {
		if err := b.Part(s.name, func() error { return betweenContainers(b, s) }); err != nil {
			return err
		}
	}
	return nil
}

const (
	linuxAgain = "linux, again"
	shuntAuto  = "shunt auto"
)

func betweenContainers(b *suite.Bench, s situation) error {
	var lanes []*suite.SocketLane
	for _, variant := range []string{suite.LinuxGRO, linuxAgain, shuntAuto} {
		l, err := containersOn(b, variant, 1, s.host)
		if err != nil {
			return err
		}
		lanes = append(lanes, l)
	}
	var turns []measure.Turn
	for _, kind := range []string{"tcp", "udp"} {
		for _, l := range lanes {
			turns = append(turns, measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
				rate, err := b.RoundTrips(l, kind)
				if err != nil {
					return err
				}
				set.Add(s.name+": "+kind+" round trips", l.Variant, "rate", "round trips/s", rate)
				return nil
			}})
		}
	}
	for _, l := range lanes {
		turns = append(turns, measure.Turn{Name: l.Variant, Run: func(set *measure.Set) error {
			rate, err := b.Pump(l, 1, b.DutCPU, b.DutCPU)
			if err != nil {
				return err
			}
			set.Add(s.name+": tcp stream", l.Variant, "throughput", "Gbit/s", rate*8/1e9)
			return nil
		}})
	}
	return b.Turns(s.name, 3*b.Size.Rounds/2, turns)
}

// containersOn makes a host with pairs of containers, with shunt where the variant says so.
func containersOn(b *suite.Bench, variant string, pairs int, prepare func(*lab.NS) error) (*suite.SocketLane, error) {
	l, err := b.BridgeLanePairs(variant, pairs, prepare)
	if err == nil && variant == shuntAuto {
		err = b.Accelerate(l, "auto")
	}
	return l, err
}

// host makes a bridge of the two ports that containers hang on.
func (s situation) host(ns *lab.NS) error { return s.hostOf(2)(ns) }

// hostOf is the same for more ports.
func (s situation) hostOf(ports int) func(*lab.NS) error {
	return func(ns *lab.NS) error {
		var lines strings.Builder
		lines.WriteString("link add br0 type bridge\n")
		for i := range ports {
			fmt.Fprintf(&lines, "link set p%d master br0\n", i)
		}
		lines.WriteString("link set br0 up\n")
		if err := ns.Feed(lines.String(), "ip -batch -"); err != nil {
			return err
		}
		return s.configure(ns)
	}
}
