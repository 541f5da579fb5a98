// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// partRules are about keys of which only a part is looked up.
func partRules() []hand {
	said := tosTo5()
	for _, pair := range [][2]string{{h0, "10.5.1.1"}, {"10.3.4.5", "10.5.1.1"}, {h0v6, "2001:db8:5::1"}} {
		for _, tos := range []uint8{0, 0x20, 0x22, 0x23, 0x40, 0x48, 0xb8, 0xfc} {
			f := flowOf(0, pair[0], pair[1])
			f.TOS = tos
			said = append(said, in(0, f.UDP("tos"), f.TCP("S", 1, ""), f.TCP("A", 1, "x"))...)
		}
	}
	of := func(name, why string, said []Packet, rules ...string) hand {
		lines := []string{"add table inet t", "add chain inet t a", "add chain inet t b", "add chain inet t p { type filter hook prerouting priority -300; }", "add chain inet t f { type filter hook forward priority 0; }",
			"add rule inet t a counter", "add rule inet t a udp dport 2000 counter drop", "add rule inet t b counter return"}
		return hand{name: "rules parts " + name, why: why, loads: true, reasons: []string{"fast", drop},
			steps: []handStep{step(said, append(to5(gw1, gw1v6), nftFile(append(lines, prefixed("add rule inet t ", rules)...)...))...)}}
	}
	return []hand{
		of("dscp", "a verdict map by the class of service, which is a part of a byte, or of two", said,
			"f ip dscp vmap { cs1 : jump a, cs2 : jump b, ef : drop }", "f ip6 dscp vmap { cs1 : jump a, af21 : goto b, cs7 : drop }", "f ip dscp { cs1, af21 } counter", "f ip6 dscp != { cs1, cs2 } counter",
			"f ip saddr . ip dscp { 10.0.0.10 . cs1, 10.3.4.5 . cs2, 10.3.4.5 . af21 } counter drop", "f ip saddr . ip dscp != { 10.0.0.10 . cs1, 10.3.4.5 . cs2 } counter", "f counter"),
		of("marks", "verdict maps by bits of the mark, which rules have set before, and of the packet's flags and network", said,
			"p ip dscp cs1 meta mark set 0x101", "p ip dscp cs2 meta mark set 0x202", "p ip6 dscp cs1 meta mark set 0x1ff02", "f meta mark and 0xff vmap { 1 : jump a, 2 : jump b }", "f meta mark and 0xff00 vmap { 0x100 : drop, 0x200-0x300 : jump b }",
			"f ip saddr . meta mark & 0xff { 10.0.0.10 . 1, 10.3.4.5 . 2 } counter", "f tcp flags & (syn | ack) vmap { syn : jump b, ack : jump a }", "f ip saddr & 255.255.0.0 vmap { 10.3.0.0 : jump a, 10.0.0.0 : jump b }", "f counter"),
		of("one byte", "keys of one byte beside ranges, which nft turns around as if they had two", said, "f meta l4proto . th dport { tcp . 22, tcp . 75-85, udp . 53 } counter", "f ip saddr . meta l4proto . th dport { 10.0.0.0/24 . tcp . 2000-2010, 10.3.0.0/16 . udp . 1-9 } counter jump a",
			"f ip6 saddr . meta l4proto vmap { fd00::/8 . tcp : drop, fd00::/8 . udp : jump b }", "f iifname . meta l4proto != { p0 . 0-6, p1 . 17 } counter", "f meta pkttype . ip saddr { host . 10.0.0.0/8 } counter", "f counter"),
		of("frames", "addresses of frames beside those of IP, in front of which rules ask for the frame's type where it stands", said,
			"f ether saddr . ip saddr { 02:00:00:01:01:02 . 10.0.0.10, 02:00:00:01:01:99 . 10.3.4.5 } counter jump a", "f ether saddr . ip6 saddr { 02:00:00:01:01:02 . "+h0v6+", 02:00:00:01:01:99 . fd00::9 } tcp flags & ack == ack counter drop",
			"p ip saddr . ether saddr != { 10.0.0.10 . 02:00:00:01:01:02, 10.9.9.9 . 02:00:00:01:01:02 } counter", "f ether saddr { 02:00:00:01:01:02, 02:00:00:01:01:03 } counter", "f ether saddr vmap { 02:00:00:01:01:02 : jump b, 02:00:00:01:01:04 : drop }",
			"f ether type ip counter", "f ether type 8021q counter drop", "f ether saddr 02:00:00:01:01:02 ip saddr 10.3.4.5 counter"),
		of("icmp", "maps and sets by a type of ICMP, or by a code, which lie in one key: each of the other part has to be met", messages(),
			"f icmp type vmap { echo-request : jump a, destination-unreachable : jump b, timestamp-request : drop, 40-255 : goto b }", "f icmpv6 type vmap { echo-request : jump a, destination-unreachable : jump b, packet-too-big : goto b, 150-255 : drop }",
			"f icmp code vmap { 0 : jump b, 3-5 : jump a }", "f icmpv6 code vmap { 1 : jump b, 200-255 : drop }", "f ip saddr . icmp type vmap { 10.0.0.10 . echo-reply : jump b, 10.3.4.5 . echo-request : drop }",
			"f icmp type . icmp code vmap { echo-reply . 0 : jump b, echo-reply . 4 : drop }", "f icmp type != { echo-request, echo-reply } counter", "f icmpv6 type { echo-request, echo-reply } counter", "f counter"),
		framesOverBridge(), headersOf("legacy"), headersOf("nft"),
	}
}

