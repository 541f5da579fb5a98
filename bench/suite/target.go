// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"cmp"
	"math"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
)

// Target is a line of "what it must reach".
type Target struct {
	What         string
	Least, Aim   float64
	LessIsBetter bool
	Unit         string
	Value        measure.Stat
	Instead      string // the verdict where there is no value; "": not measured
}

// Verdict compares the median with both columns.
func (t Target) Verdict() string {
	v := t.Value.Median
	reached := func(goal float64) bool {
		if t.LessIsBetter {
			return v <= goal
		}
		return v >= goal
	}
	switch {
	case math.IsNaN(v):
		return cmp.Or(t.Instead, "not measured")
	case reached(t.Aim):
		return "aim reached"
	case reached(t.Least):
		return "at least"
	}
	return "**no**"
}

// Targets is the table of what must be reached beside what was measured.
func (p *Page) Targets(all []Target) {
	t := report.NewTable("what", "at least", "aim", "measured", "verdict")
	for _, x := range all {
		if p.beside() && x.Value.N == 0 {
			continue
		}
		measured := report.Spread(x.Value)
		if x.Value.N > 0 {
			measured += x.Unit
		}
		t.Row(x.What, report.Number(x.Least)+x.Unit, report.Number(x.Aim)+x.Unit, measured, x.Verdict())
	}
	p.Table(t)
}

// Section is never nil, so that what is missing shows as not measured.
func (p *Page) Section(name string) *report.Section {
	if s := p.Results.Section(name); s != nil {
		return s
	}
	return &report.Section{Name: name}
}

// AtLeast is a target for something of which more is better.
func AtLeast(what string, least, aim float64, value measure.Stat) Target {
	return Target{What: what, Least: least, Aim: aim, Value: value}
}

// AtMost is a target for something of which less is better.
func AtMost(what string, most, aim float64, unit string, value measure.Stat) Target {
	return Target{What: what, Least: most, Aim: aim, LessIsBetter: true, Unit: unit, Value: value}
}
