// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
	rs "github.com/shuntnet/shunt/internal/model/ruleset"
	"golang.org/x/sys/unix"
)

// translated are the steps of a rule of a table that has the sets.
func translated(family byte, rule Rule, sets ...Set) []rs.Step {
	rule.Family, rule.Table, rule.Chain = family, "t", "c"
	for i := range sets {
		sets[i].Family, sets[i].Table = family, "t"
	}
	d := &Dump{Tables: []Table{{Family: family, Name: "t"}}, Chains: []Chain{{Family: family, Table: "t", Name: "c", Rules: []*Rule{&rule}}}, Sets: sets}
	out := &rs.Ruleset{}
	Translate(d, out, xtables.Context{})
	return out.Tables[0].Chains[0].Rules[0].Steps
}

// left says whether some step leaves packets to Linux.
func left(steps []rs.Step) bool {
	return slices.ContainsFunc(steps, func(s rs.Step) bool {
		switch s.(type) {
		case rs.Unknown, rs.Slow:
			return true
		}
		return false
	})
}

// TestSetOfParts: a set of one rule's own becomes a list of ranges where a part of a field is looked up, unless an element does something or means everything.
func TestSetOfParts(t *testing.T) {
	const addrType = 7
	for what, c := range map[string]struct {
		element Element
		left    bool
	}{
		"plain":         {Element{Key: []byte{10, 77, 9, 0}}, false},
		"a counter":     {Element{Key: []byte{10, 77, 9, 0}, Exprs: []Expr{&Counter{}}}, true},
		"an end":        {Element{Key: []byte{10, 77, 9, 0}, Expires: 5000}, true},
		"for all":       {Element{CatchAll: true}, true},
		"something new": {Element{Key: []byte{10, 77, 9, 0}, Exprs: []Expr{&Opaque{"new", "?"}}}, true},
	} {
		set := Set{Name: "__set0", Flags: SetAnonymous | SetConstant, KeyType: addrType, KeyLen: 4, Elements: []Element{{Key: []byte{10, 77, 2, 0}}, c.element}}
		steps := translated(familyIP4, Rule{Exprs: []Expr{&Payload{Base: baseNetwork, Offset: 16, Len: 4}, &Bitwise{Len: 4, Src2: NoReg, Mask: []byte{255, 255, 255, 0}, Xor: make([]byte, 4)},
			&Lookup{Set: "__set0", Dst: NoReg}}}, set)
		if got := left(steps); got != c.left {
			t.Errorf("%s: %+v", what, steps)
		}
	}
}

// TestMatchBehindProtocol: a match of iptables that reads a header is understood where the rule has asked for its protocol before, whatever who added it said of that.
func TestMatchBehindProtocol(t *testing.T) {
	asked := func(proto byte) []Expr { return []Expr{&Meta{Key: 16}, &Cmp{Data: []byte{proto}}} }
	tcp := &XT{Name: "tcp", Info: []byte{0, 0, 255, 255, 0, 0, 255, 255, 0, 2, 2, 0}}
	icmp := &XT{Name: "icmp", Info: []byte{8, 0, 255, 0}}
	ports := &XT{Name: "multiport", Revision: 1, Info: append([]byte{1, 1, 80, 0}, make([]byte, 44)...)}
	for what, c := range map[string]struct {
		rule Rule
		left bool
	}{
		"tcp":                             {Rule{Exprs: append(asked(unix.IPPROTO_TCP), tcp)}, false},
		"icmp":                            {Rule{Exprs: append(asked(unix.IPPROTO_ICMP), icmp)}, false},
		"ports":                           {Rule{Exprs: append(asked(132), ports)}, false},
		"as it was added":                 {Rule{Compat: &Compat{Proto: unix.IPPROTO_TCP}, Exprs: append(asked(unix.IPPROTO_TCP), tcp)}, false},
		"no protocol":                     {Rule{Compat: &Compat{Proto: unix.IPPROTO_TCP}, Exprs: []Expr{tcp}}, true},
		"icmp alone":                      {Rule{Exprs: []Expr{icmp}}, true},
		"ports alone":                     {Rule{Exprs: []Expr{ports}}, true},
		"another":                         {Rule{Exprs: append(asked(17), tcp)}, true},
		"another than when it was added":  {Rule{Compat: &Compat{Proto: 17}, Exprs: append(asked(unix.IPPROTO_TCP), ports)}, true},
		"its protocol, but behind it":     {Rule{Exprs: append([]Expr{tcp}, asked(unix.IPPROTO_TCP)...)}, true},
		"a match that reads no transport": {Rule{Exprs: []Expr{&XT{Name: "ttl", Info: []byte{0, 9}}}}, false},
	} {
		if steps := translated(familyIP4, c.rule); left(steps) != c.left {
			t.Errorf("%s: %+v", what, steps)
		}
	}
}

