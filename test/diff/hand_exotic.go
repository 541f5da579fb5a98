// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"

	"github.com/shuntnet/shunt/internal/lab"
)

// segmentRouted are packets to a local segment with a routing header that has this one and another to go (RFC 8754), and such without.
func segmentRouted(sid, next string) []Packet {
	f := flowOf(0, h0v6, sid)
	last := netip.MustParseAddr(next).As16()
	here := netip.MustParseAddr(sid).As16()
	header := append([]byte{17, 4, 4, 1, 1, 0, 0, 0}, last[:]...) // next header UDP, two segments, one left
	header = append(header, here[:]...)
	inner := f.UDP("segment")[54:]
	frame := f.Carry(gopacket.Payload(append(header, inner...)))
	return in(0, lab.Edited(frame, lab.L3(6, 43)), f.UDP("segment"))
}

// datagrams are UDP packets of one flow and of one length, of which a device with rx-gro-list makes one that stays a list (SKB_GSO_FRAGLIST).
func datagrams() []Packet {
	var out []Packet
	for _, pair := range [][2]string{{h0, h1}, {h0, "10.2.3.4"}, {h0v6, h1v6}, {h0v6, "2001:db8:2::7"}} {
		for _, size := range []int{100, 1000, 1240, 1400} {
			f := flowOf(0, pair[0], pair[1])
			f.SrcPort = uint16(6000 + size)
			for i := range 8 {
				f.ID++
				out = append(out, Packet{Port: 0, How: WireFrame, Frame: f.UDP(strings.Repeat(string(rune('a'+i)), size)), Merge: true})
			}
		}
	}
	return out
}

