// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var cores = suite.Section{
	Name:  "cores",
	Title: "Queues and cores",
	About: "The same line with several queues (`-queues`), each polled on a CPU of its own and fed by a generator on another. Where there are fewer than twice as many CPUs as queues, " +
		"generators and router share them, and only the cost tells.",
	Run: runCores,
}

// runCores uses one generator per queue: a veth's frame goes to the queue of the CPU that sends it.
func runCores(b *suite.Bench) error {
	cpus := runtime.NumCPU()
	for _, n := range queues {
		// Two CPUs are let share: there is nothing else to show there.
		if n > cpus || cpus > 2 && 2*n > cpus {
			b.Skip(plural(n, "queue"), fmt.Sprintf("the machine has %d CPUs, and a generator beside each queue starves or is starved by it", cpus))
			continue
		}
		routes := lab.V4Prefixes(50)
		lanes, err := b.Lanes(compared, lab.LineOptions{V4: routes, Queues: n})
		if err != nil {
			return err
		}
		var turns []measure.Turn
		for _, l := range lanes {
			w := suite.Work{Ports: []*lab.Port{l.In()}}
			var streams []suite.Stream
			for i := range n {
				s := l.Forward(fmt.Sprintf("queue %d", i), false, routes)
				s.CPU = i
				s.Traffic.Flows = 10_000
				streams = append(streams, s)
				w.CPUs = append(w.CPUs, queueCPU(i, n, cpus))
			}
			turns = append(turns, l.Turn(plural(n, "queue"), w, streams...))
		}
		if err := errors.Join(b.Turns(plural(n, "queue"), b.Size.Rounds, turns), b.Undo()); err != nil {
			return err
		}
	}
	return nil
}

// queueCPU is where queue i of n is polled, the generators being on CPUs 0 to n-1.
func queueCPU(i, n, cpus int) int {
	if 2*n <= cpus {
		return n + i
	}
	return (i + 1) % cpus
}