// TestRegistersKeepWhatWasLoaded: a field that was loaded before the rule changes it is what it was before. That is not modelled; what is loaded behind is, and what did not change.
func TestRegistersKeepWhatWasLoaded(t *testing.T) {
	const mark = 3
	other := Reg(4)
	load, again := &Meta{Key: mark}, &Meta{Key: mark, Dst: other}
	five := &Immediate{Dst: other, Data: Data{Bytes: []byte{5, 0, 0, 0}}}
	set := &Meta{Key: mark, Write: true, Src: other}
	is := func(r Reg) Expr { return &Cmp{Src: r, Data: []byte{7, 0, 0, 0}} }
	masked := &Bitwise{Len: 4, Src2: NoReg, Mask: []byte{255, 0, 0, 0}, Xor: make([]byte, 4)}
	ctMark, ctState := &CT{Key: 3, Dir: -1}, &CT{Key: 0, Dir: -1}
	setConn := &CT{Key: 3, Dir: -1, Write: true, Src: other}
	header := func(at uint32) Expr { return &Payload{Base: baseNetwork, Offset: at, Len: 1, Dst: 8} }
	setTOS := []Expr{&Payload{Base: baseNetwork, Len: 2, Dst: other}, &Bitwise{Src: other, Dst: other, Src2: NoReg, Len: 2, Mask: []byte{255, 3}, Xor: []byte{0, 32}},
		&Payload{Base: baseNetwork, Len: 2, Write: true, Src: other, Checksum: [3]uint32{1, 10, 0}}}
	isTOS := &Cmp{Src: 8, Data: []byte{32}}
	for what, c := range map[string]struct {
		exprs []Expr
		left  bool
	}{
		"loaded before":             {[]Expr{load, five, set, is(0)}, true},
		"and masked":                {[]Expr{load, masked, five, set, is(0)}, true},
		"masked behind":             {[]Expr{load, five, set, masked, is(0)}, true},
		"asked before":              {[]Expr{load, is(0), five, set}, false},
		"loaded again":              {[]Expr{load, five, set, again, is(other)}, false},
		"another field":             {[]Expr{ctMark, five, set, is(0)}, false},
		"by a target of iptables":   {[]Expr{load, &XT{Target: true, Name: "MARK", Revision: 2, Info: []byte{5, 0, 0, 0, 255, 255, 255, 255}}, is(0)}, true},
		"the mark of a connection":  {[]Expr{ctMark, five, setConn, is(0)}, true},
		"the state of a connection": {[]Expr{ctState, &NoTrack{}, is(0)}, true},
		"the state, asked before":   {[]Expr{ctState, is(0), &NoTrack{}}, false},
		"the TOS":                   {append(append([]Expr{header(1)}, setTOS...), isTOS), true},
		"the TTL":                   {append(append([]Expr{header(8)}, setTOS...), isTOS), false},
		"the TOS, loaded behind":    {append(append([]Expr{}, setTOS...), header(1), isTOS), false},
	} {
		if steps := translated(familyIP4, Rule{Exprs: c.exprs}); left(steps) != c.left {
			t.Errorf("%s: %+v", what, steps)
		}
	}
}

