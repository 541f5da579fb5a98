// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Asks says whether a rule of a chain, or of one that it leads to, asks packets of a family for one of these fields, or may.
func Asks(rs *ruleset.Ruleset, t *ruleset.Table, chain string, family ruleset.Family, fields []ruleset.Field) bool {
	ix := newIndex(rs)
	seen := map[*ruleset.Chain]bool{}
	var visit func(c *ruleset.Chain) bool
	visit = func(c *ruleset.Chain) (asks bool) {
		if c == nil || seen[c] {
			return false
		}
		seen[c] = true
		for i := range c.Rules {
			if !ofOther(&c.Rules[i], family) && slices.ContainsFunc(c.Rules[i].Steps, func(s ruleset.Step) bool { return asksFor(s, fields) }) {
				return true
			}
		}
		ix.eachVerdict(c, func(v ruleset.Verdict) {
			asks = asks || (v.Code == ruleset.Jump || v.Code == ruleset.Goto) && visit(ix.chains[t][v.Chain])
		})
		return asks
	}
	return visit(t.Chain(chain))
}

func asksFor(s ruleset.Step, fields []ruleset.Field) bool {
	if l, is := s.(ruleset.Lookup); is && len(l.Src) > 0 && len(l.Key) == 0 {
		return true // a list of ipsets, whose members nobody here knows
	}
	return slices.ContainsFunc(AskedFor(s), func(f ruleset.Field) bool { return slices.Contains(fields, f) })
}

// ofOther says whether a rule is of the other family, which is the first thing that it asks.
func ofOther(r *ruleset.Rule, family ruleset.Family) bool {
	if len(r.Steps) == 0 {
		return false
	}
	t, is := r.Steps[0].(ruleset.Test)
	return is && t.Field == ruleset.NFProto && t.Mask == (ruleset.Value{}) && !t.Not && len(t.Ranges) > 0 &&
		!slices.ContainsFunc(t.Ranges, func(r ruleset.Range) bool {
			n := ruleset.Num(uint64(family))
			return r.Lo.Compare(n) <= 0 && n.Compare(r.Hi) <= 0
		})
}
