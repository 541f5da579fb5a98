// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/shuntnet/shunt/bench/suite"
)

func main() { theSuite().Main() }

func theSuite() suite.Suite {
	return suite.Suite{Name: "overlay", Sections: []suite.Section{podsSection, pairsSection, rulesSection, costsSection, startsSection, thesisSection}, Write: writePage}
}

// budget is a section's time, in seconds.
func budget(seconds int) time.Duration { return time.Duration(seconds) * time.Second }
