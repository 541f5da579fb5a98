// SPDX-License-Identifier: Apache-2.0

package image

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

const (
	maxChoices  = 1 << 14 // elements that become entries, at most
	maxNoMatch  = 1 << 10 // elements of a set with exceptions that becomes ranges
	maxElements = 1 << 18 // elements of a set that becomes ranges
)

// choice is an element of a set as conditions.
type choice struct {
	element *ruleset.Element
	entry   entry // its dims and conds
}

// lasting says whether a set is what it was when it was read until an event says otherwise, but for elements that expire, and nothing in it is unclear.
func lasting(s *ruleset.Set) bool { return s.Unknown == "" && !s.Live && !s.Dynamic }

func ages(e ruleset.Element) bool { return e.Expires != 0 }

// aging writes entries that leave the packets to Linux for which it matters whether an element that expires is still there. No event says when it has gone, and Linux's clock is
// not ours. What else asks the set has it without those.
func (l *lowering) aging(list int, e *rules.Entry) {
	for i, c := range e.When {
		if k, ok := c.Of.(ruleset.Lookup); ok {
			l.age(list, e, k, slices.Delete(slices.Clone(e.When), i, i+1))
		}
	}
	if e.Then == rules.ByMap {
		l.age(list, e, e.Map.Of, e.When)
	}
	l.why = ""
}

// age does so for one lookup; when is what else the entry asks, as far as it can be said. Other lookups in sets with such elements are not asked then: they know those no more, and
// the packet may be in one of theirs.
func (l *lowering) age(list int, e *rules.Entry, k ruleset.Lookup, when []rules.Cond) {
	when = slices.DeleteFunc(slices.Clone(when), func(c rules.Cond) bool {
		k, ok := c.Of.(ruleset.Lookup)
		return ok && slices.ContainsFunc(sets(k), func(k ruleset.Lookup) bool { return slices.ContainsFunc(l.pr.Rules().Sets[k.Set].Elements, ages) })
	})
	for _, k := range sets(k) {
		s := &l.pr.Rules().Sets[k.Set]
		if !lasting(s) || !slices.ContainsFunc(s.Elements, ages) || slices.ContainsFunc(k.Key, l.missing) {
			continue
		}
		rest := *e
		rest.When = when
		base, _, _, never := l.conditions(&rest)
		if never {
			continue
		}
		l.why = "not in the data path: elements of set " + s.Name + " that expire"
		ways, ok := l.old(s, k, place{e.Hook(), e.Tracked()})
		if !ok {
			ways = []entry{{}}
		}
		for _, w := range ways {
			if out, never := base.and(choice{nil, w}); !never {
				l.leave(out, e, list)
			}
		}
	}
}

// sets are the lookups that one in a set of sets stands for, or itself.
func sets(k ruleset.Lookup) []ruleset.Lookup {
	if k.Of != nil {
		return k.Of
	}
	return []ruleset.Lookup{k}
}

// old are the ways in which a packet is in an element that expires; false where they cannot be told.
func (l *lowering) old(s *ruleset.Set, k ruleset.Lookup, at place) (out []entry, ok bool) {
	key := k.Key
	if len(key) == 1 && k.Masks == nil && key[0] != ruleset.SetSPort && key[0] != ruleset.SetDPort && key[0] != ruleset.TTL && len(s.Elements) <= maxElements {
		t := ruleset.Test{Field: key[0]}
		for i := range s.Elements {
			if ages(s.Elements[i]) {
				t.Ranges = append(t.Ranges, s.Elements[i].Key[0])
			}
		}
		t.Ranges = rules.Normal(t.Ranges, key[0].Width())
		var way entry
		switch l.test(&way, t, at) {
		case said:
			return []entry{way}, true
		case never:
			return nil, true
		}
		return nil, false
	}
	for _, el := range s.Elements {
		if !ages(el) || len(el.Key) != len(key) {
			continue
		}
		ways := []entry{{}}
		for i := range key {
			if ways, ok = l.part(ways, k.Part(i, el.Key[i]), at); !ok {
				return nil, false
			}
		}
		if out = append(out, ways...); len(out) > maxChoices {
			return nil, false
		}
	}
	return out, true
}

func counts(s *ruleset.Set) bool {
	return slices.ContainsFunc(s.Elements, func(e ruleset.Element) bool { return e.Counter != ruleset.NoCounter })
}

// plainSet writes the lookup of one field in a set as a test.
func (l *lowering) plainSet(k ruleset.Lookup) (t ruleset.Test, ok bool) {
	if k.Of != nil || len(k.Key) != 1 || k.Masks != nil || k.Key[0] == ruleset.SetSPort || k.Key[0] == ruleset.SetDPort {
		return t, false
	}
	s := &l.pr.Rules().Sets[k.Set]
	f := k.Key[0]
	if f == ruleset.TTL || (f == ruleset.EtherSrc || f == ruleset.EtherDst) && len(s.Elements) > 1 || !lasting(s) || counts(s) && s.Dialect != ruleset.NFT || s.Verdicts || len(s.Elements) > maxElements {
		return t, false
	}
	t = ruleset.Test{Field: f, Not: k.Not}
	exceptions := slices.ContainsFunc(s.Elements, func(e ruleset.Element) bool { return e.NoMatch })
	if !exceptions {
		for i := range s.Elements {
			if !ages(s.Elements[i]) {
				t.Ranges = append(t.Ranges, s.Elements[i].Key[0])
			}
		}
		t.Ranges = rules.Normal(t.Ranges, f.Width())
		return t, true
	}
	if len(s.Elements) > maxNoMatch {
		return t, false
	}
	sorted := rules.Precedence(s)
	for _, e := range slices.Backward(sorted) { // the first of those that hold has the last word
		if ages(*e) {
			continue
		}
		r := rules.Normal(e.Key, f.Width())
		if e.NoMatch {
			t.Ranges = rules.Intersect(t.Ranges, rules.Without(r, f.Width()))
		} else {
			t.Ranges = rules.Normal(append(t.Ranges, r...), f.Width())
		}
	}
	return t, true
}

