// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

var pairsSection = suite.Section{
	Name:   "pairs",
	Title:  "Pairs of pods at once",
	Budget: budget(200),
	About: "TCP round trips as under \"Pods of two nodes\", between 1 to 10 pairs of pods at the same time, of two nodes by VXLAN and of one node. Both ends of a pair share a CPU, and the pairs the machine's two CPUs by turns. " +
		"Rates are those of all pairs together, latencies those of one.",
	Run: runPairs,
}

// numbers of pairs, by size.
var numbers = map[string][]int{"full": {1, 2, 5, 10}, "quick": {1, 5}, "smoke": {1, 2}}

func runPairs(b *suite.Bench) error {
	counts := numbers[b.Size.Name]
	most := counts[len(counts)-1]
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4*most + 8)) // a thread that waits for a message must not wait for the Go scheduler too
	return b.Part("pairs", func() error {
		var clusters []*cluster
		for _, variant := range []string{suite.LinuxGRO, shuntAuto} {
			c, err := kind{backend: vxlan, pairs: most}.build(b, variant)
			if err != nil {
				return err
			}
			clusters = append(clusters, c)
		}
		var turns []measure.Turn
		for _, w := range []way{ways[0], ways[len(ways)-1]} {
			for _, n := range counts {
				for _, c := range clusters {
					turns = append(turns, pairsTurn(b, w, c, n))
				}
			}
		}
		return b.Turns("pairs", max(1, b.Size.Rounds/2), turns)
	})
}

func pairsTurn(b *suite.Bench, w way, c *cluster, n int) measure.Turn {
	name := fmt.Sprintf("%s: %d at once", w.name, n)
	var seats []suite.Seat
	for i := range n {
		seats = append(seats, seat(b, w.lane(c).Pair(i), "tcp", []int{b.DutCPU, b.GenCPU}[i%2]))
	}
	return measure.Turn{Name: c.variant + ", " + name, Run: func(set *measure.Set) error {
		talked, err := b.Talk("tcp", 1, seats...)
		if err != nil {
			return err
		}
		suite.AddLatency(set, name, c.variant, measure.Of(talked.Times), talked.Rate)
		return nil
	}}
}
