// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
)

// Where br_netfilter shows bridged packets to rules and connection tracking, the data path asks those itself, at tc, unless they mean something else to bridged packets.
func TestRulesOfBridgedPackets(t *testing.T) {
	toAddress := []ruleset.Step{ruleset.Test{Field: ruleset.DstAddrType, Ranges: []ruleset.Range{ruleset.Nums(2, 2)}}, ruleset.Verdict{Code: ruleset.Drop}}
	byDevice := []ruleset.Step{ruleset.Test{Field: ruleset.IIFIndex, Ranges: []ruleset.Range{ruleset.Nums(9, 9)}}, ruleset.Verdict{Code: ruleset.Drop}}
	tos := []ruleset.Step{ruleset.SetField{Field: ruleset.DSField, Xor: 4}}
	tracked := []change{lookups, tracks(defrag, trackIn, natIn, natOut, confirm), natChain}
	for _, c := range []struct {
		what    string
		changes []change
		nodes   string // that ask for IPv4; empty: none
		why     string // in the first reason against IPv4
		except  string
	}{
		{"connections", tracked, NodeTrack, "", ""},
		{"connections and a rule", append(slices.Clone(tracked), able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop)), NodeTrack + " " + NodeRulesOut, "", ""},
		{"reassembly, for which fragments are Linux's", []change{tracks(defrag)}, "none", "", ""},
		{"connections that cannot be looked up", []change{tracks(defrag, trackIn, confirm)}, "", "cannot be looked up", ""},
		{"rules at every hook", []change{able, chainOf(ruleset.IP4, ruleset.Prerouting, ruleset.Accept, mark), chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop)}, NodeRulesIn + " " + NodeRulesOut, "", ""},
		{"a rule that some packets leave to Linux", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, limit)}, NodeRulesOut, "", "limit"},
		{"a rule that all packets leave to Linux", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, limits)}, "", "limit", ""},
		{"rules where the data path asks none", []change{chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, drop)}, "", "table t chain c", ""},
		{"the input device", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, byDevice)}, NodeRulesOut, "", ""},
		{"the input device behind the way out", []change{able, chainOf(ruleset.IP4, ruleset.Postrouting, ruleset.Accept, byDevice)}, "", "bridged packets have none", ""},
		{"the type of an address", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, toAddress)}, "", "type of an address", ""},
		{"the TOS is written", []change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, tos)}, "", "sets", ""},
		{"a bridge in a VRF", append(slices.Clone(tracked), redBridge), "", "in VRF red", ""},
		{"tc alone", append(slices.Clone(tracked), hook("tc")), "conntrack", "", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			g := Build(router(append([]change{bridged01, calls, routesNothing}, c.changes...)...))
			p := portOf(t, g, "eth0")
			call := p.Bridge.Call4
			var nodes []string
			for _, n := range call.Nodes {
				nodes = append(nodes, n.Kind)
			}
			if want := strings.Fields(strings.TrimPrefix(c.nodes, "none")); call.Asks != (c.nodes != "") || !slices.Equal(nodes, want) {
				t.Errorf("asks %v %v, want %q; not for %v", call.Asks, nodes, c.nodes, call.Why)
			}
			if c.why == "" && len(call.Why) > 0 || c.why != "" && (len(call.Why) == 0 || call.Why[0].Reason != reason.BridgeNetfilter || !strings.Contains(call.Why[0].Detail, c.why)) {
				t.Errorf("against it: %v, want %q", call.Why, c.why)
			}
			if c.except == "" && len(call.Except) > 0 || c.except != "" && (len(call.Except) != 1 || !strings.Contains(call.Except[0].Detail, c.except)) {
				t.Errorf("except %v, want %q", call.Except, c.except)
			}
			if all := join(call.Why, call.Except); !reflect.DeepEqual(p.Bridge.Except, tidy(all)) {
				t.Errorf("the bridge's frames are fast except %v, want %v", p.Bridge.Except, all)
			}
			if six := p.Bridge.Call6; six.Asks || len(six.Why) > 0 {
				t.Errorf("IPv6: %+v", six)
			}
			if want := map[bool]Hook{true: TC, false: XDP}[c.what == "tc alone"]; call.Asks && !slices.Equal(p.Hooks, []Hook{want}) {
				t.Errorf("attached at %v, want %v", p.Hooks, want)
			}
		})
	}
}