// choices writes the elements of a set as conditions, in the order of their precedence; false where that cannot be said.
func (l *lowering) choices(k ruleset.Lookup, e *rules.Entry) (out []choice, ok bool) {
	if k.Of != nil {
		for _, m := range k.Of {
			more, ok := l.choices(m, e)
			if !ok || slices.ContainsFunc(more, func(c choice) bool { return c.element.NoMatch }) {
				return nil, false
			}
			out = append(out, more...)
		}
		return out, l.few(len(out))
	}
	s := &l.pr.Rules().Sets[k.Set]
	switch {
	case !lasting(s):
		l.cannot("set %s, which rules change, or that is not understood", s.Name)
	case len(s.Elements) > maxChoices:
		l.few(len(s.Elements))
	case s.Type == "hash:net,iface": // one network hides another
		l.cannot("elements of set %s that were read", s.Name)
	case counts(s) && s.Dialect != ruleset.NFT: // an entry that counts there is left to Linux already
		l.cannot("counters of the elements of set %s", s.Name)
	}
	if l.why != "" {
		return nil, false
	}
	if slices.ContainsFunc(k.Key, l.missing) {
		return nil, true
	}
	for _, el := range rules.Precedence(s) {
		if len(el.Key) != len(k.Key) || ages(*el) {
			continue
		}
		ways := []entry{{}}
		for i, f := range k.Key {
			if ways, ok = l.part(ways, k.Part(i, el.Key[i]), place{e.Hook(), e.Tracked()}); !ok {
				l.cannot("set %s by %s", s.Name, f)
				return nil, false
			}
		}
		for _, w := range ways {
			out = append(out, choice{el, w})
		}
	}
	return out, l.few(len(out))
}

// few says whether so many elements can become entries.
func (l *lowering) few(n int) bool {
	if n > maxChoices {
		l.cannot("more than %d elements of several fields or with verdicts", maxChoices)
	}
	return n <= maxChoices
}

// missing says whether packets of the family lack a field, as a member of a list may ask for; such a packet is in no element.
func (l *lowering) missing(f ruleset.Field) bool {
	switch f {
	case ruleset.IP4Src, ruleset.IP4Dst, ruleset.IP4ID, ruleset.FragOffset, ruleset.CTOrigSrc4, ruleset.CTOrigDst4:
		return l.pr.Class.Family != ruleset.IP4
	case ruleset.IP6Src, ruleset.IP6Dst, ruleset.FlowLabel, ruleset.CTOrigSrc6, ruleset.CTOrigDst6:
		return l.pr.Class.Family != ruleset.IP6
	}
	return false
}

// part adds what an element asks of one field to each of the ways in which a packet can be in it.
func (l *lowering) part(ways []entry, t ruleset.Test, at place) (out []entry, ok bool) {
	f := t.Field
	if f == ruleset.TTL {
		return nil, false // a test asks for it as received, a set as the hook sees it
	}
	tests := [][]ruleset.Test{{t}}
	if f == ruleset.SetSPort || f == ruleset.SetDPort {
		tests = setPort(f, t.Ranges[0], l.pr.Class.Family)
	}
	for _, w := range ways {
		for _, both := range tests {
			way, none := w, false
			for _, t := range both {
				switch l.test(&way, t, at) {
				case unsaid:
					return nil, false
				case never:
					none = true
				}
			}
			if !none {
				out = append(out, way)
			}
		}
	}
	return out, true
}

// Protocols with ports for an ipset, as ip_set_getport.c has them: TCP, UDP, UDP-Lite and SCTP.
var setPorted = []ruleset.Range{ruleset.Nums(6, 6), ruleset.Nums(17, 17), ruleset.Nums(132, 132), ruleset.Nums(136, 136)}

// setPort are the ways in which what an ipset takes for the port can be in a range: as a port, as type and code, or as 0.
func setPort(f ruleset.Field, r ruleset.Range, family ruleset.Family) (ways [][]ruleset.Test) {
	port := ruleset.SPort
	if f == ruleset.SetDPort {
		port = ruleset.DPort
	}
	in := []ruleset.Range{r}
	icmp := []ruleset.Range{ruleset.Nums(1, 1), ruleset.Nums(58, 58)}
	ways = append(ways,
		[]ruleset.Test{{Field: ruleset.L4Proto, Ranges: setPorted}, {Field: port, Ranges: in}},
		[]ruleset.Test{{Field: ruleset.L4Proto, Ranges: icmp}, {Field: ruleset.ICMPType, Ranges: in}},
	)
	if r.Has(ruleset.Num(0)) {
		all := rules.Normal(slices.Concat(setPorted, icmp), 8)
		ways = append(ways, []ruleset.Test{{Field: ruleset.L4Proto, Ranges: rules.Without(all, 8)}})
	}
	return ways
}
