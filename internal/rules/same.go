// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"reflect"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Same says whether two rule sets are known to mean the same for forwarded packets of a family, and count in counters of the same numbers: what of the
// second such packets can come to is shared with the first. Rules that are equal without being shared count as different, which costs time only.
func Same(a, b *ruleset.Ruleset, family ruleset.Family) bool {
	if a == b {
		return true
	}
	c := compare(a, b, family, 0)
	return c != nil && len(c.changed) == 0
}

// Changed gives the rules that tell two rule sets apart for forwarded packets of a family, those that came and those that went: a packet that does not
// satisfy what these ask before they do anything meets the same in both, and counts in counters of the same numbers. False where there are more
// than limit, or where something else differs too.
func Changed(a, b *ruleset.Ruleset, family ruleset.Family, limit int) ([]ruleset.Rule, bool) {
	c := compare(a, b, family, limit)
	if c == nil {
		return nil, false
	}
	return c.changed, true
}

// ChangedBehind is Changed, and says whether all of these rules are met behind the route only.
func ChangedBehind(a, b *ruleset.Ruleset, family ruleset.Family, limit int) (changed []ruleset.Rule, behind, ok bool) {
	c := compare(a, b, family, limit)
	if c == nil {
		return nil, false, false
	}
	return c.changed, !c.before, true
}

// comparison is of two rule sets that share what is equal in them.
type comparison struct {
	x, y    *index
	seen    map[*ruleset.Chain]bool // those of y that were compared
	limit   int
	changed []ruleset.Rule
	sets    map[ruleset.SetID][]ruleset.Range // sets with other elements, and the keys that only one of both has
	hook    ruleset.Hook                      // of the base chain at hand
	before  bool                              // some of the changed rules are met before the route
}

// compare gives nil where something else than rules differs, or more of them than limit.
func compare(a, b *ruleset.Ruleset, family ruleset.Family, limit int) *comparison {
	if a == nil || b == nil || len(a.Counters) > len(b.Counters) {
		return nil
	}
	sets, ok := changedSets(a.Sets, b.Sets)
	if !ok {
		return nil
	}
	c := &comparison{x: newIndex(a), y: newIndex(b), seen: map[*ruleset.Chain]bool{}, limit: limit, sets: sets}
	before, now := c.x.path(family, false), c.y.path(family, false)
	if len(before) != len(now) {
		return nil
	}
	for i := range now {
		p, q := &before[i], &now[i]
		c.hook = q.place.hook
		if p.place != q.place || p.slow != q.slow || p.table.Name != q.table.Name || p.table.Dialect != q.table.Dialect || p.table.Family != q.table.Family ||
			!reflect.DeepEqual(p.chain.Base, q.chain.Base) || !c.below(p.table, q.table, p.chain, q.chain) {
			return nil
		}
	}
	return c
}

// below compares two chains and all that the rules lead to that they have in common. Chains that are met before the route are compared first, so that what is found to have
// changed in one that is met on both sides of it has changed before.
func (c *comparison) below(s, t *ruleset.Table, was, now *ruleset.Chain) bool {
	if c.seen[now] {
		return true
	}
	c.seen[now] = true
	if was.Name != now.Name {
		return false
	}
	common := [][]ruleset.Rule{now.Rules}
	if !shared(was.Rules, now.Rules) {
		some := len(c.changed)
		both, ok := c.rules(was.Rules, now.Rules)
		if !ok || t.Family == ruleset.Netdev { // at egress rules see no way in
			return false
		}
		if t.Dialect == ruleset.Legacy && mistaken(both, c.changed[some:]) {
			return false
		}
		c.before = c.before || !routed(c.hook)
		common = both
	}
	if !c.lookups(t, common) {
		return false
	}
	same := true
	follow := func(v ruleset.Verdict) {
		if !same || v.Code != ruleset.Jump && v.Code != ruleset.Goto {
			return
		}
		to, from := c.y.chains[t][v.Chain], c.x.chains[s][v.Chain]
		if to == nil || from == nil {
			same = to == from
			return
		}
		same = c.below(s, t, from, to)
	}
	for _, part := range common {
		c.y.eachVerdict(&ruleset.Chain{Rules: part}, follow)
	}
	return same
}

// rules notes those that only one of two lists has and gives the others, which have to be in the same order in both, as parts of the second.
func (c *comparison) rules(was, now []ruleset.Rule) (both [][]ruleset.Rule, ok bool) {
	if c.limit == 0 {
		return nil, false
	}
	i, j := 0, 0
	for i < len(now) {
		begin := i
		for i < len(now) && j < len(was) && SameRule(&was[j], &now[i]) {
			i, j = i+1, j+1
		}
		if i > begin {
			both = append(both, now[begin:i])
			continue
		}
		at := j
		for at < len(was) && at-j <= c.limit && !SameRule(&was[at], &now[i]) {
			at++
		}
		if at < len(was) && SameRule(&was[at], &now[i]) {
			c.changed = append(c.changed, was[j:at]...)
			j = at
		} else {
			c.changed = append(c.changed, now[i])
			i++
		}
		if len(c.changed) > c.limit {
			return nil, false
		}
	}
	c.changed = append(c.changed, was[j:]...)
	return both, len(c.changed) <= c.limit
}

// mistaken says whether one of the rules that came or went reads like one that stays: rules of legacy tables are told apart by their text and by how many of it come before,
// and so are their counters (ruleset.Ruleset.Identities).
func mistaken(both [][]ruleset.Rule, changed []ruleset.Rule) bool {
	texts := make(map[string]bool, len(changed))
	for i := range changed {
		texts[changed[i].Text] = true
	}
	alike := func(r ruleset.Rule) bool { return texts[r.Text] }
	if len(changed) == 1 { // the most frequent case, and there may be very many to ask
		alike = func(r ruleset.Rule) bool { return r.Text == changed[0].Text }
	}
	return len(changed) > 0 && slices.ContainsFunc(both, func(part []ruleset.Rule) bool { return slices.ContainsFunc(part, alike) })
}

// SameRule says whether two rules are one, wherever in their chains they are.
func SameRule(a, b *ruleset.Rule) bool {
	return a.Handle == b.Handle && len(a.Steps) > 0 && shared(a.Steps, b.Steps)
}

// Asked is what a rule asks first, as far as it is about what no rule changes and every packet shows: its frame's way in, its addresses, protocol
// and ports. Whoever the rule does anything to satisfies all of it.
func Asked(r *ruleset.Rule) (out []ruleset.Step) {
	for _, s := range r.Steps {
		t, ok := s.(ruleset.Test)
		if !ok || !slices.Contains(lasting, t.Field) {
			break
		}
		out = append(out, t)
	}
	return out
}

var lasting = []ruleset.Field{ruleset.IP4Src, ruleset.IP4Dst, ruleset.IP6Src, ruleset.IP6Dst, ruleset.L4Proto, ruleset.SPort, ruleset.DPort,
	ruleset.IIFName, ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType}

// shared says whether two slices are one.
func shared[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
