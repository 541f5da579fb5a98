// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Over is what packets meet behind the route that one of the changed rules may concern: whoever satisfies what a rule of changed asks first (Asked) meets in it all that
// he meets of the rule set there, and is decided in it; others come to its end, and to nothing on the way. It is nil where that would be more than most entries.
//
// Most rules are about other packets than those of a changed one, and are left out, so that it is small and made in no time whatever the number of rules. Since it holds
// all rules that its packets can meet, in their order and with their counters, it does not matter where the changed ones are, or whether they came or went.
func Over(rs *ruleset.Ruleset, class Class, changed []ruleset.Rule, most int) *Program {
	f := &flattener{
		ix: newIndex(rs), class: class, limit: 1 << 30, most: most, visits: overVisits,
		lists: map[listKey]int{}, sizes: map[*ruleset.Chain]int{}, effects: map[*ruleset.Chain]groups{},
	}
	f.ix.live = class.LiveSets
	path := f.ix.path(class.Family, false)
	f.survey(path)
	path = slices.DeleteFunc(path, func(c called) bool { return !routed(c.place.hook) })
	f.program = &Program{Class: class, Lists: [][]Entry{nil}, rules: f.ix, untracks: f.any[untrackGroup]}
	f.list = &list{}
	f.behind()
	for i := range changed {
		if !f.region(&changed[i]) {
			continue // no packet of the class
		}
		for _, c := range path {
			f.base(c)
		}
		f.place = place{ruleset.Forward, true}
		f.emit(Entry{When: f.only, Then: Decided})
		if f.tooMuch() {
			return nil
		}
	}
	f.program.Lists[0] = f.finish()
	for len(f.pending) > 0 && !f.tooMuch() {
		todo := f.pending[0]
		f.pending = f.pending[1:]
		f.called(todo)
	}
	if f.tooMuch() {
		return nil
	}
	f.program.forget()
	return f.program
}

// overVisits is how many rules are looked at for an Over, at most: some ten milliseconds.
const overVisits = 400_000

func (f *flattener) tooMuch() bool { return f.most > 0 && (f.total > f.most || f.visits < 0) }

// behind begins where something before may have changed what rules ask.
func (f *flattener) behind() {
	for g := range f.epochs {
		if f.any[g] {
			f.epochs[g] = 1
		}
	}
}

// region makes what a changed rule asks first the condition of all that follows; false where no packet satisfies it. Packets of which it cannot be told are slow.
func (f *flattener) region(r *ruleset.Rule) bool {
	f.place = place{ruleset.Forward, true}
	w := ruleWriter{flattener: f, by: Ref{Rule: r}}
	for _, s := range Asked(r) {
		if !w.test(s) {
			return false
		}
	}
	f.only = w.when
	return true
}

// misses says whether a rule ends for all packets of the region before it does anything.
func (f *flattener) misses(r *ruleset.Rule) bool {
	for _, s := range r.Steps {
		t, ok := s.(ruleset.Test)
		if !ok || t.Field == ruleset.SPort || t.Field == ruleset.DPort { // of packets without ports these may do something: leave them to Linux
			return false
		}
		if t.Mask != (ruleset.Value{}) {
			continue
		}
		for _, c := range f.only {
			if u, plain := c.plain(); plain && u.Field == t.Field && c.Epoch == 0 && apart(u.Ranges, t) {
				return true
			}
		}
	}
	return false
}

// apart says whether none of normal ranges' values satisfies a test without a mask.
func apart(of []ruleset.Range, t ruleset.Test) bool {
	for _, r := range of {
		within := func(x ruleset.Range) bool { return x.Lo.Compare(r.Lo) <= 0 && x.Hi.Compare(r.Hi) >= 0 }
		meets := func(x ruleset.Range) bool { return x.Lo.Compare(r.Hi) <= 0 && x.Hi.Compare(r.Lo) >= 0 }
		if t.Not && !slices.ContainsFunc(t.Ranges, within) || !t.Not && slices.ContainsFunc(t.Ranges, meets) {
			return false
		}
	}
	return true
}

// Decides takes a packet through an Over, for tests: false if it is none of its business. The packet has to be as the hooks before the route left it.
func (pr *Program) Decides(p Packet) (Result, bool) {
	t := &thread{walk: begin(&p), Program: pr}
	res := t.run()
	return res, t.decided || res.Outcome != Accepted
}

// Untracks says whether rules that may be no part of the program keep packets out of connection tracking.
func (pr *Program) Untracks() bool { return pr.untracks }
