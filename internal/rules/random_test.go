// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/netip"
	"slices"

	. "github.com/shuntnet/shunt/internal/model/ruleset"
	"pgregory.net/rapid"
)

// Random rule sets over few constants, and packets at and next to these, so that rules overlap, shadow and contradict each other.

var (
	someDevices = []Device{{Name: "eth0", Index: 2, Type: 1}, {Name: "eth1", Index: 3, Group: 7, Type: 1}, {Name: "wan", Index: 4, Group: 7, Type: 1}, {Name: "et", Index: 5, Type: 512}}
	somePorts   = []uint16{0, 22, 53, 79, 80, 81, 443, 1024, 65535}
	some4       = []string{"10.0.0.0", "10.0.0.1", "10.0.0.255", "10.0.1.0", "10.1.0.0", "11.0.0.1", "192.0.2.7", "255.255.255.255", "0.0.0.0"}
	some6       = []string{"2001:db8::", "2001:db8::1", "2001:db8::1:0:0:0", "2001:db8:0:1::", "fd00::9", "ffff::", "::"}
	somePrefix4 = []string{"10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32", "10.0.0.0/31", "0.0.0.0/0", "128.0.0.0/1", "192.0.2.0/29"}
	somePrefix6 = []string{"2001:db8::/32", "2001:db8::/64", "2001:db8::1/128", "::/0", "8000::/1", "fd00::/127"}
	someProtos  = []uint8{6, 17, 6, 17, 6, 17, 6, 17, 1, 47, 58, 132, 136, 33}
	someNumbers = []uint64{0, 1, 2, 3, 6, 16, 63, 64, 65, 255}
)

// someRanges makes one to three ranges of a field's values.
func someRanges(t *rapid.T, f Field) []Range {
	one := func(label string) Range {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
		switch f {
		case IIFName, OIFName:
			if pick(3) == 0 {
				return Names([]string{"eth", "e", "", "wan"}[pick(4)])
			}
			return One(Name([]string{"eth0", "eth1", "wan", "lo", ""}[pick(5)]))
		case IP4Src, IP4Dst, CTOrigSrc4, CTOrigDst4:
			return Prefix(netip.MustParsePrefix(somePrefix4[pick(len(somePrefix4))]))
		case IP6Src, IP6Dst, CTOrigSrc6, CTOrigDst6:
			return Prefix(netip.MustParsePrefix(somePrefix6[pick(len(somePrefix6))]))
		case L4Proto, CTProto:
			return One(Num(uint64(someProtos[pick(len(someProtos))])))
		case SPort, DPort, SetSPort, SetDPort, CTOrigSPort, CTOrigDPort:
			lo := uint64(somePorts[pick(len(somePorts))])
			hi := uint64(somePorts[pick(len(somePorts))])
			if pick(2) == 0 || hi < lo {
				hi = lo
			}
			return Nums(lo, hi)
		case CTState, CTStateNAT:
			return One(Num(1 << pick(f.Width())))
		case CTStatus:
			return One(Num(1 << pick(8)))
		}
		lo := someNumbers[pick(len(someNumbers))]
		return Nums(lo, lo+uint64(pick(3)))
	}
	rs := make([]Range, rapid.IntRange(1, 3).Draw(t, "ranges"))
	for i := range rs {
		rs[i] = one("value")
	}
	return rs
}

var testable = []Field{
	IIFName, OIFName, IIFIndex, OIFIndex, IIFGroup, OIFGroup, IIFType, NFProto, EtherType, IP4Src, IP4Src, IP4Dst, IP4Dst, IP6Src, IP6Dst, L4Proto, L4Proto,
	DSField, TTL, Length, FragOffset, FlowLabel, SPort, DPort, DPort, TCPFlags, ICMPType, SetSPort, Mark, Mark, CTState, CTState, CTStateNAT, CTStatus,
	CTDirection, CTMark, CTZone, CTProto, CTOrigSrc4, CTOrigDst4, CTOrigSrc6, CTOrigDst6, CTOrigSPort, CTOrigDPort, PhysIn, PhysOut, IPsecIn, PacketType, SrcAddrType, DstAddrType, EtherSrc, EtherDst,
}

