// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Flatten writes out what a class of traffic meets. Rules that the class cannot reach are left out. A chain is written where it
// is called as long as the whole stays within four entries for each rule (and 1024 in any case); what would go beyond is called.
func Flatten(rs *ruleset.Ruleset, class Class) *Program {
	return flatten(rs, class, 0)
}

// flatten is Flatten with a limit of entries, 0 for the usual one.
func flatten(rs *ruleset.Ruleset, class Class, limit int) *Program {
	f := &flattener{
		ix: newIndex(rs), class: class, limit: limit,
		lists: map[listKey]int{}, sizes: map[*ruleset.Chain]int{}, effects: map[*ruleset.Chain]groups{},
	}
	f.ix.live = class.LiveSets
	path := f.ix.path(class.Family, class.Bridged)
	f.survey(path)
	f.program = &Program{Class: class, Lists: [][]Entry{nil}, rules: f.ix}
	f.list = &list{}
	for i, c := range path {
		f.base(c)
		if !routed(c.place.hook) && (i+1 == len(path) || routed(path[i+1].place.hook)) && f.any[markGroup] {
			f.emit(Entry{boundary: true})
		}
	}
	f.program.Lists[0] = f.finish()
	for len(f.pending) > 0 { // lists call lists
		todo := f.pending[0]
		f.pending = f.pending[1:]
		f.called(todo)
	}
	f.program.forget()
	return f.program
}

// forget empties lists that nothing calls: what would have called them turned out to be out of reach.
func (pr *Program) forget() {
	called := make([]bool, len(pr.Lists))
	called[0] = true
	for todo := []int{0}; len(todo) > 0; todo = todo[1:] {
		for _, e := range pr.Lists[todo[0]] {
			for _, n := range e.calls() {
				if !called[n] {
					called[n] = true
					todo = append(todo, n)
				}
			}
		}
	}
	for n := range pr.Lists {
		if !called[n] {
			pr.Lists[n] = nil
		}
	}
}

// calls are the lists that an entry calls.
func (e *Entry) calls() []int {
	switch e.Then {
	case Call:
		return []int{e.List}
	case ByMap:
		return slices.Sorted(maps.Values(e.Map.Lists))
	}
	return nil
}

type groups [numGroups]bool

func (g groups) or(h groups) groups {
	for i := range g {
		g[i] = g[i] || h[i]
	}
	return g
}

// listKey tells called lists apart: what a chain does depends on the place too.
type listKey struct {
	table *ruleset.Table
	chain *ruleset.Chain
	place place
}

// list is a list of entries being written. While it is, To, End and Map.Return are labels.
type list struct {
	entries []Entry
	labels  []int // label → entry; -1 while it has no place
	epochs  [numGroups]int
}

type flattener struct {
	ix      *index
	class   Class
	limit   int // of entries
	total   int // entries written
	mapped  int // of them, for elements of maps that give values
	program *Program
	*list
	table   *ruleset.Table
	place   place
	end     int // label behind the base chain
	any     groups
	lists   map[listKey]int
	pending []listKey
	sizes   map[*ruleset.Chain]int    // entries that a chain written out takes, called chains included
	effects map[*ruleset.Chain]groups // what a chain can change, called chains included

	only   []Cond // of an Over: the packets that all of this is about
	most   int    // of an Over: more entries are too many; 0 for any number
	visits int    // of an Over: rules that may yet be looked at
}

// survey counts the rules on the path, for the limit, and finds out what can change at all.
func (f *flattener) survey(path []called) {
	rules := 0
	tables := map[*ruleset.Table]bool{}
	for _, c := range path {
		if c.slow != "" {
			continue
		}
		f.any = f.any.or(f.canChange(c.table, c.chain))
		if !tables[c.table] {
			tables[c.table] = true
			for i := range c.table.Chains {
				rules += len(c.table.Chains[i].Rules)
			}
		}
	}
	if f.limit == 0 {
		f.limit = 4*rules + 1024
	}
}

// canChange says what a chain can change.
func (f *flattener) canChange(t *ruleset.Table, c *ruleset.Chain) (g groups) {
	if known, ok := f.effects[c]; ok {
		return known
	}
	f.effects[c] = g // chains do not call themselves where the path is not slow
	for i := range c.Rules {
		for _, s := range c.Rules[i].Steps {
			switch s := s.(type) {
			case ruleset.SetField:
				g[groupOf(s.Field)] = true
			case ruleset.SetByMap:
				g[groupOf(s.Field)] = true
				g[zoneGroup] = g[zoneGroup] || s.Field == ruleset.CTZone
			case ruleset.NoTrack:
				g[ctGroup], g[untrackGroup] = true, true
			case ruleset.SetZone:
				g[ctGroup], g[zoneGroup] = true, true
			}
		}
	}
	f.ix.eachVerdict(c, func(v ruleset.Verdict) {
		if v.Code != ruleset.Jump && v.Code != ruleset.Goto {
			return
		}
		if next := f.ix.chains[t][v.Chain]; next != nil {
			g = g.or(f.canChange(t, next))
		}
	})
	f.effects[c] = g
	return g
}

// size is how many entries a chain takes when it is written out, called chains included; at most twice the limit.
func (f *flattener) size(t *ruleset.Table, c *ruleset.Chain) int {
	if n, ok := f.sizes[c]; ok {
		return n
	}
	n := 1
	for i := range c.Rules {
		n++
		for _, s := range c.Rules[i].Steps {
			if v, ok := s.(ruleset.Verdict); ok && (v.Code == ruleset.Jump || v.Code == ruleset.Goto) {
				if next := f.ix.chains[t][v.Chain]; next != nil {
					n += 1 + f.size(t, next)
				}
			}
		}
		n = min(n, 2*f.limit)
	}
	f.sizes[c] = n
	return n
}

