// SPDX-License-Identifier: Apache-2.0

package diff

// reasonTraps are configurations that keep interfaces or a family out by reasons that no other case has to show; the run fails where one is never seen (coverage.go).
func reasonTraps() []hand {
	traffic := join(some(), services(), back())
	slow := Excuse{IP4: true, IP6: true}
	linux := "udp dport 53 limit rate 1000000/second burst 1000 packets counter"
	return []hand{
		{name: "reason netfilter", why: "a rule that only Linux can evaluate at each hook of each family", slow: slow, loads: true,
			reasons: []string{"netfilter:ip4:prerouting", "netfilter:ip4:forward", "netfilter:ip4:postrouting", "netfilter:ip6:prerouting", "netfilter:ip6:forward", "netfilter:ip6:postrouting", reach, "fast"},
			steps: []handStep{
				step(traffic, append(to5(gw1, gw1v6), nftFile("add table inet t", "add chain inet t a { type filter hook prerouting priority 0; }", "add rule inet t a "+linux))...),
				step(traffic, "nft flush ruleset", nftFile("add table inet t", "add chain inet t a { type filter hook forward priority 0; }", "add rule inet t a "+linux)),
				step(traffic, "nft flush ruleset", nftFile("add table inet t", "add chain inet t a { type filter hook postrouting priority 0; }", "add rule inet t a "+linux))}},
		{name: "reason links", why: "a device on top that is not modelled, devices of other kinds, one that is down", needs: "macvlan", slow: Excuse{In: []int{1, 2}, Out: []int{1, 2}}, loads: true, hooks: []string{"xdp"},
			reasons: []string{"link-upper", "link-kind", "link-down", "link-xdp-unsupported", "link-no-ethernet"},
			steps: []handStep{step(join(traffic, udp(0, h0, "10.0.9.9")), append(to5(gw1, gw1v6), "ip link add m0 link p1 type macvlan mode bridge", "sysctl net/ipv6/conf/m0/disable_ipv6=1", "ip link set m0 up", "ip tuntap add tap0 mode tap", "sysctl net/ipv6/conf/tap0/disable_ipv6=1",
				"ip link set tap0 up", "ip address add 10.0.9.1/24 dev tap0", "ip link set p2 down")...)}},
		{name: "reason nothing to win", why: "an interface alone", slow: slow, loads: true, reasons: []string{"nothing-to-win"},
			steps: []handStep{step(join(toRouter(), some()), "ip link set p1 down", "ip link set p2 down", "ip link set p3 down", "ip link set p4 down")}},
	}
}