func someTest(t *rapid.T) Test {
	f := rapid.SampledFrom(testable).Draw(t, "field")
	test := Test{Field: f, Ranges: someRanges(t, f), Not: rapid.IntRange(0, 3).Draw(t, "not") == 0}
	switch rapid.IntRange(0, 5).Draw(t, "mask") {
	case 0:
		test.Mask = Num(rapid.SampledFrom([]uint64{0xff00, 1, 2, 0x3f, 0xfffffffe, 0xff000000, 0x50, 6, 0x1fff}).Draw(t, "bits"))
	case 1:
		if f == CTState || f == CTStateNAT || f == TCPFlags || f == Mark {
			test.Mask, test.Ranges, test.Not = Num(rapid.SampledFrom([]uint64{2, 6, 8, 64, 128}).Draw(t, "states")), []Range{One(Num(0))}, true
		}
		if f == IP6Src || f == IP6Dst || f == CTOrigDst6 { // one value under a mask with holes: a host whose prefix changes
			test.Mask = rapid.SampledFrom([]Value{{Lo: ^uint64(0)}, {Lo: 0xff}, {Hi: 0xffff << 48, Lo: 1}, {Hi: 0xffff}}).Draw(t, "part")
			test.Ranges = []Range{One(test.Ranges[0].Lo.And(test.Mask))}
		}
	}
	return test
}

var setKeys = [][]Field{
	{IP4Src}, {IP4Dst}, {IP6Src}, {DPort}, {IP4Src, DPort}, {IP4Dst, L4Proto, SetDPort}, {IIFName}, {IP4Src, IP4Dst}, {Mark}, {IP4Dst, OIFName}, {CTState},
}

// loadedKeys are those of sets of nf_tables alone: fields that not every packet has.
var loadedKeys = [][]Field{{CTMark, IP4Dst}, {OIFGroup, L4Proto}, {TCPFlags, DPort}, {ICMPType, L4Proto}, {CTDirection, L4Proto}, {CTOrigDst4, CTOrigDPort}, {CTOrigDst6}, {CTProto, CTOrigDPort}}

// builder makes a rule set.
type builder struct {
	*rapid.T
	rs   *Ruleset
	keys [][]Field // of each set
	mask [][]Value // of its parts, if parts of fields are looked up

	verdictMap int // the set that is the table's verdict map, -1 if it has none
}

func (b *builder) n(from, to int, label string) int {
	return rapid.IntRange(from, to).Draw(b.T, label)
}

func (b *builder) counter() CounterID {
	b.rs.Counters = append(b.rs.Counters, Counter{})
	return CounterID(len(b.rs.Counters) - 1)
}

func (b *builder) set(dialect Dialect, chains []string) {
	keys := setKeys
	if dialect == NFT {
		keys = slices.Concat(keys, loadedKeys)
	}
	key := rapid.SampledFrom(keys).Draw(b.T, "key")
	s := Set{Dialect: dialect, Name: fmt.Sprint("set", len(b.rs.Sets)), Interval: true, Verdicts: chains != nil}
	for _, f := range key {
		s.Widths = append(s.Widths, f.Width())
	}
	s.Data = dialect == NFT && chains == nil && b.n(0, 1, "data") == 0
	counters := b.n(0, 3, "element counters") == 0
	for range b.n(0, 5, "elements") {
		e := Element{Counter: NoCounter, NoMatch: dialect == IPSet && b.n(0, 3, "nomatch") == 0}
		for _, f := range key {
			e.Key = append(e.Key, someRanges(b.T, f)[0])
		}
		if counters {
			e.Counter = b.counter()
		}
		if s.Data {
			e.Data = Num(uint64(b.n(0, 3, "data of an element")))
		}
		if chains != nil {
			v := b.verdict(chains)
			e.Verdict = &v
		}
		if b.n(0, 5, "expires") == 0 {
			e.Expires = 1000
		}
		s.Elements = append(s.Elements, e)
	}
	if b.n(0, 30, "unknown set") == 0 {
		s.Unknown = "some attribute"
	}
	b.rs.Sets = append(b.rs.Sets, s)
	b.keys = append(b.keys, key)
	var masks []Value
	if dialect == NFT && !s.Data && b.n(0, 4, "parts") == 0 {
		for _, f := range key {
			masks = append(masks, rapid.SampledFrom([]Value{{}, Num(0xf), Num(0xfc), Max(f.Width()).And(Num(0xf).Not())}).Draw(b.T, "mask").And(Max(f.Width())))
		}
	}
	b.mask = append(b.mask, masks)
}

func (b *builder) verdict(chains []string) Verdict {
	codes := []Code{Accept, Drop, Return, Continue, Jump, Jump, Jump, Goto}
	v := Verdict{Code: rapid.SampledFrom(codes).Draw(b.T, "verdict")}
	if v.Code == Jump || v.Code == Goto {
		if len(chains) == 0 {
			return Verdict{Code: Return}
		}
		v.Chain = rapid.SampledFrom(chains).Draw(b.T, "chain")
	}
	return v
}

