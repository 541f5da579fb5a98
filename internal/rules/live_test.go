// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// liveRules is a rule that asks an ipset whose elements were not read.
func liveRules(s ruleset.Set) *ruleset.Ruleset {
	s.Dialect, s.Live, s.Widths = ruleset.IPSet, true, []int{32}
	lookup := ruleset.Lookup{Set: 0, Key: []ruleset.Field{ruleset.IP4Src}, Src: []bool{true}}
	return &ruleset.Ruleset{Sets: []ruleset.Set{s}, Tables: []ruleset.Table{{Dialect: ruleset.Legacy, Family: ruleset.IP4, Name: "filter", Chains: []ruleset.Chain{{
		Name: "FORWARD", Base: &ruleset.Base{Hook: ruleset.Forward, Policy: ruleset.Accept}, Rules: []ruleset.Rule{{Steps: []ruleset.Step{lookup, ruleset.Verdict{Code: ruleset.Drop}}}}}}}}}
}

// A set that was not read is asked live where programs can do that, and is never taken for an empty one.
func TestLiveSets(t *testing.T) {
	known := liveRules(ruleset.Set{Name: "a", Type: "hash:ip", Family: ruleset.IP4, Index: 7})
	for _, c := range []struct {
		name string
		rs   *ruleset.Ruleset
		can  bool
		slow string
	}{
		{"programs can ask", known, true, ""},
		{"programs cannot ask", known, false, "set a: changes without notice"},
		{"a set with counters", liveRules(ruleset.Set{Name: "c", Type: "hash:ip", Family: ruleset.IP4, Unknown: "ipset with counters"}), true, "ipset with counters"},
	} {
		pr := rules.Flatten(c.rs, rules.Class{Family: ruleset.IP4, LiveSets: c.can})
		slow := pr.Slow()
		if named := len(slow) == 1 && c.slow != "" && strings.Contains(slow[0].Why, c.slow); named != (c.slow != "") || c.slow == "" && len(slow) > 0 {
			t.Errorf("%s: slow %+v, want %q", c.name, slow, c.slow)
		}
		im, err := image.Compile(pr, nil, image.Options{Stage: image.Post})
		if err != nil || im == nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if asks := im.SetsAt != 0 && len(im.Sets) == 1 && im.Sets[0].Index == 7; asks != (c.slow == "") || im.Unsaid != 0 {
			t.Errorf("%s: the image asks %+v at %d, %d entries unsaid", c.name, im.Sets, im.SetsAt, im.Unsaid)
		}
	}
	// One that images have no kind for leaves its packets to Linux.
	pr := rules.Flatten(liveRules(ruleset.Set{Name: "m", Type: "hash:net,iface", Family: ruleset.IP4}), rules.Class{Family: ruleset.IP4, LiveSets: true})
	if im, err := image.Compile(pr, nil, image.Options{Stage: image.Post}); err != nil || im.Unsaid != 1 {
		t.Errorf("a set of unknown kind: %+v, %v", im, err)
	}
}
