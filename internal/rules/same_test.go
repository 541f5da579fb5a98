// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	. "github.com/shuntnet/shunt/internal/model/ruleset"
)

// changeSome gives the rule set after rules came and went in one of its chains, sharing all that did not change.
func changeSome(t *rapid.T, rs *Ruleset) *Ruleset {
	out := *rs
	out.Tables = slices.Clone(rs.Tables)
	if rapid.Bool().Draw(t, "elements") {
		out.Sets = refillSome(t, rs.Sets)
		if rapid.Bool().Draw(t, "elements alone") {
			return &out
		}
	}
	i := rapid.IntRange(0, len(rs.Tables)-1).Draw(t, "table")
	table := &out.Tables[i]
	table.Chains = slices.Clone(table.Chains)
	c := &table.Chains[rapid.IntRange(0, len(table.Chains)-1).Draw(t, "chain")]
	var changed []Rule
	for _, r := range c.Rules {
		if rapid.IntRange(0, 3).Draw(t, "came") == 0 {
			other := Rule{Handle: 1000 + uint64(len(changed)), Steps: slices.DeleteFunc(slices.Clone(r.Steps), func(s Step) bool {
				v, ok := s.(Verdict)
				return ok && v.Chain != "" // no loops
			})}
			other.Steps = append(other.Steps, Verdict{Code: rapid.SampledFrom([]Code{Drop, Accept, Return}).Draw(t, "code")})
			changed = append(changed, other)
		}
		if rapid.IntRange(0, 3).Draw(t, "stays") > 0 {
			changed = append(changed, r)
		}
	}
	c.Rules = changed
	return &out
}

// refillSome adds elements to sets that are refillable, and takes some of theirs.
func refillSome(t *rapid.T, sets []Set) []Set {
	out := slices.Clone(sets)
	for i := range out {
		s := &out[i]
		if !refillable(s) {
			continue
		}
		var elements []Element
		for _, e := range s.Elements {
			if rapid.IntRange(0, 3).Draw(t, "element stays") > 0 {
				elements = append(elements, e)
			}
		}
		if key := Num(rapid.Uint64Range(0, 300).Draw(t, "key")); rapid.Bool().Draw(t, "element comes") && !slices.ContainsFunc(elements, func(e Element) bool { return e.Key[0].Has(key) }) {
			elements = append(elements, Element{Key: []Range{One(key)}, Counter: NoCounter})
		}
		s.Elements = elements
	}
	return out
}

// Whoever satisfies nothing that changed rules ask meets the same before and after, counters included.
func TestChangedRulesConcernWhomTheyAsk(t *testing.T) {
	alike, concerned := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		a := SomeRuleset(t)
		if len(a.Tables) == 0 || slices.ContainsFunc(a.Tables, func(t Table) bool { return len(t.Chains) == 0 }) {
			return
		}
		b := changeSome(t, a)
		for _, family := range []Family{IP4, IP6} {
			changed, ok := changedRules(a, b, family, 64)
			if !ok {
				continue
			}
			front := &Ruleset{Sets: a.Sets, Tables: []Table{{Family: family, Name: "front", Chains: []Chain{{Name: "c", Base: &Base{Hook: Forward, Policy: Accept, Counter: NoCounter}}}}}}
			for i := range changed {
				front.Tables[0].Chains[0].Rules = append(front.Tables[0].Chains[0].Rules, Rule{Number: i + 1, Steps: append(Asked(&changed[i]), Verdict{Code: Drop})})
			}
			before, after, ask := NewInterpreter(a), NewInterpreter(b), NewInterpreter(front)
			for range 20 {
				p := somePacket(t, family)
				if ask.Run(p).Outcome != Accepted {
					concerned++
					continue
				}
				x, y := before.Run(p), after.Run(p)
				if x.Outcome == IsSlow {
					continue
				}
				x.By, y.By = Ref{}, Ref{} // rules have other numbers now
				if !reflect.DeepEqual(x, y) {
					t.Fatalf("%+v\nmeets %+v\nand then %+v\nthough it concerns none of %+v", p, x, y, changed)
				}
				alike++
			}
		}
	})
	if alike < 100 || concerned < 100 {
		t.Errorf("%d packets were not concerned, %d were", alike, concerned)
	}
}

