// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"reflect"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Cond is one condition of an Entry.
type Cond struct {
	// Of is a Test, an AnyTest or a Lookup. A plain Test (no Mask, not Not) has sorted ranges that neither overlap nor touch, and asks for
	// the field as it is on the wire: TTL as received, whatever the hook.
	Of    ruleset.Step
	place place
	// Epoch tells apart the values that a field has before and after an entry changed it: 0 is the value that the packet brought.
	// Conditions of the same field and epoch see the same value.
	Epoch int
}

// plain gives the ranges of a plain test.
func (c Cond) plain() (ruleset.Test, bool) {
	t, ok := c.Of.(ruleset.Test)
	return t, ok && t.Mask == (ruleset.Value{}) && !t.Not
}

// Plain gives the test of a condition that is a plain one.
func (c Cond) Plain() (ruleset.Test, bool) { return c.plain() }

// Hook is the hook at which the condition is asked.
func (c Cond) Hook() ruleset.Hook { return c.place.hook }

// Tracked says whether connection tracking has seen the packets that are asked.
func (c Cond) Tracked() bool { return c.place.tracked }

// Ranges writes a test as sorted ranges of its field that neither overlap nor touch, unless its mask has holes in a field too wide to try every value.
func Ranges(t ruleset.Test) ([]ruleset.Range, bool) { return ranges(t) }

// Normal brings ranges into that order, and cuts off what is beyond the width.
func Normal(rs []ruleset.Range, width int) []ruleset.Range { return normal(rs, width) }

// Intersect is what two lists of such ranges have in common.
func Intersect(a, b []ruleset.Range) []ruleset.Range { return intersect(a, b) }

// Without is everything of a width that such ranges leave out.
func Without(rs []ruleset.Range, width int) []ruleset.Range { return without(rs, width) }

// group is what changes together: the fields that SetField, NoTrack and SetZone touch.
type group uint8

const (
	fixed group = iota
	markGroup
	dsGroup
	priorityGroup
	ctGroup
	untrackGroup // of no field: where rules keep packets out of connection tracking,
	zoneGroup    // and where they give them a zone
	numGroups
)

func groupOf(f ruleset.Field) group {
	switch f {
	case ruleset.Mark:
		return markGroup
	case ruleset.DSField:
		return dsGroup
	case ruleset.Priority:
		return priorityGroup
	case ruleset.CTState, ruleset.CTStateNAT:
		return ctGroup
	}
	if f.OfConnection() {
		return ctGroup
	}
	return fixed
}

// fieldsOf lists the fields that a condition asks for.
func fieldsOf(s ruleset.Step) (fs []ruleset.Field) {
	switch s := s.(type) {
	case ruleset.Test:
		return []ruleset.Field{s.Field}
	case ruleset.AnyTest:
		for _, t := range s.Of {
			fs = append(fs, t.Field)
		}
	case ruleset.Lookup:
		fs = append(slices.Clip(s.Key), inMembers(s)...)
		for _, m := range s.Of {
			fs = append(fs, m.Key...)
		}
	}
	return fs
}

// inMembers are the fields that a list of ipsets which is asked live may ask for, as far as they change on the way or have another meaning elsewhere: nobody here knows its members.
func inMembers(l ruleset.Lookup) (fs []ruleset.Field) {
	if len(l.Src) == 0 || len(l.Key) > 0 {
		return nil
	}
	fs = []ruleset.Field{ruleset.EtherSrc, ruleset.EtherDst}
	switch {
	case len(l.Src) < 2: // neither hash:ip,mark nor hash:net,iface fits
	case l.Src[1]:
		fs = append(fs, ruleset.Mark, ruleset.IIFName)
	default:
		fs = append(fs, ruleset.Mark, ruleset.OIFName)
	}
	return fs
}

