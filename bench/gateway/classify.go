// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/classbench"
)

var classifySection = suite.Section{
	Name:   "classification",
	Title:  "Classification alone",
	Budget: budget(150),
	About: "ClassBench-like sets (acl, fw and ipc of package classbench, seed 1) in iptables-legacy, and as many different headers as the table says, each a point of a rule. All headers go one right behind the other, as on a busy interface " +
		"(BPF_PROG_TEST_RUN, a small program before puts each in place and looks at the clock), through the program of a router with the rules and through that of the same router without any; between two runs of a header lie all others. " +
		"A header's time is the smallest of seven runs, and what classifying it costs is the difference of the two programs' times; p50 and p99 are over headers. Headers that a rule drops are left out, since their way is shorter. " +
		"\"Bit vectors\" is this project's classifier of package rules, run in Go in user space over the same headers: the stand-in for Polycube's.",
	Run: runClassify,
}

const bitVectors = "bit vectors"

func runClassify(b *suite.Bench) error {
	e := extents[b.Size.Name]
	for _, n := range e.filters {
		for _, kind := range kinds {
			c := classifyCase(kind, n)
			if err := b.Part(c, func() error { return classify(b, c, kind, n) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func classify(b *suite.Bench, c string, kind classbench.Kind, n int) error {
	rs := classbench.Rules(kind, n, classbench.Seed)
	headers := classbench.Headers(rs, extents[b.Size.Name].headers, classbench.Seed)
	inUserSpace(b, c, rs, headers)
	var frames []frameMaker
	for _, h := range headers {
		frames = append(frames, func(p *lab.Port) []byte { return frameOf(p, h) })
	}
	return compareClassifiers(b, c, frames, func(ns *lab.NS) error { return ns.Feed(savedFilter(rs), "iptables-legacy-restore") })
}

// inUserSpace times the bit vectors themselves. A clock around each header would cost as much as the header, so that only the mean is known.
func inUserSpace(b *suite.Bench, c string, rs *ruleset.Ruleset, headers []rules.Packet) {
	classifier := rules.NewClassifier(rules.Flatten(rs, rules.Class{Family: ruleset.IP4}))
	best := math.Inf(1)
	for range 3 {
		start := time.Now()
		for i := range headers {
			classifier.First(&headers[i], 0)
		}
		best = min(best, float64(time.Since(start).Nanoseconds())/float64(len(headers)))
	}
	b.Add(c, bitVectors, "mean", "ns", best)
}

// frameMaker makes a frame that leaves a port.
type frameMaker func(*lab.Port) []byte

// compareClassifiers runs frames through routers that differ by rules alone, at both hooks.
func compareClassifiers(b *suite.Bench, c string, makers []frameMaker, apply func(*lab.NS) error) error {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		b.Say("%s, at %s: %d headers", c, hook, len(makers))
		variant := "shunt " + string(hook)
		lanes, err := openLanes(b, []suite.Variant{{Name: variant, Setup: suite.ShuntAt(hook)}, {Name: variant, Setup: suite.ShuntAt(hook)}})
		if err != nil {
			return err
		}
		for i, l := range lanes {
			if err := l.Node(lab.Dut).Exec("ip route add default via 10.0.1.2"); err != nil {
				return err
			}
			if i == 1 {
				if err := apply(l.Node(lab.Dut)); err != nil {
					return err
				}
			}
		}
		if err := ready(lanes...); err != nil {
			return err
		}
		frames := make([][]byte, len(makers))
		for i, m := range makers {
			frames[i] = m(lanes[0].TX())
		}
		var cost []float64
		var share float64
		err = lanes[0].Retry(func() (err error) { cost, share, err = classifierCost(lanes[0], lanes[1], hook, frames); return err })
		if err != nil {
			return err
		}
		b.Add(c, variant, suite.FastShare, "share", share)
		if len(cost) == 0 {
			b.Skip(c+", "+variant, "packets are not fast with these rules")
			continue
		}
		s := measure.Of(cost)
		b.Add(c, variant, "p50", "ns", s.Median)
		b.Add(c, variant, "p99", "ns", s.P99)
		b.Add(c, variant, "mean", "ns", s.Mean)
	}
	return nil
}

// Verdicts of forwarding and dropping, by hook.
var (
	redirects = map[graph.Hook]uint32{graph.XDP: 4, graph.TC: 7}
	dropping  = map[graph.Hook]uint32{graph.XDP: 1, graph.TC: 2}
)

// attached says what the programs of a hook are loaded as.
var attached = map[graph.Hook]struct {
	kind ebpf.ProgramType
	at   ebpf.AttachType
}{
	graph.XDP: {ebpf.XDP, ebpf.AttachXDP},
	graph.TC:  {ebpf.SchedCLS, ebpf.AttachNone},
}

// A classifying is one of the two programs that are compared.
type classifying struct {
	lane     *suite.Lane
	prog     *ebpf.Program
	verdicts []uint32
	best     []float64
	before   [reason.Count]uint64
}

// classifierCost is what rules add to the time of each frame that both programs forward; share is how many of those that the program without rules
// forwards are forwarded or dropped with them. Spoiled says that the machine's other work kept a daemon from its watchdog meanwhile.
func classifierCost(without, with *suite.Lane, hook graph.Hook, frames [][]byte) (cost []float64, share float64, err error) {
	const passes = 7
	sides := []*classifying{{lane: without}, {lane: with}}
	for _, s := range sides {
		if s.prog, err = s.lane.Engine.Program(s.lane.In().Index, hook); err != nil {
			return nil, 0, nil // nothing is attached, so nothing is fast
		}
		defer s.prog.Close()
		if s.before, err = s.lane.Counters(); err != nil {
			return nil, 0, err
		}
		if err := s.judge(frames); err != nil {
			return nil, 0, err
		}
	}
	replay, err := lab.NewReplay(frames, attached[hook].kind, attached[hook].at)
	if err != nil {
		return nil, 0, err
	}
	defer replay.Close()
	for range passes {
		for _, s := range sides {
			if err := s.pass(replay); err != nil {
				return nil, 0, err
			}
		}
	}
	for _, s := range sides {
		if err := s.lane.Undisturbed(s.before); err != nil {
			return nil, 0, err
		}
	}
	forwarded, decided := 0, 0
	for i := range frames {
		if sides[0].verdicts[i] != redirects[hook] {
			continue // a martian, for one
		}
		forwarded++
		switch sides[1].verdicts[i] {
		case redirects[hook]:
			decided++
			cost = append(cost, sides[1].best[i]-sides[0].best[i])
		case dropping[hook]:
			decided++
		}
	}
	return cost, float64(decided) / float64(max(1, forwarded)), nil
}

// judge runs each frame for itself and keeps what the program says.
func (s *classifying) judge(frames [][]byte) error {
	return s.lane.Node(lab.Dut).Do(func() error {
		for _, f := range frames {
			_, verdict, err := lab.TestRun(s.prog, s.lane.In().Index, f, 1)
			if err != nil {
				return err
			}
			s.verdicts = append(s.verdicts, verdict)
		}
		return nil
	})
}

// pass runs all frames one behind the other and keeps the smallest time of each.
func (s *classifying) pass(r *lab.Replay) error {
	return s.lane.Node(lab.Dut).Do(func() error {
		times, err := r.Run(s.prog, s.lane.In().Index)
		if s.best == nil {
			s.best = times
		}
		for i, ns := range times {
			s.best[i] = min(s.best[i], ns)
		}
		return err
	})
}

// frameOf is a header as a frame.
func frameOf(p *lab.Port, h rules.Packet) []byte {
	f := p.Flow(h.Src.String(), h.Dst.String())
	f.SrcPort, f.DstPort = h.SPort, h.DPort
	switch h.Proto {
	case 17:
		return f.UDP("0123456789abcdefgh")
	case 6:
		return f.TCP("A", 1, "012345")
	}
	return f.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: h.SPort}, gopacket.Payload("0123456789abcdefgh"))
}

// savedFilter writes a ClassBench-like set as iptables-save does.
func savedFilter(rs *ruleset.Ruleset) string {
	var s strings.Builder
	s.WriteString("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n")
	for _, r := range rs.Tables[0].Chains[0].Rules {
		s.WriteString("-A FORWARD" + savedRule(r) + "\n")
	}
	s.WriteString("COMMIT\n")
	return s.String()
}

func savedRule(r ruleset.Rule) string {
	words, ports, proto := "", "", ""
	for _, step := range r.Steps {
		switch x := step.(type) {
		case ruleset.Test:
			lo, hi := x.Ranges[0].Lo, x.Ranges[0].Hi
			switch x.Field {
			case ruleset.IP4Src:
				words += " -s " + prefixOf(lo.Lo, hi.Lo).String()
			case ruleset.IP4Dst:
				words += " -d " + prefixOf(lo.Lo, hi.Lo).String()
			case ruleset.L4Proto:
				proto = map[uint64]string{1: "icmp", 6: "tcp", 17: "udp"}[lo.Lo]
			case ruleset.SPort:
				ports += fmt.Sprintf(" --sport %d:%d", lo.Lo, hi.Lo)
			case ruleset.DPort:
				ports += fmt.Sprintf(" --dport %d:%d", lo.Lo, hi.Lo)
			}
		case ruleset.Verdict:
			if x.Code == ruleset.Drop {
				words += " -j DROP"
			} else {
				words += " -j ACCEPT"
			}
		}
	}
	if proto != "" {
		words = " -p " + proto + ports + words
	}
	return words
}

// prefixOf is the prefix from its first to its last address.
func prefixOf(lo, hi uint64) netip.Prefix {
	bits := 32
	for n := hi - lo; n > 0; n >>= 1 {
		bits--
	}
	return netip.PrefixFrom(ruleset.Num(lo).Is4(), bits)
}

func classifyCase(kind classbench.Kind, n int) string { return fmt.Sprintf("%s, %d rules", kind, n) }