// A moved rule, another set or another policy is not a changed rule.
func TestChangedIsOnlyRules(t *testing.T) {
	drop := func(handle uint64) Rule { return Rule{Handle: handle, Steps: []Step{Verdict{Code: Drop}}} }
	one, two, three := drop(1), drop(2), drop(3)
	of := func(policy Code, sets []Set, rules ...Rule) *Ruleset {
		return &Ruleset{Sets: sets, Tables: []Table{{Family: IP4, Name: "t", Chains: []Chain{{Name: "c", Rules: rules, Base: &Base{Hook: Forward, Policy: policy, Counter: NoCounter}}}}}}
	}
	was := of(Accept, nil, one, two)
	for _, c := range []struct {
		what  string
		now   *Ruleset
		count int // of changed rules; negative where it is not known
	}{
		{"the same", of(Accept, nil, one, two), 0},
		{"one more", of(Accept, nil, one, three, two), 1},
		{"one less", of(Accept, nil, two), 1},
		{"one replaced", of(Accept, nil, one, three), 2},
		{"in another order", of(Accept, nil, two, one), 2},
		{"equal, but another", of(Accept, nil, one, drop(2)), 2},
		{"another policy", of(Drop, nil, one, two), -1},
		{"a set", of(Accept, []Set{{Name: "s"}}, one, two), -1},
		{"more than the limit", of(Accept, nil, drop(4), drop(5), drop(6), drop(7)), -1},
	} {
		changed, ok := changedRules(was, c.now, IP4, 4)
		if ok != (c.count >= 0) || ok && len(changed) != c.count {
			t.Errorf("%s: %d rules, %v", c.what, len(changed), ok)
		}
	}
}

// A rule behind a translation is not asked for what that changes, whichever way leads to it; one in front of it is.
func TestAskedBehindTranslation(t *testing.T) {
	to := func(handle uint64) Rule {
		ask := func(f Field) Test { return Test{Field: f, Ranges: []Range{One(Num(handle))}} }
		return Rule{Handle: handle, Steps: []Step{ask(IP4Src), ask(IP4Dst), ask(L4Proto), ask(SPort), ask(DPort), ask(CTMark), Verdict{Code: Drop}}}
	}
	jump := []Rule{{Handle: 99, Steps: []Step{Verdict{Code: Jump, Chain: "called"}}}}
	sets := func(n uint64) []Set {
		return []Set{{Dialect: NFT, Widths: []int{32}, Elements: []Element{{Key: []Range{One(Num(n))}, Counter: NoCounter}}}}
	}
	lookup := []Rule{{Handle: 98, Steps: []Step{Lookup{Set: 0, Key: []Field{IP4Dst}}, Verdict{Code: Drop}}}}
	at := func(hook Hook, priority int32) *Base {
		return &Base{Hook: hook, Priority: priority, Type: "filter", Policy: Accept, Counter: NoCounter}
	}
	all := []Field{IP4Src, IP4Dst, L4Proto, SPort, DPort}
	senders := []Field{IP4Src, L4Proto, SPort}
	for what, c := range map[string]struct {
		chains func(rules ...Rule) []Chain
		want   []Field
	}{
		"in front":       {func(r ...Rule) []Chain { return []Chain{{Name: "c", Base: at(Prerouting, -101), Rules: r}} }, all},
		"beside":         {func(r ...Rule) []Chain { return []Chain{{Name: "c", Base: at(Prerouting, -100), Rules: r}} }, senders},
		"behind":         {func(r ...Rule) []Chain { return []Chain{{Name: "c", Base: at(Forward, 0), Rules: r}} }, senders},
		"when it leaves": {func(r ...Rule) []Chain { return []Chain{{Name: "c", Base: at(Postrouting, 99), Rules: r}} }, senders},
		"behind both":    {func(r ...Rule) []Chain { return []Chain{{Name: "c", Base: at(Postrouting, 100), Rules: r}} }, []Field{L4Proto}},
		"called in front": {func(r ...Rule) []Chain {
			return []Chain{{Name: "called", Rules: r}, {Name: "c", Base: at(Prerouting, -300), Rules: jump}}
		}, all},
		"called from either side": {func(r ...Rule) []Chain {
			return []Chain{{Name: "called", Rules: r}, {Name: "c", Base: at(Prerouting, -300), Rules: jump}, {Name: "d", Base: at(Forward, 0), Rules: jump}}
		}, senders},
	} {
		with := func(rules ...Rule) *Ruleset {
			return &Ruleset{Tables: []Table{{Family: IP4, Name: "t", Chains: c.chains(rules...)}}}
		}
		one, two := to(1), to(2)
		changes := FindChanges(with(one), with(one, two), IP4, 4)
		if changes == nil || len(changes.Rules) != 1 {
			t.Fatalf("%s: changes %+v", what, changes)
		}
		for translated, want := range map[bool][]Field{false: all, true: c.want} {
			var got []Field
			for _, s := range changes.AskedAtFirst(0, translated) {
				got = append(got, s.(Test).Field)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, translated %t: asked for %v, want %v", what, translated, got, want)
			}
		}
		a, b := with(lookup...), with(lookup...) // of one rule, whose set has another element
		a.Sets, b.Sets = sets(1), sets(2)
		if changes = FindChanges(a, b, IP4, 4); changes == nil || len(changes.Rules) != 1 || (len(changes.AskedAtFirst(0, true)) == 0) == slices.Contains(c.want, IP4Dst) {
			t.Errorf("%s: another element makes %+v", what, changes)
		}
	}
}

func changedRules(a, b *Ruleset, family Family, limit int) ([]Rule, bool) {
	c := FindChanges(a, b, family, limit)
	if c == nil {
		return nil, false
	}
	return c.Rules, true
}
