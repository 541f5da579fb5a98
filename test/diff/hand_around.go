// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// arp is an ARP message into a port.
func arp(port int, op uint16, mac []byte, sender, target string) []Packet {
	s, d := netip.MustParseAddr(sender).As4(), netip.MustParseAddr(target).As4()
	return in(port, lab.Packet(&layers.Ethernet{SrcMAC: mac, DstMAC: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}, &layers.ARP{
		AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
		SourceHwAddress: mac, SourceProtAddress: s[:], DstHwAddress: make([]byte, 6), DstProtAddress: d[:],
	}))
}

func arps() []Packet {
	return join(arp(0, 1, hostMAC(0, 0), h0, "10.0.0.1"), arp(0, 1, hostMAC(0, 0), h0, h1), arp(0, 1, hostMAC(0, 0), h0, "10.0.0.77"), arp(0, 1, hostMAC(0, 0), h0, "10.0.0.10"),
		arp(0, 1, hostMAC(0, 4), "10.0.0.44", "10.0.0.1"), arp(0, 2, hostMAC(0, 5), "10.0.0.45", "10.0.0.1"))
}

// neighbourTraps are about next hops: unresolved, resolved, moved, gone.
func neighbourTraps() []hand {
	dst := join(udp(0, h0, "10.0.1.50"), udp(0, h0v6, "fd00::2:0:0:0:50"))
	return []hand{
		{name: "neighbour-silent", why: "nobody answers: packets wait, then Linux says so", steps: []handStep{step(dst, "sysctl net/ipv4/neigh/p1/retrans_time_ms=50", "sysctl net/ipv4/neigh/p1/mcast_solicit=2"), step(nil, "sleep 600ms"), step(dst)}, reasons: []string{"no-neighbour"}},
		{name: "neighbour-answers", why: "resolved by the first packets, fast after that", reasons: []string{"no-neighbour", "fast"},
			steps: []handStep{step(dst, hostLine(1, "10.0.1.50", 6), hostLine(1, "fd00::2:0:0:0:50", 6)), step(dst), step(dst)}},
		{name: "neighbour-moves", why: "a stale MAC address would be a black hole: the host announces a new one, obeyed within the reaction bound", reasons: []string{"fast"},
			steps: []handStep{step(dst, hostLine(1, "10.0.1.50", 6), hostLine(1, "fd00::2:0:0:0:50", 6)), step(dst),
				atOnce(arp(1, 1, hostMAC(1, 7), "10.0.1.50", "10.0.1.1")), step(dst),
				atOnce(in(1, advertisement(hostMAC(1, 7), portMAC(1), netip.MustParseAddr("fd00::2:0:0:0:50"), netip.MustParseAddr("fd00::2:0:0:0:1"), 0x20))), step(dst)}},
		{name: "neighbour-replaced", why: "permanent entries changed by command, obeyed at once", reasons: []string{"fast"},
			steps: []handStep{step(some()), atOnce(some(), "ip neighbour replace 10.0.1.10 lladdr 02:00:00:01:02:0a dev p1 nud permanent", "ip neighbour replace fd00::2:0:0:0:10 lladdr 02:00:00:01:02:0a dev p1 nud permanent"),
				atOnce(some(), "ip neighbour del 10.0.1.10 dev p1"), atOnce(some(), "ip neighbour replace 10.0.1.10 lladdr 02:00:00:01:02:0b dev p1 nud stale")}},
		{name: "neighbour-moves-silently", why: "a host changes its MAC address without a word: Linux asks the neighbours that it uses, and shunt has to let it know which those are", reasons: []string{"fast"},
			steps: []handStep{
				// Without a delay before the first probe only a packet in the stale state makes the kernel ask; the pause lets earlier uses be forgotten.
				step(dst, hostLine(1, "10.0.1.50", 6), hostLine(1, "fd00::2:0:0:0:50", 6), "sysctl net/ipv4/neigh/p1/base_reachable_time_ms=300", "sysctl net/ipv6/neigh/p1/base_reachable_time_ms=300",
					"sysctl net/ipv4/neigh/p1/delay_first_probe_time=0", "sysctl net/ipv6/neigh/p1/delay_first_probe_time=0"),
				step(dst, "sleep 800ms"), step(dst, hostLine(1, "10.0.1.50", 7), hostLine(1, "fd00::2:0:0:0:50", 7), "sleep 2500ms"), step(dst, "sleep 1200ms")}},
		{name: "neighbour-learned-elsewhere", why: "entries that a routing daemon made are its own (extern_learn), also when shunt has Linux ask for those in use", reasons: []string{"fast"},
			steps: []handStep{step(join(udp(0, h0, "10.0.1.52"), udp(0, h0v6, "fd00::2:0:0:0:52")), "ip neighbour add 10.0.1.52 lladdr 02:00:00:01:02:0c dev p1 nud stale extern_learn protocol zebra",
				"ip neighbour add fd00::2:0:0:0:52 lladdr 02:00:00:01:02:0c dev p1 nud stale extern_learn protocol zebra"),
				step(nil, "sleep 1300ms", "ip neighbour show 10.0.1.52 dev p1", "ip neighbour show fd00::2:0:0:0:52 dev p1")}},
		{name: "neighbour-failed", why: "entries in every state", steps: []handStep{step(join(udp(0, h0, "10.0.1.51"), udp(0, h0, "10.0.1.52"), udp(0, h0, "10.0.1.53"), udp(0, h0, "10.0.1.54"), udp(0, h0, "10.0.1.55")),
			"ip neighbour add 10.0.1.51 dev p1 nud failed", "ip neighbour add 10.0.1.52 lladdr 02:00:00:01:02:0c dev p1 nud stale", "ip neighbour add 10.0.1.53 lladdr 02:00:00:01:02:0d dev p1 nud reachable",
			"ip neighbour add 10.0.1.54 lladdr 02:00:00:01:02:0e dev p1 nud noarp", "ip neighbour add 10.0.1.55 lladdr 02:00:00:01:02:0f dev p1 nud delay")}},
		// In a step of its own: Linux finishes new IPv6 addresses in a work item, and one that finds the flag changed may never install its route.
		{name: "noarp-device", why: "a device without ARP", steps: []handStep{step(some()), step(join(some(), dst), "ip link set p1 arp off")}},
		{name: "gateway-is-router", why: "routes through the router's own address", steps: []handStep{step(join(udp(0, h0, "10.5.1.1")), "ip route add 10.5.0.0/16 via 10.0.1.1"), step(udp(0, h0, "10.5.1.1"), "ip address add 10.0.1.10/24 dev p2")}},
	}
}

