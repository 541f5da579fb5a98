// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// A change of structure has a millisecond from event to effect; deciding must be a small part of it.
func BenchmarkBuild(b *testing.B) {
	for _, count := range []int{0, 100, 1000} {
		b.Run(fmt.Sprintf("%d-more-devices", count), func(b *testing.B) {
			net, pol := router()
			for i := range count {
				l := card(100+i, fmt.Sprintf("veth%d", i))
				asVeth(&l)
				net.Links = append(net.Links, &l)
			}
			for b.Loop() {
				Build(net, pol)
			}
		})
	}
}

// The same where they are the ports of a bridge, as on a host of very many containers.
func BenchmarkBuildBridge(b *testing.B) {
	for _, count := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("%d-ports", count), func(b *testing.B) {
			net, pol := router()
			var names []string
			for i := range count {
				l := card(100+i, fmt.Sprintf("veth%d", i))
				asVeth(&l)
				net.Links, names = append(net.Links, &l), append(names, l.Name)
			}
			inBridge(names...)(net, &pol)
			for b.Loop() {
				Build(net, pol)
			}
		})
	}
}

// One port of such a bridge changes: all else follows from what did not.
func BenchmarkBuildBridgeChanged(b *testing.B) {
	for _, count := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("%d-ports", count), func(b *testing.B) {
			net, pol := router()
			var names []string
			for i := range count {
				l := card(100+i, fmt.Sprintf("veth%d", i))
				asVeth(&l)
				net.Links, names = append(net.Links, &l), append(names, l.Name)
			}
			inBridge(names...)(net, &pol)
			pol.Memo = &Memo{}
			for i := 0; b.Loop(); i++ {
				next := *net
				next.Links = slices.Clone(net.Links)
				at := len(next.Links) - 1 - i%count
				changed := *next.Links[at]
				changed.Up, next.Links[at] = !changed.Up, &changed
				net = &next
				Build(net, pol)
			}
		})
	}
}

// manyRules is a network whose forward chain drops single sources, as a blacklist does, behind a jump to a chain with one more rule if extra.
func manyRules(count int, extra bool) *model.Network {
	net, _ := router()
	rs := &ruleset.Ruleset{}
	rule := func(n int, src uint64, steps ...ruleset.Step) ruleset.Rule {
		id := ruleset.CounterID(len(rs.Counters))
		rs.Counters = append(rs.Counters, ruleset.Counter{At: ruleset.CounterPlace{Family: ruleset.IP4, Table: "t", Chain: "c", Handle: src}})
		steps = append([]ruleset.Step{ruleset.Test{Field: ruleset.IP4Src, Ranges: []ruleset.Range{ruleset.One(ruleset.Num(src))}}, ruleset.Count{Counter: id}}, steps...)
		return ruleset.Rule{Handle: src, Number: n, Text: fmt.Sprintf("ip saddr %d counter drop", src), Steps: steps}
	}
	drop := ruleset.Verdict{Code: ruleset.Drop}
	live := ruleset.Chain{Name: "live"}
	forward := ruleset.Chain{Name: "forward", Base: &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter}}
	forward.Rules = append(forward.Rules, ruleset.Rule{Number: 1, Steps: []ruleset.Step{ruleset.Verdict{Code: ruleset.Jump, Chain: "live"}}})
	for i := range count {
		forward.Rules = append(forward.Rules, rule(i+2, 0x0b000000+uint64(i)*77, drop))
	}
	if extra {
		live.Rules = append(live.Rules, rule(1, 0x15090909, drop))
	}
	rs.Tables = []ruleset.Table{{Family: ruleset.IP4, Name: "t", Chains: []ruleset.Chain{live, forward}}}
	net.Filter = rs
	net.Netfilter = append(net.Netfilter, model.NFHook{Family: model.IP4, Hook: "forward", Kind: model.NFTables, Table: "t", Chain: "forward", Rules: count + 1, PolicyAccept: true})
	return net
}

// A rule has to be in force a millisecond after the command that added it.
func BenchmarkRuleAdded(b *testing.B) {
	for _, count := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("beside-%d", count), func(b *testing.B) {
			_, pol := router()
			pol.Kernel.Rules = true
			pol.Memo = &Memo{}
			nets := []*model.Network{manyRules(count, false), manyRules(count, true)}
			for i := 0; b.Loop(); i++ {
				g := Build(nets[i&1], pol)
				if g.Filter4 == nil || g.Filter4.Problem != "" || g.Filter4.Images[image.Post] == nil {
					b.Fatal("the rules are not compiled")
				}
			}
		})
	}
}

// Until it is compiled, the packets of the changed rule alone are Linux's: that much has to be known a millisecond after the command.
func BenchmarkRuleFront(b *testing.B) {
	pol := apartPolicy(1000)
	net := manyRules(10_000, false)
	Build(net, pol)
	work := pol.Memo.Compilation()
	work.Run()
	pol.Memo.Take(work)
	Build(net, pol)
	for i := 0; b.Loop(); i++ {
		next, rs := *net, *net.Filter
		rs.Tables = slices.Clone(rs.Tables)
		rs.Tables[0].Chains = slices.Clone(rs.Tables[0].Chains)
		rs.Tables[0].Chains[0].Rules = []ruleset.Rule{{Handle: uint64(1 + i), Number: 1, Steps: []ruleset.Step{ruleset.Test{Field: ruleset.IP4Src, Ranges: []ruleset.Range{ruleset.One(ruleset.Num(5))}}, ruleset.Verdict{Code: ruleset.Drop}}}}
		next.Filter = &rs
		if g := Build(&next, pol); g.Filter4.Over == nil {
			b.Fatal("the rule is not in front")
		}
	}
}
