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
	return out
}