// messages are of ICMP, of types and codes, and what lies beside ICMP's in a packet of UDP.
func messages() (out []Packet) {
	codes := []uint8{0, 1, 3, 4, 5, 200, 255}
	for _, src := range []string{h0, "10.3.4.5"} {
		f := flowOf(0, src, "10.5.1.1")
		for _, t := range []uint8{0, 3, 4, 5, 8, 11, 12, 13, 14, 17, 30, 39, 40, 42, 128, 255} {
			for _, code := range codes {
				out = append(out, in(0, f.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(t, code), Id: 5}, gopacket.Payload(flowOf(1, "10.5.1.1", src).UDP("inner")[14:])))...)
			}
		}
		f.SrcPort = 0x0800 // where a type and a code would be
		out = append(out, in(0, f.UDP("u"), f.TCP("A", 1, ""))...)
	}
	f := flowOf(0, h0v6, "2001:db8:5::1")
	for _, t := range []uint8{0, 1, 2, 3, 4, 8, 100, 127, 128, 129, 130, 135, 136, 149, 150, 200, 255} {
		for _, code := range codes {
			out = append(out, in(0, f.Carry(&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(t, code)}, gopacket.Payload([]byte{0, 0, 5, 0}), gopacket.Payload(flowOf(1, "2001:db8:5::1", h0v6).UDP("inner")[14:])))...)
		}
	}
	f.SrcPort = 0x8000
	return append(out, in(0, f.UDP("u"), f.TCP("A", 1, ""))...)
}

// framesOverBridge asks for the sender of a frame beside that of its packet where a bridge shows rules what it carries: with a tag in front only by a switch, and the address of the frame stands before the tag.
func framesOverBridge() hand {
	var plain []Packet
	for _, pair := range [][2]station{{stationA, stationB}, {stationB, stationA}, {stationC, stationA}} {
		for _, v6 := range []bool{false, true} {
			f := pair[0].flow(pair[1], v6)
			plain = append(plain, in(pair[0].port, f.UDP("u"), f.TCP("A", 1, "x"), f.Echo(1, 1, "ping"))...)
		}
	}
	forged := stationA.flow(stationB, false)
	forged.Src = stationC.addr(false)
	plain = append(plain, in(0, forged.UDP("of another"))...)
	said := join(plain, tagged(byWire(plain), 5), tagged(byWire(plain), 0), tagged(byWire(plain), 5, 7))
	key := func(s station, v6 bool) string { return s.mac().String() + " . " + s.addr(v6).String() }
	filter := func(to string) string { return "sysctl net.bridge.bridge-nf-filter-vlan-tagged=" + to }
	rules := []string{"add table inet t", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f ether saddr . ip saddr { " + key(stationA, false) + ", " + key(stationC, false) + " } udp dport 2000 counter drop",
		"add rule inet t f ether saddr . ip saddr != { " + key(stationA, false) + ", " + key(stationB, false) + ", " + key(stationC, false) + " } counter drop", "add rule inet t f ether saddr . ip6 saddr vmap { " + key(stationA, true) + " : drop, " + key(stationB, true) + " : accept }",
		"add rule inet t f ether saddr " + stationB.mac().String() + " counter", "add rule inet t f counter"}
	return hand{name: "rules parts frames over a bridge", why: "the frame's addresses are those that the bridge got, whether a tag is behind them or not", bare: true, loads: true, slow: bothFamilies, reasons: []string{"fast", drop},
		steps: []handStep{step(join(everybody(), said), slices.Concat(bridge("", withBridgeNetfilter...), []string{filter("0"), nftFile(rules...)})...), step(said, filter("1")), step(said, filter("0"))}}
}

// headersOf asks for extension headers, which no packet has that comes to rules of the fast path.
func headersOf(kind string) hand {
	esp := func(f lab.Flow) []Packet { return in(0, lab.Edited(f.UDP("0123456789"), protocol(f, 50))) }
	f := flowOf(0, h0v6, "2001:db8:5::1")
	return hand{name: "rules parts headers " + kind, why: "matches of extension headers", loads: true, slow: Excuse{Rules: true}, reasons: []string{"fast", drop}, steps: []handStep{step(join(services(), extensions(f), esp(f)), append(to5(gw1, gw1v6),
		forwardChain("ip6tables-"+kind, "ACCEPT", "-m ipv6header --header frag,route --soft -j DROP", "-m ipv6header --header prot", "-m ipv6header ! --header prot", "-m ipv6header --header esp", "-m ipv6header ! --header esp",
			"-m ipv6header --header prot --soft", "-m ipv6header ! --header frag --soft", "-m frag --fragmore -j DROP", "-m frag ! --fragid 7", "-m hbh -j DROP", "-m dst -j DROP", "-p tcp -m tcp --dport 80 -j DROP"))...)}}
}
