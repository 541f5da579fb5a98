// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// sizes are packets around an mtu, with and without DF, to h1 and its IPv6 neighbour.
func sizes(mtu int) []Packet {
	var out []Packet
	for n := mtu - 1; n <= mtu+1; n++ {
		out = append(out, sized(0, h0, h1, n)...)
		out = append(out, sized(0, h0, h1, n, lab.FragmentField(2, 0))...)
		out = append(out, sized(0, h0v6, h1v6, n)...)
	}
	return out
}

// twoTables are packets around two mtus, from sources that a rule tells apart.
func twoTables() []Packet {
	var out []Packet
	for _, pair := range [][2]string{
		{h0, h1}, {h0, "10.2.9.9"}, {"10.3.4.5", h1}, {"10.3.4.5", "10.2.9.9"}, {h0v6, h1v6}, {h0v6, "2001:db8:2::9"}, {"2001:db8:3::4", h1v6}, {"2001:db8:3::4", "2001:db8:2::9"},
	} {
		for _, n := range []int{1300, 1301, 1400, 1401} {
			out = append(out, sized(0, pair[0], pair[1], n)...)
		}
	}
	return out
}

// manyFlows are packets to one network from many sources, so that a multipath route spreads them.
func manyFlows(n int) []Packet {
	var out []Packet
	for i := range n {
		v4 := flowOf(0, fmt.Sprintf("10.0.0.%d", 20+i%200), fmt.Sprintf("10.5.%d.%d", i%7, i))
		v4.SrcPort, v4.DstPort = uint16(1000+i), uint16(i)
		v6 := flowOf(0, fmt.Sprintf("fd00::1:0:0:0:%x", 0x20+i), fmt.Sprintf("2001:db8:5::%x", i))
		v6.SrcPort = uint16(i)
		label := lab.L3(1, byte(i&15), byte(i), byte(i*7))
		out = append(out,
			Packet{Port: 0, How: WireFrame, Frame: v4.UDP("flow")}, Packet{Port: 0, How: WireFrame, Frame: v4.TCP("A", 1, "flow")},
			Packet{Port: 0, How: WireFrame, Frame: v4.Echo(uint16(i), 1, "")},
			Packet{Port: 0, How: WireFrame, Frame: v6.UDP("flow")}, Packet{Port: 0, How: WireFrame, Frame: lab.Edited(v6.UDP("flow"), label)},
			Packet{Port: 0, How: WireFrame, Frame: v6.Echo(uint16(i), 1, "")})
		if i%5 == 0 { // errors are hashed by what they carry
			inner := lab.Flow{SrcMAC: hostMAC(0, 0), DstMAC: portMAC(0), Src: v4.Dst, Dst: v4.Src, SrcPort: uint16(i), DstPort: 9}.UDP("inner")[14:]
			out = append(out, Packet{Port: 0, How: WireFrame, Frame: v4.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 1)}, gopacket.Payload(inner))})
		}
	}
	return out
}

// sources are packets from everywhere into every port, for checks of the source.
func sources() []Packet {
	var out []Packet
	for port := range 3 {
		for _, src := range []string{"10.0.0.10", "10.0.1.10", "10.0.2.10", "10.1.2.3", "10.2.2.3", "10.3.4.4", "172.16.9.9", "10.5.1.1", "10.0.0.255", "10.0.1.255", "10.0.0.0", "10.0.1.1", "10.77.1.1"} {
			dst := []string{"10.1.2.9", "10.2.2.9", "10.3.4.9"}[port]
			out = append(out, udp(port, src, dst)...)
		}
		for _, src := range []string{"fd00::1:0:0:0:10", "fd00::2:0:0:0:10", "2001:db8:3::1", "2001:db8:1::1", "2001:db8:99::1", "fd00::2:0:0:0:1"} {
			dst := []string{"2001:db8:1::9", "2001:db8:2::9", "2001:db8:3::9"}[port]
			out = append(out, udp(port, src, dst)...)
		}
	}
	return out
}

