// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

func (p *page) allTheTargets() {
	p.Para("## What it must reach")
	p.Targets(p.allTargets())
	p.Para("Linux is the better of GRO on and off. \"At least\" is what prototypes reached. Rows with 0 packets or \"at once\" ask for the worst round, shown as the value.")
}

func (p *page) allTargets() (all []suite.Target) {
	for _, part := range []func() []suite.Target{p.forwardingTargets, p.scaleTargets, p.reactionTargets, p.lifeTargets, p.memoryTargets} {
		all = append(all, part()...)
	}
	return all
}

func (p *page) forwardingTargets() (all []suite.Target) {
	s := p.Section("forwarding")
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, w := range []struct {
			where      string
			least, aim float64
		}{{"end to end", 1.8, 2.1}, {"router alone", 2.6, 3.8}} {
			c := family + ", " + w.where
			xdp := s.Row(c, suite.ShuntXDP, "cost")
			all = append(all,
				suite.AtLeast(c+": XDP, CPU per packet, × Linux", w.least, w.aim, suite.RatioRows(xdp, suite.LinuxBest(s, c, "cost", true), true)),
				suite.AtLeast(c+": XDP, against the redirect-only ceiling", 0.80, 0.90, suite.RatioRows(xdp, s.Row(c, suite.Redirect, "cost"), true)),
				suite.AtLeast(c+": XDP, against xdp-forward", 1.0, 1.05, suite.RatioRows(xdp, s.Row(c, suite.XDPForward, "cost"), true)),
				suite.AtLeast(c+": TC, × Linux", 1.15, 1.25, suite.RatioRows(s.Row(c, suite.ShuntTC, "cost"), suite.LinuxBest(s, c, "cost", true), true)),
			)
		}
	}
	return all
}

func (p *page) scaleTargets() []suite.Target {
	s, slow, b := p.Section("scale"), p.Section("slow"), p.Section("bulk")
	many := fmt.Sprintf("%d routes", extents["full"].routes[len(extents["full"].routes)-1])
	return []suite.Target{
		suite.AtLeast("1M routes against 50: shunt's own rate, XDP", 0.75, 0.85, suite.RatioRows(s.Row(many, suite.ShuntXDP, "rate"), s.Row("50 routes", suite.ShuntXDP, "rate"), false)),
		suite.AtLeast("everything slow, on against off, XDP", 0.95, 0.98, suite.Ratio(slow, "egress excluded", suite.ShuntXDP, suite.LinuxGRO, "cost", true)),
		suite.AtLeast("everything slow, on against off, TC", 0.97, 1.0, suite.Ratio(slow, "egress excluded", suite.ShuntTC, suite.LinuxGRO, "cost", true)),
		suite.AtLeast("the same, shunt against an empty program, XDP", 0.95, 0.98, suite.Ratio(slow, "egress excluded", suite.ShuntXDP, suite.IdleXDP, "cost", true)),
		suite.AtLeast("the same, shunt against an empty program, TC", 0.97, 1.0, suite.Ratio(slow, "egress excluded", suite.ShuntTC, suite.IdleTC, "cost", true)),
		suite.AtLeast("bulk TCP, 1 flow, `auto` against Linux (promise 6)", 0.97, 1.0, suite.Ratio(b, "1 flow", "shunt auto", suite.LinuxGRO, "throughput", false)),
		suite.AtLeast("bulk TCP, 4 flows, `auto` against Linux (promise 6)", 0.97, 1.0, suite.Ratio(b, "4 flows", "shunt auto", suite.LinuxGRO, "throughput", false)),
	}
}

// reactionTargets take the slowest change of each kind, by its median; changes that take the fast path away are among them.
func (p *page) reactionTargets() (all []suite.Target) {
	s := p.Section("reaction")
	for _, k := range []struct {
		kind       string
		least, aim float64
	}{{"data", 1, 0.3}, {"structure", 3, 1}} {
		worst, name := measure.Of(nil), "none"
		for _, c := range s.Cases("reaction") {
			if kindOf(s, c, suite.ShuntXDP) != k.kind {
				continue
			}
			st := measure.Of(suite.Scaled(s.Row(c, suite.ShuntXDP+", at rest", "reaction"), 1e-3))
			if math.IsNaN(worst.Median) || st.Median > worst.Median {
				worst, name = st, c
			}
		}
		p99 := measure.Of(nil)
		if worst.N > 0 {
			p99 = measure.Of([]float64{worst.P99})
			worst = measure.Of([]float64{worst.Median})
		}
		all = append(all,
			suite.AtMost(fmt.Sprintf("reaction, %s: median of the slowest change (%s)", k.kind, name), k.least, k.aim, " ms", worst),
			suite.AtMost(fmt.Sprintf("reaction, %s: p99 of the same", k.kind), 3*k.least, 3*k.aim, " ms", p99))
	}
	return all
}