// exoticTraps are about routes and devices that do more to a packet than send it on.
func exoticTraps() []hand {
	traffic := join(some(), services(), back())
	both := Excuse{IP4: true, IP6: true}
	ip5 := func(prefixes ...string) Excuse {
		var x Excuse
		for _, p := range prefixes {
			x.Prefixes = append(x.Prefixes, netip.MustParsePrefix(p))
		}
		return x
	}
	exotic := func(name, why string, slow Excuse, reasons []string, packets []Packet, do ...string) hand {
		return hand{name: "exotic " + name, why: why, slow: slow, reasons: reasons, loads: true, steps: []handStep{step(join(traffic, packets), do...)}}
	}
	// XDP takes packets before any device merges them.
	lists := hand{name: "exotic lists", why: "packets that GRO has chained and not merged: all of them get the new MAC address and TTL", hooks: []string{"tc"}, reasons: []string{"fast", "segment-mtu"}, loads: true, steps: []handStep{
		step(datagrams(), "ethtool -K p0 rx-gro-list on"), step(datagrams(), "ip link set p1 mtu 1300"), step(datagrams(), "iptables-legacy -t nat -A POSTROUTING -o p2 -j MASQUERADE"), step(datagrams(), "iptables-legacy -t mangle -A FORWARD -p udp -j TOS --set-tos 0x10"),
		step(datagrams(), "ethtool -K p0 rx-gro-list off rx-udp-gro-forwarding on")}}
	return []hand{lists,
		exotic("seg6local end", "a local segment takes packets and sends them on by their routing header", Excuse{}, []string{"ip6-extension", "fast"}, segmentRouted("2001:db8:5::9", "2001:db8:1::9"),
			append(to5(gw1, gw1v6), "ip -6 route add 2001:db8:5::9/128 encap seg6local action End dev p1", "sysctl net.ipv6.conf.all.seg6_enabled=0")...),
		exotic("seg6local decapsulation", "a local segment that unpacks", Excuse{}, []string{"fast", "route-encap"}, udp(0, h0v6, "2001:db8:5::8"), append(to5(gw1, gw1v6), "ip -6 route add 2001:db8:5::8/128 encap seg6local action End.DX6 nh6 fd00::3:0:0:0:10 dev p1")...),
		exotic("seg6 from ip4", "IPv4 into segments", ip5("10.5.0.0/16"), []string{"route-encap", "fast"}, nil, "ip route add 10.5.0.0/16 encap seg6 mode encap segs 2001:db8:1::9 dev p1", "ip route add 2001:db8:5::/48 "+gw1v6),
		exotic("seg6 from ip6", "IPv6 into segments, by a header of its own and inline", ip5("2001:db8:5::/48", "2001:db8:6::/48"), []string{"route-encap", "fast"}, udp(0, h0v6, "2001:db8:6::1"),
			"ip route add 10.5.0.0/16 "+gw1, "ip -6 route add 2001:db8:5::/48 encap seg6 mode encap segs 2001:db8:1::9 dev p1", "ip -6 route add 2001:db8:6::/48 encap seg6 mode inline segs 2001:db8:1::9 dev p1"),
		exotic("tunnel key route", "a route with a tunnel's key, over a device that has no tunnel", ip5("10.5.0.0/16"), []string{"route-encap", "fast"}, nil, "ip route add 10.5.0.0/16 encap ip id 100 dst 10.0.1.99 via 10.0.1.10 dev p1", "ip route add 2001:db8:5::/48 "+gw1v6),
		exotic("program route", "a route whose packets a program sees, and drops some", ip5("10.5.0.0/16"), []string{"route-encap", "fast"}, nil, "foreign route 10.5.0.0/16 10.0.1.10 p1", "ip route add 2001:db8:5::/48 "+gw1v6),
		exotic("tun", "a device without Ethernet on the way out", ip5("10.5.0.0/16", "2001:db8:5::/48"), []string{"egress-slow", "fast"}, nil, "ip tuntap add tn0 mode tun", "ip link set tn0 up", "ip address add 10.0.7.1/24 dev tn0", "ip route add 10.5.0.0/16 dev tn0", "ip route add 2001:db8:5::/48 dev tn0"),
		exotic("ioam6", "the router may take part in in-situ measurement, which is a matter of packets with an option for it", Excuse{}, []string{"ip6-extension", "fast"}, extensions(flowOf(0, h0v6, h1v6)), append(to5(gw1, gw1v6), "sysctl net.ipv6.conf.p0.ioam6_enabled=1")...),
		exotic("disable_policy", "a device that IPsec policies do not hold for, and one", both, []string{"xfrm"}, nil, append(to5(gw1, gw1v6), "sysctl net.ipv4.conf.p0.disable_policy=1", "sysctl net.ipv6.conf.p0.disable_policy=1", "sysctl net.ipv4.conf.p1.disable_xfrm=1",
			"ip xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 dir fwd action block", "ip xfrm policy add src 10.0.0.0/8 dst 10.2.0.0/16 dir out action block")...),
		exotic("disable_policy alone", "without a policy the switches do nothing", Excuse{}, []string{"fast"}, nil, append(to5(gw1, gw1v6), "sysctl net.ipv4.conf.p0.disable_policy=1", "sysctl net.ipv6.conf.p0.disable_policy=1", "sysctl net.ipv4.conf.all.disable_xfrm=1")...),
		exotic("resilient group", "a group that remembers who went where", ip5("10.5.0.0/16", "2001:db8:5::/48"), []string{"route-ecmp", "fast"}, manyFlows(6), "ip nexthop add id 1 via 10.0.1.10 dev p1", "ip nexthop add id 2 via 10.0.2.10 dev p2", "ip nexthop add id 21 via fd00::2:0:0:0:10 dev p1",
			"ip nexthop add id 22 via fd00::3:0:0:0:10 dev p2", "ip nexthop add id 9 group 1/2 type resilient buckets 8 idle_timer 60", "ip nexthop add id 29 group 21/22 type resilient buckets 8 idle_timer 60", "ip route add 10.5.0.0/16 nhid 9", "ip route add 2001:db8:5::/48 nhid 29"),
	}
}
