// SPDX-License-Identifier: Apache-2.0

package diff

// catchAllRules are sets and maps of nf_tables with an element for everything (*), which counts where no other is found: beside intervals, in maps of verdicts and of marks,
// behind concatenations, and beside elements that expire, whose place it takes when they have.
func catchAllRules() []hand {
	web := join(some(), services(), back())
	var out []hand
	add := func(name, why string, reasons []string, lines []string, more ...handStep) {
		out = append(out, hand{name: "rules catch-all " + name, why: why, loads: true, slow: Excuse{Rules: true}, reasons: reasons,
			steps: append([]handStep{step(web, append(to5(gw1, gw1v6), nftFile(lines...))...)}, more...)})
	}
	fast := []string{drop, "fast"}
	// What nft 1.0 does: it adds one for everything to intervals where it makes the set, and takes it away with all elements.
	m, n, p, o := "map inet t m { type ipv4_addr : verdict; flags interval; elements = { ", "map inet t n { type inet_service : verdict; flags interval; elements = { ", "set inet t p { type inet_service; flags interval; elements = { ", " }; }"
	ranges := "10.1.0.0/16 : accept, 10.5.0.0-10.5.0.255 : drop, 10.5.1.0/28 : jump u, 10.2.9.0/24 : goto v"
	add("intervals", "in sets and verdict maps of intervals, between them, below the first and above the last", fast, []string{
		"add table inet t", "add chain inet t u", "add chain inet t v", "add set inet t a { type ipv4_addr; flags interval; elements = { 10.3.4.5, * }; }", "add " + p + "*" + o, "add " + m + ranges + ", * : continue" + o,
		"add " + n + "0-52 : drop, 54-79 : drop, 81-1999 : drop, 2001-65535 : drop, * : jump u" + o,
		"add map inet t s { type ipv6_addr : verdict; flags interval; elements = { 2001:db8:2::/48 : accept, * : drop }; }", "add map inet t o { type mark : verdict; flags interval; elements = { 1-4294967295 : drop, * : jump u }; }",
		"add chain inet t f { type filter hook forward priority 0; policy drop; }",
		"add rule inet t u counter", "add rule inet t u udp dport 53 counter drop", "add rule inet t v counter", "add rule inet t v meta l4proto tcp counter drop", "add rule inet t v counter accept",
		"add rule inet t f ip saddr @a counter", "add rule inet t f udp sport @p counter", "add rule inet t f meta mark vmap @o", "add rule inet t f udp dport vmap @n", "add rule inet t f ip daddr vmap @m", "add rule inet t f ip6 daddr vmap @s", "add rule inet t f counter", "add rule inet t f tcp dport 80 drop", "add rule inet t f counter accept"},
		atOnce(web, nftFile("flush map inet t m", "add "+m+ranges+o)), step(web), atOnce(web, "nft add "+m+"* : drop"+o), step(web), atOnce(web, "nft flush map inet t n", "nft flush set inet t p", "nft flush map inet t s"), step(web))
	add("concatenations", "in sets and maps of several fields, with intervals in some and without; a packet that lacks a field is in none", fast, []string{
		"add table inet t", "add chain inet t u", "add set inet t a { type ipv4_addr . inet_service; flags interval; elements = { 10.5.0.0/24 . 80, * }; }",
		"add map inet t m { type ipv4_addr . inet_service : verdict; flags interval; elements = { 10.5.0.0/16 . 50-60 : drop, 10.5.1.0/24 . 0-1999 : accept, 10.1.0.0/16 . 2000 : jump u, * : drop }; }",
		"add map inet t n { type ipv4_addr . ipv4_addr : verdict; elements = { 10.0.0.10 . 10.5.1.1 : accept, 10.3.4.5 . 10.1.7.7 : drop, * : jump u }; }",
		"add map inet t s { type ifname . ipv6_addr . inet_proto : verdict; flags interval; elements = { p0 . 2001:db8:5::/48 . udp : accept, p1 . ::/0 . udp : drop, p0 . fd00::/16 . tcp : jump u, * : continue }; }",
		"add chain inet t f { type filter hook forward priority 0; }", "add chain inet t g { type filter hook forward priority 5; }", "add chain inet t h { type filter hook forward priority 10; }",
		"add rule inet t u counter", "add rule inet t u meta l4proto udp counter drop",
		"add rule inet t f ip daddr . tcp dport @a counter", "add rule inet t f iifname . ip6 daddr . meta l4proto vmap @s", "add rule inet t f ip daddr . udp dport vmap @m", "add rule inet t f counter",
		"add rule inet t g meta l4proto tcp ip saddr . ip daddr vmap @n", "add rule inet t g counter", "add rule inet t h ip daddr . tcp dport vmap @m", "add rule inet t h counter"},
		atOnce(web, "nft delete element inet t m { * }"), step(web), atOnce(web, "nft add element inet t m { * : jump u }", "nft delete element inet t s { * }"), step(web), atOnce(web, "nft add element inet t s { * : drop }"), step(web))
	add("marks", "of a map of marks, in which one for everything is Linux's", []string{reach, "fast"}, []string{
		"add table ip t", "add map ip t m { type ipv4_addr : mark; flags interval; elements = { 10.5.0.0/16 : 5, 10.1.0.0/16 : 6, * : 7 }; }", "add chain ip t f { type filter hook forward priority 0; }",
		"add rule ip t f udp dport 53 meta mark set ip daddr map @m counter", "add rule ip t f meta mark 5 counter drop", "add rule ip t f meta mark 7 counter"},
		atOnce(web, nftFile("flush map ip t m", "add map ip t m { type ipv4_addr : mark; flags interval; elements = { 10.5.0.0/16 : 5 }; }")), step(web), atOnce(web, "nft add map ip t m { type ipv4_addr : mark; flags interval; elements = { * : 5 }; }"), step(web))
	out[len(out)-1].slow.IP4 = true // the model of what must be fast does not know it
	add("aging", "beside elements that expire: in their place once they have, and gone itself when its own time has come", []string{reach, "fast"}, []string{
		"add table ip t", "add map ip t m { type ipv4_addr : verdict; flags interval, timeout; elements = { 10.5.0.0/16 timeout 3s : accept, 10.1.0.0/16 timeout 1h : drop, 10.2.0.0/16 : continue, * : drop }; }",
		"add set ip t s { type inet_service; flags interval, timeout; elements = { 53 timeout 3s, 80-90, * timeout 3s }; }", "add map ip t c { type ipv4_addr . inet_service : verdict; flags interval, timeout; elements = { 10.5.0.0/16 . 80 timeout 3s : drop, * : accept }; }",
		"add chain ip t f { type filter hook forward priority 0; }", "add chain ip t g { type filter hook forward priority 5; }", "add rule ip t f udp sport @s counter", "add rule ip t f meta l4proto udp ip daddr vmap @m", "add rule ip t f counter", "add rule ip t g ip daddr . tcp dport vmap @c", "add rule ip t g counter"},
		step(web, "sleep 3200ms"), atOnce(web, "nft add set ip t s { type inet_service; flags interval, timeout; elements = { * timeout 1h }; }", "nft add element ip t c { 10.5.0.0/16 . 80 timeout 1s : drop }"), step(web, "sleep 1200ms"), atOnce(web, "nft flush map ip t m", "nft delete element ip t c { * }"), step(web))
	out[len(out)-1].slow.IP4 = true // as above
	add("negated", "whom a negated lookup lets pass differs from kernel to kernel, so it is Linux's", []string{reach, "fast"}, []string{
		"add table inet t", "add set inet t s { type inet_service; flags interval; elements = { 80-90, * }; }", "add set inet t c { type ipv4_addr . inet_service; flags interval; elements = { 10.5.0.0/16 . 53, * }; }",
		"add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f tcp dport != @s counter drop", "add rule inet t f ip daddr . udp dport != @c counter drop", "add rule inet t f counter"},
		atOnce(web, "nft flush set inet t s", "nft delete element inet t c { * }"), step(web))
	add("frozen", "one that comes and goes while shunt's process is stopped", []string{drop, "fast", "stale"}, []string{
		"add table inet t", "add map inet t m { type ipv4_addr . inet_service : verdict; flags interval; elements = { 10.5.0.0/16 . 53 : drop }; }", "add map inet t n { type ipv6_addr : verdict; flags interval; elements = { 2001:db8:5::/48 : accept }; }",
		"add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f ip daddr . udp dport vmap @m", "add rule inet t f ip6 daddr vmap @n", "add rule inet t f counter"},
		frozen(web, "nft add element inet t m { * : drop }"), step(web), frozen(web, "nft add map inet t n { type ipv6_addr : verdict; flags interval; elements = { * : drop }; }"), step(web), frozen(web, "nft delete element inet t m { * }", "nft flush map inet t n"), step(web))
	out[len(out)-1].slow.IP4, out[len(out)-1].slow.IP6 = true, true // while it is stopped
	return out
}
