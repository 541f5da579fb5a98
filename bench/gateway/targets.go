// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/rules/classbench"
)

// page is the gateway's page while it is written.
type page struct{ *suite.Page }

func (p *page) targets() {
	p.Para("## What it must reach")
	p.Targets(p.allTargets())
	p.Para("Ratios are of CPU time per packet, end to end, against the better of Linux with GRO on and off and the same rules. \"At least\" is what prototypes reached. " +
		"A figure of packets of which less than 99 %% were fast is none of shunt's: the table has none then, and the sections below show it with the reason.")
}

func (p *page) allTargets() (all []suite.Target) {
	for _, part := range []func() []suite.Target{p.ruleTargets, p.natTargets, p.dropTargets, p.changeTargets, p.classifierTargets} {
		all = append(all, part()...)
	}
	for i := range all {
		all[i].Instead = "not fast, or not measured"
	}
	return all
}

// fast is shunt's row if the packets were fast in all rounds, or nil.
func fast(s *report.Section, c, variant, metric string) *measure.Row {
	share := s.Row(c, variant, suite.FastShare)
	if share == nil || share.Stat().Min < 0.99 {
		return nil
	}
	return s.Row(c, variant, metric)
}

// better is shunt's gain over Linux in CPU time per packet.
func better(s *report.Section, c, variant string) measure.Stat {
	return suite.RatioRows(fast(s, c, variant, "cost"), suite.LinuxBest(s, c, "cost", true), true)
}

func ruleName(kind string, n int, d dialect) string { return ruleCase{kind: kind, n: n, d: d}.name() }

func (p *page) ruleTargets() (all []suite.Target) {
	s := p.Section("rules")
	for _, t := range []struct {
		kind       string
		n          int
		d          dialect
		hook       string
		least, aim float64
	}{
		{"source", 100, legacy, suite.ShuntXDP, 2.2, 2.6},
		{"source", 100, compat, suite.ShuntXDP, 3.0, 3.5},
		{"source", 100, nft, suite.ShuntXDP, 3.0, 3.5},
		{"source", 100, byIPSet, suite.ShuntXDP, 2.2, 2.4},
		{"mixed", 100, legacy, suite.ShuntXDP, 2.2, 2.2},
		{"mixed", 100, compat, suite.ShuntXDP, 3.0, 3.0},
		{"mixed", 100, nft, suite.ShuntXDP, 3.0, 3.0},
		{"mixed", 1000, legacy, suite.ShuntXDP, 2.2, 2.2},
		{"mixed", 1000, compat, suite.ShuntXDP, 3.0, 3.0},
		{"mixed", 1000, nft, suite.ShuntXDP, 3.0, 3.0},
		{"source", 100, legacy, suite.ShuntTC, 1.35, 1.35},
		{"source", 100, compat, suite.ShuntTC, 1.9, 1.9},
		{"source", 100, nft, suite.ShuntTC, 1.9, 1.9},
		{"source", 100, byIPSet, suite.ShuntTC, 1.3, 1.3},
	} {
		c := ruleName(t.kind, t.n, t.d)
		all = append(all, suite.AtLeast(fmt.Sprintf("%s: %s, × Linux", c, t.hook), t.least, t.aim, better(s, c, t.hook)))
	}
	e := p.Section("established")
	for _, d := range []dialect{legacy, nft} {
		c := establishedCase(d)
		all = append(all,
			suite.AtLeast(c+": shunt xdp, × Linux", 1.9, 2.3, better(e, c, suite.ShuntXDP)),
			suite.AtLeast(c+": shunt tc, × Linux", 1.25, 1.4, better(e, c, suite.ShuntTC)))
	}
	return all
}

func (p *page) natTargets() (all []suite.Target) {
	n := p.Section("translated")
	for _, t := range []struct {
		c                                string
		xdpLeast, xdpAim, tcLeast, tcAim float64
	}{{caseOne, 1.65, 2, 1.12, 1.25}, {caseStateful, 2, 2.5, 1.3, 1.5}} {
		all = append(all,
			suite.AtLeast(t.c+": shunt xdp, × Linux", t.xdpLeast, t.xdpAim, better(n, t.c, suite.ShuntXDP)),
			suite.AtLeast(t.c+": shunt tc, × Linux", t.tcLeast, t.tcAim, better(n, t.c, suite.ShuntTC)))
	}
	all = append(all, suite.AtMost(caseEngineOne+": more than without a rule, shunt xdp", 120, 80, " ns",
		measure.Of(measure.Less(fast(n, caseEngineOne, suite.ShuntXDP, "cost"), fast(n, caseBareOne, suite.ShuntXDP, "cost")))))
	s := p.Section("sessions")
	for _, t := range []struct {
		n          int
		least, aim float64
	}{{1 << 14, 0.9, 0.95}, {1 << 20, 0.7, 0.8}} {
		c := sessionsCase(t.n)
		all = append(all, suite.AtLeast(c+" against one, shunt's own rate, XDP", t.least, t.aim,
			suite.RatioRows(fast(s, c, suite.ShuntXDP, "rate"), fast(s, oneBeside(t.n), suite.ShuntXDP, "rate"), false)))
	}
	c := p.Section("connections")
	all = append(all, suite.AtLeast(caseConnections+" (TCP_CRR), shunt auto against Linux alone", 0.95, 1, suite.Ratio(c, caseConnections, "shunt auto", suite.LinuxGRO, "rate", false)))
	t := p.Section("conversations")
	all = append(all, suite.AtMost("TCP conversations broken, "+caseKilled, 0, 0, "", t.Row("conversations", caseKilled, "broken").Stat()),
		suite.AtMost("daemon while connections come and go, "+caseLeftAlone, 0.1, 0.1, " of a CPU", t.Row("conversations", caseLeftAlone, "daemon").Stat()))
	h := p.Section("published")
	for _, c := range publishedCases {
		all = append(all, suite.AtLeast("requests/s by a published port, "+c.name+", against Linux alone", 1.15, 1.3, suite.Ratio(h, c.name, "shunt", suite.LinuxGRO, "rate", false)))
	}
	return all
}

