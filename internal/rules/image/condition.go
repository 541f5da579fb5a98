// SPDX-License-Identifier: Apache-2.0

package image

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// dimOf are the fields that a dimension stands for.
var dimOf = map[ruleset.Field]Dim{
	ruleset.IP4Src: Src, ruleset.IP6Src: Src, ruleset.IP4Dst: Dst, ruleset.IP6Dst: Dst,
	ruleset.DPort: DPort, ruleset.SPort: SPort, ruleset.L4Proto: Proto,
}

// valueOf are the fields that can be asked for one by one.
var valueOf = map[ruleset.Field]value{
	ruleset.TCPFlags: vTCPFlags, ruleset.ICMPType: vICMP, ruleset.DSField: vDS, ruleset.TTL: vTTL, ruleset.Length: vLength, ruleset.Mark: vMark,
	ruleset.L4Proto: vProto, ruleset.SPort: vSPort, ruleset.DPort: vDPort, ruleset.IP4Src: vSrc, ruleset.IP4Dst: vDst, ruleset.IP4ID: vID,
	ruleset.FragOffset: vFrag, ruleset.FlowLabel: vFlow, ruleset.CTState: vCTState, ruleset.CTStatus: vCTStatus, ruleset.CTMark: vCTMark,
	ruleset.CTDirection: vCTDir, ruleset.CTZone: vCTZone, ruleset.RouteBack: vBack, ruleset.RouteBackBy: vBackBy,
	ruleset.CTOrigSrc4: vOrigSrc, ruleset.CTOrigDst4: vOrigDst, ruleset.CTOrigSPort: vOrigPorts, ruleset.CTOrigDPort: vOrigPorts,
}

// ofConnection says whether a field belongs to the packet's connection.
func ofConnection(f ruleset.Field) bool {
	return f == ruleset.CTState || f == ruleset.CTStateNAT || f.OfConnection()
}

// unicast is RTN_UNICAST.
var unicast = ruleset.Num(1)

// constant is the value that a field has for all packets that come as far as the rules.
func (l *lowering) constant(f ruleset.Field, at place) (ruleset.Value, bool) {
	switch f {
	case ruleset.CTState, ruleset.CTStateNAT:
		if l.untrack || l.zoned && !at.tracked {
			return ruleset.Value{}, false
		}
		if !at.tracked { // who is kept out of connection tracking goes to Linux there
			return ruleset.Num(ruleset.CTInvalid), true
		}
		return ruleset.Num(ruleset.CTEstablished), l.o.CT && f == ruleset.CTState
	case ruleset.PacketType: // to the host, by the Ethernet header
		return ruleset.Num(0), true
	case ruleset.DstAddrType: // before the route a packet may yet be for the host
		known := at.routed() && l.pr.Class.LocalFirst
		l.receiver = l.receiver || known && l.pr.Class.Family == ruleset.IP6
		return unicast, known
	case ruleset.SrcAddrType: // the program proves it, of who gets as far, if one is asked for
		l.sender = l.sender || l.pr.Class.LocalFirst
		return unicast, l.pr.Class.LocalFirst
	}
	return ruleset.Value{}, false
}

// place is where in the packet's way a condition is asked.
type place struct {
	hook    ruleset.Hook
	tracked bool
}

// routed says whether the way out is known there, so that the packet is a forwarded one.
func (p place) routed() bool {
	return p.hook == ruleset.Forward || p.hook == ruleset.Postrouting || p.hook == ruleset.Egress
}

func placeOf(c rules.Cond) place { return place{c.Hook(), c.Tracked()} }

// outcome is what became of the attempt to express a condition.
type outcome uint8

const (
	said   outcome = iota
	unsaid         // it cannot be expressed
	never          // no packet satisfies it
)