// services are packets with the protocols and ports that rules look at.
func services() []Packet {
	var out []Packet
	for _, pair := range [][2]string{{h0, "10.5.1.1"}, {h0v6, "2001:db8:5::1"}} {
		for _, sport := range []uint16{1000, 53, 0} {
			for _, dport := range []uint16{2000, 53, 80} {
				f := flowOf(0, pair[0], pair[1])
				f.SrcPort, f.DstPort = sport, dport
				sctp := lab.Edited(f.UDP("0123456789"), protocol(f, 132), lab.FixIPChecksum())
				out = append(out, in(0, f.UDP("x"), f.TCP("S", 1, ""), f.Echo(sport, dport, ""), sctp, lab.Edited(f.UDP("x"), protocol(f, 47), lab.FixIPChecksum()))...)
			}
		}
		f := flowOf(0, pair[0], pair[1])
		if f.Dst.Is4() {
			out = append(out, in(0, lab.Edited(f.UDP("first"), lab.FragmentField(1, 0)), lab.Edited(f.UDP("later"), lab.FragmentField(0, 100)))...)
		}
		short := 14 + 20 + 2
		if f.Dst.Is6() {
			short += 20
		}
		out = append(out, in(0, lab.Edited(f.UDP("x"), lab.IPLength(2), lab.Truncate(short)), lab.Edited(f.TCP("S", 1, ""), lab.Truncate(short)))...)
	}
	return out
}

func protocol(f lab.Flow, p byte) lab.Edit {
	if f.Dst.Is6() {
		return lab.L3(6, p)
	}
	return lab.L3(9, p)
}

var net5 = []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16"), netip.MustParsePrefix("2001:db8:5::/48")}

// to5 are routes of both families to the networks that many cases use.
func to5(v4, v6 string) []string {
	return []string{"ip route add 10.5.0.0/16 " + v4, "ip route add 2001:db8:5::/48 " + v6}
}

const (
	gw1, gw2     = "via 10.0.1.10", "via 10.0.2.10"
	gw1v6, gw2v6 = "via fd00::2:0:0:0:10", "via fd00::3:0:0:0:10"
)