func (p *page) dropTargets() (all []suite.Target) {
	s := p.Section("drops")
	for _, t := range []struct {
		c          string
		least, aim float64
	}{{dropForward, 5, 8}, {dropRaw, 4, 6}, {dropNetdev, 2, 3}} {
		all = append(all, suite.AtLeast("blacklisted packets dropped by "+t.c+": shunt xdp, × Linux", t.least, t.aim, better(s, t.c, suite.ShuntXDP)))
	}
	return all
}

func (p *page) changeTargets() (all []suite.Target) {
	u, r, e := p.Section("updates"), p.Section("reaction"), extents["full"]
	none := fast(u, "no rules", suite.ShuntXDP, "rate")
	var underChange *measure.Row // a mix by its nature; of what is fast at rest
	if fast(u, manyRules(e), suite.ShuntXDP, "rate") != nil {
		underChange = u.Row(manyRules(e)+changing, suite.ShuntXDP, "rate")
	}
	all = append(all,
		suite.AtLeast(manyRules(e)+" against none, shunt's own rate, XDP", 0.80, 0.92, suite.RatioRows(fast(u, manyRules(e), suite.ShuntXDP, "rate"), none, false)),
		suite.AtLeast(fmt.Sprintf("the same under %d changes a second", changesPerSecond), 0.80, 0.90,
			suite.RatioRows(underChange, none, false)))
	for _, t := range []struct {
		d          dialect
		n          int
		least, aim float64
	}{{nft, 100, 1, 0.3}, {nft, e.many, 5, 1}, {legacy, 100, 2, 0.5}, {legacy, e.many, 12, 5}} {
		all = append(all, suite.AtMost(addedCase(t.d, t.n)+": last packet treated by the old rules, of adding and taking away", t.least, t.aim, " ms", both(r, addedCase(t.d, t.n), "obeyed")))
		all = append(all, suite.AtMost(addedCase(t.d, t.n)+": effect after the command, by the fast path itself, median of adding and taking away", t.least, t.aim, " ms", both(r, addedCase(t.d, t.n), "effect")))
	}
	for _, d := range []dialect{legacy, nft} {
		c := restoredCase(d, e.many)
		all = append(all,
			suite.AtMost(c+": fully effective", 100, 30, " ms", median(r.Row(c, added, "effect"))),
			suite.AtMost(c+": specialised", 1000, 300, " ms", median(r.Row(c, added, "specialised"))))
	}
	return all
}

// both is the median over the two changes of a case.
func both(s *report.Section, c, metric string) measure.Stat {
	var values []float64
	for _, v := range []string{added, taken} {
		if r := s.Row(c, v, metric); r != nil {
			values = append(values, r.Rounds...)
		}
	}
	if len(values) == 0 {
		return measure.Of(nil)
	}
	return measure.Of([]float64{measure.Of(values).Median})
}

func median(r *measure.Row) measure.Stat {
	if s := r.Stat(); s.N > 0 {
		return measure.Of([]float64{s.Median})
	}
	return measure.Of(nil)
}

func (p *page) classifierTargets() (all []suite.Target) {
	s := p.Section("classification")
	for _, t := range []struct {
		n          int
		least, aim float64
	}{{1000, 60, 30}, {10_000, 100, 40}} {
		for _, q := range []string{"p50", "p99"} {
			all = append(all, suite.AtMost(fmt.Sprintf("classification alone, %d rules, %s of the slowest kind, XDP", t.n, q), t.least, t.aim, " ns", slowest(s, t.n, q)))
		}
	}
	sets, e := p.Section("sets"), extents["full"]
	for i, t := range []struct {
		kind       string
		least, aim float64
	}{{largeIP, 100, 60}, {largeNet, 300, 100}} {
		c := setCase(t.kind, e.sets[i])
		all = append(all, suite.AtMost(c+": lookup, p50, XDP", t.least, t.aim, " ns", fast(sets, c, suite.ShuntXDP, "p50").Stat()))
	}
	return all
}

// slowest is the largest value over the kinds of sets; it needs all of them.
func slowest(s *report.Section, n int, metric string) measure.Stat {
	worst := math.Inf(-1)
	for _, kind := range kinds {
		r := fast(s, classifyCase(kind, n), suite.ShuntXDP, metric)
		if r == nil {
			return measure.Of(nil)
		}
		worst = max(worst, r.Stat().Median)
	}
	return measure.Of([]float64{worst})
}

var kinds = []classbench.Kind{classbench.ACL, classbench.FW, classbench.IPC}
