// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"slices"
	"testing"
)

func TestStat(t *testing.T) {
	s := Of([]float64{4, 1, 3, 2, 5})
	if s.Median != 3 || s.Min != 1 || s.Max != 5 || s.Mean != 3 || math.Abs(s.SD-math.Sqrt2) > 1e-9 || math.Abs(s.P99-4.96) > 1e-9 {
		t.Errorf("%+v", s)
	}
	if s := Of(nil); s.N != 0 || !math.IsNaN(s.Median) {
		t.Errorf("of nothing: %+v", s)
	}
	if s := Of([]float64{1, 2}); s.Median != 1.5 {
		t.Errorf("of two: %+v", s)
	}
}

func TestRatiosStayWithinTheirRound(t *testing.T) {
	var s Set
	s.Add("c", "a", "rate", "1/s", 10, 20, 30)
	s.Add("c", "b", "rate", "1/s", 5, 40)
	if got := Over(s.Row("c", "a", "rate"), s.Row("c", "b", "rate")); !slices.Equal(got, []float64{2, 0.5}) {
		t.Errorf("over: %v", got)
	}
	if got := Best(false, s.Row("c", "a", "rate"), nil, s.Row("c", "b", "rate")).Rounds; !slices.Equal(got, []float64{10, 40, 30}) {
		t.Errorf("largest: %v", got)
	}
	if got := Best(true, s.Row("c", "a", "rate"), s.Row("c", "b", "rate")).Rounds; !slices.Equal(got, []float64{5, 20, 30}) {
		t.Errorf("smallest: %v", got)
	}
	if Best(true) != nil || Over(nil, s.Rows[0]) != nil {
		t.Error("of nothing there is something")
	}
}

func TestTurns(t *testing.T) {
	var order, seen []string
	turn := func(n string) Turn {
		return Turn{n, func(s *Set) error { order = append(order, n); s.Add("c", n, "m", "u", 1); return nil }}
	}
	var s Set
	if err := Turns(&s, 2, []Turn{turn("a"), turn("b")}, func(_ int, n string) bool { seen = append(seen, n); return true }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "b", "a"}; !slices.Equal(order, want) || !slices.Equal(seen, want) {
		t.Errorf("order %v, progress %v", order, seen)
	}
	var once Set
	if err := Turns(&once, 2, []Turn{turn("a"), turn("b")}, func(round int, _ string) bool { return round == 0 }); err != nil {
		t.Fatal(err)
	}
	if n := len(once.Row("c", "b", "m").Rounds); n != 1 {
		t.Errorf("%d rounds where there should be no second one", n)
	}
	if len(s.Rows) != 2 || len(s.Row("c", "a", "m").Rounds) != 2 || !slices.Equal(s.Variants("m"), []string{"a", "b"}) {
		t.Errorf("rows %v", s.Rows)
	}
}
