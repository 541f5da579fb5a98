// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

var pairsSection = suite.Section{
	Name:   "pairs",
	Title:  "Pairs of containers at once",
	Budget: budget(175),
	About: "What \"Containers on one bridge\" measures, between 1 to 10 pairs of containers on one bridge at the same time. Both ends of a pair share a CPU, and the pairs the machine's two CPUs by turns. " +
		"The figures are those of all pairs together.",
	Run: runPairs,
}

func runPairs(b *suite.Bench) error {
	numbers := extents[b.Size.Name].pairs
	most := numbers[len(numbers)-1]
	// A thread that waits for a message must not wait for the Go scheduler too.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4*most + 8))
	return b.Part("pairs", func() error {
		var turns []measure.Turn
		for _, s := range []situation{plain, tracked} {
			var lanes []*suite.SocketLane
			for _, variant := range []string{suite.LinuxGRO, shuntAuto} {
				l, err := containersOn(b, variant, most, s.hostOf(2*most))
				if err != nil {
					return err
				}
				lanes = append(lanes, l)
			}
			for _, n := range numbers {
				turns = append(turns, pairTurns(b, s, lanes, n)...)
			}
		}
		return b.Turns("pairs", extents[b.Size.Name].pairRounds, turns)
	})
}

// pairsCase is what so many pairs do at once.
func pairsCase(s situation, what string, n int) string {
	return fmt.Sprintf("%s: %s, %d at once", s.name, what, n)
}

// pairTurns are n pairs that talk, and that stream, with Linux and with shunt one after the other.
func pairTurns(b *suite.Bench, s situation, lanes []*suite.SocketLane, n int) (turns []measure.Turn) {
	for _, kind := range []string{"tcp", "udp"} {
		for _, l := range lanes {
			turns = append(turns, measure.Turn{Name: l.Variant + ", " + s.name, Run: func(set *measure.Set) error {
				talked, err := b.Talk(kind, 1, seats(b, l, n)...)
				if err != nil {
					return err
				}
				set.Add(pairsCase(s, kind+" round trips", n), l.Variant, "rate", "round trips/s", talked.Rate)
				return nil
			}})
		}
	}
	for _, l := range lanes {
		turns = append(turns, measure.Turn{Name: l.Variant + ", " + s.name, Run: func(set *measure.Set) error {
			var rate float64
			err := b.Retry(l.Variant, func() (err error) { rate, err = pumpAll(b, seats(b, l, n)); return err })
			if err != nil {
				return err
			}
			set.Add(pairsCase(s, "tcp stream", n), l.Variant, "throughput", "Gbit/s", rate*8/1e9)
			return nil
		}})
	}
	return turns
}

// seats are the lane's first pairs, on the two CPUs by turns.
func seats(b *suite.Bench, l *suite.SocketLane, n int) (out []suite.Seat) {
	for i := range n {
		out = append(out, suite.Seat{SocketLane: l.Pair(i), CPU: []int{b.DutCPU, b.GenCPU}[i%2]})
	}
	return out
}

// pumpAll is the throughput of all pairs together, in bytes per second.
func pumpAll(b *suite.Bench, seats []suite.Seat) (rate float64, err error) {
	type end struct {
		rate float64
		err  error
	}
	ends := make(chan end, len(seats))
	for _, s := range seats {
		go func() {
			rate, err := b.Pump(s.SocketLane, 1, s.CPU, s.CPU)
			ends <- end{rate, err}
		}()
	}
	for range seats {
		e := <-ends
		rate, err = rate+e.rate, errors.Join(err, e.err)
	}
	return rate, err
}
