// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
)

// tracks has Linux track connections of IPv4, by the given functions.
func tracks(hooks ...model.NFHook) change {
	return network(func(n *model.Network) {
		for _, h := range hooks {
			h.Family, h.Kind, h.PolicyAccept = model.IP4, model.Conntrack, true
			n.Netfilter = append(n.Netfilter, h)
		}
	})
}

var (
	defrag   = model.NFHook{Hook: "prerouting", Priority: -400, Function: "ipv4_conntrack_defrag"}
	trackIn  = model.NFHook{Hook: "prerouting", Priority: -200, Function: "ipv4_conntrack_in"}
	natIn    = model.NFHook{Hook: "prerouting", Priority: -100, Function: "nf_nat_ipv4_pre_routing"}
	natOut   = model.NFHook{Hook: "postrouting", Priority: 100, Function: "nf_nat_ipv4_out"}
	confirm  = model.NFHook{Hook: "postrouting", Priority: math.MaxInt32, Function: "nf_confirm"}
	localIn  = model.NFHook{Hook: "input", Priority: 7, Function: "anything"}
	lookups  = policy(func(p *Policy) { p.Kernel.Conntrack, p.Kernel.NAT = true, true })
	natChain = network(func(n *model.Network) {
		n.Netfilter = append(n.Netfilter, model.NFHook{Family: model.IP4, Hook: "postrouting", Priority: 100, Kind: model.NFTables, Table: "t", Chain: "c", Rules: 5, NAT: true})
	})
	filterChain = network(func(n *model.Network) {
		n.Netfilter = append(n.Netfilter, model.NFHook{Family: model.IP4, Hook: "postrouting", Priority: 100, Kind: model.NFTables, Table: "t", Chain: "c", Rules: 5, PolicyAccept: true})
	})
)

// Translation is known by its functions, or, on kernels that list the chains that these call in their place, by a chain.
func TestTranslationIsKnown(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []change
		node    bool
	}{
		{"by its functions", []change{lookups, tracks(trackIn, natIn, natOut, confirm), natChain}, true},
		{"by a chain", []change{lookups, tracks(trackIn, confirm), natChain}, true},
		{"not by half of its functions", []change{lookups, tracks(trackIn, natOut, confirm), natChain}, false},
		{"not by a filter", []change{lookups, tracks(trackIn, confirm)}, false},
	} {
		n, p := router(c.changes...)
		if got := inputOf(t, Build(n, p), "eth0").IP4.Node(NodeNAT) != nil; got != c.node {
			t.Errorf("%s: node: %v", c.name, got)
		}
	}
}

func TestTracking(t *testing.T) {
	strange := natIn
	strange.Priority--
	for _, c := range []struct {
		name    string
		changes []change
		node    bool
		why     string // in the first reason; empty: fast
	}{
		{"no tracking", []change{lookups}, false, ""},
		{"tracking", []change{lookups, tracks(defrag, trackIn, confirm)}, true, ""},
		{"tracking and NAT", []change{lookups, tracks(defrag, trackIn, natIn, natOut, confirm, localIn), natChain}, true, ""},
		{"reassembly alone", []change{tracks(defrag)}, false, ""},
		{"a kernel without lookups", []change{tracks(defrag, trackIn, confirm)}, false, "cannot be looked up"},
		{"a nat chain without tracking", []change{lookups, natChain}, false, "table t chain c (5 rules, policy drop)"},
		{"a chain of another type", []change{lookups, tracks(defrag, trackIn, confirm), filterChain}, false, "table t chain c (5 rules)"},
		{"half of it", []change{lookups, tracks(defrag, trackIn)}, false, "half"},
		{"the other half", []change{lookups, tracks(confirm)}, false, "half"},
		{"another place", []change{lookups, tracks(trackIn, strange, confirm)}, false, "usual places"},
		{"an unheard function", []change{lookups, tracks(trackIn, confirm, model.NFHook{Hook: "forward", Function: "nf_ct_new"})}, false, "usual places"},
		{"a VRF", []change{lookups, tracks(defrag, trackIn, confirm), inVRF}, false, "in a VRF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, p := router(c.changes...)
			in := inputOf(t, Build(n, p), "eth0")
			if got := in.IP4.Node(NodeTrack) != nil; got != c.node {
				t.Errorf("node: %v", got)
			}
			if c.why == "" && len(in.IP4.Why) > 0 || c.why != "" && (len(in.IP4.Why) == 0 || !strings.Contains(in.IP4.Why[0].Detail, c.why)) {
				t.Errorf("%+v, want %q", in.IP4.Why, c.why)
			}
			if len(in.IP6.Why) > 0 || in.IP6.Node(NodeTrack) != nil {
				t.Errorf("IPv6: %+v", in.IP6)
			}
		})
	}
}

