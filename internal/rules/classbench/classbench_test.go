// SPDX-License-Identifier: Apache-2.0

package classbench

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

var kinds = []Kind{ACL, FW, IPC}

func TestTheSameSeedGivesTheSameRules(t *testing.T) {
	for _, kind := range kinds {
		a, b := Rules(kind, 300, 7), Rules(kind, 300, 7)
		if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(Headers(a, 100, 3), Headers(b, 100, 3)) {
			t.Errorf("%s: two different sets", kind)
		}
		if reflect.DeepEqual(a, Rules(kind, 300, 8)) {
			t.Errorf("%s: the seed makes no difference", kind)
		}
	}
}

// The classifier finds what the kernel's steps find, in sets of one, of many and of more than 4096 entries, and most rules are met.
func TestClassifierOnLargeSets(t *testing.T) {
	for _, kind := range kinds {
		for n, packets := range map[int]int{40: 2000, 1000: 4000, 10000: 500} {
			t.Run(fmt.Sprint(kind, n), func(t *testing.T) {
				rs := Rules(kind, n, Seed)
				reference := rules.NewInterpreter(rs)
				program := rules.Flatten(rs, rules.Class{Family: ruleset.IP4})
				classifier := rules.NewClassifier(program)
				met := map[ruleset.CounterID]bool{}
				for _, p := range Headers(rs, packets, Seed) {
					want, got := reference.Run(p), classifier.Run(p)
					if !reflect.DeepEqual(want, got) {
						t.Fatalf("packet %+v\nwant %+v\ngot  %+v", p, want, got)
					}
					if len(want.Counted) != 1 {
						t.Fatalf("packet %+v of a rule meets %d rules", p, len(want.Counted))
					}
					met[want.Counted[0].Counter] = true
				}
				if least := min(n, packets) / 3; len(met) < least {
					t.Errorf("%d packets meet %d rules of %d, want at least %d", packets, len(met), n, least)
				}
			})
		}
	}
}

// Classification alone, 10^5 different headers, no memory of flows.
func BenchmarkFirst(b *testing.B) {
	for _, kind := range kinds {
		for _, n := range []int{1000, 10000} {
			rs := Rules(kind, n, Seed)
			classifier := rules.NewClassifier(rules.Flatten(rs, rules.Class{Family: ruleset.IP4}))
			headers := Headers(rs, 100_000, Seed)
			b.Run(fmt.Sprint(kind, n), func(b *testing.B) {
				i := 0
				for b.Loop() {
					classifier.First(&headers[i], 0)
					if i++; i == len(headers) {
						i = 0
					}
				}
				b.ReportMetric(float64(classifier.Bytes())/1e6, "MB")
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		rs := Rules(ACL, n, Seed)
		b.Run(fmt.Sprint(ACL, n), func(b *testing.B) {
			for b.Loop() {
				rules.NewClassifier(rules.Flatten(rs, rules.Class{Family: ruleset.IP4}))
			}
		})
	}
}
