// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// edgeRules are rules at the edges of what the kernel does: where an order, a default or an absence is easily taken for granted.
func edgeRules() []hand {
	web := join(some(), services())
	withTOS := join(web, marked(), udp(0, h0, "10.5.1.1", lab.L3(1, 0x10), lab.FixIPChecksum()), udp(0, h0, "10.5.2.1", lab.L3(1, 0x10), lab.FixIPChecksum()), udp(0, h0, "10.5.2.1"))
	var out []hand
	add := func(name, why string, packets []Packet, reasons []string, do ...string) {
		out = append(out, hand{name: "rules edge " + name, why: why, loads: true, slow: Excuse{Rules: true}, reasons: reasons,
			steps: []handStep{step(packets, append(to5(gw1, gw1v6), do...)...)}})
	}
	add("overlapping map", "elements of a concatenation that cross: what was added first counts", web, []string{drop, "fast"}, nftFile(
		"add table ip t", "add map ip t m { type ipv4_addr . inet_service : verdict; flags interval; }", "add map ip t n { type ipv4_addr . inet_service : verdict; flags interval; }",
		"add element ip t m { 10.5.0.0/16 . 80 : drop }", "add element ip t m { 10.5.1.0/24 . 0-1999 : accept }",
		"add element ip t n { 10.5.1.0/24 . 0-1999 : accept }", "add element ip t n { 10.5.0.0/16 . 53 : drop }",
		"add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f ip daddr . tcp dport vmap @m", "add rule ip t f ip daddr . udp dport vmap @n", "add rule ip t f counter"))
	add("grown set", "a set that rules fill without a word about it in its flags", join(web, web), []string{reach, "fast"}, "nft add table ip t", "nft add set ip t s { type ipv4_addr; }", nftFile(
		"add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f ip saddr @s tcp dport 80 counter drop", "add rule ip t f udp dport 53 add @s { ip saddr } counter", "add rule ip t f counter"))
	grown := &out[len(out)-1] // it is left as it has become
	grown.slow.IP4 = true     // the model of what must be fast takes it for what was read
	grown.steps = append(grown.steps, atOnce(web, "nft delete rule ip t f handle 4"), step(web), atOnce(web, "nft add rule ip t f udp dport 2000 delete @s { ip saddr }"), step(web))
	short := join(web, shortMessages())
	for _, tool := range []string{"iptables-legacy", "iptables-nft"} {
		add("short headers "+tool, "a match of iptables drops what has no whole transport header, also where it would not match", short, []string{"too-short", drop, "fast"},
			forwardChain(tool, "ACCEPT", "-p udp -m udp --dport 80 -j DROP", "-p tcp -m tcp --sport 7777 -j DROP", "-p icmp -m icmp --icmp-type 13 -j DROP"),
			forwardChain(strings.Replace(tool, "ip", "ip6", 1), "ACCEPT", "-p udp -m udp --sport 7777 -j DROP", "-p tcp -m tcp --dport 80 -j DROP", "-p ipv6-icmp -m icmp6 --icmpv6-type 130 -j DROP"))
	}
	add("short headers nft", "what nf_tables cannot read does not match, either way", short, []string{"too-short", drop, "fast"}, nftFile("add table inet t", "add chain inet t f { type filter hook forward priority 0; }",
		"add rule inet t f udp dport 80 counter drop", "add rule inet t f udp dport != 2000 counter", "add rule inet t f tcp sport != 1000 counter drop", "add rule inet t f icmp type != echo-request counter drop", "add rule inet t f counter"))
	out = append(out, rulesThatWrite()...)
	// Where the sender's route leads is looked up as Linux does; only packets for which it leads back are fast, and only while no prefix has several routes.
	spoofed := join(web, back(), udp(2, h0v6, "2001:db8:5::1"), udp(0, "2001:db8:2::7", "2001:db8:5::1"), udp(0, "2001:db8:77::1", "2001:db8:5::1"), udp(1, "2001:db8:5::1", h0v6))
	for _, c := range []struct{ name, rules string }{
		{"nft", nftFile("add table inet t", "add chain inet t p { type filter hook prerouting priority 10; }", "add chain inet t f { type filter hook forward priority 0; }",
			"add rule inet t p meta nfproto ipv6 fib saddr . mark . iif oif missing counter drop", "add rule inet t p counter", "add rule inet t f counter", "add rule inet t f tcp dport 80 counter drop")},
		{"nft forward", nftFile("add table ip6 t", "add chain ip6 t f { type filter hook forward priority 10; }", "add rule ip6 t f fib saddr . mark . iif oif missing counter drop", "add rule ip6 t f tcp dport 80 counter drop", "add rule ip6 t f fib saddr oif exists counter")},
		{"legacy", restore("ip6tables-legacy", "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP", "-A PREROUTING -m rpfilter --validmark --invert -j DROP", "-A PREROUTING")},
		{"loose", restore("ip6tables-nft", "mangle", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -m rpfilter --loose --invert -j DROP", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP")},
	} {
		add("route back "+c.name, "packets whose sender's route leads elsewhere, or nowhere, are dropped by rules", spoofed, []string{drop, reach, "fast"}, c.rules)
		h := &out[len(out)-1]
		h.steps = append(h.steps, atOnce(spoofed, "ip -6 route add 2001:db8:77::/48 via "+addr6(0, 0, 0x10).String()), atOnce(spoofed, "ip -6 route add 2001:db8:77::/48 via "+addr6(2, 0, 0x10).String()+" metric 5"),
			step(spoofed), atOnce(spoofed, "ip -6 route del 2001:db8:77::/48 metric 5"), atOnce(spoofed, "ip -6 rule add pref 7 from 2001:db8:77::/48 lookup main"), step(spoofed))
	}
	add("aging set", "what is found in elements that expire is Linux's, whether they are there or not", web, []string{drop, reach, "fast"}, nftFile("add table ip t", "add set ip t s { type ipv4_addr; flags interval, timeout; }", "add set ip t c { type ipv4_addr . inet_service; flags interval, timeout; }",
		"add map ip t m { type inet_service : verdict; flags timeout; }", "add element ip t s { 172.20.0.0/16, 10.1.0.0/16 timeout 1h, 10.0.0.0-10.0.0.9, 10.3.4.5 timeout 3s }", "add element ip t c { 10.5.0.0/16 . 80, 10.5.1.0/24 . 53 timeout 3s }", "add element ip t m { 2000 : drop, 53 timeout 3s : drop }",
		"add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f ip saddr @s counter drop", "add rule ip t f ip daddr . tcp dport @c counter drop", "add rule ip t f ip daddr != @s ip daddr 10.2.0.0/16 counter", "add rule ip t f udp dport vmap @m", "add rule ip t f counter"))
	aging := &out[len(out)-1]
	aging.slow.IP4 = true // the model of what must be fast takes them for what was read
	aging.steps = append(aging.steps, step(web, "sleep 3200ms"), atOnce(web, "nft add element ip t s { 10.3.4.5 timeout 1s }"), step(web, "sleep 1200ms"), atOnce(web, "nft add element ip t s { 10.3.4.5 }"))
	add("aging pair", "a packet that two sets of one rule have, each in elements that expire and nothing else", web, []string{reach}, nftFile("add table ip t", "add set ip t a { type ipv4_addr; flags interval, timeout; }", "add set ip t b { type ipv4_addr; flags interval, timeout; }",
		"add element ip t a { 10.0.0.0/16 timeout 1h }", "add element ip t b { 10.5.0.0/16 timeout 1h }",
		"add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f ip saddr @a ip daddr @b counter drop", "add rule ip t f counter"))
	out[len(out)-1].slow.IP4 = true // as above
	add("device groups", "bits beyond the mask", web, []string{drop, "fast"}, "ip link set p0 group 5", forwardChain("iptables-legacy", "ACCEPT", "-m devgroup --src-group 0x7/0x1 -p udp -j DROP", "-m devgroup ! --src-group 0x6/0x1 -p tcp -j DROP"),
		forwardChain("ip6tables-nft", "ACCEPT", "-m devgroup --src-group 0x7/0x1 -p udp -j DROP"))
	add("devices told", "a device of which rules say nothing gets a group that they ask for, and leaves it, and so does one that packets never meet", web, []string{drop, "fast"}, nftFile("add table inet t",
		"add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f meta iifgroup 5 udp dport 53 counter drop", "add rule inet t f meta oifgroup 5 tcp dport 80 counter drop", "add rule inet t f iifname \"late*\" counter drop", "add rule inet t f counter"))
	told := &out[len(out)-1]
	told.steps = append(told.steps, step(web, "ip link set p0 group 5"), step(web, "ip link add late0 type veth peer name other0", "ip link set other0 group 5"), step(web, "ip link set p0 group 0", "ip link set p1 group 5"),
		step(web, "ip link del late0"), step(web, "ip link set p1 group 0"))
	add("types by tos", "the type of a receiver is asked without the packet's TOS", withTOS, []string{reach, "fast"}, "ip route add local 10.5.1.0/24 dev lo", "ip route add 10.5.1.0/24 tos 0x10 via 10.0.2.10 table local", "ip route add local 10.5.0.0/18 dev lo", "ip route add 10.5.2.0/24 tos 0x10 via 10.0.2.10",
		forwardChain("iptables-legacy", "ACCEPT", "-p udp -m addrtype --dst-type LOCAL -j DROP"))
	out[len(out)-1].slow.IP4 = true // and a receiver for one of type unicast
	add("equal priorities", "what was registered last is called first: a chain of nft beside a legacy table, and two of one table", web, []string{drop, "fast"},
		nftFile("add table ip t", "add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f tcp dport 80 counter drop", "add table inet t", "add chain inet t f { type filter hook forward priority 5; }", "add chain inet t g { type filter hook forward priority 5; }",
			"add rule inet t f udp dport 53 counter drop", "add rule inet t g udp dport 53 counter drop"),
		forwardChain("iptables-legacy", "ACCEPT", "-p tcp -m tcp --dport 80 -j DROP", "-p udp -j ACCEPT"))
	equal := &out[len(out)-1]
	for _, do := range []string{"nft add table ip t { flags dormant; }", "nft add table ip t", "nft add table inet t { flags dormant; }", "nft add table inet t", "nft add chain inet t h { type filter hook forward priority 5; policy drop; }", "nft delete chain inet t h"} {
		equal.steps = append(equal.steps, atOnce(web, do))
	}
	add("never", "values beyond the mask, which no packet has", web, []string{"fast"}, nftFile("add table inet t", "add chain inet t f { type filter hook forward priority 1; }", "add rule inet t f meta mark & 0x1 == 0x5 counter drop", "add rule inet t f meta mark & 0x1 != 0x5 counter"),
		forwardChain("iptables-nft", "ACCEPT", "-m mark --mark 0x5/0x1 -j DROP", "-m mark ! --mark 0x5/0x1"), forwardChain("ip6tables-legacy", "ACCEPT", "-m mark --mark 0x5/0x1 -j DROP", "-m mark ! --mark 0x5/0x1"))
	hosts := join(web, udp(0, h0v6, "2001:db8:1::1234:5678:9abc:def0"), udp(0, h0v6, "2001:db8:2:7:1234:5678:9abc:def0"), udp(0, h0v6, "2001:db8:2:7:1234:5678:9abc:def1"), udp(0, "2001:db8:3:8::42", "2001:db8:2::9"), udp(0, "2001:db8:3:9::42", "2001:db8:2::9"))
	add("hosts of any prefix", "the lower half of an address, as rules for hosts have it whose prefix changes, bits in the middle of one, and of two parts either that differs", hosts, []string{drop, "fast"}, nftFile("add table inet t",
		"add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f ip6 daddr & ::ffff:ffff:ffff:ffff == ::1234:5678:9abc:def0 udp dport 2000 counter drop", "add rule inet t f ip6 daddr & ::ffff:ffff:ffff:ffff != ::1234:5678:9abc:def1 counter",
		"add rule inet t f ip6 saddr & 0:0:0:ffff::ff == 0:0:0:8::42 counter", "add rule inet t f ip6 saddr & 0:0:0:ffff::ff != 0:0:0:8::42 counter"),
		forwardChain("ip6tables-legacy", "ACCEPT", "-d ::1234:5678:9abc:def1/::ffff:ffff:ffff:ffff -j DROP", "! -s ::42/::ffff -p udp", "-s 0:0:0:8::/0:0:0:f::"))
	add("chains", "gotos past the end, returns at the top, seventeen calls", web, []string{drop, "fast"}, nftFile("add table inet t", "add chain inet t a", "add chain inet t b", "add chain inet t c", "add chain inet t f { type filter hook forward priority 0; policy drop; }", "add chain inet t late { type filter hook forward priority 10; }",
		"add rule inet t a udp dport 53 counter goto b", "add rule inet t a counter return", "add rule inet t b counter goto c", "add rule inet t b counter drop", "add rule inet t c meta l4proto udp counter return", "add rule inet t c counter accept",
		"add rule inet t f tcp dport 80 counter goto a", "add rule inet t f udp dport 53 jump a", "add rule inet t f udp dport vmap { 53 : return, 80 : goto c, 2000 : jump b, * : continue }", "add rule inet t f counter accept", "add rule inet t late counter"),
		deep("iptables-legacy", 20), deep("ip6tables-nft", 14))
	return out
}

