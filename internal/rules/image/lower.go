// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// lowering writes the entries of a program as entries of an image: sets and verdict maps become entries for each element, what cannot be
// expressed becomes an entry that leaves the packet to Linux.
type lowering struct {
	pr       *rules.Program
	devices  []rules.Device
	o        Options
	from     int  // the first entry of list 0 that belongs to the stage
	to       int  // and the first behind those
	untrack  bool // rules keep packets out of connection tracking
	zoned    bool // rules give packets a zone
	out      []entry
	at       map[target]int // where the entries of an entry of the program begin
	left     []rules.SlowTraffic
	unsaid   int
	sender   bool // what is said holds for senders of type unicast
	receiver bool // and for receivers of that type, where the route alone does not prove it
	asks     []deviceAsk
	why      string // what of the entry at hand cannot be expressed; the first thing counts
}

// lowered are the entries of an image, with their numbers.
type lowered struct {
	entries          []entry
	at               map[target]int
	left             []rules.SlowTraffic
	unsaid           int
	sender, receiver bool
	asks             []deviceAsk
}

func newLowering(pr *rules.Program, devices []rules.Device, o Options) *lowering {
	l := &lowering{pr: pr, devices: devices, o: o, at: map[target]int{}, untrack: pr.Untracks()}
	list := pr.Lists[0]
	border := func(s Stage) int {
		if i := slices.IndexFunc(list, func(e rules.Entry) bool { return l.stage(&e) >= s }); i >= 0 {
			return i
		}
		return len(list)
	}
	l.from, l.to = border(o.Stage), border(o.Stage+1)
	for _, list := range pr.Lists {
		for i := range list {
			for _, s := range list[i].Do {
				switch s.(type) {
				case ruleset.NoTrack:
					l.untrack = true
				case ruleset.SetZone:
					l.zoned = true
				}
			}
		}
	}
	return l
}

// stage is the stage that an entry belongs to.
func (l *lowering) stage(e *rules.Entry) Stage {
	switch {
	case !e.BeforeRoute():
		return Post
	case l.o.CT && !e.Tracked():
		return Raw
	}
	return Pre
}

// end is the end of every packet's way through the stage, written as an entry behind the list.
func (l *lowering) end() target { return target{0, l.to} }

func (l *lowering) run() *lowered {
	if l.from == l.to {
		return nil
	}
	l.list(0, l.pr.Lists[0][l.from:l.to], l.from, entry{then: accept})
	for n, list := range l.pr.Lists[1:] {
		if len(list) > 0 && l.stage(&list[0]) == l.o.Stage {
			l.list(n+1, list, 0, entry{then: back})
		}
	}
	return &lowered{l.out, l.at, l.left, l.unsaid, l.sender, l.receiver, l.asks}
}

func (l *lowering) list(n int, list []rules.Entry, first int, end entry) {
	for i := range list {
		l.at[target{n, first + i}] = len(l.out)
		l.entry(n, first+i, &list[i])
	}
	l.at[target{n, first + len(list)}] = len(l.out)
	l.out = append(l.out, end)
}

// entry writes one entry of the program.
func (l *lowering) entry(list, i int, e *rules.Entry) {
	next := target{list, i + 1}
	l.aging(list, e)
	e = l.counting(list, e)
	base, open, said, never := l.conditions(e)
	if never {
		return
	}
	for _, s := range e.Do {
		a, ok := l.action(e, s)
		said = said && ok
		base.do = append(base.do, a)
	}
	said = said && l.lead(&base, list, e)
	var choice []choice
	switch {
	case e.Then == rules.LeaveSlow:
		base.do, base.then = nil, leave
		if !said {
			l.leave(base, e, list)
			return
		}
	case !said:
	case e.Then == rules.ByMap:
		said = open == nil && !slices.ContainsFunc(base.do, func(a action) bool { return a.kind != opCount }) // the map asks for what was changed
		if !said {
			l.cannot("verdict maps behind a set or a change")
		} else {
			choice, said = l.choices(e.Map.Of, e)
		}
	}
	if open != nil && said {
		choice, said = l.choices(*open, e)
	}
	if !said {
		l.leave(base, e, list)
		return
	}
	switch {
	case e.Then == rules.ByMap:
		l.byMap(base, list, e, choice)
	case open != nil:
		l.lookup(base, next, *open, choice, list, e)
	default:
		l.out = append(l.out, base)
	}
}

