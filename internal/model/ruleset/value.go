// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Value is a field's value: an unsigned number of at most 128 bits, most significant byte first on the wire. An IPv4 address
// is 32 bits in Lo, an IPv6 address and an interface name fill all 128.
type Value struct{ Hi, Lo uint64 }

// Max is the largest value of a field with that many bits.
func Max(width int) Value {
	switch {
	case width >= 128:
		return Value{^uint64(0), ^uint64(0)}
	case width > 64:
		return Value{1<<(width-64) - 1, ^uint64(0)}
	case width == 64:
		return Value{0, ^uint64(0)}
	}
	return Value{0, 1<<width - 1}
}

// Num is a number as a value.
func Num(n uint64) Value { return Value{Lo: n} }

// Addr is an address as a value; an IPv4-mapped IPv6 address keeps its 128 bits.
func Addr(a netip.Addr) Value {
	if a.Is4() {
		b := a.As4()
		return Num(uint64(binary.BigEndian.Uint32(b[:])))
	}
	return Bytes(a.AsSlice())
}

// Bytes is up to 16 bytes in wire order as a value; longer input is cut to its first 16 bytes.
func Bytes(b []byte) (v Value) {
	for _, c := range b[:min(len(b), 16)] {
		v.Hi = v.Hi<<8 | v.Lo>>56
		v.Lo = v.Lo<<8 | uint64(c)
	}
	return v
}

// Name is an interface name as a value: its bytes, padded with zeros to IFNAMSIZ (16).
func Name(s string) Value {
	var b [16]byte
	copy(b[:], s)
	return Bytes(b[:])
}

// Is4 gives the value as an IPv4 address.
func (v Value) Is4() netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(v.Lo))
	return netip.AddrFrom4(b)
}

// Is6 gives the value as an IPv6 address.
func (v Value) Is6() netip.Addr { return netip.AddrFrom16(v.Bytes16()) }

// Bytes16 gives the value as 16 bytes in wire order.
func (v Value) Bytes16() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], v.Hi)
	binary.BigEndian.PutUint64(b[8:], v.Lo)
	return b
}

// Compare orders values as numbers: -1, 0 or 1.
func (v Value) Compare(w Value) int {
	if c := cmp.Compare(v.Hi, w.Hi); c != 0 {
		return c
	}
	return cmp.Compare(v.Lo, w.Lo)
}

// And, Or, Xor and Not work bit by bit.
func (v Value) And(w Value) Value { return Value{v.Hi & w.Hi, v.Lo & w.Lo} }

// Or is the union of the bits.
func (v Value) Or(w Value) Value { return Value{v.Hi | w.Hi, v.Lo | w.Lo} }

// Xor is the difference of the bits.
func (v Value) Xor(w Value) Value { return Value{v.Hi ^ w.Hi, v.Lo ^ w.Lo} }

// Not turns every one of the 128 bits; And it with Max of the field's width.
func (v Value) Not() Value { return Value{^v.Hi, ^v.Lo} }

// Next is the value plus one, and 0 after the largest.
func (v Value) Next() Value {
	lo, carry := bits.Add64(v.Lo, 1, 0)
	return Value{v.Hi + carry, lo}
}

// Prev is the value minus one, and the largest before 0.
func (v Value) Prev() Value {
	lo, borrow := bits.Sub64(v.Lo, 1, 0)
	return Value{v.Hi - borrow, lo}
}

// Range is every value from Lo to Hi, both included. A range with Lo above Hi is empty.
type Range struct{ Lo, Hi Value }

// Span is the range from lo to hi.
func Span(lo, hi Value) Range { return Range{lo, hi} }

// One is the range of a single value.
func One(v Value) Range { return Range{v, v} }

// Nums is the range from lo to hi.
func Nums(lo, hi uint64) Range { return Range{Num(lo), Num(hi)} }

// Prefix is every address of a prefix; its host bits are ignored.
func Prefix(p netip.Prefix) Range {
	width := 32
	if !p.Addr().Is4() {
		width = 128
	}
	return prefix(Addr(p.Addr()), p.Bits(), width)
}

// Names is every interface name that begins so ("eth" for eth*); the empty text is every name.
func Names(begin string) Range { return prefix(Name(begin), 8*min(len(begin), 16), 128) }

func prefix(v Value, length, width int) Range {
	host := Max(width - length)
	return Range{v.And(host.Not()), v.Or(host)}
}

// Has says whether the value lies in the range.
func (r Range) Has(v Value) bool { return r.Lo.Compare(v) <= 0 && v.Compare(r.Hi) <= 0 }
