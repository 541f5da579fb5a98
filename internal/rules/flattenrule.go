// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// ruleWriter writes one rule.
//
// A rule is one entry unless something happens before its last test: then what happened becomes an entry, and the rule goes on in
// another with the conditions so far. Conditions on something that was changed meanwhile cannot be asked again; the rule then
// goes on detached: an entry leads the packets that got this far around one that leads all others behind the rule.
type ruleWriter struct {
	*flattener
	by       Ref
	path     []Cond         // of the chain
	when     []Cond         // of the packets that got this far in the rule, if not detached
	do       []ruleset.Step // what happened to them and is not written yet
	ret      int            // label
	over     int            // label behind the rule, if hasOver: see past
	hasOver  bool
	detached bool
}

// rule writes the rule and says whether no packet of the chain gets behind it.
func (w *ruleWriter) rule() (final bool) {
	goesOn := w.steps()
	if goesOn && len(w.do) > 0 {
		w.flush()
	}
	if w.hasOver {
		w.here(w.over)
	}
	return !goesOn && !w.detached && sameConds(w.when, w.path)
}

// sameConds says whether no condition was added: and gives back the slice that it was given if it adds nothing.
func sameConds(a, b []Cond) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// steps writes the steps; false when the packets that got to the end of it do not come behind the rule.
func (w *ruleWriter) steps() bool {
	last := len(w.by.Rule.Steps) - 1
	for i, s := range w.by.Rule.Steps {
		if why := w.misplaced(s); why != "" {
			return w.slow(why)
		}
		if w.any[zoneGroup] && !w.place.tracked && ofTemplate(s) && !w.except(zoneAlone, ruleset.CTNew) {
			return true
		}
		why, on := "", true // why what gets this far is the kernel's, and whether anything gets further
		switch s := s.(type) {
		case ruleset.Test, ruleset.AnyTest:
			on = w.test(s)
		case ruleset.Lookup:
			why, on = w.lookup(s)
		case ruleset.Count:
			if s.Counter != ruleset.NoCounter {
				w.do = append(w.do, s)
			}
		case ruleset.SetField:
			w.change(s, groupOf(s.Field))
		case ruleset.SaveMark:
			w.do = append(w.do, s)
		case ruleset.SetByMap:
			why, on = w.setByMap(s)
		case ruleset.NoTrack:
			w.change(s, ctGroup)
		case ruleset.SetZone:
			why, on = w.setZone(s)
		case ruleset.Verdict:
			if s.Code != ruleset.Continue {
				return w.verdict(s)
			}
		case ruleset.VerdictMap:
			return w.verdictMap(s, i == last)
		case ruleset.Unknown: // which need not have a name
			return w.slow(s.Name)
		case ruleset.Slow:
			return w.slow(s.Name)
		default:
			return w.slow("unknown step")
		}
		switch {
		case why != "":
			return w.slow(why)
		case !on:
			return true
		}
	}
	return true
}

// misplaced says why a step is the kernel's in the chain that it stands in, "" if it is not.
func (w *ruleWriter) misplaced(s ruleset.Step) string {
	if why := atDevice(s, w.place, w.table); why != "" || !w.class.Bridged {
		return why
	}
	return onBridge(s, w.place)
}

// change notes a step that changes something, for later conditions on it.
func (w *ruleWriter) change(s ruleset.Step, what group) {
	w.do = append(w.do, s)
	w.epochs[what]++
}

// write adds an entry for the packets that got this far.
func (w *ruleWriter) write(e Entry) {
	e.When, e.Do, e.By = w.when, w.do, w.by
	w.do = nil
	w.emit(e)
}

func (w *ruleWriter) slow(why string) bool {
	w.do = nil // the kernel does it all
	w.write(Entry{Then: LeaveSlow, Why: why})
	return false
}

// past is the label behind the rule.
func (w *ruleWriter) past() int {
	if !w.hasOver {
		w.over, w.hasOver = w.label(), true
	}
	return w.over
}

// flush writes what happened so far, and goes on behind it.
func (w *ruleWriter) flush() {
	if len(w.do) == 0 {
		return
	}
	if !w.stale(w.when) {
		w.write(Entry{})
		return
	}
	w.detach()
}

// detach goes on with packets of this rule alone, under no condition.
func (w *ruleWriter) detach() {
	if len(w.when) == 0 {
		if len(w.do) > 0 {
			w.write(Entry{})
		}
		return
	}
	past, on := w.past(), w.label()
	w.write(Entry{Then: Skip, To: on})
	w.emit(Entry{Then: Skip, To: past, By: w.by})
	w.here(on)
	w.when, w.detached = nil, true
}

