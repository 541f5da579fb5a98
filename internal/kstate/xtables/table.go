// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// What struct ipt_getinfo and ip6t_getinfo look like; the entries follow.
const (
	infoName      = 0
	infoValid     = 32
	infoEntry     = 36 // hook_entry[5]
	infoUnderflow = 56
	infoEntries   = 76 // how many
	infoBytes     = 80 // of the entries
	infoSize      = 84

	extensionHeader = 32 // struct xt_entry_match, xt_entry_target
	nameLen         = 29
)

// layout is where fields lie in struct ipt_entry and struct ip6t_entry.
type layout struct {
	addr                     int // bytes of an address
	smask, in, inMask, proto int
	flags, invflags          int
	target, next             int
	counters, size           int
}

var (
	entry4 = layout{addr: 4, smask: 8, in: 16, inMask: 48, proto: 80, flags: 82, invflags: 83, target: 88, next: 90, counters: 96, size: 112}
	entry6 = layout{addr: 16, smask: 32, in: 64, inMask: 96, proto: 128, flags: 131, invflags: 132, target: 140, next: 142, counters: 152, size: 168}
)

// Flags of an entry.
const (
	flagFragment = 0x01 // IPT_F_FRAG
	flagProto    = 0x01 // IP6T_F_PROTO: ip6_packet_match() looks at the protocol
	flagGoto4    = 0x02
	flagGoto6    = 0x04

	knownFlags4 = flagFragment | flagGoto4
	knownFlags6 = flagProto | 0x02 | flagGoto6 // with that of the TOS, which nothing asks
)

// entry is one entry of a table.
type entry struct {
	at, next     int // offsets
	number       int
	b            []byte // the entry's own struct
	matches      []Extension
	target       Extension
	packets      uint64
	bytes        uint64
	verdict      int32 // of the standard target, whose name is empty
	chain        string
	targetOffset int

	again bool   // it was there at the last reading, and its matches are not taken apart
	alike *alike // of its rule, and the chain that it was in when that was found
	in    string
}

// DecodeTable reads a legacy table: struct ipt_getinfo and its entries. The table is added to a rule set with its counters.
func DecodeTable(blob []byte, family rs.Family, c *Context, out *rs.Ruleset) (*rs.Table, error) {
	d, err := take(blob, family, c, out, nil)
	if err != nil {
		return nil, err
	}
	out.Tables = append(out.Tables, d.table)
	return &out.Tables[len(out.Tables)-1], nil
}

// take reads a table and its counters; m may be nil.
func take(blob []byte, family rs.Family, c *Context, out *rs.Ruleset, m *Memory) (*decoder, error) {
	if len(blob) < infoSize {
		return nil, errors.New("legacy table: too short")
	}
	if n := binary.NativeEndian.Uint32(blob[infoBytes:]); int(n) != len(blob)-infoSize {
		return nil, fmt.Errorf("legacy table: %d bytes of entries, not %d", len(blob)-infoSize, n)
	}
	name, _, _ := strings.Cut(string(blob[infoName:infoValid]), "\x00")
	d := &decoder{blob: blob, Context: c, memory: m, family: family, layout: entry4, out: out, table: rs.Table{Dialect: rs.Legacy, Family: family, Name: name}, starts: map[int]string{}}
	if c.Six {
		d.layout = entry6
	}
	counters := len(out.Counters)
	err := d.entries(blob[infoSize:])
	if err == nil {
		err = d.chains()
	}
	if err != nil {
		out.Counters = out.Counters[:counters]
		return nil, fmt.Errorf("legacy table %s: %w", name, err)
	}
	m.took(d)
	return d, nil
}

type decoder struct {
	*Context
	layout
	memory *Memory
	blob   []byte
	family rs.Family
	all    []entry
	starts map[int]string // chains by the offset of their first entry
	table  rs.Table
	out    *rs.Ruleset
}

