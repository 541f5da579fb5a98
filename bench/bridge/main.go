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
		Sections: []suite.Section{bridgingSection, stationsSection, floodsSection, containersSection, outsideSection, rulesSection},
		Write:    writePage,
	}
}

// budget is a section's time, in seconds.
func budget(seconds int) time.Duration { return time.Duration(seconds) * time.Second }

// extent is how much of everything is measured at a size.
type extent struct {
	rounds   int
	stations []int // numbers of entries in the forwarding database
}

var extents = map[string]extent{
	"full":  {5, []int{2, 1000, 100_000}},
	"quick": {2, []int{2, 10_000}},
	"smoke": {1, []int{2, 50}},
}
