// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Change is one rule that came or went, as an event tells it.
type Change struct {
	Rule   *Rule
	Gone   bool
	Append bool   // if nothing says where: behind all others, or as the first in the place of one that went
	Behind uint64 // handle of the rule before it; 0 where it is the first or the last
}

// DecodeChange reads NFT_MSG_NEWRULE or NFT_MSG_DELRULE of an event. The kernel says where a rule is if it is neither the first nor the
// last of its chain, and sets NLM_F_APPEND (added) for one that was added and for one that replaces another (nf_tables_rule_notify()).
func DecodeChange(b []byte, gone, added bool) (Change, error) {
	const position = 6
	r, err := decodeRule(b)
	if gone && r.Table != "" && r.Chain != "" && r.Handle != 0 {
		err = nil // its name is all that is needed
	}
	if err != nil {
		return Change{}, err
	}
	_, a, _ := body(b, 11)
	return Change{Rule: &r, Gone: gone, Append: added, Behind: a.Uint64(position)}, nil
}

// Apply brings chains up to date and gives the indexes of those that it changed; false if it cannot be told from the events what the chains are like
// now. Then the Dump is no longer good.
func (d *Dump) Apply(changes []Change) (chains map[int]bool, ok bool) {
	chains = map[int]bool{}
	headless := map[int]bool{} // chains of which the first rule went
	for _, ch := range changes {
		c := d.Chain(ch.Rule.Family, ch.Rule.Table, ch.Rule.Chain)
		if c == nil {
			return nil, false
		}
		n := d.places[setName{c.Family, c.Table, c.Name}]
		chains[n] = true
		at := func(handle uint64) int {
			return slices.IndexFunc(c.Rules, func(r *Rule) bool { return r.Handle == handle })
		}
		was := at(ch.Rule.Handle)
		switch {
		case fills(ch.Rule) || was >= 0 && fills(c.Rules[was]): // its set is no longer, or was not always, what was read of it
			return nil, false
		case ch.Gone != (was >= 0): // gone without having been there, or there already
			return nil, false
		case ch.Gone:
			headless[n] = headless[n] || was == 0
			c.Rules = slices.Delete(c.Rules, was, was+1)
		case ch.Behind != 0:
			before := at(ch.Behind)
			if before < 0 {
				return nil, false // it comes with a later event of the same transaction
			}
			c.Rules = slices.Insert(c.Rules, before+1, ch.Rule)
		case !ch.Append:
			c.Rules = slices.Insert(c.Rules, 0, ch.Rule)
		case headless[n] && len(c.Rules) > 0: // in the place of that one, or behind all
			return nil, false
		default:
			c.Rules = append(c.Rules, ch.Rule)
		}
	}
	return chains, true
}

// fills says whether a rule puts elements into a set or takes them out, or may, since it is not understood.
func fills(r *Rule) bool {
	return r.Problem != "" || slices.ContainsFunc(r.Exprs, func(e Expr) bool { _, is := e.(*Dynset); return is || opaque(e) })
}

// Continue says that what is not of nf_tables in the rule set has become that of another, whose counters go on where those of the one before end.
func (t *Translation) Continue(out *rs.Ruleset) { t.out = out }

// refill gives sets of a rule set in the making their new elements: plain ones, which no rule's translation depends on.
func (t *Translation) refill(d *Dump, sets map[int]bool, next *rs.Ruleset) bool {
	if len(sets) > 0 {
		next.Sets = slices.Clone(next.Sets)
	}
	for n := range sets {
		in := &d.Sets[n]
		s := t.sets[setName{in.Family, in.Table, in.Name}]
		if s == nil || s.Set != in || s.err != nil || s.anonymous() || in.Flags&(SetMap|SetObject) != 0 || next.Sets[s.id].Unknown != "" ||
			slices.ContainsFunc(in.Elements, func(e Element) bool { return len(e.Exprs) > 0 || e.Data != nil || e.Object != "" }) ||
			slices.ContainsFunc(next.Sets[s.id].Elements, func(e rs.Element) bool { return e.Counter != rs.NoCounter }) {
			return false
		}
		elements, err := t.elements(s, nil)
		if err != nil {
			return false
		}
		next.Sets[s.id].Elements = elements
	}
	return true
}

// Follow gives the rule set after Apply changed chains of the Dump that it was made of; rules and chains that did not change are shared with the one before, which
// stays as it is. Counters keep their numbers; new ones are behind the last, and those of rules that went stay without use.
//
// sets are those of the Dump whose elements were read again. It is nil where the rules have to be translated anew, since more of a set may have changed than keys that rules ask for.
func (t *Translation) Follow(d *Dump, chains, sets map[int]bool) *rs.Ruleset {
	next := *t.out
	if !t.refill(d, sets, &next) {
		return nil
	}
	t.out = &next
	next.Tables = slices.Clone(next.Tables)
	fresh := map[int]bool{}
	for i := range d.Chains {
		at := &t.chains[i]
		if !chains[i] || at.table < 0 {
			continue
		}
		table := &next.Tables[at.table]
		if !fresh[at.table] {
			fresh[at.table], table.Chains = true, slices.Clone(table.Chains)
		}
		chain := &table.Chains[at.chain]
		chain.Rules = t.rules(d.Chains[i].Rules, at.rules, chain.Rules)
		at.rules = slices.Clone(d.Chains[i].Rules)
	}
	return t.out
}
