// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var watchedFlows = suite.Section{
	Name:  "flows",
	Title: "While someone looks at the heaviest flows",
	About: "What `shunt top --flows` costs a packet, in the ten seconds after each of its questions: programs then draw one packet of 64 and count its flow in a sketch. The usual line, with and without, for one flow and for many. " +
		"Nothing of it is in the programs otherwise.",
	Run: runWatchedFlows,
}

// watched is the name of a variant while someone looks.
func watched(variant string) string { return variant + ", flows watched" }

// watch asks for the heaviest flows, as the daemon does upon the first question of shunt top --flows.
func watch(hook graph.Hook) func(*suite.Lane) error {
	return func(l *suite.Lane) error {
		if err := suite.ShuntAt(hook)(l); err != nil {
			return err
		}
		ctx := context.Background()
		if err := l.Engine.Do(ctx, func(d *datapath.Datapath) error { return d.StartFlows() }); err != nil {
			return err
		}
		if err := l.Engine.SetPolicy(ctx, func(p *graph.Policy) { p.Flows = true }); err != nil {
			return fmt.Errorf("asking for flows: %w", err)
		}
		l.Engine.Settle()
		return nil
	}
}

// sampled says how many packets a lane's sketches stand for.
func sampled(l *suite.Lane) (packets uint64, err error) {
	err = l.Engine.Do(context.Background(), func(d *datapath.Datapath) (err error) {
		_, packets, err = d.Flows()
		return err
	})
	return packets, err
}

func runWatchedFlows(b *suite.Bench) error {
	routes := lab.V4Prefixes(50)
	var list []suite.Variant
	for _, v := range []suite.Variant{{Name: suite.ShuntXDP}, {Name: suite.ShuntTC}} {
		hook := map[string]graph.Hook{suite.ShuntXDP: graph.XDP, suite.ShuntTC: graph.TC}[v.Name]
		list = append(list, suite.Variant{Name: v.Name, Setup: suite.ShuntAt(hook)}, suite.Variant{Name: watched(v.Name), Setup: watch(hook)})
	}
	if b.Size.Name == "smoke" {
		list = list[:2]
	}
	lanes, err := b.Lanes(list, lab.LineOptions{V4: routes})
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for _, n := range []int{1, 10_000} {
		for _, l := range lanes {
			s := l.Forward(plural(n, "flow"), false, routes)
			s.Traffic.Flows = n
			turns = append(turns, l.Turn(plural(n, "flow"), l.AtIngress(), s))
		}
	}
	if err := b.Turns("flows", 2*b.Size.Rounds, turns); err != nil { // a difference of few per cent
		return err
	}
	for _, l := range lanes {
		packets, err := sampled(l)
		if looks := l.Variant == watched(suite.ShuntXDP) || l.Variant == watched(suite.ShuntTC); err == nil && looks != (packets > 0) {
			err = fmt.Errorf("%d packets were counted", packets)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.Variant, err)
		}
	}
	return nil
}

func (p *page) watchedFlows(s *report.Section) {
	t := report.NewTable("flows and hook", "ns/packet", "watched", "of the rate without")
	for _, c := range s.Cases("cost") {
		for _, v := range []string{suite.ShuntXDP, suite.ShuntTC} {
			if row := s.Row(c, v, "cost"); row != nil {
				t.Row(c+", "+v, report.Spread(row.Stat()), report.Spread(s.Row(c, watched(v), "cost").Stat()), report.Spread(suite.Ratio(s, c, watched(v), v, "cost", true)))
			}
		}
	}
	p.Table(t)
}
