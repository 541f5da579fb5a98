// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// natTable has two chains of type nat, with these rules.
func natTable(family, pre, post string) string {
	return "nft table " + family + " gw { chain pre { type nat hook prerouting priority dstnat; " + pre + "; }; chain post { type nat hook postrouting priority srcnat; " + post + "; }; }"
}

// Ways to be translated.
var (
	masqueraded4 = talk{client: "10.0.0.11", server: "10.1.2.3", port: 1000, seen: "10.0.1.1"}
	masqueraded6 = talk{client: "fd00::1:0:0:0:11", server: "2001:db8:1::9", port: 1000, seen: "fd00::2:0:0:0:1"}
	published4   = talk{client: h0, server: "10.0.0.1", port: 1000, dport: 8080, real: "10.1.2.3", realPort: 80}
	published6   = talk{client: h0v6, server: "fd00::1:0:0:0:1", port: 1000, dport: 8080, real: "2001:db8:1::9", realPort: 80}
	both4        = talk{client: h0, server: "10.0.0.1", port: 1000, dport: 8080, real: "10.1.2.3", realPort: 80, seen: "10.0.1.77", seenPort: 4000}
	both6        = talk{client: h0v6, server: "fd00::1:0:0:0:1", port: 1000, dport: 8080, real: "2001:db8:1::9", realPort: 80, seen: "fd00::2:0:0:0:77", seenPort: 4000}
)

var (
	masquerades = natTable("inet", "counter", "oifname p1 counter masquerade")
	publishes4  = natTable("ip", "tcp dport 8080 dnat to 10.1.2.3:80", "counter")
	publishes6  = natTable("ip6", "tcp dport 8080 dnat to [2001:db8:1::9]:80", "counter")
	doesBoth4   = natTable("ip", "tcp dport 8080 dnat to 10.1.2.3:80", "tcp dport 80 snat to 10.0.1.77:4000")
	doesBoth6   = natTable("ip6", "tcp dport 8080 dnat to [2001:db8:1::9]:80", "tcp dport 80 snat to [fd00::2:0:0:0:77]:4000")
)

// Services as kube-proxy writes them, in its modes iptables and nftables: a web server at a cluster address and at a port of the node, whose one endpoint is on another node; without
// drawing source ports, since the twins would draw apart.
var (
	ofPod     = talk{client: "10.3.0.9", server: "10.43.0.80", port: 1000, real: "10.1.0.2", realPort: 8080}
	ofOutside = talk{client: h0, server: "10.0.0.1", port: 1000, dport: 30080, real: "10.1.0.2", realPort: 8080, seen: "10.0.1.1"}
	services4 = nftFile("table ip kube-proxy {", "set cluster-ips { type ipv4_addr; elements = { 10.43.0.1, 10.43.0.80 }; }", "set nodeport-ips { type ipv4_addr; elements = { 10.0.0.1 }; }",
		"map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }", "map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict; }",
		"chain web { meta l4proto tcp dnat ip to numgen random mod 1 map { 0 : 10.1.0.2 . 8080 }; }", "chain web-external { meta mark set meta mark | 0x4000; goto web; }",
		"map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.43.0.80 . tcp . 80 : goto web }; }", "map service-nodeports { type inet_proto . inet_service : verdict; elements = { tcp . 30080 : goto web-external }; }",
		"chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips; }", "chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }",
		"chain cluster-ips-check { ip daddr @cluster-ips reject; ip daddr 10.43.0.0/16 drop; }",
		"chain services { ip daddr @cluster-ips ip saddr != 10.3.0.0/16 meta mark set meta mark | 0x4000; ip daddr . meta l4proto . th dport vmap @service-ips; ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports; }",
		"chain masquerading { meta mark & 0x4000 != 0 meta mark set meta mark ^ 0x4000 masquerade; }",
		"chain filter-prerouting-pre-dnat { type filter hook prerouting priority dstnat - 10; ct state new jump firewall-check; }",
		"chain filter-forward { type filter hook forward priority filter; ct state new jump service-endpoints-check; ct state new jump cluster-ips-check; }",
		"chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }", "chain nat-postrouting { type nat hook postrouting priority srcnat; jump masquerading; }", "}")
)

