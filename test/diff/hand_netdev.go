// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// Chains at the ingress and egress of devices: which packets meet them, in which order, what they count, and what of them only Linux can evaluate.

// ingressChain makes a chain of a family's table at the ingress of devices; the table is made on the way.
func ingressChain(family, table, chain, devices, priority, more string) []string {
	return []string{"add table " + family + " " + table, "add chain " + family + " " + table + " " + chain + " { type filter hook ingress devices = { " + devices + " } priority " + priority + "; " + more + " }"}
}

// egressChain is the same at their egress, of family netdev. What the router says by itself is let pass before anything counts it: that comes when it comes.
func egressChain(table, chain, devices, priority, more string) []string {
	return []string{"add table netdev " + table, "add chain netdev " + table + " " + chain + " { type filter hook egress devices = { " + devices + " } priority " + priority + "; " + more + " }",
		"add rule netdev " + table + " " + chain + " icmpv6 type mld2-listener-report accept"}
}

// ingressLines joins chains and rules.
func ingressLines(chains [][]string, rules ...string) string {
	return nftFile(append(slices.Concat(chains...), prefixed("add rule ", rules)...)...)
}

// filledUp are packets with something behind them in their frames.
func filledUp() (out []Packet) {
	for _, to := range [][2]string{{h0, "10.5.1.1"}, {h0v6, "2001:db8:5::1"}} {
		f := flowOf(0, to[0], to[1])
		out = append(out, in(0, lab.Edited(f.UDP("x"), lab.Pad(64)), lab.Edited(f.UDP("x"), lab.Pad(100)), lab.Edited(f.UDP("tail"), lab.Append(1, 2, 3)))...)
	}
	return out
}

// netdevSets are rule sets at ingress with which traffic must be fast.
func netdevSets() []ruleSet {
	all := join(some(), services(), back())
	var out []ruleSet
	add := func(name, why string, do string, reasons ...string) {
		out = append(out, ruleSet{name: "netdev " + name, why: why, do: []string{do}, packets: all, reasons: reasons})
	}
	in := func(devices, priority string) []string {
		return ingressChain("netdev", "t", "c", devices, priority, "")
	}
	add("ingress", "dropped where the device hands its packets over", ingressLines([][]string{in("p0", "0")}, "netdev t c tcp dport 80 counter drop", "netdev t c ip saddr 172.20.0.0/16 drop"), drop, "fast")
	add("counters", "what comes by two of the devices counts, with the padding of its frame", ingressLines([][]string{in("p0, p2", "0")},
		"netdev t c counter", "netdev t c ip protocol icmp counter", "netdev t c ip6 saddr fd00::/16 counter", "netdev t c meta protocol ip counter", "netdev t c iifname p2 counter drop"), drop, "fast")
	out[len(out)-1].packets = join(all, filledUp())
	add("priorities", "chains of three tables, in the order of their priorities; accept ends one chain, drop all", ingressLines([][]string{
		ingressChain("netdev", "late", "c", "p0, p1", "10", ""), ingressChain("inet", "early", "c", "p0", "-10", ""), ingressChain("netdev", "middle", "c", "p1, p0, p2", "0", "policy drop;")},
		"inet early c counter", "inet early c udp dport 53 counter accept", "inet early c udp dport 2000 counter drop", "netdev middle c udp dport { 9, 53, 2000 } counter accept", "netdev middle c meta l4proto != udp counter accept", "netdev late c counter drop"), drop)
	add("and other hooks", "ingress comes before raw, forward follows, and connections are none of it", nftFile(slices.Concat(in("p0, p1", "0"), prefixed("add rule ", []string{"netdev t c udp dport 53 meta mark set 7", "netdev t c ip dscp set 10", "netdev t c tcp dport 80 counter drop"}),
		[]string{"add table inet f", "add chain inet f raw { type filter hook prerouting priority -300; }", "add chain inet f go { type filter hook forward priority 0; }", "add rule inet f raw meta mark 7 counter", "add rule inet f go meta mark 7 counter drop", "add rule inet f go ip dscp 10 counter"})...), drop, "fast")
	add("jumps", "jump, goto, return and a verdict map", nftFile(slices.Concat([]string{"add table netdev t", "add chain netdev t u", "add chain netdev t v", "add map netdev t m { type inet_service : verdict; }", "add set netdev t s { type ipv4_addr; flags interval; }",
		"add element netdev t m { 53 : jump u, 80 : drop, 2000 : goto v }", "add element netdev t s { 10.3.0.0/16, 10.0.0.10 }"}, in("p0", "0")[1:],
		prefixed("add rule netdev t ", []string{"u counter return", "v ip daddr 10.1.0.0/16 counter drop", "v counter", "c ip saddr @s counter", "c udp dport vmap @m", "c meta l4proto tcp goto u", "c counter", "u counter drop"}))...), drop, "fast")
	add("policy", "what no rule accepts ends", ingressLines([][]string{ingressChain("netdev", "t", "c", "p0", "0", "policy drop;")}, "netdev t c udp dport 9 accept", "netdev t c ip6 hoplimit 64 counter", "netdev t c meta l4proto icmpv6 accept", "netdev t c meta protocol arp accept"), drop)
	add("half slow", "what goes to port 53 meets rules that only Linux can evaluate", ingressLines([][]string{in("p0", "0")},
		"netdev t c udp dport 53 limit rate 1000000/second burst 100000 packets counter", "netdev t c tcp dport 80 meta length 0-50 counter drop", "netdev t c tcp dport 80 fib daddr type unicast counter drop"), reach, "fast")
	add("fwd", "what goes to port 53 is sent elsewhere, or twice", ingressLines([][]string{in("p0", "0")}, "netdev t c udp dport 53 dup to p3", "netdev t c udp dport 2000 fwd to p2"), reach, "fast")
	add("same priority", "two chains that the devices call in another order", ingressLines([][]string{in("p0", "0"), ingressChain("netdev", "u", "c", "p1", "0", "")}, "netdev t c counter", "netdev u c counter drop"), drop, "fast")
	return append(out, egressSets(all)...)
}

