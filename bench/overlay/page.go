// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

// page is the overlays' page while it is written.
type page struct{ *suite.Page }

func writePage(base *suite.Page) {
	p := &page{base}
	p.Opening("Overlays")
	p.Provenance()
	p.Para("## What it must reach")
	p.Targets(p.allTargets())
	p.Para("Ratios are against the same nodes with Flannel's configuration and without shunt. \"At least\" is what prototypes reached.")
	p.loses()
	p.published()
	p.Sections(func(s *report.Section) { renderers[s.Name](p, s) })
	p.Skipped(absent)
}

// renderers draw the sections.
var renderers = map[string]func(*page, *report.Section){
	"pods":   (*page).rates,
	"pairs":  (*page).rates,
	"rules":  (*page).rates,
	"costs":  (*page).costs,
	"thesis": (*page).thesis,
	"starts": func(p *page, s *report.Section) { p.Times(s) },
}

// absent is what this suite does not measure anywhere.
var absent = []report.Skipped{
	{What: "own encapsulation and decapsulation", Why: "not built: the tunnel's device does both. The section costs has the most that they could win, [semantics-overlays.md](semantics-overlays.md#own-encapsulation) what they would need"},
	{What: "GRE and IPIP", Why: "their devices are left to Linux, by name"},
	{What: "Cilium and ONCache", Why: "neither runs beside Flannel's network on this machine; their published ratios are above"},
	{What: "physical NICs", Why: "none in the development machine; veths carry the encapsulated packets, which a card would segment and checksum"},
}

func (p *page) allTargets() []suite.Target {
	s, c := p.Section("pods"), p.Section("costs")
	name := func(w way, what string) string { return w.name + ": " + what }
	across, near := ways[0], ways[len(ways)-1]
	ratio := func(w way, what, metric string) measure.Stat {
		return suite.Ratio(s, name(w, what), shuntAuto, suite.LinuxGRO, metric, false)
	}
	all := []suite.Target{
		suite.AtLeast(name(across, "tcp round trips")+", × Linux", 1.24, 1.36, ratio(across, "tcp round trips", "rate")),
		suite.AtLeast(name(near, "tcp round trips")+", × Linux", 1.24, 1.4, ratio(near, "tcp round trips", "rate")),
		suite.AtLeast(name(across, "tcp round trips")+", × host to host", 0.5, 0.95, suite.Ratio(s, name(across, "tcp round trips"), shuntAuto, bareHosts, "rate", false)),
		suite.AtLeast(name(across, "tcp stream")+", × Linux", 1.0, 1.1, ratio(across, "tcp stream", "throughput")),
	}
	for _, d := range directions {
		at := d.name
		all = append(all, suite.AtLeast(at+", CPU per packet, × the better Linux", 1.3, 1.8, suite.RatioRows(c.Row(at, suite.ShuntTC, "cost"), suite.LinuxBest(c, at, "cost", true), true)))
	}
	p99 := suite.AtMost(name(across, "tcp round trips")+", p99 latency, × Linux", 0.9, 0.8, "", ratio(across, "tcp round trips", "p99"))
	starts := p.Section("starts")
	return append(all, p99,
		suite.AtMost("a pod's start: time added, median of pairs", 2, 0, " ms", suite.Added(starts, startsCase, shuntAuto, suite.LinuxGRO, "start")),
		suite.AtMost("250 pods on a node: reaction to one more", 1, 1, " ms", starts.Row(manyCase, shuntAuto, "reaction").Stat()))
}

// rates is a table of the cases' variants; of rates and throughput more is better, of latencies less.
func (p *page) rates(s *report.Section) {
	t := report.NewTable("case and variant", "value", "unit", "× Linux", "mean, µs", "sd, µs", "p99, µs", "p99 × Linux")
	for _, metric := range []string{"rate", "throughput"} {
		for _, c := range s.Cases(metric) {
			for _, v := range s.Variants(metric) {
				r := s.Row(c, v, metric)
				if r == nil {
					continue
				}
				cells := []string{c + ": " + v, report.Spread(r.Stat()), r.Unit, report.Spread(suite.Ratio(s, c, v, suite.LinuxGRO, metric, false))}
				if s.Row(c, v, "p99") == nil {
					t.Row(append(cells, "", "", "", "")...)
					continue
				}
				for _, m := range []string{"mean", "sd", "p99"} {
					cells = append(cells, report.Spread(s.Row(c, v, m).Stat()))
				}
				t.Row(append(cells, report.Spread(suite.Ratio(s, c, v, suite.LinuxGRO, "p99", false)))...)
			}
		}
	}
	p.Table(t)
}

