// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// hairpinTraps are about translated connections that leave where they came in.
func hairpinTraps() []hand {
	both := Excuse{IP4: true, IP6: true}
	redirects := func(on string) []string {
		return []string{"sysctl net.ipv4.conf.all.send_redirects=" + on, "sysctl net.ipv4.conf.default.send_redirects=" + on}
	}
	onPort := func(on string) []string { return append(redirects(on), "sysctl net.ipv4.conf.p0.send_redirects="+on) }
	onBridge := func(on string) []string { return append(redirects(on), "sysctl net.ipv4.conf.br0.send_redirects="+on) }
	turned := talk{client: h0, server: "10.0.0.1", port: 1000, dport: 8080, real: "10.0.0.11", realPort: 80, seen: "10.0.0.77", seenPort: 4000, hairpin: true}
	mapped := talk{client: h0, server: "10.0.0.88", port: 1002, dport: 82, real: "10.3.0.5", realPort: 82, hairpin: true}
	plain := talk{client: h0, server: "10.0.0.11", port: 1001, dport: 81, hairpin: true}
	rules := natTable("ip", "tcp dport 8080 dnat to 10.0.0.11:80; ip daddr 10.0.0.88 dnat to 10.3.0.5", "ip daddr 10.0.0.11 tcp dport 80 snat to 10.0.0.77:4000")

	a, b := stationA.addr(false).String(), stationB.addr(false).String()
	service := func(port, dport uint16, real string, to station) talk {
		return talk{client: a, server: "10.0.0.1", port: port, dport: dport, real: real, realPort: 80, seen: "10.0.0.1", stations: []station{stationA, to}}
	}
	toB, toItself := service(1000, 8080, b, stationB), service(1001, 8081, a, stationA)
	published := natTable("ip", "tcp dport 8080 dnat to "+b+":80; tcp dport 8081 dnat to "+a+":80", "tcp dport 80 masquerade")
	goesOn := func(c talk, do ...string) []handStep {
		return []handStep{step(c.data(10, 141, 501), do...), step(c.says(true, "PA", 501, 151, "back"))}
	}
	// Each of its steps comes right behind packets that are translated to the same addresses.
	behind := func(c talk, steps []handStep) (out []handStep) {
		seq := uint32(141)
		for _, s := range steps {
			s.packets = join(c.data(2, seq, 501), c.says(true, "A", 501, seq+2, ""), s.packets)
			out = append(out, s)
			seq += 2
		}
		return out
	}
	again := func(c talk) talk { c.port += 10; return c }
	return []hand{
		{name: "nat hairpin", why: "back where it came from: of a translated connection no host is told by a redirect", slow: both, loads: true, reasons: []string{"fast"},
			steps: slices.Concat(turned.begins(append(onPort("0"), rules)...), goesOn(turned, onPort("1")...), mapped.begins(onPort("0")...), goesOn(mapped, onPort("1")...))},
		{name: "nat hairpin remembered", why: "of others it is, also where the route of the same addresses has just been asked for by what is translated", slow: both, loads: true, reasons: []string{"fast", "same-interface"},
			steps: slices.Concat(turned.begins(append(onPort("0"), rules)...), behind(turned, plain.begins()))},
		{name: "nat hairpin bridge", why: "a container that reaches another, and itself, by a port that the host publishes: back into the bridge, by another port and by the same; and where br_netfilter shows it, Linux bridges it", slow: both, bare: true, loads: true,
			reasons: []string{"fast", "same-interface"},
			steps: slices.Concat([]handStep{step(everybody(), slices.Concat(irb(""), onBridge("0"), []string{published})...)}, toB.begins(), goesOn(toB, onBridge("1")...), toItself.begins(onBridge("0")...), goesOn(toItself, onBridge("1")...),
				again(toB).begins(append(onBridge("0"), "sysctl net.bridge.bridge-nf-call-iptables=1")...), goesOn(again(toB)), again(toItself).begins(), goesOn(again(toItself)))},
		shownHairpin(false), shownHairpin(true), shownRouted(false), shownRouted(true), shownService(false), shownService(true),
	}
}

