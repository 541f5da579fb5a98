// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"reflect"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Same says whether two rule sets are known to mean the same for forwarded packets of a family, and count in counters of the same numbers: what of the
// second such packets can come to is shared with the first. Rules that are equal without being shared count as different, which costs time only.
func Same(a, b *ruleset.Ruleset, family ruleset.Family) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || !shared(a.Sets, b.Sets) || len(a.Counters) > len(b.Counters) {
		return false
	}
	x, y := newIndex(a), newIndex(b)
	before, now := x.path(family), y.path(family)
	if len(before) != len(now) {
		return false
	}
	seen := map[*ruleset.Chain]bool{}
	for i := range now {
		p, q := &before[i], &now[i]
		if p.place != q.place || p.slow != q.slow || p.table.Name != q.table.Name || p.table.Dialect != q.table.Dialect || p.table.Family != q.table.Family ||
			!reflect.DeepEqual(p.chain.Base, q.chain.Base) || !x.sameBelow(y, p.table, q.table, p.chain, q.chain, seen) {
			return false
		}
	}
	return true
}

// sameBelow compares two chains and all that they lead to. seen are those of y that were compared.
func (ix *index) sameBelow(y *index, s, t *ruleset.Table, c, d *ruleset.Chain, seen map[*ruleset.Chain]bool) bool {
	if seen[d] {
		return true
	}
	seen[d] = true
	if c.Name != d.Name || !shared(c.Rules, d.Rules) {
		return false
	}
	same := true
	y.eachVerdict(d, func(v ruleset.Verdict) {
		if !same || v.Code != ruleset.Jump && v.Code != ruleset.Goto {
			return
		}
		next, was := y.chains[t][v.Chain], ix.chains[s][v.Chain]
		if next == nil || was == nil {
			same = next == was
			return
		}
		same = ix.sameBelow(y, s, t, was, next, seen)
	})
	return same
}

// shared says whether two slices are one.
func shared[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