// TestMapOfParts: a verdict map, or a concatenation, of one rule's own is asked for parts of fields in terms of the fields; all else than whole bits of one field that stay is Linux's.
func TestMapOfParts(t *testing.T) {
	const addrType, markType, dscpType = 7, 19, 36
	verdict := func(key ...byte) Element { return Element{Key: key, Data: &Data{Verdict: &VerdictData{Code: nfDrop}}} }
	of := func(typ, n uint32, elements ...Element) Set {
		return Set{Name: "__map0", Flags: SetAnonymous | SetConstant | SetMap, DataType: verdictType, KeyType: typ, KeyLen: n, Elements: elements}
	}
	named := of(markType, 4, verdict(1, 0, 0, 0))
	named.Flags = SetMap
	namedByte := of(dscpType, 1, verdict(7))
	namedByte.Flags = SetMap
	setOfByte := Set{Name: "__map0", KeyType: dscpType, KeyLen: 1, Elements: []Element{{Key: []byte{7}}}}
	both := Set{Name: "__map0", Flags: SetAnonymous | SetConstant | SetConcat, KeyType: addrType<<6 | dscpType, KeyLen: 8, Elements: []Element{{Key: []byte{10, 0, 0, 1, 8, 0, 0, 0}}}}
	ask := &Lookup{Set: "__map0", Dst: Verdict, Map: true}
	mark := &Meta{Key: 3}
	and := func(mask ...byte) Expr {
		return &Bitwise{Len: uint32(len(mask)), Src2: NoReg, Mask: mask, Xor: make([]byte, len(mask))}
	}
	down := func(n, by uint32) Expr { return &Bitwise{Len: n, Src2: NoReg, Op: 2, Shift: by} }
	dscp := &Payload{Base: baseNetwork, Offset: 1, Len: 1}
	flowed := &Bitwise{Len: 4, Src2: NoReg, Mask: []byte{255, 0, 0, 0}, Xor: []byte{1, 0, 0, 0}}
	part := func(f rs.Field, mask uint64, ranges ...rs.Range) string {
		out := fmt.Sprintf("%s & %#x", f, mask)
		for _, r := range ranges {
			out += fmt.Sprintf(" %#x-%#x", r.Lo.Lo, r.Hi.Lo)
		}
		return out
	}
	const left = "left"
	for what, c := range map[string]struct {
		exprs  []Expr
		set    Set
		family byte
		want   string
	}{
		"low bits of a mark":          {[]Expr{mark, and(255, 0, 0, 0), ask}, of(markType, 4, verdict(1, 0, 0, 0), verdict(7, 0, 0, 0)), familyIP4, part(rs.Mark, 0xff, rs.Nums(1, 1), rs.Nums(7, 7))},
		"the mark of a connection":    {[]Expr{&CT{Key: 3, Dir: -1}, and(0, 255, 0, 0), ask}, of(markType, 4, verdict(0, 2, 0, 0)), familyIP4, part(rs.CTMark, 0xff00, rs.Nums(0x200, 0x200))},
		"shifted":                     {[]Expr{mark, and(0, 255, 0, 0), down(4, 8), ask}, of(markType, 4, verdict(2, 0, 0, 0)), familyIP4, part(rs.Mark, 0xff00, rs.Nums(0x200, 0x200))},
		"dscp":                        {[]Expr{dscp, and(0xfc), ask}, of(dscpType, 1, verdict(0x20)), familyIP4, part(rs.DSField, 0xfc, rs.Nums(0x20, 0x20))},
		"dscp, shifted":               {[]Expr{dscp, and(0xfc), down(1, 2), ask}, of(dscpType, 1, verdict(8)), familyIP4, part(rs.DSField, 0xfc, rs.Nums(0x20, 0x20))},
		"dscp of IPv6":                {[]Expr{&Payload{Base: baseNetwork, Len: 2}, and(0x0f, 0xc0), ask}, of(dscpType, 2, verdict(2, 0), verdict(2, 1)), familyIP6, part(rs.DSField, 0xfc, rs.Nums(0x20, 0x20))},
		"all others":                  {[]Expr{dscp, and(0xfc), down(1, 2), ask}, of(dscpType, 1, verdict(8), Element{CatchAll: true, Data: verdict().Data}), familyIP4, part(rs.DSField, 0xfc, rs.Nums(0x20, 0x20), rs.Nums(0, 0xff))},
		"of a network":                {[]Expr{&Payload{Base: baseNetwork, Offset: 16, Len: 4}, and(255, 255, 255, 0), ask}, of(addrType, 4, verdict(10, 7, 2, 0)), familyIP4, part(rs.IP4Dst, 0xffffff00, rs.Nums(0x0a070200, 0x0a070200))},
		"the lower byte of a field":   {[]Expr{&Payload{Base: baseNetwork, Offset: 19, Len: 1}, ask}, of(dscpType, 1, verdict(7)), familyIP4, part(rs.IP4Dst, 0xff, rs.Nums(7, 7))},
		"of it, in a named map":       {[]Expr{&Payload{Base: baseNetwork, Offset: 19, Len: 1}, ask}, namedByte, familyIP4, left},
		"of it, in a named set":       {[]Expr{&Payload{Base: baseNetwork, Offset: 19, Len: 1}, &Lookup{Set: "__map0", Dst: NoReg}}, setOfByte, familyIP4, left},
		"an address and dscp":         {[]Expr{&Payload{Base: baseNetwork, Offset: 12, Len: 4}, &Payload{Base: baseNetwork, Offset: 1, Len: 1, Dst: 1}, &Bitwise{Src: 1, Dst: 1, Len: 1, Src2: NoReg, Mask: []byte{0xfc}, Xor: []byte{0}}, &Bitwise{Src: 1, Dst: 1, Len: 1, Src2: NoReg, Op: 2, Shift: 2}, &Lookup{Set: "__map0", Dst: NoReg}}, both, familyIP4, "ip saddr & 0x0 0xa000001-0xa000001 dsfield & 0xfc 0x20-0x20"},
		"a bit is lost":               {[]Expr{dscp, and(0xfe), down(1, 2), ask}, of(dscpType, 1, verdict(8)), familyIP4, left},
		"shifted to the left":         {[]Expr{mark, and(255, 0, 0, 0), &Bitwise{Len: 4, Src2: NoReg, Op: 1, Shift: 8}, ask}, of(markType, 4, verdict(0, 1, 0, 0)), familyIP4, left},
		"shifted in network order":    {[]Expr{&Payload{Base: baseNetwork, Len: 2}, and(0x0f, 0xc0), down(2, 6), ask}, of(dscpType, 2, verdict(0, 8)), familyIP6, left},
		"masked when it was shifted":  {[]Expr{dscp, and(0xfc), down(1, 2), and(0x38), ask}, of(dscpType, 1, verdict(8)), familyIP4, left},
		"exclusive or":                {[]Expr{mark, flowed, ask}, of(markType, 4, verdict(1, 0, 0, 0)), familyIP4, left},
		"nothing left of it":          {[]Expr{mark, and(0, 0, 0, 0), ask}, of(markType, 4, verdict(0, 0, 0, 0)), familyIP4, left},
		"of two fields":               {[]Expr{&Payload{Base: baseNetwork, Offset: 8, Len: 2}, and(0xf0, 0xf0), ask}, of(dscpType, 2, verdict(0x40, 0x10)), familyIP4, left},
		"a map that has a name":       {[]Expr{mark, and(255, 0, 0, 0), ask}, named, familyIP4, left},
		"elements count":              {[]Expr{mark, and(255, 0, 0, 0), ask}, of(markType, 4, Element{Key: []byte{1, 0, 0, 0}, Data: verdict().Data, Exprs: []Expr{&Counter{}}}), familyIP4, left},
		"changed before it is asked":  {[]Expr{mark, and(255, 0, 0, 0), &Immediate{Dst: 4, Data: Data{Bytes: []byte{5, 0, 0, 0}}}, &Meta{Key: 3, Write: true, Src: 4}, ask}, of(markType, 4, verdict(1, 0, 0, 0)), familyIP4, left},
		"changed when it was shifted": {[]Expr{mark, and(0, 255, 0, 0), down(4, 8), &Immediate{Dst: 4, Data: Data{Bytes: []byte{5, 0, 0, 0}}}, &Meta{Key: 3, Write: true, Src: 4}, ask}, of(markType, 4, verdict(1, 0, 0, 0)), familyIP4, left},
	} {
		rule := Rule{Exprs: c.exprs, Family: c.family, Table: "t", Chain: "c"}
		c.set.Family, c.set.Table = c.family, "t"
		out := &rs.Ruleset{}
		Translate(&Dump{Tables: []Table{{Family: c.family, Name: "t"}}, Chains: []Chain{{Family: c.family, Table: "t", Name: "c", Rules: []*Rule{&rule}}}, Sets: []Set{c.set}}, out, xtables.Context{})
		var got string
		for _, s := range out.Tables[0].Chains[0].Rules[0].Steps {
			var l rs.Lookup
			switch s := s.(type) {
			case rs.VerdictMap:
				l = s.Lookup()
			case rs.Lookup:
				l = s
			case rs.Unknown:
				got = left
				continue
			default:
				continue
			}
			var parts []string
			for i, f := range l.Key {
				var ranges []rs.Range
				for _, e := range out.Sets[l.Set].Elements {
					ranges = append(ranges, e.Key[i])
				}
				parts = append(parts, part(f, l.Masks[i].Lo, ranges...))
			}
			got = strings.Join(parts, " ")
		}
		if got != c.want {
			t.Errorf("%s: %q, not %q: %+v", what, got, c.want, out.Tables[0].Chains[0].Rules[0].Steps)
		}
	}
}

