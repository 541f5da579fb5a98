// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// equal gives the tests that hold together when a value has the bytes; with not, one of them holds when it has others. The
// kernel compares as many bytes as it was given, so that a shorter constant asks for the beginning only.
func (m *machine) equal(v *value, data []byte, not bool) (tests []rs.Test, err error) {
	if e, ok := v.from.(*Meta); ok && metaOf(e.Key).field.IsName() && len(data) < v.size && data[len(data)-1] == 0 {
		data = append(slices.Clip(data), make([]byte, v.size-len(data))...) // up to the end of the name: no other begins so
	}
	if e, ok := v.from.(*FIB); ok && len(data) == 4 && isZero(num(data, false)) && v.why == "" && v.plain() {
		if f, present, is := e.lookedBack(); is && !present { // by an interface of number 0: there is no route
			return []rs.Test{{Field: f, Ranges: []rs.Range{rs.One(rs.Value{})}, Not: not}}, nil
		}
	}
	if e, ok := v.from.(*FIB); ok && len(data) == 1 {
		if _, is := e.routeBack(); is { // a byte in the register, and behind it zeros: versions of nft compare one or all four
			data = []byte{data[0], 0, 0, 0}
		}
	}
	short := v.size - len(data)
	mask := v.mask
	if short > 0 {
		if v.host && v.size > 1 {
			return nil, errors.New("only a part of it is compared")
		}
		mask = mask.And(bitsAt(8*short, 8*len(data)))
	}
	xor := v.xor
	if short > 0 {
		xor = xor.And(bitsAt(8*short, 8*len(data)))
	}
	target := shift(num(data, v.host), -8*short).Xor(xor)
	segments, err := m.segments(v, mask)
	if err != nil {
		return nil, err
	}
	never := !isZero(target.And(mask.Not()))
	for _, s := range segments {
		t := rs.Test{Field: s.field, Mask: fieldMask(s, mask), Not: not}
		switch {
		case never:
		default:
			if len(segments) == 1 && s.lo >= 0 && !isZero(target.And(shift(rs.Max(s.width), -s.lo).Not())) {
				break // beyond what the field can be
			}
			if isZero(fieldBits(s, mask)) { // whatever the field is, as long as there is one
				t.Not = !not
				break
			}
			t.Ranges = []rs.Range{rs.One(shift(target, s.lo).And(rs.Max(s.width)))}
			asPrefix(&t)
		}
		tests = append(tests, t)
	}
	return tests, nil
}

// asPrefix turns a comparison of the first bits of an address or name into a range of them.
func asPrefix(t *rs.Test) {
	width := t.Field.Width()
	n := prefixLength(t.Mask, width)
	if n < 0 || !isAddress(t.Field) && !t.Field.IsName() {
		return
	}
	first := t.Ranges[0].Lo
	t.Mask, t.Ranges = rs.Value{}, []rs.Range{{Lo: first, Hi: first.Or(rs.Max(width - n))}}
}

func isAddress(f rs.Field) bool {
	switch f {
	case rs.IP4Src, rs.IP4Dst, rs.IP6Src, rs.IP6Dst, rs.CTOrigSrc4, rs.CTOrigDst4, rs.CTOrigSrc6, rs.CTOrigDst6:
		return true
	}
	return false
}

// fieldBits are the bits of a field that a mask leaves.
func fieldBits(s segment, mask rs.Value) rs.Value { return shift(mask, s.lo).And(rs.Max(s.width)) }

// fieldMask is the mask of a value in terms of a field; the zero value stands for all bits, so one that leaves none is not for this.
func fieldMask(s segment, mask rs.Value) rs.Value {
	if got := fieldBits(s, mask); got != rs.Max(s.width) {
		return got
	}
	return rs.Value{}
}