// normal brings ranges into order: sorted, without overlap, neighbours joined, empty ones gone, nothing beyond the field's width.
func normal(rs []ruleset.Range, width int) []ruleset.Range {
	last := ruleset.Max(width)
	sorted := make([]ruleset.Range, 0, len(rs))
	for _, r := range rs {
		if r.Hi.Compare(last) > 0 {
			r.Hi = last
		}
		if r.Lo.Compare(r.Hi) <= 0 {
			sorted = append(sorted, r)
		}
	}
	slices.SortFunc(sorted, func(a, b ruleset.Range) int { return a.Lo.Compare(b.Lo) })
	out := sorted[:0]
	for _, r := range sorted {
		if n := len(out); n > 0 && (out[n-1].Hi == ruleset.Max(128) || r.Lo.Compare(out[n-1].Hi.Next()) <= 0) {
			if r.Hi.Compare(out[n-1].Hi) > 0 {
				out[n-1].Hi = r.Hi
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// isNormal says whether ranges are in that order.
func isNormal(rs []ruleset.Range, width int) bool {
	for i, r := range rs {
		if r.Lo.Compare(r.Hi) > 0 || i > 0 && (rs[i-1].Hi.Compare(r.Lo) >= 0 || rs[i-1].Hi.Next() == r.Lo) {
			return false
		}
	}
	return len(rs) == 0 || rs[len(rs)-1].Hi.Compare(ruleset.Max(width)) <= 0
}

// without is everything of a width that normal ranges leave out.
func without(rs []ruleset.Range, width int) (out []ruleset.Range) {
	next, last := ruleset.Value{}, ruleset.Max(width)
	for _, r := range rs {
		if next.Compare(r.Lo) < 0 {
			out = append(out, ruleset.Span(next, r.Lo.Prev()))
		}
		if r.Hi == last {
			return out
		}
		next = r.Hi.Next()
	}
	return append(out, ruleset.Span(next, last))
}

// intersect is what two lists of normal ranges have in common.
func intersect(a, b []ruleset.Range) (out []ruleset.Range) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		lo, hi := a[i].Lo, a[i].Hi
		if b[j].Lo.Compare(lo) > 0 {
			lo = b[j].Lo
		}
		if b[j].Hi.Compare(hi) < 0 {
			hi = b[j].Hi
		}
		if lo.Compare(hi) <= 0 {
			out = append(out, ruleset.Span(lo, hi))
		}
		if a[i].Hi.Compare(b[j].Hi) < 0 {
			i++
		} else {
			j++
		}
	}
	return out
}

// ranges writes a test as plain ranges of its field, unless its mask has holes in a field too wide to try every value.
func ranges(t ruleset.Test) ([]ruleset.Range, bool) {
	width := t.Field.Width()
	if t.Mask == (ruleset.Value{}) && !t.Not && isNormal(t.Ranges, width) { // as most tests are
		return slices.Clip(t.Ranges), true
	}
	all := ruleset.Max(width)
	mask := t.Mask.And(all)
	if t.Mask == (ruleset.Value{}) {
		mask = all
	}
	host := mask.Xor(all)
	var rs []ruleset.Range
	switch {
	case len(t.Ranges) == 0: // no value is in none, whatever the mask
	case host.And(host.Next()) == (ruleset.Value{}): // a prefix: ones, then zeros
		for _, r := range normal(t.Ranges, width) {
			// Masked values are multiples of host+1: the first from Lo on, the last up to Hi.
			lo, hi := r.Lo.And(mask), r.Hi.And(mask)
			if lo != r.Lo {
				if lo == mask {
					continue
				}
				lo = lo.Or(host).Next()
			}
			if lo.Compare(hi) <= 0 {
				rs = append(rs, ruleset.Span(lo, hi.Or(host)))
			}
		}
	case width <= 16:
		for n := range uint64(1) << width {
			if contains(t.Ranges, ruleset.Num(n).And(mask)) {
				rs = append(rs, ruleset.One(ruleset.Num(n)))
			}
		}
	default:
		return nil, false
	}
	rs = normal(rs, width)
	if t.Not {
		rs = without(rs, width)
	}
	return rs, true
}

// sameValue says whether two conditions see the same value of a field. The receiver of a translated packet is another behind the route than before it.
func (c Cond) sameValue(d Cond, f ruleset.Field) bool {
	return c.place.tracked == d.place.tracked && c.Epoch == d.Epoch && (!ofReceiver(f) || routed(c.place.hook) == routed(d.place.hook))
}

// ofReceiver says whether a field is one that the translation of destinations changes, or that of sources in the packets which come back.
func ofReceiver(f ruleset.Field) bool {
	switch f {
	case ruleset.IP4Dst, ruleset.IP6Dst, ruleset.DPort, ruleset.SetDPort, ruleset.DstAddrType:
		return true
	}
	return false
}

// and adds a condition. same: those given imply it already; never: nothing can satisfy them all.
func and(when []Cond, c Cond) (out []Cond, same, never bool) {
	t, plain := c.plain()
	for i, d := range when {
		if u, ok := d.plain(); ok && plain && u.Field == t.Field && c.sameValue(d, t.Field) {
			both := intersect(u.Ranges, t.Ranges)
			if slices.Equal(both, u.Ranges) {
				return when, true, false
			}
			out = slices.Clone(when)
			out[i].Of = ruleset.Test{Field: t.Field, Ranges: both}
			return out, false, len(both) == 0
		}
		if !plain && reflect.DeepEqual(c, d) {
			return when, true, false
		}
		if !plain && opposite(c, d) {
			return when, false, true
		}
	}
	return append(slices.Clip(when), c), false, false
}

// opposite says whether two conditions cannot hold together because one is the other's negation.
func opposite(c, d Cond) bool {
	switch s := c.Of.(type) {
	case ruleset.Test:
		s.Not = !s.Not
		c.Of = s
	case ruleset.AnyTest:
		s.Not = !s.Not
		c.Of = s
	case ruleset.Lookup:
		s.Not = !s.Not
		c.Of = s
	}
	return reflect.DeepEqual(c, d)
}