func hostLine(port int, addr string, n int) string {
	return fmt.Sprintf("host %d %s %s", port, addr, hostMAC(port, n))
}

// back are packets the other way, from p1 and p2 to p0.
func back() []Packet {
	return join(udp(1, "10.1.2.3", h0), udp(1, h1v6, h0v6), udp(2, "10.2.3.4", h0), udp(2, "2001:db8:2::7", h0v6), udp(1, "10.0.1.10", "10.2.3.4"))
}

// aroundTraps are about everything else that a forwarded packet may meet.
func aroundTraps() []hand {
	both := Excuse{IP4: true, IP6: true}
	nft := func(name, rules string, slow Excuse, reasons ...string) hand {
		return hand{name: "nft " + name, why: "netfilter: " + name, slow: slow, reasons: reasons, steps: []handStep{step(join(some(), services(), back()), append(to5(gw1, gw1v6), "nft "+rules)...)}}
	}
	shell := func(name string, slow Excuse, commands ...string) hand {
		return hand{name: name, why: name, slow: slow, steps: []handStep{step(join(some(), services(), sources(), back()), append(to5(gw1, gw1v6), commands...)...)}}
	}
	return []hand{
		nft("empty table", "table inet t { }", Excuse{}, "fast"),
		nft("empty chains", "table ip t { chain a { type filter hook prerouting priority raw; }; chain b { type filter hook forward priority 0; policy accept; }; chain c { type filter hook postrouting priority mangle; }; }", Excuse{}, "fast"),
		nft("input and output only", "table inet t { chain a { type filter hook input priority 0; udp dport 2000 drop; }; chain b { type filter hook output priority 0; icmp type echo-reply drop; }; }", Excuse{}, "fast"),
		nft("chain without hook", "table inet t { chain a { drop; }; set s { type ipv4_addr; elements = { 10.0.0.10 }; }; }", Excuse{}, "fast"),
		nft("forward drop", "table ip t { chain a { type filter hook forward priority 0; udp dport 2000 drop; }; }", both, "rule-drop", "fast"),
		nft("forward drop ip6", "table ip6 t { chain a { type filter hook forward priority 0; udp dport 2000 drop; }; }", both, "rule-drop", "fast"),
		nft("forward policy drop", "table inet t { chain a { type filter hook forward priority 0; policy drop; }; }", both, "rule-drop"),
		nft("forward reject", "table inet t { chain a { type filter hook forward priority 0; udp dport 2000 reject; }; }", both),
		nft("jump", "table inet t { chain u { udp dport 2000 drop; }; chain a { type filter hook forward priority 0; jump u; }; }", both),
		nft("prerouting drop", "table ip t { chain a { type filter hook prerouting priority raw; ip saddr 10.3.0.0/16 drop; }; }", Excuse{IP4: true}, "fast"),
		nft("prerouting mark", "table inet t { chain a { type filter hook prerouting priority mangle; ip dscp 4 meta mark set 1; meta mark set 1; }; }", Excuse{Rules: true}, "fast"),
		nft("postrouting mangle", "table inet t { chain a { type filter hook postrouting priority mangle; ip ttl set 9; }; }", both),
		nft("masquerade", "table ip t { chain a { type nat hook postrouting priority srcnat; oif p1 masquerade; }; }", Excuse{IP4: true}),
		nft("dnat", "table ip t { chain a { type nat hook prerouting priority dstnat; udp dport 53 dnat to 10.2.2.2; }; }", Excuse{IP4: true}),
		nft("empty nat chains", "table ip t { chain a { type nat hook postrouting priority srcnat; }; }", Excuse{IP4: true}),
		nft("conntrack", "table inet t { chain a { type filter hook forward priority 0; ct state invalid drop; }; }", both),
		nft("netdev ingress", "table netdev t { chain a { type filter hook ingress device p0 priority 0; udp dport 2000 drop; }; }", Excuse{Rules: true}, drop, "fast"),
		nft("netdev ingress empty", "table netdev t { chain a { type filter hook ingress device p0 priority 0; }; }", Excuse{}, "fast"),
		nft("netdev egress", "table netdev t { chain a { type filter hook egress device p1 priority 0; udp dport 2000 drop; }; }", Excuse{Rules: true}, drop, "fast"),
		nft("inet ingress", "table inet t { chain a { type filter hook ingress device p0 priority 0; udp dport 2000 drop; }; }", Excuse{Rules: true}, drop, "fast"),
		nft("arp and bridge", "table arp t { chain a { type filter hook input priority 0; drop; }; }", Excuse{}, "fast"),
		shell("iptables-legacy drop", Excuse{IP4: true}, "iptables-legacy -A FORWARD -p udp --dport 2000 -j DROP"),
		shell("iptables-legacy empty", Excuse{}, "iptables-legacy -L -n >/dev/null", "iptables-legacy -t mangle -L -n >/dev/null"),
		shell("iptables-legacy policy", Excuse{IP4: true}, "iptables-legacy -P FORWARD DROP"),
		shell("iptables-legacy input", Excuse{IP4: true}, "iptables-legacy -A INPUT -p udp -j DROP"),
		shell("ip6tables-legacy drop", Excuse{IP6: true}, "ip6tables-legacy -A FORWARD -p udp --dport 2000 -j DROP"),
		shell("iptables-legacy raw", Excuse{IP4: true}, "iptables-legacy -t raw -A PREROUTING -s 10.3.0.0/16 -j DROP"),
		shell("iptables-nft ttl", Excuse{IP4: true}, "iptables-nft -t mangle -A POSTROUTING -o p1 -j TTL --ttl-set 33"),
		shell("xfrm block", both, "ip xfrm policy add src 10.0.0.0/8 dst 10.5.0.0/16 dir fwd action block"),
		shell("xfrm out block", both, "ip xfrm policy add src 10.0.0.0/8 dst 10.5.0.0/16 dir out action block"),
		shell("xfrm default block", both, "ip xfrm policy setdefault fwd block"),
		shell("xfrm transport", both, "ip xfrm policy add src 10.0.0.0/24 dst 10.5.0.0/16 dir out tmpl proto esp mode transport", "ip xfrm state add src 10.0.0.10 dst 10.5.1.1 proto esp spi 1 mode transport enc 'cipher_null' '' auth 'hmac(sha1)' 0x0102030405060708090a0b0c0d0e0f1011121314"),
		shell("tbf", Excuse{Out: []int{1}}, "tc qdisc add dev p1 root tbf rate 1gbit burst 128k latency 400ms"),
		shell("clsact", Excuse{}, "tc qdisc add dev p0 clsact"),
		shell("ingress qdisc", Excuse{}, "tc qdisc add dev p0 ingress"),
		shell("carrier", Excuse{In: []int{2}, Out: []int{2}}, "ip link set p2 down"),
		{name: "tbf-xdp", why: "the redirect target is not in the table: the packet must go up untouched (commit point)", hooks: []string{"xdp"}, slow: Excuse{Out: []int{1}},
			steps: []handStep{step(some(), "tc qdisc add dev p1 root tbf rate 1gbit burst 128k latency 400ms")}, reasons: []string{"egress-slow", "fast"}},
	}
}

