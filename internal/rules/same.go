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

// Changes are the rules that tell two rule sets apart for forwarded packets of a family, those that came and those that went, and where they are met: a packet that
// does not satisfy what these ask before they do anything meets the same in both, and counts in counters of the same numbers.
type Changes struct {
	Rules  []ruleset.Rule
	Behind bool // all of them behind the route only

	translated []translations // of each, what has been translated somewhere where it is met
}

// FindChanges compares two rule sets. It is nil where more than limit rules tell them apart, or something else does.
func FindChanges(a, b *ruleset.Ruleset, family ruleset.Family, limit int) *Changes {
	c := compare(a, b, family, limit)
	if c == nil {
		return nil
	}
	out := &Changes{Rules: c.changed, Behind: !c.before}
	for _, chain := range c.in {
		out.translated = append(out.translated, c.translated[chain])
	}
	return out
}

// AskedAtFirst is what a changed rule asks first (Asked) of the packet as it comes in: where connections are translated, without what may have become something else
// by the time that the rule is met.
func (c *Changes) AskedAtFirst(i int, translated bool) []ruleset.Step {
	out := Asked(&c.Rules[i])
	if !translated {
		return out
	}
	return slices.DeleteFunc(out, func(s ruleset.Step) bool { return c.translated[i].change(s.(ruleset.Test).Field) })
}

// translations are what Linux has translated of a packet's connection: its receiver in prerouting, in either direction, and its sender at the end of postrouting.
type translations uint8

const (
	ofReceivers translations = 1 << iota
	ofSenders
)

// Priorities of translation (NF_IP_PRI_NAT_DST, NF_IP_PRI_NAT_SRC). What stands beside it may come behind it.
const (
	receiversPriority = -100
	sendersPriority   = 100
)

func translationsBefore(b *ruleset.Base) (t translations) {
	if routed(b.Hook) || b.Hook == ruleset.Prerouting && b.Priority >= receiversPriority {
		t |= ofReceivers
	}
	if b.Hook == ruleset.Egress || b.Hook == ruleset.Postrouting && b.Priority >= sendersPriority {
		t |= ofSenders
	}
	return t
}

func (t translations) change(f ruleset.Field) bool {
	switch f {
	case ruleset.IP4Dst, ruleset.IP6Dst, ruleset.DPort:
		return t&ofReceivers != 0
	case ruleset.IP4Src, ruleset.IP6Src, ruleset.SPort:
		return t&ofSenders != 0
	}
	return false
}

// comparison is of two rule sets that share what is equal in them.
type comparison struct {
	x, y    *index
	seen    map[*ruleset.Chain]bool // those of y that were compared
	limit   int
	changed []ruleset.Rule
	in      []*ruleset.Chain                  // of y, each of these
	sets    map[ruleset.SetID][]ruleset.Range // sets with other elements, and the keys that only one of both has
	hook    ruleset.Hook                      // of the base chain at hand
	before  bool                              // some of the changed rules are met before the route

	translated map[*ruleset.Chain]translations // chains of y that are met behind some
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
	c := &comparison{x: newIndex(a), y: newIndex(b), seen: map[*ruleset.Chain]bool{}, limit: limit, sets: sets, translated: map[*ruleset.Chain]translations{}}
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
	if len(c.changed) > 0 {
		for i := range now {
			c.behind(now[i].table, now[i].chain, translationsBefore(now[i].chain.Base))
		}
	}
	return c
}

// behind notes of a chain, and of all that its rules lead to, that it is met behind translations. A rule that leads to a chain in only one of two rule sets is a changed
// one itself.
func (c *comparison) behind(t *ruleset.Table, chain *ruleset.Chain, by translations) {
	if c.translated[chain]|by == c.translated[chain] {
		return
	}
	c.translated[chain] |= by
	c.y.eachVerdict(chain, func(v ruleset.Verdict) {
		if v.Code == ruleset.Jump || v.Code == ruleset.Goto {
			if to := c.y.chains[t][v.Chain]; to != nil {
				c.behind(t, to, by)
			}
		}
	})
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
	for len(c.in) < len(c.changed) {
		c.in = append(c.in, now)
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
