// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// chainOf is a network with one chain of nf_tables and its hooks, in the order that a reader gives.
func chainOf(table ruleset.Family, hook ruleset.Hook, policy ruleset.Code, steps ...[]ruleset.Step) change {
	return network(func(n *model.Network) {
		c := ruleset.Chain{Name: "c", Base: &ruleset.Base{Hook: hook, Type: "filter", Policy: policy, Counter: ruleset.NoCounter}}
		for i, s := range steps {
			c.Rules = append(c.Rules, ruleset.Rule{Number: i + 1, Steps: s})
		}
		if n.Filter == nil {
			n.Filter = &ruleset.Ruleset{Counters: []ruleset.Counter{{}}}
		}
		n.Filter.Tables = append(n.Filter.Tables, ruleset.Table{Family: table, Name: "t", Chains: []ruleset.Chain{c}})
		for _, f := range []model.Family{model.IP4, model.IP6} {
			if table == ruleset.Inet || (table == ruleset.IP4) == (f == model.IP4) {
				n.Netfilter = append(n.Netfilter, model.NFHook{Family: f, Hook: hook.String(), Kind: model.NFTables, Table: "t", Chain: "c",
					Rules: len(steps), PolicyAccept: policy == ruleset.Accept})
			}
		}
	})
}

var (
	toSSH  = []ruleset.Step{ruleset.Test{Field: ruleset.L4Proto, Ranges: []ruleset.Range{ruleset.Nums(6, 6)}}, ruleset.Test{Field: ruleset.DPort, Ranges: []ruleset.Range{ruleset.Nums(22, 22)}}}
	limit  = append(slices.Clip(slices.Clone(toSSH)), ruleset.Unknown{Name: "limit", Text: "limit rate 5/second"})
	drop   = append(slices.Clip(slices.Clone(toSSH)), ruleset.Verdict{Code: ruleset.Drop})
	limits = []ruleset.Step{ruleset.Unknown{Name: "limit", Text: "limit rate 5/second"}}
	accept = []ruleset.Step{ruleset.Verdict{Code: ruleset.Accept}}
	mark   = []ruleset.Step{ruleset.SetField{Field: ruleset.Mark, Xor: 1}}
	toHost = []ruleset.Step{ruleset.Test{Field: ruleset.EtherDst, Ranges: []ruleset.Range{ruleset.One(ruleset.Num(0x20000000001))}}, ruleset.Verdict{Code: ruleset.Drop}}
	able   = policy(func(p *Policy) { p.Kernel.Rules = true })
)

// What rules mean for a path: nothing, a node, a part that is Linux's, or all of it.
func TestRulesOnAPath(t *testing.T) {
	for _, c := range []struct {
		what     string
		changes  []change
		ip4, ip6 string // nodes that ask rules; or the reasons against the path
		except   string // of IPv4
	}{
		{"rules that say nothing", []change{chainOf(ruleset.Inet, ruleset.Forward, ruleset.Accept, accept)}, "", "", ""},
		{"rules where the data path asks none", []change{chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop)},
			"netfilter:ip4:forward (nf_tables table t chain c (1 rule))", "", ""},
		{"a slow rule where the data path asks none", []change{chainOf(ruleset.IP6, ruleset.Prerouting, ruleset.Accept, limit)},
			"", "netfilter:ip6:prerouting (l4proto tcp, dport 22: ip6 t c rule 1: limit), netfilter:ip6:prerouting (nf_tables table t chain c (1 rule))", ""},
		{"a slow rule that every packet meets", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, limit, limits)},
			"netfilter:ip4:forward (all packets: ip t c rule 2: limit), netfilter:ip4:forward (l4proto tcp, dport 22: ip t c rule 1: limit)", "", ""},
		{"a slow rule that some packets do not come to", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop, limits)}, "rules-out(dims=2 entries=2 slow=1)", "",
			"netfilter:ip4:forward (all packets: ip t c rule 2: limit)"},
		{"a rule that no image can express", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, toHost)}, "rules-out(entries=1 slow=1)", "",
			"netfilter:ip4:forward (ether daddr 2:0:0:0:0:1: ip t c rule 1: not in the data path: lookup of ether daddr)"},
		{"a rule that drops", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop)}, "rules-out(dims=2 entries=1)", "", ""},
		{"a policy that drops", []change{able, chainOf(ruleset.Inet, ruleset.Postrouting, ruleset.Drop)}, "rules-out(entries=1)", "rules-out(entries=1)", ""},
		{"both stages", []change{able, chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, mark), chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop, limit)},
			"rules-in(entries=1), rules-out(dims=2 entries=1)", "", ""}, // nobody gets to the limit
		{"a part of the traffic", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, limit, accept)},
			"rules-out(dims=2 entries=1 slow=1)", "", "netfilter:ip4:forward (l4proto tcp, dport 22: ip t c rule 1: limit)"},
		{"input is not met", []change{able, chainOf(ruleset.Inet, ruleset.Input, ruleset.Drop, limit)}, "", "", ""},
		{"a mark that nobody asks for", []change{able, chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, mark)}, "rules-in(entries=1)", "", ""},
		{"a mark that a policy rule asks for", []change{able, chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, mark), rule(model.Rule{Family: model.IP4, Mark: true})},
			"rule-unknown (ip4: netfilter rules set a mark that routing asks for)", "", ""},
		{"a mark behind the route", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, mark), rule(model.Rule{Family: model.IP4, Mark: true})},
			"rules-out(entries=1)", "", ""},
		{"a mark and src_valid_mark", []change{able, chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, mark), on("eth1", func(l *model.Link) { l.Conf4.SrcValidMark = true })},
			"rule-unknown (ip4: netfilter rules set a mark that routing asks for)", "", ""},
		{"a hook that no table explains", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop), network(func(n *model.Network) { n.Filter = nil })},
			"netfilter:ip4:forward (nf_tables table t chain c (1 rule))", "", ""},
		{"a chain with something that is not understood", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop),
			network(func(n *model.Network) { n.Netfilter[0].Extra = []string{"hardware offload"} })},
			"netfilter:ip4:forward (nf_tables table t chain c (1 rule, hardware offload))", "", ""},
	} {
		p := portOf(t, Build(router(c.changes...)), "eth0")
		for _, f := range []struct {
			path Path
			want string
		}{{p.Inputs[0].IP4, c.ip4}, {p.Inputs[0].IP6, c.ip6}} {
			var got []string
			for _, w := range f.path.Why {
				got = append(got, w.String())
			}
			for _, n := range f.path.Nodes {
				if strings.HasPrefix(n.Kind, "rules-") {
					got = append(got, n.String())
				}
			}
			if strings.Join(got, ", ") != f.want {
				t.Errorf("%s: %s, want %s", c.what, strings.Join(got, ", "), f.want)
			}
		}
		var except []string
		for _, w := range p.Inputs[0].IP4.Except {
			except = append(except, w.String())
		}
		if strings.Join(except, ", ") != c.except {
			t.Errorf("%s: except %q, want %q", c.what, except, c.except)
		}
	}
}

