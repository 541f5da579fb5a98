// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/shuntnet/shunt/bench/suite"
)

func main() { theSuite().Main() }

func theSuite() suite.Suite {
	return suite.Suite{
		Name: "gateway",
		Sections: []suite.Section{
			rulesSection, dropsSection, establishedSection, translatedSection, sessionsSection, connectionsSection, publishedSection, conversationsSection, updatesSection, reactionSection, classifySection, latencySection, setsSection,
		},
		Write: writePage,
	}
}

// budget is a section's time, in seconds: together they are less than 25 minutes.
func budget(seconds int) time.Duration { return time.Duration(seconds) * time.Second }
