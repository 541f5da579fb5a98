// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bytes"
	"slices"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Memory keeps the rules of one legacy table as they were decoded, since the kernel tells of a change no more than the whole table: entries that say the same as at an
// earlier reading become the same values, with the counters of the same numbers, and are not decoded again. It is good as long as the sets are that the rule set has.
type Memory struct {
	rules    map[string]*alike
	policies map[string]rs.CounterID // by chain
	reading  uint64
	size     int // rules that are kept
	key      []byte
	names    map[string]string

	// The last reading: a table is mostly as it was, but for what comes before or behind some place.
	blob []byte
	last []entry
	idle []entry // has room for the next
}

// alike are rules of one chain that say the same.
type alike struct {
	rules   []remembered
	reading uint64 // the last that they were found in
	found   int    // and how many of them
}

type remembered struct {
	steps   []rs.Step
	text    string
	counter rs.CounterID
}

// NewMemory gives an empty one.
func NewMemory() *Memory {
	return &Memory{rules: map[string]*alike{}, policies: map[string]rs.CounterID{}, names: map[string]string{}}
}

// FollowTable is DecodeTable for a table that may have been read before, by the same memory. The rule set's counters must be its own: those of the table are brought up to
// date. before is the table as it was; its chains are taken over where they are the same.
func FollowTable(blob []byte, family rs.Family, c *Context, out *rs.Ruleset, m *Memory, before *rs.Table) (rs.Table, error) {
	m.reading++
	d, err := take(blob, family, c, out, m)
	if err != nil {
		return rs.Table{}, err
	}
	if before != nil {
		for i := range d.table.Chains {
			now := &d.table.Chains[i]
			if was := before.Chain(now.Name); was != nil && slices.EqualFunc(was.Rules, now.Rules, sameRule) {
				now.Rules = was.Rules
			}
		}
	}
	m.forget(len(d.all))
	return d.table, nil
}

func sameRule(a, b rs.Rule) bool {
	return a.Number == b.Number && len(a.Steps) == len(b.Steps) && len(a.Steps) > 0 && &a.Steps[0] == &b.Steps[0]
}

// forget drops rules that are gone when they are more than those that are there.
func (m *Memory) forget(entries int) {
	if m.size <= 2*entries+1024 {
		return
	}
	for key, a := range m.rules {
		if a.reading != m.reading {
			a.found = 0
		}
		m.size -= len(a.rules) - a.found
		if a.rules = slices.Clip(a.rules[:a.found]); a.found == 0 {
			delete(m.rules, key)
		}
	}
	for i := range m.last { // what was a rule may be a policy by now, and a rule again later
		if e := &m.last[i]; e.alike != nil && e.alike.found == 0 {
			e.alike = nil
		}
	}
}

// alike gives the rules that say the same as an entry.
func (m *Memory) alike(key []byte) *alike {
	a := m.rules[string(key)]
	if a == nil {
		a = &alike{}
		m.rules[string(key)] = a
	}
	return a
}

// next gives the rule that an entry was at an earlier reading; of several that are alike each once, in their order.
func (m *Memory) next(a *alike) *remembered {
	if a.reading != m.reading {
		a.reading, a.found = m.reading, 0
	}
	if a.found == len(a.rules) {
		return nil
	}
	a.found++
	return &a.rules[a.found-1]
}

// keep takes a rule in that was not found.
func (m *Memory) keep(a *alike, r remembered) {
	a.rules = append(a.rules, r)
	a.found++
	m.size++
}

// room is for so many entries.
func (m *Memory) room(entries int) []entry {
	if m == nil || cap(m.idle) < entries {
		return make([]entry, 0, entries)
	}
	return m.idle[:0]
}

// took makes a reading the last one.
func (m *Memory) took(d *decoder) {
	if m == nil {
		return
	}
	clear(m.last) // it refers to the bytes of its reading
	m.idle, m.last, m.blob = m.last[:0], d.all, d.blob
}

// before finds entries where they were at the last reading: from the beginning of the table on up to the first that differs, then from its end.
type before struct {
	*Memory
	shift int // by so many places those at the end have moved
	begin bool
}

func (m *Memory) before(entries int) before {
	if m == nil {
		return before{}
	}
	return before{m, entries - len(m.last), true}
}

// find gives the entry of the last reading that has the bytes of the one at a place, which is the next in number.
func (p *before) find(b []byte, at, number int) *entry {
	if p.Memory == nil {
		return nil
	}
	if p.begin {
		if e := p.same(b, at, number); e != nil {
			return e
		}
		p.begin = false
	}
	return p.same(b, at, number-p.shift)
}

func (p *before) same(b []byte, at, number int) *entry {
	if number < 0 || number >= len(p.last) {
		return nil
	}
	e := &p.last[number]
	if size := e.next - e.at; at+size > len(b) || !bytes.Equal(b[at:at+size], p.blob[infoSize+e.at:infoSize+e.next]) {
		return nil
	}
	return e
}

// name gives a name without making it anew each time.
func (m *Memory) name(b []byte) string {
	s, ok := m.names[string(b)]
	if !ok {
		s = string(b)
		m.names[s] = s
	}
	return s
}

// keyOf is all that an entry's rule is made of: its bytes but for the counters, for what the kernel notes of the hooks that lead to it, and for where a jump leads, which is
// told by the chain's name.
func (d *decoder) keyOf(e *entry, chain string) []byte {
	k := append(append(d.memory.key[:0], chain...), 0)
	k = append(k, e.b[:d.layout.next+2]...)
	whole := d.blob[infoSize+e.at : infoSize+e.next]
	if e.target.Name != "" {
		k = append(k, whole[d.size:]...)
	} else {
		v, word, _ := d.verdict(e)
		k = append(k, whole[d.size:e.targetOffset+extensionHeader]...)
		k = append(append(k, byte(v.Code)), word...)
	}
	d.memory.key = k
	return k
}