// between gives the test that a value lies in ranges of numbers.
func (m *machine) between(v *value, ranges []rs.Range, not bool) (rs.Test, error) {
	segments, err := m.segments(v, v.mask)
	switch {
	case err != nil:
		return rs.Test{}, err
	case len(segments) != 1:
		return rs.Test{}, errors.New("several fields are compared as one number")
	case !isZero(v.xor):
		return rs.Test{}, errors.New("it is compared as a number after an exclusive or")
	}
	s := segments[0]
	t := rs.Test{Field: s.field, Mask: fieldMask(s, v.mask), Not: not}
	if isZero(fieldBits(s, v.mask)) { // nothing is left of it but zero
		t.Not = not != slices.ContainsFunc(ranges, func(r rs.Range) bool { return isZero(r.Lo) })
		return t, nil
	}
	for _, r := range ranges {
		if r, some := s.within(r); some {
			t.Ranges = append(t.Ranges, r)
		}
	}
	return t, nil
}

// within is a range of numbers of the value in terms of the field; false where no value of the field is in it.
func (s segment) within(r rs.Range) (rs.Range, bool) {
	full := rs.Max(s.width)
	if s.lo > 0 {
		low := rs.Max(s.lo)
		up := shift(r.Lo, s.lo)
		if !isZero(r.Lo.And(low)) {
			up = up.Next()
		}
		r = rs.Range{Lo: up, Hi: shift(r.Hi, s.lo)}
	} else if s.lo < 0 {
		r = rs.Range{Lo: shift(r.Lo, s.lo), Hi: shift(r.Hi, s.lo)}
	}
	if r.Lo.Compare(full) > 0 || r.Lo.Compare(r.Hi) > 0 {
		return r, false
	}
	if r.Hi.Compare(full) > 0 {
		r.Hi = full
	}
	return r, true
}

// ordered makes sure that a comparison of bytes is one of numbers.
func ordered(v *value, data []byte) error {
	switch {
	case len(data) != v.size:
		return errors.New("only a part of it is compared")
	case v.host && littleEndian && v.size > 1:
		return errors.New("numbers are compared in the machine's byte order")
	}
	return nil
}

func (m *machine) cmp(e *Cmp) {
	v := m.get(e.Src, len(e.Data))
	lower := m.lower
	m.lower.v = nil
	if m.settled(v, e) {
		return
	}
	if e.Op == Eq || e.Op == Neq {
		tests, err := m.equal(v, e.Data, e.Op == Neq)
		m.emit(v, tests, err, opText(e.Op), e.Data)
		return
	}
	err := ordered(v, e.Data)
	n, r := num(e.Data, false), rs.Range{Hi: rs.Max(8 * v.size)}
	switch e.Op {
	case Lt:
		if isZero(n) {
			r = rs.Range{Lo: rs.Num(1)}
		} else {
			r.Hi = n.Prev()
		}
	case Lte:
		r.Hi = n
	case Gt:
		if n == r.Hi {
			r = rs.Range{Lo: rs.Num(1)}
		} else {
			r.Lo = n.Next()
		}
	case Gte:
		r.Lo = n
	default:
		err = fmt.Errorf("comparison %d is not known", e.Op)
	}
	if err == nil && e.Op == Lte && lower.v == v && lower.reg == e.Src {
		// The first half of a range was the last thing written: both together are one test.
		if t, err := m.between(v, []rs.Range{{Lo: num(lower.data, false), Hi: n}}, false); err == nil {
			m.steps[len(m.steps)-1] = t
			m.words.replace(m.testText(t))
			return
		}
	}
	var t rs.Test
	if err == nil {
		t, err = m.between(v, []rs.Range{r}, false)
	}
	m.emit(v, []rs.Test{t}, err, opText(e.Op), e.Data)
	if err == nil && len(t.Ranges) == 1 {
		m.words.replace(m.boundText(t, e.Op))
	}
	if err == nil && e.Op == Gte {
		m.lower.v, m.lower.reg, m.lower.data = v, e.Src, e.Data
	}
}