// leave writes an entry that leaves the packets to Linux that satisfy what can be said of an entry of the program.
func (l *lowering) leave(out entry, of *rules.Entry, list int) {
	l.unsaid++
	l.out = append(l.out, entry{dims: out.dims, conds: out.conds, then: leave})
	if of.Then != rules.LeaveSlow {
		l.note(of, list)
	}
}

// note names an entry of the program that leaves packets to Linux, once.
func (l *lowering) note(of *rules.Entry, list int) {
	if n := len(l.left); n == 0 || l.left[n-1].By != of.By || l.left[n-1].Why != l.why {
		l.left = append(l.left, rules.SlowTraffic{By: of.By, Why: l.why, Region: of.When, Hook: of.Hook(), Called: list > 0})
	}
}

// counting makes of an entry that counts in an element of a set of nf_tables one that leaves its packets to Linux. Others are not in the set, and count nowhere in it.
func (l *lowering) counting(list int, e *rules.Entry) *rules.Entry {
	i := slices.IndexFunc(e.Do, func(s ruleset.Step) bool {
		k, is := s.(ruleset.Lookup)
		return is && l.pr.Rules().Sets[k.Set].Dialect == ruleset.NFT
	})
	if i < 0 || e.Then == rules.LeaveSlow {
		return e
	}
	l.cannot("counters of the elements of set %s", l.pr.Rules().Sets[e.Do[i].(ruleset.Lookup).Set].Name)
	l.note(e, list)
	l.why = ""
	l.unsaid++
	slow := *e
	slow.Do, slow.Then = nil, rules.LeaveSlow
	return &slow
}

// cannot notes what is in the way of expressing the entry at hand.
func (l *lowering) cannot(format string, args ...any) {
	if l.why == "" {
		l.why = "not in the data path: " + fmt.Sprintf(format, args...)
	}
}

// lead translates where an entry leads; false where that cannot be said.
func (l *lowering) lead(out *entry, list int, e *rules.Entry) bool {
	switch e.Then {
	case rules.Next:
		return true
	case rules.DropIt:
		out.then = drop
	case rules.Decided:
		out.then = settled
	case rules.Skip:
		return l.skip(out, list, e.To)
	case rules.Call:
		return l.call(out, list, e, e.List, e.To)
	}
	return true
}

// skip leads to an entry of the program.
func (l *lowering) skip(out *entry, list, to int) bool {
	t, ok := l.way(list, to)
	switch t.at {
	case rules.Back:
		out.then = back
	case rules.EndBase:
		out.then = endBase
	default:
		out.then, out.to = skip, t
	}
	return ok
}

// way finds an entry in this stage. What leads out of a stage goes on at the first entry behind it, unless it leads farther
// past entries that do something.
func (l *lowering) way(list, to int) (target, bool) {
	if list != 0 || to < l.to || l.o.Stage == Post {
		return target{list, to}, true
	}
	entries := l.pr.Lists[0]
	for at := l.to; at < to; {
		e := &entries[at]
		if len(e.When) > 0 || len(e.Do) > 0 || e.Then != rules.Skip {
			l.cannot("ways past rules behind the stage")
			return l.end(), false
		}
		at = e.To
	}
	return l.end(), true
}

func (l *lowering) call(out *entry, list int, e *rules.Entry, called, backTo int) bool {
	if len(l.pr.Lists[called]) == 0 {
		return l.skip(out, list, backTo)
	}
	out.then, out.to = call, target{called, 0}
	var ok1, ok2 = true, true
	out.back, ok1 = l.way(list, backTo)
	out.end, ok2 = l.way(list, e.End)
	return ok1 && ok2
}

