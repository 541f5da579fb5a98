// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

// page is the bridge's page while it is written.
type page struct{ *suite.Page }

func (p *page) targets() {
	p.Para("## What it must reach")
	p.Targets(p.allTargets())
	p.Para("Ratios are of CPU time per packet, end to end, against the better of Linux with GRO on and off in the same situation. \"At least\" is what prototypes reached. " +
		"A figure of packets of which less than 99 %% were fast is none of shunt's: the table has none then, and the sections below show it with the reason.")
}

func (p *page) allTargets() (all []suite.Target) {
	s := p.Section("bridging")
	for _, t := range []struct {
		in         situation
		hook       string
		least, aim float64
	}{
		{plain, suite.ShuntXDP, 2.0, 2.1}, {tracked, suite.ShuntXDP, 3.0, 3.4},
		{plain, suite.ShuntTC, 1.2, 1.3}, {tracked, suite.ShuntTC, 1.8, 2.0},
	} {
		all = append(all, suite.AtLeast(t.in.name+": "+t.hook+", × Linux", t.least, t.aim, better(s, t.in.name, t.hook)))
	}
	c := p.Section("containers")
	for _, t := range []struct {
		in           situation
		what, metric string
		least, aim   float64
	}{
		{plain, "tcp round trips", "rate", 1.05, 1.15}, {tracked, "tcp round trips", "rate", 1.24, 1.35},
		{plain, "tcp stream", "throughput", 1.0, 1.1}, {tracked, "tcp stream", "throughput", 1.05, 1.15},
	} {
		name := t.in.name + ": " + t.what
		all = append(all, suite.AtLeast("two containers, "+name+", × Linux", t.least, t.aim, suite.Ratio(c, name, shuntAuto, suite.LinuxGRO, t.metric, false)))
	}
	o := p.Section("outside")
	for _, t := range []struct {
		d          direction
		least, aim float64
	}{{received, 1.3, 1.6}, {sent, 1.3, 1.5}} {
		name := t.d.of(plain)
		all = append(all, suite.AtLeast("a container and the outside, "+t.d.name+": "+suite.ShuntTC+", × Linux", t.least, t.aim, better(o, name, suite.ShuntTC)))
	}
	r := p.Section("rules")
	for _, t := range []struct {
		what, metric string
		least        float64
	}{{"tcp stream", "throughput", 0.97}, {"tcp round trips", "rate", 0.95}, {"udp round trips", "rate", 0.95}} {
		with, without := r.Row(ruled(manyRules).name+": "+t.what, shuntAuto, t.metric), r.Row(ruled(0).name+": "+t.what, shuntAuto, t.metric)
		all = append(all, suite.AtLeast(fmt.Sprintf("two containers, %d rules and br_netfilter: %s, × without rules", manyRules, t.what), t.least, 1, suite.RatioRows(with, without, false)))
	}
	starts, many := p.Section("starts"), p.Section("many")
	all = append(all,
		suite.AtMost("a container's start: time added, median of pairs", 2, 0, " ms", suite.Added(starts, startsCase, shuntAuto, suite.LinuxGRO, "start")),
		suite.AtMost("a container's start: longest wait for RTNL", 20, 10, " ms", longest(starts.Row(startsCase, shuntAuto, "rtnl"))),
		suite.AtMost("1,000 veths and 100,000 stations: the daemon's memory", 100, 100, " MiB", many.Row(manyCase, shuntAuto, "resident").Stat()),
		suite.AtMost("1,000 veths and 100,000 stations: reaction to one change", 1, 1, " ms", many.Row(manyCase, shuntAuto, "reaction").Stat()),
	)
	for i := range all {
		all[i].Instead = "not fast, or not measured"
	}
	return all
}

// longest is the largest value of all rounds.
func longest(r *measure.Row) measure.Stat {
	if r == nil {
		return measure.Of(nil)
	}
	return measure.Of([]float64{slices.Max(r.Rounds)})
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
