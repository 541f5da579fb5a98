// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/bench/suite/suitetest"
	"github.com/shuntnet/shunt/internal/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

func TestSections(t *testing.T) {
	suitetest.Smoke(t, theSuite(), "## What it must reach", "## Where shunt loses", "## What was not measured")
}

func TestSectionsAreComplete(t *testing.T) {
	suitetest.Complete(t, theSuite(), slices.Collect(maps.Keys(renderers)))
}

// TestSlowIsNoTargetReached: a bridge that is as fast as asked, but by Linux, has reached nothing.
func TestSlowIsNoTargetReached(t *testing.T) {
	s := &report.Section{Name: "bridging"}
	s.Add(plain.name, suite.LinuxGRO, "cost", "ns/packet", 1000, 1200)
	s.Add(plain.name, suite.LinuxNoGRO, "cost", "ns/packet", 1100, 900)
	s.Add(plain.name, suite.ShuntXDP, "cost", "ns/packet", 450, 450)
	s.Add(plain.name, suite.ShuntXDP, suite.FastShare, "share", 1, 0.5)
	p := &page{theSuite().NewPage(&report.Results{Sections: []*report.Section{s}})}
	if x := p.allTargets()[0]; x.Value.N != 0 || !strings.HasPrefix(x.Verdict(), "not fast") {
		t.Errorf("half of the packets were slow in one round: %+v, %s", x, x.Verdict())
	}
	s.Row(plain.name, suite.ShuntXDP, suite.FastShare).Rounds[1] = 1
	if x := p.allTargets()[0]; x.Verdict() != "aim reached" {
		t.Errorf("%+v, %s: want the better Linux of each round over shunt, about 2.1", x, x.Verdict())
	}
}

func TestOthers(t *testing.T) {
	if n := strings.Count(others(300), "\n"); n != 300 {
		t.Errorf("%d commands for 300 stations", n)
	}
	if !strings.Contains(others(257), "02:99:00:01:00:01 dev in") {
		t.Errorf("station 256 is missing: %s", others(257))
	}
}