func servicesByTables(tool string) []string {
	return []string{
		restore(tool, "filter", ":FORWARD DROP [0:0]; :KUBE-FORWARD - [0:0]; :KUBE-PROXY-FIREWALL - [0:0]; :KUBE-SERVICES - [0:0]", "-A FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL", `-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`,
			"-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES", "-A FORWARD -s 10.3.0.0/16 -j ACCEPT", "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP", "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT", "-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
		restore(tool, "nat", ":PREROUTING ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]; :KUBE-MARK-MASQ - [0:0]; :KUBE-NODEPORTS - [0:0]; :KUBE-POSTROUTING - [0:0]; :KUBE-SEP - [0:0]; :KUBE-SERVICES - [0:0]; :KUBE-EXT - [0:0]; :KUBE-SVC - [0:0]",
			"-A PREROUTING -j KUBE-SERVICES", "-A POSTROUTING -j KUBE-POSTROUTING", "-A KUBE-EXT -j KUBE-MARK-MASQ", "-A KUBE-EXT -j KUBE-SVC", "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000", "-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT",
			"-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN", "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0", "-A KUBE-POSTROUTING -j MASQUERADE", "-A KUBE-SEP -s 10.1.0.2/32 -j KUBE-MARK-MASQ", "-A KUBE-SEP -p tcp -m tcp -j DNAT --to-destination 10.1.0.2:8080",
			"-A KUBE-SERVICES -d 10.43.0.80/32 -p tcp -m tcp --dport 80 -j KUBE-SVC", "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS", "-A KUBE-SVC ! -s 10.3.0.0/16 -d 10.43.0.80/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ", "-A KUBE-SVC -j KUBE-SEP"),
	}
}

// datagrams are a UDP conversation until Linux is sure of it, and then what either side sends.
func (c talk) datagrams(do []string, payloads []string, edits ...lab.Edit) []handStep {
	say := func(server bool) (out []Packet) {
		for _, payload := range payloads {
			port, f := c.flow(server)
			out = append(out, in(port, lab.Edited(f.UDP(payload), edits...))...)
		}
		return out
	}
	return []handStep{step(say(false), do...), step(say(true)), step(nil, "sleep 2100ms"), step(say(false)), step(say(true)), step(say(false)), step(say(true))}
}

// natTraps are about connections that are translated.
func natTraps() []hand {
	both := Excuse{IP4: true, IP6: true}
	conversation := func(name string, c talk, do ...string) hand {
		return hand{name: "nat " + name, why: "a translated connection from its beginning to its end: addresses, ports and checksums as Linux writes them", slow: both, loads: true,
			reasons: []string{"fast", "conntrack-flags", "conntrack-window", "conntrack-state"},
			steps: append(c.begins(do...), step(c.data(10, 141, 501)), step(c.says(true, "PA", 501, 151, strings.Repeat("y", 1400))), step(c.says(true, "A", 1901, 151, "")),
				step(join(c.says(false, "PA", 151, 1901, "odd"), c.says(false, "PA", 154, 1901, strings.Repeat("z", 511), lab.TTL(2)), c.says(false, "PA", 665, 1901, "t", lab.TTL(1)))),
				step(join(c.says(true, "PA", 1901, 154, "bad", lab.L4(16, 0x12, 0x34)), c.says(true, "PA", 1901, 154, "good", lab.TTL(255)))),
				step(c.says(false, "FA", 665, 1905, "")), step(c.says(true, "FA", 1905, 666, "")), step(c.data(5, 666, 1906)), step(c.says(true, "R", 1906, 0, "")), step(c.data(5, 671, 1906)))}
	}
	goesOn := func(name, why string, c talk, do []string, reasons []string, more ...handStep) hand {
		return hand{name: "nat " + name, why: why, slow: both, loads: true, reasons: reasons, steps: slices.Concat(c.begins(do...), []handStep{step(c.data(5, 141, 501))}, more)}
	}
	asItIs := func(name, also string, c talk, moves string, do ...string) hand {
		port, f := c.flow(false)
		more := in(port, f.UDP("and"), f.UDP("more"))
		return hand{name: "nat " + name, why: "masqueraded for the address that it has, a connection is bound to its device like any other: Linux ends it when the route leads elsewhere", slow: both, loads: true,
			reasons: slices.DeleteFunc([]string{also, "conntrack-nat"}, func(r string) bool { return r == "" }), steps: append(c.datagrams(do, []string{"asks"}), step(more), step(more, moves), step(more))}
	}
	words := []string{"x", "odd", strings.Repeat("even", 100)}
	fast, left := []string{"fast"}, []string{"fast", "conntrack-nat"}
	return []hand{
		conversation("masquerade", masqueraded4, masquerades), conversation("masquerade ip6", masqueraded6, masquerades),
		conversation("dnat", published4, publishes4), conversation("dnat ip6", published6, publishes6),
		conversation("both", both4, doesBoth4), conversation("both ip6", both6, doesBoth6),
		conversation("legacy", both4, "iptables-legacy -t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 10.1.2.3:80", "iptables-legacy -t nat -A POSTROUTING -p tcp --dport 80 -j SNAT --to-source 10.0.1.77:4000"),
		conversation("netmap", talk{client: h0, server: "10.1.2.3", port: 1000, seen: "10.0.77.10"}, "iptables -t nat -A POSTROUTING -s 10.0.0.0/24 -j NETMAP --to 10.0.77.0/24"),
		conversation("service nft", ofPod, services4), conversation("service of the node nft", ofOutside, services4),
		conversation("service legacy", ofPod, servicesByTables("iptables-legacy")...), conversation("service of the node", ofOutside, servicesByTables("iptables-nft")...),
		{name: "nat udp", why: "datagrams are translated once Linux is sure of their connection; a checksum of zero stays", slow: both, reasons: fast, loads: true,
			steps: slices.Concat(masqueraded4.datagrams([]string{masquerades}, words), talk{client: "10.0.0.11", server: "10.1.2.3", port: 1001, seen: "10.0.1.1"}.datagrams(nil, words, lab.L4(6, 0, 0)))},
		{name: "nat udp ip6", why: "the same, where there is no header checksum", slow: both, reasons: fast, loads: true, steps: masqueraded6.datagrams([]string{masquerades}, words)},
		goesOn("rules", "rules before the translation see the packet as it came, those behind it the new destination and the old source", both4, []string{doesBoth4,
			"nft table ip f { chain m { type filter hook prerouting priority mangle; ip daddr 10.0.0.1 tcp dport 8080 counter; ip daddr 10.1.2.3 counter; ip daddr 10.0.1.77 counter; }; chain f { type filter hook forward priority 1; ip daddr 10.1.2.3 tcp dport 80 counter; ip saddr 10.0.0.10 tcp sport 1000 counter; ip saddr 10.0.1.77 counter; ip saddr 10.1.2.3 tcp sport 80 ip daddr 10.0.0.10 tcp dport 1000 counter; tcp dport 8080 counter drop; ct status dnat counter; ct status snat counter; }; chain p { type filter hook postrouting priority mangle; ip saddr 10.0.0.10 counter; tcp sport 80 counter; tcp sport 8080 counter; }; }",
			"iptables -A FORWARD -m conntrack --ctstate DNAT", "iptables -A FORWARD -m conntrack --ctstate SNAT,NEW", "iptables -A FORWARD -m conntrack ! --ctstate DNAT -j DROP"},
			fast, step(both4.says(true, "PA", 501, 146, "back")), atOnce(both4.data(5, 146, 505), "nft add rule ip f f ip daddr 10.1.2.3 tcp dport 80 drop"), step(both4.data(5, 151, 505)), step(both4.says(true, "PA", 505, 146, "back"))),
		goesOn("covered", "what a rule before the translation drops by receiver says nothing of what is translated to that receiver, and a rule behind it is no less asked for", both4, []string{doesBoth4,
			"nft table ip f { chain m { type filter hook prerouting priority mangle; ip daddr 10.1.0.0/16 counter drop; }; chain f { type filter hook forward priority 1; policy drop; ip daddr 10.1.2.3 counter accept; ip saddr 10.1.2.3 counter accept; }; }"},
			fast, step(both4.says(true, "PA", 501, 146, "back")), atOnce(both4.data(5, 146, 505), "nft insert rule ip f f ip daddr 10.1.2.3 tcp dport 80 counter drop"), step(both4.data(5, 151, 505)), step(both4.says(true, "PA", 505, 146, "back"))),
		goesOn("behind", "rules that stand behind the translation see the packet otherwise: that is Linux's", both4, []string{doesBoth4}, left,
			step(both4.data(5, 146, 501), "nft table ip f { chain p { type filter hook prerouting priority 0; ip daddr 10.1.2.3 counter; ip daddr 10.0.0.1 counter drop; }; }"),
			step(both4.data(5, 151, 501), "nft delete table ip f"), step(both4.data(5, 156, 501), "nft table ip f { chain p { type filter hook postrouting priority 101; ip saddr 10.0.1.77 counter; }; }")),
		goesOn("beside", "rules behind the translation that do not ask for what it changes are asked of the packet as it came, until one does", both4, []string{doesBoth4,
			"nft table inet f { chain help { }; chain none { tcp flags & (fin|syn) == fin|syn counter drop; }; chain p { type filter hook prerouting priority 0; iifname p0 jump help; meta nfproto ipv6 ip6 daddr 2001:db8:1::9 counter drop; ip saddr 10.0.0.10 counter; ct state invalid drop; jump none; counter; }; chain o { type filter hook postrouting priority 110; ip daddr 10.1.2.3 tcp dport 80 counter; ip daddr 10.0.0.1 counter drop; counter; }; }"},
			fast, step(both4.says(true, "PA", 501, 146, "back")), step(both4.data(5, 146, 505)), atOnce(both4.data(5, 151, 505), "nft add rule inet f help ip daddr 10.1.2.3 counter"), step(both4.data(5, 156, 505)), step(both4.says(true, "PA", 505, 161, "back")),
			atOnce(both4.data(5, 161, 509), "nft flush chain inet f help"), step(both4.data(5, 166, 509)), atOnce(both4.says(true, "PA", 509, 171, "back"), "nft add rule inet f o ip saddr 10.0.1.77 counter"), step(both4.data(5, 171, 513)), atOnce(both4.data(5, 176, 513), "nft add rule inet f p ip daddr 10.1.2.3 drop"), step(both4.data(5, 176, 513))),
		goesOn("beside ip6", "the same for IPv6, with a check of the route to the sender, as firewalld has it", masqueraded6, []string{masquerades,
			"nft table inet f { chain p { type filter hook prerouting priority 10; icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept; meta nfproto ipv6 fib saddr . mark . iif oif missing drop; }; }"},
			fast, step(masqueraded6.says(true, "PA", 501, 146, "back")), step(masqueraded6.data(5, 146, 505))),
		goesOn("beside the way back", "the same for IPv4, with NixOS's check", masqueraded4, []string{masquerades, restore("iptables-nft", "mangle", ":PREROUTING ACCEPT [0:0]; :nixos-fw-rpfilter - [0:0]", "-A PREROUTING -j nixos-fw-rpfilter", "-A nixos-fw-rpfilter -m rpfilter --validmark -j RETURN", "-A nixos-fw-rpfilter -j DROP")},
			fast, step(masqueraded4.says(true, "PA", 501, 146, "back")), step(masqueraded4.data(5, 146, 505))),
		goesOn("egress", "chains where a device takes packets see the new destination; what asks for the new source is Linux's", both4, []string{doesBoth4,
			"nft table netdev e { chain e { type filter hook egress devices = { p0, p1 } priority 0; ip daddr 10.1.2.3 tcp dport 80 counter; ip daddr 10.0.0.1 counter drop; ip daddr 10.0.0.10 tcp dport 1000 counter; ip ttl 63 counter; }; }"},
			[]string{"fast", "egress-slow"}, step(both4.says(true, "PA", 501, 146, "back")), step(both4.data(5, 146, 505), "nft add rule netdev e e ip daddr 10.1.2.3 tcp dport 80 drop"), step(both4.says(true, "PA", 505, 146, "back")),
			step(both4.data(5, 151, 509), "nft flush chain netdev e e", "nft add rule netdev e e ip saddr 10.0.1.77 counter"), step(both4.says(true, "PA", 509, 156, "back"))),
		goesOn("flushed", "without chains of type nat Linux translates no more, though it still knows of the connection", both4, []string{doesBoth4, "nft table ip track { chain f { type filter hook forward priority 0; ct state established counter; }; }"}, left,
			atOnce(both4.data(5, 146, 501), "nft delete table ip gw"), step(both4.data(5, 151, 501)), step(both4.says(true, "PA", 501, 146, "back")), atOnce(both4.data(5, 156, 501), doesBoth4), step(both4.data(5, 161, 501))),
		goesOn("moved", "a masqueraded connection whose route leads elsewhere is ended by Linux; one that has a fixed source is not", masqueraded4, []string{masquerades}, left,
			atOnce(masqueraded4.data(3, 146, 501), "ip route replace 10.1.0.0/16 via 10.0.2.10"), step(masqueraded4.data(3, 149, 501)), step(masqueraded4.data(3, 152, 501), "ip route replace 10.1.0.0/16 via 10.0.1.10")),
		goesOn("moved fixed", "the same with a fixed source", both4, []string{doesBoth4}, fast, atOnce(both4.data(3, 146, 501), "ip route replace 10.1.0.0/16 via 10.0.2.10"), step(both4.data(3, 149, 501))),
		asItIs("masquerade as it is", "", talk{client: "10.0.1.1", server: "10.1.2.3", port: 1000}, "ip route replace 10.1.0.0/16 via 10.0.2.10", masquerades, "sysctl net.ipv4.conf.all.accept_local=1"),
		asItIs("masquerade as it is, ip6", "", talk{client: "fd00::2:0:0:0:1", server: "2001:db8:1::9", port: 1000}, "ip -6 route replace 2001:db8:1::/48 via fd00::3:0:0:0:10", masquerades),
		asItIs("masquerade as it is, published", "fast", talk{client: "10.0.1.1", server: "10.0.0.1", port: 1000, dport: 8080, real: "10.1.2.3", realPort: 80}, "ip route replace 10.1.0.0/16 via 10.0.2.10",
			natTable("inet", "udp dport 8080 dnat ip to 10.1.2.3:80", "oifname p1 masquerade"), "sysctl net.ipv4.conf.all.accept_local=1"),
		goesOn("routed", "reverse paths and policy rules see the new destination and the old source", both4, []string{doesBoth4, "sysctl net.ipv4.conf.all.rp_filter=1", "ip rule add pref 50 to 10.1.2.3 ipproto tcp dport 80 lookup 77", "ip route add 10.1.2.3 via 10.0.2.10 table 77", "ip rule add pref 51 to 10.0.0.1 ipproto tcp dport 8080 blackhole"}, fast,
			step(both4.data(3, 146, 501), "ip rule del pref 50"), step(both4.says(true, "PA", 501, 149, "back")), step(both4.data(3, 149, 505), "ip rule add pref 50 to 10.1.2.3 ipproto tcp dport 80 prohibit")),
		goesOn("size", "a translated packet that does not fit is Linux's, and the error speaks of what the client sent", both4, []string{doesBoth4}, fast,
			step(join(both4.says(false, "PA", 146, 501, strings.Repeat("x", 1400)), both4.data(2, 1546, 501)), "ip link set p1 mtu 1300"), step(both4.data(2, 1548, 501), "ip route add 10.1.2.3 via 10.0.1.10 mtu lock 600"), step(both4.says(false, "PA", 1550, 501, strings.Repeat("x", 700)))),
		goesOn("dscp", "rules write the class of what is translated", both4, []string{doesBoth4, "nft table ip f { chain m { type filter hook prerouting priority mangle; ip dscp set af11; }; chain f { type filter hook forward priority filter; tcp sport 80 ip dscp set ef; }; }"}, fast,
			step(both4.data(20, 146, 501)), step(both4.says(true, "PA", 501, 166, "back"))),
	}
}
