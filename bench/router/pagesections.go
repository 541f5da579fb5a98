// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

func (p *page) forwarding(s *report.Section) {
	for i, c := range s.Cases("cost") {
		base := suite.LinuxBest(s, c, "cost", true)
		p.Para("### %s", suite.Capital(c))
		t := report.NewTable("variant", "ns/packet", "clocks/packet", "× the better Linux", "Mpps")
		var bars []report.Bar
		for _, v := range s.Variants("cost") {
			r := s.Row(c, v, "cost")
			if r == nil {
				continue
			}
			x := suite.RatioRows(r, base, true)
			rate := measure.Of(suite.Scaled(s.Row(c, v, "rate"), 1e-6))
			t.Row(v, report.Spread(r.Stat()), report.Number(r.Stat().Median*s.Provenance.MHz/1e3), report.Spread(x), report.Spread(rate))
			bars = append(bars, report.Bar{Label: v, Stat: r.Stat(), Note: "× " + report.Number(x.Median)})
		}
		p.Table(t)
		p.Plot(fmt.Sprintf("forwarding-%d", i+1), c, report.Bars("CPU time per packet, "+c, "ns", bars))
	}
}

func (p *page) scale(s *report.Section) {
	p.Compare(s, "cost", suite.LinuxGRO, true)
	p.Compare(s, "rate", suite.LinuxGRO, false)
	for _, kind := range []struct{ suffix, title string }{{" routes", "routes"}, {" bytes", "bytes"}} {
		var places []string
		for _, c := range s.Cases("cost") {
			if strings.HasSuffix(c, kind.suffix) || c == "1 route" && kind.title == "routes" {
				places = append(places, c)
			}
		}
		var lines []report.Line
		for _, v := range s.Variants("cost") {
			l := report.Line{Label: v}
			for _, c := range places {
				l.Stats = append(l.Stats, s.Row(c, v, "cost").Stat())
			}
			lines = append(lines, l)
		}
		if len(places) > 0 {
			p.Plot("scale-"+kind.title, "cost against "+kind.title, report.Lines("CPU time per packet against "+kind.title, "ns/packet", places, lines))
		}
	}
}

// cores shows what the rate becomes with more queues beside the cost of a packet.
func (p *page) cores(s *report.Section) {
	p.Compare(s, "cost", suite.LinuxGRO, true)
	p.Compare(s, "rate", suite.LinuxGRO, false)
	places := s.Cases("rate")
	if len(places) < 2 {
		return
	}
	t := report.NewTable(append([]string{"rate, × that of " + places[0]}, places[1:]...)...)
	var lines []report.Line
	for _, v := range s.Variants("rate") {
		l, cells := report.Line{Label: v}, []string{v}
		for i, c := range places {
			l.Stats = append(l.Stats, measure.Of(suite.Scaled(s.Row(c, v, "rate"), 1e-6)))
			if i > 0 {
				cells = append(cells, report.Number(l.Stats[i].Median/l.Stats[0].Median))
			}
		}
		t.Row(cells...)
		lines = append(lines, l)
	}
	p.Table(t)
	p.Plot("cores", "rate against queues", report.Lines("Packets per second against queues", "Mpps", places, lines))
}

func (p *page) latency(s *report.Section) {
	p.Latency(s)
	p.Para("For comparison, the paper's router with 128 netperf sessions on one core of real machines: Linux 326.9 / 512.4 / 109.3 µs, LinuxFP 151.7 / 279.4 / 76.8, Polycube 145.8 / 269.8 / 60.2, VPP 85.6 / 182.3 / 32.0 (mean / p99 / sd).")
}

func (p *page) chains(s *report.Section) {
	t := report.NewTable("chain", "1", "2", "4", "8", "16", "per step, 1 to 16")
	var places []string
	for _, n := range chainLengths {
		places = append(places, plural(n, "step"))
	}
	var lines []report.Line
	for _, v := range s.Variants("run") {
		cells := []string{v}
		l := report.Line{Label: v}
		for _, c := range places {
			st := s.Row(c, v, "run").Stat()
			cells = append(cells, report.Spread(st))
			l.Stats = append(l.Stats, st)
		}
		first, last := l.Stats[0].Median, l.Stats[len(l.Stats)-1].Median
		t.Row(append(cells, report.Number((last-first)/15))...)
		lines = append(lines, l)
	}
	p.Para("Nanoseconds per run, the kernel's own 20 or so for each run included.")
	p.Table(t)
	p.Plot("chains", "chains", report.Lines("Time per run against length of the chain", "ns", places, lines))
}