func (p *page) lifeTargets() (all []suite.Target) {
	s := p.Section("lifecycle")
	for _, e := range events {
		if e.apart {
			continue
		}
		beyond := measure.Of(nil)
		if r := s.Row(e.name, "event", "lost"); r != nil {
			beyond = measure.Of([]float64{math.Max(0, sum(r)-sum(s.Row(e.name, "control", "lost")))})
		}
		all = append(all, suite.AtMost(e.name+": packets lost beyond the control runs", 0, 0, "", beyond))
	}
	o := p.Section("obeyed")
	for _, k := range []struct {
		state      string
		least, aim float64
	}{{"after kill -9", 100, 25}, {"under SIGSTOP", 1000, 1}} {
		worst := measure.Of(nil)
		for _, c := range o.Cases("obeyed after") {
			st := o.Row(c, k.state, "obeyed after").Stat()
			if math.IsNaN(worst.Median) || st.Max > worst.Median {
				worst = measure.Of([]float64{st.Max})
			}
		}
		all = append(all, suite.AtMost("a new rule, address, rp_filter or route is obeyed "+k.state, k.least, k.aim, " ms", worst))
	}
	return all
}

func (p *page) memoryTargets() []suite.Target {
	s := p.Section("memory")
	full := extents["full"].routes
	resident := s.Row(plural(full[len(full)-1], "route"), "shunt", "resident").Stat()
	return []suite.Target{
		suite.AtLeast("after a netlink overflow: consistent (share of rounds)", 1, 1, measure.Of(lowest(s.Row("overflow", "shunt", "consistent")))),
		suite.AtMost("memory of the daemon with 1M routes", 150, 60, " MiB", resident),
	}
}

func lowest(r *measure.Row) []float64 {
	if r == nil || len(r.Rounds) == 0 {
		return nil
	}
	return []float64{r.Stat().Min}
}

// loses lists every case where shunt is worse than what it replaces or competes with.
func (p *page) loses() {
	p.Para("## Where shunt loses")
	t := report.NewTable("case", "shunt", "against", "ratio")
	add := func(s *report.Section, metric string, less bool, shunts []string, against ...string) {
		for _, c := range s.Cases(metric) {
			for _, v := range shunts {
				for _, other := range against {
					if x := suite.Ratio(s, c, v, other, metric, less); x.N > 0 && x.Median < 1 {
						t.Row(fmt.Sprintf("%s, %s: %s", s.Name, c, metric), v, other, report.Spread(x))
					}
				}
			}
		}
	}
	both := []string{suite.ShuntXDP, suite.ShuntTC}
	add(p.Section("forwarding"), "cost", true, both, suite.LinuxGRO, suite.LinuxNoGRO)
	add(p.Section("forwarding"), "cost", true, both[:1], suite.XDPForward)
	add(p.Section("scale"), "cost", true, both, suite.LinuxGRO)
	add(p.Section("slow"), "cost", true, both, suite.LinuxGRO)
	add(p.Section("bulk"), "throughput", false, []string{"shunt auto", "shunt tc", "shunt xdp"}, suite.LinuxGRO)
	for _, m := range []string{"mean", "p99"} {
		add(p.Section("latency"), m, true, []string{"shunt auto", "shunt tc", "shunt xdp"}, suite.LinuxGRO)
	}
	if t.Empty() {
		p.Para("In no case that was measured.")
		return
	}
	p.Table(t)
	p.Para("`auto` never chooses XDP on a veth, so the rows with `shunt xdp` between sockets are what `--hook xdp` does to who asks for it. \"slow\" is the price of being attached where nothing can be won.")
}