// routeTraps are about what routes say.
func routeTraps() []hand {
	dst5 := join(udp(0, h0, "10.5.1.1"), udp(0, h0v6, "2001:db8:5::1"), udp(1, "10.0.1.10", "10.5.1.1"), udp(1, "fd00::2:0:0:0:10", "2001:db8:5::1"))
	mtu := Excuse{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8:1::/48")}}
	return []hand{
		{name: "blackhole", why: "drops without a word", steps: []handStep{step(dst5, "ip route add blackhole 10.5.0.0/16", "ip route add blackhole 2001:db8:5::/48")}, reasons: []string{"blackhole"}},
		{name: "unreachable", why: "answers with ICMP", steps: []handStep{step(dst5, "ip route add unreachable 10.5.0.0/16", "ip route add unreachable 2001:db8:5::/48")}, reasons: []string{"unreachable"}},
		{name: "prohibit", why: "answers with ICMP", steps: []handStep{step(dst5, "ip route add prohibit 10.5.0.0/16", "ip route add prohibit 2001:db8:5::/48")}, reasons: []string{"prohibit"}},
		{name: "no-route", why: "no route at all", steps: []handStep{step(dst5)}, reasons: []string{"not-forwarded"}},
		{name: "throw", why: "ends the search in one table; the IPv6 lookup gives up there", slow: Excuse{Prefixes: net5[1:]}, steps: []handStep{step(join(dst5, some()),
			"ip route add throw 10.5.1.0/24 table 100", "ip route add 10.5.0.0/16 via 10.0.2.10 table 100", "ip route add 10.5.0.0/16 via 10.0.1.10",
			"ip rule add pref 50 lookup 100", "ip -6 rule add pref 50 lookup 100",
			"ip route add throw 2001:db8:5::/64 table 100", "ip route add 2001:db8:5::/48 via fd00::2:0:0:0:10")}, reasons: []string{"fast"}},
		{name: "local-route", why: "a local route for a whole prefix; its addresses are then the router's, as sources too",
			steps:   []handStep{step(join(dst5, sources()), "ip route add local 10.5.0.0/16 dev lo", "ip route add local 2001:db8:5::/48 dev lo")},
			reasons: []string{"not-forwarded"}, slow: Excuse{IP4: true}},
		{name: "local-route-other-table", why: "the same in a table that a rule points at",
			steps: []handStep{step(join(dst5, sources()), "ip route add local 10.5.0.0/16 dev lo table 100", "ip rule add pref 5 lookup 100")}, slow: Excuse{IP4: true}},
		{name: "broadcast-route", why: "a broadcast route", steps: []handStep{step(dst5, "ip route add broadcast 10.5.0.0/16 dev p1")}},
		{name: "multicast-route", why: "a multicast route for unicast addresses", steps: []handStep{step(dst5, "ip route add multicast 10.5.0.0/16 dev p1", "ip route add multicast 2001:db8:5::/48 dev p1")}},
		{name: "mtu", why: "trap 1.12: an mtu metric that is not locked", slow: mtu,
			steps:   []handStep{step(sizes(1300), "ip route replace 10.1.0.0/16 via 10.0.1.10 mtu 1300", "ip route replace 2001:db8:1::/48 via fd00::2:0:0:0:10 mtu 1300")},
			reasons: []string{"route-mtu"}},
		{name: "mtu-locked", why: "trap 1.12: an mtu metric that is locked", slow: mtu,
			steps: []handStep{step(sizes(1300), "ip route replace 10.1.0.0/16 via 10.0.1.10 mtu lock 1300", "ip route replace 2001:db8:1::/48 via fd00::2:0:0:0:10 mtu lock 1300")}},
		{name: "mtu-locked-gso", why: "a locked mtu and segmentation still to be done", slow: mtu, hooks: []string{"tc"},
			steps: []handStep{step(offloads(), "ip route replace 10.1.0.0/16 via 10.0.1.10 mtu lock 1200", "ip route replace 2001:db8:1::/48 via fd00::2:0:0:0:10 mtu lock 1280")}},
		{name: "mtu-of-default", why: "an mtu metric on the default route only",
			steps: []handStep{step(sizes(1300), "ip route del 10.1.0.0/16", "ip route add default via 10.0.1.10 mtu 1300", "ip route del 2001:db8:1::/48", "ip route add default via fd00::2:0:0:0:10 mtu 1300")}, slow: mtu},
		{name: "mtu-of-device", why: "an mtu metric of IPv6 that is the device's own, as an advertisement gives it to both, is no other route's, until the device gets another", reasons: []string{"mtu", "route-mtu", "fast"}, steps: []handStep{
			step(join(sizedRoutes(1400), sized(0, h0v6, "2001:db8:2::9", 1500)), "sysctl net.ipv6.conf.p1.mtu=1400", "ip route add default via fd00::2:0:0:0:10 mtu 1400"), step(sizedRoutes(1400), "sysctl net.ipv6.conf.p1.mtu=1500"),
			step(join(sizedRoutes(1400), sized(0, h0v6, "2001:db8:2::9", 1500)), "sysctl net.ipv6.conf.p1.mtu=1399"), step(sizedRoutes(1400), "ip nexthop add id 7 via fd00::3:0:0:0:10 dev p2", "ip -6 route replace default nhid 7 mtu 1400")}},
		{name: "mtu-shadowed", why: "a more specific route without the metric", slow: mtu,
			steps: []handStep{step(sizes(1300), "ip route add 10.0.0.0/8 via 10.0.1.10 mtu 1300", "ip route add 2001:db8::/32 via fd00::2:0:0:0:10 mtu 1300")}},
		{name: "mtu-above", why: "a route mtu above the device's", slow: mtu, steps: []handStep{step(sizes(1500), "ip route replace 10.1.0.0/16 via 10.0.1.10 mtu 4000")}},
		{name: "mtu-two-tables", why: "the same networks with other mtus in another table: the smaller one decides what is for Linux", slow: Excuse{IP4: true, IP6: true}, reasons: []string{"route-mtu"}, steps: []handStep{step(twoTables(),
			"ip route replace 10.1.0.0/16 via 10.0.1.10 mtu 1400", "ip route add 10.1.0.0/16 via 10.0.1.10 mtu 1300 table 100", "ip route replace 10.2.0.0/16 via 10.0.2.10 mtu 1300", "ip route add 10.2.0.0/16 via 10.0.2.10 mtu 1400 table 100",
			"ip route replace 2001:db8:1::/48 via fd00::2:0:0:0:10 mtu 1400", "ip route add 2001:db8:1::/48 via fd00::2:0:0:0:10 mtu 1300 table 100",
			"ip route replace 2001:db8:2::/48 via fd00::3:0:0:0:10 mtu 1300", "ip route add 2001:db8:2::/48 via fd00::3:0:0:0:10 mtu 1400 table 100",
			"ip rule add pref 50 from 10.0.0.0/24 lookup 100", "ip -6 rule add pref 50 from fd00:0:0:1::/64 lookup 100"),
			step(twoTables(), "ip route del 10.1.0.0/16 table 100", "ip route add 10.0.0.0/8 via 10.0.1.10 mtu 1300 table 100", "ip route add 10.0.0.0/9 via 10.0.1.10 mtu 1500 table 101",
				"ip route del 2001:db8:1::/48 table 100", "ip -6 route add 2001:db8::/32 via fd00::2:0:0:0:10 mtu 1300 table 100")}},
		{name: "mtu-beside-others", why: "of routes that differ by next hop only the one without an mtu goes, and then the other counts", slow: Excuse{Prefixes: net5}, reasons: []string{"route-mtu"}, steps: []handStep{
			step(appended(), to5(gw1, gw1v6)...), step(appended(), "ip route append 10.5.0.0/16 via 10.0.2.10 mtu 1300"), step(appended(), "ip route del 10.5.0.0/16 via 10.0.1.10"),
			step(appended(), "ip route prepend 10.5.0.0/16 via 10.0.1.10 mtu 1380"), step(appended(), "ip route del 10.5.0.0/16 via 10.0.1.10"), step(appended(), "ip route del 10.5.0.0/16 via 10.0.2.10", "ip route add 10.5.0.0/16 via 10.0.1.10")}},
		{name: "mtu6-of-device", why: "net.ipv6.conf.DEV.mtu below the device's, which IPv4 does not know of", reasons: []string{"mtu", "fast"}, steps: []handStep{step(sizes(1300), "sysctl net.ipv6.conf.p1.mtu=1300")}},
		{name: "mtu6-of-device gso", why: "the same, and segmentation still to be done: TCP by its segments, and what GRO made of datagrams, whose length may be anything", hooks: []string{"tc"}, reasons: []string{"segment-mtu", "fast"},
			steps: []handStep{step(join(offloads(), datagrams()), "ethtool -K p0 rx-udp-gro-forwarding on", "sysctl net.ipv6.conf.p1.mtu=1300"), step(join(offloads(), datagrams()), "sysctl net.ipv6.conf.p1.mtu=1281"), step(join(offloads(), datagrams()), "sysctl net.ipv6.conf.p1.mtu=1500")}},
		{name: "mtu-device", why: "a small egress MTU", steps: []handStep{step(sizes(1300), "ip link set p1 mtu 1300")}, reasons: []string{"mtu", "fast"}},
		{name: "realms", why: "realms switch Linux to a full check of every source", slow: Excuse{IP4: true},
			steps: []handStep{step(join(dst5, sources()), "ip route add 10.5.0.0/16 via 10.0.1.10 realms 7")}, reasons: []string{"route-realm"}},
		{name: "via-inet6", why: "trap 1.8: an IPv4 route through an IPv6 neighbour", steps: []handStep{step(dst5, "ip route add 10.5.0.0/16 via inet6 fd00::2:0:0:0:10 dev p1")}, reasons: []string{"fast"}},
		{name: "onlink", why: "a gateway outside every subnet", steps: []handStep{step(dst5, "ip route add 10.5.0.0/16 via 192.168.55.5 dev p1 onlink", "ip neighbour add 192.168.55.5 lladdr 02:00:00:01:02:09 dev p1 nud permanent")}, reasons: []string{"fast"}},
		{name: "on-device", why: "no gateway: the destination is the neighbour", steps: []handStep{step(dst5, "ip route add 10.5.0.0/16 dev p1", "ip neighbour add 10.5.1.1 lladdr 02:00:00:01:02:09 dev p1 nud permanent",
			"ip route add 2001:db8:5::/48 dev p1", "ip neighbour add 2001:db8:5::1 lladdr 02:00:00:01:02:09 dev p1 nud permanent")}, reasons: []string{"fast"}},
		{name: "tos-route", why: "routes that differ by TOS only", steps: []handStep{step(join(everyTOS(), tosTo5()), "ip route add 10.5.0.0/16 tos 0x10 via 10.0.1.10", "ip route add 10.5.0.0/16 tos 0x08 via 10.0.2.10", "ip route add 10.5.0.0/16 via 10.0.2.11")}, reasons: []string{"fast"}},
		{name: "metrics", why: "routes that differ by metric only", steps: []handStep{step(dst5, "ip route add 10.5.0.0/16 via 10.0.1.10 metric 10", "ip route add 10.5.0.0/16 via 10.0.2.10 metric 5"), step(dst5, "ip route del 10.5.0.0/16 metric 5")}, reasons: []string{"fast"}},
		{name: "other-metrics", why: "metrics that concern only local sockets", steps: []handStep{step(dst5, to5(gw1+" hoplimit 9 initcwnd 5 quickack 1", gw1v6+" hoplimit 9 initcwnd 5")...)}},
		{name: "from-subtree", why: "IPv6 routes that look at the source",
			steps: []handStep{step(join(dst5, udp(0, "2001:db8:3::4", "2001:db8:5::1")), "ip -6 route add 2001:db8:5::/48 from 2001:db8:3::/48 via fd00::2:0:0:0:10 dev p1", "ip -6 route add 2001:db8:5::/48 via fd00::3:0:0:0:10 dev p2")}, slow: Excuse{IP6: true}},
		{name: "encap", why: "a route with an encapsulation", steps: []handStep{step(dst5, "ip -6 route add 2001:db8:5::/48 encap seg6 mode encap segs fd00::2:0:0:0:10 dev p1")}, reasons: []string{"route-encap"}, slow: Excuse{IP6: true}},
		{name: "multipath", why: "trap 1.14: next hops chosen as the kernel's hash does", steps: []handStep{step(manyFlows(40),
			to5("nexthop "+gw1+" nexthop "+gw2+" nexthop via 10.0.2.11 weight 3", "nexthop "+gw1v6+" nexthop "+gw2v6+" weight 2")...)}, reasons: []string{"fast", "icmp-error"}},
		{name: "multipath-policy-1", why: "hashed by ports: the lookup cannot repeat it", slow: Excuse{Prefixes: net5}, reasons: []string{"route-ecmp"},
			steps: []handStep{step(manyFlows(25), append(to5("nexthop "+gw1+" nexthop "+gw2, "nexthop "+gw1v6+" nexthop "+gw2v6), "sysctl net.ipv4.fib_multipath_hash_policy=1", "sysctl net.ipv6.fib_multipath_hash_policy=1")...)}},
		{name: "multipath-policy-1 beside others", why: "a route of one next hop goes that was before one of several", slow: Excuse{Prefixes: net5}, reasons: []string{"route-ecmp"},
			steps: []handStep{step(manyFlows(12), "ip route add 10.5.0.0/16 nexthop "+gw1+" nexthop "+gw2, "sysctl net.ipv4.fib_multipath_hash_policy=1"), step(manyFlows(12), "ip route prepend 10.5.0.0/16 via 10.0.2.10"),
				step(manyFlows(12), "ip route del 10.5.0.0/16 via 10.0.2.10")}},
		{name: "multipath-policy-2", why: "hashed by inner headers", slow: Excuse{Prefixes: net5},
			steps: []handStep{step(manyFlows(15), append(to5("nexthop "+gw1+" nexthop "+gw2, "nexthop "+gw1v6+" nexthop "+gw2v6), "sysctl net.ipv4.fib_multipath_hash_policy=2", "sysctl net.ipv6.fib_multipath_hash_policy=2")...)}},
		{name: "multipath-policy-3", why: "hashed by chosen fields", slow: Excuse{Prefixes: net5},
			steps: []handStep{step(manyFlows(15), append(to5("nexthop "+gw1+" nexthop "+gw2, "nexthop "+gw1v6+" nexthop "+gw2v6),
				"sysctl net.ipv4.fib_multipath_hash_policy=3", "sysctl net.ipv4.fib_multipath_hash_fields=0x38", "sysctl net.ipv6.fib_multipath_hash_policy=3")...)}},
		{name: "multipath-use-neigh", why: "next hops of IPv4 whose neighbour is not valid are passed over", slow: Excuse{Prefixes: net5[:1]}, reasons: []string{"route-ecmp", "fast"},
			steps: []handStep{step(join(manyFlows(25), some()), append(to5("nexthop "+gw1+" nexthop via 10.0.2.99", "nexthop "+gw1v6+" nexthop "+gw2v6), "sysctl net.ipv4.fib_multipath_use_neigh=1", "ip neighbour add 10.0.2.99 dev p2 nud failed")...)}},
		{name: "multipath-down", why: "a next hop whose device is down", steps: []handStep{step(manyFlows(20), to5("nexthop "+gw1+" nexthop "+gw2, "nexthop "+gw1v6+" nexthop "+gw2v6)...), step(manyFlows(20), "ip link set p2 down")}, slow: Excuse{Out: []int{2}}},
		{name: "multipath-same-port", why: "one of the next hops is where packets come from", steps: []handStep{step(manyFlows(25), to5("nexthop "+gw1+" nexthop via 10.0.0.11", "nexthop "+gw1v6+" nexthop via fd00::1:0:0:0:11")...)}, reasons: []string{"same-interface", "fast"}},
		{name: "nexthop-objects", why: "nexthop objects and a group", reasons: []string{"fast"}, slow: Excuse{},
			steps: []handStep{
				step(manyFlows(25), "ip nexthop add id 1 via 10.0.1.10 dev p1", "ip nexthop add id 2 via 10.0.2.10 dev p2", "ip nexthop add id 9 group 1,3/2",
					"ip nexthop add id 21 via fd00::2:0:0:0:10 dev p1", "ip nexthop add id 22 via fd00::3:0:0:0:10 dev p2", "ip nexthop add id 29 group 21/22,2",
					"ip route add 10.5.0.0/16 nhid 9", "ip route add 2001:db8:5::/48 nhid 29"),
				step(manyFlows(10), "ip nexthop replace id 9 group 2"), step(manyFlows(10), "ip nexthop replace id 2 via 10.0.1.11 dev p1"), step(manyFlows(10), "ip nexthop del id 22")}},
		{name: "nexthop-resilient", why: "a resilient group keeps flows where they were", slow: Excuse{Prefixes: net5},
			steps: []handStep{step(manyFlows(20), "ip nexthop add id 1 via 10.0.1.10 dev p1", "ip nexthop add id 2 via 10.0.2.10 dev p2", "ip nexthop add id 9 group 1/2 type resilient buckets 16", "ip route add 10.5.0.0/16 nhid 9")}, reasons: []string{"route-ecmp"}},
		{name: "nexthop-blackhole", why: "a nexthop object that drops", steps: []handStep{step(dst5, "ip nexthop add id 5 blackhole", "ip route add 10.5.0.0/16 nhid 5", "ip -6 nexthop add id 6 blackhole", "ip route add 2001:db8:5::/48 nhid 6")}, reasons: []string{"blackhole"}},
		{name: "nexthop-mtu", why: "an mtu metric on a route through a nexthop object", slow: mtu,
			steps: []handStep{step(sizes(1300), "ip nexthop add id 1 via 10.0.1.10 dev p1", "ip route replace 10.1.0.0/16 nhid 1 mtu 1300")}},
		{name: "same-interface", why: "back where it came from: Linux sends a redirect", reasons: []string{"same-interface"},
			steps: []handStep{step(join(udp(0, h0, "10.3.1.1"), udp(0, h0v6, "2001:db8:3::1"), udp(0, h0, "10.0.0.11"), udp(0, "10.3.7.7", "10.3.1.1"))),
				step(join(udp(0, h0, "10.3.1.1"), udp(0, h0, "10.0.0.11")), "sysctl net.ipv4.conf.all.send_redirects=0", "sysctl net.ipv4.conf.p0.send_redirects=0")}},
		{name: "accepted-redirect", why: "an ICMP redirect that the router accepts moves forwarded packets too", slow: Excuse{Out: []int{1}},
			steps: []handStep{
				step(dst5, append(to5(gw1, gw1v6), "sysctl net.ipv4.conf.all.accept_redirects=1", "sysctl net.ipv4.conf.p1.accept_redirects=1", "sysctl net.ipv4.conf.all.secure_redirects=0", "sysctl net.ipv4.conf.p1.secure_redirects=0")...),
				step(redirectTo("10.5.1.1", "10.0.1.11")), step(dst5)}},
		{name: "redirect-one-switch", why: "redirects are not accepted when one of the two switches is off", reasons: []string{"fast"},
			steps: []handStep{step(dst5, append(to5(gw1, gw1v6), "sysctl net.ipv4.conf.all.accept_redirects=0", "sysctl net.ipv4.conf.p1.accept_redirects=1")...),
				step(dst5, "sysctl net.ipv4.conf.all.accept_redirects=1", "sysctl net.ipv4.conf.p0.accept_redirects=0", "sysctl net.ipv4.conf.p1.accept_redirects=0")}},
		{name: "path-mtu", why: "a learned path MTU does not bind forwarded packets, unless ip_forward_use_pmtu says so",
			steps: []handStep{step(tooBig()), step(sizes(1300)), step(sizes(1300), "sysctl net.ipv4.ip_forward_use_pmtu=1")}, slow: Excuse{IP4: true, IP6: true}},
		{name: "linkdown", why: "routes through a device without carrier", slow: Excuse{Out: []int{1}},
			steps: []handStep{step(some(), "ip link set p1 down"), step(some(), "sysctl net.ipv4.conf.all.ignore_routes_with_linkdown=1", "ip link set p1 up")}},
		{name: "carrier", why: "the cable of the egress port pulled and put back", slow: Excuse{Out: []int{1}, In: []int{1}},
			steps: []handStep{step(join(some(), manyFlows(8)), to5("nexthop "+gw1+" nexthop "+gw2, "nexthop "+gw1v6+" nexthop "+gw2v6)...), step(join(some(), manyFlows(8)), "carrier 1 down"),
				step(join(some(), manyFlows(8)), "sysctl net.ipv4.conf.all.ignore_routes_with_linkdown=1", "sysctl net.ipv6.conf.all.ignore_routes_with_linkdown=1"), step(join(some(), manyFlows(8)), "carrier 1 up")}},
		{name: "slash-31", why: "/31 and /32 addresses, /127 and /128", reasons: []string{"fast"}, steps: []handStep{step(join(udp(0, h0, "10.9.9.1"), udp(0, h0, "10.9.9.0"), udp(0, h0, "10.9.9.2"), udp(0, h0, "10.8.8.8"), udp(0, h0v6, "fd99::1"), udp(0, h0v6, "fd99::")),
			"ip address add 10.9.9.0/31 dev p1", "ip neighbour add 10.9.9.1 lladdr 02:00:00:01:02:09 dev p1 nud permanent", "ip address add 10.8.8.8/32 dev p2",
			"ip address add fd99::/127 dev p1 nodad", "ip neighbour add fd99::1 lladdr 02:00:00:01:02:09 dev p1 nud permanent")}},
		{name: "overlap", why: "the same network at two ports", steps: []handStep{step(join(udp(0, h0, "10.0.1.11"), udp(2, "10.0.2.10", "10.0.1.11"), udp(0, h0, "10.0.1.200")), "ip address add 10.0.1.200/24 dev p2", "ip address add 10.0.0.0/8 dev p2")}},
	}
}

// sizedRoutes are packets around an mtu for what only a default route of IPv6 leads to.
func sizedRoutes(mtu int) (out []Packet) {
	for n := mtu - 1; n <= mtu+1; n++ {
		out = append(out, sized(0, h0v6, "2001:db8:9::1", n)...)
	}
	return out
}

// appended are packets for net5 longer and shorter than the mtus of case mtu-beside-others.
func appended() []Packet {
	return join(sized(0, h0, "10.5.1.1", 1400), sized(0, h0, "10.5.1.1", 1350), sized(0, h0, "10.5.1.1", 1200), sized(0, h0, "10.5.1.1", 1400, lab.FragmentField(2, 0)))
}

func tosTo5() []Packet {
	var out []Packet
	for tos := 0; tos < 64; tos++ {
		f := flowOf(0, h0, "10.5.1.1")
		f.TOS = uint8(tos)
		out = append(out, Packet{Port: 0, How: WireFrame, Frame: f.UDP("tos")})
	}
	return out
}

// reply is an echo reply that the router may have sent: the kernel believes ICMP errors about those without a socket.
func reply(src, dst string) []byte {
	f := lab.Flow{SrcMAC: portMAC(1), DstMAC: hostMAC(1, 0), Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst)}
	return f.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(0, 0), Id: 1, Seq: 1}, gopacket.Payload("inner"))[14:]
}

