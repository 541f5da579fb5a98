// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"fmt"
	"net/netip"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Head is what an entry asks for without any extension: struct ipt_ip and struct ip6t_ip6. Of pairs the first is the source's,
// or the way in; the bytes are in wire order.
type Head struct {
	Addr, Mask     [2][]byte // 4 or 16 bytes
	Name, NameMask [2][]byte // of devices, 16 bytes
	Proto          uint16    // 0 for any
	Fragment       bool      // IPv4: not the first
	Not            uint8     // Not…
	Strange        string    // of what it is not known what the kernel makes; empty: nothing
}

// What a Head negates (IPT_INV_*).
const (
	NotIn       = 0x01
	NotOut      = 0x02
	NotSource   = 0x08
	NotDest     = 0x10
	NotFragment = 0x20
	NotProto    = 0x40
)

// Steps are the tests as ip_packet_match and ip6_packet_match make them, and the words for them.
func (h *Head) Steps(six bool) (steps []rs.Step, words []string) {
	fields := []rs.Field{rs.IP4Src, rs.IP4Dst}
	if six {
		fields = []rs.Field{rs.IP6Src, rs.IP6Dst}
	}
	for n, f := range fields {
		not := h.Not&[]byte{NotSource, NotDest}[n] != 0
		addr := h.Addr[n]
		if six { // what is beyond the mask does not count there (ipv6_masked_addr_cmp()), but in IPv4
			addr = under(addr, h.Mask[n])
		}
		test, text := address(f, addr, h.Mask[n], not)
		if text == "" {
			continue
		}
		steps = append(steps, test)
		words = append(words, bang(not)+[]string{"-s ", "-d "}[n]+text)
	}
	for n, f := range []rs.Field{rs.IIFName, rs.OIFName} {
		not := h.Not&[]byte{NotIn, NotOut}[n] != 0
		step, text := device(f, h.Name[n], h.NameMask[n], not)
		if text == "" {
			continue
		}
		steps = append(steps, step)
		words = append(words, bang(not)+[]string{"-i ", "-o "}[n]+text)
	}
	if h.Strange != "" {
		steps = append(steps, rs.Unknown{Name: "flags", Text: h.Strange})
		words = append(words, "("+h.Strange+")")
	}
	if h.Proto != 0 {
		not := h.Not&NotProto != 0
		steps = append(steps, rs.Test{Field: rs.L4Proto, Ranges: []rs.Range{rs.Nums(uint64(h.Proto), uint64(h.Proto))}, Not: not})
		words = append(words, bang(not)+"-p "+protoName(h.Proto))
	} else if h.Not&NotProto != 0 {
		steps = append(steps, rs.Unknown{Name: "! -p", Text: "a negated protocol that is not given"})
	}
	if h.Fragment {
		not := h.Not&NotFragment != 0
		steps = append(steps, rs.Test{Field: rs.FragOffset, Mask: rs.Num(0x1fff), Ranges: []rs.Range{rs.One(rs.Value{})}, Not: !not})
		words = append(words, bang(not)+"-f")
	} else if !six && h.Not&NotFragment != 0 {
		steps = append(steps, rs.Unknown{Name: "! -f", Text: "a negated fragment flag that is not given"})
	}
	return steps, words
}

// under is an address without what is beyond its mask.
func under(addr, mask []byte) []byte {
	out := make([]byte, len(addr))
	for i := range out {
		out[i] = addr[i] & mask[i]
	}
	return out
}

// address is the test of an address under a mask; no text for one that asks for nothing.
func address(f rs.Field, addr, mask []byte, not bool) (rs.Test, string) {
	a, _ := netip.AddrFromSlice(addr)
	v, m := rs.Addr(a), rs.Bytes(mask)
	n := ones(mask)
	switch {
	case n == 0 && !not && v == rs.Value{}:
		return rs.Test{}, ""
	case v.And(m) != v: // never equal
		return rs.Test{Field: f, Not: not}, fmt.Sprintf("%s/%s", a, maskOf(mask))
	case n >= 0:
		return rs.Test{Field: f, Ranges: []rs.Range{rs.Prefix(netip.PrefixFrom(a, n))}, Not: not}, fmt.Sprintf("%s/%d", a, n)
	}
	return rs.Test{Field: f, Mask: m, Ranges: []rs.Range{rs.One(v)}, Not: not}, fmt.Sprintf("%s/%s", a, maskOf(mask))
}

func maskOf(mask []byte) string {
	a, _ := netip.AddrFromSlice(mask)
	return a.String()
}

// ones is the length of a mask that is a prefix; -1 for others.
func ones(mask []byte) int {
	n := 0
	for _, b := range mask {
		for bit := 7; bit >= 0; bit-- {
			if b>>bit&1 == 0 {
				bit = -1
				continue
			}
			n++
		}
		if n%8 != 0 {
			break
		}
	}
	for i := range 8 * len(mask) {
		if (mask[i/8]>>(7-i%8)&1 != 0) != (i < n) {
			return -1
		}
	}
	return n
}

// device is the test of an interface's name under a mask of whole bytes; no text for one that asks for nothing.
func device(f rs.Field, name, mask []byte, not bool) (rs.Step, string) {
	n := 0
	for n < len(mask) && mask[n] == 0xff {
		n++
	}
	for _, b := range mask[n:] {
		if b != 0 {
			return rs.Unknown{Name: "interface mask", Text: fmt.Sprintf("name %q under mask %x", name, mask)}, fmt.Sprintf("%q/%x", name, mask)
		}
	}
	text, _, _ := strings.Cut(string(name[:n]), "\x00")
	switch { // what the name has beyond the mask does not count
	case n == 0 && !not:
		return nil, ""
	case n == 0:
		return rs.Test{Field: f}, "+" // never
	case len(text) < n: // up to the zero at its end: exactly this name
		return rs.Test{Field: f, Ranges: []rs.Range{rs.One(rs.Name(text))}, Not: not}, text
	}
	return rs.Test{Field: f, Ranges: []rs.Range{rs.Names(text)}, Not: not}, text + "+"
}

// protoName is how iptables-save writes a protocol.
func protoName(n uint16) string {
	if s := protoNames[n]; s != "" {
		return s
	}
	return fmt.Sprint(n)
}

var protoNames = map[uint16]string{1: "icmp", 2: "igmp", 4: "ipv4", 6: "tcp", 17: "udp", 33: "dccp", 41: "ipv6", 47: "gre", 50: "esp", 51: "ah",
	58: "ipv6-icmp", 132: "sctp", 135: "mobility-header", 136: "udplite"}
