// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strconv"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// value is what a register holds, as a symbol: something loaded from the packet and then masked, a constant, or something
// that only its name is known of.
type value struct {
	from Expr   // *Payload, *Meta, *CT, *FIB; nil for the others
	name string // as a user writes it; "" for a payload, which title names
	size int    // bytes
	host bool   // the bytes lie in the machine's order
	mask rs.Value
	xor  rs.Value
	data []byte // a constant
	why  string // not modelled, because
	by   *mapped
	of   *value // what was shifted by down bits to the right to make this; nothing but a lookup of parts of fields knows what to do with it
	down int
	dep  int // index of the word in the text that tested what this relies on, -1 for none
}

// mapped says of which map a value is, and by what key; its error is why it cannot be told. The rule ends where the map is asked, if the key is not there: behind so
// many of its steps.
type mapped struct {
	set  *set
	key  []rs.Field
	text string
	err  error
	at   int
	used bool
}

func (v *value) title() string {
	if p, ok := v.from.(*Payload); ok && v.name == "" {
		return p.text()
	}
	return v.name
}

func (v *value) plain() bool { return v.mask == rs.Max(8*v.size) && isZero(v.xor) }

// machine runs the expressions of one rule on symbols.
type machine struct {
	t     *Translation
	facts facts
	regs  [registers]struct {
		v    *value
		word int
	}
	steps  []rs.Step
	words  words
	maps   []*mapped
	header bool // what is written about came from a header, not from what Linux knows of the packet
	rule   *Rule
	counts int

	// A comparison "not below" that a "not above" of the same register may turn into a range.
	lower struct {
		reg  Reg
		v    *value
		data []byte
		step int
	}
}

func (m *machine) unknown(name, text string) {
	m.steps = append(m.steps, rs.Unknown{Name: name, Text: text})
	m.words.add(text)
}

func (m *machine) slow(name, text string) {
	m.steps = append(m.steps, rs.Slow{Name: name, Text: text})
	m.words.add(text)
}

// store puts a value into a register and those behind it that it fills.
func (m *machine) store(dst Reg, v *value) {
	for i := range (v.size + 3) / 4 {
		if at := int(dst) + i; at >= 0 && at < registers {
			m.regs[at].v, m.regs[at].word = v, i
		}
	}
}

// get gives the value that begins in a register and has at least n bytes; one that is not modelled if it is not so.
func (m *machine) get(src Reg, n int) *value {
	bad := &value{name: fmt.Sprintf("register %d", src), size: n, dep: -1}
	if src < 0 || n <= 0 || int(src)+(n+3)/4 > registers {
		bad.why = "it does not lie in the registers"
		return bad
	}
	v := m.regs[src].v
	for i := range (n + 3) / 4 {
		if at := m.regs[int(src)+i]; v == nil || at.v != v || at.word != i || n > v.size {
			bad.why = "nothing, or parts of several values, lie in the register"
			return bad
		}
	}
	if v.by != nil {
		v.by.used = true
	}
	return v
}

// ends makes the rule unknown where a map is asked of which nothing comes: for a key that is not there it ends all the same. nft does not write such rules.
func (m *machine) ends() {
	for _, by := range slices.Backward(m.maps) {
		if !by.used {
			m.steps = slices.Insert(m.steps, by.at, rs.Step(rs.Unknown{Name: "map", Text: by.text}))
		}
	}
}

// eval runs one expression.
func (m *machine) eval(e Expr) {
	from := len(m.steps)
	m.run(e)
	for _, s := range m.steps[from:] {
		m.outdate(s)
	}
}

// outdate notes which registers hold what a step has changed since: the kernel goes on with what was loaded, but a test of a field is one of what the field is then.
func (m *machine) outdate(s rs.Step) {
	var changed rs.Field
	conn := false // all that there is to know of the connection
	switch s := s.(type) {
	case rs.SetField:
		changed = s.Field
	case rs.SetByMap:
		changed, conn = s.Field, s.Field == rs.CTZone
	case rs.SaveMark:
		changed = rs.CTMark
	case rs.NoTrack, rs.SetZone:
		conn = true
	default:
		return
	}
	for i := range m.regs {
		v := m.regs[i].v
		if v != nil && v.of != nil {
			v = v.of
		}
		if v == nil || v.why != "" {
			continue
		}
		if _, ct := v.from.(*CT); ct && conn || m.reads(v, changed) {
			v.why = "it was changed after it was loaded"
		}
	}
}

// reads says whether a field, one that rules change, is part of a value, or decided it.
func (m *machine) reads(v *value, f rs.Field) bool {
	switch e := v.from.(type) {
	case *Meta:
		return f != rs.NoField && metaOf(e.Key).field == f
	case *CT:
		return f != rs.NoField && ctOf(e.Key, e.Dir).field == f
	case *FIB:
		const mark = 4
		return f == rs.Mark && e.Flags&mark != 0
	case *Payload:
		segments, err := m.facts.payloadSegments(e, v.mask)
		return f == rs.DSField && e.Base == baseNetwork && (err != nil || slices.ContainsFunc(segments, func(s segment) bool { return s.field == f }))
	}
	return false
}

