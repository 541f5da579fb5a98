// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
)

// backRules ask where the route to an IPv4 sender leads, as hardening guides and NixOS have it. Who came by another interface, or by none, shows: the router itself checks nothing.
func backRules() []hand {
	said := slices.DeleteFunc(join(some(), services(), back(), sources(), udp(2, h0, "10.5.1.1"), udp(0, "10.78.1.1", "10.5.1.1"), udp(2, "10.78.1.1", "10.5.1.1"), udp(1, "10.5.1.1", h0)), func(p Packet) bool { return len(p.Frame) < 14 || p.Frame[12] != 0x08 || p.Frame[13] != 0 })
	plain := "sysctl net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.p0.rp_filter=0 net.ipv4.conf.p1.rp_filter=0 net.ipv4.conf.p2.rp_filter=0"
	var out []hand
	for _, c := range []struct {
		name  string
		rules []string
	}{
		{"nft", []string{nftFile("add table inet t", "add chain inet t p { type filter hook prerouting priority raw; }", "add chain inet t f { type filter hook forward priority 0; }",
			"add rule inet t p fib saddr . iif oif missing counter drop", "add rule inet t p meta nfproto ipv4 fib saddr . mark . iif oif exists counter", "add rule inet t f counter", "add rule inet t f tcp dport 80 counter drop")}},
		{"nft by number", []string{nftFile("add table ip t", "add chain ip t p { type filter hook prerouting priority 10; }", "add rule ip t p fib saddr . iif oif 0 counter drop", "add rule ip t p fib saddr oif != 0 counter", "add rule ip t p tcp dport 80 counter drop")}},
		{"nft forward", []string{nftFile("add table ip t", "add chain ip t p { type filter hook prerouting priority 10; }", "add chain ip t f { type filter hook forward priority 10; }", "add rule ip t p ip dscp set cs1", "add rule ip t f fib saddr . mark . iif oif missing counter drop",
			"add rule ip t f tcp dport 80 counter drop", "add rule ip t f fib saddr oif exists counter")}},
		{"legacy", []string{restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :nixos-fw-rpfilter - [0:0]", "-A PREROUTING -j nixos-fw-rpfilter", "-A nixos-fw-rpfilter -m rpfilter --validmark -j RETURN", "-A nixos-fw-rpfilter -p udp -m udp --sport 67 --dport 68 -j RETURN", "-A nixos-fw-rpfilter -j DROP"),
			restore("iptables-legacy", "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP", "-A PREROUTING -m rpfilter --accept-local --invert -j DROP")}},
		{"loose", []string{restore("iptables-nft", "mangle", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -m rpfilter --loose --invert -j DROP", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP")}},
	} {
		h := hand{name: "rules back " + c.name, why: "packets whose sender's route leads elsewhere, or nowhere, are dropped by rules", loads: true, slow: Excuse{Rules: true}, reasons: []string{drop, reach, "fast"}, steps: []handStep{step(said, append(append(to5(gw1, gw1v6), plain), c.rules...)...)}}
		for _, r := range []string{"10.78.0.0/16 via 10.0.0.10", "10.78.0.0/16 nexthop via 10.0.0.10 nexthop via 10.0.2.10", "blackhole 10.78.1.0/24", "local 10.78.1.1 dev lo", "broadcast 10.78.1.1 dev p0 table local", "unicast 10.78.1.1 via 10.0.0.10 table local", "10.78.1.0/24 dev p0 scope host", "10.78.1.1 via 10.0.2.10 tos 0x10"} {
			add, del := atOnce(said, "ip route add "+r), atOnce(said, "ip route del "+r)
			if r[:8] != "10.78.0." {
				add.packets, del.packets = said[len(said)-3:], said[len(said)-3:] // those of that sender
			}
			h.steps = append(h.steps, add, del)
		}
		h.steps = append(h.steps, step(said), atOnce(said, "sysctl net.ipv4.conf.all.rp_filter=1"), step(said), step(said, "sysctl net.ipv4.conf.all.ignore_routes_with_linkdown=1"), step(said, "sysctl net.ipv4.conf.all.rp_filter=0"), step(said, "sysctl net.ipv4.conf.all.ignore_routes_with_linkdown=0"), step(said, "ip rule add pref 7 from 10.78.0.0/16 lookup main"), step(said, "ip rule del pref 7"))
		out = append(out, h)
	}
	return out
}
