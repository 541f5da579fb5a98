// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/shuntnet/shunt/bench/suite"
)

func main() { theSuite().Main() }

func theSuite() suite.Suite {
	return suite.Suite{
		Name:     "bridge",
		Sections: []suite.Section{bridgingSection, stationsSection, floodsSection, stagesSection, containersSection, pairsSection, sizesSection, outsideSection, rulesSection, peersSection, startsSection, manySection},
		Write:    writePage,
	}
}

// budget is a section's time, in seconds.
func budget(seconds int) time.Duration { return time.Duration(seconds) * time.Second }

// extent is how much of everything is measured at a size.
type extent struct {
	rounds   int
	stations []int // numbers of entries in the forwarding database

	pairs      []int // of containers at once
	pairRounds int
	messages   int // of each size

	starts         int // of containers on each host
	veths, entries int // of the largest host
	changes        int // there
}

var extents = map[string]extent{
	"full":  {rounds: 5, stations: []int{2, 1000, 100_000}, pairs: []int{1, 2, 5, 10}, pairRounds: 3, messages: 300, starts: 200, veths: 1000, entries: 100_000, changes: 20},
	"quick": {rounds: 2, stations: []int{2, 10_000}, pairs: []int{1, 4}, pairRounds: 2, messages: 100, starts: 20, veths: 200, entries: 10_000, changes: 6},
	"smoke": {rounds: 1, stations: []int{2, 50}, pairs: []int{1, 2}, pairRounds: 1, messages: 2, starts: 2, veths: 4, entries: 20, changes: 2},
}
