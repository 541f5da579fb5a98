// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

// page is the library's page while it is written.
type page struct{ *suite.Page }

func writePage(base *suite.Page) {
	p := &page{base}
	p.Opening("The function library")
	p.Provenance()
	p.Para("## What it must reach")
	p.Targets(p.allTargets())
	p.Para("Against plain eBPF written the common way, with the same results, unless another is named. What the rows mean: " +
		"*Alone* is the work itself: an operation or a structure's operation less an empty loop, or a whole program less the bare one, which reads the same packet and drops it, both by BPF_PROG_TEST_RUN. " +
		"*Behind a call* is native code as a function that is called, as the aims were taken and as a kfunc would have to be; *in the loop* is stricter: the instruction alone, which the compiler unrolls and of which it keeps what does not change. " +
		"Where each bit waits for the last, twice the instruction's time cannot be had: [why](lib/words.md). " +
		"*Packet rate* is that of the whole XDP program on a veth, the driver's share of each packet included: it is bounded by the bare program, whose own ratio to the common way stands in brackets and is the aim where the issue asks for all that the floor leaves.")
	p.loses()
	p.Sections(func(s *report.Section) { renderers[s.Name](p, s) })
	p.Skipped(absent)
}

// renderers draw the sections.
var renderers = map[string]func(*page, *report.Section){
	"operations": (*page).operations,
	"structures": (*page).structures,
	"functions":  (*page).functions,
}

// absent is what this suite does not measure anywhere.
var absent = []report.Skipped{
	{What: "eNetSTL itself", Why: "its module needs a patched Linux 6.6; its published gains stand in docs/lib/enetstl.md"},
	{What: "the optional kernel module's times", Why: "this machine's kernel takes no modules. What it computes is tested in a virtual machine without hardware virtualisation, where times mean nothing: [" + moduleRecord + "](../" + moduleRecord + ")"},
	{What: "physical NICs", Why: "none in the development machine; a driver's share of a packet is smaller there than a veth's, and the functions' gain larger"},
}

// moduleRecord is what is known of the module: that its results are right.
const moduleRecord = "bench/results/lib-kmod.txt"

// net is an operation's time less the empty loop's, round by round; nil if one of them was not measured.
func net(s *report.Section, program string) *measure.Row {
	kind, empty := "bpf", "empty"
	if program[0] == '!' {
		kind, empty = "native", "!empty"
	}
	return less(s.Row(program, kind, "time"), s.Row(empty, kind, "time"))
}

func (p *page) operations(s *report.Section) {
	t := report.NewTable("operation and variant", "ns", "common way × faster", "best plain way × faster", "× native's time")
	for _, op := range compared {
		last := op.variants[len(op.variants)-1]
		for _, v := range op.variants {
			row := net(s, v.program)
			if row == nil {
				continue
			}
			faster, bestFaster, slower := "", "", ""
			if op.variants[0].name == common && v.name != common {
				faster = report.Spread(suite.RatioRows(row, net(s, op.variants[0].program), true))
			}
			if plain := op.program(best); plain != "" && v.name != common && v.name != best {
				bestFaster = report.Spread(suite.RatioRows(row, net(s, plain), true))
			}
			if last.program[0] == '!' && v.program[0] != '!' {
				slower = report.Spread(measure.Of(measure.Over(row, net(s, last.program))))
			}
			t.Row(op.name+": "+v.name, report.Spread(row.Stat()), faster, bestFaster, slower)
		}
		if op.module {
			t.Row(op.name+": module", "[same results](../"+moduleRecord+"), not timed", "", "", "")
		}
	}
	p.Table(t)
}

// structure is an operation on a structure less the empty loop's time, round by round; nil if one of them was not measured.
func structure(s *report.Section, what, variant string) *measure.Row {
	return less(s.Row(what, variant, "time"), s.Row(emptyLoop, variant, "time"))
}