// action translates what an entry does; false for what only Linux can do.
func (l *lowering) action(e *rules.Entry, s ruleset.Step) (action, bool) {
	switch s := s.(type) {
	case ruleset.Lookup:
		l.cannot("counters of the elements of set %s", l.pr.Rules().Sets[s.Set].Name)
		return action{}, false
	case ruleset.Count:
		return action{kind: opCount, counter: s.Counter, hook: e.Hook()}, true
	case ruleset.SetField:
		switch {
		case s.From == ruleset.CTMark && s.Field == ruleset.Mark && l.o.CT:
			return action{kind: opRestore, and: s.And, xor: s.Xor, mask: s.Mask}, true
		case s.From != ruleset.NoField:
			l.cannot("%s", rules.StepText(l.pr.Rules(), s))
			return action{}, false
		}
		switch s.Field {
		case ruleset.Mark:
			return action{kind: opMark, of: vMark, and: s.And, xor: s.Xor}, true
		case ruleset.Priority:
			return action{kind: opMark, of: vPriority, and: s.And, xor: s.Xor}, s.And == 0
		case ruleset.DSField:
			return action{kind: opDS, and: s.And & 0xff, xor: s.Xor & 0xff, mask: mangled(s.Payload && l.o.Stage == Post)}, true
		}
	case ruleset.SaveMark:
		if l.o.CT {
			return action{kind: opSave, and: s.And, xor: s.Xor, mask: s.Mask}, true
		}
	case ruleset.NoTrack:
		return action{kind: opNoTrack}, true
	case ruleset.SetZone:
		if l.o.CT {
			states := uint32(ruleset.CTInvalid)
			if s.Back {
				states |= ruleset.CTUntracked
			}
			return action{kind: opZone, and: uint32(s.Zone) | uint32(s.Dir)<<16, mask: states}, true
		}
	}
	l.cannot("%s", rules.StepText(l.pr.Rules(), s))
	return action{}, false
}

// mangled is the mask of an opDS.
func mangled(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// byMap writes the entries of a verdict map in the order of their precedence: the first that the packet satisfies decides.
func (l *lowering) byMap(base entry, list int, e *rules.Entry, elements []choice) {
	for _, c := range elements {
		out, never := base.and(c)
		if never {
			continue
		}
		said := c.element.Verdict != nil
		if c.element.Counter != ruleset.NoCounter {
			l.cannot("counters of the elements of set %s", l.pr.Rules().Sets[e.Map.Of.Set].Name)
			said = false
		} else if said {
			switch v := c.element.Verdict; v.Code {
			case ruleset.Accept:
				said = l.skip(&out, list, e.End)
			case ruleset.Drop:
				out.then = drop
			case ruleset.Return:
				said = l.skip(&out, list, e.Map.Return)
			case ruleset.Continue:
				said = l.skip(&out, list, e.To)
			default:
				to, ok := e.Map.Lists[v.Chain]
				behind := e.To
				if v.Code == ruleset.Goto {
					behind = e.Map.Return
				}
				said = ok && l.call(&out, list, e, to, behind)
			}
		} else {
			l.cannot("elements without a verdict")
		}
		if !said {
			l.leave(out, e, list)
			continue
		}
		l.out = append(l.out, out)
	}
	if !l.skip(&base, list, e.To) {
		l.leave(base, e, list)
		return
	}
	l.out = append(l.out, base)
}

// lookup writes an entry that asks a set: an entry for each element, in the order of their precedence.
func (l *lowering) lookup(base entry, next target, of ruleset.Lookup, elements []choice, list int, e *rules.Entry) {
	done := base
	if done.then == goOn {
		done.then, done.to = skip, next // or the next element would have its turn
	}
	past := entry{then: skip, to: next}
	for _, c := range elements {
		out := done
		if c.element.NoMatch != of.Not {
			out = past
			out.dims, out.conds = base.dims, base.conds
		}
		if out, never := out.and(c); !never {
			l.out = append(l.out, out)
		}
	}
	if !of.Not {
		return
	}
	switch l.loaded(&done, of, place{e.Hook(), e.Tracked()}) {
	case said:
		l.out = append(l.out, done)
	case unsaid:
		l.cannot("whether a packet has all that a set is asked by")
		l.leave(base, e, list)
	}
}

// loaded adds to an entry that the packet has every field that it asks a set by. nf_tables ends a rule where it cannot load one (NFT_BREAK), so that such a packet is not "in none of the elements".
func (l *lowering) loaded(out *entry, of ruleset.Lookup, at place) outcome {
	if of.Of != nil || l.pr.Rules().Sets[of.Set].Dialect != ruleset.NFT {
		return said
	}
	for _, f := range of.Key {
		if f == ruleset.TTL || f == ruleset.EtherSrc || f == ruleset.EtherDst { // every packet has one, and it is not asked by its value here
			continue
		}
		if o := l.test(out, ruleset.Test{Field: f, Not: true}, at); o != said {
			return o
		}
	}
	return said
}
