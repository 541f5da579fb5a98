// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nla"
)

// decoder of an expression. highest is the last attribute type that is understood.
type decoder struct {
	highest uint16
	decode  func(a *nla.Attrs) (Expr, error)
}

// decoders by name of the expression.
var decoders = map[string]decoder{
	"payload": {8, func(a *nla.Attrs) (Expr, error) {
		e := &Payload{Base: a.Uint32(2, 0), Offset: a.Uint32(3, 0), Len: a.Uint32(4, 0), Checksum: [3]uint32{a.Uint32(6, 0), a.Uint32(7, 0), a.Uint32(8, 0)}}
		e.Dst, e.Src, e.Write = eitherReg(a, 1, 5)
		return e, a.Need(2, 3, 4)
	}},
	"meta": {3, func(a *nla.Attrs) (Expr, error) {
		e := &Meta{Key: a.Uint32(2, 0)}
		e.Dst, e.Src, e.Write = eitherReg(a, 1, 3)
		return e, a.Need(2)
	}},
	"ct": {4, func(a *nla.Attrs) (Expr, error) {
		e := &CT{Key: a.Uint32(2, 0), Dir: -1}
		if a.V[3] != nil {
			e.Dir = int(a.Uint8(3))
		}
		e.Dst, e.Src, e.Write = eitherReg(a, 1, 4)
		return e, a.Need(2)
	}},
	"cmp": {3, func(a *nla.Attrs) (Expr, error) {
		return &Cmp{reg(a, 1), Op(a.Uint32(2, 0)), constant(a, 3)}, a.Need(1, 2, 3)
	}},
	"range": {4, func(a *nla.Attrs) (Expr, error) {
		return &Range{reg(a, 1), a.Uint32(2, 0) == 1, constant(a, 3), constant(a, 4)}, a.Need(1, 2, 3, 4)
	}},
	"bitwise": {8, func(a *nla.Attrs) (Expr, error) {
		e := &Bitwise{Src: reg(a, 1), Dst: reg(a, 2), Len: a.Uint32(3, 0), Op: a.Uint32(6, 0), Src2: optReg(a, 8)}
		if a.V[4] != nil {
			e.Mask = constant(a, 4)
		}
		if a.V[5] != nil {
			e.Xor = constant(a, 5)
		}
		if d := optConstant(a, 7); len(d) == 4 {
			e.Shift = nativeUint32(d)
		}
		return e, a.Need(1, 2, 3)
	}},
	"byteorder": {5, func(a *nla.Attrs) (Expr, error) {
		return &Byteorder{reg(a, 1), reg(a, 2), a.Uint32(3, 0), a.Uint32(4, 0), a.Uint32(5, 0)}, a.Need(1, 2, 3, 4, 5)
	}},
	"immediate": {2, func(a *nla.Attrs) (Expr, error) {
		d, err := decodeData(a.V[2])
		if err != nil {
			return nil, err
		}
		return &Immediate{reg(a, 1), d}, a.Need(1, 2)
	}},
	"lookup": {5, func(a *nla.Attrs) (Expr, error) {
		e := &Lookup{Set: a.Text(1), Src: reg(a, 2), Dst: optReg(a, 3), Not: flags(a, 5, 1)&1 != 0}
		e.Map = a.V[3] != nil
		return e, a.Need(1, 2)
	}},
	"exthdr": {7, func(a *nla.Attrs) (Expr, error) {
		e := &ExtHdr{Type: a.Uint8(2), Offset: a.Uint32(3, 0), Len: a.Uint32(4, 0), Flags: flags(a, 5, 1), Op: a.Uint32(6, 0)}
		e.Dst, e.Src, e.Write = eitherReg(a, 1, 7)
		e.Present = e.Flags&1 != 0
		return e, a.Need(2, 3)
	}},
	"fib": {3, func(a *nla.Attrs) (Expr, error) {
		return &FIB{reg(a, 1), a.Uint32(2, 0), a.Uint32(3, 0)}, a.Need(1, 2, 3)
	}},
	"rt": {2, func(a *nla.Attrs) (Expr, error) { return &RT{reg(a, 1), a.Uint32(2, 0)}, a.Need(1, 2) }},
	"counter": {3, func(a *nla.Attrs) (Expr, error) {
		return &Counter{Bytes: a.Uint64(1), Packets: a.Uint64(2)}, a.Need(1, 2)
	}},
	"limit": {6, func(a *nla.Attrs) (Expr, error) {
		return &Limit{a.Uint64(1), a.Uint64(2), a.Uint32(3, 0), a.Uint32(4, 0), a.Uint32(5, 0)}, a.Need(1, 2)
	}},
	"log": {6, func(a *nla.Attrs) (Expr, error) {
		e := &Log{Prefix: a.Text(2), Group: -1, Snaplen: a.Uint32(3, 0), Threshold: a.Uint16(4), Level: a.Uint32(5, 4), Flags: a.Uint32(6, 0)}
		if a.V[1] != nil {
			e.Group = int(a.Uint16(1))
		}
		return e, a.Err
	}},
	"reject": {2, func(a *nla.Attrs) (Expr, error) { return &Reject{a.Uint32(1, 0), a.Uint8(2)}, a.Need(1) }},
	"nat": {7, func(a *nla.Attrs) (Expr, error) {
		e := &NAT{Kind: "snat", Family: a.Uint32(2, 0), Flags: a.Uint32(7, 0), AddrMin: optReg(a, 3), AddrMax: optReg(a, 4), ProtoMin: optReg(a, 5), ProtoMax: optReg(a, 6)}
		if a.Uint32(1, 0) == 1 {
			e.Kind = "dnat"
		}
		return e, a.Need(1, 2)
	}},
	"masq": {3, func(a *nla.Attrs) (Expr, error) {
		return &NAT{Kind: "masquerade", Flags: a.Uint32(1, 0), AddrMin: NoReg, AddrMax: NoReg, ProtoMin: optReg(a, 2), ProtoMax: optReg(a, 3)}, a.Err
	}},
	"redir": {3, func(a *nla.Attrs) (Expr, error) {
		return &NAT{Kind: "redirect", Flags: a.Uint32(3, 0), AddrMin: NoReg, AddrMax: NoReg, ProtoMin: optReg(a, 1), ProtoMax: optReg(a, 2)}, a.Err
	}},
	"objref": {5, func(a *nla.Attrs) (Expr, error) {
		if a.V[4] != nil {
			return &ObjRef{Set: a.Text(4), Src: reg(a, 3)}, a.Need(3, 4)
		}
		return &ObjRef{Type: a.Uint32(1, 0), Name: a.Text(2), Src: NoReg}, a.Need(1, 2)
	}},
	"quota": {4, func(a *nla.Attrs) (Expr, error) {
		return &Quota{Bytes: a.Uint64(1), Flags: a.Uint32(2, 0), Consumed: a.Uint64(4)}, a.Need(1)
	}},
	"queue": {4, func(a *nla.Attrs) (Expr, error) {
		return &Queue{a.Uint16(1), a.Uint16(2), a.Uint16(3), optReg(a, 4)}, a.Err
	}},
	"numgen": {4, func(a *nla.Attrs) (Expr, error) {
		return &NumGen{reg(a, 1), a.Uint32(2, 0), a.Uint32(3, 0), a.Uint32(4, 0)}, a.Need(1, 2, 3)
	}},
	"hash": {7, func(a *nla.Attrs) (Expr, error) {
		return &Hash{Src: optReg(a, 1), Dst: reg(a, 2), Len: a.Uint32(3, 0), Modulus: a.Uint32(4, 0), Seed: a.Uint32(5, 0), Offset: a.Uint32(6, 0), Type: a.Uint32(7, 0)}, a.Need(2, 4)
	}},
	"connlimit": {2, func(a *nla.Attrs) (Expr, error) { return &ConnLimit{a.Uint32(1, 0), a.Uint32(2, 0)}, a.Need(1) }},
	"socket": {3, func(a *nla.Attrs) (Expr, error) {
		return &Socket{reg(a, 2), a.Uint32(1, 0), a.Uint32(3, 0)}, a.Need(1, 2)
	}},
	"notrack": {0, func(a *nla.Attrs) (Expr, error) { return &NoTrack{}, nil }},
	"last": {3, func(a *nla.Attrs) (Expr, error) {
		return &Last{a.Uint32(1, 0) != 0, a.Uint64(2)}, a.Err
	}},
	"flow_offload": {1, func(a *nla.Attrs) (Expr, error) { return &FlowOffload{a.Text(1)}, a.Need(1) }},
	"match":        {3, func(a *nla.Attrs) (Expr, error) { return decodeXT(a, false) }},
	"target":       {3, func(a *nla.Attrs) (Expr, error) { return decodeXT(a, true) }},
}

