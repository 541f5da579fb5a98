// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// headOf is the struct of an entry that asks for an address under a mask, and for nothing else.
func headOf(addr, mask string, inverted uint8) *Head {
	a, m := netip.MustParseAddr(addr), netip.MustParseAddr(mask)
	none := make([]byte, a.BitLen()/8)
	h := &Head{Addr: [2][]byte{a.AsSlice(), none}, Mask: [2][]byte{m.AsSlice(), none}, Not: inverted}
	for n := range 2 {
		h.Name[n], h.NameMask[n] = make([]byte, 16), make([]byte, 16)
	}
	return h
}

// TestAddressBeyondMask: bits of an address beyond its mask do not count in IPv6; in IPv4 no packet is equal to them.
func TestAddressBeyondMask(t *testing.T) {
	for _, c := range []struct {
		addr, mask, packet string
		inverted           uint8
		want               bool
	}{
		{"2001:db8::1", "ffff:ffff::", "2001:db8::2", 0, true},
		{"2001:db8::1", "ffff:ffff::", "2001:db9::1", 0, false},
		{"2001:db8::1", "ffff:ffff::", "2001:db8::2", NotSource, false},
		{"2001:db8::1", "ffff:ffff::", "2001:db9::1", NotSource, true},
		{"2001:db8::1", "ffff::ff00", "2001:9::99", 0, true},
		{"::1", "::", "2001:db8::2", 0, true},
		{"::1", "::", "2001:db8::2", NotSource, false},
		{"10.0.0.1", "255.0.0.0", "10.0.0.1", 0, false},
		{"10.0.0.1", "255.0.0.0", "10.0.0.1", NotSource, true},
		{"10.0.0.0", "255.0.0.0", "10.0.0.1", 0, true},
	} {
		packet := netip.MustParseAddr(c.packet)
		steps, words := headOf(c.addr, c.mask, c.inverted).Steps(packet.Is6())
		got := true
		for _, s := range steps {
			got = got && holds(s.(rs.Test), rs.Addr(packet))
		}
		if got != c.want {
			t.Errorf("%s under %s (%v) holds for %s: %t", c.addr, c.mask, words, c.packet, got)
		}
	}
}

// TestHeadFlags: what is flagged in a way that the kernel does not know, or a protocol of ip6_tables that it would not look at, is left to it.
func TestHeadFlags(t *testing.T) {
	for _, c := range []struct {
		six             bool
		proto           uint16
		flags, inverted uint8
		want            bool // understood
	}{
		{false, 6, 0, 0, true}, {false, 0, flagGoto4, 0, true}, {false, 6, 4, 0, false},
		{true, 0, 0, 0, true}, {true, 6, flagProto, 0, true}, {true, 6, flagProto | flagGoto6, NotProto, true},
		{true, 6, 0, 0, false}, {true, 6, flagGoto6, NotProto, false}, {true, 0, 0, NotProto, false}, {true, 0, 8, 0, false},
	} {
		d := &decoder{Context: &Context{Six: c.six}, layout: entry4}
		if c.six {
			d.layout = entry6
		}
		e := &entry{b: make([]byte, d.size)}
		binary.NativeEndian.PutUint16(e.b[d.proto:], c.proto)
		e.b[d.flags], e.b[d.invflags] = c.flags, c.inverted
		steps, words := d.head(e).Steps(c.six)
		if got := !slices.ContainsFunc(steps, func(s rs.Step) bool { _, is := s.(rs.Unknown); return is }); got != c.want {
			t.Errorf("%+v is read as %v, understood: %t", c, words, got)
		}
	}
}