// redirectTo tells the router that a destination is better reached through another gateway at p1.
func redirectTo(dst, gw string) []Packet {
	inner := reply("10.0.1.1", dst)
	via := netip.MustParseAddr(gw).As4()
	f := flowOf(1, "10.0.1.10", "10.0.1.1")
	return in(1, f.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(5, 1), Id: uint16(via[0])<<8 | uint16(via[1]), Seq: uint16(via[2])<<8 | uint16(via[3])}, gopacket.Payload(inner)))
}

// tooBig tells the router that the paths to h1 and h1v6 take 1280 bytes.
func tooBig() []Packet {
	inner := reply("10.0.1.1", h1)
	v4 := flowOf(1, "10.0.1.10", "10.0.1.1")
	inner6 := lab.Flow{SrcMAC: portMAC(1), DstMAC: hostMAC(1, 0), Src: netip.MustParseAddr("fd00::2:0:0:0:1"), Dst: netip.MustParseAddr(h1v6)}.Echo(1, 1, "inner")[14:]
	v6 := flowOf(1, "fd00::2:0:0:0:10", "fd00::2:0:0:0:1")
	return in(1, v4.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: 1280}, gopacket.Payload(inner)),
		v6.Carry(&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}, gopacket.Payload([]byte{0, 0, 5, 0}), gopacket.Payload(inner6)))
}
