// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

func (r Ref) String() string {
	switch {
	case r.Table == nil:
		return "no rule"
	case r.Rule == nil:
		return fmt.Sprintf("%s %s %s policy", r.Table.Family, r.Table.Name, r.Chain.Name)
	case r.Rule.Handle != 0:
		return fmt.Sprintf("%s %s %s rule %d (handle %d)", r.Table.Family, r.Table.Name, r.Chain.Name, r.Rule.Number, r.Rule.Handle)
	}
	return fmt.Sprintf("%s %s %s rule %d", r.Table.Family, r.Table.Name, r.Chain.Name, r.Rule.Number)
}

// String is a listing of the program, a line for each entry.
func (pr *Program) String() string {
	var b strings.Builder
	for n, list := range pr.Lists {
		if n > 0 {
			fmt.Fprintf(&b, "list %d:\n", n)
		}
		for i, e := range list {
			fmt.Fprintf(&b, "%4d  %s\n", i, pr.line(e))
		}
	}
	return b.String()
}

func (pr *Program) line(e Entry) string {
	var parts []string
	for _, c := range e.When {
		parts = append(parts, c.Text(pr.rules.rs))
	}
	for _, s := range e.Do {
		parts = append(parts, "["+StepText(pr.rules.rs, s)+"]")
	}
	parts = append(parts, "→ "+e.Then.String())
	switch e.Then {
	case Skip:
		parts = append(parts, exit(e.To))
	case Call:
		parts = append(parts, fmt.Sprintf("list %d, back at %s", e.List, exit(e.To)))
	case ByMap:
		parts = append(parts, StepText(pr.rules.rs, e.Map.Of))
	case LeaveSlow:
		parts = append(parts, e.Why)
	}
	return strings.Join(parts, " ") + "  # " + e.By.String()
}

func exit(to int) string {
	switch to {
	case Back:
		return "back"
	case EndBase:
		return "end of base chain"
	}
	return fmt.Sprint(to)
}

// Text writes a condition as nft would, as far as nft has words for it.
func (c Cond) Text(rs *ruleset.Ruleset) string {
	text := StepText(rs, c.Of)
	if c.Epoch > 0 {
		text += fmt.Sprintf("'%d", c.Epoch)
	}
	return text
}

// StepText writes a step of a rule as nft would, as far as nft has words for it.
func StepText(rs *ruleset.Ruleset, s ruleset.Step) string {
	switch s := s.(type) {
	case ruleset.Test:
		return testText(s)
	case ruleset.AnyTest:
		var all []string
		for _, t := range s.Of {
			all = append(all, testText(t))
		}
		text := "(" + strings.Join(all, " or ") + ")"
		if s.Not {
			return "not " + text
		}
		return text
	case ruleset.Lookup:
		return lookupText(rs, s)
	case ruleset.Count:
		return fmt.Sprint("counter ", s.Counter)
	case ruleset.SetField:
		text := fmt.Sprintf("%s set %s & %#x ^ %#x", s.Field, s.Field, s.And, s.Xor)
		if s.From != ruleset.NoField {
			text += fmt.Sprintf(" ^ %s & %#x", s.From, s.Mask)
		}
		return text
	case ruleset.SaveMark:
		return fmt.Sprintf("ct mark set ct mark & %#x ^ %#x ^ mark & %#x", s.And, s.Xor, s.Mask)
	case ruleset.SetByMap:
		return fmt.Sprintf("%s set %s", s.Field, strings.Replace(lookupText(rs, ruleset.Lookup{Set: s.Set, Key: s.Key}), "@", "map @", 1))
	case ruleset.NoTrack:
		return "notrack"
	case ruleset.SetZone:
		return fmt.Sprintf("ct %szone set %d", s.Dir, s.Zone)
	case ruleset.Verdict:
		return strings.TrimSpace([...]string{"continue", "accept", "drop", "return", "jump", "goto"}[s.Code] + " " + s.Chain)
	case ruleset.VerdictMap:
		return strings.Replace(lookupText(rs, s.Lookup()), "@", "vmap @", 1)
	case ruleset.Unknown:
		return "unknown: " + s.Name
	case ruleset.Slow:
		return s.Name
	}
	return fmt.Sprintf("%T", s)
}

