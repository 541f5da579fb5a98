// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
)

// TestSlowRulesAndSets: status names the rules and sets that are Linux's, those of both families and of frames, each once.
func TestSlowRulesAndSets(t *testing.T) {
	why := func(detail string) graph.Why { return graph.Why{Reason: reason.NetfilterIP4Forward, Detail: detail} }
	s := router(func(s *control.State) {
		s.Graph.Filter4 = &graph.Filter{Slow: []graph.Why{why("a"), why("b")}}
		s.Graph.Frames4 = &graph.Filter{Slow: []graph.Why{why("b"), why("c")}}
		s.Graph.Filter6 = &graph.Filter{Slow: []graph.Why{why("a")}}
		s.Network.Filter = &ruleset.Ruleset{Sets: []ruleset.Set{
			{Family: ruleset.Inet, Table: "t", Name: "plain"}, {Family: ruleset.Inet, Table: "t", Name: "unread", Unread: true, Unknown: "x"},
			{Family: ruleset.Inet, Table: "t", Name: "grown", Dynamic: true}, {Family: ruleset.IP4, Name: "odd", Unknown: "ipset with counters"},
			{Family: ruleset.IP4, Table: "t", Name: "aging", Elements: []ruleset.Element{{}, {Expires: 5}}},
		}}
	})
	row := func(family, detail string) api.Reason {
		return api.Reason{Reason: reason.NetfilterIP4Forward.String(), Detail: detail, Family: family}
	}
	if diff := cmp.Diff([]api.Reason{row("ip4", "a"), row("ip4", "b"), row("ip6", "a"), row("ip4", "c")}, SlowRules(s)); diff != "" {
		t.Error(diff)
	}
	want := []api.SlowSet{{Family: "inet", Table: "t", Name: "grown", Why: "rules change it"}, {Family: "ip", Name: "odd", Why: "ipset with counters"}, {Family: "ip", Table: "t", Name: "aging", Why: "packets that would be found in elements that expire"}}
	if diff := cmp.Diff(want, SlowSets(s)); diff != "" {
		t.Error(diff)
	}
	if s := router(nil); SlowRules(s) == nil || SlowSets(s) == nil {
		t.Error("no rules are null in JSON, not an empty list")
	}
}