// thesis is rates, and a picture of them against the number of rules.
func (p *page) thesis(s *report.Section) {
	p.rates(s)
	for _, x := range []struct{ metric, unit, what string }{{"rate", "round trips/s", "tcp round trips"}, {"throughput", "Gbit/s", "tcp stream"}} {
		var places []string
		var lines []report.Line
		for i, v := range s.Variants(x.metric) {
			for _, limited := range []string{"", ", limited"} {
				line := report.Line{Label: v + limited}
				for _, n := range thesisExtents["full"].rules {
					line.Stats = append(line.Stats, s.Row(fmt.Sprintf("%d rules%s: %s", n, limited, x.what), v, x.metric).Stat())
					if i == 0 && limited == "" {
						places = append(places, strconv.Itoa(n))
					}
				}
				lines = append(lines, line)
			}
		}
		p.Plot("thesis-"+x.metric, x.what+" against filter rules", report.Lines(x.what+" of containers of two hosts against the number of filter rules", x.unit, places, lines))
	}
}

// costs is a table of CPU time per packet.
func (p *page) costs(s *report.Section) {
	t := report.NewTable("case and variant", "ns/packet", "× the better Linux", "Mpps", "fast")
	for _, c := range s.Cases("cost") {
		base := suite.LinuxBest(s, c, "cost", true)
		for _, v := range s.Variants("cost") {
			r := s.Row(c, v, "cost")
			if r == nil {
				continue
			}
			fast := "–"
			if st := s.Row(c, v, suite.FastShare).Stat(); st.N > 0 {
				fast = fmt.Sprintf("%.0f %%", 100*st.Median)
			}
			t.Row(c+": "+v, report.Spread(r.Stat()), report.Spread(suite.RatioRows(r, base, true)), report.Spread(measure.Of(suite.Scaled(s.Row(c, v, "rate"), 1e-6))), fast)
		}
	}
	p.Table(t)
	p.BarsOf(s, "cost")
}

// loses lists every case where shunt is worse than Linux.
func (p *page) loses() {
	p.Para("## Where shunt loses")
	t := report.NewTable("case", "what", "against", "ratio")
	for _, sec := range p.Suite.Sections {
		s := p.Section(sec.Name)
		for _, m := range []struct {
			metric string
			less   bool
		}{{"rate", false}, {"throughput", false}, {"p99", true}, {"cost", true}} {
			for _, c := range s.Cases(m.metric) {
				variant := shuntAuto
				if m.metric == "cost" || s.Row(c, suite.ShuntTC, m.metric) != nil {
					variant = suite.ShuntTC
				}
				for _, base := range []string{suite.LinuxGRO, suite.LinuxNoGRO} {
					if x := suite.Ratio(s, c, variant, base, m.metric, m.less); x.N > 0 && x.Median < 1 {
						t.Row(s.Name+", "+c, m.metric, base, report.Spread(x))
					}
				}
			}
		}
	}
	if t.Empty() {
		p.Para("In no case that was measured.")
		return
	}
	p.Table(t)
}

// published is what others say of theirs.
func (p *page) published() {
	p.Para("## Beside what others published")
	p.Para("Of other machines and other baselines, so ratios alone, each against Flannel or the kernel's own overlay as its authors measured it.")
	t := report.NewTable("who", "what", "ratio")
	for _, x := range [][3]string{
		{"LinuxFP (table V)", "TCP_RR, 1 to 10 pairs of pods, with Flannel: one node; two nodes", "1.20; 1.16"},
		{"ONCache (NSDI 2025)", "TCP, containers of two hosts, against Antrea: round trips; throughput", "1.36; 1.12"},
		{"ONCache (NSDI 2025)", "UDP, the same", "1.34; 1.20"},
		{"students' replication of ONCache (Stanford CS244)", "TCP_RR, one flow, Linux 5.14, against Antrea: their rewrite; tuned Cilium 1.16; bare metal", "1.38; 1.36; 1.66"},
	} {
		t.Row(x[0], x[1], x[2])
	}
	p.Table(t)
}
