// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/classbench"
)

// Ten times the rules must not cost ten times as much: a bound on the words that a lookup reads on average, and on the memory.
func TestCostOfALookup(t *testing.T) {
	most := map[string]float64{"acl1000": 18, "fw1000": 30, "ipc1000": 18, "acl10000": 65, "fw10000": 185, "ipc10000": 70}
	for _, kind := range []classbench.Kind{classbench.ACL, classbench.FW, classbench.IPC} {
		for _, n := range []int{1000, 10000} {
			rs := classbench.Rules(kind, n, classbench.Seed)
			classifier := rules.NewClassifier(rules.Flatten(rs, rules.Class{Family: ruleset.IP4}))
			headers := classbench.Headers(rs, 5000, classbench.Seed)
			sum := 0
			for i := range headers {
				sum += classifier.Reads(&headers[i])
			}
			name, mean := fmt.Sprint(kind, n), float64(sum)/float64(len(headers))
			t.Logf("%s: %.1f words, %.1f MB", name, mean, float64(classifier.Bytes())/1e6)
			if mean > most[name] || mean == 0 {
				t.Errorf("%s: a lookup reads %.1f words, at most %.0f expected", name, mean, most[name])
			}
			if mb := classifier.Bytes() / 1_000_000; mb > 40 {
				t.Errorf("%s: %d MB", name, mb)
			}
		}
	}
}
