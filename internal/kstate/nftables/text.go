// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
	"golang.org/x/sys/unix"
)

// words are the parts of a rule's text. A test that only says what protocol the following header belongs to is left out when
// the name of that header says so too, as nft does.
type words struct {
	list                     []string
	link, network, transport *int // words that may be left out: places in list
}

func (w *words) add(s string) { w.list = append(w.list, s) }

func (w *words) replace(s string) { w.list[len(w.list)-1] = s }

// dependency marks the last word as one that a later one may make superfluous.
func (w *words) dependency(which **int) {
	at := len(w.list) - 1
	*which = &at
}

func (w *words) implied(which **int) {
	if *which != nil {
		w.list[**which] = ""
		*which = nil
	}
}

func (w *words) String() string {
	var out []string
	for _, s := range w.list {
		if s != "" {
			out = append(out, s)
		}
	}
	return strings.Join(out, " ")
}

// fieldName is how nft calls a field, or the part of it under a mask.
func (m *machine) fieldName(f rs.Field, mask rs.Value) string {
	ip := "ip"
	if m.facts.proto == 6 {
		ip = "ip6"
	}
	switch f {
	case rs.IP4Src, rs.IP4Dst, rs.IP6Src, rs.IP6Dst, rs.IP4ID, rs.FragOffset, rs.FlowLabel:
		m.words.implied(&m.words.network)
		return f.String()
	case rs.DSField:
		m.words.implied(&m.words.network)
		switch mask.Lo {
		case 0xfc:
			return ip + " dscp"
		case 0x03:
			return ip + " ecn"
		}
		return ip + " dsfield"
	case rs.TTL:
		m.words.implied(&m.words.network)
		return ip + map[string]string{"ip": " ttl", "ip6": " hoplimit"}[ip]
	case rs.SPort, rs.DPort:
		th := protoNames[uint64(m.facts.l4)]
		switch m.facts.l4 {
		case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_DCCP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE:
			m.words.implied(&m.words.transport)
		default:
			th = "th"
		}
		return th + " " + f.String()
	case rs.TCPFlags:
		m.words.implied(&m.words.transport)
		return "tcp flags"
	case rs.ICMPType:
		m.words.implied(&m.words.transport)
		m.words.implied(&m.words.network)
		name := "icmp"
		if m.facts.l4 == unix.IPPROTO_ICMPV6 {
			name = "icmpv6"
		}
		return name + map[uint64]string{0xff00: " type", 0xff: " code"}[mask.Lo]
	case rs.EtherSrc, rs.EtherDst:
		m.words.implied(&m.words.link)
		return f.String()
	case rs.L4Proto, rs.Length:
		if m.header {
			m.words.implied(&m.words.network)
			if f == rs.L4Proto && ip == "ip6" {
				return "ip6 nexthdr"
			}
			return map[rs.Field]string{rs.L4Proto: "ip protocol", rs.Length: "ip length"}[f]
		}
		return "meta " + f.String()
	case rs.NFProto, rs.PacketType, rs.Mark, rs.Priority:
		return "meta " + f.String()
	case rs.EtherType:
		return "meta protocol"
	case rs.IPsecIn:
		return "meta ipsec"
	}
	return f.String()
}