// A rule set that is the same value is not worked out again.
func TestMemo(t *testing.T) {
	n, p := router(able, chainOf(ruleset.Inet, ruleset.Forward, ruleset.Accept, drop))
	p.Memo = &Memo{}
	first := Build(n, p)
	if again := Build(n, p); first.Filter4 != again.Filter4 || first.Filter4 == first.Filter6 {
		t.Error("the same rule set was worked out again")
	}
	other, _ := router(able, chainOf(ruleset.Inet, ruleset.Forward, ruleset.Accept, limit))
	if f := Build(other, p).Filter4; f == first.Filter4 || f.Post.Slow != 1 {
		t.Errorf("another rule set: %+v", f)
	}
}

// Where the conntrack node lets only packets of established connections go on, rules that ask for the state are decided before any packet comes.
func TestEstablishedBeforeRules(t *testing.T) {
	state := func(not bool, verdict ruleset.Code) []ruleset.Step {
		return []ruleset.Step{ruleset.Test{Field: ruleset.CTState, Mask: ruleset.Num(ruleset.CTEstablished), Ranges: []ruleset.Range{ruleset.One(ruleset.Num(0))}, Not: not},
			ruleset.Verdict{Code: verdict}}
	}
	tracked := network(func(n *model.Network) {
		n.Netfilter = append(n.Netfilter,
			model.NFHook{Family: model.IP4, Hook: "prerouting", Priority: -200, Kind: model.Conntrack, Function: "ipv4_conntrack_in"},
			model.NFHook{Family: model.IP4, Hook: "postrouting", Priority: math.MaxInt32, Kind: model.Conntrack, Function: "nf_confirm"})
	})
	on := policy(func(p *Policy) { p.Kernel.Rules, p.Kernel.Conntrack = true, true })
	for _, c := range []struct {
		what  string
		steps [][]ruleset.Step
		want  Stage
	}{
		{"established accepted, all else dropped", [][]ruleset.Step{state(true, ruleset.Accept), {ruleset.Verdict{Code: ruleset.Drop}}}, Stage{}},
		{"established dropped", [][]ruleset.Step{state(true, ruleset.Drop)}, Stage{Entries: 1}},
		{"all but established dropped", [][]ruleset.Step{state(false, ruleset.Drop)}, Stage{}},
	} {
		g := Build(router(on, tracked, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, c.steps...)))
		var got Stage
		if g.Filter4 != nil {
			got = g.Filter4.Post
		}
		if why := portOf(t, g, "eth0").Inputs[0].IP4.Why; got != c.want || len(why) > 0 {
			t.Errorf("%s: %+v, want %+v; %v", c.what, got, c.want, why)
		}
	}
}