// egressSets are rule sets at egress with which traffic must be fast.
func egressSets(all []Packet) []ruleSet {
	var out []ruleSet
	add := func(name, why string, do string, reasons ...string) {
		out = append(out, ruleSet{name: "netdev egress " + name, why: why, do: []string{do}, packets: all, reasons: reasons})
	}
	at := func(devices, priority string) []string { return egressChain("t", "c", devices, priority, "") }
	add("drop", "dropped where the device takes its packets", ingressLines([][]string{at("p1", "0")}, "netdev t c tcp dport 80 counter drop", "netdev t c ip saddr 10.3.0.0/16 drop"), drop, "fast")
	add("counters", "what leaves by two of the devices counts, with the header of its frame and without padding", ingressLines([][]string{at("p0, p1", "0")},
		"netdev t c counter", "netdev t c ip protocol icmp counter", "netdev t c ip6 saddr fd00::/16 counter", "netdev t c meta protocol ip counter", "netdev t c meta protocol arp counter", "netdev t c oifname p0 counter drop"), drop, "fast")
	out[len(out)-1].packets = join(all, filledUp())
	add("sees", "what Linux has made of a packet by then: hops counted down, marks and TOS by rules before, no way in", nftFile(slices.Concat(at("p1", "0"), []string{"add table inet f", "add chain inet f go { type filter hook forward priority 0; }",
		"add rule inet f go udp dport 53 meta mark set 7", "add rule inet f go udp dport 2000 ip dscp set 10"}, prefixed("add rule netdev t c ", []string{"ip ttl 63 counter", "ip ttl 64 counter drop", "ip6 hoplimit 63 counter", "meta mark 7 counter", "ip dscp 10 counter",
		`iifname "p0" counter drop`, "iif 0 counter", "oifname p1 counter", "meta pkttype host counter", "meta pkttype != host counter drop", "iifname != p0 counter", "meta oiftype ether counter", "oifgroup 0 counter", "iifgroup 0 counter drop", "tcp dport 80 meta mark set 9", "meta mark 9 counter drop"}))...), drop, "fast")
	add("writes", "the TOS as rules behind postrouting set it", ingressLines([][]string{at("p1", "0")}, "netdev t c udp dport 53 ip dscp set 46 counter", "netdev t c ip6 nexthdr udp ip6 dscp set 12 counter", "netdev t c ip dscp 46 counter accept", "netdev t c meta l4proto tcp counter drop"), drop, "fast")
	add("priorities", "chains of three tables, in the order of their priorities; accept ends one chain, drop all", ingressLines([][]string{
		egressChain("late", "c", "p0, p1", "10", ""), egressChain("early", "c", "p1", "-10", ""), egressChain("middle", "c", "p2, p1, p0", "0", "policy drop;")},
		"netdev early c counter", "netdev early c udp dport 53 counter accept", "netdev early c udp dport 2000 counter drop", "netdev middle c udp dport { 9, 53, 2000 } counter accept", "netdev middle c meta l4proto != udp counter accept", "netdev late c counter drop"), drop)
	add("and ingress", "both ends of the way, and what is between", nftFile(slices.Concat(at("p1, p2", "0"), ingressChain("netdev", "i", "c", "p0", "0", ""), []string{"add table inet f", "add chain inet f go { type filter hook postrouting priority 300; }",
		"add rule netdev i c udp dport 53 meta mark set 7", "add rule inet f go meta mark 7 meta mark set 8 counter", "add rule inet f go tcp dport 80 counter drop", "add rule netdev t c meta mark 8 counter drop", "add rule netdev t c tcp dport 80 counter", "add rule netdev t c counter"})...), drop, "fast")
	add("jumps", "jump, goto, return and a verdict map", nftFile(slices.Concat([]string{"add table netdev t", "add chain netdev t u", "add chain netdev t v", "add map netdev t m { type inet_service : verdict; }", "add set netdev t s { type ipv4_addr; flags interval; }",
		"add element netdev t m { 53 : jump u, 80 : drop, 2000 : goto v }", "add element netdev t s { 10.3.0.0/16, 10.0.0.10 }"}, at("p1", "0")[1:],
		prefixed("add rule netdev t ", []string{"u counter return", "v ip daddr 10.1.0.0/16 counter drop", "v counter", "c ip saddr @s counter", "c udp dport vmap @m", "c meta l4proto tcp goto u", "c counter", "u counter drop"}))...), drop, "fast")
	add("policy", "what no rule accepts ends", ingressLines([][]string{egressChain("t", "c", "p1", "0", "policy drop;")}, "netdev t c udp dport 9 accept", "netdev t c ip6 hoplimit 63 counter", "netdev t c meta l4proto icmpv6 accept", "netdev t c meta protocol arp accept"), drop)
	add("half slow", "what goes to port 53 meets rules that only Linux can evaluate, and so do new addresses of frames", ingressLines([][]string{at("p1", "0")},
		"netdev t c udp dport 53 limit rate 1000000/second burst 100000 packets counter", "netdev t c tcp dport 80 meta length 0-70 counter drop", "netdev t c udp dport 2000 ether daddr 02:00:00:00:00:98 counter drop", "netdev t c udp dport 2000 ether saddr != 02:00:00:00:00:99 counter"), reach, "fast")
	add("types", "the type of the way in, which is that of the way out", ingressLines([][]string{at("p1", "0")}, "netdev t c tcp dport 80 meta iiftype ether counter drop", "netdev t c udp dport 53 meta iiftype != ether counter drop"), reach, "fast")
	add("dup", "what goes to port 53 is sent twice", ingressLines([][]string{at("p1", "0")}, "netdev t c udp dport 53 dup to p3"), reach, "fast")
	add("same priority", "two chains that the devices call in another order", ingressLines([][]string{at("p1", "0"), egressChain("u", "c", "p2", "0", "")}, "netdev t c counter", "netdev u c counter drop"), drop, "fast")
	return out
}

