// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// part is one part of a set's key, or its data.
type part struct {
	typ  uint32 // of nft
	size int    // bytes; in a concatenation each part is padded to four
	host bool   // in the machine's byte order
}

// isAddress says whether a part is an address of IP.
func (p part) isAddress() bool {
	name := keyTypes[p.typ].name
	return name == "ipv4_addr" || name == "ipv6_addr"
}

// keyTypes are the data types of nft (its include/datatype.h) that keys are made of. The kernel only stores their numbers.
var keyTypes = map[uint32]struct {
	name string
	size int
	host bool
}{
	2: {"nf_proto", 1, true}, 7: {"ipv4_addr", 4, false}, 8: {"ipv6_addr", 16, false}, 9: {"ether_addr", 6, false}, 10: {"ether_type", 2, false},
	12: {"inet_proto", 1, false}, 13: {"inet_service", 2, false}, 14: {"icmp_type", 1, false}, 15: {"tcp_flag", 1, false}, 19: {"mark", 4, true},
	20: {"iface_index", 4, true}, 21: {"iface_type", 2, true}, 22: {"realm", 4, true}, 23: {"classid", 4, true}, 24: {"uid", 4, true},
	25: {"gid", 4, true}, 26: {"ct_state", 4, true}, 27: {"ct_dir", 1, true}, 28: {"ct_status", 4, true}, 29: {"icmpv6_type", 1, false},
	31: {"pkt_type", 1, true}, 32: {"icmp_code", 1, false}, 33: {"icmpv6_code", 1, false}, 34: {"icmpx_code", 1, false}, 35: {"devgroup", 4, true},
	36: {"dscp", 1, false}, 37: {"ecn", 1, false}, 38: {"fib_addrtype", 4, true}, 39: {"boolean", 1, true}, 41: {"ifname", 16, false},
}

// typeName is how nft writes the type of a key.
func typeName(typ uint32) string {
	var out string
	for shift := 24; shift >= 0; shift -= 6 {
		if t := typ >> shift & 0x3f; t != 0 {
			if out != "" {
				out += " . "
			}
			name := keyTypes[t].name
			if name == "" {
				name = fmt.Sprintf("type %d", t)
			}
			out += name
		}
	}
	return out
}

// Padded is what a part of so many bytes takes in a key of several: registers are four bytes.
func Padded(size int) int { return (size + 3) &^ 3 }

// parts takes a key of n bytes apart. fields are the sizes that the kernel knows itself; hostOrder is what nft remembers of
// the byte order. The elements of an interval are ordered as bytes, so that nft stores their numbers in network order.
func parts(typ, n uint32, fields []int, hostOrder, interval bool) ([]part, error) {
	var out []part
	for shift := 24; shift >= 0; shift -= 6 {
		if t := typ >> shift & 0x3f; t != 0 {
			out = append(out, part{typ: t, size: keyTypes[t].size, host: keyTypes[t].host && !interval})
		}
	}
	if typ>>30 != 0 || len(out) == 0 {
		return nil, fmt.Errorf("key type %d is not known", typ)
	}
	if len(out) == 1 {
		p := &out[0]
		if p.size == 0 {
			p.host = hostOrder && !interval
		}
		p.size = int(n)
		if p.size == 0 || p.size > 16 {
			return nil, fmt.Errorf("a key of %d bytes", n)
		}
		return out, nil
	}
	total := 0
	for i := range out {
		if len(fields) == len(out) {
			if s := out[i].size; s != 0 && Padded(s) != Padded(fields[i]) {
				return nil, fmt.Errorf("part %d of the key has %d bytes, not %d", i+1, fields[i], s)
			}
			if out[i].size == 0 {
				out[i].size = fields[i]
			}
		}
		if out[i].size == 0 || out[i].size > 16 {
			return nil, fmt.Errorf("the length of a key of type %s is not known", typeName(typ))
		}
		total += Padded(out[i].size)
	}
	if total != int(n) {
		return nil, fmt.Errorf("a key of type %s has %d bytes, not %d", typeName(typ), n, total)
	}
	return out, nil
}

// set is a set with what the machine needs to know of it.
type set struct {
	*Set
	id    rs.SetID
	parts []part
	data  []part // of a map that gives values
	err   error  // why its key is not understood
}

// anonymous says that the set belongs to one rule and never changes.
func (s *set) anonymous() bool { return s.Flags&(SetAnonymous|SetConstant) == SetAnonymous|SetConstant }

const verdictType = 0xffffff00