func (m *machine) run(e Expr) {
	if _, cmp := e.(*Cmp); !cmp {
		m.lower.v = nil
	}
	switch e := e.(type) {
	case *Payload:
		m.payload(e)
	case *Meta:
		if e.Write {
			m.setMeta(e)
			return
		}
		l := metaOf(e.Key)
		if l.field == rs.Length && m.facts.family != familyIP4 && m.facts.family != familyIP6 && m.facts.family != familyInet {
			l.field = 0 // counts other headers there
		}
		m.store(e.Dst, load(e, l))
	case *CT:
		if e.Write {
			m.setCT(e)
			return
		}
		e = e.byFamily(m.facts.family)
		m.store(e.Dst, load(e, ctOf(e.Key, e.Dir)))
	case *FIB:
		m.store(e.Dst, fibValue(e))
	case *RT:
		names := []string{"rt classid", "rt ip nexthop", "rt ip6 nexthop", "rt mtu", "rt ipsec"}
		name := fmt.Sprintf("rt key %d", e.Key)
		if int(e.Key) < len(names) {
			name = names[e.Key]
		}
		m.store(e.Dst, &value{name: name, size: 16, dep: -1, why: "it is not modelled"})
	case *ExtHdr:
		m.exthdr(e)
	case *Socket:
		m.store(e.Dst, &value{name: "socket " + pick([]string{"transparent", "mark", "wildcard", "cgroupv2"}, e.Key), size: 8, dep: -1, why: "it depends on sockets"})
	case *NumGen:
		m.store(e.Dst, &value{name: fmt.Sprintf("numgen %s mod %d", pick([]string{"inc", "random"}, e.Type), e.Modulus), size: 4, dep: -1, why: "it differs from packet to packet"})
	case *Hash:
		m.store(e.Dst, &value{name: fmt.Sprintf("%s mod %d", pick([]string{"jhash", "symhash"}, e.Type), e.Modulus), size: 4, dep: -1, why: "the hash is not modelled"})
	case *Bitwise:
		m.bitwise(e)
	case *Byteorder:
		m.byteorder(e)
	case *Immediate:
		m.immediate(e)
	case *Cmp:
		m.cmp(e)
	case *Range:
		m.inRange(e)
	case *Lookup:
		m.lookup(e)
	case *NoTrack:
		m.steps = append(m.steps, rs.NoTrack{})
		m.words.add("notrack")
	case *Counter:
		id := m.t.counter(rs.CounterPlace{Kind: rs.RuleCounter, Family: rs.Family(m.rule.Family), Table: m.rule.Table, Chain: m.rule.Chain,
			Handle: m.rule.Handle, Index: m.counts, Name: strconv.FormatUint(m.rule.Print, 36)}, e)
		m.counts++
		m.steps = append(m.steps, rs.Count{Counter: id})
		m.words.add("counter")
	case *XT:
		m.xt(e)
	case *Opaque:
		m.unknown(e.Name, e.Name+" ("+e.Why+")")
		m.regs = [registers]struct {
			v    *value
			word int
		}{} // it may have written to any of them
	default:
		m.action(e)
	}
}

func pick(names []string, i uint32) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprint(i)
}

func (m *machine) bitwise(e *Bitwise) {
	from := m.get(e.Src, int(e.Len))
	v := *from
	v.by, v.of = nil, nil
	switch {
	case e.Op != 0 || e.Src2 != NoReg || len(e.Mask) != int(e.Len) || len(e.Xor) != int(e.Len) || e.Len == 0 || e.Len > 16:
		v.name, v.from, v.data = "("+v.title()+" shifted or combined)", nil, nil
		if v.why == "" {
			v.why = "the operation is not modelled"
		}
		v.size = min(max(int(e.Len), 1), 64)
		if from.shifts(e) {
			of := *from
			of.by = nil
			v.of, v.down = &of, int(e.Shift)
		}
	case v.data != nil:
		out := make([]byte, e.Len)
		for i := range out {
			out[i] = v.data[i]&e.Mask[i] ^ e.Xor[i]
		}
		v.data, v.size = out, len(out)
	default:
		if int(e.Len) != v.size {
			if v.why == "" {
				v.why = "only a part of it is masked"
			}
		}
		mask, xor := num(e.Mask, v.host), num(e.Xor, v.host)
		v.mask, v.xor = v.mask.And(mask), v.xor.And(mask).Xor(xor)
	}
	m.store(e.Dst, &v)
}

// shifts says whether an expression moves what a mask has left of a value to the right, and all of that stays. The kernel shifts words of four bytes in its own order
// (nft_bitwise_eval_rshift()): a number in that order, or one byte, behind which the word has zeros.
func (v *value) shifts(e *Bitwise) bool {
	const toTheRight = 2
	if e.Op != toTheRight || e.Src2 != NoReg || e.Mask != nil || e.Xor != nil || v.why != "" || v.from == nil || !isZero(v.xor) || int(e.Len) != v.size || !littleEndian {
		return false
	}
	return (v.size == 1 || v.size == 4 && v.host) && e.Shift > 0 && int(e.Shift) < 8*v.size && isZero(v.mask.And(rs.Max(int(e.Shift))))
}

func (m *machine) byteorder(e *Byteorder) {
	// Of a register with less than one number the kernel writes nothing (nft_byteorder_eval()): nft turns so what has one byte, in front of sets with intervals (meta l4proto . th dport { tcp . 80-90 }).
	if e.Len < e.Size && e.Src == e.Dst {
		return
	}
	v := *m.get(e.Src, int(e.Len))
	v.by, v.of = nil, nil
	switch {
	case int(e.Len) == v.size && e.Size == e.Len && v.data == nil && v.size <= 8:
		v.host = !v.host
	case v.why == "":
		v.why = "its bytes are swapped in part"
		v.data = nil
	}
	m.store(e.Dst, &v)
}
