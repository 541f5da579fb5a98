// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// TestFilterIsShared: the rule set of a Network is the same value until something in it changes, in any dialect; traffic that counts is no
// change.
func TestFilterIsShared(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `ip link set lo up
iptables-legacy -A OUTPUT -d 127.0.0.9 -j ACCEPT
nft 'table inet f { set s { type ipv4_addr; elements = { 192.0.2.1 } }; chain o { type filter hook output priority 0; ip daddr @s counter; }; chain u { }; }'`)
	r := open(t, Options{})
	before, err := r.Read(All)
	if err != nil || before.Filter == nil || len(before.Faults) > 0 {
		t.Fatalf("%v, faults %v", err, before.Faults)
	}
	for _, c := range []struct {
		script string
		same   bool
	}{
		{"ping -c1 -W1 127.0.0.9 >/dev/null", true},
		{"ip addr add 192.0.2.9/32 dev lo", true},
		{"nft add rule inet f u counter", false},
		{"nft add element inet f s '{ 192.0.2.2 }'", false},
		{"iptables-legacy -A FORWARD -s 10.0.0.0/8 -j DROP", false},
		{"iptables-legacy -P FORWARD DROP", false},
		{"true", true},
		{"iptables-legacy -A FORWARD -s 10.0.0.0/8 -m comment --comment x -j DROP", false},
		{"nft flush ruleset", false},
	} {
		ns.run(t, c.script)
		after, err := r.Read(Netfilter)
		if err != nil || len(after.Faults) > 0 {
			t.Fatalf("%v, faults %v", err, after.Faults)
		}
		if same := before.Filter == after.Filter; same != c.same {
			t.Errorf("after %q: same rule set: %t, want %t", c.script, same, c.same)
		}
		for _, n := range after.Filter.Counters {
			if n.Packets != 0 {
				t.Errorf("after %q: a counter of the model has %d packets", c.script, n.Packets)
			}
		}
		before = after
	}
}

// TestFilterOrder: chains of one priority have the order of their calls, or say that it is not known.
func TestFilterOrder(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `iptables-legacy -A FORWARD -j ACCEPT
nft 'table ip a { chain c { type filter hook forward priority 0; }; }'
nft 'table ip6 b { chain c { type filter hook forward priority 0; }; }'`)
	r := open(t, Options{})
	base := func(n *ruleset.Ruleset, f ruleset.Family, table, chain string) *ruleset.Base {
		return n.Table(f, table).Chain(chain).Base
	}
	n, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	legacy, nft, other := base(n.Filter, ruleset.IP4, "filter", "FORWARD"), base(n.Filter, ruleset.IP4, "a", "c"), base(n.Filter, ruleset.IP6, "b", "c")
	if len(legacy.Unknown)+len(nft.Unknown)+len(other.Unknown) > 0 || nft.Order >= legacy.Order {
		t.Errorf("the chain that was registered last is called first: nft %+v, legacy %+v, IPv6 %+v", nft, legacy, other)
	}
	ns.run(t, `nft 'table inet z { chain c { type filter hook forward priority 0; }; }'`)
	if n, err = r.Read(Netfilter); err != nil {
		t.Fatal(err)
	}
	inet, nft, other := base(n.Filter, ruleset.Inet, "z", "c"), base(n.Filter, ruleset.IP4, "a", "c"), base(n.Filter, ruleset.IP6, "b", "c")
	if _, err := r.readHooks(nil); err == nil { // the kernel lists its hooks
		if inet.Order >= nft.Order || inet.Order >= other.Order || len(inet.Unknown) > 0 {
			t.Errorf("the inet chain is called first in both families: %+v, IPv4 %+v, IPv6 %+v", inet, nft, other)
		}
	} else if len(inet.Unknown) == 0 || len(nft.Unknown) == 0 || len(other.Unknown) == 0 {
		t.Errorf("a walk cannot tell the order: %+v, IPv4 %+v, IPv6 %+v", inet, nft, other)
	}
}

// TestFilterIPSet: the rule set of a Network has no elements of ipsets, and says so, so that nobody takes a set for empty.
func TestFilterIPSet(t *testing.T) {
	ns := namespace(t)
	ns.run(t, `ipset create a hash:ip && ipset add a 192.0.2.1 && iptables-legacy -A FORWARD -m set --match-set a src -j DROP`)
	n, err := open(t, Options{}).Read(All)
	if err != nil || len(n.Faults) > 0 {
		t.Fatalf("%v, faults %v", err, n.Faults)
	}
	rule := n.Filter.Table(ruleset.IP4, "filter").Chain("FORWARD").Rules[0]
	lookup, asks := rule.Steps[0].(ruleset.Lookup)
	if s := n.Filter.Sets[0]; !asks || !slices.Equal(lookup.Src, []bool{true}) || s.Name != "a" || !s.Live || s.Unknown != "" {
		t.Errorf("%+v, sets %+v", rule, n.Filter.Sets)
	}
}
