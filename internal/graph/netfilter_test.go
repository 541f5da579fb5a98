// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"testing"

	"github.com/shuntnet/shunt/internal/model"
)

func TestHooksAreNamedAsTheirOwnersWould(t *testing.T) {
	for want, h := range map[string]model.NFHook{
		"nf_tables table filter chain forward (3 rules)":             {Kind: model.NFTables, Table: "filter", Chain: "forward", Rules: 3, PolicyAccept: true},
		"nf_tables table filter chain forward (1 rule, policy drop)": {Kind: model.NFTables, Table: "filter", Chain: "forward", Rules: 1},
		"legacy table mangle (policy drop)":                          {Kind: model.Legacy, Table: "mangle"},
		"conntrack ipv4_conntrack_in":                                {Kind: model.Conntrack, Function: "ipv4_conntrack_in"},
		"nf_tables table t chain c (flowtable ft)":                   {Kind: model.NFTables, Table: "t", Chain: "c", PolicyAccept: true, Extra: []string{"flowtable ft"}},
		"other": {Kind: model.NFOther},
	} {
		if got := describeHook(h); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