// test adds the condition of a Test or AnyTest; false when no packet can satisfy it.
func (w *ruleWriter) test(s ruleset.Step) bool {
	w.flush()
	if !w.ports(fieldsOf(s)) {
		return false
	}
	when, _, never := w.and(w.when, s)
	w.when = when
	return !never
}

// lookup adds the condition of a set match, and what it counts: why the kernel alone can tell, or whether some packet satisfies it.
func (w *ruleWriter) lookup(l ruleset.Lookup) (why string, on bool) {
	if why := w.ix.unsure(l); why != "" {
		return why, false
	}
	if t, ok := w.within(l); ok {
		return "", w.test(t)
	}
	w.flush()
	if !w.ports(fieldsOf(l)) {
		return "", false
	}
	dialect, counts := w.ix.rs.Sets[l.Set].Dialect, w.ix.counts[l.Set]
	if dialect == ruleset.IPSet && counts {
		w.do = append(w.do, l)
		w.flush()
	}
	when, _, never := w.and(w.when, l)
	w.when = when
	if dialect == ruleset.NFT && counts && !l.Not && !never {
		w.do = append(w.do, l)
	}
	return "", !never
}

// except leaves packets to the kernel that are in some states; false where no others are left.
func (w *ruleWriter) except(why string, states ...uint64) bool {
	w.flush()
	of := inStates(states...)
	if those, _, none := w.and(w.when, of); !none {
		w.emit(Entry{When: those, Then: LeaveSlow, By: w.by, Why: why})
	}
	of.Not = true
	when, _, never := w.and(w.when, of)
	w.when = when
	return !never
}

func inStates(states ...uint64) ruleset.Test {
	of := ruleset.Test{Field: ruleset.CTState}
	for _, s := range states {
		of.Ranges = append(of.Ranges, ruleset.One(ruleset.Num(s)))
	}
	return of
}

// setZone gives packets a zone: why all that get this far are the kernel's, or whether there are any that are not.
func (w *ruleWriter) setZone(s ruleset.SetZone) (why string, on bool) {
	switch {
	case !w.class.Zones:
		return zoneUnknown, false
	case w.place.tracked: // who has a connection keeps it
		return "", w.except(zoneLate, ruleset.CTInvalid, ruleset.CTUntracked)
	}
	w.change(s, ctGroup)
	return "", true
}

// setByMap sets a field to what a map gives: why all packets that get this far are the kernel's, or whether the map has something for any.
func (w *ruleWriter) setByMap(m ruleset.SetByMap) (why string, on bool) {
	if why := w.ix.unmapped(m); why != "" {
		return why, false
	}
	set := &w.ix.rs.Sets[m.Set]
	if w.mapped += len(set.Elements); w.mapped > mostMappedAll {
		return "map " + set.Name + ": too many elements together with other rules' maps", false
	}
	if m.Field == ruleset.CTZone && !w.class.Zones {
		return zoneUnknown, false
	}
	return "", w.elements(m, Precedence(set))
}

// elements writes an entry for each element of a map, and leads all other packets behind the rule; false where no packet goes on.
func (w *ruleWriter) elements(m ruleset.SetByMap, all []*ruleset.Element) (on bool) {
	w.flush()
	if !w.ports(m.Key) {
		return false
	}
	past, next := w.past(), w.label()
	for _, el := range all {
		when, never := w.when, false
		for i := 0; i < len(m.Key) && !never; i++ {
			when, _, never = w.and(when, ruleset.Test{Field: m.Key[i], Ranges: []ruleset.Range{el.Key[i]}})
		}
		if !never {
			w.element(m, el, when, next)
			on = true
		}
	}
	w.emit(Entry{Then: Skip, To: past, By: w.by})
	w.here(next)
	w.when, w.detached = nil, true
	w.epochs[groupOf(m.Field)]++
	return on
}

// element writes what a map's element does to the packets that are in it.
func (w *ruleWriter) element(m ruleset.SetByMap, el *ruleset.Element, when []Cond, next int) {
	e := Entry{When: when, Then: Skip, To: next, By: w.by}
	switch {
	case m.Field != ruleset.CTZone:
		e.Do = []ruleset.Step{ruleset.SetField{Field: m.Field, Xor: uint32(el.Data.Lo)}}
	case !w.place.tracked:
		e.Do = []ruleset.Step{zoneOfMap(el)}
	default: // as except() has it, but of packets that are in the map
		if those, _, none := w.and(when, inStates(ruleset.CTInvalid, ruleset.CTUntracked)); !none {
			w.emit(Entry{When: those, Then: LeaveSlow, By: w.by, Why: zoneLate})
		}
	}
	w.emit(e)
}