// asShown are rules that see the difference between what is routed and what is bridged.
var asShown = []string{
	"nft table inet f { chain f { type filter hook forward priority 0; ip ttl 64 counter; ip6 hoplimit 64 counter; iifname br0 oifname br0 counter; ct status dnat counter; ct direction reply counter; tcp dport 80 counter; tcp sport 80 counter; }; " +
		"chain o { type filter hook postrouting priority 50; meta l4proto { tcp, udp } oifname br0 counter; tcp sport 80 ip ttl 64 counter; tcp dport 80 ip saddr 10.0.0.1 counter; tcp sport 80 ip6 hoplimit 64 counter; tcp dport 80 ip6 saddr fd00::1:0:0:0:1 counter; }; }",
	"iptables-legacy -A FORWARD -m physdev --physdev-in p0 --physdev-out p1", "iptables-legacy -A FORWARD -m physdev --physdev-in p1 --physdev-out p0", "iptables-legacy -A FORWARD -m physdev --physdev-in p0 --physdev-out p0",
	"iptables-legacy -A FORWARD -m physdev --physdev-is-bridged",
	"ip6tables-legacy -A FORWARD -m physdev --physdev-in p0 --physdev-out p1", "ip6tables-legacy -A FORWARD -m physdev --physdev-in p1 --physdev-out p0", "ip6tables-legacy -A FORWARD -m physdev --physdev-in p0 --physdev-out p0",
	"ip6tables-legacy -A FORWARD -m physdev --physdev-is-bridged",
}

// ofFamily is what names in these cases are made of: the family as nft and names of cases have it, the router's address in the bridge's network, and how a rule writes an address with a port.
func ofFamily(v6 bool) (nft, name, router string, at func(string) string) {
	if v6 {
		return "ip6", " of IPv6", "fd00::1:0:0:0:1", func(addr string) string { return "[" + addr + "]" }
	}
	return "ip", "", "10.0.0.1", func(addr string) string { return addr }
}

// shownHairpin is what br_netfilter shows and translation sends back into the bridge, to a neighbour and to the sender itself. Nothing else in it can be fast.
func shownHairpin(v6 bool) hand {
	nft, family, router, at := ofFamily(v6)
	a, b := stationA.addr(v6).String(), stationB.addr(v6).String()
	service := func(port, dport uint16, real string, to station) talk {
		return talk{client: a, server: router, port: port, dport: dport, real: real, realPort: 80, seen: router, stations: []station{stationA, to}}
	}
	toB, toItself := service(1000, 8080, b, stationB), service(1001, 8081, a, stationA)
	rules := append([]string{natTable(nft, "tcp dport 8080 dnat to "+at(b)+":80; tcp dport 8081 dnat to "+at(a)+":80", "tcp dport 80 masquerade")}, asShown...)
	to := func(c talk, seq uint32, do ...string) []handStep {
		return []handStep{step(c.data(6, seq, 501), do...), step(c.says(true, "A", 501, seq+6, ""))}
	}
	set := func(what string) string { return "bridge link set dev " + what }
	moved := toB
	moved.stations = []station{stationA, {2, 7}}
	long := strings.Repeat("z", 1400)
	return hand{name: "nat hairpin shown" + family, why: "a container that reaches another, and itself, by a published port where br_netfilter shows what is bridged: no hop less, the sender's address stays, rules see ports of the bridge", bare: true, loads: true,
		slow: Excuse{IP4: true, IP6: true}, reasons: []string{"fast", "same-interface", "conntrack-flags"},
		steps: slices.Concat([]handStep{step(everybody(), slices.Concat(irb("", withBridgeNetfilter...), rules)...)},
			toB.begins(), to(toB, 141), []handStep{
				step(join(toB.says(false, "PA", 147, 501, "t", lab.TTL(1)), toB.says(false, "PA", 148, 501, "t", lab.TTL(2)), toB.says(false, "PA", 149, 501, "t", lab.TTL(255)), toB.says(false, "PA", 150, 501, "bad", lab.L4(16, 0x12, 0x34)))),
				step(toB.says(true, "PA", 501, 150, "back", lab.TTL(1))), step(toB.says(false, "PA", 150, 505, long)), step(toB.says(true, "A", 505, 1550, "")),
				step(toB.says(false, "PA", 1550, 505, long), "ip link set p1 mtu 1000"), step(nil, "ip link set p1 mtu 1500"),
			},
			toItself.begins(set("p0 hairpin on")), to(toItself, 141), to(toItself, 147, set("p0 hairpin off")), to(toItself, 147, set("p0 hairpin on")), to(toB, 2950),
			to(toB, 2956, set("p0 isolated on"), set("p1 isolated on")), to(toB, 2956, set("p1 isolated off")),
			to(moved, 2962, fmt.Sprintf("ip neighbour replace %s lladdr %s dev br0 nud permanent", b, moved.stations[1].mac()), fmt.Sprintf("bridge fdb replace %s dev p2 master static", moved.stations[1].mac())),
			[]handStep{step(moved.says(false, "FA", 2968, 505, "")), step(moved.says(true, "FA", 505, 2969, ""))}, to(toItself, 153), []handStep{step(toItself.data(3, 159, 501), "nft insert rule inet f f tcp dport 80 counter drop")})}
}

