// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// newMatcher chooses the fields that get vectors, those that most entries ask for, and builds them.
func newMatcher(entries []Entry, few, ask int) matcher {
	m := matcher{entries: entries, rest: make([][]Cond, len(entries)), words: (len(entries) + 63) / 64}
	m.sums = (m.words + 63) / 64
	if len(entries) >= few {
		for _, f := range popular(entries, ask) {
			m.vectors = append(m.vectors, m.vector(f))
		}
		// The emptiest first: most words of the others need not be read then.
		slices.SortStableFunc(m.vectors, func(a, b vector) int { return cmp.Compare(a.density(), b.density()) })
	}
	for i, e := range entries {
		m.rest[i] = slices.DeleteFunc(slices.Clone(e.When), func(c Cond) bool {
			return slices.ContainsFunc(m.vectors, func(v vector) bool { _, ok := c.on(v.field); return ok })
		})
	}
	return m
}

// on gives the ranges of a condition on a field as the packet brought it.
func (c Cond) on(f ruleset.Field) ([]ruleset.Range, bool) {
	t, plain := c.plain()
	return t.Ranges, plain && t.Field == f && c.Epoch == 0
}

// popular lists the fields that at least ask entries have a condition on, most wanted first.
func popular(entries []Entry, ask int) []ruleset.Field {
	var wanted [ruleset.NumFields]int
	for _, e := range entries {
		for _, c := range e.When {
			if t, plain := c.plain(); plain && c.Epoch == 0 {
				wanted[t.Field]++
			}
		}
	}
	var fields []ruleset.Field
	for f, n := range wanted {
		if n >= max(ask, 1) {
			fields = append(fields, ruleset.Field(f))
		}
	}
	slices.SortStableFunc(fields, func(a, b ruleset.Field) int { return cmp.Compare(wanted[b], wanted[a]) })
	return fields[:min(len(fields), maxVectors)]
}

// vector is what a field says about the entries.
func (m *matcher) vector(f ruleset.Field) vector {
	p := newPartition(f.Width(), len(m.entries), func(i int) (rs []ruleset.Range, asks bool) {
		for _, c := range m.entries[i].When {
			if more, ok := c.on(f); ok {
				rs, asks = append(rs, more...), true
			}
		}
		return rs, asks
	})
	v := vector{field: f, bits: p.Bits, table: newTable(f.Width(), p.Cuts)}
	for class := range p.Classes {
		v.sum = append(v.sum, summary(p.Row(class))...)
	}
	return v
}

// density is the share of entries that a class of values leaves, on average.
func (v vector) density() float64 {
	ones := 0
	for _, w := range v.bits {
		ones += bits.OnesCount64(w)
	}
	return float64(ones) / float64(len(v.bits))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
