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
		for f, met := range map[model.Family]bool{model.IP4: table == ruleset.Inet || table == ruleset.IP4, model.IP6: table == ruleset.Inet || table == ruleset.IP6, model.BridgeFamily: table == ruleset.Bridge} {
			if met {
				n.Netfilter = append(n.Netfilter, model.NFHook{Family: f, Hook: hook.String(), Kind: model.NFTables, Table: "t", Chain: "c",
					Rules: len(steps), PolicyAccept: policy == ruleset.Accept})
			}
		}
	})
}

var (
	toSSH     = []ruleset.Step{ruleset.Test{Field: ruleset.L4Proto, Ranges: []ruleset.Range{ruleset.Nums(6, 6)}}, ruleset.Test{Field: ruleset.DPort, Ranges: []ruleset.Range{ruleset.Nums(22, 22)}}}
	limit     = append(slices.Clip(slices.Clone(toSSH)), ruleset.Unknown{Name: "limit", Text: "limit rate 5/second"})
	fromThere = []ruleset.Step{ruleset.Test{Field: ruleset.IP4Src, Ranges: []ruleset.Range{ruleset.One(ruleset.Num(10))}}, ruleset.Verdict{Code: ruleset.Drop}}
	drop      = append(slices.Clip(slices.Clone(toSSH)), ruleset.Verdict{Code: ruleset.Drop})
	limits    = []ruleset.Step{ruleset.Unknown{Name: "limit", Text: "limit rate 5/second"}}
	accept    = []ruleset.Step{ruleset.Verdict{Code: ruleset.Accept}}
	mark      = []ruleset.Step{ruleset.SetField{Field: ruleset.Mark, Xor: 1}}
	toHost    = []ruleset.Step{ruleset.Test{Field: ruleset.EtherDst, Ranges: []ruleset.Range{ruleset.Nums(0x20000000001, 0x20000000002)}}, ruleset.Verdict{Code: ruleset.Drop}}
	able      = policy(func(p *Policy) { p.Kernel.Rules = true })
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
			"netfilter:ip4:forward (ether daddr 2:0:0:0:0:1-2:0:0:0:0:2: ip t c rule 1: not in the data path: lookup of ether daddr)"},
		{"a rule that drops", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop)}, "rules-out(dims=2 entries=1)", "", ""},
		{"a policy that drops", []change{able, chainOf(ruleset.Inet, ruleset.Postrouting, ruleset.Drop)}, "rules-out(entries=1)", "rules-out(entries=1)", ""},
		{"both stages", []change{able, chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, mark), chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop, limit)},
			"rules-in(entries=1), rules-out(dims=2 entries=1)", "", ""}, // nobody gets to the limit
		{"a part of the traffic", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, limit, accept)},
			"rules-out(dims=2 entries=1 slow=1)", "", "netfilter:ip4:forward (l4proto tcp, dport 22: ip t c rule 1: limit)"},
		{"input is not met", []change{able, chainOf(ruleset.Inet, ruleset.Input, ruleset.Drop, limit)}, "", "", ""},
		{"a mark that nobody asks for", []change{able, chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, mark)}, "rules-in(entries=1)", "", ""},
		{"a mark that a policy rule asks for", []change{able, chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, mark), rule(model.Rule{Family: model.IP4, Mark: true})}, "rules-in(entries=1)", "", ""},
		{"one before Linux 6.10", []change{able, policy(func(p *Policy) { p.Kernel.FibMark = false }), chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, mark), rule(model.Rule{Family: model.IP4, Mark: true})},
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

// atIngress puts a chain of table t at the ingress of devices.
func atIngress(name string, table ruleset.Family, devices []string, steps ...[]ruleset.Step) change {
	return atDevice(ruleset.Ingress, name, table, devices, steps...)
}

func atEgress(name string, devices []string, steps ...[]ruleset.Step) change {
	return atDevice(ruleset.Egress, name, ruleset.Netdev, devices, steps...)
}

func atDevice(hook ruleset.Hook, name string, table ruleset.Family, devices []string, steps ...[]ruleset.Step) change {
	return network(func(n *model.Network) {
		c := ruleset.Chain{Name: name, Base: &ruleset.Base{Hook: hook, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter, Devices: devices}}
		for i, s := range steps {
			c.Rules = append(c.Rules, ruleset.Rule{Number: i + 1, Steps: s})
		}
		if n.Filter == nil {
			n.Filter = &ruleset.Ruleset{Counters: []ruleset.Counter{{}}}
		}
		n.Filter.Tables = append(n.Filter.Tables, ruleset.Table{Family: table, Name: "t", Chains: []ruleset.Chain{c}})
		for _, d := range devices {
			n.Netfilter = append(n.Netfilter, model.NFHook{Family: model.Netdev, Hook: hook.String(), Device: d, Kind: model.NFTables, Table: "t", Chain: name, Rules: len(steps), PolicyAccept: true})
		}
	})
}