func (b *builder) lookup() (Lookup, bool) {
	var plain []int
	for i, s := range b.rs.Sets {
		if !s.Verdicts {
			plain = append(plain, i)
		}
	}
	if len(plain) == 0 {
		return Lookup{}, false
	}
	i := rapid.SampledFrom(plain).Draw(b.T, "set")
	l := Lookup{Set: SetID(i), Key: b.keys[i], Masks: b.mask[i], Not: b.n(0, 2, "not in") == 0}
	if b.rs.Sets[i].Dialect == IPSet && b.n(0, 4, "list") == 0 {
		l.Of = []Lookup{{Set: l.Set, Key: l.Key}}
		l.Key = nil
	}
	return l, true
}

func (b *builder) mapped() (m SetByMap, ok bool) {
	to := rapid.SampledFrom([]Field{Mark, Mark, CTZone}).Draw(b.T, "mapped to")
	for i, s := range b.rs.Sets {
		if s.Data && (!ok || b.n(0, 1, "other map") == 0) {
			m, ok = SetByMap{Field: to, Set: SetID(i), Key: b.keys[i]}, true
		}
	}
	return m, ok
}

func (b *builder) rule(chains []string, number int) Rule {
	r := Rule{Number: number}
	for range b.n(0, 3, "steps") {
		switch b.n(0, 25, "step") {
		default:
			r.Steps = append(r.Steps, someTest(b.T))
		case 0, 1:
			r.Steps = append(r.Steps, AnyTest{Of: []Test{someTest(b.T), someTest(b.T)}, Not: b.n(0, 3, "none") == 0})
		case 2, 3, 4:
			if l, ok := b.lookup(); ok {
				r.Steps = append(r.Steps, l)
			}
		case 5, 6, 7:
			r.Steps = append(r.Steps, Count{Counter: b.counter()})
		case 16:
			if b.n(0, 3, "save") > 0 {
				r.Steps = append(r.Steps, SetField{Field: Mark, And: uint32(b.n(0, 1, "and")), From: CTMark, Mask: uint32(b.n(0, 3, "mask"))})
				break
			}
			r.Steps = append(r.Steps, SaveMark{And: rapid.SampledFrom([]uint32{0, 0xfffffffe, ^uint32(0)}).Draw(b.T, "and"), Xor: uint32(b.n(0, 1, "xor")), Mask: uint32(b.n(0, 3, "mask"))})
		case 17, 18:
			if m, ok := b.mapped(); ok {
				r.Steps = append(r.Steps, m)
			}
		case 8, 9:
			r.Steps = append(r.Steps, change(Mark, rapid.SampledFrom([]uint32{0, 0xfffffffe, ^uint32(0)}).Draw(b.T, "and"), uint32(b.n(0, 3, "xor"))))
		case 10:
			dscp := uint32(b.n(0, 64, "dscp"))
			if r.Steps = append(r.Steps, change(DSField, 3, dscp)); dscp%3 == 0 {
				r.Steps = append(r.Steps, change(Priority, 0, dscp))
			}
		case 11, 14, 15:
			r.Steps = append(r.Steps, NoTrack{})
		case 19, 20:
			r.Steps = append(r.Steps, SetZone{Zone: uint16(b.n(0, 3, "zone")), Dir: rapid.SampledFrom([]ZoneDir{ZoneBoth, ZoneBoth, ZoneOriginal, ZoneReply}).Draw(b.T, "for"), Back: b.n(0, 1, "back") == 1})
		case 12:
			if b.n(0, 3, "unknown") == 0 {
				r.Steps = append(r.Steps, Unknown{Name: fmt.Sprint("match of rule ", number)})
			}
		case 13:
			if b.n(0, 4, "slow") == 0 {
				r.Steps = append(r.Steps, Slow{Name: "log"})
			}
		}
	}
	if b.n(0, 1, "counter") == 0 {
		r.Steps = append(r.Steps, Count{Counter: b.counter()})
	}
	switch b.n(0, 9, "end") {
	case 0:
		if b.verdictMap >= 0 {
			r.Steps = append(r.Steps, VerdictMap{Set: SetID(b.verdictMap), Key: b.keys[b.verdictMap], Masks: b.mask[b.verdictMap]})
		}
	case 1:
	default:
		r.Steps = append(r.Steps, b.verdict(chains))
	}
	return r
}

var someFamilies = []Family{IP4, IP4, IP4, IP6, Inet, Inet, Netdev}

