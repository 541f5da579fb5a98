// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
)

// Where br_netfilter shows bridged packets to rules and connection tracking, the data path asks those itself, at tc, unless they mean something else to bridged packets.
func TestRulesOfBridgedPackets(t *testing.T) {
	toAddress := []ruleset.Step{ruleset.Test{Field: ruleset.DstAddrType, Ranges: []ruleset.Range{ruleset.Nums(4, 4)}}, ruleset.Verdict{Code: ruleset.Drop}}
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