// changeTraps are changes under traffic: from the command's return on, or within the reaction bound, answers agree.
func changeTraps() []hand {
	all := join(some(), services(), udp(1, "10.0.1.10", h0), udp(1, "fd00::2:0:0:0:10", h0v6))
	with5 := to5(gw1, gw1v6)
	type change struct {
		name string
		slow Excuse
		do   [][]string
	}
	both := Excuse{IP4: true, IP6: true}
	var out []hand
	for _, c := range []change{
		{"route", Excuse{}, [][]string{{"ip route replace 10.5.0.0/16 via 10.0.2.10", "ip route replace 2001:db8:5::/48 via fd00::3:0:0:0:10"}, {"ip route add blackhole 10.5.1.0/24", "ip route add blackhole 2001:db8:5::/64"},
			{"ip route del blackhole 10.5.1.0/24", "ip route del blackhole 2001:db8:5::/64"}, {"ip route del 10.5.0.0/16", "ip route del 2001:db8:5::/48"}}},
		{"rule", Excuse{IP4: true}, [][]string{{"ip rule add pref 50 to 10.5.0.0/16 prohibit", "ip -6 rule add pref 50 to 2001:db8:5::/48 prohibit"}, {"ip rule del pref 50", "ip -6 rule del pref 50"}, {"ip rule add pref 60 from 10.0.0.0/24 blackhole"}}},
		{"port-rule", Excuse{Ports: true, IP4: true}, [][]string{{"ip rule add pref 50 ipproto udp dport 53 prohibit", "ip -6 rule add pref 50 ipproto udp dport 53 prohibit"}, {"ip rule del pref 50", "ip -6 rule del pref 50"}}},
		{"address", Excuse{}, [][]string{{"ip address add 10.5.1.1/32 dev p2", "ip address add 2001:db8:5::1/128 dev p2 nodad"}, {"ip address del 10.5.1.1/32 dev p2", "ip address del 2001:db8:5::1/128 dev p2"}}},
		{"own-source", Excuse{}, [][]string{{"ip address add 10.0.0.10/32 dev lo"}, {"ip address del 10.0.0.10/32 dev lo"}}},
		{"rp-filter", Excuse{}, [][]string{{"ip route add 10.0.0.10/32 via 10.0.2.10"}, {"sysctl net.ipv4.conf.p0.rp_filter=1"}, {"sysctl net.ipv4.conf.p0.rp_filter=2"}, {"sysctl net.ipv4.conf.p0.rp_filter=0"}, {"sysctl net.ipv4.conf.all.rp_filter=1"}, {"sysctl net.ipv4.conf.all.rp_filter=0"}}},
		{"forwarding", both, [][]string{{"sysctl net.ipv4.conf.p0.forwarding=0"}, {"sysctl net.ipv4.conf.p0.forwarding=1"}, {"sysctl net.ipv6.conf.all.forwarding=0"}, {"sysctl net.ipv6.conf.all.forwarding=1"}}},
		{"nft", both, [][]string{{"nft table inet t { chain a { type filter hook forward priority 0; udp dport 2000 drop; }; }"}, {"nft add rule inet t a tcp dport 2000 drop"}, {"nft flush chain inet t a"}, {"nft add rule inet t a drop"}, {"nft flush ruleset"}}},
		{"nft-existing-chain", both, [][]string{{"nft table inet t { chain a { type filter hook forward priority 0; }; }"}, {"nft add rule inet t a udp dport 2000 drop"}}},
		{"nft-prerouting", both, [][]string{{"nft table ip t { chain a { type filter hook prerouting priority raw; udp dport 2000 drop; }; }"}, {"nft delete table ip t"}, {"nft table ip6 t { chain a { type filter hook postrouting priority 0; udp dport 2000 drop; }; }"}}},
		{"iptables-legacy", both, [][]string{{"iptables-legacy -I FORWARD -p udp --dport 2000 -j DROP"}, {"ip6tables-legacy -I FORWARD -p udp --dport 2000 -j DROP"}, {"iptables-legacy -F FORWARD"}, {"iptables-legacy -I FORWARD -p udp --dport 53 -j DROP"}}},
		{"mtu", Excuse{}, [][]string{{"ip link set p1 mtu 1280"}, {"ip link set p1 mtu 1500"}}},
		{"link", Excuse{Out: []int{1}, In: []int{1}}, [][]string{{"ip link set p1 down"}, {"ip link set p1 up", "ip neighbour replace 10.0.1.10 lladdr 02:00:00:01:02:02 dev p1 nud permanent", "ip route replace 10.5.0.0/16 via 10.0.1.10"}}},
		{"mac", Excuse{In: []int{0}}, [][]string{{"ip link set p0 address 02:00:00:00:77:77"}, {"ip link set p0 address 02:00:00:00:01:01"}}},
		{"egress-mac", Excuse{}, [][]string{{"ip link set p1 address 02:00:00:00:77:78"}}},
		{"xfrm", both, [][]string{{"ip xfrm policy add src 10.0.0.0/8 dst 10.5.0.0/16 dir fwd action block"}, {"ip xfrm policy flush"}, {"ip xfrm policy add src 10.0.0.0/8 dst 10.5.0.0/16 dir out action block"}, {"ip xfrm policy flush"}}},
		{"qdisc", Excuse{Out: []int{1}}, [][]string{{"tc qdisc add dev p1 root tbf rate 1gbit burst 128k latency 400ms"}, {"tc qdisc del dev p1 root"}}},
		{"multipath", Excuse{}, [][]string{{"ip route replace 10.5.0.0/16 nexthop via 10.0.1.10 nexthop via 10.0.2.10"}, {"ip route replace 10.5.0.0/16 via 10.0.1.10"}}},
		{"hash-policy", Excuse{Prefixes: net5}, [][]string{{"ip route replace 10.5.0.0/16 nexthop via 10.0.1.10 nexthop via 10.0.2.10"}, {"sysctl net.ipv4.fib_multipath_hash_policy=1"}, {"sysctl net.ipv4.fib_multipath_hash_policy=0"}}},
		{"route-mtu", Excuse{Prefixes: net5}, [][]string{{"ip route replace 10.5.0.0/16 via 10.0.1.10 mtu 600"}, {"ip route replace 10.5.0.0/16 via 10.0.1.10"}}},
		{"socket", Excuse{In: []int{0}, Out: []int{0}}, [][]string{{"listen p0 all"}, {"unlisten"}}},
	} {
		packets := all
		if c.name == "mtu" || c.name == "route-mtu" {
			packets = join(all, sizes(1281), sized(0, h0, "10.5.1.1", 601), sized(0, h0, "10.5.1.1", 601, lab.FragmentField(2, 0)))
		}
		if c.name == "multipath" || c.name == "hash-policy" {
			packets = join(all, manyFlows(10))
		}
		h := hand{name: "change " + c.name, why: "change under traffic: " + c.name, slow: c.slow, steps: []handStep{step(packets, with5...)}}
		for _, do := range c.do {
			h.steps = append(h.steps, step(packets, do...))
		}
		out = append(out, h)
	}
	// What a generation guard covers must hold from the very next packet on; so must what the kernel's own tables say.
	at := hand{name: "at once", why: "routes, neighbours, rules, addresses and reverse path filters hold from the next packet on", steps: []handStep{step(all, with5...)}, slow: both}
	for _, do := range [][]string{
		{"ip route replace 10.5.0.0/16 via 10.0.2.10"}, {"ip route add blackhole 10.1.0.0/17"}, {"ip route del blackhole 10.1.0.0/17"}, {"ip rule add pref 50 to 10.5.0.0/16 prohibit"}, {"ip rule del pref 50"},
		{"ip address add 10.0.0.10/32 dev lo"}, {"ip address del 10.0.0.10/32 dev lo"}, {"ip route add 10.0.0.10/32 via 10.0.2.10", "sysctl net.ipv4.conf.p0.rp_filter=1"}, {"sysctl net.ipv4.conf.p0.rp_filter=0"}, {"sysctl net.ipv4.conf.all.rp_filter=1"},
		{"nft table ip t { chain a { type filter hook forward priority 0; udp dport 2000 drop; }; }"}, {"nft add rule ip t a tcp dport 2000 drop"}, {"nft flush ruleset"},
		{"nft table ip6 t { chain a { type filter hook forward priority 0; udp dport 2000 drop; }; }"}, {"nft flush ruleset"}, {"nft table ip t { chain a { type filter hook prerouting priority 0; udp dport 2000 drop; }; }"}, {"nft flush ruleset"},
		{"nft table ip6 t { chain a { type filter hook postrouting priority 0; udp dport 2000 drop; }; }"}, {"nft flush ruleset"}, {"nft table ip t { chain a { type filter hook postrouting priority 0; udp dport 2000 drop; }; }"}, {"nft flush ruleset"},
		{"nft table ip6 t { chain a { type filter hook prerouting priority 0; udp dport 2000 drop; }; }"}, {"nft flush ruleset"}, {"ip xfrm policy add src 10.0.0.0/8 dst 10.5.0.0/16 dir fwd action block"}, {"ip xfrm policy flush"}, {"ip xfrm policy add src 10.0.0.0/8 dst 10.5.0.0/16 dir out action block"}, {"ip xfrm policy flush"},
		{"ip xfrm policy add src 2001:db8::/32 dst 2001:db8:5::/48 dir out action block"}, {"ip xfrm policy flush"},
		{"ip -6 rule add pref 50 to 2001:db8:5::/48 prohibit"}, {"ip -6 rule del pref 50"}, {"sysctl net.ipv6.conf.all.forwarding=0"},
	} {
		at.steps = append(at.steps, atOnce(all, do...))
	}
	cold := hand{name: "frozen", why: "shunt's process is stopped while Linux changes: what the kernel's tables and the guards say holds all the same", steps: []handStep{step(all, with5...)}, slow: both, reasons: []string{"fast", "stale"}}
	for _, do := range [][]string{
		{"ip route replace 10.5.0.0/16 via 10.0.2.10"}, {"ip route replace 2001:db8:5::/48 via fd00::3:0:0:0:10"}, {"ip route add blackhole 10.1.0.0/17"}, {"ip route add blackhole 2001:db8:1::/52"}, {"ip route del blackhole 10.1.0.0/17"},
		{"ip route replace 10.5.0.0/16 nexthop via 10.0.1.10 nexthop via 10.0.2.10"}, {"ip link set p1 mtu 1300"}, {"ip rule add pref 50 to 10.5.0.0/16 prohibit"}, {"ip rule del pref 50"}, {"ip address add 10.0.0.10/32 dev lo"}, {"ip address del 10.0.0.10/32 dev lo"},
		{"sysctl net.ipv4.conf.all.rp_filter=1"}, {"nft table inet t { chain a { type filter hook forward priority 0; udp dport 2000 drop; }; }"}, {"nft flush ruleset"},
		{"ip xfrm policy add src 10.0.0.0/8 dst 10.5.0.0/16 dir out action block"}, {"ip xfrm policy flush"}, {"ip xfrm policy add src 10.0.0.0/8 dst 10.5.0.0/16 dir fwd action block"}, {"ip xfrm policy flush"},
		{"sysctl net.ipv6.conf.p0.forwarding=0"}, {"sysctl net.ipv6.conf.p0.forwarding=1"}, {"sysctl net.ipv4.conf.p0.forwarding=0"}, {"sysctl net.ipv6.conf.all.forwarding=0"},
	} {
		cold.steps = append(cold.steps, frozen(join(all, sizes(1301)), do...), step(all))
	}
	return append(out, at, cold, frozenLegacy(all), frozenNexthops(), frozenAlone("4", "sysctl net.ipv6.conf.all.forwarding=0", "sysctl net.ipv4.conf.p0.rp_filter=1"),
		frozenAlone("6", "sysctl net.ipv4.ip_forward=0", "sysctl net.ipv6.conf.p0.disable_ipv6=1"), hand{name: "watchdog", why: "what no guard covers is obeyed when shunt has been silent for a while: a filter behind an XDP redirect", slow: both, reasons: []string{"fast", "watchdog"},
			steps: []handStep{step(join(tosTo5(), everyTOS()), with5...), frozen(join(tosTo5(), everyTOS()), "drop-priority 1 2", "sleep 700ms"), step(join(tosTo5(), everyTOS()))}})
}

