// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var stagesSection = suite.Section{
	Name:   "stages",
	Title:  "Where the time goes",
	Budget: budget(170),
	About: "A packet's way through the host, stage by stage, in both directions: received by a container from a NIC, and sent by a container to one; both are ports of a bridge that knows both ends. Each variant ends the packet one stage later " +
		"than the one before it, and what a stage costs is the difference of the two: Linux's stages by chains of nft that drop everything at hooks of the bridge's family (an empty chain whose policy is to drop costs a little by itself), those of a fast path by small " +
		"programs at tc that drop or redirect everything, and shunt at last. Made, polled and counted as under \"A container and the outside\"; a variant that drops is counted by the packets that its port received. " +
		"Soft interrupts are those for received packets (NET_RX) on the CPU of the device under test; the port's own polling is by a thread, and none of them. At full load one of them takes many packets, " +
		"so the second table has one packet at a time: round trips of 64 bytes by UDP between two containers on one CPU, polled in soft interrupts as usual.",
	Run: runStages,
}

// way is one of the two directions: what comes in at "in" leaves at "out", and one of them leads into a container.
type way struct {
	name      string
	container bool // out leads into one, which drops what it receives
}

var ways = []way{{"received", true}, {"sent", false}}

// step is one more stage of a packet's way.
type step struct {
	name  string // of the variant that ends behind it
	after string // the variant that ends before it; "" for the first
	stage string // what the difference of the two is
	drops bool   // where the packets come in
	only  string // name of the one direction that has it; "": both
	setup func(*suite.Lane) error
}

// The variants of the stages.
const (
	atTC          = "dropped at tc"
	atTCRead      = "dropped at tc, address read"
	inPrerouting  = "dropped in the bridge's prerouting"
	inForward     = "dropped in the bridge's forward"
	inPostrouting = "dropped in the bridge's postrouting"
	byRedirect    = "bpf_redirect, address read"
	byPeer        = "bpf_redirect_peer, address read"
)

// steps are the stages of a way, those of Linux first.
func (w way) steps() (out []step) {
	fastest := byRedirect
	if w.container {
		fastest = byPeer
	}
	for _, s := range []step{
		{name: atTC, stage: "the driver, the sk_buff, GRO", drops: true, setup: func(l *suite.Lane) error { return l.Bench.DropTC(l.In(), false) }},
		{name: inPrerouting, after: atTC, stage: "into the bridge", drops: true, setup: dropAt("prerouting")},
		{name: inForward, after: inPrerouting, stage: "learning, the forwarding database", drops: true, setup: dropAt("forward")},
		{name: inPostrouting, after: inForward, stage: "to the port", drops: true, setup: dropAt("postrouting")},
		{name: suite.LinuxGRO, after: inPostrouting, stage: "out by the port, and in behind it"},
		{name: atTCRead, after: atTC, stage: "waiting for the packet's first bytes", drops: true, setup: func(l *suite.Lane) error { return l.Bench.DropTC(l.In(), true) }},
		{name: byRedirect, after: atTCRead, stage: "out by the port, and in behind it", setup: func(l *suite.Lane) error { return l.Bench.RedirectTC(l.In(), l.Out(), false) }},
		{name: byPeer, after: atTCRead, stage: "straight into the container", only: "received", setup: func(l *suite.Lane) error { return l.Bench.RedirectTC(l.In(), l.Out(), true) }},
		{name: suite.ShuntTC, after: fastest, stage: "shunt's look at the packet and at the bridge", setup: func(l *suite.Lane) error { return l.Shunt(graph.Policy{Hook: string(graph.TC)}) }},
	} {
		if s.only == "" || s.only == w.name {
			out = append(out, s)
		}
	}
	return out
}

// dropAt has the bridge drop everything at one of its hooks.
func dropAt(hook string) func(*suite.Lane) error {
	return func(l *suite.Lane) error {
		return l.Node(lab.Dut).Feed(fmt.Sprintf("table bridge bench { chain end { type filter hook %s priority 0; policy drop; }; }\n", hook), "nft -f -")
	}
}

func runStages(b *suite.Bench) error {
	for _, w := range ways {
		if err := b.Part(w.name, func() error { return measureStages(b, w) }); err != nil {
			return err
		}
	}
	return b.Part(oneAtATime, func() error { return measureOne(b) })
}

