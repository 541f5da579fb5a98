// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"errors"
	"math/big"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
)

func bigOf(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

// match is a comparison.
func (r *nftRule) match(n *node) error {
	op, err := r.needText(n, "op")
	if err != nil {
		return err
	}
	cmp, known := map[string]nftables.Op{"==": nftables.Eq, "in": nftables.Eq, "!=": nftables.Neq, "!": nftables.Neq, "<": nftables.Lt, "<=": nftables.Lte, ">": nftables.Gt, ">=": nftables.Gte}[op]
	if !known {
		return r.wrong(n.get("op"), "there are ==, !=, <, <=, >, >=, in and !")
	}
	left, right := n.get("left"), n.get("right")
	if left == nil || right == nil {
		return r.wrong(n, "a match has a left and a right side")
	}
	var mask *node
	if list := left.get("&"); list != nil {
		if list.kind != array || len(list.list) != 2 {
			return r.wrong(list, "an operator has two operands")
		}
		left, mask = list.list[0], list.list[1]
	}
	if fib := left.get("fib"); fib != nil && right.kind == boolean && mask == nil && cmp <= nftables.Neq {
		return r.present(fib, cmp, right)
	}
	parts, types, ok, err := r.key(left)
	if err != nil || !ok {
		return err
	}
	if set, name := right.get("set"), right; set != nil || name.kind == text && strings.HasPrefix(name.text, "@") {
		if mask != nil || cmp != nftables.Eq && cmp != nftables.Neq {
			r.opaque("lookup", "a part of a value is looked up")
			return nil
		}
		return r.lookup(parts, types, set, right, nftables.NoReg, cmp == nftables.Neq)
	}
	if len(parts) != 1 {
		r.opaque("concatenation", "it is compared with something that is no set")
		return nil
	}
	err = r.compare(parts[0], op, cmp, mask, right)
	if errors.Is(err, errNoValue) {
		r.opaque(title(left), "it is compared with something that the file does not know")
		return nil
	}
	return err
}

// title is what an expression is called.
func title(n *node) string {
	key, v, _ := n.only()
	for _, k := range []string{"key", "field"} {
		if t := v.get(k); t != nil {
			return key + " " + t.text
		}
	}
	return key
}

// present asks whether there is a route at all: nft writes exists and missing as true and false, for which the lookup has a flag (NFTA_FIB_F_PRESENT).
func (r *nftRule) present(fib *node, cmp nftables.Op, right *node) error {
	s, _, err := r.fib(fib)
	if err != nil {
		return err
	}
	lookup := s.load(0).(*nftables.FIB)
	lookup.Flags |= 32
	r.add(lookup)
	r.add(&nftables.Cmp{Src: 0, Op: cmp, Data: map[string][]byte{"true": {1}, "false": {0}}[right.text]})
	return nil
}

// compare loads a value and compares it.
func (r *nftRule) compare(s *selector, op string, cmp nftables.Op, maskNode, right *node) error {
	f := r.nftFile
	t := s.typed
	if t.name == "" {
		r.add(s.load(0))
		r.add(&nftables.Cmp{Src: 0, Op: cmp, Data: make([]byte, min(t.size, 4))}) // not modelled, whatever it is compared with
		return nil
	}
	mask := s.mask
	if maskNode != nil {
		v, err := f.numberOf(maskNode, &t)
		if err != nil {
			return err
		}
		mask = t.bytes(v)
	}
	bitmask := op == "in" || op == "!"
	var value span
	var err error
	if p := right.get("prefix"); p != nil && t.name != "ipv4_addr" && t.name != "ipv6_addr" { // a prefix of a number is a mask
		return errNoValue
	} else if value, err = f.spanOf(right, &t); err != nil {
		return err
	}
	ordered := value.many && t.name != "ifname" || cmp > nftables.Neq
	if bitmask && value.many || value.many && cmp > nftables.Neq || bitmask && maskNode != nil {
		return r.wrong(right, "one value is expected here")
	}
	r.add(s.load(0))
	if mask != nil {
		r.masked(0, mask)
	}
	if ordered && t.host && t.size > 1 {
		r.add(&nftables.Byteorder{Src: 0, Dst: 0, Op: 1, Len: uint32(t.size), Size: uint32(t.size)})
		t.host = false
	}
	lo, hi := t.bytes(value.lo), t.bytes(value.hi)
	switch {
	case bitmask:
		r.masked(0, lo)
		neq := nftables.Neq
		if op == "!" {
			neq = nftables.Eq
		}
		r.add(&nftables.Cmp{Src: 0, Op: neq, Data: make([]byte, t.size)})
	case value.many && t.name == "ifname":
		r.add(&nftables.Cmp{Src: 0, Op: cmp, Data: lo[:len(strings.TrimSuffix(right.text, "*"))]})
	case right.get("prefix") != nil:
		length, _ := f.prefixLength(right.get("prefix"), &t)
		bits := make([]byte, t.size)
		fill(bits, length)
		r.masked(0, bits)
		r.add(&nftables.Cmp{Src: 0, Op: cmp, Data: lo})
	case value.many && cmp == nftables.Eq:
		r.add(&nftables.Cmp{Src: 0, Op: nftables.Gte, Data: lo})
		r.add(&nftables.Cmp{Src: 0, Op: nftables.Lte, Data: hi})
	case value.many:
		r.add(&nftables.Range{Src: 0, Not: true, From: lo, To: hi})
	default:
		r.add(&nftables.Cmp{Src: 0, Op: cmp, Data: lo})
		if cmp == nftables.Eq && maskNode == nil {
			r.learn(s, value.lo)
		}
	}
	return nil
}

// learn notes what the packet is from here on.
func (r *nftRule) learn(s *selector, v *big.Int) {
	n := int(v.Int64())
	switch e := s.load(0).(type) {
	case *nftables.Meta:
		switch key, _, _, _ := nftables.MetaNamed("l4proto"); e.Key {
		case key:
			r.l4 = n
		case keyOf("nfproto"):
			r.proto = map[int]int{2: 4, 10: 6}[n]
		case keyOf("protocol"):
			r.proto = map[int]int{0x0800: 4, 0x86dd: 6}[n]
		}
	case *nftables.Payload:
		if s.name == "inet_proto" {
			r.l4 = n
		}
	}
}

func keyOf(meta string) uint32 {
	key, _, _, _ := nftables.MetaNamed(meta)
	return key
}

// lookup asks a set, with a name or of this rule alone, or a map: of verdicts, or of values that it puts into a register.
func (r *nftRule) lookup(parts []*selector, types keyed, set, name *node, dst nftables.Reg, not bool) error {
	key := keyed{}
	masked := false
	for _, s := range parts {
		t := s.typed
		masked = masked || s.mask != nil
		if t.name == "" || s.mask != nil && len(parts) > 1 {
			r.opaque("lookup", "a part of the key is not understood")
			return nil
		}
		key = append(key, t)
	}
	var setName string
	var err error
	switch {
	case set != nil:
		if setName, err = r.anonymous(key, nil, dst == nftables.Verdict, set); err != nil {
			return err
		}
	case masked:
		r.opaque("lookup", "a part of a field is looked up")
		return nil
	default:
		setName = strings.TrimPrefix(name.text, "@")
	}
	index, there := r.sets[setKey(r.family, r.table, setName)]
	if !there {
		return r.wrong(name, "there is no such set in the table")
	}
	r.loadKey(parts, r.dump.Sets[index].Flags&nftables.SetInterval != 0)
	r.add(&nftables.Lookup{Set: setName, Src: 0, Dst: dst, Map: dst != nftables.NoReg, Not: not})
	return nil
}

// loadKey loads values one behind the other. The elements of intervals are in network order.
func (r *nftRule) loadKey(parts []*selector, interval bool) {
	reg := nftables.Reg(0)
	for _, s := range parts {
		r.add(s.load(reg))
		if s.mask != nil {
			r.masked(reg, s.mask)
		}
		if interval && s.host && s.size > 1 {
			r.add(&nftables.Byteorder{Src: reg, Dst: reg, Op: 1, Len: uint32(s.size), Size: uint32(s.size)})
		}
		reg += nftables.Reg(nftables.Padded(s.size) / 4)
	}
}

// mangle changes the packet or what Linux knows of it.
func (r *nftRule) mangle(n *node) error {
	target, value := n.get("key"), n.get("value")
	if target == nil || value == nil {
		return r.wrong(n, "a key and a value are expected")
	}
	s, known, err := r.selectorOf(target)
	if err != nil {
		return err
	}
	if known && s.self != nil && target.get("tcp option") != nil {
		r.add(&nftables.Immediate{Dst: 0, Data: nftables.Data{Bytes: make([]byte, 4)}})
		number := map[string]uint8{"maxseg": 2, "window": 3, "sack-perm": 4, "sack": 5, "timestamp": 8}[textOf(target.get("tcp option").get("name"))]
		r.add(&nftables.ExtHdr{Op: 1, Type: number, Write: true, Src: 0, Dst: nftables.NoReg, Len: 2})
		return nil
	}
	if !known || s.self != nil || s.name == "" {
		r.opaque(title(target)+" set", "it is not understood")
		return nil
	}
	s.need()
	if of := value.get("map"); of != nil && (s.name == "mark" || s.name == "classid") && strings.HasPrefix(textOf(of.get("data")), "@") {
		return r.markByMap(s, of)
	}
	if from, _, err := r.selectorOf(value); err != nil {
		return err
	} else if from != nil && from.need != nil {
		from.need()
	}
	mask, xor, err := r.change(value, target, &s.typed)
	switch {
	case errors.Is(err, errNoValue): // a byte alone is not understood, whatever it is written to
		mask, xor = nil, []byte{0}
	case err != nil:
		return err
	}
	switch e := s.load(0).(type) {
	case *nftables.Payload:
		r.mangleHeader(s, e, mask, xor)
		return nil
	case *nftables.Meta:
		r.newValue(e, mask, xor)
		r.add(&nftables.Meta{Key: e.Key, Src: 0, Dst: nftables.NoReg, Write: true})
	case *nftables.CT:
		r.newValue(e, mask, xor)
		r.add(&nftables.CT{Key: e.Key, Dir: -1, Src: 0, Dst: nftables.NoReg, Write: true})
	default:
		r.opaque(title(target)+" set", "it is not understood")
	}
	return nil
}

// newValue puts a new value into the first register: a number, or what a load gives under masks.
func (r *nftRule) newValue(load nftables.Expr, mask, xor []byte) {
	if mask == nil {
		r.add(&nftables.Immediate{Dst: 0, Data: nftables.Data{Bytes: xor}})
		return
	}
	r.add(load)
	r.bitwise(0, mask, xor)
}

// bitwise leaves the bits of a mask in a register, and turns others around.
func (r *nftRule) bitwise(reg nftables.Reg, mask, xor []byte) {
	r.add(&nftables.Bitwise{Src: reg, Dst: reg, Src2: nftables.NoReg, Len: uint32(len(mask)), Mask: mask, Xor: xor})
}

// masked leaves the bits of a mask in a register.
func (r *nftRule) masked(reg nftables.Reg, mask []byte) {
	r.bitwise(reg, mask, make([]byte, len(mask)))
}

// markByMap is `meta mark set KEY map @NAME`.
func (r *nftRule) markByMap(s *selector, of *node) error {
	e, isMeta := s.load(0).(*nftables.Meta)
	parts, types, ok, err := r.key(of.get("key"))
	if err != nil || !ok {
		return err
	}
	if !isMeta {
		r.opaque("ct mark set", "it is taken from a map")
		return nil
	}
	if err := r.lookup(parts, types, nil, of.get("data"), 0, false); err != nil {
		return err
	}
	r.add(&nftables.Meta{Key: e.Key, Src: 0, Dst: nftables.NoReg, Write: true})
	return nil
}

// mangleHeader writes a field of a header as nft does: two bytes, of which the others stay.
func (r *nftRule) mangleHeader(s *selector, e *nftables.Payload, mask, xor []byte) {
	if s.name != "dscp" || mask != nil {
		r.add(&nftables.Immediate{Dst: 0, Data: nftables.Data{Bytes: make([]byte, s.size)}})
		r.add(&nftables.Payload{Src: 0, Dst: nftables.NoReg, Write: true, Base: e.Base, Offset: e.Offset, Len: e.Len})
		return
	}
	keep := make([]byte, s.size)
	for i := range keep {
		keep[i] = ^s.mask[i]
	}
	r.add(e)
	r.bitwise(0, keep, xor)
	write := &nftables.Payload{Src: 0, Dst: nftables.NoReg, Write: true, Base: e.Base, Offset: e.Offset, Len: e.Len}
	if e.Offset == 1 { // IPv4's, whose header has a checksum, as nft asks for it: NFT_PAYLOAD_CSUM_INET at byte 10
		write.Checksum = [3]uint32{1, 10, 0}
	}
	r.add(write)
}

// change understands a new value: a number, or the old one under masks. mask is nil for a number.
func (r *nftRule) change(value, target *node, t *typed) (mask, xor []byte, err error) {
	for _, op := range []string{"&", "|", "^"} {
		list := value.get(op)
		if list == nil || list.kind != array || len(list.list) != 2 {
			continue
		}
		var oldMask, oldXor []byte
		if sameSelector(list.list[0], target) {
			oldMask, oldXor = make([]byte, t.size), make([]byte, t.size)
			fill(oldMask, 8*t.size)
		} else if oldMask, oldXor, err = r.change(list.list[0], target, t); err != nil {
			return nil, nil, err
		}
		if oldMask == nil {
			return nil, nil, errNoValue
		}
		n, err := r.numberOf(list.list[1], t)
		if err != nil {
			return nil, nil, err
		}
		v := t.bytes(n)
		for i := range v {
			switch op {
			case "&":
				oldMask[i] &= v[i]
				oldXor[i] &= v[i]
			case "|":
				oldMask[i] &^= v[i]
				oldXor[i] = oldXor[i]&^v[i] | v[i]
			case "^":
				oldXor[i] ^= v[i]
			}
		}
		return oldMask, oldXor, nil
	}
	n, err := r.numberOf(value, t)
	if err != nil {
		return nil, nil, err
	}
	return nil, t.bytes(n), nil
}

// sameSelector says whether two expressions are written the same.
func sameSelector(a, b *node) bool {
	if a == nil || b == nil || a.kind != b.kind || a.text != b.text || len(a.list) != len(b.list) {
		return false
	}
	for i := range a.list {
		if a.kind == object && a.keys[i] != b.keys[i] || !sameSelector(a.list[i], b.list[i]) {
			return false
		}
	}
	return true
}
