// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// contains says whether a value lies in one of the ranges.
func contains(rs []ruleset.Range, v ruleset.Value) bool {
	return slices.ContainsFunc(rs, func(r ruleset.Range) bool { return r.Has(v) })
}

// width is the size of a range, less one.
func width(r ruleset.Range) ruleset.Value {
	hi, lo := r.Hi, r.Lo
	d := ruleset.Value{Hi: hi.Hi - lo.Hi, Lo: hi.Lo - lo.Lo}
	if hi.Lo < lo.Lo {
		d.Hi--
	}
	return d
}

// find gives the element that a key is in, nomatch elements included; nil when there is none. Of several it is the first (nf_tables) or the most
// specific: the smallest range of the first part that differs.
//
// Where hash:net,iface has elements of a network, those of wider ones do not count, whatever interface they are for (mtype_test_cidrs, ip_set_hash_gen.h); of several for the
// interface it is the one that the kernel lists first.
func find(s *ruleset.Set, key []ruleset.Value) *ruleset.Element {
	var best *ruleset.Element
	var network *ruleset.Range
	if s.Type == "bitmap:ip,mac" && len(key) == 2 && key[1] == (ruleset.Value{}) { // bitmap_ipmac_kadt()
		return nil
	}
	if s.Type == "hash:net,iface" && len(key) == 2 {
		for i := range s.Elements {
			if e := &s.Elements[i]; len(e.Key) == 2 && e.Key[0].Has(key[0]) && (network == nil || width(e.Key[0]).Compare(width(*network)) < 0) {
				network = &e.Key[0]
			}
		}
		if key[1] == (ruleset.Value{}) {
			return nil
		}
	}
	for i := range s.Elements {
		e := &s.Elements[i]
		if len(e.Key) != len(key) || !covers(e.Key, key) {
			continue
		}
		if network != nil {
			if e.Key[0] == *network {
				return e
			}
			continue
		}
		if s.Dialect == ruleset.NFT {
			return e
		}
		if best == nil || narrower(e.Key, best.Key) {
			best = e
		}
	}
	return best
}

// Precedence lists the elements of a set so that of those that a key is in the first counts.
func Precedence(s *ruleset.Set) []*ruleset.Element {
	out := make([]*ruleset.Element, len(s.Elements))
	for i := range s.Elements {
		out[i] = &s.Elements[i]
	}
	if s.Dialect == ruleset.NFT {
		return out
	}
	slices.SortStableFunc(out, func(a, b *ruleset.Element) int {
		switch {
		case narrower(a.Key, b.Key):
			return -1
		case narrower(b.Key, a.Key):
			return 1
		}
		return 0
	})
	return out
}

func covers(ranges []ruleset.Range, key []ruleset.Value) bool {
	for i, v := range key {
		if !ranges[i].Has(v) {
			return false
		}
	}
	return true
}

func narrower(a, b []ruleset.Range) bool {
	return slices.CompareFunc(a, b, func(x, y ruleset.Range) int { return width(x).Compare(width(y)) }) < 0
}

// catchAll says whether a set has an element for every key.
func catchAll(s *ruleset.Set) bool {
	return slices.ContainsFunc(s.Elements, func(e ruleset.Element) bool {
		for i, w := range s.Widths {
			if i >= len(e.Key) || e.Key[i] != (ruleset.Range{Hi: ruleset.Max(w)}) {
				return false
			}
		}
		return len(s.Widths) > 0
	})
}

// counts says whether elements of a set have counters.
func counts(s *ruleset.Set) bool {
	return slices.ContainsFunc(s.Elements, func(e ruleset.Element) bool { return e.Counter != ruleset.NoCounter })
}

// unsure says why a lookup cannot be decided here, "" when it can.
func (ix *index) unsure(l ruleset.Lookup) string {
	if l.Set < 0 || int(l.Set) >= len(ix.rs.Sets) {
		return "set is missing"
	}
	s := &ix.rs.Sets[l.Set]
	switch {
	case s.Unknown != "":
		return "set " + s.Name + ": " + s.Unknown
	case s.Live && !ix.live:
		return "set " + s.Name + ": changes without notice, and this kernel's sets cannot be asked"
	case s.Dialect == ruleset.NFT && l.Not && ix.all[l.Set]:
		return "set " + s.Name + ": negated, with an element for everything" // kernels differ, see docs/semantics-rules.md
	}
	for _, m := range l.Of {
		if why := ix.unsure(m); why != "" {
			return why
		}
		if ix.counts[m.Set] {
			return "set " + s.Name + ": a list of sets with counters"
		}
	}
	return ""
}

// mostMapped is how many elements of a map that gives values are looked at one by one: each becomes an entry. All such rules together get mostMappedAll, so that they
// never fill a program on their own.
const mostMapped, mostMappedAll = 256, 8192

// unmapped says why what a map gives a packet cannot be told here, "" when it can.
func (ix *index) unmapped(m ruleset.SetByMap) string {
	if why := ix.unsure(ruleset.Lookup{Set: m.Set, Key: m.Key}); why != "" {
		return why
	}
	s := &ix.rs.Sets[m.Set]
	switch {
	case !s.Data || s.Dialect != ruleset.NFT || m.Field != ruleset.Mark && m.Field != ruleset.Priority && m.Field != ruleset.CTZone:
		return "map " + s.Name + ": not of marks, priorities or zones"
	case s.Dynamic:
		return "map " + s.Name + ": rules change it"
	case len(s.Elements) > mostMapped:
		return fmt.Sprintf("map %s: more than %d elements", s.Name, mostMapped)
	case ix.all[m.Set], ix.counts[m.Set], slices.ContainsFunc(s.Elements, func(e ruleset.Element) bool { return e.Expires != 0 || len(e.Key) != len(m.Key) }):
		return "map " + s.Name + ": elements that count, expire, or are for everything"
	}
	return ""
}

// lookup is the element of a set that a packet is in, nomatch elements included, and whether the packet has all parts of the key.
// Of a list it is that of the first member which has the packet.
func (w *walk) lookup(rs *ruleset.Ruleset, l ruleset.Lookup, ask func(ruleset.Field) (ruleset.Value, presence)) (in bool, hit *ruleset.Element, p presence) {
	if l.Of != nil {
		for _, m := range l.Of {
			if in, e, p := w.lookup(rs, m, ask); in {
				return in, e, p
			}
		}
		return false, nil, there
	}
	key := make([]ruleset.Value, len(l.Key))
	for i, f := range l.Key {
		v, p := ask(f)
		if p != there {
			return false, nil, p
		}
		if l.Masks != nil && l.Masks[i] != (ruleset.Value{}) {
			v = v.And(l.Masks[i])
		}
		key[i] = v
	}
	e := find(&rs.Sets[l.Set], key)
	return e != nil && !e.NoMatch, e, there
}