func lookupText(rs *ruleset.Ruleset, l ruleset.Lookup) string {
	var key []string
	for i, f := range l.Key {
		key = append(key, f.String())
		if mask := l.Part(i, ruleset.Range{}).Mask; mask != (ruleset.Value{}) {
			key[i] += fmt.Sprintf(" & %#x", mask.Lo)
		}
	}
	op := " @"
	if l.Not {
		op = " != @"
	}
	name := fmt.Sprint("set ", l.Set)
	if l.Set >= 0 && int(l.Set) < len(rs.Sets) {
		name = rs.Sets[l.Set].Name
	}
	return strings.Join(key, " . ") + op + name
}

func testText(t ruleset.Test) string {
	text := t.Field.String()
	if t.Mask != (ruleset.Value{}) {
		text += fmt.Sprintf(" & %s", valueText(t.Field, t.Mask))
	}
	if t.Not {
		text += " !="
	}
	if mask, value, ok := masked(t); ok && len(t.Ranges) > 2 {
		return fmt.Sprintf("%s & %s == %s", t.Field, valueText(t.Field, mask), valueText(t.Field, value))
	}
	var all []string
	for _, r := range t.Ranges {
		all = append(all, rangeText(t.Field, r))
	}
	if len(all) == 1 {
		return text + " " + all[0]
	}
	return text + " { " + strings.Join(all, ", ") + " }"
}

// masked gives the bits that are the same in all of the values that a test of a small field lists, if these are all that have them.
func masked(t ruleset.Test) (mask, value ruleset.Value, ok bool) {
	width := t.Field.Width()
	if width > 8 || len(t.Ranges) == 0 || t.Not || t.Mask != (ruleset.Value{}) {
		return mask, value, false
	}
	all, value := ruleset.Max(width), t.Ranges[0].Lo
	mask, n := all, uint64(0)
	for _, r := range t.Ranges {
		for v := r.Lo.Lo; v <= r.Hi.Lo; v++ {
			mask, n = mask.And(ruleset.Num(v).Xor(value).Xor(all)), n+1
		}
	}
	return mask, value.And(mask), n == 1<<(width-bits.OnesCount64(mask.Lo))
}

// rangeText writes a range of a field's values: a prefix as such, one value alone.
func rangeText(f ruleset.Field, r ruleset.Range) string {
	if r.Lo == r.Hi {
		return valueText(f, r.Lo)
	}
	if host := r.Lo.Xor(r.Hi); host.And(host.Next()) == (ruleset.Value{}) && r.Lo.And(host) == (ruleset.Value{}) {
		bits := f.Width()
		for h := host; h != (ruleset.Value{}); bits-- {
			h = ruleset.Value{Hi: h.Hi >> 1, Lo: h.Lo>>1 | h.Hi<<63}
		}
		switch {
		case bits == 0:
			return "any"
		case f.IsName() && bits%8 == 0:
			return valueText(f, r.Lo) + "*"
		case isAddr(f):
			return fmt.Sprintf("%s/%d", valueText(f, r.Lo), bits)
		}
	}
	return valueText(f, r.Lo) + "-" + valueText(f, r.Hi)
}

func isAddr(f ruleset.Field) bool {
	switch f {
	case ruleset.IP4Src, ruleset.IP4Dst, ruleset.IP6Src, ruleset.IP6Dst, ruleset.CTOrigSrc4, ruleset.CTOrigDst4, ruleset.CTOrigSrc6, ruleset.CTOrigDst6:
		return true
	}
	return false
}

func valueText(f ruleset.Field, v ruleset.Value) string {
	switch {
	case isAddr(f) && f.Width() == 32:
		return v.Is4().String()
	case isAddr(f):
		return v.Is6().String()
	case (f == ruleset.L4Proto || f == ruleset.CTProto) && protocols[v.Lo] != "":
		return protocols[v.Lo]
	case f.IsName():
		b := v.Bytes16()
		return fmt.Sprintf("%q", strings.TrimRight(string(b[:]), "\x00"))
	case f == ruleset.Mark || f == ruleset.CTMark || f == ruleset.CTStatus || f == ruleset.FragOffset || f == ruleset.TCPFlags || f == ruleset.DSField || f == ruleset.CTState || f == ruleset.CTStateNAT:
		return fmt.Sprintf("%#x", v.Lo)
	case f == ruleset.EtherSrc || f == ruleset.EtherDst:
		b := v.Bytes16()
		return fmt.Sprintf("%x:%x:%x:%x:%x:%x", b[10], b[11], b[12], b[13], b[14], b[15])
	}
	return fmt.Sprint(v.Lo)
}

// protocols are the names of those that rules name most.
var protocols = map[uint64]string{1: "icmp", 6: "tcp", 17: "udp", 47: "gre", 50: "esp", 51: "ah", 58: "ipv6-icmp", 132: "sctp", 136: "udplite"}
