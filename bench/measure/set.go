// SPDX-License-Identifier: Apache-2.0

package measure

import "slices"

// Row is one quantity of one variant in one case: a value for each round, or a value for each sample of a distribution.
type Row struct {
	Case    string    `json:"case"`    // "ipv4, sink on the same CPU"
	Variant string    `json:"variant"` // "linux", "shunt xdp"
	Metric  string    `json:"metric"`  // "cost", "rate", "rtt mean"
	Unit    string    `json:"unit"`    // "ns/packet", "packets/s"
	Rounds  []float64 `json:"rounds"`
}

// Set is what a section of a suite measured, in the order of first measurement.
type Set struct {
	Rows []*Row `json:"rows"`
}

// Add appends a value to its row, which is made if need be.
func (s *Set) Add(c, variant, metric, unit string, values ...float64) {
	r := s.Row(c, variant, metric)
	if r == nil {
		r = &Row{Case: c, Variant: variant, Metric: metric, Unit: unit}
		s.Rows = append(s.Rows, r)
	}
	r.Rounds = append(r.Rounds, values...)
}

// Row finds a row, or nil.
func (s *Set) Row(c, variant, metric string) *Row {
	for _, r := range s.Rows {
		if r.Case == c && r.Variant == variant && r.Metric == metric {
			return r
		}
	}
	return nil
}

// Cases lists the cases that have the metric, in order.
func (s *Set) Cases(metric string) []string {
	return s.list(metric, func(r *Row) string { return r.Case })
}

// Variants lists the variants that have the metric, in order.
func (s *Set) Variants(metric string) []string {
	return s.list(metric, func(r *Row) string { return r.Variant })
}

func (s *Set) list(metric string, of func(*Row) string) (out []string) {
	for _, r := range s.Rows {
		if r.Metric == metric && !slices.Contains(out, of(r)) {
			out = append(out, of(r))
		}
	}
	return out
}