// entries takes the blob apart.
func (d *decoder) entries(b []byte) error {
	count := int(binary.NativeEndian.Uint32(d.blob[infoEntries:]))
	d.all = d.memory.room(min(count, len(b)/(d.size+extensionHeader)))
	before := d.memory.before(count)
	for at := 0; at < len(b); {
		if e := before.find(b, at, len(d.all)); e != nil {
			d.all = append(d.all, entry{})
			d.repeat(&d.all[len(d.all)-1], e, b, at)
			at += e.next - e.at
			continue
		}
		bad := func() error { return fmt.Errorf("entry at %d is malformed", at) }
		if at+d.size > len(b) {
			return bad()
		}
		e := entry{at: at, number: len(d.all), b: b[at : at+d.size]}
		target, next := int(binary.NativeEndian.Uint16(e.b[d.target:])), int(binary.NativeEndian.Uint16(e.b[d.layout.next:]))
		if target < d.size || next < target+extensionHeader || at+next > len(b) {
			return bad()
		}
		e.next, e.targetOffset = at+next, target
		e.packets, e.bytes = binary.NativeEndian.Uint64(e.b[d.counters:]), binary.NativeEndian.Uint64(e.b[d.counters+8:])
		if err := d.takeMatches(&e, b); err != nil {
			return bad()
		}
		x, _, err := d.extension(b[at+target : at+next])
		if err != nil {
			return bad()
		}
		e.target = x
		switch x.Name {
		case "":
			if len(x.Info) < 4 {
				return bad()
			}
			e.verdict = int32(binary.NativeEndian.Uint32(x.Info))
		case "ERROR":
			e.chain, _, _ = strings.Cut(string(x.Info), "\x00")
			d.starts[e.next] = e.chain
		}
		d.all = append(d.all, e)
		at = e.next
	}
	if count != len(d.all) || count == 0 || d.all[count-1].target.Name != "ERROR" {
		return fmt.Errorf("%d entries, not %d, or the last is none", len(d.all), count)
	}
	return nil
}

// takeMatches takes those of an entry apart; its target's offset is known.
func (d *decoder) takeMatches(e *entry, b []byte) error {
	for m := d.size; m < e.targetOffset; {
		x, n, err := d.extension(b[e.at+m : e.at+e.targetOffset])
		if err != nil {
			return err
		}
		e.matches = append(e.matches, x)
		m += n
	}
	return nil
}

// repeat makes an entry of one of the last reading that has the same bytes.
func (d *decoder) repeat(e, was *entry, b []byte, at int) {
	*e = *was
	e.at, e.next, e.number, e.again, e.matches = at, at+was.next-was.at, len(d.all)-1, true, nil
	e.b = b[at : at+d.size]
	info := at + e.targetOffset + extensionHeader
	e.target.Info = b[info : info+len(was.target.Info)]
	if e.target.Name == "" && e.verdict >= 0 {
		e.alike = nil // where it leads says no offset, but the name of what is there
	}
	if e.target.Name == "ERROR" {
		d.starts[e.next] = e.chain
	}
}

// extension reads a match or target: size, name, revision, struct.
func (d *decoder) extension(b []byte) (x Extension, n int, err error) {
	if len(b) < extensionHeader {
		return x, 0, errors.New("too short")
	}
	n = int(binary.NativeEndian.Uint16(b))
	if n < extensionHeader || n > len(b) {
		return x, 0, errors.New("malformed")
	}
	name, _, _ := bytes.Cut(b[2:2+nameLen], []byte{0})
	if d.memory != nil {
		x.Name = d.memory.name(name)
	} else {
		x.Name = string(name)
	}
	x.Revision, x.Info = b[31], b[extensionHeader:n]
	return x, n, nil
}

var hooks = []struct {
	hook rs.Hook
	name string
}{{rs.Prerouting, "PREROUTING"}, {rs.Input, "INPUT"}, {rs.Forward, "FORWARD"}, {rs.Output, "OUTPUT"}, {rs.Postrouting, "POSTROUTING"}}

// priorities at which the tables hook in (NF_IP_PRI_*).
var priorities = map[string]int32{"raw": -300, "mangle": -150, "filter": 0, "security": 50, "nat": -100}

// Priority is that at which a table's chain at a hook is called; known says whether the table is.
func Priority(table string, h rs.Hook) (priority int32, known bool) {
	if table == "nat" && (h == rs.Postrouting || h == rs.Input) {
		return 100, true // source NAT
	}
	priority, known = priorities[table]
	return priority, known
}

// BaseOf is how a table's chain at a hook is called, with the policy ACCEPT and no counter; known says whether the table is.
func BaseOf(table string, h rs.Hook) (b *rs.Base, known bool) {
	b = &rs.Base{Hook: h, Type: "filter", Policy: rs.Accept, Counter: rs.NoCounter}
	b.Priority, known = Priority(table, h)
	if table == "nat" {
		b.Type = "nat"
	}
	return b, known
}