// Rules for bridged packets are asked by the program that serves what is addressed to the bridge.
func TestRulesOfBridgedPacketsBesideRouting(t *testing.T) {
	p := portOf(t, Build(router(bridged01, calls, lookups, tracks(defrag, trackIn, confirm))), "eth0")
	if !slices.Equal(p.Hooks, []Hook{XDP}) || !p.Bridge.Call4.Asks {
		t.Errorf("hooks %v, %+v", p.Hooks, p.Bridge.Call4)
	}
}

func TestRulesOfBridgedPacketsInText(t *testing.T) {
	text := Build(router(routesNothing, bridged01, calls, able, lookups, tracks(defrag, trackIn, confirm), chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, limit))).Text()
	for _, want := range []string{"│  frames ─▶ bridge ─ egress ─ guard ─ redirect\n", "│      ip4 ─▶ conntrack ─ rules-out", "··▶ Linux: netfilter:ip4:forward (l4proto tcp, dport 22"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Chains of family bridge are asked, each by frames of the families that it says something to, unless what it asks is not known of frames.
func TestChainsOfFamilyBridge(t *testing.T) {
	typed := func(n uint64) ruleset.Step {
		return ruleset.Test{Field: ruleset.EtherType, Ranges: []ruleset.Range{ruleset.Nums(n, n)}}
	}
	count := ruleset.Verdict{Code: ruleset.Drop}
	by := func(f ruleset.Field) []ruleset.Step {
		return []ruleset.Step{typed(0x0800), ruleset.Test{Field: f, Ranges: []ruleset.Range{ruleset.Nums(9, 9)}}, count}
	}
	chain := func(h ruleset.Hook, steps ...[]ruleset.Step) change {
		return chainOf(ruleset.Bridge, h, ruleset.Accept, steps...)
	}
	for _, c := range []struct {
		what    string
		changes []change
		four    bool   // frames with IPv4 ask them
		six     bool   // frames with IPv6 ask them
		why     string // in the first reason against IPv4
		except  string // in the only part of IPv4 that is left to Linux
		closed  bool   // against all frames
		met     bool   // by what is addressed to the bridge
	}{
		{"of IPv4", []change{able, chain(ruleset.Forward, by(ruleset.IP4Src))}, true, false, "", "", false, false},
		{"of all frames", []change{able, chain(ruleset.Forward, drop)}, true, true, "", "", false, false},
		{"of what carries no IP", []change{able, chain(ruleset.Prerouting, []ruleset.Step{typed(0x0806), count})}, false, false, "", "", false, true},
		{"by port", []change{able, chain(ruleset.Forward, by(ruleset.OIFIndex)), chain(ruleset.Prerouting, by(ruleset.IIFIndex))}, true, false, "", "", false, true},
		{"by the port in behind the way out", []change{able, chain(ruleset.Postrouting, by(ruleset.IIFIndex))}, false, false, "at postrouting of a bridge", "", false, false},
		{"by address", []change{able, chain(ruleset.Forward, by(ruleset.EtherSrc), by(ruleset.EtherDst))}, true, false, "", "", false, false},
		{"by what frames do not show", []change{able, chain(ruleset.Forward, by(ruleset.PacketType))}, false, false, "pkttype in a bridge", "", false, false},
		{"a rule that some leave to Linux", []change{able, chain(ruleset.Forward, limit)}, true, true, "", "limit", false, false},
		{"a rule that all leave to Linux", []change{able, chain(ruleset.Forward, limits)}, false, false, "limit", "", false, false},
		{"a mark", []change{able, chain(ruleset.Forward, append(slices.Clip(slices.Clone(toSSH)), mark...))}, true, true, "", "change to a frame", false, false},
		{"rules of IP are others", []change{able, chainOf(ruleset.Inet, ruleset.Forward, ruleset.Accept, drop), chain(ruleset.Forward, by(ruleset.IP4Src))}, true, false, "", "", false, false},
		{"where the data path asks none", []change{chain(ruleset.Forward, drop)}, false, false, "", "", true, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			p := portOf(t, Build(router(append([]change{bridged01}, c.changes...)...)), "eth0")
			four, six := p.Bridge.Call4, p.Bridge.Call6
			if closed := len(p.Bridge.Why) > 0; closed != c.closed || closed && p.Bridge.Why[0].Reason != reason.NetfilterBridge {
				t.Fatalf("against all frames: %v", p.Bridge.Why)
			}
			if four.Frames != c.four || six.Frames != c.six || four.Asks || six.Asks {
				t.Errorf("IPv4 %+v, IPv6 %+v", four, six)
			}
			if c.why == "" && len(four.Why) > 0 || c.why != "" && (len(four.Why) == 0 || four.Why[0].Reason != reason.NetfilterBridge || !strings.Contains(four.Why[0].Detail, c.why)) {
				t.Errorf("against IPv4: %v, want %q", four.Why, c.why)
			}
			if c.except == "" && len(four.Except) > 0 || c.except != "" && (len(four.Except) != 1 || !strings.Contains(four.Except[0].Detail, c.except)) {
				t.Errorf("except %v, want %q", four.Except, c.except)
			}
			if !p.Bridge.Chains {
				t.Error("what carries no IP is not left to Linux")
			}
			if host := p.Inputs[0].IP4; host.Fast() == c.met {
				t.Errorf("what is addressed to the bridge, which meets such chains: %v; against it %v", c.met, host.Why)
			}
		})
	}
}