// kindOf says what a change needed, from what was measured while it was made at rest: an attachment, structure, data, or nothing.
func kindOf(s *report.Section, c, variant string) string {
	switch loaded := s.Row(c, variant, "program loaded").Stat(); {
	case loaded.N == 0:
		return ""
	case s.Row(c, variant, "attached").Stat().Mean > 0.5:
		return "attach"
	case loaded.Mean > 0.5:
		return "structure"
	case s.Row(c, variant, "event to installed").Stat().N*2 > loaded.N:
		return "data"
	}
	return "live"
}

func (p *page) reaction(s *report.Section) {
	for _, hook := range []string{suite.ShuntXDP, suite.ShuntTC} {
		t := report.NewTable("change, at "+strings.TrimPrefix(hook, "shunt "), "kind", "at rest: p50 µs", "p99", "max", "again: p50", "event → installed µs", "specialised after ms", "typed: p50", "under churn: p50", "p99", "max")
		for _, c := range s.Cases("reaction") {
			rest := s.Row(c, hook+", at rest", "reaction").Stat()
			if rest.N == 0 {
				continue
			}
			churn := s.Row(c, hook+", under churn", "reaction").Stat()
			t.Row(c, kindOf(s, c, hook), report.Number(rest.Median), report.Number(rest.P99), report.Number(rest.Max),
				report.Number(s.Row(c, hook+", "+again, "reaction").Stat().Median),
				report.Number(s.Row(c, hook, "event to installed").Stat().Median),
				millis(s.Row(c, hook, "specialised").Stat()),
				report.Number(s.Row(c, hook+", typed", "reaction").Stat().Median),
				report.Number(churn.Median), report.Number(churn.P99), report.Number(churn.Max))
		}
		p.Table(t)
		p.reactionPlot(s, hook)
	}
	t := report.NewTable("stage, at xdp, p50 µs", "reading", "deciding", "applying", "event to installed")
	for _, c := range s.Cases("event to installed") {
		cells := []string{c}
		for _, m := range []string{"of which reading", "of which deciding", "of which applying", "event to installed"} {
			cells = append(cells, report.Number(s.Row(c, suite.ShuntXDP, m).Stat().Median))
		}
		if cells[4] != "–" {
			t.Row(cells...)
		}
	}
	p.Table(t)
	p.Para("The paper's prototype, from detecting a change to the installed data path: `ip addr add` 0.602 s (its header says ms). " +
		"A change that takes the fast path away is often in force before it is installed: the live guard in the data path sees the kernel's own words change and passes packets up.")
}

// millis is the median of microseconds, in milliseconds; changes that need no program have none.
func millis(st measure.Stat) string {
	if st.N == 0 {
		return "–"
	}
	return report.Number(st.Median / 1e3)
}

// reactionPlot draws medians, with whiskers from the smallest value to the 99th percentile.
func (p *page) reactionPlot(s *report.Section, hook string) {
	var bars []report.Bar
	for _, c := range s.Cases("reaction") {
		if st := s.Row(c, hook+", at rest", "reaction").Stat(); st.N > 0 {
			st.Max = st.P99
			bars = append(bars, report.Bar{Label: c, Stat: st, Note: kindOf(s, c, hook)})
		}
	}
	if len(bars) > 0 {
		name := strings.ReplaceAll(hook, " ", "-")
		p.Plot("reaction-"+name, "reaction with "+hook, report.Bars("Reaction at rest, "+hook+": median, smallest to p99", "µs", bars))
	}
}

func (p *page) lifecycle(s *report.Section) {
	t := report.NewTable("event", "lost, all rounds", "lost in the control runs", "lost per run", "packets per run", "fast before")
	for _, c := range s.Cases("lost") {
		with, control := s.Row(c, "event", "lost"), s.Row(c, "control", "lost")
		if with == nil || control == nil {
			continue
		}
		t.Row(c, report.Number(sum(with)), report.Number(sum(control)), report.Spread(with.Stat()), report.Number(s.Row(c, "event", "sent").Stat().Median),
			report.Spread(s.Row(c, "control", "fast").Stat()))
	}
	p.Table(t)
}

func sum(r *measure.Row) (total float64) {
	if r == nil {
		return 0
	}
	for _, v := range r.Rounds {
		total += v
	}
	return total
}

