// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Every form of a table gives the class of the last cut that is not above the value.
func TestTablesFindTheCut(t *testing.T) {
	for _, width := range []int{3, 8, 16, 20, 32, 48, 128} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, uint64(width)))
			random := func() ruleset.Value {
				v := ruleset.Value{Hi: r.Uint64(), Lo: r.Uint64()}
				if r.IntN(3) == 0 { // close together, at borders of bytes
					v = ruleset.Num(0x0a010000 + uint64(r.IntN(4))<<8 + uint64(r.IntN(3)) - 1)
				}
				return v.And(ruleset.Max(width))
			}
			cuts := []Cut{{ruleset.Value{}, 7}}
			for range r.IntN(60) {
				cuts = append(cuts, Cut{random(), uint32(r.IntN(5))})
			}
			slices.SortFunc(cuts, func(a, b Cut) int { return a.From.Compare(b.From) })
			cuts = slices.CompactFunc(cuts, func(a, b Cut) bool { return a.From == b.From })
			table := newTable(width, cuts)
			probes := []ruleset.Value{{}, ruleset.Max(width)}
			for _, c := range cuts {
				probes = append(probes, c.From, c.From.Next().And(ruleset.Max(width)), c.From.Prev().And(ruleset.Max(width)), random())
			}
			for _, v := range probes {
				want := cuts[0].Class
				for _, c := range cuts {
					if c.From.Compare(v) <= 0 {
						want = c.Class
					}
				}
				if got := table.class(v); got != want {
					t.Fatalf("%d bits, seed %d: %x has class %d, want %d", width, seed, v, got, want)
				}
			}
		}
	}
}