// chains sorts the entries into chains. The rules of a built-in chain lie between its entry point and its underflow, which is
// its policy; a user chain begins behind an ERROR entry with its name and ends with a RETURN.
func (d *decoder) chains() error {
	index := func(offset int) (int, bool) { // of the entry there; they are in the order of their offsets
		return slices.BinarySearchFunc(d.all, offset, func(e entry, at int) int { return cmp.Compare(e.at, at) })
	}
	valid := binary.NativeEndian.Uint32(d.blob[infoValid:])
	for num, h := range hooks {
		if valid>>num&1 == 0 {
			continue
		}
		first, ok1 := index(int(binary.NativeEndian.Uint32(d.blob[infoEntry+4*num:])))
		last, ok2 := index(int(binary.NativeEndian.Uint32(d.blob[infoUnderflow+4*num:])))
		if !ok1 || !ok2 || last < first {
			return fmt.Errorf("chain %s does not lie in the table", h.name)
		}
		d.starts[d.all[first].at] = h.name
		policy := &d.all[last]
		base, known := BaseOf(d.table.Name, h.hook)
		base.Counter = d.policy(policy, h.name)
		switch v, _, _ := d.verdict(policy); {
		case policy.target.Name == "" && v.Code == rs.Drop:
			base.Policy = rs.Drop
		case policy.target.Name != "" || v.Code != rs.Accept:
			base.Unknown = append(base.Unknown, "its policy is neither ACCEPT nor DROP")
		}
		if !known {
			base.Unknown = append(base.Unknown, "the priority of table "+d.table.Name+" is not known")
		}
		d.table.Chains = append(d.table.Chains, rs.Chain{Name: h.name, Base: base, Rules: d.rules(h.name, d.all[first:last])})
	}
	for n := 0; n < len(d.all); n++ {
		e := &d.all[n]
		if e.target.Name != "ERROR" || n+1 == len(d.all) {
			continue
		}
		end := n + 1
		for end < len(d.all) && d.all[end].target.Name != "ERROR" {
			end++
		}
		if end == len(d.all) || end == n+1 || d.all[end-1].target.Name != "" || d.all[end-1].verdict != verdictReturn {
			return fmt.Errorf("chain %s has no end", e.chain)
		}
		d.table.Chains = append(d.table.Chains, rs.Chain{Name: e.chain, Rules: d.rules(e.chain, d.all[n+1:end-1])})
	}
	return nil
}

func (d *decoder) counter(e *entry, chain string) rs.CounterID {
	d.out.Counters = append(d.out.Counters, d.counted(e, chain))
	return rs.CounterID(len(d.out.Counters) - 1)
}

func (d *decoder) counted(e *entry, chain string) rs.Counter {
	return rs.Counter{Packets: e.packets, Bytes: e.bytes,
		At: rs.CounterPlace{Kind: rs.LegacyCounter, Family: d.family, Table: d.table.Name, Chain: chain, Index: e.number}}
}

// policy is the counter of a built-in chain's policy.
func (d *decoder) policy(e *entry, chain string) rs.CounterID {
	if d.memory == nil {
		return d.counter(e, chain)
	}
	id, ok := d.memory.policies[chain]
	if ok {
		d.out.Counters[id] = d.counted(e, chain)
	} else {
		id = d.counter(e, chain)
		d.memory.policies[chain] = id
	}
	return id
}

func (d *decoder) rules(chain string, entries []entry) []rs.Rule {
	out := make([]rs.Rule, 0, len(entries))
	for n := range entries {
		r := d.known(&entries[n], chain)
		out = append(out, rs.Rule{Number: n + 1, Text: r.text, Steps: r.steps})
	}
	return out
}

// known gives the rule of an entry, if possible as it was at an earlier reading.
func (d *decoder) known(e *entry, chain string) *remembered {
	if d.memory != nil {
		if e.alike == nil || e.in != chain {
			e.alike, e.in = d.memory.alike(d.keyOf(e, chain)), chain
		}
		if r := d.memory.next(e.alike); r != nil {
			c := &d.out.Counters[r.counter]
			c.Packets, c.Bytes, c.At.Index = e.packets, e.bytes, e.number
			return r
		}
	}
	var r remembered
	r.counter = rs.CounterID(len(d.out.Counters)) // the only one of a rule
	steps, words := d.rule(e, chain)
	r.steps, r.text = steps, strings.Join(words, " ")
	if d.memory != nil {
		d.memory.keep(e.alike, r)
	}
	return &r
}

