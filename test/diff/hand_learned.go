// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// pathMTU tells the router that the paths to h1 and h1v6 take so many bytes.
func pathMTU(mtu uint16) []Packet {
	inner := reply("10.0.1.1", h1)
	inner6 := lab.Flow{SrcMAC: portMAC(1), DstMAC: hostMAC(1, 0), Src: netip.MustParseAddr("fd00::2:0:0:0:1"), Dst: netip.MustParseAddr(h1v6)}.Echo(1, 1, "inner")[14:]
	return in(1, flowOf(1, "10.0.1.10", "10.0.1.1").Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: mtu}, gopacket.Payload(inner)),
		flowOf(1, "fd00::2:0:0:0:10", "fd00::2:0:0:0:1").Carry(&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}, gopacket.Payload([]byte{0, 0, byte(mtu >> 8), byte(mtu)}), gopacket.Payload(inner6)))
}

// redirectTo6 tells the router that a destination is better reached through another gateway at p1, as the one that it uses.
func redirectTo6(dst, gw, via string) []Packet {
	target, dest, from := netip.MustParseAddr(via), netip.MustParseAddr(dst), netip.MustParseAddr(gw)
	return in(1, lab.Packet(
		&layers.Ethernet{SrcMAC: hostMAC(1, 0), DstMAC: portMAC(1)},
		&layers.IPv6{SrcIP: from.AsSlice(), DstIP: netip.MustParseAddr("fd00::2:0:0:0:1").AsSlice(), HopLimit: 255},
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(137, 0)},
		&layers.ICMPv6Redirect{TargetAddress: target.AsSlice(), DestinationAddress: dest.AsSlice(),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: hostMAC(1, 1)}}}, gopacket.Payload(nil)))
}

// advertised is what a router at p1 says of itself and of the MTU there.
func advertised(mtu uint16, seconds byte) []Packet {
	return []Packet{{Port: 1, How: WireFrame, Frame: lab.Packet(
		&layers.Ethernet{SrcMAC: hostMAC(1, 0), DstMAC: []byte{0x33, 0x33, 0, 0, 0, 1}},
		&layers.IPv6{SrcIP: netip.MustParseAddr("fe80::10").AsSlice(), DstIP: netip.MustParseAddr("ff02::1").AsSlice(), HopLimit: 255},
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(134, 0)},
		&layers.ICMPv6RouterAdvertisement{HopLimit: 64, RouterLifetime: uint16(seconds), Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptMTU, Data: []byte{0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}}}}, gopacket.Payload(nil))}}
}