// netdevChanges are changes of what netdevBegin loads; each holds with the next packet.
var (
	netdevBegin = ingressLines([][]string{ingressChain("netdev", "t", "c", "p0", "0", ""), ingressChain("netdev", "u", "c", "p2", "-5", "")},
		"netdev t c udp dport 2000 counter drop", "netdev t c counter", "netdev u c counter drop")
	netdevChanges = []string{
		"nft add rule netdev t c tcp dport 80 counter drop", "nft add chain netdev t c { type filter hook ingress devices = { p1 } priority 0; }", "nft insert rule netdev t c udp dport 53 counter accept",
		"nft add chain netdev u c { type filter hook ingress devices = { p0 } priority -5; }", "nft flush chain netdev u c",
		"nft chain netdev t c { policy drop; }", "nft chain netdev t c { policy accept; }", "nft flush chain netdev t c", "nft add rule netdev t c meta l4proto udp drop", "nft flush chain netdev t c; delete chain netdev t c",
		ingressLines([][]string{ingressChain("inet", "i", "c", "p0", "0", "")}, "inet i c meta l4proto tcp counter drop"), "nft flush ruleset",
	}
)

// egressChanges are the same for what egressBegin loads.
var (
	egressBegin = ingressLines([][]string{egressChain("t", "c", "p1", "0", ""), egressChain("u", "c", "p2", "-5", "")},
		"netdev t c udp dport 2000 counter drop", "netdev t c counter", "netdev u c counter drop")
	egressChanges = []string{
		"nft add rule netdev t c tcp dport 80 counter drop", "nft add chain netdev t c { type filter hook egress devices = { p0 } priority 0; }", "nft insert rule netdev t c udp dport 53 counter accept",
		"nft add chain netdev u c { type filter hook egress devices = { p1 } priority -5; }", "nft flush chain netdev u c", "nft chain netdev t c { policy drop; }", "nft chain netdev t c { policy accept; }", "nft flush chain netdev t c",
		"nft add rule netdev t c meta l4proto udp drop", "nft flush chain netdev t c; delete chain netdev t c", "nft flush ruleset",
	}
)