// translateSet adds a set to the rule set.
func (t *Translation) translateSet(in *Set, problem string) *set {
	s := &set{Set: in, id: rs.SetID(len(t.out.Sets))}
	out := rs.Set{Dialect: rs.NFT, Family: rs.Family(in.Family), Table: in.Table, Name: in.Name, Handle: in.Handle, Interval: in.Flags&SetInterval != 0,
		Timeout: in.Flags&SetTimeout != 0, Unread: in.Unread, Unknown: problem}
	unknown := func(format string, args ...any) {
		if out.Unknown == "" {
			out.Unknown = fmt.Sprintf(format, args...)
		}
	}
	s.parts, s.err = parts(in.KeyType, in.KeyLen, in.Fields, in.HostKey, out.Interval)
	if s.err != nil {
		unknown("%v", s.err)
	}
	for _, p := range s.parts {
		out.Widths = append(out.Widths, 8*p.size)
	}
	if in.UnknownFlags != 0 {
		unknown("flags %#x", in.UnknownFlags)
	}
	var data []part
	if in.Flags&SetMap != 0 {
		if out.Verdicts = in.DataType == verdictType; !out.Verdicts {
			out.Data = true
			var err error
			if data, err = parts(in.DataType, in.DataLen, nil, in.HostData, false); err != nil {
				unknown("data: %v", err)
			}
			s.data = data
		}
	}
	if in.Flags&SetObject != 0 {
		unknown("a map of objects (%s)", objectName(in.ObjType))
	}
	if s.err == nil {
		elements, err := t.elements(s, data)
		if err != nil {
			unknown("%v", err)
		}
		out.Elements = elements
	}
	t.out.Sets = append(t.out.Sets, out)
	return s
}

