// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
	"strings"
)

// zones are rules of nf_tables before tracking, which replace those that there are.
func zones(rules ...string) string {
	lines := []string{"add table inet z", "add chain inet z p { type filter hook prerouting priority raw; }", "flush chain inet z p"}
	for _, r := range rules {
		lines = append(lines, "add rule inet z p "+r)
	}
	return nftFile(lines...)
}

// byState counts what rules behind tracking see of a connection and of its zone, and drops what neither belongs to one nor begins one at p0.
const byState = "nft table inet s { chain f { type filter hook forward priority 1; policy drop; ct zone 0 counter; ct zone { 5, 6, 7 } counter; ct direction reply counter; ct state established counter accept; iifname p0 tcp flags & (syn | ack) == syn counter accept; counter; }; }"

// The same two ends twice: behind p0 and p1, and behind p2 and p3, which routes keep apart.
var (
	one, other   = talk{client: h0, server: "10.1.2.3", port: 1000}, talk{client: h0, server: "10.1.2.3", port: 1000, behind: [2]int{2, 3}}
	hidden1      = talk{client: h0, server: "10.1.2.3", port: 1000, seen: "10.0.1.77"}
	hidden2      = talk{client: h0, server: "10.1.2.3", port: 1000, seen: "10.0.1.77", behind: [2]int{2, 3}}
	apart        = []string{"ip address add 10.0.3.1/24 dev p3", "ip neighbour replace 10.0.3.10 lladdr " + hostMAC(3, 0).String() + " dev p3 nud permanent", "ip neighbour replace 10.0.0.10 lladdr " + hostMAC(2, 0).String() + " dev p2 nud permanent", "ip rule add pref 50 iif p2 lookup 102", "ip rule add pref 51 iif p3 lookup 103", "ip route add 10.1.0.0/16 via 10.0.3.10 dev p3 table 102", "ip route add 10.0.0.0/24 dev p2 table 103"}
	zonesByWay   = "iif { p0, p1 } ct zone set 1"
	otherByWay   = "iif { p2, p3 } ct zone set 2"
	mapOfZones   = "ct zone set iifname map { p0 : 1, p1 : 1, p2 : 2, p3 : 2 }"
	zonesByTable = []string{"-A PREROUTING -i p0 -j CT --zone 1", "-A PREROUTING -i p1 -j CT --zone 1", "-A PREROUTING -i p2 -j CT --zone 2", "-A PREROUTING -i p3 -j CT --zone 2"}
)

// gate lets established connections through, and these rules decide who may begin one.
func gate(begin ...string) string {
	lines := []string{"add table inet g", "add chain inet g f { type filter hook forward priority 0; policy drop; }", "flush chain inet g f", "add rule inet g f ct state established counter accept"}
	for _, b := range begin {
		lines = append(lines, "add rule inet g f "+b+" ct state new counter accept")
	}
	return nftFile(append(lines, "add rule inet g f counter")...)
}

