// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// hits are how many fast packets met each kind of condition and action of rules, by dialect: "legacy: port", "nft: set of address . port".
type hits map[string]hit

// hit is how many packets, and in how many rules, those of one step of one case.
type hit struct{ packets, rules uint64 }

func (h hits) add(kind string, packets uint64) {
	h[kind] = hit{h[kind].packets + packets, h[kind].rules + 1}
}

func (h hits) merge(o hits) {
	for k, v := range o {
		h[k] = hit{h[k].packets + v.packets, h[k].rules + v.rules}
	}
}

func (h hits) String() string {
	var b strings.Builder
	b.WriteString("kinds of conditions and actions that fast packets met in rules that count (packets; rules, in each step of a case):\n")
	for _, k := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(&b, "  %-52s %9d %6d\n", k, h[k].packets, h[k].rules)
	}
	return b.String()
}

// addCounted notes what rules have counted on the fast path alone. Of nf_tables shunt tells its part, whose rise is what counts. To legacy tables it has given it: before and
// after are what the kernel had counted before that, and then.
func (h hits) addCounted(before, after *ruleset.Ruleset, said ruleCounters, known map[string]uint64) {
	was := map[string]uint64{}
	for i := range before.Counters {
		was[before.Counters[i].At.ID()] = before.Counters[i].Packets
	}
	for i := range after.Tables {
		t := &after.Tables[i]
		for j := range t.Chains {
			for k := range t.Chains[j].Rules {
				rule := &t.Chains[j].Rules[k]
				kinds, counter := countedBy(after, rule)
				if counter == ruleset.NoCounter {
					continue
				}
				id := after.Counters[counter].At.ID()
				now := after.Counters[counter].Packets
				if t.Dialect == ruleset.NFT {
					now = said[fmt.Sprintf("nft %s %s %s #%d", t.Family, t.Name, t.Chains[j].Name, rule.Number)].fast.Packets
					was[id], known[id] = known[id], now
				}
				if now <= was[id] {
					continue
				}
				for _, kind := range kinds {
					h.add(dialectOf(t)+": "+kind, now-was[id])
				}
			}
		}
	}
}

// addMaps notes the verdict maps that a packet has found its verdict in.
func (h hits) addMaps(rs *ruleset.Ruleset, met []rules.Ref) {
	for _, by := range met {
		if by.Rule == nil {
			continue
		}
		for _, s := range by.Rule.Steps {
			if m, ok := s.(ruleset.VerdictMap); ok {
				kind, _ := kindOf(rs, m)
				h.add(dialectOf(by.Table)+": "+kind, 1)
			}
		}
	}
}

// dialectOf is the tool that a table is of.
func dialectOf(t *ruleset.Table) string {
	switch {
	case t.Dialect == ruleset.Legacy:
		return "legacy"
	case (t.Family == ruleset.IP4 || t.Family == ruleset.IP6) && slices.Contains([]string{"filter", "mangle", "raw", "nat", "security"}, t.Name):
		return "iptables-nft"
	}
	return "nft"
}

