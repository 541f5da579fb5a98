// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// TestEbtables reads what ebtables makes of its options in nf_tables' family bridge.
func TestEbtables(t *testing.T) {
	ns := namespace(t)
	for _, c := range []struct{ options, want, text string }{
		{"-p IPv4 --ip-src 10.0.0.0/8 --ip-dst ! 10.1.0.1", "ether type 800-800, ip saddr a000000-affffff, not ip daddr a010001-a010001", "--ip-src 10.0.0.0/8 ! --ip-dst 10.1.0.1/32"},
		{"-p IPv4 --ip-proto udp --ip-sport 53 --ip-dport ! 1000:2000", "ether type 800-800, l4proto 11-11, sport 35-35, not dport 3e8-7d0", "--ip-proto udp --ip-sport 53 ! --ip-dport 1000:2000"},
		{"-p IPv4 --ip-tos 0x10 --ip-dst 10.0.0.1/255.0.0.255", "ether type 800-800, dsfield 10-10, ip daddr&ff0000ff a000001-a000001", "--ip-tos 0x10 --ip-dst 10.0.0.1/255.0.0.255"},
		{"-p IPv6 --ip6-src fd00::/16 --ip6-proto tcp --ip6-dport 80", "ether type 86dd-86dd, ip6 saddr fd000000000000000000000000000000-fd00ffffffffffffffffffffffffffff, l4proto 6-6, dport 50-50", "--ip6-src fd00::/16 --ip6-proto tcp --ip6-dport 80"},
		{"-p IPv4 --ip-proto icmp --ip-icmp-type echo-request", "ether type 800-800, unknown xt match ip", "types of ICMP or IGMP"},
		{"-p ARP --arp-opcode 1", "ether type 806-806, unknown xt match arp", ""},
		{"-s 00:11:22:33:44:55 -d ! 00:11:22:33:44:66 -i p0 -o p+", "iifname 70300000000000000000000000000000-70300000000000000000000000000000, oifname 70000000000000000000000000000000-70ffffffffffffffffffffffffffffff, ether saddr 1122334455-1122334455, not ether daddr 1122334466-1122334466", "ether saddr"},
	} {
		ns.run(t, "ebtables -F && ebtables -A FORWARD "+c.options+" -j DROP")
		var rule *ruleset.Rule
		all := readAll(t).Ruleset
		for i := range all.Tables {
			if table := &all.Tables[i]; table.Family == ruleset.Bridge {
				if chain := table.Chain("FORWARD"); chain != nil && len(chain.Rules) == 1 {
					rule = &chain.Rules[0]
				}
			}
		}
		if rule == nil {
			t.Errorf("%s: no rule is read", c.options)
			continue
		}
		parts := strings.Split(steps(*rule), ", ")
		got := strings.Join(parts[:max(0, len(parts)-2)], ", ") // without the counter and the verdict
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.options, diff)
		}
		shown := rule.Text
		for _, s := range rule.Steps {
			if u, ok := s.(ruleset.Unknown); ok {
				shown += u.Text
			}
		}
		if !strings.Contains(shown, c.text) {
			t.Errorf("%s: shown as %q, want %q in it", c.options, shown, c.text)
		}
	}
}