// conditions translates what an entry of the program asks. open is a set that is not expressed as conditions. Where not all is said, the result
// asks less than the entry.
func (l *lowering) conditions(e *rules.Entry) (out entry, open *ruleset.Lookup, complete, none bool) {
	complete = true
	var at ruleset.Step
	note := func(o outcome) {
		if o == unsaid {
			l.cannot("%s", l.words(at))
		}
		complete = complete && o != unsaid
		none = none || o == never
	}
	for _, c := range e.When {
		at = c.Of
		switch s := c.Of.(type) {
		case ruleset.Test:
			note(l.test(&out, s, placeOf(c)))
		case ruleset.AnyTest:
			note(l.any(&out, s, placeOf(c)))
		case ruleset.Lookup:
			if set, ok := l.liveSet(s); ok {
				out.conds = append(slices.Clip(out.conds), cond{set: set, not: s.Not})
			} else if t, ok := l.plainSet(s); ok {
				note(l.test(&out, t, placeOf(c)))
			} else if open == nil && e.Then != rules.ByMap {
				open = &s
			} else {
				note(unsaid)
			}
		default:
			note(unsaid)
		}
	}
	return out, open, complete, none
}

// words name what a condition asks for.
func (l *lowering) words(s ruleset.Step) string {
	switch s := s.(type) {
	case ruleset.Test:
		return "lookup of " + s.Field.String()
	case ruleset.AnyTest:
		return "lookup of " + s.Of[0].Field.String() + " or another"
	}
	return rules.StepText(l.pr.Rules(), s)
}

// test adds a test to an entry.
func (l *lowering) test(out *entry, t ruleset.Test, at place) outcome {
	if side, ok := sideOf(t.Field); ok {
		if side == OIF && at.hook <= ruleset.Prerouting || side == IIF && at.hook == ruleset.Egress { // not known there
			return decided(holds(t, rules.Device{}))
		}
		if side == PhysOut && at.hook <= ruleset.Prerouting { // asked otherwise there: rules.Flatten
			return unsaid
		}
		if len(l.devices) == 0 { // where rules are compiled for a device that is not here
			return unsaid
		}
		return out.ask(side, l.deviceRanges(deviceAsk{side: side, of: []ruleset.Test{t}}), 32)
	}
	if t.Field == ruleset.CTStateNAT && at.tracked {
		if !l.o.CT || l.untrack {
			return unsaid
		}
		var settled, holds bool
		if t, settled, holds = translation(t); settled {
			return decided(holds)
		}
	}
	if v, ok := l.constant(t.Field, at); ok {
		rs, plain := rules.Ranges(t)
		if !plain {
			return unsaid
		}
		return decided(slices.ContainsFunc(rs, func(r ruleset.Range) bool { return r.Has(v) }))
	}
	rs, plain := rules.Ranges(t)
	if plain && len(rs) == 0 {
		return never
	}
	if d, ok := dimOf[t.Field]; ok && plain && l.o.Valued&(1<<d) == 0 {
		return out.ask(d, rs, t.Field.Width())
	}
	switch t.Field {
	case ruleset.EtherSrc:
		return out.mac(rs, plain, vMACHigh, vMACLow)
	case ruleset.EtherDst:
		return out.mac(rs, plain, vToHigh, vToLow)
	case ruleset.IP6Src:
		return out.masked6(t, 0)
	case ruleset.IP6Dst:
		return out.masked6(t, 4)
	case ruleset.CTOrigSrc6, ruleset.CTOrigDst6, ruleset.CTProto:
		return l.ofFirst(out, t, rs, plain, at)
	}
	x, ok := l.single(t, at.hook, true)
	if !ok {
		return unsaid
	}
	out.conds = append(slices.Clip(out.conds), cond{of: []test{x}})
	return said
}

// Bits of a connection's status, enum ip_conntrack_status.
const (
	ipsSrcNAT = 1 << 4
	ipsDstNAT = 1 << 5
)

