// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// settle brings a test into its plain form, and decides it if the class and the place do: fixed, and whether it holds.
func (f *flattener) settle(s ruleset.Step) (out ruleset.Step, fixed, holds bool) {
	switch s := s.(type) {
	case ruleset.Test:
		return f.settleTest(s)
	case ruleset.AnyTest:
		return f.settleAny(s)
	case ruleset.Lookup:
		if s.Of == nil && slices.ContainsFunc(s.Key, func(x ruleset.Field) bool { return f.has(x) == never }) {
			return s, true, s.Not && f.ix.rs.Sets[s.Set].Dialect != ruleset.NFT
		}
	}
	return s, false, false
}

func (f *flattener) settleAny(s ruleset.AnyTest) (ruleset.Step, bool, bool) {
	var open []ruleset.Test
	for _, t := range s.Of {
		t = f.before(t)
		_, fixed, holds := f.settleTest(t)
		if fixed && holds {
			return s, true, !s.Not
		}
		if !fixed {
			open = append(open, t)
		}
	}
	if len(open) == 0 {
		return s, true, s.Not
	}
	return ruleset.AnyTest{Of: open, Not: s.Not}, false, false
}

// before asks for the port that a packet is bridged to as far as it is known at prerouting: whoever came by a port lacks it still, and others have none.
func (f *flattener) before(t ruleset.Test) ruleset.Test {
	if t.Field != ruleset.PhysOut || f.place.hook != ruleset.Prerouting {
		return t
	}
	none := ruleset.Test{Field: ruleset.PhysIn}
	if satisfied(t, ruleset.Value{}) {
		none.Ranges = []ruleset.Range{ruleset.One(ruleset.Value{})}
	}
	return none
}

func (f *flattener) settleTest(t ruleset.Test) (ruleset.Step, bool, bool) {
	t = f.before(t)
	if v, p, known := f.constant(t.Field); known {
		return t, true, p == there && satisfied(t, v)
	}
	has := f.has(t.Field)
	if has == never {
		return t, true, false
	}
	rs, plain := ranges(t)
	if !plain {
		return t, false, false
	}
	if t.Field == ruleset.TTL && routed(f.place.hook) && !f.class.Bridged { // a bridge takes nothing off it
		rs = received(rs)
	}
	t = ruleset.Test{Field: t.Field, Ranges: rs}
	switch {
	case len(rs) == 0:
		return t, true, false
	case len(rs) == 1 && rs[0] == (ruleset.Range{Hi: ruleset.Max(t.Field.Width())}) && has == always:
		return t, true, true
	}
	return t, false, false
}

// received moves ranges of the TTL behind the routing decision to the TTL as received.
func received(rs []ruleset.Range) []ruleset.Range {
	var out []ruleset.Range
	for _, r := range rs {
		if r.Lo.Lo < 255 {
			out = append(out, ruleset.Nums(r.Lo.Lo+1, min(r.Hi.Lo+1, 255)))
		}
	}
	return out
}

// constant gives the value that a field has for the whole class at this place.
func (f *flattener) constant(x ruleset.Field) (ruleset.Value, presence, bool) {
	hook := f.place.hook
	switch x {
	case ruleset.IIFName, ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType:
		if hook == ruleset.Egress {
			return known(device(x, Device{}))
		}
		if f.class.IIF != nil {
			return known(device(x, *f.class.IIF))
		}
	case ruleset.OIFName, ruleset.OIFIndex, ruleset.OIFGroup, ruleset.OIFType:
		if !routed(hook) {
			return known(device(x, Device{}))
		}
		if f.class.OIF != nil {
			return known(device(x, *f.class.OIF))
		}
	case ruleset.NFProto:
		return ruleset.Num(uint64(f.class.Family)), there, true
	case ruleset.EtherType:
		if f.class.Family == ruleset.IP4 {
			return ruleset.Num(0x0800), there, true
		}
		return ruleset.Num(0x86dd), there, true
	case ruleset.PhysIn, ruleset.PhysOut:
		return ruleset.Value{}, there, hook == ruleset.Ingress || hook == ruleset.Egress
	case ruleset.IPsecIn, ruleset.IPsecOut:
		return ruleset.Value{}, there, true
	case ruleset.CTState, ruleset.CTStateNAT:
		if !f.place.tracked && f.epochs[ctGroup] == 0 {
			return ruleset.Num(ruleset.CTInvalid), there, true
		}
		if x == ruleset.CTState && f.place.tracked && f.class.Established && (f.epochs[ctGroup] == 0 || !f.any[untrackGroup]) {
			return ruleset.Num(ruleset.CTEstablished), there, true
		}
	}
	return ruleset.Value{}, absent, false
}

func known(v ruleset.Value, p presence) (ruleset.Value, presence, bool) { return v, p, true }

// how often something is so.
type how uint8

const (
	sometimes how = iota
	never
	always
)

// has says whether the packets of the class have a field at this place.
func (f *flattener) has(x ruleset.Field) how {
	four := f.class.Family == ruleset.IP4
	switch x {
	case ruleset.IP4Src, ruleset.IP4Dst, ruleset.IP4ID, ruleset.FragOffset:
		if four {
			return always
		}
		return never
	case ruleset.IP6Src, ruleset.IP6Dst, ruleset.FlowLabel:
		if four {
			return never
		}
		return always
	case ruleset.CTOrigSrc4, ruleset.CTOrigDst4:
		if !four {
			return never
		}
	case ruleset.CTOrigSrc6, ruleset.CTOrigDst6:
		if four {
			return never
		}
	case ruleset.SPort, ruleset.DPort, ruleset.SetSPort, ruleset.SetDPort, ruleset.TCPFlags, ruleset.ICMPType:
		return sometimes
	case ruleset.IIFGroup, ruleset.IIFType, ruleset.OIFGroup, ruleset.OIFType, ruleset.PhysOut:
		return sometimes
	}
	switch {
	case !x.OfConnection():
		return always
	case f.place.tracked:
		return sometimes
	}
	return never
}
