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
	p.Sections(func(s *report.Section) { renderers[s.Name](p, s) })
	p.Skipped(absent)
}

// renderers draw the sections.
var renderers = map[string]func(*page, *report.Section){
	"bridging": (*page).costs,
	"stations": (*page).costs,
	"floods":   (*page).costs,

	"containers": (*page).rates,
	"outside":    (*page).costs,
	"rules":      (*page).rates,
	"starts":     (*page).times,
	"many":       (*page).times,
}

// absent is what this suite does not measure anywhere.
var absent = []report.Skipped{
	{What: "Open vSwitch", Why: "the development kernel has no openvswitch, and its datapath in user space is another kind"},
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

// times is a table of what a section measured, row by row.
func (p *page) times(s *report.Section) {
	t := report.NewTable("case and variant", "what", "value", "unit")
	for _, r := range s.Rows {
		t.Row(r.Case+": "+r.Variant, r.Metric, report.Spread(r.Stat()), r.Unit)
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
	s := p.Section("containers")
	for _, metric := range []string{"rate", "throughput"} {
		for _, c := range s.Cases(metric) {
			if x := suite.Ratio(s, c, shuntAuto, suite.LinuxGRO, metric, false); x.N > 0 && x.Median < 1 {
				t.Row("containers, "+c, shuntAuto, suite.LinuxGRO, report.Spread(x), "")
			}
		}
	}
	if t.Empty() {
		p.Para("In no case that was measured.")
		return
	}
	p.Table(t)
}