// translation makes a test of the state with the bits of NAT one of the connection's status alone: what gets as far is established, translated or not. It may be settled by that.
func translation(t ruleset.Test) (of ruleset.Test, settled, holds bool) {
	of = ruleset.Test{Field: ruleset.CTStatus, Mask: ruleset.Num(ipsSrcNAT | ipsDstNAT)}
	for _, way := range []struct{ state, status uint64 }{{0, 0}, {ruleset.CTSNAT, ipsSrcNAT}, {ruleset.CTDNAT, ipsDstNAT}, {ruleset.CTSNAT | ruleset.CTDNAT, ipsSrcNAT | ipsDstNAT}} {
		state := ruleset.CTEstablished | way.state
		if t.Mask != (ruleset.Value{}) {
			state &= t.Mask.Lo
		}
		if slices.ContainsFunc(t.Ranges, func(r ruleset.Range) bool { return r.Has(ruleset.Num(state)) }) != t.Not {
			of.Ranges = append(of.Ranges, ruleset.One(ruleset.Num(way.status)))
		}
	}
	return of, len(of.Ranges)%4 == 0, len(of.Ranges) == 4
}

// mac adds a test for one address of frames, or for all but one: a value has 32 bits, so it is asked for in two parts.
func (e *entry) mac(rs []ruleset.Range, plain bool, upper, lower value) outcome {
	others := len(rs) != 1 || rs[0].Lo != rs[0].Hi
	if others {
		rs = rules.Without(rs, ruleset.EtherSrc.Width())
	}
	if !plain || len(rs) != 1 || rs[0].Lo != rs[0].Hi {
		return unsaid
	}
	part := func(of value, v uint64) cond {
		return cond{of: []test{{of: of, mask: ^uint32(0), ranges: []ruleset.Range{ruleset.One(ruleset.Num(v))}}}}
	}
	high, low := part(upper, rs[0].Lo.Lo>>32), part(lower, rs[0].Lo.Lo&0xffffffff)
	e.conds = slices.Clip(e.conds)
	if !others {
		e.conds = append(e.conds, high, low)
		return said
	}
	high.of[0].not, low.of[0].not = true, true
	e.conds = append(e.conds, cond{of: []test{high.of[0], low.of[0]}})
	return said
}

// ofFirst adds a test of the connection that is asked in parts, of packets that have one.
func (l *lowering) ofFirst(out *entry, t ruleset.Test, rs []ruleset.Range, plain bool, at place) outcome {
	switch {
	case l.missing(t.Field):
		return never
	case !l.o.CT:
		return unsaid
	}
	some := func(of value) {
		out.conds = append(slices.Clip(out.conds), cond{of: []test{{of: of, mask: ^uint32(0), ranges: []ruleset.Range{{Hi: ruleset.Max(32)}}}}})
	}
	if t.Field == ruleset.CTProto { // that of the packet: errors about the connection do not come to rules
		some(vCTDir)
		return l.test(out, ruleset.Test{Field: ruleset.L4Proto, Ranges: rs}, at)
	}
	some(vOrigPorts) // addresses are taken along with ports
	if plain {
		if len(rs) == 1 && rs[0] == (ruleset.Range{Hi: ruleset.Max(128)}) {
			return said
		}
		if t.Not = len(rs) != 1 || !isPrefix(rs[0]); t.Not { // all but one prefix
			rs = rules.Without(rs, 128)
		}
		if len(rs) != 1 || !isPrefix(rs[0]) {
			return unsaid
		}
		t.Mask, t.Ranges = rs[0].Lo.Xor(rs[0].Hi).Not(), []ruleset.Range{ruleset.One(rs[0].Lo)}
	}
	return out.masked6(t, map[ruleset.Field]value{ruleset.CTOrigSrc6: 8, ruleset.CTOrigDst6: 12}[t.Field])
}

// isPrefix says whether a range is all that begins with the same bits.
func isPrefix(r ruleset.Range) bool {
	host := r.Lo.Xor(r.Hi)
	return host.And(host.Next()) == (ruleset.Value{}) && r.Lo.And(host) == (ruleset.Value{})
}