// frozenLegacy registers one old table after the other, of each family and hook, while shunt is stopped: no nf_tables generation tells.
func frozenLegacy(packets []Packet) hand {
	h := hand{name: "frozen-legacy", why: "the first rule of an old table, while shunt's process is stopped", slow: Excuse{IP4: true, IP6: true}, reasons: []string{"fast", "stale"}, steps: []handStep{step(packets, to5(gw1, gw1v6)...)}}
	for _, table := range []string{"iptables-legacy -t raw %s PREROUTING", "ip6tables-legacy -t raw %s PREROUTING", "iptables-legacy -t filter %s FORWARD", "ip6tables-legacy -t filter %s FORWARD"} {
		h.steps = append(h.steps, frozen(packets, fmt.Sprintf(table, "-A")+" -p udp --dport 2000 -j DROP"), step(packets), step(packets, fmt.Sprintf(table, "-F")))
	}
	return h
}

// frozenNexthops changes nexthop objects under routes, alone and in groups.
func frozenNexthops() hand {
	return hand{name: "frozen-nexthops", why: "nexthop objects change while shunt's process is stopped", reasons: []string{"fast"}, steps: []handStep{
		step(manyFlows(10), "ip nexthop add id 1 via 10.0.1.10 dev p1", "ip nexthop add id 2 via 10.0.2.10 dev p2", "ip nexthop add id 9 group 2", "ip nexthop add id 21 via fd00::2:0:0:0:10 dev p1",
			"ip nexthop add id 22 via fd00::3:0:0:0:10 dev p2", "ip nexthop add id 29 group 22", "ip route add 10.5.0.0/16 nhid 1", "ip route add 2001:db8:5::/48 nhid 21"),
		frozen(manyFlows(10), "ip nexthop replace id 1 via 10.0.2.11 dev p2"), step(manyFlows(10)), frozen(manyFlows(10), "ip nexthop replace id 21 via fd00::3:0:0:0:11 dev p2"), step(manyFlows(10)),
		step(manyFlows(10), "ip route replace 10.5.0.0/16 nhid 9", "ip route replace 2001:db8:5::/48 nhid 29"), frozen(manyFlows(10), "ip nexthop replace id 2 via 10.0.1.11 dev p1"), step(manyFlows(10)),
		frozen(manyFlows(10), "ip nexthop replace id 22 via fd00::2:0:0:0:11 dev p1")}}
}

