// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/shuntnet/shunt/internal/model/ruleset"
	"pgregory.net/rapid"
)

// A program and a classifier do to every packet of their class what the interpreter does, whichever chains are written out or called.
func sameMeaning(t *rapid.T) {
	rs := someRuleset(t)
	reference := NewInterpreter(rs)
	class := Class{Family: rapid.SampledFrom([]Family{IP4, IP4, IP6}).Draw(t, "family"), Zones: true}
	if rapid.Bool().Draw(t, "iif known") {
		class.IIF = &someDevices[rapid.IntRange(0, 3).Draw(t, "class iif")]
	}
	if rapid.Bool().Draw(t, "oif known") {
		class.OIF = &someDevices[rapid.IntRange(0, 3).Draw(t, "class oif")]
	}
	limit := rapid.SampledFrom([]int{0, 1, 12}).Draw(t, "limit")
	program := flatten(rs, class, limit)
	for _, list := range program.Lists {
		if slices.ContainsFunc(list, func(e Entry) bool { return e.Then == LeaveSlow && len(e.Do) > 0 }) {
			t.Fatalf("something is done to a packet that is left to the kernel:\n%s", program)
		}
	}
	classifier := NewClassifier(program)
	if rapid.Bool().Draw(t, "vectors for all") {
		classifier = newClassifier(program, 0, 1)
	}
	for range 24 {
		p := somePacket(t, class.Family)
		if class.IIF != nil {
			p.IIF = *class.IIF
		}
		if class.OIF != nil {
			p.OIF = *class.OIF
		}
		if p.CT != nil && p.CT.State == CTEstablished && rapid.Bool().Draw(t, "translated") { // behind the route it is another's
			to := somePacket(t, class.Family)
			p.Translated = &Destination{to.Dst, to.DPort}
		}
		want, got, classified := reference.Run(p), program.Run(p), classifier.Run(p)
		// What a rule does before it leaves a packet to the kernel is left out of the program, a mark that would be saved among it.
		if want.Outcome == IsSlow && want.Why == newMark && want.By == got.By && want.By == classified.By {
			want.Why, classified.Why = got.Why, got.Why
		}
		if diff := cmp.Diff(want, got, refs); diff != "" {
			t.Fatalf("packet %+v\nprogram:\n%s\ninterpreter (-) and program (+) differ:\n%s", p, program, diff)
		}
		if p.Translated != nil { // the classifier looks each field up once
			classified = want
		}
		if diff := cmp.Diff(want, classified, refs); diff != "" {
			t.Fatalf("packet %+v\nprogram:\n%s\ninterpreter (-) and classifier (+) differ:\n%s", p, program, diff)
		}
		if want.Outcome == IsSlow && want.By.Table != nil && want.Why != newMark && !foretold(program, &p, want) {
			t.Fatalf("packet %+v is slow (%s, %s) in no region of\n%s", p, want.By, want.Why, program)
		}
	}
}

// foretold says whether a packet that is slow lies in a region that Slow names.
func foretold(pr *Program, p *Packet, r Result) bool {
	w := begin(p)
	return slices.ContainsFunc(pr.Slow(), func(s SlowTraffic) bool {
		return s.By == r.By && s.Why == r.Why && (s.Called || !slices.ContainsFunc(s.Region, func(c Cond) bool { return c.Epoch == 0 && !w.holds(pr.rules.rs, c) }))
	})
}

func last(s []Step) Step {
	if len(s) == 0 {
		return nil
	}
	return s[len(s)-1]
}

// refs compares references to rules by identity.
var refs = cmp.Comparer(func(a, b Ref) bool { return a == b })

func TestFlattenedMeansTheSame(t *testing.T) { rapid.Check(t, sameMeaning) }

func FuzzFlattenedMeansTheSame(f *testing.F) { f.Fuzz(rapid.MakeFuzz(sameMeaning)) }

// The random rule sets and packets are worth something: every outcome and every kind of entry is common among them.
func TestRandomRulesAreNotDull(t *testing.T) {
	outcomes := [...]string{"accepted", "dropped", "slowed"}
	seen := map[string]int{}
	const sets, packets = 700, 12
	ruleset := rapid.Custom(func(t *rapid.T) *Ruleset { return someRuleset(t) })
	packet := rapid.Custom(func(t *rapid.T) Packet { return somePacket(t, IP4) })
	for i := range sets {
		rs := ruleset.Example(i)
		reference, program := NewInterpreter(rs), flatten(rs, Class{Family: IP4, Zones: true}, []int{0, 12}[i%2])
		for _, list := range program.Lists {
			for _, e := range list {
				seen[e.Then.String()]++
				if e.through() {
					seen["detached"]++
				}
				if _, sets := last(e.Do).(SetField); sets && e.Then == Skip && len(e.Do) == 1 {
					seen["mapped"]++
				}
			}
		}
		for j := range packets {
			p := packet.Example(i*packets + j)
			r := reference.Run(p)
			seen[outcomes[r.Outcome]]++
			seen["counted"] += min(1, len(r.Counted))
			if r.Outcome == Accepted && r.Mark != p.Mark {
				seen["marked"]++
			}
			if r.Untracked {
				seen["untracked"]++
			}
			if r.Zone.Dir != 0 {
				seen["zoned"]++
			}
		}
	}
	t.Log(seen)
	for what, least := range map[string]int{
		"accepted": 800, "dropped": 400, "slowed": 200, "counted": 800, "marked": 60, "untracked": 20, "zoned": 8,
		"next": 200, "skip": 200, "drop": 100, "slow": 50, "call": 20, "map": 15, "detached": 10, "mapped": 10,
	} {
		if seen[what] < least {
			t.Errorf("%s: %d times, want at least %d", what, seen[what], least)
		}
	}
}
