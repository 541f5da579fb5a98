// SPDX-License-Identifier: Apache-2.0

package diff

import "slices"

// firstTraps ask for what a connection's first packet had, as it came to the router: with a translated connection that is the only trace of the address and port that a client asked for, so
// Docker's manual tells to filter by it.
func firstTraps() (out []hand) {
	both := Excuse{IP4: true, IP6: true}
	add := func(name string, c talk, do []string, drops string) {
		untracked := join(some(), services())
		out = append(out, hand{name: "nat first packet " + name, why: "what the first packet of a connection had is what rules go by in both directions, before its translation and behind it", slow: both, loads: true, reasons: []string{"fast", drop},
			steps: slices.Concat(c.begins(do...), []handStep{step(c.data(5, 141, 501)), step(c.says(true, "PA", 501, 146, "back")), step(untracked), atOnce(c.data(5, 146, 505), drops), step(c.data(3, 146, 505)), step(c.says(true, "PA", 505, 146, "back"))})})
	}
	for _, tool := range []string{"legacy", "nft"} {
		rules := func(client, network, first, port, lies string) []string {
			return []string{"-m conntrack --ctorigdst " + first + " --ctorigdstport " + port + " --ctdir ORIGINAL", "-p tcp -m conntrack --ctorigdst " + first + " --ctorigdstport " + port, "-p tcp -m conntrack --ctstate ESTABLISHED --ctproto tcp --ctorigsrc " + client, "-m conntrack --ctproto udp -j DROP",
				"-m conntrack ! --ctproto tcp -j DROP", "-m conntrack ! --ctorigsrc " + network + " -j DROP", "-m conntrack --ctorigsrc " + network + " --ctorigsrcport 1000:2000 --ctstatus CONFIRMED", "-m conntrack ! --ctorigdst " + lies + " ! --ctorigdstport 80", "-m conntrack ! --ctorigsrcport 999",
				"-m conntrack --ctorigdst " + lies + " -j DROP", "-m conntrack --ctorigdstport 80 -j DROP", "-m conntrack --ctorigdst " + lies + "/0 --ctdir REPLY", "-j RETURN"}
		}
		add("iptables-"+tool, both4, []string{doesBoth4, forwardChain("iptables-"+tool, "ACCEPT", rules(h0, "10.0.0.0/24", "10.0.0.1", "8080", "10.1.2.3")...)}, "iptables-"+tool+" -I FORWARD -m conntrack --ctorigdstport 8000:8080 -j DROP")
		add("ip6tables-"+tool, both6, []string{doesBoth6, forwardChain("ip6tables-"+tool, "ACCEPT", rules(h0v6, "fd00::1:0:0:0:0/64", "fd00::1:0:0:0:1", "8080", "2001:db8:1::9")...)}, "ip6tables-"+tool+" -I FORWARD -m conntrack ! --ctorigdst 2001:db8::/32 -j DROP")
	}
	table := func(family string, rules ...string) string {
		return nftFile(append([]string{"add table " + family + " t", "add set " + family + " t ports { type inet_service; elements = { 8080, 81 }; }", "add chain " + family + " t x", "add rule " + family + " t x counter", "add chain " + family + " t p { type filter hook prerouting priority -300; }", "add chain " + family + " t m { type filter hook prerouting priority mangle; }",
			"add chain " + family + " t f { type filter hook forward priority 0; }", "add chain " + family + " t o { type filter hook postrouting priority 0; }", "add rule " + family + " t p udp sport 53 notrack"}, prefixed("add rule "+family+" t ", rules)...)...)
	}
	add("nft", both4, []string{doesBoth4, table("ip", "p meta l4proto tcp ct original proto-dst 8080 counter drop", "m meta l4proto tcp ct original proto-dst @ports counter", "m ct original saddr 10.0.0.0/24 counter", "m ct original saddr != 10.0.0.0/24 counter drop", "m meta l4proto tcp ct original proto-src 1000-1001 counter", "m meta l4proto tcp ct original proto-dst != { 8080, 53, 2000, 80 } counter drop",
		"f ct original daddr 10.1.2.3 counter drop", "f ct original daddr & 255.255.0.255 == 10.0.0.1 counter", "f ct protocol tcp counter", "f ct protocol != tcp counter", "f meta l4proto udp ct original proto-dst != 5 counter", "o ct original ip saddr 10.0.0.10 counter")}, "nft insert rule ip t f meta l4proto tcp ct original proto-dst @ports counter drop")
	add("nft maps", both4, []string{doesBoth4, table("ip", "f meta l4proto tcp ct original ip daddr . ct original proto-dst { 10.0.0.1 . 8080, 10.1.2.3 . 80 } counter", "f meta l4proto tcp ct original proto-dst vmap { 8080 : jump x, 53 : drop }", "f meta l4proto tcp ct original proto-dst < 9000 counter", "f ct original ip daddr vmap { 10.0.0.0/24 : jump x, 10.2.0.0/16 : drop }", "f tcp flags . ct original proto-src != { ack . 1, syn . 2 } counter")}, "nft insert rule ip t m meta l4proto tcp ct original proto-dst @ports counter drop")
	add("nft inet", both4, []string{doesBoth4, table("inet", "m ct original ip daddr 10.0.0.1 counter", "m ct original ip6 daddr != fd00::9 counter", "f ct original ip saddr . ct original ip daddr { 10.0.0.10 . 10.0.0.1 } counter", "f ct original ip6 saddr . ct original ip6 daddr { fd00::9 . fd00::8 } counter", "f ct original ip daddr != 10.1.0.0/16 ct direction reply counter")}, "nft insert rule inet t m ct original ip daddr 10.0.0.0/30 counter drop")
	add("nft ip6", both6, []string{doesBoth6, table("inet", "m ct original ip6 daddr fd00::1:0:0:0:1 counter", "m ct original ip6 daddr != fd00::1:0:0:0:1 counter drop", "m ct original ip daddr != 10.0.0.1 counter drop", "f ct original ip6 saddr fd00::/16 counter", "f ct original ip6 saddr != 2001:db8::/32 counter", "f ct original ip6 daddr 2001:db8:1::9 counter drop",
		"f ct original ip6 saddr & ::ffff:ffff:ffff:ffff == ::10 counter", "f meta l4proto tcp ct original ip6 daddr . ct original proto-dst { fd00::1:0:0:0:1 . 8080, 2001:db8:1::9 . 80 } counter", "f ct original ip6 daddr vmap { fd00::1:0:0:0:1 : jump x, 2001:db8:1::9 : drop }")}, "nft insert rule inet t o ct original ip6 daddr fd00::1:0:0:0:0/120 counter drop")
	return out
}
