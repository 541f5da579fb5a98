// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"slices"
)

// Stat summarises values. All fields are NaN when there are none.
type Stat struct {
	N                               int
	Median, Min, Max, Mean, SD, P99 float64
}

// Of summarises the values.
func Of(values []float64) Stat {
	nan := math.NaN()
	s := Stat{N: len(values), Median: nan, Min: nan, Max: nan, Mean: nan, SD: nan, P99: nan}
	if s.N == 0 {
		return s
	}
	sorted := slices.Sorted(slices.Values(values))
	s.Min, s.Max = sorted[0], sorted[s.N-1]
	s.Median, s.P99 = Quantile(sorted, 0.5), Quantile(sorted, 0.99)
	var sum, squares float64
	for _, v := range sorted {
		sum += v
	}
	s.Mean = sum / float64(s.N)
	for _, v := range sorted {
		squares += (v - s.Mean) * (v - s.Mean)
	}
	s.SD = math.Sqrt(squares / float64(s.N))
	return s
}

// Stat summarises the row; a nil row has no values.
func (r *Row) Stat() Stat {
	if r == nil {
		return Of(nil)
	}
	return Of(r.Rounds)
}

// Quantile of sorted values, between neighbours linearly.
func Quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Over divides round by round: a/b. Rounds that only one of them has are left out; a nil row gives nothing.
func Over(a, b *Row) []float64 {
	if a == nil || b == nil {
		return nil
	}
	var out []float64
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		if b.Rounds[i] != 0 {
			out = append(out, a.Rounds[i]/b.Rounds[i])
		}
	}
	return out
}

// Less subtracts round by round: a-b, as Over divides.
func Less(a, b *Row) []float64 {
	if a == nil || b == nil {
		return nil
	}
	var out []float64
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		out = append(out, a.Rounds[i]-b.Rounds[i])
	}
	return out
}

// Best takes, round by round, the best of several rows: the smallest value if less is better, otherwise the largest. It is how the
// better of two ways to run Linux becomes the baseline. Nil rows are left out.
func Best(less bool, rows ...*Row) *Row {
	var out *Row
	for _, r := range rows {
		switch {
		case r == nil:
		case out == nil:
			out = &Row{Case: r.Case, Variant: "best", Metric: r.Metric, Unit: r.Unit, Rounds: slices.Clone(r.Rounds)}
		default:
			for i := range min(len(out.Rounds), len(r.Rounds)) {
				if (r.Rounds[i] < out.Rounds[i]) == less {
					out.Rounds[i] = r.Rounds[i]
				}
			}
		}
	}
	return out
}