// changed is egressBegin and then each of the changes as a step of some kind.
func changed(as func(do string) handStep, packets []Packet) []handStep {
	steps := []handStep{step(packets, append(to5(gw1, gw1v6), egressBegin)...)}
	for _, do := range egressChanges {
		steps = append(steps, as(do))
	}
	return steps
}

// netdevTraps are the cases that are not one rule set.
func netdevTraps() []hand {
	all := join(some(), services(), back())
	few := join(some(), back())
	changes := hand{name: "rules netdev changes at once", loads: true, why: "rules, devices and chains at ingress hold from the next packet on", slow: Excuse{IP4: true, IP6: true}, steps: []handStep{step(all, append(to5(gw1, gw1v6), netdevBegin)...)}}
	stopped := hand{name: "rules netdev changes frozen", loads: true, why: "the same while shunt's process is stopped", slow: Excuse{IP4: true, IP6: true}, steps: []handStep{step(few, append(to5(gw1, gw1v6), netdevBegin)...)}}
	for _, do := range netdevChanges {
		changes.steps = append(changes.steps, atOnce(all, do))
		stopped.steps = append(stopped.steps, frozen(few, do))
	}
	settled := hand{name: "rules netdev changes", loads: true, why: "the fast path takes each of them up", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"}, steps: []handStep{step(all, append(to5(gw1, gw1v6), netdevBegin)...)}}
	for _, do := range netdevChanges {
		settled.steps = append(settled.steps, step(all, do))
	}
	several := func(hook string, chain func(devices string) []string) hand {
		return hand{name: "rules netdev several " + hook, loads: true, why: "one chain on several devices, of which some come later, some go, and each counts for all", slow: Excuse{Rules: true, In: []int{3}, Out: []int{3}}, reasons: []string{drop, "fast"}, steps: []handStep{
			step(all, append(to5(gw1, gw1v6), ingressLines([][]string{chain("p0, p1, p2")}, "netdev t c udp dport 53 counter drop", "netdev t c iifname { p0, p1 } counter", "netdev t c ip saddr 10.3.0.0/16 counter", "netdev t c counter"))...),
			atOnce(all, nftFile(chain("p3, p4")[1])), step(all), step(all, "ip link set p3 down", "ip link set p3 name q3"), atOnce(all, "nft insert rule netdev t c tcp dport 80 counter drop"), step(all, "ip link set q3 name p3", "ip link set p3 up")}}
	}
	return []hand{changes, stopped, settled,
		several("ingress", func(devices string) []string { return ingressChain("netdev", "t", "c", devices, "0", "") }), several("egress", func(devices string) []string { return egressChain("t", "c", devices, "0", "") }),
		{name: "rules netdev egress fwd", loads: true, why: "what leaves by p1 for port 2000 leaves by p2", slow: Excuse{Rules: true, Out: []int{2}}, reasons: []string{reach, "fast"},
			steps: []handStep{step(all, append(to5(gw1, gw1v6), ingressLines([][]string{egressChain("t", "c", "p1", "0", "")}, "netdev t c udp dport 2000 fwd to p2", "netdev t c counter"))...)}},
		{name: "rules netdev egress changes", loads: true, why: "the fast path takes up each change of chains at egress", slow: Excuse{Rules: true}, reasons: []string{drop, "fast"}, steps: changed(func(do string) handStep { return step(all, do) }, all)},
		{name: "rules netdev egress changes at once", loads: true, why: "rules, devices and chains at egress hold from the next packet on", slow: Excuse{IP4: true, IP6: true}, steps: changed(func(do string) handStep { return atOnce(all, do) }, all)},
		{name: "rules netdev egress changes frozen", loads: true, why: "the same while shunt's process is stopped", slow: Excuse{IP4: true, IP6: true}, steps: changed(func(do string) handStep { return frozen(few, do) }, few)},
		{name: "rules netdev egress orders", loads: true, why: "two chains of one priority that two devices call in different orders", slow: Excuse{Out: []int{0, 1}}, reasons: []string{"egress-slow", "fast"},
			steps: []handStep{step(all, append(to5(gw1, gw1v6), ingressLines([][]string{egressChain("t", "c", "p0", "0", ""), egressChain("u", "c", "p1, p0", "0", "")}, "netdev t c udp dport 53 counter drop", "netdev u c counter", "netdev u c udp dport 53 counter drop"),
				"nft add chain netdev t c { type filter hook egress devices = { p1 } priority 0; }")...)}},
		{name: "rules netdev orders", loads: true, why: "two chains of one priority that two devices call in different orders", slow: Excuse{In: []int{0, 1}}, reasons: []string{"netfilter:netdev", "fast"},
			steps: []handStep{step(all, append(to5(gw1, gw1v6), ingressLines([][]string{ingressChain("netdev", "t", "c", "p0", "0", ""), ingressChain("netdev", "u", "c", "p1, p0", "0", "")}, "netdev t c udp dport 53 counter drop", "netdev u c counter", "netdev u c udp dport 53 counter drop"),
				"nft add chain netdev t c { type filter hook ingress devices = { p1 } priority 0; }")...)}},
		{name: "rules netdev renamed", loads: true, why: "chains stay with a device that gets another name, or go by names; another gets the name", slow: Excuse{Rules: true, In: []int{0, 3}, Out: []int{0, 3}}, reasons: []string{"fast"},
			steps: []handStep{step(all, append(to5(gw1, gw1v6), ingressLines([][]string{ingressChain("netdev", "t", "c", "p0", "0", "")}, "netdev t c counter", "netdev t c udp dport 53 counter drop"))...),
				step(all, "ip link set p3 down", "ip link set p0 down", "ip link set p3 name q3", "ip link set p0 name p3", "ip link set q3 name p0", "ip link set p0 up", "ip link set p3 up"),
				step(all, "ip link set p3 down", "ip link set p0 down", "ip link set p3 name q3", "ip link set p0 name p3", "ip link set q3 name p0", "ip link set p0 up", "ip link set p3 up")}}}
}
