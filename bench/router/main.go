// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"strconv"
	"strings"

	"github.com/shuntnet/shunt/bench/suite"
)

func main() { theSuite().Main() }

func theSuite() suite.Suite {
	return suite.Suite{
		Name:     "router",
		Sections: []suite.Section{forwarding, scale, cores, watchedFlows, allSlow, bulk, latency, chains, reaction, lifecycle, obeyed, memory, cost},
		Write:    writePage,
		Flags:    func(f *flag.FlagSet) { f.Var(&queues, "queues", "numbers of queues for the section cores") },
	}
}

// numbers is a flag of several numbers from 1 on.
type numbers []int

func (n *numbers) String() string { return "" }

func (n *numbers) Set(list string) error {
	*n = nil
	for _, s := range strings.Split(list, ",") {
		v, err := strconv.Atoi(s)
		if err != nil || v < 1 {
			return errors.New("must be numbers from 1 on")
		}
		*n = append(*n, v)
	}
	return nil
}

// queues are the numbers of queues that the section cores measures.
var queues = numbers{1, 2}