// shownRouted is what goes back into the bridge with the receiver that it came with: with another sender through a router in the bridge's network, or to another port of a neighbour.
// Linux routes it, though br_netfilter shows it, and bridges the answers, which get another receiver.
func shownRouted(v6 bool) hand {
	nft, family, router, _ := ofFamily(v6)
	far, network := "198.51.100.9", "198.51.100.0/24"
	if v6 {
		far, network = "2001:db8:51::9", "2001:db8:51::/48"
	}
	a, b := stationA.addr(v6).String(), stationB.addr(v6).String()
	away := talk{client: a, server: far, port: 1000, seen: router, stations: []station{stationA, stationB}}
	port := talk{client: a, server: b, port: 1001, dport: 8080, real: b, realPort: 80, seen: router, stations: []station{stationA, stationB}}
	rules := append([]string{"ip route add " + network + " via " + b + " dev br0", natTable(nft, "tcp dport 8080 dnat to :80", "tcp dport 80 masquerade"),
		"nft table inet f { chain f { type filter hook forward priority 0; ip ttl 64 counter; ip6 hoplimit 64 counter; ct direction reply counter; }; }"}, asShown[len(asShown)-1], asShown[len(asShown)-5])
	answers := func(c talk, seq uint32) (out []Packet) { // its other half is Linux's, so that these alone have to be enough for the mark
		for i := range uint32(30) {
			out = append(out, c.says(true, "PA", seq+i, 147, "x")...)
		}
		return out
	}
	goesOn := func(c talk) []handStep {
		return []handStep{step(c.data(6, 141, 501)), step(answers(c, 501)), step(nil, "sleep 50ms"), step(answers(c, 531)), step(c.says(false, "PA", 147, 561, "t", lab.TTL(2)))}
	}
	return hand{name: "nat hairpin shown, routed" + family, why: "only a new address of the receiver keeps a packet in the bridge: with another sender or port alone it is routed, a hop less, and rules see no port out", bare: true, loads: true,
		slow: Excuse{IP4: true, IP6: true}, reasons: []string{"fast", "same-interface"},
		steps: slices.Concat([]handStep{step(everybody(), slices.Concat(irb("", withBridgeNetfilter...), rules)...)}, away.begins(), goesOn(away), port.begins(), goesOn(port),
			[]handStep{step(away.data(6, 148, 561), "tc qdisc add dev br0 root tbf rate 1gbit burst 1mb latency 50ms"), step(away.says(true, "PA", 561, 154, "x")), step(port.data(6, 148, 561)), step(port.says(true, "PA", 561, 154, "x"))})}
}

// shownService is a service's address without masquerading: what the server answers goes from port to port, and gets the service's address there.
func shownService(v6 bool) hand {
	nft, family, router, at := ofFamily(v6)
	a, b := stationA.addr(v6).String(), stationB.addr(v6).String()
	to := at(b)
	nat := natTable(nft, "tcp dport 8080 dnat to "+to+":80; udp dport 8080 dnat to "+to+":80", "")
	c := talk{client: a, server: router, port: 1000, dport: 8080, real: b, realPort: 80, stations: []station{stationA, stationB}}
	return hand{name: "nat hairpin service" + family, why: "a neighbour that answers by the address of a service: bridged, with another sender", bare: true, loads: true, slow: Excuse{IP4: true, IP6: true}, reasons: []string{"fast", "conntrack-flags"},
		steps: slices.Concat([]handStep{step(everybody(), slices.Concat(irb("", withBridgeNetfilter...), []string{nat}, asShown)...)}, c.begins(),
			[]handStep{step(c.data(10, 141, 501)), step(c.says(true, "PA", 501, 151, strings.Repeat("y", 1400))), step(c.says(true, "PA", 1901, 151, "t", lab.TTL(1))), step(c.says(true, "PA", 1902, 151, "bad", lab.L4(16, 0x12, 0x34)))},
			c.datagrams(nil, []string{"", "odd", strings.Repeat("u", 1400)}),
			[]handStep{step(c.says(true, "PA", 1902, 151, "out"), "sysctl net.bridge.bridge-nf-call-iptables=0", "sysctl net.bridge.bridge-nf-call-ip6tables=0"), step(c.says(true, "PA", 1905, 151, "again"), withBridgeNetfilter...),
				step(c.says(false, "FA", 151, 1910, "")), step(c.says(true, "FA", 1910, 152, ""))})}
}