func init() { // apart from the others because its expressions are decoded by the same table
	decoders["dynset"] = decoder{10, func(a *nla.Attrs) (Expr, error) {
		e := &Dynset{Set: a.Text(1), Op: a.Uint32(3, 0), Src: reg(a, 4), Data: optReg(a, 5), Timeout: a.Uint64(6), Not: flags(a, 9, 1|2)&1 != 0} // NFT_DYNSET_F_INV, NFT_DYNSET_F_EXPR
		if a.V[7] != nil {
			e.Exprs = []Expr{new(scratch).expr(a.V[7])}
		} else if a.V[10] != nil {
			e.Exprs = new(scratch).exprs(a.V[10])
		}
		return e, a.Need(1, 3, 4)
	}}
}

func decodeXT(a *nla.Attrs, target bool) (Expr, error) {
	return &XT{Target: target, Name: a.Text(1), Revision: a.Uint32(2, 0), Info: bytes.Clone(a.V[3])}, a.Need(1, 2, 3)
}

// scratch holds the attributes of an expression while it is decoded: decoders are called through a table, so that attributes
// of their own would each lie on the heap.
type scratch struct{ head, data nla.Attrs }

// exprs reads a list of expressions. What cannot be read becomes an Opaque in its place.
func (s *scratch) exprs(b []byte) (out []Expr) {
	n := 0
	err := nla.Each(b, func(uint16, []byte) error { n++; return nil })
	out = make([]Expr, 0, n+1)
	nla.Each(b, func(_ uint16, v []byte) error {
		out = append(out, s.expr(v))
		return nil
	})
	if err != nil {
		out = append(out, &Opaque{"malformed", err.Error()})
	}
	return out
}

