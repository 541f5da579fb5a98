// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"reflect"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// changedSets gives the keys that only one of two lists of sets has, by their set; false where something else is different, or it is not certain that a packet with another key
// meets the same in both.
func changedSets(a, b []ruleset.Set) (out map[ruleset.SetID][]ruleset.Range, ok bool) {
	if shared(a, b) {
		return nil, true
	}
	if len(a) != len(b) {
		return nil, false
	}
	out = map[ruleset.SetID][]ruleset.Range{}
	for i := range b {
		x, y := a[i], b[i]
		same := shared(x.Elements, y.Elements)
		if !same && (!refillable(&x) || !refillable(&y)) {
			return nil, false
		}
		keys := otherKeys(x.Elements, y.Elements)
		x.Elements, y.Elements = nil, nil
		if !reflect.DeepEqual(x, y) {
			return nil, false
		}
		if len(keys) > 0 {
			out[ruleset.SetID(i)] = normal(keys, y.Widths[0])
		}
	}
	return out, true
}

// refillable says whether a set's elements are all that there is to it: keys of one field that come and go by commands alone.
func refillable(s *ruleset.Set) bool {
	return s.Dialect == ruleset.NFT && len(s.Widths) == 1 && s.Unknown == "" && !s.Unread && !s.Verdicts && !s.Data && !s.Timeout && !s.Dynamic && !catchAll(s) &&
		!slices.ContainsFunc(s.Elements, func(e ruleset.Element) bool {
			return len(e.Key) != 1 || e.Counter != ruleset.NoCounter || e.Expires != 0 || e.NoMatch || e.Verdict != nil
		})
}

// otherKeys are those that one of two lists of such elements has; where one came into an interval, and made two of it, all three.
func otherKeys(was, now []ruleset.Element) (out []ruleset.Range) {
	if shared(was, now) {
		return nil
	}
	for len(was) > 0 && len(now) > 0 && was[0].Key[0] == now[0].Key[0] {
		was, now = was[1:], now[1:]
	}
	for len(was) > 0 && len(now) > 0 && was[len(was)-1].Key[0] == now[len(now)-1].Key[0] {
		was, now = was[:len(was)-1], now[:len(now)-1]
	}
	before := make(map[ruleset.Range]bool, len(was))
	for i := range was {
		before[was[i].Key[0]] = true
	}
	for i := range now {
		if k := now[i].Key[0]; before[k] {
			delete(before, k)
		} else {
			out = append(out, k)
		}
	}
	for k := range before {
		out = append(out, k)
	}
	return out
}

// lookups notes, of rules that both have, those that look into a set with other elements: as rules that ask for a key that only one of both has, since who has another one, or
// does not satisfy what they ask before, meets the same. False where they are too many.
func (c *comparison) lookups(t *ruleset.Table, parts [][]ruleset.Rule) bool {
	if len(c.sets) == 0 {
		return true
	}
	some := len(c.changed)
	for _, part := range parts {
		for i := range part {
			c.lookupsOf(&part[i])
			if len(c.changed) > c.limit {
				return false
			}
		}
	}
	if len(c.changed) > some {
		c.before = c.before || !routed(c.hook)
		return t.Family != ruleset.Netdev // at egress rules see no way in
	}
	return true
}

func (c *comparison) lookupsOf(r *ruleset.Rule) {
	var asked []ruleset.Step
	for _, s := range r.Steps {
		switch s := s.(type) {
		case ruleset.Test:
			if slices.Contains(lasting, s.Field) {
				asked = append(asked, s)
			}
		case ruleset.Lookup:
			if keys := c.sets[s.Set]; keys != nil {
				steps := append(slices.Clip(asked), ruleset.Test{Field: s.Key[0], Ranges: keys}, ruleset.Verdict{Code: ruleset.Continue})
				c.changed = append(c.changed, ruleset.Rule{Handle: r.Handle, Number: r.Number, Text: r.Text, Steps: steps})
			}
		}
	}
}

// refillable is the same of a set of the index, once for all rules that ask it.
func (ix *index) refillable(id ruleset.SetID) bool {
	yes, known := ix.refills[id]
	if !known {
		if ix.refills == nil {
			ix.refills = map[ruleset.SetID]bool{}
		}
		yes = refillable(&ix.rs.Sets[id])
		ix.refills[id] = yes
	}
	return yes
}

// within writes the lookup in a plain set as a test of the keys that packets of the region can have: a set may be large, and who is asked has one of a few.
func (f *flattener) within(l ruleset.Lookup) (t ruleset.Test, ok bool) {
	if len(f.only) == 0 || l.Of != nil || len(l.Key) != 1 || l.Masks != nil {
		return t, false
	}
	s := &f.ix.rs.Sets[l.Set]
	if !f.ix.refillable(l.Set) {
		return t, false
	}
	for _, c := range f.only {
		u, plain := c.plain()
		if !plain || u.Field != l.Key[0] || c.Epoch != 0 {
			continue
		}
		t = ruleset.Test{Field: u.Field}
		for i := range s.Elements {
			if k := s.Elements[i].Key; slices.ContainsFunc(u.Ranges, func(r ruleset.Range) bool { return k[0].Lo.Compare(r.Hi) <= 0 && k[0].Hi.Compare(r.Lo) >= 0 }) {
				t.Ranges = append(t.Ranges, intersect(u.Ranges, k)...)
			}
		}
		if t.Ranges = normal(t.Ranges, u.Field.Width()); l.Not {
			t.Ranges = intersect(u.Ranges, without(t.Ranges, u.Field.Width()))
		}
		return t, true
	}
	return t, false
}