// masked6 adds a test of an IPv6 address under a mask with holes (ip6 daddr & ::ffff:ffff:ffff:ffff, a host whose prefix changes), or of all but one: a value has 32 bits, so it is asked for
// in as many parts as the mask has bits in. first is the address's first word.
func (e *entry) masked6(t ruleset.Test, first value) outcome {
	if t.Mask == (ruleset.Value{}) || len(t.Ranges) != 1 || t.Ranges[0].Lo != t.Ranges[0].Hi {
		return unsaid
	}
	want := t.Ranges[0].Lo
	var words []test
	for n, half := range [][2]uint64{{t.Mask.Hi >> 32, want.Hi >> 32}, {t.Mask.Hi, want.Hi}, {t.Mask.Lo >> 32, want.Lo >> 32}, {t.Mask.Lo, want.Lo}} {
		mask, v := uint32(half[0]), uint32(half[1])
		if mask != 0 || v != 0 {
			words = append(words, test{of: first + value(n), word6: true, mask: mask, ranges: []ruleset.Range{ruleset.One(ruleset.Num(uint64(v)))}, not: t.Not})
		}
	}
	e.conds = slices.Clip(e.conds)
	if t.Not {
		e.conds = append(e.conds, cond{of: words})
		return said
	}
	for _, w := range words {
		e.conds = append(e.conds, cond{of: []test{w}})
	}
	return said
}

func decided(holds bool) outcome {
	if holds {
		return said
	}
	return never
}

// single makes a test of one value. A plain test asks for the TTL as received.
func (l *lowering) single(t ruleset.Test, hook ruleset.Hook, alone bool) (test, bool) {
	v, ok := valueOf[t.Field]
	if !ok || !l.o.CT && ofConnection(t.Field) || (v == vBack || v == vBackBy) && !l.pr.Class.RouteBack || t.Field == ruleset.TTL && !alone && hook > ruleset.Prerouting {
		return test{}, false
	}
	if v == vOrigPorts {
		return ofPorts(t)
	}
	if rs, plain := rules.Ranges(t); plain {
		mask := ^uint32(0)
		if len(rs) > maxRanges && t.Field.Width() <= 16 {
			mask, rs = masked(rs, t.Field.Width())
		}
		return test{of: v, mask: mask, ranges: rs}, len(rs) <= maxRanges
	}
	mask := uint32(t.Mask.Lo)
	if t.Mask == (ruleset.Value{}) {
		mask = ^uint32(0)
	}
	return test{of: v, mask: mask, ranges: t.Ranges, not: t.Not}, true
}

// ofPorts makes a test of one of the ports of a connection's first packet.
func ofPorts(t ruleset.Test) (test, bool) {
	rs, plain := rules.Ranges(t)
	x := test{of: vOrigPorts, mask: 0xffff, ranges: rs}
	if t.Field == ruleset.CTOrigSPort {
		x.mask, x.ranges = 0xffff0000, nil
		for _, r := range rs {
			x.ranges = append(x.ranges, ruleset.Nums(r.Lo.Lo<<16, r.Hi.Lo<<16))
		}
	}
	return x, plain && len(rs) <= maxRanges
}

// maxRanges is how many ranges a condition may have that is asked one by one.
const maxRanges = 64

// masked finds the bits of a field of up to 16 bits that decide whether a value is in the ranges, and the ranges of these. A test of single bits
// (tcp flags & syn) has become very many ranges of the whole field.
func masked(rs []ruleset.Range, width int) (mask uint32, out []ruleset.Range) {
	in := make([]bool, 1<<width)
	for _, r := range rs {
		for v := r.Lo.Lo; v <= r.Hi.Lo; v++ {
			in[v] = true
		}
	}
	for v := range in {
		for bit := 1; bit < len(in); bit <<= 1 {
			if in[v] != in[v^bit] {
				mask |= uint32(bit)
			}
		}
	}
	for v := range in {
		if in[v] && uint32(v)&^mask == 0 {
			out = append(out, ruleset.One(ruleset.Num(uint64(v))))
		}
	}
	return mask, rules.Normal(out, width)
}