// settled writes a comparison that all packets answer alike which come to rules: that of the version, which is what the protocol is known to be, and that of a header or
// option which they do not have, where the rule ends unless it asks for no more than whether there is one.
func (m *machine) settled(v *value, e *Cmp) bool {
	var holds bool
	var text string
	n := num(e.Data, false)
	switch from := v.from.(type) {
	case *Payload:
		if !m.facts.ipHook() || m.facts.proto == 0 || from.Base != baseNetwork || from.Offset != 0 || from.Len != 1 || v.why != "" || v.mask != rs.Num(0xf0) || !isZero(v.xor) || e.Op > Neq {
			return false
		}
		m.words.implied(&m.words.network)
		holds = (n == rs.Num(uint64(m.facts.proto)<<4)) == (e.Op == Eq)
		text = fmt.Sprintf("%s version%s %d", map[int]string{4: "ip", 6: "ip6"}[m.facts.proto], not(e.Op == Neq), n.Lo>>4)
	case *ExtHdr:
		switch {
		case !from.Present:
			text = fmt.Sprintf("%s %s 0x%x", v.name, opText(e.Op), e.Data)
		case e.Op > Neq || len(e.Data) != 1 || v.mask != rs.Max(8) || !isZero(v.xor):
			return false
		default:
			holds = isZero(n) == (e.Op == Eq)
			text = fmt.Sprintf("%s %s 0x%x", v.name, opText(e.Op), e.Data)
			if e.Op == Eq && n.Lo < 2 {
				text = strings.TrimSuffix(v.name, "exists") + []string{"missing", "exists"}[n.Lo]
			}
		}
	default:
		return false
	}
	m.steps = append(m.steps, rs.Test{Field: rs.NFProto, Not: holds}) // without values: everything satisfies it, or nothing
	m.words.add(text)
	return true
}

func opText(op Op) string {
	return pick([]string{"==", "!=", "<", "<=", ">", ">="}, uint32(op))
}

func (m *machine) inRange(e *Range) {
	v := m.get(e.Src, max(len(e.From), len(e.To)))
	err := ordered(v, e.From)
	if err == nil {
		err = ordered(v, e.To)
	}
	var t rs.Test
	if err == nil {
		t, err = m.between(v, []rs.Range{{Lo: num(e.From, false), Hi: num(e.To, false)}}, e.Not)
	}
	op := "in"
	if e.Not {
		op = "not in"
	}
	m.emit(v, []rs.Test{t}, err, op, append(append([]byte{}, e.From...), e.To...))
}

// emit adds a comparison to the rule, and to what is known of the packet behind it.
func (m *machine) emit(v *value, tests []rs.Test, err error, op string, data []byte) {
	if err != nil {
		m.unknown(v.title(), fmt.Sprintf("%s %s 0x%x (%v)", m.valueText(v), op, data, err))
		return
	}
	_, m.header = v.from.(*Payload)
	if len(tests) > 1 && tests[0].Not {
		m.steps = append(m.steps, rs.AnyTest{Of: tests})
		m.words.add(m.anyText(tests))
		return
	}
	for _, t := range tests {
		m.steps = append(m.steps, t)
		text := m.testText(t)
		if t.Field == rs.RouteBack || t.Field == rs.RouteBackBy { // as it was asked for: with the mark or without
			text = v.title() + strings.TrimPrefix(text, m.fieldName(t.Field, t.Mask))
		}
		m.words.add(text)
		m.learn(t, v)
	}
}

// learn takes in what a packet that passes the test must be.
func (m *machine) learn(t rs.Test, v *value) {
	if t.Not || !isZero(t.Mask) || len(t.Ranges) != 1 || t.Ranges[0].Lo != t.Ranges[0].Hi {
		return
	}
	n := t.Ranges[0].Lo.Lo
	_, meta := v.from.(*Meta)
	switch t.Field {
	case rs.NFProto:
		m.facts.proto = map[uint64]int{familyIP4: 4, familyIP6: 6}[n]
		m.words.dependency(&m.words.network)
	case rs.EtherType:
		m.facts.proto = map[uint64]int{0x0800: 4, 0x86dd: 6}[n]
		m.words.dependency(&m.words.network)
	case rs.IIFType:
		m.words.dependency(&m.words.link)
	case rs.L4Proto:
		m.facts.l4 = int(n)
		if meta {
			m.words.dependency(&m.words.transport)
		}
	}
}