// elements gives the elements of a set as ranges of numbers.
func (t *Translation) elements(s *set, data []part) (out []rs.Element, problem error) {
	in := s.Elements
	intervals := s.Flags&SetInterval != 0 && s.Flags&SetConcat == 0 && len(s.parts) == 1
	if intervals { // first keys, and first keys behind an interval
		in = slices.Clone(in)
		slices.SortStableFunc(in, func(a, b Element) int {
			if c := bytes.Compare(a.Key, b.Key); c != 0 {
				return c
			}
			return int(bit(b.End)) - int(bit(a.End)) // what begins where another ends comes behind it
		})
	}
	fail := func(err error) {
		if problem == nil {
			problem = err
		}
	}
	ranges := make([]rs.Range, 0, len(in)*len(s.parts))
	var rest *Element
	for i := range in {
		e := &in[i]
		if e.CatchAll {
			rest = e
			continue
		}
		if e.End && intervals {
			continue
		}
		from := len(ranges)
		lo, err := split(e.Key, s.parts)
		if err != nil {
			fail(err)
			continue
		}
		hi := lo
		if e.KeyEnd != nil {
			if hi, err = split(e.KeyEnd, s.parts); err != nil {
				fail(err)
				continue
			}
		}
		for k := range lo {
			ranges = append(ranges, rs.Range{Lo: lo[k], Hi: hi[k]})
		}
		if intervals && e.KeyEnd == nil {
			ranges[from].Hi = rs.Max(8 * s.parts[0].size)
			for _, next := range in[i+1:] {
				if !bytes.Equal(next.Key, e.Key) && !next.CatchAll {
					if v, err := split(next.Key, s.parts); err == nil {
						ranges[from].Hi = v[0].Prev()
					}
					break
				}
			}
		}
		element, err := t.element(s, e, ranges[from:len(ranges):len(ranges)], data)
		if err != nil {
			fail(err)
		}
		out = append(out, element)
	}
	if rest != nil { // found when nothing else is: as wide as can be, so that anything else is more specific
		var full []rs.Range
		for _, p := range s.parts {
			full = append(full, rs.Range{Hi: rs.Max(8 * p.size)})
		}
		element, err := t.element(s, rest, full, data)
		if err != nil {
			fail(err)
		}
		out = append(out, element)
	}
	return out, problem
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// split takes a key apart.
func split(key []byte, parts []part) ([]rs.Value, error) {
	out := make([]rs.Value, len(parts))
	rest := key
	for i, p := range parts {
		n := p.size
		if len(parts) > 1 {
			n = Padded(n)
		}
		if n > len(rest) {
			return nil, fmt.Errorf("an element has a key of %d bytes", len(key))
		}
		out[i] = num(rest[:p.size], p.host)
		rest = rest[n:]
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("an element has a key of %d bytes", len(key))
	}
	return out, nil
}

func (t *Translation) element(s *set, e *Element, key []rs.Range, data []part) (out rs.Element, problem error) {
	out = rs.Element{Key: key, Counter: rs.NoCounter}
	if e.Expires != 0 {
		out.Expires = e.Expires
	}
	switch {
	case e.Data == nil:
	case e.Data.Verdict != nil:
		v, err := verdict(e.Data.Verdict)
		if err != nil {
			problem = err
		}
		out.Verdict = &v
	case len(data) == 1:
		if v, err := split(e.Data.Bytes, data); err == nil {
			out.Data = v[0]
		} else {
			problem = err
		}
	}
	for _, x := range e.Exprs {
		c, ok := x.(*Counter)
		if !ok {
			problem = fmt.Errorf("an element with %s", nameOf(x))
			continue
		}
		out.Counter = t.counter(rs.CounterPlace{Kind: rs.ElementCounter, Family: rs.Family(s.Family), Table: s.Table, Handle: s.Handle, Name: s.Name, Key: key}, c)
	}
	return out, problem
}

// lookup is a test whether registers hold an element of a set, a map of verdicts, or a map that gives a value.
func (m *machine) lookup(e *Lookup) {
	s := m.t.sets[setName{m.rule.Family, m.rule.Table, e.Set}]
	if s == nil {
		m.unknown("set "+e.Set, "@"+e.Set+" (the set is not there)")
		return
	}
	values := m.keyOf(e.Src, s)
	if e.Map && e.Dst != Verdict {
		size := max(int(s.DataLen), 1)
		key, err := m.key(values, s)
		name := m.keyText(values) + " map " + m.setText(s)
		by := &mapped{set: s, key: key, text: name, err: err, at: len(m.steps)}
		m.maps = append(m.maps, by)
		m.store(e.Dst, &value{name: name, size: min(size, 64), dep: -1, why: "it is taken from a map", by: by})
		return
	}
	key, err := m.key(values, s)
	text := m.keyText(values)
	switch {
	case err == nil && e.Map:
		m.steps = append(m.steps, rs.VerdictMap{Set: s.id, Key: key})
		m.words.add(text + " vmap " + m.setText(s))
		return
	case err == nil:
		m.steps = append(m.steps, rs.Lookup{Set: s.id, Key: key, Not: e.Not})
		m.words.add(text + not(e.Not) + " " + m.setText(s))
		return
	case !e.Map && s.anonymous() && s.err == nil && len(values) == 1 && len(s.parts) == 1 && m.t.out.Sets[s.id].Unknown == "":
		// A set of one rule's own can be asked for a part of a field: it becomes the list of its ranges.
		var t rs.Test
		if t, err = m.inline(values[0], s, e.Not); err == nil {
			m.steps = append(m.steps, t)
			m.words.add(text + not(e.Not) + " " + m.setText(s))
			return
		}
	}
	var part rs.Lookup
	if part, err = m.parts(values, s, e, err); err == nil {
		if e.Map {
			m.steps = append(m.steps, rs.VerdictMap{Set: part.Set, Key: part.Key, Masks: part.Masks})
			m.words.add(text + " vmap " + m.setText(s))
			return
		}
		part.Not = e.Not
		m.steps = append(m.steps, part)
		m.words.add(text + not(e.Not) + " " + m.setText(s))
		return
	}
	kind := "lookup"
	if e.Map {
		kind = "verdict map"
	}
	m.unknown(kind, fmt.Sprintf("%s%s @%s (%v)", text, not(e.Not), e.Set, err))
}

func not(b bool) string {
	if b {
		return " !="
	}
	return ""
}

// keyOf are the values that lie one behind the other in the registers of a key.
func (m *machine) keyOf(src Reg, s *set) (out []*value) {
	for n := 0; n < min(int(s.KeyLen), 4*registers); {
		v := m.get(src+Reg(n/4), 1)
		out = append(out, v)
		n += Padded(max(v.size, 1))
	}
	return out
}

// key are the fields that a key is made of.
func (m *machine) key(values []*value, s *set) (out []rs.Field, err error) {
	if s.err != nil {
		return nil, s.err
	}
	if len(values) != len(s.parts) {
		return nil, fmt.Errorf("the key has %d parts, the set's %d", len(values), len(s.parts))
	}
	for i, v := range values {
		segments, err := m.segments(v, v.mask)
		p := s.parts[i]
		switch {
		case err != nil:
			return nil, err
		case v.size != p.size || v.host != p.host && littleEndian && v.size > 1:
			return nil, errors.New("the key has another form than the set's")
		case len(segments) != 1 || segments[0].lo != 0 || segments[0].width > 8*v.size || !v.plain(): // the lower part of a field is at 0, too
			return nil, errors.New("a part of a field is looked up")
		}
		out = append(out, segments[0].field)
	}
	return out, nil
}

// inline turns a lookup in a set of one part into a test.
func (m *machine) inline(v *value, s *set, not bool) (rs.Test, error) {
	p := s.parts[0]
	if v.size != p.size || v.host != p.host && littleEndian && v.size > 1 {
		return rs.Test{}, errors.New("the key has another form than the set's")
	}
	if slices.ContainsFunc(s.Elements, func(e Element) bool { return e.CatchAll }) { // kernels differ in what a negated lookup says
		return rs.Test{}, errors.New("a part of a field is looked up in a set with an element for everything")
	}
	var ranges []rs.Range
	for _, e := range m.t.out.Sets[s.id].Elements {
		if e.Counter != rs.NoCounter || e.Expires != 0 {
			return rs.Test{}, errors.New("a part of a field is looked up in a set whose elements count or expire")
		}
		ranges = append(ranges, e.Key[0])
	}
	slices.SortFunc(ranges, func(a, b rs.Range) int { return a.Lo.Compare(b.Lo) })
	return m.between(v, ranges, not)
}
