// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	mbits "math/bits"
	"net/netip"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Context is what the rule around an extension says.
type Context struct {
	Six bool // ip6tables
	// Set finds an ipset by the kernel's index, and Member one by its id; nil when ipsets were not read.
	Set    func(index uint16) (id rs.SetID, set *rs.Set)
	Member func(id rs.SetID) *rs.Set
}

// Extension is a match or target in a rule: a struct of its own for each name and revision.
type Extension struct {
	Name     string
	Revision uint8
	Info     []byte // as the kernel gives it, with padding at its end
	Options  string // of one from a file that has no Info, as they stand there
}

var errRevision = errors.New("the revision is not known")

// info reads the struct of an extension; reading beyond its end is remembered.
type info struct {
	b   []byte
	rev uint8
	err error
}

func (i *info) bytes(at, n int) []byte {
	if at+n > len(i.b) {
		if i.err == nil {
			i.err = fmt.Errorf("the struct has only %d bytes", len(i.b))
		}
		return make([]byte, n)
	}
	return i.b[at : at+n]
}

func (i *info) u8(at int) uint8   { return i.bytes(at, 1)[0] }
func (i *info) u16(at int) uint16 { return binary.NativeEndian.Uint16(i.bytes(at, 2)) }
func (i *info) u32(at int) uint32 { return binary.NativeEndian.Uint32(i.bytes(at, 4)) }
func (i *info) text(at, n int) string {
	text, _, _ := strings.Cut(string(i.bytes(at, n)), "\x00")
	return text
}

// port reads a port as it stands in headers.
func (i *info) port(at int) uint16 { return binary.BigEndian.Uint16(i.bytes(at, 2)) }

// addr reads union nf_inet_addr.
func (i *info) addr(at int, six bool) netip.Addr {
	if six {
		return netip.AddrFrom16([16]byte(i.bytes(at, 16)))
	}
	return netip.AddrFrom4([4]byte(i.bytes(at, 4)))
}

// match is a match that is understood: its steps and its options as iptables-save prints them, in the revisions from first to last.
type match struct {
	first, last uint8
	decode      func(c *Context, i *info) (steps []rs.Step, options string, err error)
}

// matches by name.
var matches = map[string]match{
	"tcp": {0, 0, matchTCP}, "udp": {0, 0, matchUDP}, "udplite": {0, 0, matchUDP}, "icmp": {0, 0, matchICMP}, "icmp6": {0, 0, matchICMP}, "multiport": {1, 1, matchMultiport},
	"conntrack": {1, 3, matchConntrack}, "state": {0, 0, matchState}, "mark": {1, 1, matchMark(rs.Mark)}, "connmark": {1, 1, matchMark(rs.CTMark)},
	"comment": {0, math.MaxUint8, matchComment}, "addrtype": {1, 1, matchAddrType}, "iprange": {1, 1, matchIPRange}, "mac": {0, 0, matchMAC}, "length": {0, 0, matchLength},
	"pkttype": {0, 0, matchPacketType}, "dscp": {0, 0, matchDSCP}, "tos": {1, 1, matchTOS}, "ttl": {0, 0, matchTTL}, "hl": {0, 0, matchTTL}, "devgroup": {0, 0, matchDevGroup},
	"set": {1, 4, matchSet}, "rt": {0, 0, matchRouting}, "physdev": {0, 0, matchPhysdev}, "rpfilter": {0, 0, matchReverse}, "policy": {0, 0, matchPolicy},
	"ipv6header": {0, 0, matchHeaders}, "frag": {0, 0, matchFragment}, "hbh": {0, 0, matchOptions}, "dst": {0, 0, matchOptions},
}

// read decodes the struct of a match. What is wrong with it is an error, and so is what is not modelled.
func (m match) read(c *Context, i *info) (steps []rs.Step, options string, err error) {
	if i.rev < m.first || i.rev > m.last {
		return nil, "", errRevision
	}
	steps, options, err = m.decode(c, i)
	if i.err != nil {
		err = i.err
	}
	return steps, options, err
}