func (p *page) obeyed(s *report.Section) {
	head := []string{"change"}
	for _, st := range states {
		head = append(head, st.name+", ms")
	}
	t := report.NewTable(head...)
	for _, c := range s.Cases("obeyed after") {
		cells := []string{c}
		for _, st := range states {
			cells = append(cells, report.Spread(s.Row(c, st.name, "obeyed after").Stat()))
		}
		t.Row(cells...)
	}
	p.Table(t)
	p.Para("0 means that no packet arrived after the change's system call had returned.")
}

func (p *page) memory(s *report.Section) {
	t := report.NewTable("table", "resident MiB", "of it anonymous", "highest", "ready after ms")
	for _, c := range s.Cases("resident") {
		t.Row(c, report.Spread(s.Row(c, "shunt", "resident").Stat()), report.Spread(s.Row(c, "shunt", "anonymous").Stat()),
			report.Spread(s.Row(c, "shunt", "highest").Stat()), report.Spread(s.Row(c, "shunt", "ready after").Stat()))
	}
	p.Table(t)
	o := report.NewTable("overflow", "value")
	for _, m := range []string{"churn", "resynchronised after", "consistent"} {
		if r := s.Row("overflow", "shunt", m); r != nil {
			o.Row(strings.TrimSpace(m+" "+r.Unit), report.Spread(r.Stat()))
		}
	}
	p.Table(o)
}

func (p *page) cost(s *report.Section) {
	t := report.NewTable("configuration", "instructions, xdp / tc", "forwarded ns, xdp / tc", "clocks", "passed ns, xdp / tc")
	for _, c := range s.Cases("instructions") {
		both := func(metric string) string {
			return report.Spread(s.Row(c, suite.ShuntXDP, metric).Stat()) + " / " + report.Spread(s.Row(c, suite.ShuntTC, metric).Stat())
		}
		clocks := report.Number(s.Row(c, suite.ShuntXDP, "forwarded").Stat().Median*s.Provenance.MHz/1e3) + " / " +
			report.Number(s.Row(c, suite.ShuntTC, "forwarded").Stat().Median*s.Provenance.MHz/1e3)
		t.Row(c, both("instructions"), both("forwarded"), clocks, both("passed, ttl 1"))
	}
	p.Table(t)
	p.Para("On a veth the XDP program asks whether the frame began as a socket buffer, which BPF_PROG_TEST_RUN's bare frame does not say: the XDP figures hold some 100 ns of reads from " +
		"nowhere that a frame from the wire does not cause. The forwarding section measures the real thing.")
}

func (p *page) clocks() {
	f := p.Results.Section("forwarding")
	if f == nil {
		return
	}
	p.Para("## Beside VPP")
	p.Para("VPP 26.10 forwards IPv4 in 109 clocks per packet (47 ns at 2.3 GHz), by its packet generator on one polling core, in vectors of 256, with the generator's share left out: no device, " +
		"no interrupt, no socket buffer. Ours are the clocks of the router's thread per packet, with everything that veth and NAPI cost; the drop floor and the redirect ceiling show how much of it that is.")
	t := report.NewTable("what", "clocks/packet", "ns/packet")
	t.Row("VPP: ethernet-input to tx, 1 route", "109", "47")
	for _, v := range []string{suite.DropAll, suite.Redirect, suite.RedirectRead, suite.ShuntXDP, suite.ShuntTC, suite.LinuxGRO} {
		for _, c := range []string{"ipv4, router alone", "ipv4, end to end"} {
			if st := f.Row(c, v, "cost").Stat(); st.N > 0 {
				t.Row(v+": "+c, report.Number(st.Median*f.Provenance.MHz/1e3), report.Number(st.Median))
			}
		}
	}
	for _, floor := range []struct{ variant, what string }{{suite.Redirect, "the redirect ceiling: reading and deciding"}, {suite.RedirectRead, "the redirect that reads: deciding"}} {
		shunt, less := f.Row("ipv4, router alone", suite.ShuntXDP, "cost").Stat(), f.Row("ipv4, router alone", floor.variant, "cost").Stat()
		if own := shunt.Median - less.Median; shunt.N > 0 && less.N > 0 {
			t.Row("shunt xdp less "+floor.what, report.Number(own*f.Provenance.MHz/1e3), report.Number(own))
		}
	}
	p.Table(t)
}
