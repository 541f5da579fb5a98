// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// A test of some bits is told by them, not by the dozens of values that it holds for.
func TestTestText(t *testing.T) {
	syn := func(mask, value uint64) (out []ruleset.Range) {
		for v := range uint64(256) {
			if v&mask == value {
				out = append(out, ruleset.One(ruleset.Num(v)))
			}
		}
		return out
	}
	for _, c := range []struct {
		ranges []ruleset.Range
		want   string
	}{
		{syn(0x06, 0x02), "tcp flags & 0x6 == 0x2"},
		{syn(0x17, 0x02), "tcp flags & 0x17 == 0x2"},
		{[]ruleset.Range{ruleset.Nums(0, 255)}, "tcp flags any"},
		{[]ruleset.Range{ruleset.Nums(2, 2)}, "tcp flags 0x2"},
		{[]ruleset.Range{ruleset.Nums(2, 2), ruleset.Nums(18, 18)}, "tcp flags { 0x2, 0x12 }"},
		{append(syn(0xfe, 0x02), ruleset.Nums(4, 4)), "tcp flags { 0x2, 0x3, 0x4 }"},
	} {
		if got := testText(ruleset.Test{Field: ruleset.TCPFlags, Ranges: c.ranges}); got != c.want {
			t.Errorf("told as %q, want %q", got, c.want)
		}
	}
}