// less subtracts round by round; nil if one of the rows is.
func less(row, base *measure.Row) *measure.Row {
	if row == nil || base == nil {
		return nil
	}
	out := &measure.Row{Case: row.Case, Variant: row.Variant, Metric: "net", Unit: row.Unit}
	for i := range min(len(row.Rounds), len(base.Rounds)) {
		out.Rounds = append(out.Rounds, row.Rounds[i]-base.Rounds[i])
	}
	return out
}

func (p *page) structures(s *report.Section) {
	t := report.NewTable("structure and variant", "ns", "library × faster", "library's time × native's")
	for _, f := range everyStructure() {
		for _, v := range []string{common, best, library, native} {
			row, mine := structure(s, f.what, v), structure(s, f.what, library)
			if row == nil {
				continue
			}
			faster, slower := "", ""
			if v == common || v == best {
				faster = report.Spread(suite.RatioRows(mine, row, true))
			}
			if v == native {
				slower = report.Spread(measure.Of(measure.Over(mine, row)))
			}
			t.Row(f.what+": "+v, report.Spread(row.Stat()), faster, slower)
		}
	}
	p.Table(t)
}

func (p *page) functions(s *report.Section) {
	t := report.NewTable("function and variant", "ns/packet", "alone, ns", "Mpps", "rate × common", "alone × common", "rate × best plain", "alone × best plain", "rate × bare")
	for _, c := range s.Cases("cost") {
		for _, v := range s.Variants("cost") {
			row := s.Row(c, v, "cost")
			if row == nil {
				continue
			}
			work, floor := "", ""
			var against [4]string
			if v != bare {
				work = report.Spread(above(s, c, v).Stat())
				floor = report.Spread(suite.Ratio(s, c, v, bare, "cost", true))
			}
			for i, other := range []string{common, best} {
				if v == library && s.Row(c, other, "cost") != nil {
					against[2*i] = report.Spread(suite.Ratio(s, c, v, other, "cost", true))
					against[2*i+1] = report.Spread(suite.RatioRows(above(s, c, v), above(s, c, other), true))
				}
			}
			t.Row(c+": "+v, report.Spread(row.Stat()), work, report.Spread(measure.Of(suite.Scaled(s.Row(c, v, "rate"), 1e-6))),
				against[0], against[1], against[2], against[3], floor)
		}
	}
	p.Table(t)
	p.BarsOf(s, "cost")
}

// above is a variant's program less the bare one, round by round.
func above(s *report.Section, c, v string) *measure.Row {
	return less(s.Row(c, v, "program"), s.Row(c, bare, "program"))
}