// Match gives the steps of a match and the words for it.
func Match(c *Context, e Extension) ([]rs.Step, string) {
	text := "-m " + e.Name
	unknown := func(why string) []rs.Step {
		return []rs.Step{rs.Unknown{Name: "xt match " + e.Name, Text: fmt.Sprintf("%s (%s)", text, why)}}
	}
	if e.Info == nil && e.Options != "" {
		text += " " + e.Options
		return unknown("not modelled"), text
	}
	i := &info{b: e.Info, rev: e.Revision}
	m, known := matches[e.Name]
	if !known {
		if describe := described[e.Name]; describe != nil {
			if options := describe(i); i.err == nil && options != "" {
				text += " " + options
			}
		}
		return unknown("not modelled"), text
	}
	steps, options, err := m.read(c, i)
	if strings.HasPrefix(strings.TrimPrefix(options, "! "), "--state") {
		text = "-m state" // the old name, kept for the one who lists the rule
	}
	if options != "" && i.err == nil {
		text += " " + options
	}
	if err != nil {
		steps = unknown(fmt.Sprintf("revision %d: %v", e.Revision, err))
	}
	return steps, text
}

func bang(b bool) string {
	if b {
		return "! "
	}
	return ""
}

// there is a test for a field's presence.
func there(f rs.Field) rs.Test { return rs.Test{Field: f, Not: true} }

func portRange(lo, hi uint16) string {
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d:%d", lo, hi)
}

// ports gives the tests of a range of source and one of destination ports. The match fails for fragments without ports, also
// where any port will do.
func ports(i *info, inv uint8) (steps []rs.Step, words []string) {
	for n, p := range []struct {
		field rs.Field
		name  string
	}{{rs.SPort, "--sport"}, {rs.DPort, "--dport"}} {
		lo, hi, not := i.u16(4*n), i.u16(4*n+2), inv>>n&1 != 0
		if lo == 0 && hi == 0xffff && !not {
			continue
		}
		steps = append(steps, rs.Test{Field: p.field, Ranges: []rs.Range{rs.Nums(uint64(lo), uint64(hi))}, Not: not})
		words = append(words, bang(not)+p.name+" "+portRange(lo, hi))
	}
	if steps == nil {
		steps = []rs.Step{there(rs.DPort)}
	}
	return steps, words
}

func matchTCP(_ *Context, i *info) ([]rs.Step, string, error) {
	option, mask, cmp, inv := i.u8(8), i.u8(9), i.u8(10), i.u8(11)
	steps, words := ports(i, inv)
	if mask != 0 || cmp != 0 || inv&4 != 0 {
		t := rs.Test{Field: rs.TCPFlags, Mask: rs.Num(uint64(mask)), Ranges: []rs.Range{rs.One(rs.Num(uint64(cmp)))}, Not: inv&4 != 0}
		switch {
		case cmp&^mask != 0: // never equal
			t.Mask, t.Ranges = rs.Value{}, nil
		case mask == 0: // always
			t = rs.Test{Field: rs.TCPFlags, Not: inv&4 == 0}
		}
		steps = append(steps, t)
		words = append(words, bang(inv&4 != 0)+"--tcp-flags "+flagList(mask)+" "+flagList(cmp))
	}
	var err error
	if option != 0 {
		words = append(words, fmt.Sprintf("%s--tcp-option %d", bang(inv&8 != 0), option))
		err = errors.New("TCP options are not modelled")
	}
	return steps, strings.Join(words, " "), err
}