// any adds a condition of which one test has to hold, or none.
func (l *lowering) any(out *entry, s ruleset.AnyTest, at place) outcome {
	if side, ok := sideOf(s.Of[0].Field); ok {
		for _, t := range s.Of { // flattening has decided those of devices that are not known at the hook
			if other, ok := sideOf(t.Field); !ok || other != side {
				return unsaid
			}
		}
		if len(l.devices) == 0 {
			return unsaid
		}
		return out.ask(side, l.deviceRanges(deviceAsk{side: side, of: s.Of, not: s.Not}), 32)
	}
	c := cond{not: s.Not}
	for _, t := range s.Of {
		if _, ok := l.constant(t.Field, at); ok {
			var none entry
			switch l.test(&none, t, at) {
			case unsaid:
				return unsaid
			case said:
				return decided(!s.Not)
			}
			continue
		}
		x, ok := l.single(t, at.hook, false)
		if !ok {
			return unsaid
		}
		c.of = append(c.of, x)
	}
	if len(c.of) == 0 {
		return decided(s.Not)
	}
	out.conds = append(slices.Clip(out.conds), c)
	return said
}

// sideOf says which of the packet's devices a field belongs to.
func sideOf(f ruleset.Field) (Dim, bool) {
	switch f {
	case ruleset.IIFName, ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType:
		return IIF, true
	case ruleset.OIFName, ruleset.OIFIndex, ruleset.OIFGroup, ruleset.OIFType:
		return OIF, true
	case ruleset.PhysIn:
		return PhysIn, true
	case ruleset.PhysOut:
		return PhysOut, true
	}
	return 0, false
}

// holds decides a test of a device's field.
func holds(t ruleset.Test, d rules.Device) bool {
	v, there := d.Field(t.Field)
	there = there && d.Index != noPort
	if t.Mask != (ruleset.Value{}) {
		v = v.And(t.Mask)
	}
	return there && slices.ContainsFunc(t.Ranges, func(r ruleset.Range) bool { return r.Has(v) }) != t.Not
}

// deviceRanges are the indexes of the devices that satisfy a condition.
func (l *lowering) deviceRanges(ask deviceAsk) (rs []ruleset.Range) {
	l.asks = append(l.asks, ask)
	for _, d := range sideDevices(ask.side, l.devices) {
		if ask.holds(d) {
			rs = append(rs, ruleset.One(ruleset.Num(uint64(d.Index))))
		}
	}
	return rules.Normal(rs, 32)
}

// noPort is in the place of the index of a port that a packet lacks: SHUNT_NO_PORT.
const noPort = 1<<31 - 1

// sideDevices are the devices that a dimension can stand for: of a bridge's ports none too, and of that where a packet goes one that it lacks.
func sideDevices(side Dim, devices []rules.Device) []rules.Device {
	switch side {
	case PhysIn:
		return append(slices.Clip(devices), rules.Device{})
	case PhysOut:
		return append(slices.Clip(devices), rules.Device{}, rules.Device{Index: noPort})
	}
	return devices
}

// ask adds a condition on a dimension.
func (e *entry) ask(d Dim, rs []ruleset.Range, width int) outcome {
	a := &e.dims[d]
	if a.is {
		rs = rules.Intersect(a.values, rs)
	}
	*a = asked{true, rs}
	if len(rs) == 0 {
		return never
	}
	if len(rs) == 1 && rs[0] == (ruleset.Range{Hi: ruleset.Max(width)}) && d != DPort && d != SPort { // these may be missing
		*a = asked{}
	}
	return said
}

// and is the entry for the packets that are in an element of a set too; none when there are none.
func (e entry) and(c choice) (out entry, none bool) {
	out = e
	for d := range NumDims {
		if a := c.entry.dims[d]; a.is {
			none = none || out.ask(d, a.values, 128) == never
		}
	}
	if len(c.entry.conds) > 0 {
		out.conds = slices.Concat(out.conds, c.entry.conds)
	}
	return out, none
}
