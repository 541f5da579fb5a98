// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"slices"
	"testing"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// holds says whether a value that the packet has satisfies a test.
func holds(t rs.Test, v rs.Value) bool {
	if t.Mask != (rs.Value{}) {
		v = v.And(t.Mask)
	}
	return slices.ContainsFunc(t.Ranges, func(r rs.Range) bool { return r.Has(v) }) != t.Not
}

// TestTCPFlags: what no flag is asked for always holds, and negated never; what is asked for beyond the mask never holds.
func TestTCPFlags(t *testing.T) {
	const syn, ack = 2, 16
	for _, c := range []struct {
		mask, cmp, inv uint8
		holds          []uint8
		not            []uint8
	}{
		{syn | ack, syn, 0, []uint8{syn, syn | 1}, []uint8{0, ack, syn | ack}},
		{syn | ack, syn, 4, []uint8{0, ack, syn | ack}, []uint8{syn, syn | 1}},
		{0, 0, 4, nil, []uint8{0, syn, ack, 0xff}},
		{0, 0, 0, []uint8{0, syn, ack, 0xff}, nil},
		{0, syn, 0, nil, []uint8{0, syn, 0xff}},
		{0, syn, 4, []uint8{0, syn, 0xff}, nil},
		{ack, syn, 4, []uint8{0, syn, ack}, nil},
	} {
		info := make([]byte, 12)
		info[2], info[3], info[6], info[7] = 0xff, 0xff, 0xff, 0xff
		info[9], info[10], info[11] = c.mask, c.cmp, c.inv
		steps, text := Match(&Context{}, Extension{Name: "tcp", Info: info})
		match := func(flags uint8) bool {
			for _, s := range steps {
				if test := s.(rs.Test); test.Field == rs.TCPFlags && !holds(test, rs.Num(uint64(flags))) {
					return false
				}
			}
			return true
		}
		for _, f := range c.holds {
			if !match(f) {
				t.Errorf("%q does not hold for flags %#x", text, f)
			}
		}
		for _, f := range c.not {
			if match(f) {
				t.Errorf("%q holds for flags %#x", text, f)
			}
		}
	}
}