// learnedTraps are about what the router has been told by others, and rules that judge the route which was found.
func learnedTraps() []hand {
	linkLocal := []string{"ip -6 route add 2001:db8:5::/48 via fe80::10 dev p1", "ip -6 neighbour replace fe80::10 lladdr " + hostMAC(1, 0).String() + " dev p1 nud permanent", "ip -6 neighbour replace fe80::11 lladdr " + hostMAC(1, 1).String() + " dev p1 nud permanent"}
	dst6 := join(udp(0, h0v6, "2001:db8:5::1"), udp(0, h0v6, "2001:db8:5::2"))
	dst9 := join(sizes(1400), sized(0, h0v6, "2001:db8:9::1", 1400), sized(0, h0v6, "2001:db8:9::1", 1401), sized(0, h0v6, "2001:db8:9::1", 1500))
	suppress := []string{"ip -6 route add default via fd00::2:0:0:0:10", "ip -6 route add default via fd00::3:0:0:0:10 table 100", "ip route add default via 10.0.1.10", "ip route add default via 10.0.2.10 table 100"}
	all := join(some(), udp(0, h0v6, "2001:db8:5::1"), udp(0, h0, "10.5.1.1"))
	return []hand{
		{name: "suppress default", why: "a rule that takes no default route from the main table, as wg-quick makes one", slow: Excuse{IP6: true}, reasons: []string{"fast"},
			steps: []handStep{step(all, append(suppress, "ip rule add pref 100 lookup main suppress_prefixlength 0", "ip -6 rule add pref 100 lookup main suppress_prefixlength 0", "ip rule add pref 110 lookup 100", "ip -6 rule add pref 110 lookup 100")...)}},
		{name: "suppress group", why: "a rule that takes no route out of a group of interfaces", slow: Excuse{IP6: true}, reasons: []string{"fast"},
			steps: []handStep{step(all, append(suppress, "ip link set p1 group 7", "ip rule add pref 100 lookup main suppress_ifgroup 7", "ip -6 rule add pref 100 lookup main suppress_ifgroup 7", "ip rule add pref 110 lookup 100", "ip -6 rule add pref 110 lookup 100")...)}},
		{name: "accepted-redirect ip6", why: "an interface that does not forward takes redirects, which forwarded packets follow", slow: Excuse{IP6: true}, reasons: []string{"fast", "mtu"},
			steps: []handStep{step(dst6, append(linkLocal, "sysctl net.ipv6.conf.p1.forwarding=0", "sysctl net.ipv6.conf.p1.accept_redirects=1")...), step(redirectTo6("2001:db8:5::1", "fe80::10", "fe80::11")), step(dst6)}},
		{name: "redirect kept", why: "a redirect holds when no others are accepted any more", slow: Excuse{IP4: true, IP6: true}, reasons: []string{"fast", "route-unknown"},
			steps: []handStep{
				step(join(udp(0, h0, "10.5.1.1"), udp(0, h0, "10.5.1.2")), append(to5(gw1, gw1v6), "sysctl net.ipv4.conf.all.accept_redirects=1", "sysctl net.ipv4.conf.p1.accept_redirects=1", "sysctl net.ipv4.conf.all.secure_redirects=0", "sysctl net.ipv4.conf.p1.secure_redirects=0")...),
				step(redirectTo("10.5.1.1", "10.0.1.11")), step(join(udp(0, h0, "10.5.1.1"), udp(0, h0, "10.5.1.2"))), step(join(udp(0, h0, "10.5.1.1"), udp(0, h0, "10.5.1.2")), "sysctl net.ipv4.conf.all.accept_redirects=0", "sysctl net.ipv4.conf.p1.accept_redirects=0")}},
		{name: "path-mtu tiny", why: "a path MTU too small to be believed binds forwarded packets too", reasons: []string{"fast", "mtu"},
			steps: []handStep{step(sizes(600)), step(pathMTU(500)), step(nil, "sleep 2s"), step(sizes(600))}},
		{name: "advertised mtu", why: "a router's advertisement gives its MTU to the device and to routes, of which Linux tells nobody; the routes keep it when the device gets another", slow: Excuse{Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48")}}, reasons: []string{"fast", "route-mtu"}, steps: []handStep{
			step(dst9, "sysctl net.ipv6.conf.p1.accept_ra=2", "ip -6 neighbour replace fe80::10 lladdr "+hostMAC(1, 0).String()+" dev p1 nud permanent"), step(advertised(1400, 200)), step(dst9),
			step(dst9, "sysctl net.ipv6.conf.p1.mtu=1500"), step(advertised(1400, 0)), step(dst9)}},
		{name: "path-mtu tiny gso", why: "the same, and segmentation still to be done", hooks: []string{"tc"},
			steps: []handStep{step(offloads()), step(pathMTU(500)), step(offloads())}},
		{name: "path-mtu under a locked mtu", why: "where the route's mtu is locked, IPv6 holds forwarded packets to what it learned", slow: Excuse{IP4: true, IP6: true},
			steps: []handStep{step(sizes(1300), "ip route replace 10.1.0.0/16 via 10.0.1.10 mtu lock 1400", "ip route replace 2001:db8:1::/48 via fd00::2:0:0:0:10 mtu lock 1400"), step(pathMTU(1290)), step(sizes(1300))}},
		{name: "multipath own source", why: "newer kernels prefer the next hop of the source's own interface, for what they send themselves", slow: Excuse{IP4: true}, reasons: []string{"fast", "local-source"},
			steps: []handStep{step(join(manyFlows(20), ownFlows(20)), append(to5("nexthop "+gw1+" nexthop "+gw2, "nexthop "+gw1v6+" nexthop "+gw2v6), "sysctl net.ipv4.conf.all.accept_local=1")...)}},
		{name: "multipath left source", why: "a next hop still knows an address of its interface that has left this host (nh_saddr), and newer kernels' lookup for programs prefers it for packets of that address", slow: Excuse{IP4: true}, reasons: []string{"fast", "local-source"},
			steps: []handStep{step(join(some(), ownFlows(20)), "ip address add 10.44.0.1/24 dev p1", "ip route add 10.5.0.0/16 nexthop "+gw1+" nexthop "+gw2), step(ownFlows(20), "ip address del 10.0.1.1/24 dev p1"), atOnce(ownFlows(20), "ip address add 10.0.1.1/24 dev p1"),
				atOnce(ownFlows(20), "ip address del 10.0.1.1/24 dev p1"), step(ownFlows(20), "ip route add 10.0.1.1 via 10.0.0.11", "sysctl net.ipv4.conf.p0.rp_filter=1")}},
		{name: "multipath-policy-1 fewer", why: "one of three next hops is taken out: what is left is still several", slow: Excuse{Prefixes: net5}, reasons: []string{"route-ecmp"},
			steps: []handStep{step(manyFlows(25), "ip route add 2001:db8:5::/48 nexthop "+gw1v6+" dev p1 nexthop "+gw2v6+" dev p2 nexthop via fd00::3:0:0:0:11 dev p2", "sysctl net.ipv6.fib_multipath_hash_policy=1"),
				step(manyFlows(25), "ip route del 2001:db8:5::/48 via fd00::3:0:0:0:11 dev p2"), step(manyFlows(25), "ip route del 2001:db8:5::/48 "+gw2v6+" dev p2"), step(manyFlows(25), "ip -6 route append 2001:db8:5::/48 "+gw2v6+" dev p2")}},
	}
}

// ownFlows are packets with the router's own addresses as sources.
func ownFlows(n int) []Packet {
	var out []Packet
	for i := range n {
		for _, src := range []string{"10.0.1.1", "10.0.2.1"} {
			out = append(out, Packet{Port: 0, How: WireFrame, Frame: flowOf(0, src, netip.AddrFrom4([4]byte{10, 5, byte(i), byte(i)}).String()).UDP("own")})
		}
	}
	return out
}