// Of what Linux tracks TCP is left to it where somebody asks for that, and the node says so.
func TestStrict(t *testing.T) {
	n, p := router(lookups, tracks(defrag, trackIn, confirm), policy(func(p *Policy) { p.Strict = true }))
	if got := inputOf(t, Build(n, p), "eth0").IP4.Node(NodeTrack); got == nil || got.Params["tcp"] != "left to Linux: --strict" {
		t.Errorf("%+v", got)
	}
}

// ofSix is where a rule of an inet table that is about IPv6 begins.
var ofSix = ruleset.Test{Field: ruleset.NFProto, Ranges: []ruleset.Range{ruleset.Nums(uint64(ruleset.IP6), uint64(ruleset.IP6))}}

// Translated connections are the node's where Linux translates and nothing has to see what it has translated.
func TestTranslation(t *testing.T) {
	behind := func(h model.NFHook) change {
		h.Family, h.Kind, h.Table, h.Chain = model.IP4, model.NFTables, "t", "behind"
		return network(func(n *model.Network) { n.Netfilter = append(n.Netfilter, h) })
	}
	all := []change{lookups, tracks(defrag, trackIn, natIn, natOut, confirm), natChain}
	for _, c := range []struct {
		name    string
		changes []change
		node    bool
		why     string
	}{
		{"tracking alone", []change{lookups, tracks(defrag, trackIn, confirm)}, false, ""},
		{"NAT", all, true, ""},
		{"a kernel that does not tell of it", append(slices.Clone(all), policy(func(p *Policy) { p.Kernel.NAT = false })), false, "type information of nf_nat"},
		{"an empty chain behind", append(slices.Clone(all), behind(model.NFHook{Hook: "prerouting", Priority: -99, PolicyAccept: true})), true, ""},
		{"rules in front", append(slices.Clone(all), behind(model.NFHook{Hook: "prerouting", Priority: -101, Rules: 1, PolicyAccept: true}), behind(model.NFHook{Hook: "postrouting", Priority: 99, Rules: 1, PolicyAccept: true})), true, ""},
		{"a rule beside the translation of destinations", append(slices.Clone(all), behind(model.NFHook{Hook: "prerouting", Priority: -100, Rules: 1, PolicyAccept: true})), false, "chain behind"},
		{"a policy behind it", append(slices.Clone(all), behind(model.NFHook{Hook: "prerouting", Priority: 0})), false, "chain behind"},
		{"rules behind that ask for no receiver", append(slices.Clone(all), able, chainOf(ruleset.Inet, ruleset.Prerouting, ruleset.Accept, fromThere, mark)), true, ""},
		{"one that does", append(slices.Clone(all), able, chainOf(ruleset.Inet, ruleset.Prerouting, ruleset.Accept, fromThere, drop)), false, "chain c"},
		{"one that does in a table of the family", append(slices.Clone(all), able, chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, drop)), false, "chain c"},
		{"one that does, of the other family", append(slices.Clone(all), able, chainOf(ruleset.Inet, ruleset.Prerouting, ruleset.Accept, append([]ruleset.Step{ofSix}, drop...))), true, ""},
		{"one that does in a chain that is called", append(slices.Clone(all), able, chainOf(ruleset.Inet, ruleset.Prerouting, ruleset.Accept, []ruleset.Step{ruleset.Verdict{Code: ruleset.Jump, Chain: "called"}}), network(func(n *model.Network) {
			n.Filter.Tables[0].Chains = append(n.Filter.Tables[0].Chains, ruleset.Chain{Name: "called", Rules: []ruleset.Rule{{Number: 1, Steps: drop}}})
		})), false, "chain c"},
		{"a rule behind the translation of sources", append(slices.Clone(all), behind(model.NFHook{Hook: "postrouting", Priority: 101, Rules: 1, PolicyAccept: true})), false, "chain behind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, p := router(c.changes...)
			b := &builder{net: n, policy: p}
			b.tracking = map[model.Family]tracking{model.IP4: b.findTracking(model.IP4)}
			if got := len(b.natNode(model.IP4)) == 1; got != c.node {
				t.Errorf("a node: %v, want %v", got, c.node)
			}
			if track := b.trackNode(model.IP4); len(track) != 1 || !strings.Contains(track[0].Params["nat"], c.why) || (c.why == "") != (track[0].Params["nat"] == "") {
				t.Errorf("conntrack is %v, want %q", track, c.why)
			}
			var told []string
			path := portOf(t, Build(n, p), "eth0").Inputs[0].IP4
			for _, w := range path.Except {
				if w.Reason == reason.ConntrackNAT {
					told = append(told, w.Detail)
				}
			}
			if got := strings.Join(told, "; "); path.Fast() && (!strings.Contains(got, c.why) || (c.why == "") != (got == "")) {
				t.Errorf("status tells %q, want %q", got, c.why)
			}
		})
	}
}