// testText writes a test as nft does.
func (m *machine) testText(t rs.Test) string {
	name := m.fieldName(t.Field, t.Mask)
	if t.Ranges == nil {
		if t.Not {
			return name + " exists"
		}
		return name + " never"
	}
	masked := !isZero(t.Mask)
	zero := len(t.Ranges) == 1 && t.Ranges[0] == rs.One(rs.Value{})
	if names := bitNames(t.Field); names != nil && masked && zero { // "has one of the bits", "has none of them"
		list := bitList(names, t.Mask.Lo)
		if t.Not {
			return name + " " + list
		}
		return name + " ! " + list
	}
	var list []string
	for _, r := range t.Ranges {
		list = append(list, m.rangeOf(t.Field, t.Mask, r))
	}
	text := strings.Join(list, ", ")
	if len(list) > 1 {
		text = "{ " + text + " }"
	}
	op := ""
	if t.Not {
		op = "!= "
	}
	switch {
	case !masked || strings.HasSuffix(name, " dscp") || strings.HasSuffix(name, " ecn") || t.Field == rs.ICMPType && name != "icmp":
	case t.Field == rs.TCPFlags:
		return fmt.Sprintf("%s %s%s / %s", name, op, text, bitList(flagNames, t.Mask.Lo))
	default:
		if op == "" {
			op = "== "
		}
		return fmt.Sprintf("%s & %s %s%s", name, oneText(t.Field, t.Mask), op, text)
	}
	return name + " " + op + text
}

// rangeOf writes a range of a field: a value, a prefix, a wildcard, a bound or a range.
func (m *machine) rangeOf(f rs.Field, mask rs.Value, r rs.Range) string {
	width := f.Width()
	value := func(v rs.Value) string {
		switch {
		case f == rs.DSField && mask.Lo == 0xfc:
			return dscpName(uint32(v.Lo) >> 2)
		case f == rs.ICMPType && mask.Lo == 0xff00 || f == rs.ICMPType && mask.Lo == 0xff:
			if mask.Lo == 0xff {
				return fmt.Sprint(v.Lo)
			}
			v.Lo >>= 8
			if m.facts.l4 == unix.IPPROTO_ICMPV6 {
				return named(icmpv6Types, v.Lo)
			}
			return named(icmpTypes, v.Lo)
		}
		return oneText(f, v)
	}
	if n := prefixOf(r, width); n >= 0 && r.Lo != r.Hi {
		if f.IsName() {
			return fmt.Sprintf("%q", name(r.Lo)+"*")
		}
		if isAddress(f) {
			return fmt.Sprintf("%s/%d", value(r.Lo), n)
		}
	}
	if r.Lo == r.Hi {
		return value(r.Lo)
	}
	return value(r.Lo) + "-" + value(r.Hi)
}

// boundText writes a comparison with one bound.
func (m *machine) boundText(t rs.Test, op Op) string {
	v := map[Op]rs.Value{Lt: t.Ranges[0].Hi.Next(), Lte: t.Ranges[0].Hi, Gt: t.Ranges[0].Lo.Prev(), Gte: t.Ranges[0].Lo}[op]
	return fmt.Sprintf("%s %s %s", m.fieldName(t.Field, t.Mask), opText(op), m.rangeOf(t.Field, t.Mask, rs.One(v)))
}

// prefixOf is the length of the prefix that a range is; -1 if it is none.
func prefixOf(r rs.Range, width int) int {
	same := r.Lo.Xor(r.Hi).Not().And(rs.Max(width))
	n := prefixLength(same, width)
	if r.Lo == r.Hi {
		return width
	}
	if n < 0 || !isZero(r.Lo.And(rs.Max(width-n))) || r.Hi.And(rs.Max(width-n)) != rs.Max(width-n) {
		return -1
	}
	return n
}

// prefixLength is the number of ones at the top of a mask that has nothing but them; -1 for other masks, and for none.
func prefixLength(mask rs.Value, width int) int {
	host := mask.Not().And(rs.Max(width))
	n := bits.Len64(host.Lo)
	if host.Hi != 0 {
		n = 64 + bits.Len64(host.Hi)
	}
	if isZero(mask) || host != rs.Max(n) {
		return -1
	}
	return width - n
}

func named(names map[uint64]string, n uint64) string {
	if s := names[n]; s != "" {
		return s
	}
	return fmt.Sprint(n)
}

func name(v rs.Value) string {
	b := v.Bytes16()
	return strings.TrimRight(string(b[:]), "\x00")
}

func addressText(v rs.Value, six bool) string {
	if six {
		return netip.AddrFrom16(v.Bytes16()).String()
	}
	return v.Is4().String()
}