// zoneTraps are about the zones that rules give. Nothing in them is fast that is not in a zone.
func zoneTraps() []hand {
	both := Excuse{IP4: true, IP6: true}
	zoned := func(name, why string, reasons []string, steps ...handStep) hand {
		return hand{name: "conntrack zone " + name, why: why, needs: "conntrack zones", slow: both, loads: true, reasons: append([]string{"fast"}, reasons...), steps: steps}
	}
	raw := func(tool string, rules ...string) string {
		return restore(tool, "raw", ":PREROUTING ACCEPT [0:0]", rules...)
	}
	moves := func(name string, c talk, in func(zone string) string, more ...string) hand {
		return zoned(name, "a connection is looked up in the zone that its packets have at that moment", []string{"conntrack-new"}, slices.Concat(c.begins(append([]string{in("5"), byState}, more...)...), []handStep{
			step(c.data(5, 141, 501)), step(c.says(true, "PA", 501, 146, "yes")), step(c.data(3, 146, 504)), atOnce(c.data(3, 149, 504), in("6")), step(c.data(3, 152, 504)), atOnce(c.data(3, 149, 504), in("5")), step(c.data(3, 152, 504)),
			step(c.says(true, "PA", 504, 155, "again")), step(c.says(false, "FA", 155, 509, "")), step(c.says(true, "FA", 509, 156, "")), step(c.data(2, 156, 510))})...)
	}
	tables := func(tool string) func(string) string {
		return func(zone string) string {
			return raw(tool, "-A PREROUTING -i p0 -j CT --zone "+zone, "-A PREROUTING -i p1 -j CT --zone "+zone, "-A PREROUTING -p icmp -j CT --notrack")
		}
	}
	gate6 := func(tool string) string {
		return restore(tool, "filter", ":FORWARD DROP [0:0]", "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "-A FORWARD -i p0 -p tcp --syn -m conntrack --ctstate NEW -j ACCEPT", "-A FORWARD -m conntrack --ctstate INVALID,NEW")
	}
	// The same addresses and ports in two zones, with fates of their own.
	overlap := func(name string, a, b talk, in string, do ...string) hand {
		return zoned(name, "the same addresses and ports in two zones are two connections: one established, one not; one forgotten, one not", []string{"conntrack-new"}, slices.Concat(a.begins(slices.Concat(apart, []string{in, gate("iifname p0")}, do)...), []handStep{
			step(a.data(5, 141, 501)), step(b.data(5, 141, 501)), step(b.says(true, "PA", 501, 146, "not yours")), step(a.data(3, 146, 501), gate("iifname p0", "iifname p2"))}, b.begins(), []handStep{
			step(b.data(5, 141, 501)), step(a.data(3, 149, 501)), step(b.says(true, "PA", 501, 146, "second")), step(a.says(true, "PA", 501, 152, "first")), step(join(a.data(3, 152, 506), b.data(3, 146, 507))),
			step(join(a.data(3, 155, 506), b.data(3, 149, 507)), gate(), "conntrack -D -w 1"), step(b.says(true, "PA", 507, 152, "lives on")), step(a.says(true, "PA", 506, 155, "lost")),
			atOnce(join(a.data(2, 155, 515), b.data(2, 152, 515)), zones("ct zone set 2")), step(join(a.data(2, 157, 515), b.data(2, 154, 515)))})...)
	}
	words := []string{"x", "odd", strings.Repeat("even", 100)}
	return []hand{
		moves("nft", talk4, func(zone string) string { return zones("iifname { p0, p1 } ct zone set " + zone) }), moves("nft ip6", talk6, func(zone string) string { return zones("iifname { p0, p1 } ct zone set " + zone) }),
		moves("map", talk4, func(zone string) string {
			return zones("ct zone set iif map { p0 : "+zone+", p1 : "+zone+" } counter", "iifname p2 ct zone set 3")
		}),
		moves("legacy", talk4, tables("iptables-legacy"), gate6("iptables-legacy")), moves("iptables-nft", talk4, tables("iptables-nft"), gate6("iptables-nft")),
		moves("masquerade", hidden("10.0.0.11"), func(zone string) string { return zones("ct zone set " + zone) }, masquerades),
		zoned("original", "a zone for one direction: what comes back is in zone 0, and its connection in the other", nil, slices.Concat(talk4.begins(raw("iptables-legacy", "-A PREROUTING -i p0 -j CT --zone-orig 5"), byState), []handStep{
			step(talk4.data(5, 141, 501)), step(talk4.says(true, "PA", 501, 146, "yes")), step(talk4.says(true, "PA", 504, 146, "and more")), atOnce(talk4.says(true, "PA", 512, 146, "elsewhere"), raw("iptables-legacy", "-A PREROUTING -i p0 -j CT --zone-orig 5", "-A PREROUTING -i p1 -j CT --zone 5")),
			atOnce(talk4.data(3, 146, 512), raw("iptables-legacy", "-A PREROUTING -i p0 -j CT --zone-orig 6"))})...),
		zoned("reply", "and for the other one", nil, slices.Concat(talk6.begins(zones("iifname p0 ct reply zone set 7", "iifname p1 ct zone set 7"), byState), []handStep{
			step(talk6.data(5, 141, 501)), step(talk6.says(true, "PA", 501, 146, "yes")), step(talk6.says(true, "PA", 504, 146, "and more")), atOnce(talk6.data(3, 146, 512), zones("iifname p0 ct reply zone set 8", "iifname p1 ct zone set 7")),
			atOnce(talk6.data(3, 149, 512), zones("iifname p0 ct original zone set 0", "iifname p1 ct reply zone set 7")), atOnce(talk6.says(true, "PA", 512, 149, "still"))})...),
		zoned("udp", "datagrams in a zone", nil, talk4.datagrams([]string{zones("ct zone set 65535"), "nft table ip c { chain f { type filter hook forward priority 0; ct zone 65535 counter; ct state established counter; }; }"}, words)...),
		zoned("once", "the first zone counts, and takes a packet out of reach of notrack; nf_tables gives one to what is kept out, too, iptables does not", []string{"netfilter-rule"}, slices.Concat(
			talk4.begins(raw("iptables-legacy", "-A PREROUTING -p tcp -j CT --zone 5", "-A PREROUTING -p tcp -j CT --notrack", "-A PREROUTING -p udp -j CT --notrack", "-A PREROUTING -p udp -j CT --zone 5", "-A PREROUTING -m conntrack --ctstate NEW", "-A PREROUTING -m conntrack --ctstate UNTRACKED", "-A PREROUTING -m conntrack --ctstate INVALID"),
				nftFile("add table inet y", "add chain inet y p { type filter hook prerouting priority -290; }", "add rule inet y p notrack", "add rule inet y p ct state untracked counter", "add rule inet y p ct state new counter", "add rule inet y p ct zone set 6", "add rule inet y p ct state new counter",
					"add chain inet y q { type filter hook prerouting priority mangle; }", "add rule inet y q ct state established,related counter", "add rule inet y q ct zone 5 counter", "add rule inet y q ct zone 6 counter", "add rule inet y q ct state new,invalid,untracked counter")),
			[]handStep{step(talk4.data(5, 141, 501))}, talk{client: h0, server: "10.1.2.3", port: 1001}.datagrams(nil, words), []handStep{step(udp(0, h0, "10.1.9.9")),
				atOnce(talk4.data(5, 146, 501), "nft add rule inet y p ct mark 0 counter"), step(talk4.data(3, 151, 501))})...),
		zoned("late", "behind tracking a zone changes nothing for who has a connection; others are Linux's", []string{"netfilter-rule"}, slices.Concat(
			talk4.begins(trackTable, "nft table inet y { chain r { type filter hook prerouting priority raw; udp dport 2000 notrack; }; chain p { type filter hook prerouting priority mangle; ct zone set 6; }; chain f { type filter hook forward priority 0; ct zone 0 counter; ct zone 6 counter; ct state new counter; ct state untracked counter; }; }"),
			[]handStep{step(join(talk4.data(5, 141, 501), udp(0, h0, "10.1.9.9")))})...),
		overlap("overlap", one, other, zones(zonesByWay, otherByWay)), overlap("overlap map", one, other, zones(mapOfZones)),
		overlap("overlap legacy", one, other, raw("iptables-legacy", zonesByTable...), "iptables-legacy -P FORWARD ACCEPT", "iptables-legacy -A FORWARD -m conntrack --ctstate ESTABLISHED"),
		overlap("overlap snat", hidden1, hidden2, zones(zonesByWay, otherByWay), natTable("ip", "counter", "oifname { p1, p3 } counter snat to 10.0.1.77")),
	}
}

// hidden is a client that is masqueraded on its way to the server.
func hidden(client string) talk {
	return talk{client: client, server: "10.1.2.3", port: 1000, seen: "10.0.1.1"}
}