// moving are expressions whose attributes change without anybody changing the rule.
var moving = map[string]bool{"counter": true, "quota": true, "limit": true, "last": true, "connlimit": true, "match": true, "target": true}

// print is a number that the expressions of a rule have in common with few others, the same for as long as nobody changes the rule (FNV-1a).
func (s *scratch) print(b []byte) uint64 {
	sum := uint64(14695981039346656037)
	nla.Each(b, func(_ uint16, v []byte) error {
		if s.head.Split(v, 2) == nil {
			if name := bytes.TrimSuffix(s.head.V[1], []byte{0}); moving[string(name)] {
				v = name
			}
		}
		for _, c := range v {
			sum = (sum ^ uint64(c)) * 1099511628211
		}
		return nil
	})
	return sum
}

// expr reads one expression: a name and attributes that depend on it.
func (s *scratch) expr(b []byte) Expr {
	if err := s.head.Split(b, 2); err != nil {
		return &Opaque{"malformed", err.Error()}
	}
	name := bytes.TrimSuffix(s.head.V[1], []byte{0})
	d, known := decoders[string(name)]
	if !known {
		return &Opaque{strings.ToValidUTF8(string(name), "?"), "the expression is not known"}
	}
	err := s.data.Split(s.head.V[2], d.highest)
	if err != nil {
		return &Opaque{string(name), err.Error()}
	}
	out, err := d.decode(&s.data)
	if err == nil {
		err = s.data.Err
	}
	if err != nil {
		return &Opaque{string(name), err.Error()}
	}
	return out
}

// reg reads a register number.
func reg(a *nla.Attrs, typ int) Reg {
	switch n := a.Uint32(typ, 0); {
	case n == 0:
		return Verdict
	case n <= 4:
		return Reg(n-1) * 4
	case n >= 8 && n < 8+registers:
		return Reg(n - 8)
	default:
		if a.Err == nil {
			a.Err = fmt.Errorf("register %d does not exist", n)
		}
		return 0
	}
}

// flags reads those of an expression. One that is not known may mean anything.
func flags(a *nla.Attrs, typ int, known uint32) uint32 {
	f := a.Uint32(typ, 0)
	if f&^known != 0 && a.Err == nil {
		a.Err = fmt.Errorf("flags %#x", f)
	}
	return f
}

func optReg(a *nla.Attrs, typ int) Reg {
	if a.V[typ] == nil {
		return NoReg
	}
	return reg(a, typ)
}

// eitherReg is for expressions that read into one register or write from another.
func eitherReg(a *nla.Attrs, dst, src int) (d, s Reg, write bool) {
	d, s = optReg(a, dst), optReg(a, src)
	if (d == NoReg) == (s == NoReg) && a.Err == nil {
		a.Err = fmt.Errorf("attributes %d and %d are both there, or both missing", dst, src)
	}
	return d, s, s != NoReg
}

// constant reads a data attribute that must hold a value.
func constant(a *nla.Attrs, typ int) []byte {
	d, err := decodeData(a.V[typ])
	if err == nil && (d.Verdict != nil || len(d.Bytes) == 0) {
		err = fmt.Errorf("attribute %d holds no value", typ)
	}
	if err != nil && a.Err == nil {
		a.Err = err
	}
	return d.Bytes
}

func optConstant(a *nla.Attrs, typ int) []byte {
	if a.V[typ] == nil {
		return nil
	}
	return constant(a, typ)
}

// decodeData reads a value or a verdict. A rule has one in every other expression, so the two attributes are picked without a
// table of them.
func decodeData(b []byte) (d Data, err error) {
	var value, verdict []byte
	err = nla.Each(b, func(typ uint16, v []byte) error {
		switch typ {
		case 1:
			value = v
		case 2:
			verdict = v
		default:
			return fmt.Errorf("attribute %d of a value is not known", typ)
		}
		return nil
	})
	switch {
	case err != nil:
	case verdict != nil:
		var v nla.Attrs
		if err = v.Split(verdict, 3); err == nil {
			d.Verdict = &VerdictData{int32(v.Uint32(1, 0)), v.Text(2)}
			err = v.Need(1)
		}
	case len(value) > 64:
		err = fmt.Errorf("a value of %d bytes", len(value))
	default:
		d.Bytes = bytes.Clone(value)
	}
	return d, err
}