// Hands are all cases written by hand.
func Hands() []hand {
	var out []hand
	for _, list := range [][]hand{packetTraps(), routeTraps(), policyTraps(), markTraps(), neighbourTraps(), aroundTraps(), listenerTraps(), foreignTraps(), socketTraps(), exoticTraps(), reasonTraps(), changeTraps(), ruleTraps(), ipsetTraps(), stackedTraps(), lowerTraps(), trackTraps(), manyRules(), natTraps(), learnedTraps(), resets(),
		bridgeTraps(), bridgePortTraps(), bridgeFrozenTraps(), bridgeAroundTraps(), bridgeNetfilterTraps(), bridgeSwitchTraps(), bridgeChainTraps(), bridgeVLANTraps(), overlayTraps(), overlayBridgeTraps(), overlayFaultTraps(), overlayFlagTraps(), hookTraps(), offloadedTraps()} {
		out = append(out, list...)
	}
	return out
}

// frozenAlone has one family fast: what only a generation tells, and what only a word of the device tells, change while shunt is stopped.
func frozenAlone(family, off, device string) hand {
	packets := join(sources(), some(), services())
	return hand{name: "frozen-alone-" + family, why: "one family is fast alone, and shunt's process stopped", slow: Excuse{IP4: true, IP6: true}, reasons: []string{"fast", "stale"}, steps: []handStep{
		step(packets, append(to5(gw1, gw1v6), off, "nft table inet t { chain a { type filter hook forward priority 0; }; }")...), frozen(packets, "nft add rule inet t a udp dport 2000 drop"),
		step(packets, "nft flush ruleset"), frozen(packets, device), step(packets)}}
}