// rule gives the steps of an entry: its own conditions, its matches, its counter, its target.
func (d *decoder) rule(e *entry, chain string) (steps []rs.Step, words []string) {
	steps, words = d.head(e).Steps(d.Six)
	if e.again {
		e.again = false
		d.takeMatches(e, d.blob[infoSize:]) // as at the last reading, when there was no fault in them
	}
	for _, m := range e.matches {
		s, w := Match(d.Context, m)
		steps, words = append(steps, s...), append(words, w)
	}
	steps = append(steps, rs.Count{Counter: d.counter(e, chain)})
	if e.target.Name != "" {
		s, w := Target(d.Context, e.target)
		return append(steps, s...), append(words, w)
	}
	v, word, step := d.verdict(e)
	if step != nil {
		steps = append(steps, step)
	} else if v.Code != rs.Continue {
		steps = append(steps, v)
	}
	if word != "" {
		words = append(words, word)
	}
	return steps, words
}

// Verdicts of the standard target: -1 - NF_*, XT_RETURN, or an offset.
const (
	verdictAccept = -2
	verdictDrop   = -1
	verdictQueue  = -4
	verdictReturn = -5
)

// verdict gives what the standard target does, or a step where it is no verdict.
func (d *decoder) verdict(e *entry) (v rs.Verdict, word string, step rs.Step) {
	flags := e.b[d.flags]
	isGoto := flags&flagGoto4 != 0 && !d.Six || flags&flagGoto6 != 0 && d.Six
	switch {
	case e.verdict == verdictAccept:
		return rs.Verdict{Code: rs.Accept}, "-j ACCEPT", nil
	case e.verdict == verdictDrop:
		return rs.Verdict{Code: rs.Drop}, "-j DROP", nil
	case e.verdict == verdictReturn:
		return rs.Verdict{Code: rs.Return}, "-j RETURN", nil
	case e.verdict == verdictQueue:
		return v, "-j QUEUE", rs.Slow{Name: "queue", Text: "-j QUEUE"}
	case e.verdict >= 0 && int(e.verdict) == e.next && d.starts[e.next] == "":
		return v, "", nil // no target: the next rule
	case e.verdict >= 0 && d.starts[int(e.verdict)] != "":
		v = rs.Verdict{Code: rs.Jump, Chain: d.starts[int(e.verdict)]}
		if isGoto {
			v.Code = rs.Goto
			return v, "-g " + v.Chain, nil
		}
		return v, "-j " + v.Chain, nil
	}
	text := fmt.Sprintf("verdict %d", e.verdict)
	return v, "-j (" + text + ")", rs.Unknown{Name: "verdict", Text: text}
}

// head reads the entry's own struct.
func (d *decoder) head(e *entry) *Head {
	h := &Head{Proto: binary.NativeEndian.Uint16(e.b[d.proto:]), Fragment: !d.Six && e.b[d.flags]&flagFragment != 0, Not: e.b[d.invflags]}
	for n := range 2 {
		h.Addr[n], h.Mask[n] = e.b[d.addr*n:d.addr*(n+1)], e.b[d.smask+d.addr*n:d.smask+d.addr*(n+1)]
		h.Name[n], h.NameMask[n] = e.b[d.in+16*n:d.in+16*(n+1)], e.b[d.inMask+16*n:d.inMask+16*(n+1)]
	}
	h.Strange = d.strange(e, h)
	return h
}

// strange says what of an entry's flags is not understood, or goes with a protocol that the kernel does not look at.
func (d *decoder) strange(e *entry, h *Head) string {
	flags, known := e.b[d.flags], uint8(knownFlags4)
	if d.Six {
		known = knownFlags6
	}
	switch {
	case flags&^known != 0:
		return fmt.Sprintf("flags %#x", flags)
	case d.Six && flags&flagProto == 0 && (h.Proto != 0 || h.Not&NotProto != 0):
		return "a protocol without its flag"
	}
	return ""
}