func flagList(b uint8) string {
	if b == 0 {
		return "NONE"
	}
	return names([]string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"}, uint32(b))
}

func matchUDP(_ *Context, i *info) ([]rs.Step, string, error) {
	steps, words := ports(i, i.u8(8))
	return steps, strings.Join(words, " "), nil
}

func matchICMP(c *Context, i *info) ([]rs.Step, string, error) {
	typ, lo, hi, not := i.u8(0), i.u8(1), i.u8(2), i.u8(3)&1 != 0
	name := map[bool]string{false: "--icmp-type ", true: "--icmpv6-type "}[c.Six]
	if typ == 0xff && !c.Six { // any type
		if not {
			return []rs.Step{rs.Test{Field: rs.ICMPType}}, "! " + name + "any", nil
		}
		return []rs.Step{there(rs.ICMPType)}, name + "any", nil
	}
	t := rs.Test{Field: rs.ICMPType, Ranges: []rs.Range{rs.Nums(uint64(typ)<<8|uint64(lo), uint64(typ)<<8|uint64(hi))}, Not: not}
	text := bang(not) + name + fmt.Sprint(typ)
	if lo == hi {
		text += fmt.Sprintf("/%d", lo)
	} else if lo != 0 || hi != 0xff {
		text += fmt.Sprintf("/%d-%d", lo, hi)
	}
	return []rs.Step{t}, text, nil
}

func matchMultiport(_ *Context, i *info) ([]rs.Step, string, error) {
	flags, count, not := i.u8(0), int(i.u8(1)), i.u8(47) != 0
	if flags > 2 || count == 0 || count > 15 {
		return nil, "", fmt.Errorf("flags %d, %d ports", flags, count)
	}
	var ranges []rs.Range
	var list []string
	for n := 0; n < count; n++ {
		lo := i.u16(2 + 2*n)
		hi := lo
		if i.u8(32+n) != 0 && n+1 < count {
			n++
			hi = i.u16(2 + 2*n)
		}
		ranges = append(ranges, rs.Nums(uint64(lo), uint64(hi)))
		list = append(list, portRange(lo, hi))
	}
	text := bang(not) + []string{"--sports ", "--dports ", "--ports "}[flags] + strings.Join(list, ",")
	switch flags {
	case 0:
		return []rs.Step{rs.Test{Field: rs.SPort, Ranges: ranges, Not: not}}, text, nil
	case 1:
		return []rs.Step{rs.Test{Field: rs.DPort, Ranges: ranges, Not: not}}, text, nil
	}
	return []rs.Step{there(rs.DPort), rs.AnyTest{Of: []rs.Test{{Field: rs.SPort, Ranges: ranges}, {Field: rs.DPort, Ranges: ranges}}, Not: not}}, text, nil
}

// masked is a test that a field under a mask has a value. A mask of zero leaves nothing to ask for.
func masked(f rs.Field, value, mask uint32, not bool) []rs.Step {
	full := uint32(rs.Max(f.Width()).Lo)
	t := rs.Test{Field: f, Mask: rs.Num(uint64(mask)), Ranges: []rs.Range{rs.One(rs.Num(uint64(value)))}, Not: not}
	switch {
	case value&^mask != 0: // never equal
		t.Mask, t.Ranges = rs.Value{}, nil
	case mask == 0: // always
		t = rs.Test{Field: f, Not: !not}
	case mask&full == full:
		t.Mask = rs.Value{}
	}
	return []rs.Step{t}
}

// anyOf is a test that a field has one of the bits.
func anyOf(f rs.Field, bits uint32, not bool) rs.Test {
	if bits == 0 {
		return rs.Test{Field: f, Not: not} // none of no bits
	}
	return rs.Test{Field: f, Mask: rs.Num(uint64(bits)), Ranges: []rs.Range{rs.One(rs.Value{})}, Not: !not}
}

func maskText(value, mask uint32) string {
	if mask == ^uint32(0) {
		return fmt.Sprintf("0x%x", value)
	}
	return fmt.Sprintf("0x%x/0x%x", value, mask)
}

func matchMark(f rs.Field) func(*Context, *info) ([]rs.Step, string, error) {
	return func(_ *Context, i *info) ([]rs.Step, string, error) {
		mark, mask, not := i.u32(0), i.u32(4), i.u8(8) != 0
		return masked(f, mark, mask, not), bang(not) + "--mark " + maskText(mark, mask), nil
	}
}

func matchComment(_ *Context, i *info) ([]rs.Step, string, error) {
	return nil, "--comment " + Quote(i.text(0, 256)), nil
}

// Quote writes a word as iptables-save does.
func Quote(s string) string {
	plain := s != ""
	for _, r := range s {
		plain = plain && (r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}
	if plain {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`).Replace(s) + `"`
}

var addrTypes = []string{"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW", "NAT", "XRESOLVE"}

func names(list []string, bits uint32) string {
	var out []string
	for n := range 32 {
		if bits>>n&1 == 0 {
			continue
		}
		if n < len(list) && list[n] != "" {
			out = append(out, list[n])
		} else {
			out = append(out, fmt.Sprintf("0x%x", uint32(1)<<n))
		}
	}
	return strings.Join(out, ",")
}

func matchAddrType(c *Context, i *info) (steps []rs.Step, text string, err error) {
	const invertSource, invertDest, limitIn, limitOut = 1, 2, 4, 8
	source, dest, flags := uint32(i.u16(0)), uint32(i.u16(2)), i.u32(4)
	var words []string
	for _, a := range []struct {
		bits  uint32
		not   bool
		field rs.Field
		addr  rs.Field
		name  string
	}{{source, flags&invertSource != 0, rs.SrcAddrType, rs.IP6Src, "--src-type "}, {dest, flags&invertDest != 0, rs.DstAddrType, rs.IP6Dst, "--dst-type "}} {
		if a.bits == 0 {
			continue
		}
		words = append(words, bang(a.not)+a.name+names(addrTypes, a.bits))
		if c.Six {
			steps = append(steps, addrType6(a.field, a.addr, a.bits, a.not)...)
		} else {
			steps = append(steps, rs.Test{Field: a.field, Ranges: oneOf(a.bits), Not: a.not})
		}
	}
	if flags&limitIn != 0 {
		words = append(words, "--limit-iface-in")
	}
	if flags&limitOut != 0 {
		words = append(words, "--limit-iface-out")
	}
	if flags&(limitIn|limitOut) != 0 {
		err = errors.New("types of one interface are not modelled")
	}
	if c.Six && (source|dest)&^addrTypes6 != 0 {
		err = errors.New("a type that IPv6 does not have") // which the kernel refuses
	}
	return steps, strings.Join(words, " "), err
}

// oneOf are the numbers of bits.
func oneOf(bits uint32) (out []rs.Range) {
	for ; bits != 0; bits &= bits - 1 {
		out = append(out, rs.One(rs.Num(uint64(mbits.TrailingZeros32(bits)))))
	}
	return out
}

// Types that xt_addrtype asks for in IPv6, as bits of the number of a type.
const (
	type6Unspec      = 1 << 0
	type6Unicast     = 1 << 1
	type6Multicast   = 1 << 5
	type6Unreachable = 1 << 7
	type6Looked      = 1<<2 | 1<<4 | type6Unreachable // local, anycast: of which one has to be what the lookup says
	addrTypes6       = type6Unspec | type6Unicast | type6Multicast | type6Looked
	type6Refused     = 1<<6 | type6Unreachable | 1<<8 | 1<<9 // whatever error the lookup ends with
)

// addrType6 is match_type6() of xt_addrtype.c: unicast, multicast and unspecified are kinds of addresses, whatever a lookup says, and of several things that are asked for all
// have to hold.
func addrType6(field, addr rs.Field, bits uint32, not bool) (steps []rs.Step) {
	group, mapped := rs.Prefix(netip.MustParsePrefix("ff00::/8")), rs.Prefix(netip.MustParsePrefix("::ffff:0:0/96"))
	var all []rs.Test
	if bits&type6Multicast != 0 {
		all = append(all, rs.Test{Field: addr, Ranges: []rs.Range{group}, Not: not})
	}
	if bits&type6Unicast != 0 {
		all = append(all, rs.Test{Field: addr, Ranges: []rs.Range{rs.One(rs.Value{}), mapped, group}, Not: !not})
	}
	if bits&type6Unspec != 0 {
		all = append(all, rs.Test{Field: addr, Ranges: []rs.Range{rs.One(rs.Value{})}, Not: not})
	}
	if looked := bits & type6Looked; looked != 0 {
		if looked&type6Unreachable != 0 {
			looked |= type6Refused
		}
		all = append(all, rs.Test{Field: field, Ranges: oneOf(looked), Not: not})
	}
	if not && len(all) > 1 {
		return []rs.Step{rs.AnyTest{Of: all}}
	}
	for _, t := range all {
		steps = append(steps, t)
	}
	return steps
}

func matchIPRange(c *Context, i *info) (steps []rs.Step, text string, err error) {
	flags := i.u8(64)
	fields := []rs.Field{rs.IP4Src, rs.IP4Dst}
	if c.Six {
		fields = []rs.Field{rs.IP6Src, rs.IP6Dst}
	}
	var words []string
	for n, f := range fields {
		if flags>>n&1 == 0 {
			continue
		}
		lo, hi, not := i.addr(32*n, c.Six), i.addr(32*n+16, c.Six), flags>>(4+n)&1 != 0
		steps = append(steps, rs.Test{Field: f, Ranges: []rs.Range{{Lo: rs.Addr(lo), Hi: rs.Addr(hi)}}, Not: not})
		words = append(words, fmt.Sprintf("%s%s %s-%s", bang(not), []string{"--src-range", "--dst-range"}[n], lo, hi))
	}
	return steps, strings.Join(words, " "), nil
}

func matchMAC(_ *Context, i *info) ([]rs.Step, string, error) {
	mac, not := i.bytes(0, 6), i.u32(8) != 0
	return []rs.Step{rs.Test{Field: rs.EtherSrc, Ranges: []rs.Range{rs.One(rs.Bytes(mac))}, Not: not}},
		fmt.Sprintf("%s--mac-source %02x:%02x:%02x:%02x:%02x:%02x", bang(not), mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]), nil
}

func matchLength(_ *Context, i *info) ([]rs.Step, string, error) {
	lo, hi, not := i.u16(0), i.u16(2), i.u8(4) != 0
	return []rs.Step{rs.Test{Field: rs.Length, Ranges: []rs.Range{rs.Nums(uint64(lo), uint64(hi))}, Not: not}}, bang(not) + "--length " + portRange(lo, hi), nil
}

func matchPacketType(_ *Context, i *info) ([]rs.Step, string, error) {
	typ, not := i.u32(0), i.u32(4) != 0
	name := names([]string{"unicast", "broadcast", "multicast"}, 1<<typ)
	if typ > 2 {
		return nil, "--pkt-type " + fmt.Sprint(typ), errors.New("the packet type is not modelled")
	}
	return masked(rs.PacketType, typ, 7, not), bang(not) + "--pkt-type " + name, nil
}

// matchRouting never holds, negated or not: packets with a routing header, as any extension header, are left to Linux before they come to rules, and the match
// fails for those without (rt_mt6 in ip6t_rt.c).
func matchRouting(c *Context, i *info) ([]rs.Step, string, error) {
	const ofType = 1
	if !c.Six {
		return nil, "", errRevision
	}
	if flags := i.u8(16); flags != ofType {
		return nil, "", fmt.Errorf("flags %#x are not modelled", flags)
	}
	return []rs.Step{rs.Test{Field: rs.L4Proto}}, fmt.Sprintf("%s--rt-type %d", bang(i.u8(17)&ofType != 0), i.u32(0)), nil
}

// matchPhysdev asks for the ports by which br_netfilter has shown the packet. What it has not shown satisfies what is negated; a port that what it has shown lacks
// satisfies no name, nor the negation of one, but is no port (physdev_mt in xt_physdev.c).
func matchPhysdev(_ *Context, i *info) (steps []rs.Step, text string, err error) {
	const in, out, bridged, isIn, isOut = 1, 2, 4, 8, 16
	invert, asked := i.u8(64), i.u8(65)
	if asked == 0 || asked&^(in|out|bridged|isIn|isOut) != 0 {
		return nil, "", fmt.Errorf("options %#x are not modelled", asked)
	}
	var words []string
	for _, o := range []struct {
		bit   uint8
		name  string
		field rs.Field
	}{{isIn, "--physdev-is-in", rs.PhysIn}, {in, "--physdev-in", rs.PhysIn}, {isOut, "--physdev-is-out", rs.PhysOut}, {out, "--physdev-out", rs.PhysOut}, {bridged, "--physdev-is-bridged", rs.PhysOut}} {
		not := invert&o.bit != 0
		some := rs.Test{Field: o.field, Ranges: []rs.Range{rs.One(rs.Value{})}, Not: true}
		switch {
		case asked&o.bit == 0:
			continue
		case o.bit&(in|out) == 0 && not:
			steps = append(steps, rs.AnyTest{Of: []rs.Test{some}, Not: true})
		case o.bit&(in|out) == 0:
			steps = append(steps, some)
		default:
			at := map[uint8]int{in: 0, out: 32}[o.bit]
			step, name := device(o.field, i.bytes(at, 16), i.bytes(at+16, 16), not)
			if t, ok := step.(rs.Test); ok && name != "" && len(t.Ranges) == 1 && t.Ranges[0].Lo == (rs.Value{}) || name == "" || name == "+" {
				return nil, "", errors.New("a name without a letter is not modelled")
			}
			steps = append(steps, step)
			words = append(words, bang(not)+o.name+" "+name)
			continue
		}
		words = append(words, bang(not)+o.name)
	}
	return steps, strings.Join(words, " "), nil
}

func matchDSCP(_ *Context, i *info) ([]rs.Step, string, error) {
	dscp, not := i.u8(0), i.u8(1) != 0
	return masked(rs.DSField, uint32(dscp)<<2, 0xfc, not), fmt.Sprintf("%s--dscp 0x%02x", bang(not), dscp), nil
}

func matchTOS(_ *Context, i *info) ([]rs.Step, string, error) {
	mask, value, not := i.u8(0), i.u8(1), i.u8(2) != 0
	text := fmt.Sprintf("%s--tos 0x%02x", bang(not), value)
	if mask != 0xff {
		text += fmt.Sprintf("/0x%02x", mask)
	}
	return masked(rs.DSField, uint32(value), uint32(mask), not), text, nil
}

func matchTTL(c *Context, i *info) ([]rs.Step, string, error) {
	mode, n := i.u8(0), uint64(i.u8(1))
	name := map[bool]string{false: "--ttl-", true: "--hl-"}[c.Six]
	t := rs.Test{Field: rs.TTL, Ranges: []rs.Range{rs.Nums(n, n)}}
	switch mode {
	case 0:
		name += "eq"
	case 1:
		t.Not = true
		name = "! " + name + "eq"
	case 2:
		t.Ranges = []rs.Range{rs.Nums(0, n-1)}
		if n == 0 {
			t.Ranges = nil
		}
		name += "lt"
	case 3:
		t.Ranges = []rs.Range{rs.Nums(n+1, 255)}
		name += "gt"
	default:
		return nil, "", fmt.Errorf("mode %d", mode)
	}
	return []rs.Step{t}, fmt.Sprintf("%s %d", name, n), nil
}

// matchDevGroup: xt_devgroup takes the difference under the mask, so that bits of the group beyond it do not count.
func matchDevGroup(_ *Context, i *info) (steps []rs.Step, text string, err error) {
	const matchSrc, invertSrc, matchDst, invertDst = 1, 2, 4, 8
	flags := i.u32(0)
	group := func(f rs.Field, at int, not bool) []rs.Step {
		return masked(f, i.u32(at)&i.u32(at+4), i.u32(at+4), not)
	}
	var words []string
	if flags&matchSrc != 0 {
		steps = append(steps, group(rs.IIFGroup, 4, flags&invertSrc != 0)...)
		words = append(words, bang(flags&invertSrc != 0)+"--src-group "+maskText(i.u32(4), i.u32(8)))
	}
	if flags&matchDst != 0 {
		steps = append(steps, group(rs.OIFGroup, 12, flags&invertDst != 0)...)
		words = append(words, bang(flags&invertDst != 0)+"--dst-group "+maskText(i.u32(12), i.u32(16)))
	}
	return steps, strings.Join(words, " "), nil
}

// DSCPClass is the code point of a class: CS0 to CS7, AF11 to AF43, BE, EF.
func DSCPClass(name string) (uint8, bool) {
	name = strings.ToUpper(name)
	if name == "BE" || name == "EF" {
		return map[string]uint8{"BE": 0, "EF": 0x2e}[name], true
	}
	digit := func(i int, max byte) (uint8, bool) {
		return name[i] - '0', name[i] >= '0' && name[i] <= '0'+max
	}
	if len(name) == 3 && strings.HasPrefix(name, "CS") {
		n, ok := digit(2, 7)
		return n << 3, ok
	}
	if len(name) == 4 && strings.HasPrefix(name, "AF") {
		class, ok1 := digit(2, 4)
		drop, ok2 := digit(3, 3)
		return class<<3 | drop<<1, ok1 && ok2 && class > 0 && drop > 0
	}
	return 0, false
}

// matchReverse reads rpfilter. In IPv4 it asks more than whether there is a route.
func matchReverse(c *Context, i *info) (steps []rs.Step, text string, err error) {
	const loose, validMark, acceptLocal, invert = 1, 2, 4, 8
	flags := i.u8(0)
	var words []string
	for _, f := range []struct {
		bit  uint8
		name string
	}{{loose, "--loose"}, {validMark, "--validmark"}, {acceptLocal, "--accept-local"}, {invert, "--invert"}} {
		if flags&f.bit != 0 {
			words = append(words, f.name)
		}
	}
	t := rs.Test{Field: rs.RouteBack, Ranges: []rs.Range{rs.One(rs.Num(1))}, Not: flags&invert != 0}
	if flags&loose != 0 {
		t.Field = rs.RouteBackBy
	}
	switch {
	case !c.Six:
		err = errors.New("only that of IPv6 is modelled")
	case flags >= 2*invert:
		err = fmt.Errorf("flags %#x are not modelled", flags)
	}
	return []rs.Step{t}, strings.Join(words, " "), err
}
