// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	. "github.com/shuntnet/shunt/internal/model/ruleset"
)

// onSide is a rule set with the base chains of one side of the route alone.
func onSide(rs *Ruleset, behind bool) *Ruleset {
	out := *rs
	out.Tables = slices.Clone(rs.Tables)
	for i := range out.Tables {
		t := &out.Tables[i]
		t.Chains = slices.Clone(t.Chains)
		for j := range t.Chains {
			if b := t.Chains[j].Base; b != nil && routed(b.Hook) != behind {
				t.Chains[j].Base = nil
			}
		}
	}
	return &out
}

// Whom an Over decides meets in it what the new rules mean behind the route, counters included; whom it does not decide meets nothing else than before.
func TestOverDecidesWhatRulesMean(t *testing.T) {
	decided, others, none := 0, 0, 0
	check := func(t *rapid.T) {
		a := SomeRuleset(t)
		if len(a.Tables) == 0 || slices.ContainsFunc(a.Tables, func(t Table) bool { return len(t.Chains) == 0 }) {
			return
		}
		b := changeSome(t, a)
		class := Class{Family: rapid.SampledFrom([]Family{IP4, IP6}).Draw(t, "family"), Zones: true}
		changes := FindChanges(a, b, class.Family, 64)
		if changes == nil || !changes.Behind {
			return
		}
		over := Over(b, class, changes.Rules, 4096)
		if over == nil {
			none++
			return
		}
		first, before, after := NewInterpreter(onSide(a, false)), NewInterpreter(onSide(a, true)), NewInterpreter(onSide(b, true))
		for range 60 {
			p := somePacket(t, class.Family)
			res := first.Run(p)
			if res.Outcome != Accepted || res.Untracked {
				continue
			}
			p.Mark, p.DSField = res.Mark, res.DSField
			want := after.Run(p)
			got, mine := over.Decides(p)
			if mine {
				decided++
			} else {
				others++
				got = before.Run(p)
			}
			if got.Outcome == IsSlow && (mine || want.Outcome == IsSlow) {
				if mine && want.Outcome != IsSlow && got.Why != "ports of another protocol" {
					t.Fatalf("%+v\nis left to Linux since %q, the rules mean %+v\n%s", p, got.Why, want, over)
				}
				continue
			}
			got.By, want.By = Ref{}, Ref{} // rules have other numbers now
			got.RouteMark, want.RouteMark = 0, 0
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v\nmeets %+v (decided in front: %v)\nand not %+v\nbeside %+v\n%s", p, got, mine, want, changes.Rules, over)
			}
		}
	}
	for range 10 { // by chance few rule sets of a round have packets that are decided
		if rapid.Check(t, check); decided >= 40 && others >= 200 {
			break
		}
	}
	t.Logf("%d packets decided, %d not concerned, %d rule sets too large", decided, others, none)
	if decided < 40 || others < 200 { // 200 to 1,000 of them usually
		t.Errorf("%d packets were decided, %d not concerned", decided, others)
	}
}

// Among thousands of rules for other sources an Over has those that the packets of the changed ones can meet, wherever they are.
func TestOverIsSmall(t *testing.T) {
	rs := &Ruleset{Tables: []Table{{Family: IP4, Name: "t", Chains: []Chain{{Name: "f", Base: &Base{Hook: Forward, Type: "filter", Policy: Drop, Counter: NoCounter}}}}}}
	chain := &rs.Tables[0].Chains[0]
	source := func(n uint64) Test { return Test{Field: IP4Src, Ranges: []Range{One(Num(n))}} }
	for i := range uint64(5000) {
		id := CounterID(len(rs.Counters))
		rs.Counters = append(rs.Counters, Counter{})
		chain.Rules = append(chain.Rules, Rule{Handle: i, Steps: []Step{source(0x0a000000 + i), Count{Counter: id}, Verdict{Code: Accept}}})
	}
	chain.Rules = append(chain.Rules, Rule{Handle: 7000, Steps: []Step{Count{Counter: NoCounter}, Test{Field: L4Proto, Ranges: []Range{Nums(6, 6)}}, Verdict{Code: Accept}}})
	class := Class{Family: IP4, Zones: true}
	gone := Rule{Handle: 9000, Steps: []Step{source(0x0a000007), Verdict{Code: Drop}}} // whoever it was for meets two rules and the policy
	over := Over(rs, class, []Rule{gone}, 100)
	if over == nil || len(over.Lists) != 1 || len(over.Lists[0]) > 3 {
		t.Fatalf("of one rule that went:\n%s", over)
	}
	all := Rule{Handle: 9001, Steps: []Step{Test{Field: IP4Src, Ranges: []Range{Nums(0, 0xffffffff)}}, Verdict{Code: Drop}}}
	if over := Over(rs, class, []Rule{all}, 100); over != nil {
		t.Errorf("of a rule for all: %d entries", len(over.Lists[0]))
	}
}

func BenchmarkOver(b *testing.B) {
	rs := &Ruleset{Tables: []Table{{Family: IP4, Name: "t", Chains: []Chain{{Name: "f", Base: &Base{Hook: Forward, Type: "filter", Policy: Accept, Counter: NoCounter}}}}}}
	chain := &rs.Tables[0].Chains[0]
	for i := range uint64(10000) {
		chain.Rules = append(chain.Rules, Rule{Handle: i, Steps: []Step{Test{Field: IP4Src, Ranges: []Range{One(Num(0x0a000000 + i))}}, Verdict{Code: Drop}}})
	}
	changed := []Rule{{Handle: 20000, Steps: []Step{Test{Field: IP4Src, Ranges: []Range{One(Num(5))}}, Verdict{Code: Drop}}}}
	for b.Loop() {
		Over(rs, Class{Family: IP4, Zones: true}, changed, 100)
	}
}
