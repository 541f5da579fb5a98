// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// rulesFast: the fast path evaluates rules, so that the cases here are asserted to be fast.
const rulesFast = true

// ruleSet is a rule set with which traffic must be fast.
type ruleSet struct {
	name, why string
	do        []string
	packets   []Packet
	reasons   []string // to be met when rules are fast
	slow      Excuse   // beside what rules excuse
}

// drop is the reason of packets that a rule ends, reach of those that a rule only Linux can evaluate may meet.
const drop, reach = "rule-drop", "netfilter-rule"

// forwardChain is the rules of FORWARD in the words of iptables-restore.
func forwardChain(tool, policy string, rules ...string) string {
	return restore(tool, "filter", ":FORWARD "+policy+" [0:0]", prefixed("-A FORWARD ", rules)...)
}

// restore is a table: chains by blanks and semicolons, then rules.
func restore(tool, table, chains string, rules ...string) string {
	lines := append([]string{tool + "-restore", "*" + table}, strings.Split(chains, "; ")...)
	return strings.Join(append(append(lines, rules...), "COMMIT"), "\n") + "\n"
}

func prefixed(prefix string, rules []string) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = prefix + r
	}
	return out
}

// nftFile is what `nft -f` reads.
func nftFile(lines ...string) string { return "nft -f -\n" + strings.Join(lines, "\n") + "\n" }

// hundred makes rules for addresses that nothing comes from, and last one that takes away what goes to port 80.
func hundred(source, end string) []string {
	var out []string
	for i := range 99 {
		out = append(out, fmt.Sprintf(source, i))
	}
	return append(out, end)
}

// everyDialect makes one rule set of each dialect from rules of iptables and nft for both families.
func everyDialect(name, why string, iptables func(v6 bool) []string, nft func(v6 bool) []string, packets []Packet, reasons ...string) []ruleSet {
	var out []ruleSet
	for _, kind := range []string{"legacy", "nft"} {
		out = append(out, ruleSet{name: name + " iptables-" + kind, why: why, packets: packets, reasons: reasons,
			do: []string{forwardChain("iptables-"+kind, "ACCEPT", iptables(false)...), forwardChain("ip6tables-"+kind, "ACCEPT", iptables(true)...)}})
	}
	chain := func(family string, rules []string) string {
		if family != "inet" { // there it is said by the table
			rules = prefixed("", rules)
			for i := range rules {
				rules[i] = strings.NewReplacer("meta nfproto ipv4 ", "", "meta nfproto ipv6 ", "").Replace(rules[i])
			}
		}
		return nftFile(append([]string{"add table " + family + " t", "add chain " + family + " t c { type filter hook forward priority 0; }"}, prefixed("add rule "+family+" t c ", rules)...)...)
	}
	return append(out,
		ruleSet{name: name + " nft", why: why, packets: packets, reasons: reasons, do: []string{chain("ip", nft(false)), chain("ip6", nft(true))}},
		ruleSet{name: name + " inet", why: why, packets: packets, reasons: reasons, do: []string{chain("inet", append(nft(false), nft(true)...))}})
}

func family[T any](four, six T) func(v6 bool) T {
	return func(v6 bool) T {
		if v6 {
			return six
		}
		return four
	}
}

// ruleSets are the rule sets with which traffic must be fast.
func ruleSets() []ruleSet {
	web := join(some(), services())
	out := everyDialect("100 rules", "no packet meets one but the last, which drops",
		family(hundred("-s 172.20.%d.0/24 -j DROP", "-p tcp -m tcp --dport 80 -j DROP"), hundred("-s 2001:db8:f:%d::/64 -j DROP", "-p tcp -m tcp --dport 80 -j DROP")),
		family(hundred("ip saddr 172.20.%d.0/24 counter drop", "tcp dport 80 counter drop"), hundred("ip6 saddr 2001:db8:f:%d::/64 counter drop", "tcp dport 80 counter drop")), web, drop, "fast")
	out = append(out, everyDialect("disjoint", "rules that only Linux can evaluate, behind conditions that the traffic cannot meet",
		family([]string{"-s 172.20.0.0/16 -j LOG", "-i p0 -j ACCEPT", "-m limit --limit 5/sec -j ACCEPT", "-j DROP"}, []string{"-s 2001:db8:f::/48 -j LOG", "-i p0 -j ACCEPT", "-m limit --limit 5/sec -j ACCEPT"}),
		family([]string{"ip saddr 172.20.0.0/16 log", "meta nfproto ipv4 iifname \"p0\" counter accept", "meta nfproto ipv4 limit rate 5/second accept"}, []string{"ip6 saddr 2001:db8:f::/48 log", "meta nfproto ipv6 iifname \"p0\" counter accept", "meta nfproto ipv6 limit rate 5/second accept"}), web, "fast")...)
	out = append(out, everyDialect("slow for some", "what goes to port 53 meets a limit, the rest is fast",
		family([]string{"-p udp -m udp --dport 53 -m limit --limit 10000/sec --limit-burst 10000 -j DROP"}, []string{"-p udp -m udp --dport 53 -m limit --limit 10000/sec --limit-burst 10000 -j DROP"}),
		family([]string{"meta nfproto ipv4 udp dport 53 limit rate 1000000/second burst 100000 packets counter drop"}, []string{"meta nfproto ipv6 udp dport 53 limit rate 1000000/second burst 100000 packets counter drop"}), web, reach, "fast")...)
	return slices.Concat(out, tableSets(web), netdevSets(), setSets(web))
}

