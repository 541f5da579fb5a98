// SPDX-License-Identifier: Apache-2.0

package diff

import "strings"

// senderRules ask for the type of a sender's address, which is the table of local addresses to say. Such a sender is forwarded where it is accepted, so every packet
// of a wrong type shows.
func senderRules() []hand {
	all := join(some(), services(), sources())
	accept := []string{"sysctl net.ipv4.conf.all.accept_local=1"}
	// What becomes a sender of another type while packets flow, and what changes nothing about it.
	var changes []string
	for _, c := range []string{"ip address %s 10.3.4.5/32 dev lo", "ip address %s 10.3.4.1/24 brd 10.3.4.5 dev p2", "ip route %s local 10.3.4.0/24 dev lo", "ip route %s broadcast 10.3.4.5 dev p0 table local",
		"ip route %s unicast 10.3.4.5 via 10.0.2.10 table local", "ip route %s blackhole 10.3.4.0/24", "ip route %s prohibit 10.77.0.0/16", "ip route %s 10.77.1.0/24 via 10.0.2.10"} {
		changes = append(changes, strings.Replace(c, "%s", "add", 1), strings.Replace(c, "%s", "del", 1))
	}
	var out []hand
	add := func(name, why string, do ...string) *hand {
		out = append(out, hand{name: "rules sender " + name, why: why, loads: true, slow: Excuse{Rules: true}, reasons: []string{drop, reach, "fast"},
			steps: []handStep{step(all, append(append(to5(gw1, gw1v6), accept...), do...)...)}})
		return &out[len(out)-1]
	}
	early := nftFile("add table inet t", "add set inet t s { type ipv4_addr; flags interval; }", "add element inet t s { 10.2.0.0/16, 172.16.0.0/12 }", "add chain inet t p { type filter hook prerouting priority raw; }",
		"add rule inet t p iifname \"p0\" ip saddr @s counter drop", "add rule inet t p iifname \"p0\" fib saddr type { local, broadcast, multicast } counter drop", "add rule inet t p meta nfproto ipv4 fib saddr type unicast counter", "add rule inet t p fib saddr type local counter",
		"add rule inet t p iifname \"p1\" meta nfproto ipv4 counter drop", "add rule inet t p tcp dport 80 counter drop")
	behind := nftFile("add table ip t", "add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f fib saddr type { unicast, multicast } counter", "add rule ip t f ip saddr 10.3.4.5 fib saddr type broadcast counter drop",
		"add rule ip t f fib saddr type != unicast counter drop", "add rule ip t f tcp dport 80 counter drop", "add rule ip t f counter")
	tables := func(tool string) []string {
		return []string{restore(tool, "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -m addrtype --src-type BROADCAST,MULTICAST -j DROP", "-A PREROUTING -m addrtype ! --src-type LOCAL", "-A PREROUTING -i p1 -p udp -j DROP", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP"),
			restore(tool, "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]", "-A PREROUTING -m addrtype --src-type UNICAST", "-A FORWARD -m addrtype --src-type LOCAL -j DROP", "-A POSTROUTING -m addrtype --src-type UNICAST,LOCAL")}
	}
	add("nft early", "at prerouting, with drops before and behind", early)
	add("nft", "behind the route", behind)
	add("iptables-legacy", "at each hook", tables("iptables-legacy")...)
	add("iptables-nft", "at each hook", tables("iptables-nft")...)
	strict := add("checked", "where the reverse path is checked, too", append(tables("iptables-nft"), "sysctl net.ipv4.conf.all.rp_filter=1")...)
	strict.steps = append(strict.steps, step(all, "sysctl net.ipv4.conf.all.rp_filter=2"))
	first := add("local last", "where other tables are asked before that of local addresses nothing is known", append(tables("iptables-legacy"), "ip rule add pref 100 lookup local", "ip rule del pref 0", "ip rule add pref 50 from 10.3.0.0/16 lookup main")...)
	first.slow.IP4, first.reasons = true, []string{reach, "fast"}
	change := add("changes", "addresses and routes that make another type of a sender hold from the next packet on", early)
	halt := add("changes frozen", "the same while shunt's process is stopped", append(tables("iptables-legacy"), behind)...)
	halt.slow.IP4, change.slow.IP4 = true, true // what is between two lives, or has just changed
	for i, do := range changes {
		change.steps = append(change.steps, atOnce(all, do))
		if i < 6 { // those of the table of local addresses; each takes two seconds
			halt.steps = append(halt.steps, frozen(all, do))
		}
	}
	change.steps, halt.steps = append(change.steps, step(all)), append(halt.steps, step(all))
	late := add("begins", "rules that ask begin and end while packets flow, for which no program proved anything", "nft add table ip t", "nft add chain ip t f { type filter hook forward priority 0; }", "nft add rule ip t f tcp dport 80 counter drop")
	late.slow.IP4 = true // programs that prove it go on to
	for range 2 {
		late.steps = append(late.steps, atOnce(all, "nft insert rule ip t f fib saddr type local counter drop"), step(all), atOnce(all, "nft flush chain ip t f", "nft add rule ip t f tcp dport 80 counter drop"), step(all))
	}
	return append(append(out, senderRules6()...), typeMaps())
}

// senderRules6 are the same for IPv6, where the type is that of a whole lookup: local, anycast (an own address, or the first of a prefix on a link), or what it is refused with. What
// xt_addrtype calls unicast is a kind of address.
func senderRules6() []hand {
	const link, longer = "2001:db8:70::/64", "2001:db8:71::/120" // on p0's link
	var bases []Packet
	for _, src := range []string{"2001:db8:70::", "2001:db8:70::1", "2001:db8:71::", "2001:db8:71::7", "fd00::1:0:0:0:0", "fd00::1:0:0:0:1", "2001:db8:3::", "2001:db8:3::100", "2001:db8:99::1", "2001:db8:de::1"} {
		bases = append(bases, join(udp(0, src, "2001:db8:5::1"), udp(0, src, "2001:db8:70::1"), udp(1, src, "2001:db8:2::9"), udp(2, src, "2001:db8:70::"), udp(2, src, "2001:db8:71::"), udp(1, src, "2001:db8:2::"))...)
	}
	all := join(some(), services(), sources(), bases)
	begin := append(to5(gw1, gw1v6), "ip route add "+link+" dev p0", "ip -6 route add 2001:db8:de::/48 dev lo") // which refuses, and is called unicast
	for _, near := range []string{"2001:db8:70::", "2001:db8:70::1", "2001:db8:71::", "2001:db8:71::7"} {
		begin = append(begin, "ip neighbour replace "+near+" lladdr "+hostMAC(0, 0).String()+" dev p0 nud permanent")
	}
	var out []hand
	add := func(name, why string, do ...string) *hand {
		out = append(out, hand{name: "rules sender6 " + name, why: why, loads: true, slow: Excuse{Rules: true}, reasons: []string{drop, reach, "fast"},
			steps: []handStep{step(all, append(append([]string{}, begin...), do...)...), step(all, "ip route add "+longer+" dev p0")}})
		return &out[len(out)-1]
	}
	early := nftFile("add table inet t", "add chain inet t p { type filter hook prerouting priority raw; }", "add rule inet t p iifname \"p0\" fib saddr type { local, anycast, multicast } counter drop",
		"add rule inet t p meta nfproto ipv6 fib saddr type unicast counter", "add rule inet t p fib saddr type unreachable counter", "add rule inet t p iifname \"p1\" meta nfproto ipv6 counter drop", "add rule inet t p tcp dport 80 counter drop")
	behind := nftFile("add table ip6 t", "add chain ip6 t f { type filter hook forward priority 0; }", "add rule ip6 t f fib saddr type { unicast, unreachable } counter", "add rule ip6 t f fib saddr type blackhole counter drop", "add rule ip6 t f fib daddr type anycast counter drop",
		"add rule ip6 t f fib saddr type != unicast counter drop", "add rule ip6 t f fib daddr type != unicast counter", "add rule ip6 t f tcp dport 80 counter drop", "add rule ip6 t f counter")
	// The last chain would count reports of multicast listeners, which come when a timer says so.
	silent := nftFile("add table ip6 silent", "add chain ip6 silent o { type filter hook output priority -200; }", "add rule ip6 silent o icmpv6 type mld2-listener-report drop")
	tables := func(tool string) []string {
		return []string{silent, restore(tool, "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -m addrtype --src-type LOCAL,ANYCAST -j DROP", "-A PREROUTING -m addrtype --src-type MULTICAST,UNICAST -j DROP", "-A PREROUTING -m addrtype --src-type UNICAST,UNREACHABLE", "-A PREROUTING -m addrtype ! --src-type UNREACHABLE",
			"-A PREROUTING -i p1 -p udp -j DROP", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP"),
			restore(tool, "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]", "-A FORWARD -m addrtype --src-type LOCAL -j DROP", "-A FORWARD -m addrtype --dst-type ANYCAST -j DROP", "-A FORWARD -m addrtype --dst-type UNICAST", "-A POSTROUTING -p udp -m addrtype --src-type UNICAST,LOCAL", "-A POSTROUTING -p udp -m addrtype ! --src-type LOCAL --dst-type UNICAST")}
	}
	add("nft early", "at prerouting, with drops before and behind", early)
	add("nft", "behind the route, receivers too", behind)
	add("ip6tables-legacy", "at each hook", tables("ip6tables-legacy")...)
	add("ip6tables-nft", "at each hook", tables("ip6tables-nft")...)
	add("kinds", "what asks for kinds of addresses alone is asked without a lookup", restore("ip6tables-legacy", "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -m addrtype --src-type UNICAST", "-A PREROUTING -m addrtype ! --dst-type MULTICAST", "-A PREROUTING -m addrtype ! --src-type UNICAST -j DROP", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP")).reasons = []string{drop, "fast"}
	add("checked", "where rules ask for the route back as well", early, behind, nftFile("add table inet back", "add chain inet back p { type filter hook prerouting priority 10; }", "add rule inet back p meta nfproto ipv6 fib saddr . mark . iif oif missing counter drop"))
	for _, c := range [][2]string{{"rules", "ip -6 rule add pref 50 from 2001:db8:3::/48 lookup main"}, {"two routes", "ip -6 route add 2001:db8:2::/48 via fd00::2:0:0:0:10 metric 7"}, {"one source", "ip -6 route add 2001:db8:2::/64 from 2001:db8:3::/48 via fd00::2:0:0:0:10"},
		{"local table", "ip -6 route add 2001:db8:3::/64 via fd00::3:0:0:0:10 table local"}} {
		h := add("told by Linux, "+c[0], "where the lookup of rules may find another route nothing is known", early, behind, c[1])
		h.slow.IP6, h.reasons = true, []string{reach, "fast"}
	}
	change := add("changes", "addresses and routes that make another type of a sender hold from the next packet on", early)
	halt := add("changes frozen", "the same while shunt's process is stopped", tables("ip6tables-legacy")...)
	halt.slow.IP6, change.slow.IP6 = true, true // what is between two lives, or has just changed
	for i, c := range []string{"ip -6 address %s 2001:db8:3::4/128 dev lo", "ip -6 address %s 2001:db8:3::1/64 dev p2 nodad", "ip -6 route %s local 2001:db8:3::/64 dev lo", "ip -6 route %s blackhole 2001:db8:3::/64", "ip -6 route %s 2001:db8:3::/64 dev p0", "ip -6 route %s prohibit 2001:db8:70::/64 metric 5",
		"ip -6 route %s unreachable 2001:db8:3::1", "ip -6 route %s 2001:db8:99::/64 via fd00::3:0:0:0:10"} {
		on, off := strings.Replace(c, "%s", "add", 1), strings.Replace(c, "%s", "del", 1)
		change.steps = append(change.steps, atOnce(all, on), step(all, off)) // a removed route of IPv6 is noticed by its event, milliseconds later
		if i < 4 {
			halt.steps = append(halt.steps, frozen(all, on), frozen(all, off))
		}
	}
	change.steps, halt.steps = append(change.steps, step(all)), append(halt.steps, step(all))
	late := add("begins", "rules that ask begin and end while packets flow, for which no program proved anything", "nft add table ip6 t", "nft add chain ip6 t f { type filter hook forward priority 0; }", "nft add rule ip6 t f tcp dport 80 counter drop")
	late.slow.IP6 = true // programs that prove it go on to
	for range 2 {
		late.steps = append(late.steps, atOnce(all, "nft insert rule ip6 t f fib saddr type local counter drop", "nft insert rule ip6 t f fib daddr type anycast counter drop"), step(all), atOnce(all, "nft flush chain ip6 t f", "nft add rule ip6 t f tcp dport 80 counter drop"), step(all))
	}
	return out
}

// typeMaps ask for types of addresses in maps of verdicts and in concatenations, of both families.
func typeMaps() hand {
	all := join(some(), services(), sources(), udp(1, "10.3.4.5", "10.2.9.9"), udp(1, "2001:db8:3::4", "2001:db8:2::9"))
	return hand{name: "rules sender maps", why: "types of addresses as keys", loads: true, slow: Excuse{Rules: true}, reasons: []string{drop, reach, "fast"}, steps: []handStep{step(all, append(to5(gw1, gw1v6), "sysctl net.ipv4.conf.all.accept_local=1", nftFile(
		"add table inet t", "add set inet t s { type fib_addrtype; elements = { local, anycast, broadcast }; }", "add map inet t m { type fib_addrtype . inet_proto : verdict; elements = { unicast . sctp : drop, local . udp : drop, unicast . tcp : continue }; }",
		"add chain inet t x", "add rule inet t x counter", "add rule inet t x tcp dport 80 drop", "add chain inet t p { type filter hook prerouting priority raw; }", "add chain inet t f { type filter hook forward priority 0; }",
		"add rule inet t p fib saddr type vmap { local : drop, broadcast : drop, anycast : drop, unicast : jump x }", "add rule inet t p fib saddr type . meta iifname { unicast . \"p0\", local . \"p1\" } counter", "add rule inet t p fib saddr type . meta iifname { unicast . \"p1\", unicast . \"p2\" } counter drop",
		"add rule inet t p fib saddr type @s counter", "add rule inet t p fib saddr type != @s counter",
		"add rule inet t f fib daddr type . meta l4proto vmap @m", "add rule inet t f fib daddr type vmap { local : drop, unicast : continue }", "add rule inet t f counter"))...),
		step(all, "nft add element inet t s { unicast }", "nft delete element inet t s { local }"), atOnce(all, "nft add element inet t m { unicast . udp : drop }"), step(all)}}
}
