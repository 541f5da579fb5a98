// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// SlowRules are the rules that leave forwarded packets, or frames of bridges, to Linux. It is never nil.
func SlowRules(s *control.State) []api.Reason {
	out := []api.Reason{}
	for _, f := range []struct {
		family string
		filter *graph.Filter
	}{{"ip4", s.Graph.Filter4}, {"ip6", s.Graph.Filter6}, {"ip4", s.Graph.Frames4}, {"ip6", s.Graph.Frames6}} {
		if f.filter == nil {
			continue
		}
		for _, w := range f.filter.Slow {
			if r := (api.Reason{Reason: w.Reason.String(), Detail: w.Detail, Family: f.family}); !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// SlowSets are the sets that only Linux can ask. It is never nil.
func SlowSets(s *control.State) []api.SlowSet {
	out := []api.SlowSet{}
	if s.Network.Filter == nil {
		return out
	}
	for i := range s.Network.Filter.Sets {
		set := &s.Network.Filter.Sets[i]
		if set.Unread { // no rule asks it
			continue
		}
		if why := slowSet(set); why != "" {
			out = append(out, api.SlowSet{Family: set.Family.String(), Table: set.Table, Name: set.Name, Why: why})
		}
	}
	return out
}

// slowSet says why packets that are looked up in a set go to Linux, or some of them; "" where none does.
func slowSet(set *ruleset.Set) string {
	switch {
	case set.Unknown != "":
		return set.Unknown
	case set.Dynamic:
		return "rules change it"
	case slices.ContainsFunc(set.Elements, func(e ruleset.Element) bool { return e.Expires != 0 }):
		return "packets that would be found in elements that expire"
	}
	return ""
}