// Sets of ipset that ask for the way in, or lists that may, mean something else to bridged packets at postrouting, where those have none.
func TestSetsByInterfaceBehindBridges(t *testing.T) {
	for _, c := range []struct {
		kind string
		key  []ruleset.Field
		src  []bool
		hook ruleset.Hook
		why  bool
	}{
		{"hash:net,iface", []ruleset.Field{ruleset.IP4Src, ruleset.IIFName}, []bool{true, true}, ruleset.Postrouting, true},
		{"hash:net,iface", []ruleset.Field{ruleset.IP4Src, ruleset.IIFName}, []bool{true, true}, ruleset.Forward, false},
		{"hash:net,iface", []ruleset.Field{ruleset.IP4Src, ruleset.OIFName}, []bool{true, false}, ruleset.Postrouting, false},
		{"list:set", nil, []bool{true, true}, ruleset.Postrouting, true},
		{"list:set", nil, []bool{true}, ruleset.Postrouting, false},
	} {
		rs := &ruleset.Ruleset{Sets: []ruleset.Set{{Dialect: ruleset.IPSet, Type: c.kind, Name: "s", Live: true, Index: 1}}, Tables: []ruleset.Table{{Dialect: ruleset.Legacy, Family: ruleset.IP4, Name: "mangle", Chains: []ruleset.Chain{{
			Name: "c", Base: &ruleset.Base{Hook: c.hook, Policy: ruleset.Accept}, Rules: []ruleset.Rule{{Steps: []ruleset.Step{ruleset.Lookup{Key: c.key, Src: c.src}, ruleset.Verdict{Code: ruleset.Drop}}}}}}}}}
		why := ""
		for _, e := range rules.Flatten(rs, rules.Class{Family: ruleset.IP4, LiveSets: true}).Lists[0] {
			why += unbridged(&e)
		}
		if (why != "") != c.why {
			t.Errorf("%s by %v at %v: %q", c.kind, c.src, c.hook, why)
		}
	}
}