// What rules at egress leave to Linux is told of every way in, and asked behind the route alone.
func TestRulesAtEgress(t *testing.T) {
	g := Build(router(able, atEgress("c", []string{"eth0"}, limit, fromThere)))
	for _, name := range []string{"eth0", "eth2"} {
		p := portOf(t, g, name)
		if len(p.Why) > 0 || len(p.Inputs) == 0 {
			t.Fatalf("%s: %v", name, p.Why)
		}
		var asks, left []string
		for _, n := range p.Inputs[0].IP4.Nodes {
			if strings.HasPrefix(n.Kind, "rules-") {
				asks = append(asks, n.String())
			}
		}
		for _, w := range p.Inputs[0].IP4.Except {
			left = append(left, w.String())
		}
		if got, want := strings.Join(asks, ", "), "rules-out(dims=4 entries=3 slow=1)"; got != want {
			t.Errorf("%s asks %q, want %q", name, got, want)
		}
		if got, want := strings.Join(left, ", "), "netfilter:netdev (l4proto tcp, dport 22: netdev t c rule 1: limit)"; got != want {
			t.Errorf("%s leaves to Linux %q, want %q", name, got, want)
		}
	}
}

// What rules at ingress mean for the device that they belong to, and for others.
func TestRulesAtIngress(t *testing.T) {
	one := []string{"eth0"}
	for _, c := range []struct {
		what            string
		changes         []change
		own             string // why nothing of eth0 is fast, or the node that asks rules
		other           string // of eth2, IPv4
		except, between string // of IPv4: what rules leave to Linux at eth0, at eth2
	}{
		{"a rule that drops", []change{able, atIngress("c", ruleset.Netdev, one, drop)}, "rules-in(dims=3 entries=2)", "rules-in(dims=3 entries=2)", "", ""},
		{"of an inet table", []change{able, atIngress("c", ruleset.Inet, one, drop)}, "rules-in(dims=3 entries=2)", "rules-in(dims=3 entries=2)", "", ""},
		{"where the data path asks none", []change{atIngress("c", ruleset.Netdev, one, drop)}, "netfilter:netdev (eth0 ingress: nf_tables table t chain c (1 rule))", "", "", ""},
		{"a slow rule", []change{able, atIngress("c", ruleset.Netdev, one, limit)}, "rules-in(dims=3 entries=2 slow=1)", "rules-in(dims=3 entries=2 slow=1)",
			"netfilter:netdev (l4proto tcp, dport 22: netdev t c rule 1: limit)", ""},
		{"one chain that is not understood", []change{able, atIngress("c", ruleset.Netdev, one, drop), atIngress("d", ruleset.Netdev, one, drop), network(func(n *model.Network) { n.Filter.Tables[1].Chains[0].Base.Unknown = []string{"hardware offload"} })},
			"netfilter:netdev (eth0 ingress: nf_tables table t chain d (1 rule))", "rules-in(dims=3 entries=4 slow=1)", "", ""},
		{"a chain of another device by its name", []change{able, atIngress("c", ruleset.Netdev, one, drop), network(func(n *model.Network) { n.Filter.Tables[0].Chains[0].Base.Devices = []string{"eth1"} })},
			"netfilter:netdev (eth0 ingress: nf_tables table t chain c (1 rule))", "", "", ""},
		{"of a slave", []change{able, inVRF, atIngress("c", ruleset.Netdev, one, drop)}, "netfilter:netdev (eth0 ingress: nf_tables table t chain c (1 rule))", "", "", ""},
		{"a chain without rules", []change{able, atIngress("c", ruleset.Netdev, one)}, "", "", "", ""},
	} {
		g := Build(router(c.changes...))
		show := func(name string) (got, except string) {
			p := portOf(t, g, name)
			var out, left []string
			for _, w := range p.Why {
				out = append(out, w.String())
			}
			if len(p.Inputs) > 0 && len(p.Why) == 0 {
				for _, n := range p.Inputs[0].IP4.Nodes {
					if strings.HasPrefix(n.Kind, "rules-") {
						out = append(out, n.String())
					}
				}
				for _, w := range p.Inputs[0].IP4.Except {
					left = append(left, w.String())
				}
			}
			return strings.Join(out, ", "), strings.Join(left, ", ")
		}
		own, except := show("eth0")
		other, between := show("eth2")
		if own != c.own || except != c.except || other != c.other || between != c.between {
			t.Errorf("%s: eth0 %q except %q, want %q except %q; eth2 %q except %q, want %q except %q", c.what, own, except, c.own, c.except, other, between, c.other, c.between)
		}
	}
	// Rules of a device are no rules of a VRF that has others.
	for _, p := range Build(router(able, inVRF, atIngress("c", ruleset.Netdev, []string{"eth2"}, drop))).Ports {
		if p.Name == "eth0" && (len(p.Inputs) == 0 || len(p.Inputs[0].IP4.Why) > 0) {
			t.Errorf("a VRF, and rules at another device: %v", p.Inputs)
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
