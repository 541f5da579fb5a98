// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
)

// manyRules bound how many connections there may be at a time, by connlimit or ct count: which only Linux knows, for it counts those that there are in its table with each packet that asks. A host's
// first connections pass, a further one does not until one of them has ended; packets of a connection that is counted pass the rule too, but no longer where the bound goes below.
func manyRules() []hand {
	// Three hosts of two families call, each from several ports; the third call of one is too many.
	calls := func(ports ...uint16) (out []Packet) {
		for _, pair := range [][2]string{{h0, h1}, {"10.0.0.11", h1}, {h0v6, h1v6}} {
			for _, p := range ports {
				f := flowOf(0, pair[0], pair[1])
				f.SrcPort, f.DstPort = p, 80
				out = append(out, in(0, f.TCP("S", uint32(p), ""))[0])
			}
		}
		return out
	}
	beside := join(some(), back())
	track := nftFile("add table inet k", "add chain inet k f { type filter hook forward priority 5; }", "add rule inet k f ct state established counter", "add rule inet k f ct state new counter")
	counted := func(name, why string, rules ...string) hand {
		return hand{name: "conntrack many " + name, why: why, loads: true, slow: Excuse{IP4: true, IP6: true}, reasons: []string{"conntrack-new"}, steps: []handStep{
			step(join(beside, calls(1, 2)), append(append(to5(gw1, gw1v6), track), rules...)...), step(join(calls(3), calls(1), beside)), step(join(calls(4, 2), beside))}}
	}
	out := []hand{
		counted("by host", "connlimit counts the connections of each host", forwardChain("iptables-legacy", "ACCEPT", "-p tcp -m tcp --dport 80 -m connlimit --connlimit-above 2 --connlimit-mask 32 --connlimit-saddr -j DROP", "-p tcp"), forwardChain("ip6tables-legacy", "ACCEPT", "-p tcp -m tcp --dport 80 -m connlimit --connlimit-above 2 --connlimit-mask 128 --connlimit-saddr -j DROP", "-p tcp")),
		counted("by network", "and those of a network, or to one receiver, in iptables over nft", forwardChain("iptables-nft", "ACCEPT", "-p tcp -m tcp --dport 80 -m connlimit --connlimit-above 5 --connlimit-mask 24 --connlimit-saddr -j DROP", "-p tcp"), forwardChain("ip6tables-nft", "ACCEPT", "-p tcp -m tcp --dport 80 -m connlimit ! --connlimit-above 2 --connlimit-mask 64 --connlimit-daddr -j ACCEPT", "-p tcp -j DROP")),
		counted("in all", "ct count counts what comes to the rule, or elements of a set each for themselves", nftFile("add table inet t", "add set inet t s { type ipv4_addr; flags dynamic; size 128; }", "add set inet t s6 { type ipv6_addr; flags dynamic; size 128; }", "add chain inet t f { type filter hook forward priority 0; }",
			"add rule inet t f tcp dport 80 ip saddr 10.0.0.0/24 add @s { ip saddr ct count over 2 } counter drop", "add rule inet t f tcp dport 80 add @s6 { ip6 saddr ct count over 1 } counter drop", "add rule inet t f tcp dport 80 ct count over 6 counter drop", "add rule inet t f udp dport 2000 ct count 1 counter", "add rule inet t f counter")),
	}
	// What is established is asked again with each packet: a bound that goes below the number of connections ends them all, from the next packet on.
	c := talk{client: h0, server: "10.1.2.3", port: 1000}
	bound := func(n int) string {
		return fmt.Sprintf("iptables-legacy -R FORWARD 1 -p tcp -m connlimit --connlimit-above %d --connlimit-mask 32 -j DROP", n)
	}
	established := hand{name: "conntrack many established", why: "packets of a counted connection meet the bound as well: it is Linux's while such a rule is before them", loads: true, slow: Excuse{IP4: true, IP6: true}, reasons: []string{"fast", "netfilter-rule"},
		steps: slices.Concat(c.begins(forwardChain("iptables-legacy", "ACCEPT", "-p tcp -m connlimit --connlimit-above 5 --connlimit-mask 32 -j DROP", "-m conntrack --ctstate ESTABLISHED -j ACCEPT"), natTable("ip", "counter", "counter")),
			[]handStep{step(c.data(5, 141, 501)), step(join(c.data(5, 146, 501), calls(11)), bound(1)), step(c.data(5, 151, 501), "iptables-legacy -D FORWARD 1"), step(c.data(5, 156, 501)),
				atOnce(c.data(5, 161, 501), "iptables-legacy -I FORWARD -p tcp -m connlimit --connlimit-above 0 --connlimit-mask 32 -j DROP"), step(c.data(5, 161, 501), "iptables-legacy -D FORWARD 1"),
				step(c.data(5, 166, 501), "nft table ip t { chain f { type filter hook forward priority 0; tcp dport 80 ct count over 20 counter drop; }; }"), step(c.data(5, 171, 501), "nft flush chain ip t f"), step(c.data(5, 176, 501))})}
	return append(out, established)
}
