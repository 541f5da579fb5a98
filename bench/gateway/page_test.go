// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/bench/report"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/classbench"
)

// TestSlowIsNoTargetReached: a router that is as fast as asked, but by Linux, has reached nothing.
func TestSlowIsNoTargetReached(t *testing.T) {
	c := ruleName("source", 100, legacy)
	s := &report.Section{Name: "rules"}
	s.Add(c, suite.LinuxGRO, "cost", "ns/packet", 1000, 1200)
	s.Add(c, suite.LinuxNoGRO, "cost", "ns/packet", 1100, 900)
	s.Add(c, suite.ShuntXDP, "cost", "ns/packet", 400, 400)
	s.Add(c, suite.ShuntXDP, suite.FastShare, "share", 1, 0.5)
	p := &page{theSuite().NewPage(&report.Results{Sections: []*report.Section{s}})}
	if x := p.allTargets()[0]; x.Value.N != 0 || !strings.HasPrefix(x.Verdict(), "not fast") {
		t.Errorf("half of the packets were slow in one round: %+v, %s", x, x.Verdict())
	}
	s.Row(c, suite.ShuntXDP, suite.FastShare).Rounds[1] = 1
	if x := p.allTargets()[0]; x.Value.Min != 2.25 || x.Value.Max != 2.5 || x.Verdict() != "at least" {
		t.Errorf("%+v, %s: want 2.25 to 2.5 against the better Linux of each round, at least", x, x.Verdict())
	}
}

// TestDialects: the same rule in the words of both, and numbers of rules that are what is asked for.
func TestDialects(t *testing.T) {
	r := rule{src: netip.MustParsePrefix("10.0.0.0/8"), notSrc: true, proto: "tcp", sport: [2]int{1, 1023}, in: "in", does: "DROP"}
	if got, want := r.iptables(), " ! -s 10.0.0.0/8 -i in -p tcp -m tcp --sport 1:1023 -j DROP"; got != want {
		t.Errorf("iptables: %q, want %q", got, want)
	}
	if got, want := r.nft(table{}), `iifname "in" ip saddr != 10.0.0.0/8 tcp sport 1-1023 drop`; got != want {
		t.Errorf("nft: %q, want %q", got, want)
	}
	for _, n := range []int{1, 2, 3, 100, 1000} {
		for kind, rs := range map[string]table{"source": source(n), "mixed": mixed(n), "random": sourceRandom(n)} {
			count := strings.Count(rs.saved(), "\n-A ")
			if lines := len(rs.forward) + len(rs.chains["zone"]); count != n || lines != n {
				t.Errorf("%d %s rules: %d in iptables, %d in all", n, kind, count, lines)
			}
		}
	}
}

// TestPrefixOf: ClassBench's prefixes come back from their first and last address.
func TestPrefixOf(t *testing.T) {
	for _, want := range []string{"1.2.3.4/32", "10.0.0.0/8", "192.168.4.0/22", "20.1.1.2/31"} {
		r := ruleset.Prefix(netip.MustParsePrefix(want))
		if got := prefixOf(r.Lo.Lo, r.Hi.Lo).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	text := savedFilter(classbench.Rules(classbench.FW, 200, classbench.Seed))
	if n := strings.Count(text, "\n-A FORWARD "); n != 200 {
		t.Errorf("%d rules of 200:\n%s", n, text)
	}
}
