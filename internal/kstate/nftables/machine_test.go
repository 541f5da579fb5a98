// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
	rs "github.com/shuntnet/shunt/internal/model/ruleset"
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
		"tcp":                             {Rule{Exprs: append(asked(protoTCP), tcp)}, false},
		"icmp":                            {Rule{Exprs: append(asked(protoICMP), icmp)}, false},
		"ports":                           {Rule{Exprs: append(asked(132), ports)}, false},
		"as it was added":                 {Rule{Compat: &Compat{Proto: protoTCP}, Exprs: append(asked(protoTCP), tcp)}, false},
		"no protocol":                     {Rule{Compat: &Compat{Proto: protoTCP}, Exprs: []Expr{tcp}}, true},
		"icmp alone":                      {Rule{Exprs: []Expr{icmp}}, true},
		"ports alone":                     {Rule{Exprs: []Expr{ports}}, true},
		"another":                         {Rule{Exprs: append(asked(17), tcp)}, true},
		"another than when it was added":  {Rule{Compat: &Compat{Proto: 17}, Exprs: append(asked(protoTCP), ports)}, true},
		"its protocol, but behind it":     {Rule{Exprs: append([]Expr{tcp}, asked(protoTCP)...)}, true},
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