// deep is a rule that drops behind so many calls; the chain before each returns to a rule that counts.
func deep(tool string, n int) string {
	chains, rules := ":FORWARD ACCEPT [0:0]", []string{"-A FORWARD -p tcp -m tcp --dport 80 -j c1", "-A FORWARD -p tcp"}
	for i := 1; i <= n; i++ {
		chains += fmt.Sprintf("; :c%d - [0:0]", i)
		if i < n {
			rules = append(rules, fmt.Sprintf("-A c%d -p tcp -m tcp --sport 53 -j RETURN", i), fmt.Sprintf("-A c%d -j c%d", i, i+1))
		}
	}
	return restore(tool, "filter", chains, append(rules, fmt.Sprintf("-A c%d -p tcp -m tcp --sport 1000 -j DROP", n))...)
}

// rulesThatWrite are rules that write down which packets they met, where no rule ever asks for it: only what is kept tells (kept.go).
func rulesThatWrite() []hand {
	web := join(some(), services())
	write := func(dialect string, change, begin []string) hand {
		return hand{name: "rules edge written down " + dialect, why: "what packets leave in sets, lists and quotas, which nobody asks for", loads: true, slow: Excuse{Rules: true}, reasons: []string{reach, "fast"},
			steps: []handStep{step(web, append(to5(gw1, gw1v6), begin...)...), step(web), atOnce(web, change...), step(web)}}
	}
	return []hand{
		write("nft", []string{"nft flush set ip t s", "nft add element ip t full { 10.5.1.1 }", "nft reset quota ip t q"}, []string{nftFile("add table ip t", "add set ip t s { type ipv4_addr . inet_service; flags dynamic, timeout; timeout 1h; }", "add set ip t u { type ipv4_addr; flags dynamic, timeout; }",
			"add set ip t full { type ipv4_addr; flags dynamic; elements = { 10.5.1.1, 10.5.1.2 }; }", "add map ip t m { type ipv4_addr : mark; flags dynamic; }", "add quota ip t q { over 100 mbytes }", "add chain ip t f { type filter hook forward priority 0; }",
			"add rule ip t f udp dport 53 add @s { ip saddr . udp sport }", "add rule ip t f tcp dport 80 update @u { ip daddr timeout 10m }", "add rule ip t f udp dport 80 delete @full { ip daddr }", "add rule ip t f udp sport 53 add @m { ip saddr : 7 }",
			"add rule ip t f tcp dport 53 quota name q drop", "add rule ip t f tcp dport 2000 tcp sport 53 quota over 100 mbytes drop", "add rule ip t f counter")}),
		write("iptables", []string{"ipset flush g", "ipset add full 10.5.1.1"}, []string{"ipset create g hash:ip,port timeout 600", "ipset create full hash:ip", "ipset add full 10.5.1.1", "ipset create late hash:net family inet6",
			forwardChain("iptables-legacy", "ACCEPT", "-p udp -m udp --dport 53 -m recent --set --name seen", "-p tcp -m tcp --dport 53 -m recent --name seen --update --rdest -j DROP", "-p tcp -m tcp --dport 80 -j SET --add-set g src,src", "-p udp -m udp --dport 80 -j SET --del-set full dst", "-p udp"),
			forwardChain("ip6tables-nft", "ACCEPT", "-p tcp -m tcp --dport 80 -j SET --add-set late dst", "-p udp")}),
	}
}
