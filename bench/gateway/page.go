// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

func writePage(base *suite.Page) {
	p := &page{base}
	p.Opening("The gateway")
	p.Provenance()
	p.targets()
	p.loses()
	p.Sections(func(s *report.Section) { renderers[s.Name](p, s) })
	p.Skipped(absent)
}

// renderers draw the sections.
var renderers = map[string]func(*page, *report.Section){
	"rules":          (*page).rules,
	"drops":          (*page).costs,
	"established":    (*page).costs,
	"translated":     (*page).costs,
	"sessions":       (*page).costs,
	"connections":    (*page).connections,
	"published":      (*page).rates,
	"conversations":  (*page).conversations,
	"updates":        (*page).updates,
	"reaction":       (*page).reaction,
	"classification": (*page).classification,
	"latency":        (*page).latency,
	"sets":           (*page).classification,
}

// absent is what this suite does not measure anywhere.
var absent = []report.Skipped{
	{What: "Polycube", Why: "unmaintained since 2022; needs LLVM 9 and libraries that no supported distribution has. Its classifier's kind, bit vectors, is in \"classification\""},
	{What: "VPP side by side", Why: "it takes over interfaces by DPDK or memif and polls a core: 203 clocks (88 ns at 2.3 GHz) per forwarded packet with an ACL of 2 or 1001 rules, by its own packet generator"},
	{What: "nft flowtable", Why: "the development kernel has no nf_flow_table; connections in one are left to it (conntrack-state)"},
	{What: "VPP's NAT44 side by side", Why: "as above: 222 clocks (96 ns at 2.3 GHz) per packet with 1,024 sessions, by its own packet generator, without the cost of a card or a veth; on a machine with cards 4.3 Mpps with one flow and 3.2 Mpps with 16k sessions on two cores, iptables 1.1 Mpps with one flow"},
	{What: "physical NICs", Why: "none in the development machine; veths carry XDP frames through the same program"},
}

// share is a percentage of fast packets, or nothing for who has no fast path.
func share(s *report.Section, c, variant string) string {
	st := s.Row(c, variant, suite.FastShare).Stat()
	if st.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*st.Median)
}

// costTable is a case's variants: cost, ratio, rate and the share of fast packets.
func (p *page) costTable(s *report.Section, cases []string) {
	t := report.NewTable("case and variant", "ns/packet", "× the better Linux", "Mpps", "fast")
	for _, c := range cases {
		base := suite.LinuxBest(s, c, "cost", true)
		for _, v := range s.Variants("cost") {
			r := s.Row(c, v, "cost")
			if r == nil {
				continue
			}
			t.Row(c+": "+v, report.Spread(r.Stat()), report.Spread(suite.RatioRows(r, base, true)), report.Spread(measure.Of(suite.Scaled(s.Row(c, v, "rate"), 1e-6))), share(s, c, v))
		}
	}
	p.Table(t)
}

func (p *page) costs(s *report.Section) {
	p.costTable(s, s.Cases("cost"))
	p.BarsOf(s, "cost")
}

// conversations has a row for each way that the daemon was treated.
func (p *page) conversations(s *report.Section) {
	t := report.NewTable("", "conversations", "broken", "kills", "conversations/s", "daemon, of a CPU", "daemon, MiB")
	for _, v := range s.Variants("broken") {
		row := []string{v}
		for _, metric := range []string{"conversations", "broken", "kills", "rate", "daemon", "memory"} {
			row = append(row, report.Spread(s.Row("conversations", v, metric).Stat()))
		}
		t.Row(row...)
	}
	p.Table(t)
}

func (p *page) rates(s *report.Section) { p.Compare(s, "rate", suite.LinuxGRO, false) }

// connections is a table of rates, and which connections did not end as they should.
func (p *page) connections(s *report.Section) {
	p.rates(s)
	t := report.NewTable("variant", "connections that were reset, in all rounds")
	for _, v := range s.Variants("reset") {
		sum := 0.0
		for _, n := range s.Row(caseConnections, v, "reset").Rounds {
			sum += n
		}
		t.Row(v, report.Number(sum))
	}
	if !t.Empty() {
		p.Table(t)
	}
}

// overview draws Linux and shunt over the same 100 sources in every dialect.
func (p *page) overview(s *report.Section) {
	var bars []report.Bar
	for _, d := range []dialect{legacy, compat, nft, byIPSet, byNftSet, byNftMap} {
		c := ruleName("source", 100, d)
		base := suite.LinuxBest(s, c, "cost", true)
		for _, v := range []string{suite.LinuxGRO, suite.ShuntTC, suite.ShuntXDP} {
			if r := s.Row(c, v, "cost"); r != nil {
				note := "× " + report.Number(suite.RatioRows(r, base, true).Median)
				if v != suite.LinuxGRO {
					note += ", " + share(s, c, v) + " fast"
				}
				bars = append(bars, report.Bar{Label: string(d) + ": " + v, Stat: r.Stat(), Note: note})
			}
		}
	}
	if len(bars) > 0 {
		p.Plot("rules-100", "100 source rules or a set of 100 addresses", report.Bars("CPU time per packet with 100 source rules, or one set of 100 addresses", "ns", bars))
	}
}

