// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

func writePage(base *suite.Page) {
	p := &page{base}
	p.Opening("The bridge")
	p.Provenance()
	p.targets()
	p.loses()
	p.hooks()
	p.Sections(func(s *report.Section) { renderers[s.Name](p, s) })
	p.Skipped(absent)
}

// renderers draw the sections.
var renderers = map[string]func(*page, *report.Section){
	"bridging": (*page).costs,
	"stations": (*page).costs,
	"floods":   (*page).costs,
	"stages":   (*page).stages,

	"containers": (*page).rates,
	"pairs":      (*page).pairs,
	"sizes":      (*page).sizes,
	"outside":    (*page).costs,
	"rules":      (*page).rates,
	"peers":      (*page).rates,
	"starts":     func(p *page, s *report.Section) { p.Times(s) },
	"many":       func(p *page, s *report.Section) { p.Times(s) },
}

// absent is what this suite does not measure anywhere.
var absent = []report.Skipped{
	{What: "Open vSwitch's module", Why: "the development kernel has no openvswitch; its datapath in user space is under \"Beside others\" where its programs are found"},
	{What: "`shunt compile` on one bridge", Why: "what it makes acts on packets that are forwarded by route; between two bridges it is under \"Beside others\""},
	{What: "Docker's host and overlay drivers", Why: "the host's own traffic is Linux's; that of the overlay driver is in a namespace of dockerd's own, which --netns serves, and is what bench-overlay measures ([operations.md](operations.md#docker-hosts))"},
	{What: "VLAN filtering", Why: "the development kernel has no CONFIG_BRIDGE_VLAN_FILTERING"},
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

// costs is a table of the cases' variants, with cost, ratio, rate and the share of fast packets, and bars.
func (p *page) costs(s *report.Section) {
	t := report.NewTable("case and variant", "ns/packet", "× the better Linux", "Mpps", "fast")
	for _, c := range s.Cases("cost") {
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
	p.BarsOf(s, "cost")
}

// rates is a table of the cases' variants, where more is better.
func (p *page) rates(s *report.Section) {
	t := report.NewTable("case and variant", "value", "unit", "× Linux")
	for _, metric := range []string{"rate", "throughput"} {
		for _, c := range s.Cases(metric) {
			for _, v := range s.Variants(metric) {
				if r := s.Row(c, v, metric); r != nil {
					t.Row(c+": "+v, report.Spread(r.Stat()), r.Unit, report.Spread(suite.Ratio(s, c, v, suite.LinuxGRO, metric, false)))
				}
			}
		}
	}
	p.Table(t)
}

// loses lists every case where shunt is worse than one of the two Linuxes.
func (p *page) loses() {
	p.Para("## Where shunt loses")
	t := report.NewTable("case", "shunt", "against", "ratio", "fast")
	for _, sec := range p.Suite.Sections {
		s := p.Section(sec.Name)
		for _, c := range s.Cases("cost") {
			for _, v := range []string{suite.ShuntXDP, suite.ShuntTC} {
				for _, other := range []string{suite.LinuxGRO, suite.LinuxNoGRO} {
					if x := suite.Ratio(s, c, v, other, "cost", true); x.N > 0 && x.Median < 1 {
						t.Row(fmt.Sprintf("%s, %s", s.Name, c), v, other, report.Spread(x), share(s, c, v))
					}
				}
			}
		}
	}
	for _, name := range []string{"containers", "pairs", "sizes", "peers"} {
		s := p.Section(name)
		for _, metric := range []string{"rate", "throughput", "latency"} {
			for _, c := range s.Cases(metric) {
				if x := suite.Ratio(s, c, shuntAuto, suite.LinuxGRO, metric, metric == "latency"); x.N > 0 && x.Median < 1 {
					t.Row(name+", "+c, shuntAuto, suite.LinuxGRO, report.Spread(x), "")
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

// hooks is a table of shunt at its two hooks, with what LinuxFP's authors measured of theirs.
func (p *page) hooks() {
	t := report.NewTable("one core", "XDP, Mpps", "TC, Mpps", "XDP/TC", "XDP, ns/packet", "TC, ns/packet", "XDP/TC in CPU time", "LinuxFP: XDP, TC (Mpps)", "XDP/TC there")
	for _, x := range []struct {
		what    string
		section *report.Section
		name    string
		xdp, tc float64 // published, packets/s; 0: not
	}{
		{"bridge", p.Section("bridging"), plain.name, 1_914_978, 889_735},
		{"bridge, br_netfilter", p.Section("bridging"), called.name, 0, 0},
		{"bridge, br_netfilter and a conntrack rule", p.Section("bridging"), tracked.name, 0, 0},
		{"forward", p.Beside("router", "forwarding"), "ipv4, end to end", 1_768_221, 850_209},
		{"filter, 100 rules", p.Beside("gateway", "rules"), "100 source rules, iptables-legacy, match last", 1_183_252, 680_065},
	} {
		row := func(v, metric string) *measure.Row { return fast(x.section, x.name, v, metric) }
		if x.section.Name == "forwarding" { // whose lanes insist on it
			row = func(v, metric string) *measure.Row { return x.section.Row(x.name, v, metric) }
		}
		if row(suite.ShuntXDP, "rate") == nil || row(suite.ShuntTC, "rate") == nil {
			continue
		}
		there, ratio := "–", "–"
		if x.xdp > 0 {
			there, ratio = fmt.Sprintf("%.2f, %.2f", x.xdp/1e6, x.tc/1e6), fmt.Sprintf("%.2f", x.xdp/x.tc)
		}
		mpps := func(v string) string { return report.Spread(measure.Of(suite.Scaled(row(v, "rate"), 1e-6))) }
		t.Row(x.what, mpps(suite.ShuntXDP), mpps(suite.ShuntTC), report.Spread(suite.RatioRows(row(suite.ShuntXDP, "rate"), row(suite.ShuntTC, "rate"), false)),
			report.Spread(row(suite.ShuntXDP, "cost").Stat()), report.Spread(row(suite.ShuntTC, "cost").Stat()),
			report.Spread(suite.RatioRows(row(suite.ShuntXDP, "cost"), row(suite.ShuntTC, "cost"), true)), there, ratio)
	}
	if t.Empty() {
		return
	}
	p.Para("## XDP against TC")
	p.Para("Rows of \"Bridging\" below, and of [the router](bench-router.md) and [the gateway](bench-gateway.md), beside table VII of the LinuxFP paper, taken with 25 Gb/s NICs. Only figures of packets that were fast. Neither machine nor packets are the same: " +
		"compare the ratios of the two hooks.")
	p.Table(t)
}
