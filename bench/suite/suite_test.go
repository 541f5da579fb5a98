// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"math"
	"testing"

	"github.com/shuntnet/shunt/bench/measure"
)

func TestVerdict(t *testing.T) {
	for _, x := range []struct {
		value float64
		less  bool
		want  string
	}{{2.2, false, "aim reached"}, {1.9, false, "at least"}, {1.7, false, "**no**"}, {math.NaN(), false, "not measured"}, {1.7, true, "at least"}, {2.2, true, "**no**"}} {
		got := Target{Least: 1.8, Aim: 2.1, LessIsBetter: x.less, Value: measure.Stat{Median: x.value}}
		if x.less {
			got.Least, got.Aim = 2.1, 1.5
		}
		if got.Verdict() != x.want {
			t.Errorf("%v (less is better: %v): %s, want %s", x.value, x.less, got.Verdict(), x.want)
		}
	}
}

func TestHistogram(t *testing.T) {
	counts := make([]uint64, Buckets)
	counts[10], counts[20] = 99, 1 // 512 ns wide
	s := FromHistogram(counts)
	at := func(i float64) float64 { return (i + 0.5) * 512 / 1e3 }
	if s.N != 100 || s.Median != at(10) || s.P99 != at(10) || math.Abs(s.Mean-(0.99*at(10)+0.01*at(20))) > 1e-9 {
		t.Errorf("%+v", s)
	}
}