// tableSets are about hooks, chains and policies.
func tableSets(web []Packet) []ruleSet {
	var out []ruleSet
	add := func(name, why string, do []string, reasons ...string) {
		out = append(out, ruleSet{name: name, why: why, do: do, packets: web, reasons: reasons})
	}
	for _, kind := range []string{"legacy", "nft"} {
		add("raw drop "+kind, "dropped before the route", []string{restore("iptables-"+kind, "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP"),
			restore("ip6tables-"+kind, "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP")}, drop, "fast")
		add("policy drop "+kind, "what no rule accepts ends", []string{forwardChain("iptables-"+kind, "DROP", "-p udp -j ACCEPT", "-p icmp -m icmp --icmp-type 8 -j ACCEPT"), forwardChain("ip6tables-"+kind, "DROP", "-p udp -j ACCEPT")}, drop, "fast")
		add("user chains "+kind, "jump, goto and return", []string{restore("iptables-"+kind, "filter", ":FORWARD ACCEPT [0:0]; :in - [0:0]; :web - [0:0]; :end - [0:0]",
			"-A FORWARD -i p0 -j in", "-A FORWARD -p udp -j ACCEPT", "-A FORWARD -g end", "-A in -p tcp -j web", "-A in -s 10.0.0.10/32 -j RETURN", "-A in -j ACCEPT", "-A web -p tcp -m tcp --dport 80 -j DROP", "-A web -j RETURN", "-A end -p icmp -j ACCEPT", "-A end -p gre -j DROP")}, drop, "fast")
		add("mangle "+kind, "marks and TOS are set and asked for", []string{restore("iptables-"+kind, "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]",
			"-A PREROUTING -p udp -j MARK --set-mark 5", "-A FORWARD -m mark --mark 5 -j DSCP --set-dscp 10", "-A POSTROUTING -m dscp --dscp 10 -o p1", "-A POSTROUTING -p tcp -j TOS --set-tos 0x10/0x3f")}, "fast")
		add("security "+kind, "the table that few know, behind filter's", []string{restore("iptables-"+kind, "security", ":FORWARD ACCEPT [0:0]", "-A FORWARD -p tcp -m tcp --dport 80 -j DROP"),
			restore("ip6tables-"+kind, "security", ":FORWARD ACCEPT [0:0]", "-A FORWARD -p udp -m udp --dport 53 -j DROP")}, drop, "fast")
		add("only Linux "+kind, "what only Linux can do to packets, for some of the traffic: to a program, a copy to elsewhere, to a class, traced", []string{
			restore("iptables-"+kind, "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p icmp -j TRACE"),
			restore("iptables-"+kind, "mangle", ":FORWARD ACCEPT [0:0]", "-A FORWARD -p udp -m udp --dport 53 -j TEE --gateway 10.0.2.10", "-A FORWARD -p udp -m udp --dport 2000 -j CLASSIFY --set-class 1:2"),
			restore("iptables-"+kind, "filter", ":FORWARD ACCEPT [0:0]", "-A FORWARD -p tcp -m tcp --dport 80 -j NFQUEUE --queue-num 7 --queue-bypass", "-A FORWARD -p sctp -j NFQUEUE --queue-num 7"),
			restore("ip6tables-"+kind, "mangle", ":FORWARD ACCEPT [0:0]", "-A FORWARD -p udp -m udp --dport 53 -j CLASSIFY --set-class 1:2")}, reach, "fast")
		add("proxy "+kind, "packets for a proxy that does not listen, which drops them", []string{
			restore("iptables-"+kind, "mangle", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -m tcp --dport 80 -j TPROXY --on-port 9999 --tproxy-mark 1"),
			restore("ip6tables-"+kind, "mangle", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -m tcp --dport 80 -j TPROXY --on-port 9999 --tproxy-mark 1")}, reach, "fast")
		add("policy only "+kind, "empty chains count for their policies", []string{restore("iptables-"+kind, "filter", ":FORWARD ACCEPT [0:0]"), restore("ip6tables-"+kind, "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]")}, "fast")
	}
	add("nft chains", "several base chains of a hook, user chains, a policy", []string{nftFile("add table ip t", "add chain ip t u", "add chain ip t a { type filter hook forward priority -5; }", "add chain ip t b { type filter hook forward priority 5; policy drop; }",
		"add rule ip t u tcp dport 80 counter drop", "add rule ip t u counter return", "add rule ip t a iifname \"p*\" jump u", "add rule ip t a counter accept", "add rule ip t b counter udp dport 53-2000 accept", "add rule ip t b icmp type echo-request counter accept")}, drop, "fast")
	add("all matches", "one rule for each match that is understood", []string{forwardChain("iptables-legacy", "ACCEPT", "-m iprange --src-range 10.0.0.1-10.0.0.9 -j DROP", "! -s 10.0.0.0/8 -j DROP", "-i p+ ! -o p2 -p udp -m multiport --dports 7,9:11 -j DROP",
		"-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK -j DROP", "-p icmp -m icmp --icmp-type 13 -j DROP", "-m mark --mark 1 -j DROP", "-m dscp --dscp 46 -j DROP", "-m tos --tos 0x10/0x3f -j DROP", "-m ttl --ttl-lt 5 -j DROP", "-m length --length 1400:1500 -j DROP",
		"-m mac --mac-source 02:00:00:00:00:99 -j DROP", "-m addrtype --dst-type LOCAL -j DROP", "-f -j DROP", "-m pkttype --pkt-type broadcast -j DROP", "-m comment --comment \"two words\" -p sctp -m sctp --dport 80 -j DROP", "-m devgroup --src-group 7 -j DROP")}, "fast")
	add("no flags", "flags of TCP of which none is asked for, which everything has, and negated nothing", []string{forwardChain("iptables-legacy", "ACCEPT", "-p tcp -m tcp ! --tcp-flags NONE NONE -j DROP", "-p tcp -m tcp --tcp-flags NONE NONE", "-p tcp -m tcp ! --tcp-flags NONE SYN --dport 80 -j DROP"),
		forwardChain("ip6tables-legacy", "ACCEPT", "-p tcp -m tcp ! --tcp-flags NONE NONE -j DROP")}, drop, "fast")
	add("same for all", "what all packets answer alike that come to rules: the version, headers behind the first one, IPsec; and what comes behind IPv6's header", []string{
		nftFile("add table inet t", "add chain inet t f { type filter hook forward priority -5; }", "add rule inet t f ip version 4 counter", "add rule inet t f ip version != 4 counter drop", "add rule inet t f ip6 version 6 counter", "add rule inet t f exthdr frag exists counter drop",
			"add rule inet t f exthdr hbh missing counter", "add rule inet t f rt type 0 counter drop", "add rule inet t f ip option lsrr exists counter drop", "add rule inet t f ip6 nexthdr udp udp dport 53 counter drop", "add rule inet t f ip6 nexthdr icmpv6 icmpv6 type echo-request counter", "add rule inet t f ip6 nexthdr { tcp, udp } counter accept"),
		forwardChain("iptables-legacy", "ACCEPT", "-m policy --dir in --pol ipsec --reqid 1 --proto esp -j DROP", "-m policy --dir out --pol none", "-m policy --dir in --pol none -p tcp -m tcp --dport 80 -j DROP"),
		forwardChain("ip6tables-nft", "ACCEPT", "-m policy --dir out --pol ipsec -j DROP", "-m policy --dir in --pol none")}, drop, "fast")
	out[len(out)-1].packets = join(web, options(flowOf(0, h0, h1)), fragments(flowOf(0, h0, h1)), extensions(flowOf(0, h0v6, h1v6)))
	add("address types", "a sender that is the router itself, and packets for it, which rules before the route meet", []string{"sysctl net.ipv4.conf.all.accept_local=1",
		restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]", "-A PREROUTING -p tcp -m addrtype ! --dst-type LOCAL -m tcp --dport 80 -j DROP", "-A PREROUTING -p icmp -m addrtype --dst-type LOCAL -j DROP", "-A FORWARD -m addrtype --src-type UNICAST", "-A FORWARD -p udp -m addrtype --src-type LOCAL -j DROP"),
		restore("ip6tables-nft", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]", "-A PREROUTING -p tcp -m addrtype ! --dst-type LOCAL -m tcp --dport 80 -j DROP", "-A FORWARD -m addrtype --src-type LOCAL -j DROP")}, reach)
	out[len(out)-1].packets = join(web, toRouter(), sources())
	add("address types elsewhere", "receivers that the table of local addresses has, or that only one ingress has a route to, forwarded by rules that come before", []string{
		"ip rule add pref 100 lookup local", "ip rule add pref 50 lookup 100", "ip rule del pref 0", "ip route add local 10.5.1.0/24 dev lo", "ip route add 10.5.0.0/16 via 10.0.2.10 table 100",
		"ip -6 rule add pref 50 iif p0 lookup 100", "ip route add 2001:db8:5::/48 via " + addr6(2, 0, 0x10).String() + " table 100",
		forwardChain("iptables-legacy", "ACCEPT", "-p udp -m addrtype --dst-type LOCAL -j DROP", "-p icmp -j DROP"),
		nftFile("add table ip6 t", "add chain ip6 t f { type filter hook forward priority 0; }", "add rule ip6 t f meta l4proto udp fib daddr type unreachable counter drop", "add rule ip6 t f meta l4proto icmpv6 counter drop")}, reach)
	out[len(out)-1].packets = join(web, udp(0, h0, "10.5.1.1"), udp(0, h0v6, "2001:db8:5::1"))
	return out
}

// setSets are about sets.
func setSets(web []Packet) []ruleSet {
	return []ruleSet{
		{name: "ipset", why: "sets of addresses, networks and services", packets: web, reasons: []string{drop, "fast"}, do: []string{
			"ipset restore\ncreate a hash:ip\ncreate n hash:net\ncreate p hash:ip,port\nadd a 172.20.0.1\nadd a 10.3.4.5\nadd n 10.5.0.0/16\nadd n 10.5.9.0/24 nomatch\nadd p 10.1.2.3,udp:2000\n",
			forwardChain("iptables-legacy", "ACCEPT", "-m set --match-set a src -j DROP", "-p tcp -m set ! --match-set n dst", "-p tcp -m tcp --dport 80 -m set --match-set n dst -j DROP", "-m set --match-set p dst,dst -j DROP")}},
		{name: "ipset counted", why: "sets that count are asked by Linux alone", slow: Excuse{IP4: true}, packets: web, do: []string{
			"ipset restore\ncreate a hash:ip counters\ncreate n hash:net counters\nadd a 172.20.0.1\nadd a 10.3.4.5\nadd n 10.5.0.0/16\nadd n 10.5.9.0/24 nomatch\n",
			forwardChain("iptables-legacy", "ACCEPT", "-m set --match-set a src -j DROP", "-p tcp -m tcp --dport 80 -m set --match-set n dst -j DROP")}},
		{name: "nft sets", why: "sets, concatenations and verdict maps", packets: web, reasons: []string{drop, "fast"}, do: []string{nftFile("add table ip t", "add set ip t s { type ipv4_addr; flags interval; counter; }", "add element ip t s { 172.20.0.0/16, 10.3.0.0/16 }",
			"add set ip t c { type ipv4_addr . inet_service; flags interval; }", "add element ip t c { 10.5.0.0/16 . 75-85, 10.1.0.0/16 . 7 }", "add map ip t m { type inet_proto : verdict; }", "add chain ip t u", "add element ip t m { icmp : accept, gre : drop, udp : jump u }",
			"add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f ip saddr @s counter drop", "add rule ip t f ip daddr . tcp dport @c counter drop", "add rule ip t u udp sport 53 counter drop", "add rule ip t f meta l4proto vmap @m", "add rule ip t f counter")}},
		{name: "counted set", why: "elements that count, of which no packet meets one, and that nothing counts in behind a negated lookup", packets: web, reasons: []string{drop, "fast"}, do: []string{nftFile("add table ip t",
			"add set ip t s { type ipv4_addr; flags interval; counter; }", "add element ip t s { 172.20.0.0/16, 172.22.0.1 }", "add set ip t c { type ipv4_addr . inet_service; counter; }", "add element ip t c { 172.20.0.1 . 80, 10.5.1.1 . 22 }",
			"add set ip t n { type ipv4_addr; counter; }", "add element ip t n { 10.3.4.5, 10.0.0.10 }", "add map ip t m { type inet_service : verdict; counter; }", "add element ip t m { 22 : drop }", "add chain ip t f { type filter hook forward priority 0; }",
			"add rule ip t f ip saddr @s counter drop", "add rule ip t f ip daddr . tcp dport @c counter drop", "add rule ip t f tcp dport vmap @m", "add rule ip t f ip saddr != @n counter", "add rule ip t f ip daddr != @n tcp dport 80 counter drop")}},
		{name: "counted parts", why: "elements that count, of a set in which a part of a field is looked up", packets: web, reasons: []string{reach, "fast"}, do: []string{nftFile("add table ip t",
			"add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f udp dport 2000 ip daddr & 255.255.0.0 { 10.1.0.0 counter, 10.77.0.0 counter } counter")}},
		{name: "mark by map", why: "a mark from a map, of elements or named, before and behind the route, asked for later", packets: web, reasons: []string{drop, "fast"}, do: []string{nftFile("add table ip t",
			"add map ip t m { type ipv4_addr : mark; flags interval; }", "add element ip t m { 10.0.0.0/24 : 5, 10.3.0.0/16 : 0x20000001 }", "add chain ip t f { type filter hook forward priority -150; }",
			"add rule ip t f counter meta mark set ip saddr map @m counter", "add rule ip t f meta mark set ip saddr . udp dport map { 10.0.0.10 . 53 : 7, 10.0.0.10 . 80 : 8 } counter accept", "add rule ip t f counter",
			"add chain ip t g { type filter hook forward priority 0; }", "add rule ip t g meta mark 5 counter", "add rule ip t g meta mark 0x20000001 counter drop", "add rule ip t g meta mark 7 counter drop", "add rule ip t g meta mark 8 counter",
			"add table inet u", "add chain inet u p { type filter hook prerouting priority 0; }", "add rule inet u p meta mark set tcp dport map { 80 : 9, 53 : 10 } counter", "add rule inet u p meta mark 9 meta mark set meta mark map { 9 : 11 }", "add rule inet u p meta mark 11 meta mark set meta mark or 0x100",
			"add chain inet u f { type filter hook forward priority 10; }", "add rule inet u f meta mark 0x10b counter drop")}},
		{name: "dynamic set", why: "rules may change the set by its flags, but none does", packets: web, reasons: []string{drop, "fast"}, do: []string{nftFile("add table ip t", "add set ip t s { type ipv4_addr; flags dynamic; size 100; }",
			"add element ip t s { 10.3.4.5 }", "add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f ip daddr @s counter drop", "add rule ip t f ip saddr @s counter drop", "add rule ip t f tcp dport 80 counter")}},
	}
}

// ruleTraps are the cases.
func ruleTraps() []hand {
	var out []hand
	for _, r := range ruleSets() {
		h := hand{name: "rules " + r.name, why: r.why, loads: true, slow: Excuse{Rules: true}, reasons: r.reasons, steps: []handStep{step(r.packets, append(to5(gw1, gw1v6), r.do...)...)}}
		if r.slow.IP4 || r.slow.IP6 {
			h.slow = r.slow
		}
		if !rulesFast {
			h.slow, h.reasons = Excuse{IP4: true, IP6: true}, nil
		}
		out = append(out, h)
	}
	return append(slices.Concat(out, writingRules(), stateRules(), registerRules(), partRules(), edgeRules(), catchAllRules(), senderRules(), backRules(), priorityRules(), netdevTraps(), rememberedRules()), longRules(), changingRules(), frontRules(), frontLegacy(), treeRules(), frozenRules(), emptiedChains("legacy"), emptiedChains("nft"), nestedMaps(), nestedChains(), countedMap(), changedMap(), countedLegacy(), unreachedRules())
}

// emptiedChains takes the rules of a chain away and gives it one again: what its policy counts meanwhile is told by no fast packet, from then on by all.
func emptiedChains(kind string) hand {
	web := join(some(), services())
	tool := "iptables-" + kind
	return hand{name: "rules emptied chain " + kind, loads: true, why: "a chain without rules between two with", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"}, steps: []handStep{
		step(web, append(to5(gw1, gw1v6), restore(tool, "mangle", ":FORWARD ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]", "-A FORWARD -p tcp -m tcp --dport 80 -j DROP", "-A POSTROUTING -p udp"))...),
		step(web, tool+" -t mangle -F FORWARD"), step(web, tool+" -t mangle -A FORWARD -p tcp -m tcp --dport 80 -j DROP"), step(web, tool+" -t mangle -I FORWARD -p udp"), step(web, tool+" -t mangle -F POSTROUTING"), step(web)}}
}

// nestedMaps calls chains out of chains that were called, by verdict maps, whose chains are never written out where they are called: each has rules behind
// its call, which only packets meet that come back to it and not to a caller further out.
func nestedMaps() hand {
	return hand{name: "rules nested maps", loads: true, why: "chains that chains call come back to their own callers", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"}, steps: []handStep{
		step(join(some(), services()), append(to5(gw1, gw1v6), nftFile("add table inet t", "add chain inet t a", "add chain inet t b", "add chain inet t c", "add chain inet t f { type filter hook forward priority 0; }",
			"add rule inet t c counter", "add rule inet t c udp dport 53 counter return", "add rule inet t c udp sport 1000 counter",
			"add rule inet t b iifname vmap { p0 : jump c, p1 : goto c }", "add rule inet t b counter", "add rule inet t b tcp dport 80 counter drop",
			"add rule inet t a iifname vmap { p0 : jump b, p1 : goto b }", "add rule inet t a counter", "add rule inet t a udp dport 53 counter drop",
			"add rule inet t f meta l4proto vmap { udp : jump a, tcp : jump a, gre : goto b }", "add rule inet t f counter"))...)}}
}

// nestedChains does so with jumps and gotos, of chains that are too large to be written out wherever they are called.
func nestedChains() hand {
	lines := []string{"-A FORWARD -p udp -j outer", "-A FORWARD -p tcp -j outer", "-A FORWARD -p icmp -g outer", "-A FORWARD -p gre -j outer", "-A FORWARD -p udp"}
	for i := range 40 {
		lines = append(lines, fmt.Sprintf("-A outer -s 172.20.%d.0/24 -j inner", i), fmt.Sprintf("-A inner -d 172.20.%d.0/24 -j DROP", i))
	}
	lines = append(lines, "-A outer -i p0 -j inner", "-A outer -p udp -m udp --dport 2000", "-A outer -p udp -m udp --dport 53 -j DROP", "-A outer -p tcp -g inner", "-A outer -p icmp -j DROP", "-A inner -p udp", "-A inner -p tcp -m tcp --dport 80 -j RETURN", "-A inner -p tcp")
	return hand{name: "rules nested chains", loads: true, why: "the same with more than can be written out where it is called", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"}, steps: []handStep{
		step(join(some(), services()), append(to5(gw1, gw1v6), restore("iptables-legacy", "filter", ":FORWARD ACCEPT [0:0]; :outer - [0:0]; :inner - [0:0]", lines...))...)}}
}

// countedMap has a verdict map whose elements count, which nobody could tell of fast packets.
func countedMap() hand {
	return hand{name: "rules counted map", loads: true, why: "elements of a verdict map count", slow: Excuse{IP4: true, IP6: true}, reasons: []string{reach, "fast"}, steps: []handStep{
		step(join(some(), services()), append(to5(gw1, gw1v6), nftFile("add table ip t", "add map ip t m { type inet_service : verdict; counter; }", "add element ip t m { 80 : drop, 53 : accept }",
			"add chain ip t c { type filter hook forward priority 0; }", "add rule ip t c udp dport vmap @m", "add rule ip t c tcp dport vmap @m"))...), step(join(some(), services()), "nft add element ip t m { 2000 : drop }")}}
}

// changedMap changes the map that gives marks; one that rules change, or whose elements count, is Linux's.
func changedMap() hand {
	web := join(some(), services())
	return hand{name: "rules map of marks", loads: true, why: "a map of marks that changes", slow: Excuse{IP4: true, IP6: true}, reasons: []string{drop, reach, "fast"}, steps: []handStep{
		step(web, append(to5(gw1, gw1v6), nftFile("add table ip t", "add map ip t m { type inet_service : mark; }", "add element ip t m { 80 : 5 }", "add map ip t n { type inet_service : mark; counter; }", "add element ip t n { 2000 : 5 }",
			"add chain ip t f { type filter hook forward priority 0; }", "add rule ip t f tcp dport vmap { 2000 : continue, 53 : accept }", "add rule ip t f meta mark set tcp dport map @m counter", "add rule ip t f meta mark 5 counter drop", "add rule ip t f meta mark 6 counter"))...),
		atOnce(web, "nft add element ip t m { 2000 : 6 }"), step(web), atOnce(web, "nft delete element ip t m { 80 }"), step(web),
		atOnce(web, "nft add rule ip t f meta mark set udp dport map @n counter"), step(web)}}
}

// countedLegacy changes rules that have counted: a tool sets counters to zero or to a value, and takes those of rules that stay along.
func countedLegacy() hand {
	all := join(some(), services())
	rules := forwardChain("iptables-legacy", "ACCEPT", "-p tcp -m tcp --dport 80 -j DROP", "-p udp", "-p udp", "-i p0")
	h := hand{name: "rules counted legacy", loads: true, why: "legacy rules that have counted are zeroed, moved, doubled, restored", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"},
		steps: []handStep{step(all, append(to5(gw1, gw1v6), rules)...)}}
	for _, do := range []string{"iptables-legacy -Z FORWARD", "iptables-legacy -Z FORWARD 2", "iptables-legacy -D FORWARD 2", "iptables-legacy -I FORWARD -p udp", "iptables-legacy -A FORWARD -p udp -c 5 500",
		rules, "iptables-legacy -D FORWARD 1", "iptables-legacy -P FORWARD DROP"} {
		h.steps = append(h.steps, atOnce(all, do), step(all))
	}
	return h
}

// unreachedRules has rules that count, and then for a while no packet comes to them.
func unreachedRules() hand {
	web := join(some(), services())
	return hand{name: "rules unreached", loads: true, why: "what rules have counted stays when no packet reaches them any more", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"}, steps: []handStep{
		step(web, append(to5(gw1, gw1v6), nftFile("add table inet t", "add chain inet t pre { type filter hook prerouting priority 0; }", "add chain inet t out { type filter hook forward priority 0; }", "add rule inet t out counter", "add rule inet t out tcp dport 80 counter drop"))...),
		step(web, "nft chain inet t pre { policy drop; }"), step(web, "nft chain inet t pre { policy accept; }"), step(web, "nft insert rule inet t out counter drop"), step(web)}}
}

// longRules has more rules that count a packet than the fast path follows, for what goes to port 53.
func longRules() hand {
	rules := slices.Repeat([]string{"-p udp -m udp --dport 53"}, 20)
	return hand{name: "rules long", loads: true, why: "twenty rules count a packet", slow: Excuse{IP4: true, IP6: true}, reasons: []string{"netfilter-long", "fast"},
		steps: []handStep{step(join(some(), services()), append(to5(gw1, gw1v6), forwardChain("iptables-legacy", "ACCEPT", rules...), forwardChain("ip6tables-nft", "ACCEPT", rules...))...)}}
}

// ruleChanges are changes of what ruleChangesBegin loads.
var (
	ruleChangesBegin = []string{
		"ipset restore\ncreate a hash:ip\nadd a 172.20.0.1\n", forwardChain("iptables-legacy", "ACCEPT", "-m set --match-set a src -j DROP", "-p tcp -m tcp --dport 80 -j DROP"), forwardChain("ip6tables-nft", "ACCEPT", "-p tcp -m tcp --dport 80 -j DROP"),
		nftFile("add table ip t", "add set ip t s { type ipv4_addr; }", "add chain ip t c { type filter hook forward priority 5; }", "add rule ip t c ip saddr @s counter drop", "add rule ip t c udp dport 7 counter drop"),
	}
	ruleChanges = [][]string{
		{"iptables-legacy -I FORWARD -p udp --dport 2000 -j DROP"}, {"iptables-legacy -D FORWARD 1"}, {"iptables-legacy -R FORWARD 2 -p tcp --dport 2000 -j DROP"}, {"iptables-legacy -P FORWARD DROP"}, {"iptables-legacy -A FORWARD -i p0 -j ACCEPT"},
		{"iptables-legacy -F FORWARD"}, {"iptables-legacy -P FORWARD ACCEPT"}, {forwardChain("iptables-legacy", "ACCEPT", "-m set --match-set a src -j DROP", "-p sctp -j DROP")}, {"ip6tables-nft -I FORWARD -p udp --dport 2000 -j DROP"}, {"ip6tables-nft -F FORWARD"},
		{"nft add element ip t s { 10.0.0.10 }"}, {"nft delete element ip t s { 10.0.0.10 }"}, {"nft add rule ip t c udp dport 2000 counter drop"}, {"nft insert rule ip t c ip protocol tcp counter accept"}, {"nft flush chain ip t c"}, {"nft chain ip t c { policy drop; }"}, {"nft flush ruleset"},
		{"ipset add a 10.0.0.10"}, {"ipset del a 10.0.0.10"}, {"ipset create b hash:ip", "ipset add b 10.0.0.10", "ipset swap a b"}, {"ipset flush a"},
	}
)

// changingRules changes rules and sets; the next packets follow each change's return.
func changingRules() hand {
	all := join(some(), services())
	h := hand{name: "rules change at once", loads: true, why: "rules, policies and sets hold from the next packet on", slow: Excuse{IP4: true, IP6: true}, steps: []handStep{step(all, append(to5(gw1, gw1v6), ruleChangesBegin...)...)}}
	for _, do := range ruleChanges {
		h.steps = append(h.steps, atOnce(all, do...))
	}
	return h
}

// frontRules changes single rules among very many, which are compiled behind the loop: meanwhile only the packets of the changed ones are left to Linux.
func frontRules() hand {
	all := join(some(), services())
	lines := []string{"add table inet t", "add chain inet t u", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f jump u",
		"add set inet t s { type ipv4_addr; flags interval; }", "add set inet t p { type inet_service; elements = { 2000, 53 }; }", "add rule inet t f ip daddr @s counter drop", "add rule inet t f udp dport != @p counter drop"}
	for i := range 1100 {
		lines = append(lines, fmt.Sprintf("add rule inet t f ip saddr 172.20.%d.%d counter drop", i/250, i%250+1))
	}
	lines = append(lines, "add rule inet t f tcp dport 80 counter drop", "add rule inet t f counter")
	h := hand{name: "rules change among many", loads: true, why: "single rules, and elements of sets, that come and go among very many", slow: Excuse{IP4: true, IP6: true}, reasons: []string{drop, reach, "fast"},
		steps: []handStep{step(all, append(to5(gw1, gw1v6), nftFile(lines...))...)}}
	for _, do := range []string{"nft insert rule inet t f udp dport 2000 counter drop", "nft add rule inet t u meta l4proto icmp counter drop", "nft add rule inet t u counter ip saddr 10.0.0.0/8 udp dport 53 drop", "nft insert rule inet t u iifname p1 meta mark set 7 counter accept",
		"nft add element inet t s { 10.1.0.0/16, 10.2.0.0-10.2.0.20 }", "nft add element inet t p { 80, 1000 }", "nft delete element inet t p { 53 }", "nft delete element inet t s { 10.1.0.0/16 }",
		"nft flush chain inet t u", "nft add rule inet t f meta nfproto ipv6 counter drop", "nft insert rule inet t f ip daddr 10.1.0.0/16 goto u", "nft chain inet t f { policy drop; }"} {
		h.steps = append(h.steps, atOnce(all, do))
	}
	return h
}

// frontLegacy does so in legacy tables, whose rules are told apart by what they say.
func frontLegacy() hand {
	all := join(some(), services())
	var rules []string
	for i := range 1100 {
		rules = append(rules, fmt.Sprintf("-s 172.20.%d.%d -j DROP", i/250, i%250+1))
	}
	rules = append(rules, "-p tcp -m tcp --dport 80 -j DROP", "-p udp")
	h := hand{name: "rules change among many legacy", loads: true, why: "single legacy rules that come and go among very many", slow: Excuse{IP4: true, IP6: true}, reasons: []string{drop, "fast"},
		steps: []handStep{step(all, append(to5(gw1, gw1v6), forwardChain("iptables-legacy", "ACCEPT", rules...))...)}}
	for _, do := range []string{"iptables-legacy -I FORWARD -p udp --dport 2000 -j DROP", "iptables-legacy -I FORWARD -s 10.0.0.0/8 -p udp --dport 53 -j ACCEPT", "iptables-legacy -A FORWARD -s 10.0.0.10 -j DROP", "iptables-legacy -D FORWARD 1", "iptables-legacy -A FORWARD -p udp",
		"iptables-legacy -D FORWARD -p tcp -m tcp --dport 80 -j DROP", "iptables-legacy -I FORWARD -p icmp -j MARK --set-mark 7", "iptables-legacy -D FORWARD -s 172.20.0.1 -j DROP", "iptables-legacy -P FORWARD DROP"} {
		h.steps = append(h.steps, atOnce(all, do), step(all))
	}
	return h
}

// frozenRules does so while shunt's process is stopped.
func frozenRules() hand {
	few := join(some(), udp(0, h0, "10.5.1.1"), udp(0, h0v6, "2001:db8:5::1"), in(0, flowOf(0, h0, h1).TCP("S", 1, ""), lab.Edited(flowOf(0, h0, h1).UDP("x"), protocol(flowOf(0, h0, h1), 132), lab.FixIPChecksum())))
	h := hand{name: "rules change frozen", loads: true, why: "the same while shunt's process is stopped", slow: Excuse{IP4: true, IP6: true}, steps: []handStep{step(few, append(to5(gw1, gw1v6), ruleChangesBegin...)...)}}
	for i, do := range ruleChanges {
		h.steps = append(h.steps, frozen(few, do...))
		if i%4 == 3 {
			h.steps = append(h.steps, step(few))
		}
	}
	return h
}
