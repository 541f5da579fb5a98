// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Legacy tables that change again and again are read as if for the first time, and rules and chains that stay are the same values with counters of the same numbers.
func TestLegacyTablesAreFollowed(t *testing.T) {
	ns := namespace(t)
	ns.run(t, "iptables-legacy -N a; iptables-legacy -N b; iptables-legacy -A FORWARD -j a; iptables-legacy -A FORWARD -s 10.0.0.1 -j DROP; ip6tables-legacy -A FORWARD -p tcp --dport 80 -j ACCEPT; "+
		"iptables-legacy -t mangle -A POSTROUTING -m length --length 0:9; iptables-legacy -A b -p udp -j ACCEPT; iptables-legacy -A b -s 10.9.0.0/16; iptables-legacy -A a -s 10.0.0.7 -g b")
	r := open(t, Options{})
	n, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	steps := func(rs *ruleset.Ruleset) map[*ruleset.Step]bool {
		out := map[*ruleset.Step]bool{}
		for i := range rs.Tables {
			for j := range rs.Tables[i].Chains {
				for _, r := range rs.Tables[i].Chains[j].Rules {
					if len(r.Steps) > 0 {
						out[&r.Steps[0]] = true
					}
				}
			}
		}
		return out
	}
	changes := []string{
		"iptables-legacy -I FORWARD 1 -s 10.0.0.2 -j DROP", "iptables-legacy -D FORWARD 1", "iptables-legacy -A FORWARD -s 10.0.0.1 -j DROP", "iptables-legacy -I a 1 -d 10.0.0.2 -j RETURN", "iptables-legacy -A b -j a 2>/dev/null || true",
		"iptables-legacy -P FORWARD DROP", "iptables-legacy -P FORWARD ACCEPT", "ip6tables-legacy -I FORWARD 1 -s fd00::1 -j DROP", "ip6tables-legacy -D FORWARD 1", "iptables-legacy -R FORWARD 1 -p tcp -j ACCEPT",
		"iptables-legacy -I FORWARD 2 -s 10.0.0.2 -j DROP", "iptables-legacy -N c 2>/dev/null || iptables-legacy -F c", "iptables-legacy -A a -j c || true", "iptables-legacy -F a", "iptables-legacy -t mangle -A POSTROUTING -p udp -j MARK --set-mark 7",
		"iptables-legacy -E a d", "iptables-legacy -E d a", "iptables-legacy -I FORWARD 1 -j ACCEPT", "iptables-legacy -D FORWARD -j ACCEPT",
	}
	rng := rand.New(rand.NewPCG(3, 4))
	shared := 0
	for i := range 40 {
		do := changes[i%len(changes)]
		if i >= len(changes) {
			do = changes[rng.IntN(len(changes))]
		}
		ns.run(t, do+" 2>/dev/null || true")
		before := n.Filter
		if n, err = r.Read(Netfilter); err != nil {
			t.Fatal(err)
		}
		want, hooks := wholeFilter(t)
		if diff := cmp.Diff(plainFilter(want), plainFilter(n.Filter)); diff != "" {
			t.Fatalf("after %q (-anew +followed):\n%s", do, diff)
		}
		if diff := cmp.Diff(hooks, n.Netfilter); diff != "" {
			t.Fatalf("hooks after %q (-anew +followed):\n%s", do, diff)
		}
		was := steps(before)
		for s := range steps(n.Filter) {
			if was[s] {
				shared++
			}
		}
	}
	if shared < 100 {
		t.Errorf("only %d rules were shared with the reading before", shared)
	}
}
