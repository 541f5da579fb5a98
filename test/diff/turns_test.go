// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
	"testing"
)

// In as many turns as there are that follow each other every case runs at every hook, and no reason goes unasked in one.
func TestTurns(t *testing.T) {
	cases, hooks := Hands(), []string{"xdp", "tc"}
	ran := make([]map[string]int, len(cases))
	total := 0
	for number := range allTurns {
		met := map[string]bool{}
		for i, turn := range turnsOf(cases, hooks, 3*allTurns+number) {
			if ran[i] == nil {
				ran[i] = map[string]int{}
			}
			for _, hook := range turn.hooks {
				total++
				ran[i][hook]++
				for _, r := range cases[i].reasons {
					met[r] = true
				}
			}
		}
		for i := range cases {
			for _, r := range cases[i].reasons {
				if !met[r] {
					t.Errorf("turn %d: nothing runs that must meet %q", number, r)
				}
			}
		}
	}
	every := 0
	for i := range cases {
		want := hooks
		if len(cases[i].hooks) > 0 {
			want = cases[i].hooks
		}
		every += len(want)
		for _, hook := range want {
			if ran[i][hook] == 0 {
				t.Errorf("%s never ran at %s", cases[i].name, hook)
			}
			if !cases[i].takesTurns() && ran[i][hook]*len(want) != allTurns {
				t.Errorf("%s, of a small family, ran %d times of %d at %s", cases[i].name, ran[i][hook], allTurns, hook)
			}
		}
	}
	if each := total / allTurns; each*10 > every*4 {
		t.Errorf("a turn runs %d of %d", each, every)
	}
	for i, turn := range turnsOf(cases, hooks, everyTurn) {
		if want := cases[i].hooks; len(want) == 0 && !slices.Equal(turn.hooks, hooks) || len(want) > 0 && !slices.Equal(turn.hooks, want) {
			t.Errorf("%s: runs at %v where everything runs", cases[i].name, turn.hooks)
		}
	}
}

// Every case meets generic programs now and then at every hook at which it runs, and where everything runs at one.
func TestTurnsOfTiers(t *testing.T) {
	cases := Hands()
	both := make([]map[string]bool, len(cases))
	for number := range 4 * allTurns {
		n, ran := 0, 0
		for i, turn := range turnsOf(cases, []string{"xdp", "tc"}, number) {
			for _, hook := range turn.hooks {
				ran++
				if turn.at(hook) == "" {
					continue
				}
				if n++; both[i] == nil {
					both[i] = map[string]bool{}
				}
				both[i][hook] = true
			}
		}
		if n*6 < ran || n*3 > ran {
			t.Errorf("turn %d: %d of %d have both tiers", number, n, ran)
		}
	}
	for i, turn := range turnsOf(cases, []string{"xdp", "tc"}, everyTurn) {
		n := 0
		for _, hook := range turn.hooks {
			if turn.at(hook) != "" {
				n++
			}
			if !both[i][hook] {
				t.Errorf("%s never meets generic programs at %s", cases[i].name, hook)
			}
		}
		if n != 1 {
			t.Errorf("%s meets generic programs at %d hooks where everything runs", cases[i].name, n)
		}
	}
}

// Whoever reads that a case was left out reads which kernels would run it.
func TestNeedsAreKnown(t *testing.T) {
	for _, h := range Hands() {
		if h.needs != "" && has(h.needs) == "" {
			t.Errorf("%s needs %q, and nothing says which kernels have it", h.name, h.needs)
		}
	}
}