// ports makes packets slow whose ports would have to be read from a header without ports; false when no others are left.
func (w *ruleWriter) ports(fields []ruleset.Field) bool {
	for _, f := range fields {
		if f != ruleset.SPort && f != ruleset.DPort {
			continue
		}
		has := ruleset.Test{Field: ruleset.L4Proto, Ranges: ported}
		when, same, never := w.and(w.when, has)
		if same {
			return true
		}
		not := has
		not.Not = true
		if others, _, none := w.and(w.when, not); !none {
			w.emit(Entry{When: others, Then: LeaveSlow, By: w.by, Why: otherPorts})
		}
		w.when = when
		return !never
	}
	return true
}

// verdict writes the end of the rule.
func (w *ruleWriter) verdict(v ruleset.Verdict) bool {
	switch v.Code {
	case ruleset.Accept:
		w.write(Entry{Then: Skip, To: w.end})
	case ruleset.Drop:
		w.write(Entry{Then: DropIt})
	case ruleset.Return:
		w.write(Entry{Then: Skip, To: w.ret})
	case ruleset.Jump, ruleset.Goto:
		next := w.ix.chains[w.table][v.Chain]
		switch {
		case next == nil:
			return w.slow("chain " + v.Chain + " is missing")
		case w.total+w.size(w.table, next) > w.limit:
			w.callChain(next, v.Code)
		default:
			return w.inline(next, v.Code)
		}
		return v.Code == ruleset.Jump
	}
	return false
}

// callChain leaves a chain in a list of its own.
func (w *ruleWriter) callChain(c *ruleset.Chain, code ruleset.Code) {
	behind := w.ret
	if code == ruleset.Jump {
		behind = w.past()
	}
	w.write(Entry{Then: Call, List: w.listOf(c), To: behind, End: w.end})
	w.changed(w.canChange(w.table, c))
}

// inline writes a chain out, and says whether packets come back from it to the rule.
func (w *ruleWriter) inline(c *ruleset.Chain, code ruleset.Code) bool {
	if w.stale(w.when) || asks(w.when, w.canChange(w.table, c)) {
		w.detach()
	}
	w.flush()
	ret := w.ret
	if code == ruleset.Jump {
		ret = w.label()
	}
	first := len(w.entries)
	final := w.chain(c, w.when, ret)
	if code != ruleset.Jump {
		w.write(Entry{Then: Skip, To: w.ret})
		return false
	}
	w.here(ret)
	return !final || slices.ContainsFunc(w.entries[first:], func(e Entry) bool { return e.leads(ret) })
}

// leads says whether an entry that is being written leads to a label.
func (e *Entry) leads(label int) bool {
	return e.Then == Skip && e.To == label || (e.Then == Call || e.Then == ByMap) && (e.To == label || e.End == label) || e.Map != nil && e.Map.Return == label
}

// verdictMap writes a verdict map, which has to be the last step of its rule.
func (w *ruleWriter) verdictMap(s ruleset.VerdictMap, last bool) bool {
	if why := w.ix.unsure(s.Lookup()); why != "" {
		return w.slow(why)
	}
	if !last {
		return w.slow("steps behind a verdict map")
	}
	if !w.ports(s.Key) {
		return true
	}
	past := w.past()
	var changes groups
	m := &Map{Of: s.Lookup(), Return: w.ret, Lists: map[string]int{}}
	for _, e := range w.ix.rs.Sets[s.Set].Elements {
		if v := e.Verdict; v != nil && (v.Code == ruleset.Jump || v.Code == ruleset.Goto) {
			if c := w.ix.chains[w.table][v.Chain]; c != nil {
				m.Lists[v.Chain] = w.listOf(c)
				changes = changes.or(w.canChange(w.table, c))
			}
		}
	}
	w.write(Entry{Then: ByMap, Map: m, To: past, End: w.end})
	w.changed(changes)
	return true
}

// and adds the condition of a step at this place to those given. same: they imply it already; never: nothing satisfies them all.
func (f *flattener) and(when []Cond, s ruleset.Step) (out []Cond, same, never bool) {
	s, fixed, holds := f.settle(s)
	if fixed {
		return when, holds, !holds
	}
	return and(when, Cond{Of: s, place: f.place, Epoch: f.epoch(s)})
}