func measureStages(b *suite.Bench, w way) error {
	var variants []suite.Variant
	soft := map[string]*softCount{}
	for _, s := range w.steps() {
		variants = append(variants, suite.Variant{Name: s.name, Setup: func(l *suite.Lane) error {
			l.Open = true
			if err := plain.bridge(l); err != nil {
				return err
			}
			if w.container {
				if err := dropBehind(l, l.RX()); err != nil {
					return err
				}
			}
			if s.drops {
				if err := countReceived(l, l.In()); err != nil {
					return err
				}
			}
			soft[s.name] = countSoft(l, b.DutCPU)
			if s.setup == nil {
				return nil
			}
			return s.setup(l)
		}})
	}
	lanes, err := b.Lanes(variants, lab.LineOptions{V4: flows})
	if err != nil {
		return err
	}
	settle(lanes)
	var turns []measure.Turn
	for _, l := range lanes {
		t := l.Turn(w.name, l.AtIngress(), across(l, "plain"))
		cost := t.Run
		t.Run = func(set *measure.Set) error {
			if err := cost(set); err != nil {
				return err
			}
			set.Add(w.name, l.Variant, "soft", "soft interrupts/packet", soft[l.Variant].perPacket())
			return nil
		}
		turns = append(turns, t)
	}
	return b.Turns(w.name, extents[b.Size.Name].rounds, turns)
}

// softCount notes soft interrupts whenever packets are counted.
type softCount struct{ soft, packets [2]uint64 } // at the last two counts

func (c *softCount) perPacket() float64 {
	return float64(c.soft[1]-c.soft[0]) / float64(max(c.packets[1]-c.packets[0], 1))
}

// countSoft has a lane note the soft interrupts of a CPU whenever it counts packets: before and behind each measurement.
func countSoft(l *suite.Lane, cpu int) *softCount {
	c, count := &softCount{}, l.Count
	if count == nil {
		count = func() (n uint64, err error) {
			for _, s := range l.Sinks {
				got, err := s.Count()
				if err != nil {
					return 0, err
				}
				n += got.Packets
			}
			return n, nil
		}
	}
	l.Count = func() (n uint64, err error) {
		if n, err = count(); err != nil {
			return 0, err
		}
		soft, err := softInterrupts(cpu)
		c.soft, c.packets = [2]uint64{c.soft[1], soft}, [2]uint64{c.packets[1], n}
		return n, err
	}
	return c
}

// softInterrupts is how many for received packets a CPU has had.
func softInterrupts(cpu int) (uint64, error) {
	raw, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > cpu+1 && f[0] == "NET_RX:" {
			return strconv.ParseUint(f[cpu+1], 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/softirqs has no NET_RX of CPU %d", cpu)
}

// oneAtATime is the case of one packet after the other.
const oneAtATime = "one at a time"

// measureOne measures what a single packet takes, between containers.
func measureOne(b *suite.Bench) error {
	var turns []measure.Turn
	for _, variant := range []string{suite.LinuxGRO, byRedirect, byPeer, suite.ShuntTC} {
		l, err := b.BridgeLane(variant, plain.host)
		if err != nil {
			return err
		}
		ports := [2]*lab.Port{l.Port(lab.Dut, "p0"), l.Port(lab.Dut, "p1")}
		switch variant {
		case byRedirect, byPeer:
			for i, p := range ports {
				if err := b.RedirectTC(p, ports[1-i], variant == byPeer); err != nil {
					return err
				}
			}
		case suite.ShuntTC:
			if err := b.Accelerate(l, "tc"); err != nil {
				return err
			}
		}
		turns = append(turns, measure.Turn{Name: variant, Run: func(set *measure.Set) error {
			before, err := softInterrupts(b.DutCPU)
			if err != nil {
				return err
			}
			talked, err := b.Talk("udp", 64, suite.Seat{SocketLane: l, CPU: b.DutCPU})
			if err != nil {
				return err
			}
			after, err := softInterrupts(b.DutCPU)
			set.Add(oneAtATime, variant, "latency", "µs/packet", 1e6/talked.Rate/2)
			set.Add(oneAtATime, variant, "soft", "soft interrupts/packet", float64(after-before)/float64(2*talked.All))
			return err
		}})
	}
	return b.Turns(oneAtATime, b.Size.Rounds, turns)
}