func (p *page) allTargets() []suite.Target {
	o, f, q := p.Section("operations"), p.Section("functions"), p.Section("structures")
	alone := func(fast, slow string) measure.Stat { return suite.RatioRows(net(o, fast), net(o, slow), true) }
	times := func(mine, other string) measure.Stat { return measure.Of(measure.Over(net(o, mine), net(o, other))) }
	packets := func(c string, least, aim float64) suite.Target {
		floor := floorOf(f, c)
		if aim == 0 {
			aim = floor
		}
		what := c + ", packet rate"
		if !math.IsNaN(floor) {
			what += " (bare program: " + report.Number(floor) + ")"
		}
		return suite.AtLeast(what, least, aim, suite.Ratio(f, c, library, common, "cost", true))
	}
	function := func(c string) measure.Stat { return suite.RatioRows(above(f, c, library), above(f, c, common), true) }
	all := []suite.Target{
		suite.AtLeast("count-min, 4 rows, alone", 1.8, 2.5, alone("cms4_shunt", "cms4_common")),
		suite.AtLeast("count-min, 8 rows, alone", 2.5, 3.5, alone("cms8_shunt", "cms8_common")),
		packets("count-min, 4 rows", 1.1, 0),
		packets("count-min, 8 rows", 1.2, 0),
		suite.AtLeast(nitro2+", alone", 1.8, 2.5, function(nitro2)),
		packets(nitro2, 1.8, 2.5),
		suite.AtMost("lowest bit, × the instruction's time behind a call", 2, 1, "", times("ctz_shunt", "!ctz_called")),
		suite.AtMost("the same, × the instruction in the loop", 2, 1, "", times("ctz_shunt", "!ctz_builtin")),
		suite.AtMost("lowest bit, each waits for the last, × the instruction behind a call", 2, 1, "", times("chain_ctz_shunt", "!chain_ctz_called")),
		suite.AtMost("the same, × the instruction in the loop", 2, 1, "", times("chain_ctz_shunt", "!chain_ctz_builtin")),
		suite.AtMost("match of 16, × AVX2's time behind a call", 3, 1, "", times("match_shunt", "!match_called")),
		suite.AtMost("the same, × AVX2 in the loop", 3, 1, "", times("match_shunt", "!match_native")),
		suite.AtMost("geometric draw, × native's time", 1.2, 1, "", times("draw_shunt", "!draw_shunt")),
		suite.AtLeast("cuckoo table, full, lookup alone", 1.3, 1.6, suite.RatioRows(structure(q, fullTable, library), structure(q, fullTable, common), true)),
		suite.AtLeast(fullSwitch+", alone", 1.3, 1.6, function(fullSwitch)),
		packets(fullSwitch, 1.3, 1.6),
	}
	for n := 1 << 12; n <= 1<<16; n *= 4 {
		what := fmt.Sprintf("skip list of %d, lookup", n)
		all = append(all, suite.AtMost(what+", × native's time", 1.3, 1.1, "", measure.Of(measure.Over(structure(q, what, library), structure(q, what, native)))))
	}
	for _, what := range []string{"priority queue, push and pop", "timing wheel, push and pop"} {
		all = append(all, suite.AtMost(what, 40, 20, " ns", structure(q, what, library).Stat()))
	}
	return append(all, suite.Target{What: "differences from the oracles", LessIsBetter: true, Value: measure.Of(nil),
		Instead: "0, or the tests fail: [lib/test](../lib/test), a million operations of each structure in CI"})
}

// Names of cases that are looked for.
const (
	fullTable  = "cuckoo table at 100 %, lookup"
	fullSwitch = "cuckoo switch at 100 %"
)

const nitro2 = "NitroSketch, 8 rows at 2 %"

// floorOf is what no function could exceed: the rate of the bare program against the common way's.
func floorOf(f *report.Section, c string) float64 {
	return suite.Ratio(f, c, bare, common, "cost", true).Median
}

// loses lists where the library is slower than what people write without it, the best of them included.
func (p *page) loses() {
	p.Para("## Where the library loses")
	t := report.NewTable("what", "against", "ratio")
	o, f := p.Section("operations"), p.Section("functions")
	for _, op := range compared {
		for _, v := range op.variants {
			if v.name != common && v.name != builtin && v.name != best {
				continue
			}
			for _, mine := range op.variants {
				if r := suite.RatioRows(net(o, mine.program), net(o, v.program), true); mine.name == library && r.Median < 1 {
					t.Row(op.name, v.name, report.Spread(r))
				}
			}
		}
	}
	for _, c := range f.Cases("cost") {
		for _, other := range []string{common, best} {
			if r := suite.Ratio(f, c, library, other, "cost", true); r.Median < 1 {
				t.Row(c, other, report.Spread(r))
			}
		}
	}
	q := p.Section("structures")
	for _, c := range everyStructure() {
		for _, other := range []string{common, best} {
			if r := suite.RatioRows(structure(q, c.what, library), structure(q, c.what, other), true); r.Median < 1 {
				t.Row(c.what, other, report.Spread(r))
			}
		}
	}
	if t.Empty() {
		p.Para("In no case that was measured.")
		return
	}
	p.Table(t)
}
