// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
)

// TestLosses: shunt wins a round against one Linux and loses against the other, and the page says so.
func TestLosses(t *testing.T) {
	s := &report.Section{Name: "forwarding"}
	const c = "ipv4, end to end"
	s.Add(c, suite.LinuxGRO, "cost", "ns/packet", 900, 800)
	s.Add(c, suite.LinuxNoGRO, "cost", "ns/packet", 1000, 400)
	s.Add(c, suite.ShuntXDP, "cost", "ns/packet", 450, 500)
	if got := suite.LinuxBest(s, c, "cost", true).Rounds; got[0] != 900 || got[1] != 400 {
		t.Errorf("the better Linux: %v", got)
	}
	p := &page{theSuite().NewPage(&report.Results{Sections: []*report.Section{s}})}
	all := p.forwardingTargets()
	if x := all[0].Value; x.Max != 2 || x.Min != 0.8 {
		t.Errorf("%s: %+v, want 0.8 to 2", all[0].What, x)
	}
	p.loses()
	if !strings.Contains(p.String(), "In no case") { // the medians are 1.6 and more
		t.Errorf("a loss that is none:\n%s", p.String())
	}
	s.Add("ipv6, end to end", suite.LinuxGRO, "cost", "ns/packet", 100)
	s.Add("ipv6, end to end", suite.ShuntXDP, "cost", "ns/packet", 200)
	p.Reset()
	p.loses()
	if !strings.Contains(p.String(), "ipv6, end to end: cost | shunt xdp | linux | 0.50") {
		t.Errorf("the loss is missing:\n%s", p.String())
	}
}

func TestQueueCPU(t *testing.T) {
	for _, x := range []struct{ i, n, cpus, want int }{{0, 1, 2, 1}, {0, 2, 2, 1}, {1, 2, 2, 0}, {3, 4, 8, 7}, {0, 4, 8, 4}, {3, 4, 4, 0}} {
		if got := queueCPU(x.i, x.n, x.cpus); got != x.want {
			t.Errorf("queue %d of %d on %d CPUs: CPU %d, want %d", x.i, x.n, x.cpus, got, x.want)
		}
	}
}

func TestNoResults(t *testing.T) {
	dir := t.TempDir()
	if err := theSuite().WritePage(filepath.Join(dir, "none.json"), filepath.Join(dir, "page.md")); err == nil {
		t.Error("a page was made of nothing")
	}
}
