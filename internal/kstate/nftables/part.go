// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"errors"
	"slices"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// parts is a lookup of parts of fields (ip dscp, meta mark & 0xff) in a set or verdict map of one rule's own, which never changes: a copy of it that says what its elements are in terms
// of the fields. problem is why the key is not one of whole fields, and remains the error for what is not for this.
func (m *machine) parts(values []*value, s *set, e *Lookup, problem error) (out rs.Lookup, err error) {
	if s.err != nil || !s.anonymous() || len(values) != len(s.parts) {
		return out, problem
	}
	own := m.t.out.Sets[s.id]
	if own.Unknown != "" || own.Unread || own.Data || own.Verdicts != e.Map {
		return out, problem
	}
	if slices.ContainsFunc(s.Elements, func(e Element) bool { return len(e.Exprs) > 0 || e.Expires != 0 }) {
		return out, errors.New("a part of a field is looked up in a set whose elements count or expire")
	}
	if !e.Map && slices.ContainsFunc(s.Elements, func(e Element) bool { return e.CatchAll }) { // kernels differ in what a negated lookup says
		return out, errors.New("a part of a field is looked up in a set with an element for everything")
	}
	at := make([]segment, len(values))
	down := make([]int, len(values))
	own.Widths = nil
	for i, v := range values {
		p := s.parts[i]
		if v.size != p.size || v.host != p.host && littleEndian && v.size > 1 {
			return out, problem
		}
		if v.of != nil {
			v, down[i] = v.of, v.down
		}
		segments, err := m.segments(v, v.mask)
		switch {
		case err != nil:
			return out, err
		case len(segments) != 1 || !isZero(v.xor) || isZero(fieldBits(segments[0], v.mask)):
			return out, problem
		case !v.plain() && !ofParts(v.from, segments[0].field):
			return out, problem
		}
		at[i] = segments[0]
		out.Key = append(out.Key, at[i].field)
		out.Masks = append(out.Masks, fieldMask(at[i], v.mask))
		own.Widths = append(own.Widths, at[i].width)
	}
	own.Elements = nil
	for _, el := range m.t.out.Sets[s.id].Elements {
		key, some := make([]rs.Range, len(at)), true
		for i, r := range el.Key {
			var in bool
			key[i], in = at[i].within(rs.Range{Lo: shift(r.Lo, -down[i]), Hi: shift(r.Hi, -down[i])})
			some = some && in
		}
		if el.Key = key; some { // else nothing is in it
			own.Elements = append(own.Elements, el)
		}
	}
	out.Set = rs.SetID(len(m.t.out.Sets))
	m.t.out.Sets = append(m.t.out.Sets, own)
	return out, nil
}

// ofParts are the fields of which parts are looked up: those of headers, and marks.
func ofParts(from Expr, f rs.Field) bool {
	_, header := from.(*Payload)
	return header || f == rs.Mark || f == rs.CTMark
}