// TestFrameTypes: rules of IP read the frame's type, which decides what the header behind it is; those of a device's ingress meet tags in front of it.
func TestFrameTypes(t *testing.T) {
	frame := []Expr{&Payload{Base: baseLink, Offset: 12, Len: 2}, &Cmp{Data: []byte{8, 0}}, &Payload{Base: baseNetwork, Offset: 12, Len: 4}, &Cmp{Data: []byte{10, 0, 0, 1}}}
	for family, want := range map[byte]bool{familyInet: false, familyIP4: false, familyBridge: false, familyNetdev: true} {
		if steps := translated(family, Rule{Exprs: frame}); left(steps) != want {
			t.Errorf("family %d: %+v", family, steps)
		}
	}
}

// TestByteTurned: a byte that is turned around as if it were two stays what it was.
func TestByteTurned(t *testing.T) {
	const protoThenPort = 12<<6 | 13
	set := Set{Name: "s", KeyType: protoThenPort, KeyLen: 8, Flags: SetInterval | SetConcat, Elements: []Element{{Key: []byte{6, 0, 0, 0, 0, 80, 0, 0}, KeyEnd: []byte{6, 0, 0, 0, 0, 90, 0, 0}}}}
	steps := translated(familyIP6, Rule{Exprs: []Expr{&Meta{Key: 16, Dst: 4}, &Byteorder{Src: 4, Dst: 4, Op: 1, Len: 1, Size: 2}, &Payload{Dst: 5, Base: baseTransport, Offset: 2, Len: 2}, &Lookup{Set: "s", Src: 4, Dst: NoReg}}}, set)
	if left(steps) {
		t.Errorf("%+v", steps)
	}
}

// TestPartOfClassWritten: what a rule has not loaded of IPv6's traffic class, which lies across two bytes, is kept when the rest is written.
func TestPartOfClassWritten(t *testing.T) {
	for what, c := range map[string]struct {
		offset, size uint32
		mask, xor    []byte
		and, set     uint32
	}{
		"ip6 ecn set ce":   {1, 1, []byte{0xcf}, []byte{0x30}, 0xfc, 0x03},
		"ip6 dscp set cs3": {0, 2, []byte{0xf0, 0x3f}, []byte{0x06, 0}, 0x03, 0x60},
	} {
		steps := translated(familyIP6, Rule{Exprs: []Expr{&Payload{Base: baseNetwork, Offset: c.offset, Len: c.size}, &Bitwise{Len: c.size, Src2: NoReg, Mask: c.mask, Xor: c.xor},
			&Payload{Base: baseNetwork, Offset: c.offset, Len: c.size, Write: true}}})
		if want := []rs.Step{rs.SetField{Field: rs.DSField, And: c.and, Xor: c.set, Payload: true}}; !slices.Equal(steps, want) {
			t.Errorf("%s: %+v, want %+v", what, steps, want)
		}
	}
}
