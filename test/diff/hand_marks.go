// SPDX-License-Identifier: Apache-2.0

package diff

// markTraps are about marks that rules set before the route and policy rules ask for, as where a router has several uplinks.
func markTraps() []hand {
	const uplink, uplink6 = "ip route add default via 10.0.2.10 table 100", "ip route add default via fd00::3:0:0:0:10 table 100"
	asks := func(sel string) []string {
		return []string{uplink, uplink6, "ip rule add pref 100 " + sel + " lookup 100", "ip -6 rule add pref 100 " + sel + " lookup 100"}
	}
	marked := func(name, why, sel string, rules []string, steps ...handStep) hand {
		return hand{name: "marks " + name, why: why, loads: true, slow: Excuse{Rules: true}, reasons: []string{"fast"},
			steps: append([]handStep{step(join(services(), some(), tosTo5()), append(append(to5(gw1, gw1v6), asks(sel)...), rules...)...)}, steps...)}
	}
	tables := func(tool string) string {
		return restore(tool, "mangle", ":PREROUTING ACCEPT [0:0]; :uplink - [0:0]", "-A PREROUTING -p tcp -m tcp --dport 80 -j uplink", "-A PREROUTING -p udp -m udp --sport 1000 -j MARK --set-xmark 0x2/0xf",
			"-A uplink -m mark ! --mark 0x0/0xf -j RETURN", "-A uplink -j MARK --set-xmark 0x11/0xff")
	}
	byMap := nftFile("add table inet m", "add map inet m ways { type inet_service : mark ; }", "add element inet m ways { 80 : 1, 53 : 2 }", "add chain inet m p { type filter hook prerouting priority mangle; }",
		"add rule inet m p meta l4proto { tcp, udp } meta mark set th dport map @ways", "add rule inet m p ip daddr 10.5.1.1 udp dport 53 meta mark set meta mark | 0x100")
	mwan := restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -j CONNMARK --restore-mark", "-A PREROUTING -m mark --mark 0 -j MARK --set-mark 0x13", "-A PREROUTING -j CONNMARK --save-mark")
	return []hand{
		marked("of iptables", "the route is the mark's, and obeys with the next packet when a rule or the mark changes", "fwmark 0x1/0xf", []string{tables("iptables-legacy"), tables("ip6tables-legacy")},
			atOnce(services(), "ip rule del pref 100", "ip -6 rule del pref 100"), atOnce(services(), "ip rule add pref 90 fwmark 0x2/0xf blackhole", "ip -6 rule add pref 90 fwmark 0x2/0xf unreachable"), step(services()),
			atOnce(services(), "iptables-legacy -t mangle -F uplink", "ip rule add pref 95 fwmark 0x11 lookup 100"), step(services(), "iptables-legacy -t mangle -F")),
		marked("of iptables-nft", "the same", "not fwmark 0x1/0x1", []string{tables("iptables-nft"), tables("ip6tables-nft")}, atOnce(services(), "ip6tables-nft -t mangle -F")),
		marked("by map", "a mark from a map, and bits of it", "fwmark 0x1", []string{byMap}, step(services(), "ip rule add pref 90 fwmark 0x100/0x100 prohibit"), atOnce(services(), "nft add element inet m ways { 2000 : 1 }"), step(services(), "nft delete element inet m ways { 80 }")),
		marked("with checks of the way back", "which is looked up without the mark", "fwmark 0x1/0xf", []string{tables("iptables-legacy"), tables("ip6tables-nft"), "sysctl net.ipv4.conf.all.rp_filter=1"}, step(sources())),
		{name: "marks that count for the way back", why: "src_valid_mark: that is Linux's", slow: Excuse{IP4: true, IP6: true}, steps: []handStep{
			step(join(services(), sources()), append(append(to5(gw1, gw1v6), asks("fwmark 0x1/0xf")...), tables("iptables-legacy"), "sysctl net.ipv4.conf.all.src_valid_mark=1", "sysctl net.ipv4.conf.all.rp_filter=1")...)}},
		{name: "marks of connections", why: "each packet goes by the uplink that its connection was given", loads: true, slow: Excuse{IP4: true, IP6: true}, reasons: []string{"fast"},
			steps: append(talk4.begins(trackTable, mwan, uplink, "ip route add 10.0.0.0/24 dev p0 table 100", "ip rule add pref 100 fwmark 0x13 lookup 100"),
				step(talk4.data(10, 141, 501)), step(talk4.says(true, "PA", 501, 151, "yes")), atOnce(talk4.data(10, 151, 504), "ip rule del pref 100"), step(talk4.data(10, 161, 504)))},
	}
}