func (p *page) rules(s *report.Section) {
	p.overview(s)
	all := s.Cases("cost")
	for _, d := range []dialect{legacy, compat, nft, byIPSet, byNftSet, byNftMap} {
		var cases []string
		for _, c := range all {
			if c == "no rules" && d == legacy || strings.Contains(c, ", "+string(d)+",") || strings.HasPrefix(c, string(d)+" of ") {
				cases = append(cases, c)
			}
		}
		if len(cases) > 0 {
			p.Para("### %s", suite.Capital(string(d)))
			p.costTable(s, cases)
		}
	}
	p.curves(s)
}

// curves draw cost against the number of source rules, match last.
func (p *page) curves(s *report.Section) {
	numbers := []int{0, 1, 10, 100, 1000, 10_000}
	for _, d := range []dialect{legacy, compat, nft} {
		var places []string
		var at []int
		for _, n := range numbers {
			if s.Row(ruleName("source", n, d), suite.LinuxGRO, "cost") != nil {
				places, at = append(places, fmt.Sprint(n)), append(at, n)
			}
		}
		if len(places) < 2 {
			continue
		}
		var lines []report.Line
		for _, v := range []string{suite.LinuxGRO, suite.ShuntXDP, suite.ShuntTC} {
			l := report.Line{Label: v}
			for _, n := range at {
				l.Stats = append(l.Stats, s.Row(ruleName("source", n, d), v, "rate").Stat())
			}
			lines = append(lines, l)
		}
		p.Plot("rules-"+string(d), "packets per second against source rules, "+string(d), report.Lines("Packets per second against the number of source rules, "+string(d)+", match last", "packets/s", places, lines))
	}
}

func (p *page) updates(s *report.Section) {
	t := report.NewTable("case and variant", "packets/s", "× no rules", "ns/packet", "fast")
	for _, c := range s.Cases("rate") {
		for _, v := range s.Variants("rate") {
			r := s.Row(c, v, "rate")
			if r == nil {
				continue
			}
			t.Row(c+": "+v, report.Spread(r.Stat()), report.Spread(suite.RatioRows(r, s.Row("no rules", v, "rate"), false)), report.Spread(s.Row(c, v, "cost").Stat()), share(s, c, v))
		}
	}
	p.Table(t)
	p.BarsOf(s, "rate")
}

func (p *page) reaction(s *report.Section) {
	t := report.NewTable("change", "effect: p50 ms", "p99", "max", "obeyed after: max ms", "specialised: p50 ms", "times")
	var bars []report.Bar
	for _, c := range s.Cases("effect") {
		for _, v := range s.Variants("effect") {
			st := s.Row(c, v, "effect").Stat()
			if st.N == 0 {
				continue
			}
			t.Row(c+", "+v, report.Number(st.Median), report.Number(st.P99), report.Number(st.Max), report.Number(s.Row(c, v, "obeyed").Stat().Max),
				report.Number(s.Row(c, v, "specialised").Stat().Median), fmt.Sprint(st.N))
			st.Max = st.P99
			bars = append(bars, report.Bar{Label: c + ", " + v, Stat: st})
		}
	}
	p.Table(t)
	if len(bars) > 0 {
		p.Plot("reaction", "effect of a change", report.Bars("From the command's return to the effect: median, smallest to p99", "ms", bars))
	}
}

func (p *page) classification(s *report.Section) {
	t := report.NewTable("set and variant", "p50 ns", "p99 ns", "mean ns", "fast")
	for _, c := range s.Cases(suite.FastShare) {
		for _, v := range []string{suite.ShuntXDP, suite.ShuntTC, bitVectors} {
			if s.Row(c, v, suite.FastShare) == nil && s.Row(c, v, "mean") == nil {
				continue
			}
			cell := func(metric string) string { return report.Number(s.Row(c, v, metric).Stat().Median) }
			t.Row(c+": "+v, cell("p50"), cell("p99"), cell("mean"), share(s, c, v))
		}
	}
	p.Table(t)
}

func (p *page) latency(s *report.Section) {
	p.Latency(s)
	p.Para("128 netperf sessions on one core of real machines, from the paper (mean / p99 / sd): with 100 rules Linux 388.9 / 512.4 / 40.9 µs, LinuxFP 212.8 / 317.6 / 43.7, " +
		"Polycube 181.5 / 289.4 / 40.6, VPP 85.6 / 180.9 / 32.0; with the addresses in one ipset Linux 331.5 / 437.3 / 49.1, LinuxFP 161.5 / 275.1 / 39.6.")
}

// loses lists every case where shunt is worse than Linux with the same rules.
func (p *page) loses() {
	p.Para("## Where shunt loses")
	t := report.NewTable("case", "shunt", "against", "ratio", "fast")
	add := func(s *report.Section, metric string, less bool) {
		for _, c := range s.Cases(metric) {
			for _, v := range []string{suite.ShuntXDP, suite.ShuntTC, "shunt auto"} {
				for _, other := range []string{suite.LinuxGRO, suite.LinuxNoGRO} {
					if x := suite.Ratio(s, c, v, other, metric, less); x.N > 0 && x.Median < 1 {
						t.Row(fmt.Sprintf("%s, %s: %s", s.Name, c, metric), v, other, report.Spread(x), share(s, c, v))
					}
				}
			}
		}
	}
	for _, name := range []string{"rules", "drops", "established", "translated"} {
		add(p.Section(name), "cost", true)
	}
	add(p.Section("updates"), "rate", false)
	for _, m := range []string{"mean", "p99"} {
		add(p.Section("latency"), m, true)
	}
	if t.Empty() {
		p.Para("In no case that was measured.")
		return
	}
	p.Table(t)
}