func (b *builder) table(i int) Table {
	t := Table{Family: rapid.SampledFrom(someFamilies).Draw(b.T, "family"), Name: fmt.Sprint("table", i), Dialect: Dialect(b.n(0, 1, "dialect"))}
	// Chains may jump to those before them, so that there are no loops.
	var chains []string
	b.verdictMap = -1
	for j := range b.n(0, 4, "chains") {
		c := Chain{Name: fmt.Sprint("chain", j)}
		for k := range b.n(0, 4, "rules") {
			c.Rules = append(c.Rules, b.rule(chains, k+1))
		}
		t.Chains = append(t.Chains, c)
		chains = append(chains, c.Name)
	}
	if len(chains) > 0 && b.n(0, 2, "map") == 0 {
		b.set(NFT, chains)
		b.verdictMap = len(b.rs.Sets) - 1
	}
	for j := range b.n(1, 3, "base chains") {
		hook := rapid.SampledFrom([]Hook{Prerouting, Forward, Forward, Postrouting}).Draw(b.T, "hook")
		if t.Family == Netdev {
			hook = rapid.SampledFrom([]Hook{Ingress, Egress}).Draw(b.T, "device hook")
		}
		c := Chain{Name: fmt.Sprint("base", j), Base: &Base{
			Hook: hook, Priority: rapid.SampledFrom([]int32{-300, -300, -150, 0, 0, 50}).Draw(b.T, "priority"), Order: j,
			Type: "filter", Policy: rapid.SampledFrom([]Code{Accept, Accept, Drop}).Draw(b.T, "policy"), Counter: NoCounter,
		}}
		if b.n(0, 1, "policy counter") == 0 {
			c.Base.Counter = b.counter()
		}
		if t.Family == Netdev {
			c.Base.Devices = rapid.SampledFrom([][]string{{"eth0"}, {"eth*"}, {"wan", "eth1"}, nil}).Draw(b.T, "devices")
		}
		if b.n(0, 11, "nat") == 0 && t.Family != Netdev {
			c.Base.Type, c.Base.Priority = "nat", -100
		}
		if b.n(0, 60, "unknown chain") == 0 {
			c.Base.Unknown = []string{"offload"}
		}
		for k := range b.n(0, 6, "rules") {
			c.Rules = append(c.Rules, b.rule(chains, k+1))
		}
		t.Chains = append(t.Chains, c)
	}
	return t
}

func someRuleset(t *rapid.T) *Ruleset {
	b := &builder{T: t, rs: &Ruleset{}}
	for range b.n(0, 2, "sets") {
		b.set(NFT, nil)
	}
	for range b.n(0, 2, "ipsets") {
		b.set(IPSet, nil)
	}
	for i := range b.n(1, 3, "tables") {
		b.rs.Tables = append(b.rs.Tables, b.table(i))
	}
	return b.rs
}

func somePacket(t *rapid.T, family Family) Packet {
	n := func(from, to int, label string) int { return rapid.IntRange(from, to).Draw(t, label) }
	near := func(label string) uint64 {
		return max(1, rapid.SampledFrom(someNumbers).Draw(t, label)) - 1 + uint64(n(0, 2, label+" near"))
	}
	addr := func(label string) netip.Addr {
		if family == IP6 {
			return netip.MustParseAddr(rapid.SampledFrom(some6).Draw(t, label))
		}
		return netip.MustParseAddr(rapid.SampledFrom(some4).Draw(t, label))
	}
	port := func(label string) uint16 {
		return rapid.SampledFrom(somePorts).Draw(t, label) + uint16(n(0, 1, label+" near"))
	}
	p := Packet{
		IIF: rapid.SampledFrom(someDevices).Draw(t, "iif"), OIF: rapid.SampledFrom(someDevices).Draw(t, "oif"),
		Src: addr("src"), Dst: addr("dst"), Proto: rapid.SampledFrom(someProtos).Draw(t, "proto"),
		SPort: port("sport"), DPort: port("dport"), TCPFlags: uint8(near("flags")), ICMPType: uint16(near("icmp")),
		TTL: uint8(near("ttl") + rapid.SampledFrom([]uint64{0, 1, 2, 60}).Draw(t, "ttl room")), DSField: uint8(near("ds")), Length: uint16(near("length")), EtherPadding: n(0, 2, "padding"), EtherSrc: near("mac"), EtherDst: near("to mac"),
		Mark: uint32(near("mark")),
	}
	if n(0, 2, "bridge") > 0 {
		p.PhysIn = rapid.SampledFrom(someDevices).Draw(t, "port in")
		if p.PhysIn != (Device{}) && n(0, 1, "bridged") == 1 {
			p.PhysOut = rapid.SampledFrom(someDevices).Draw(t, "port out")
		}
	}
	if family == IP4 && n(0, 5, "fragment") == 0 {
		p.FragOffset = uint16(near("offset"))
	}
	if n(0, 2, "tracked") > 0 {
		p.CT = &Connection{
			State: rapid.SampledFrom([]uint8{CTEstablished, CTEstablished, CTRelated, CTNew}).Draw(t, "state"),
			Reply: n(0, 1, "reply") == 1, Status: uint32(near("status")), Mark: uint32(near("ctmark")), Zone: uint16(near("zone")),
			First: &Ends{Src: addr("first src"), Dst: addr("first dst"), SPort: port("first sport"), DPort: port("first dport"), Proto: p.Proto},
		}
	}
	return p
}