// oneText writes one value of a field.
func oneText(f rs.Field, v rs.Value) string {
	switch f {
	case rs.IP4Src, rs.IP4Dst, rs.CTOrigSrc4, rs.CTOrigDst4:
		return addressText(v, false)
	case rs.IP6Src, rs.IP6Dst, rs.CTOrigSrc6, rs.CTOrigDst6:
		return addressText(v, true)
	case rs.IIFName, rs.OIFName:
		return fmt.Sprintf("%q", name(v))
	case rs.EtherSrc, rs.EtherDst:
		b := v.Bytes16()
		return net.HardwareAddr(b[10:]).String()
	case rs.Mark, rs.CTMark:
		return fmt.Sprintf("0x%08x", v.Lo)
	case rs.L4Proto, rs.CTProto:
		return named(protoNames, v.Lo)
	case rs.NFProto:
		return named(familyProtos, v.Lo)
	case rs.EtherType:
		if s := etherTypes[v.Lo]; s != "" {
			return s
		}
		return fmt.Sprintf("0x%04x", v.Lo)
	case rs.IIFType, rs.OIFType:
		return named(map[uint64]string{1: "ether", 772: "loopback"}, v.Lo)
	case rs.CTDirection:
		return pick([]string{"original", "reply"}, uint32(v.Lo))
	case rs.SrcAddrType, rs.DstAddrType:
		return pick(addrTypes, uint32(v.Lo))
	case rs.PacketType:
		return pick(packetTypes, uint32(v.Lo))
	case rs.IPsecIn, rs.RouteBack, rs.RouteBackBy:
		return pick([]string{"missing", "exists"}, uint32(v.Lo))
	case rs.FlowLabel, rs.FragOffset:
		return fmt.Sprint(v.Lo)
	}
	if names := bitNames(f); names != nil && v.Lo != 0 && v.Hi == 0 {
		return bitList(names, v.Lo)
	}
	if f.Width() > 64 {
		return addressText(v, true)
	}
	return fmt.Sprint(v.Lo)
}

// bitNames are the names of the bits of a field that is made of bits.
func bitNames(f rs.Field) []string {
	switch f {
	case rs.CTState, rs.CTStateNAT:
		return stateNames
	case rs.CTStatus:
		return statusNames
	case rs.TCPFlags:
		return flagNames
	}
	return nil
}

func bitList(names []string, v uint64) string {
	var out []string
	for i := range 64 {
		if v>>i&1 == 0 {
			continue
		}
		if i < len(names) && names[i] != "" {
			out = append(out, names[i])
		} else {
			out = append(out, fmt.Sprintf("0x%x", uint64(1)<<i))
		}
	}
	return strings.Join(out, ",")
}

// anyText writes the negation of several tests that would have to hold together.
func (m *machine) anyText(tests []rs.Test) string {
	var out []string
	for _, t := range tests {
		out = append(out, m.testText(t))
	}
	return strings.Join(out, " or ")
}

// valueText names what a register holds.
func (m *machine) valueText(v *value) string {
	if v.data != nil {
		return v.name
	}
	if v.of != nil {
		out := m.valueText(v.of)
		if strings.HasSuffix(out, " dscp") {
			return out
		}
		return fmt.Sprintf("%s >> %d", out, v.down)
	}
	out := v.title()
	_, m.header = v.from.(*Payload)
	if v.why == "" && v.from != nil {
		if s, err := m.segments(v, v.mask); err == nil && len(s) == 1 {
			out = m.fieldName(s[0].field, fieldMask(s[0], v.mask))
			if strings.HasSuffix(out, " dscp") || s[0].field == rs.ICMPType {
				return out
			}
		}
		if full := rs.Max(8 * v.size); v.mask != full {
			out += fmt.Sprintf(" & 0x%x", v.mask.Lo)
		}
		if !isZero(v.xor) {
			out += fmt.Sprintf(" ^ 0x%x", v.xor.Lo)
		}
	}
	return out
}