func (f *flattener) label() int {
	f.labels = append(f.labels, -1)
	return len(f.labels) - 1
}

// here puts a label in front of the next entry.
func (f *flattener) here(label int) { f.labels[label] = len(f.entries) }

func (f *flattener) emit(e Entry) {
	e.place = f.place
	f.entries = append(f.entries, e)
	f.total++
}

// base writes the call of a base chain.
func (f *flattener) base(c called) {
	f.table, f.place = c.table, c.place
	f.end = f.label()
	defer func(end int) { f.here(end) }(f.end)
	by := Ref{Table: c.table, Chain: c.chain}
	if !f.devices(c.chain.Base) {
		return
	}
	if c.slow != "" {
		f.emit(Entry{When: f.only, Then: LeaveSlow, By: by, Why: c.slow})
		return
	}
	if c.chain.Base.Type == "nat" {
		starting := ruleset.Test{Field: ruleset.CTState, Ranges: []ruleset.Range{
			ruleset.One(ruleset.Num(ruleset.CTRelated)), ruleset.One(ruleset.Num(ruleset.CTNew)),
		}}
		if when, _, never := f.and(f.only, starting); !never {
			f.emit(Entry{When: when, Then: LeaveSlow, By: by, Why: "nat"})
		}
		return
	}
	policy := f.label()
	f.chain(c.chain, f.only, policy)
	f.here(policy)
	e := Entry{When: f.only, By: by}
	if c.chain.Base.Counter != ruleset.NoCounter {
		e.Do = []ruleset.Step{ruleset.Count{Counter: c.chain.Base.Counter}}
	}
	if c.chain.Base.Policy == ruleset.Drop {
		e.Then = DropIt
	}
	if e.Do != nil || e.Then != Next {
		f.emit(e)
	}
}

// devices lets packets of other devices pass by a chain that belongs to some; false when the class has no others.
func (f *flattener) devices(b *ruleset.Base) bool {
	name, device := ruleset.IIFName, f.class.IIF
	switch f.place.hook {
	case ruleset.Ingress:
	case ruleset.Egress:
		name, device = ruleset.OIFName, f.class.OIF
	default:
		return true
	}
	if device != nil {
		return b.On(device.Name)
	}
	others := ruleset.Test{Field: name, Not: true}
	for _, d := range b.Devices {
		others.Ranges = append(others.Ranges, deviceNames(d))
	}
	when, same, _ := f.and(nil, others)
	if !same {
		f.emit(Entry{When: when, Then: Skip, To: f.end})
	}
	return !same
}

func deviceNames(pattern string) ruleset.Range {
	if n := len(pattern) - 1; n >= 0 && pattern[n] == '*' {
		return ruleset.Names(pattern[:n])
	}
	return ruleset.One(ruleset.Name(pattern))
}

// chain writes a chain's rules for packets that satisfy when; ret is the label that a return leads to. final says that none of them gets to the chain's end.
func (f *flattener) chain(c *ruleset.Chain, when []Cond, ret int) (final bool) {
	for i := range c.Rules {
		if f.most > 0 {
			if f.visits--; f.tooMuch() {
				return false
			}
			if f.misses(&c.Rules[i]) {
				continue
			}
		}
		w := ruleWriter{flattener: f, by: Ref{f.table, c, &c.Rules[i]}, path: when, when: when, ret: ret}
		if w.rule() {
			return true
		}
	}
	return false
}

// called writes a list that others call.
func (f *flattener) called(k listKey) {
	f.list = &list{}
	f.table, f.place, f.end = k.table, k.place, EndBase
	f.behind()
	f.only = nil
	f.chain(k.chain, nil, Back)
	f.program.Lists[f.lists[k]] = f.finish()
}

// listOf gives the list of a chain that is called here, to be written if it is not yet.
func (f *flattener) listOf(c *ruleset.Chain) int {
	k := listKey{f.table, c, f.place}
	n, ok := f.lists[k]
	if !ok {
		n = len(f.program.Lists)
		f.program.Lists = append(f.program.Lists, nil)
		f.lists[k] = n
		f.pending = append(f.pending, k)
	}
	return n
}

// changed begins new epochs of what a call may have changed.
func (f *flattener) changed(g groups) {
	for i := range f.epochs {
		if g[i] {
			f.epochs[i]++
		}
	}
}

// epoch is the epoch of a condition on these fields: it moves when one of their groups changes.
func (f *flattener) epoch(s ruleset.Step) (n int) {
	var g groups
	for _, x := range fieldsOf(s) {
		g[groupOf(x)] = true
	}
	for i := range g {
		if g[i] {
			n += f.epochs[i]
		}
	}
	return n
}

// stale says whether conditions ask for something that has changed since.
func (f *flattener) stale(when []Cond) bool {
	return slices.ContainsFunc(when, func(c Cond) bool { return c.Epoch != f.epoch(c.Of) })
}

// asks says whether conditions ask for something of these groups.
func asks(when []Cond, g groups) bool {
	return slices.ContainsFunc(when, func(c Cond) bool {
		return slices.ContainsFunc(fieldsOf(c.Of), func(x ruleset.Field) bool { return g[groupOf(x)] })
	})
}