// countedBy gives a rule's first counter, with the kinds of all that a packet has met which it counts: the conditions before it, and what stands behind it without a condition.
func countedBy(rs *ruleset.Ruleset, rule *ruleset.Rule) (kinds []string, counter ruleset.CounterID) {
	counter = ruleset.NoCounter
	for _, s := range rule.Steps {
		if c, ok := s.(ruleset.Count); ok && counter == ruleset.NoCounter && c.Counter != ruleset.NoCounter {
			if at := rs.Counters[c.Counter].At; at.Kind == ruleset.RuleCounter && at.Index == 0 || at.Kind == ruleset.LegacyCounter {
				counter = c.Counter
			}
		}
		kind, condition := kindOf(rs, s)
		if condition && counter != ruleset.NoCounter {
			break
		}
		if kind != "" && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, counter
}

// kindOf names the kind of a step, and says whether packets may fail it.
func kindOf(rs *ruleset.Ruleset, s ruleset.Step) (kind string, condition bool) {
	not := func(no bool) string { return map[bool]string{true: "! "}[no] }
	switch s := s.(type) {
	case ruleset.Test:
		if bits := s.Mask != (ruleset.Value{}) && len(s.Ranges) == 1 && s.Ranges[0] == ruleset.One(ruleset.Value{}); bits && ofBits[s.Field] {
			return not(!s.Not) + kindOfTest(s), true // "some of these bits" is "not none of them"
		}
		return not(s.Not) + kindOfTest(s), true
	case ruleset.AnyTest:
		return not(s.Not) + "either port", true
	case ruleset.Lookup:
		set := &rs.Sets[s.Set]
		if set.Dialect == ruleset.IPSet {
			return not(s.Not) + "ipset " + set.Type, true
		}
		return not(s.Not) + "set of " + keyOf(set, s.Key), true
	case ruleset.VerdictMap:
		return "map of " + keyOf(&rs.Sets[s.Set], s.Key), true
	case ruleset.SetByMap:
		return s.Field.String() + " by map", true
	case ruleset.SetField:
		if s.From != ruleset.NoField {
			return "set " + s.Field.String() + " from " + s.From.String(), false
		}
		return "set " + s.Field.String(), false
	case ruleset.SaveMark:
		return "set ct mark", false
	case ruleset.NoTrack:
		return "notrack", false
	case ruleset.SetZone:
		return "set ct zone", false
	case ruleset.Verdict:
		return [...]string{"continue", "accept", "drop", "return", "jump", "goto"}[s.Code], false
	case ruleset.Count:
		return "counter", false
	}
	return "", true // only the kernel's
}

// ofBits are fields that rules ask for bits of.
var ofBits = map[ruleset.Field]bool{ruleset.CTState: true, ruleset.CTStateNAT: true, ruleset.CTStatus: true}

// kindOfTest tells apart what an image asks in different ways: values, ranges, lists, and parts of a field.
func kindOfTest(t ruleset.Test) string {
	name := classOf(t.Field)
	one := len(t.Ranges) == 1 && t.Ranges[0].Lo == t.Ranges[0].Hi
	switch t.Field {
	case ruleset.IIFName, ruleset.OIFName, ruleset.PhysIn, ruleset.PhysOut:
		return name + map[bool]string{false: " by its beginning"}[one]
	case ruleset.IP4Src, ruleset.IP4Dst, ruleset.IP6Src, ruleset.IP6Dst:
		if len(t.Ranges) == 1 && !isPrefix(t.Ranges[0], t.Field.Width()) {
			return name + " range"
		}
	case ruleset.SPort, ruleset.DPort:
		if len(t.Ranges) > 1 {
			return name + " list"
		} else if !one {
			return name + " range"
		}
	case ruleset.DSField:
		return map[bool]string{true: "dscp", false: "tos"}[t.Mask == ruleset.Num(0xfc)]
	case ruleset.Mark, ruleset.CTMark:
		if t.Mask != (ruleset.Value{}) && t.Mask != ruleset.Max(32) {
			return name + " in part"
		}
	}
	return name
}

// isPrefix says whether a range is all that begins alike.
func isPrefix(r ruleset.Range, width int) bool {
	for host := range width + 1 {
		if m := ruleset.Max(host); host > 0 && r.Lo.And(m) == (ruleset.Value{}) && r.Lo.Or(m) == r.Hi {
			return true
		}
	}
	return r.Lo == r.Hi
}

// classOf is a field's name, one for both ends of a packet and both families.
func classOf(f ruleset.Field) string {
	switch f {
	case ruleset.IP4Src, ruleset.IP4Dst, ruleset.IP6Src, ruleset.IP6Dst:
		return "address"
	case ruleset.SPort, ruleset.DPort:
		return "port"
	case ruleset.CTStateNAT:
		return "ct state"
	case ruleset.DSField:
		return "dscp"
	}
	return f.String()
}

// keyOf is what a set of nf_tables is asked by.
func keyOf(set *ruleset.Set, key []ruleset.Field) string {
	var parts []string
	for _, f := range key {
		parts = append(parts, classOf(f))
	}
	return strings.Join(parts, " . ") + map[bool]string{true: " ranges"}[set.Interval]
}
