// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"strings"
)

// left are segments of one side of a connection whose checksum, and cutting, is still to be done; seq is the first one's.
func (c talk) left(server bool, seq, ack uint32) (out []Packet, next uint32) {
	for _, n := range []struct {
		size int
		gso  uint16
	}{{1, 0}, {501, 0}, {1050, 500}, {2530, 1240}} {
		p := c.says(server, "PA", seq, ack, strings.Repeat("o", n.size))[0]
		p.How, p.GSO = Offload, n.gso
		out = append(out, partial(p))
		seq += uint32(n.size)
	}
	return out, seq
}

// chained are datagrams of a conversation, which a device with rx-gro-list hands over as one packet that stays a list (SKB_GSO_FRAGLIST).
func (c talk) chained(server bool) (out []Packet) {
	port, f := c.flow(server)
	for _, size := range []int{100, 1001} {
		for i := range 6 {
			f.ID++
			out = append(out, Packet{Port: port, How: WireFrame, Frame: f.UDP(strings.Repeat(string(rune('a'+i)), size)), Merge: true})
		}
	}
	return out
}

// chainedTo are such datagrams of no conversation.
func chainedTo(pairs ...[2]string) (out []Packet) {
	for _, pair := range pairs {
		out = append(out, talk{client: pair[0], server: pair[1], port: 6000, dport: 7000}.chained(false)...)
	}
	return out
}

// offloadedTraps translate, and put into tunnels, what is still to be summed up or cut, what is a list of packets, and what has been summed up as a whole: the kernel sums a tunnel's outer packet, and what
// it took out then has that sum with it (CHECKSUM_COMPLETE), which has to follow each change.
func offloadedTraps() []hand {
	both := Excuse{IP4: true, IP6: true}
	lists := "ethtool -K p0 rx-gro-list on"
	back := "ethtool -K p1 rx-gro-list on"
	var out []hand
	for _, c := range []struct {
		name  string
		talk  talk
		rules string
	}{{"masquerade ip6", masqueraded6, masquerades}, {"dnat ip6", published6, publishes6}, {"both ip6", both6, doesBoth6}, {"both", both4, doesBoth4}} {
		there, seq := c.talk.left(false, 141, 501)
		answer, ack := c.talk.left(true, 501, seq)
		more, _ := c.talk.left(false, seq, ack)
		out = append(out, hand{name: "nat offloads " + c.name, why: "the sum over addresses and ports follows a translation whether it is complete or to be completed, in segments too", slow: both, loads: true, hooks: []string{"tc"}, reasons: []string{"fast"},
			steps: append(c.talk.begins(c.rules), step(there), step(answer), step(more, "ip link set p1 mtu 1300"))})
		of := c.talk
		of.port++
		rules := strings.ReplaceAll(strings.ReplaceAll(c.rules, "tcp dport", "udp dport"), "tcp sport", "udp sport")
		steps := append(of.datagrams([]string{rules, lists, back}, []string{"x", "odd"}), step(of.chained(false)), step(of.chained(true)), step(of.chained(false), "ip link set p1 mtu 1000"))
		out = append(out, hand{name: "nat lists " + c.name, why: "each packet of a list is translated", slow: both, loads: true, hooks: []string{"tc"}, reasons: []string{"fast"}, steps: steps})
	}
	pods := [][2]string{{h0, podA}, {h0v6, podA6}}
	tunnelled := func(name, why string, do []string, more ...handStep) hand {
		return hand{name: "overlay lists " + name, why: why, needs: "vxlan", loads: true, slow: Excuse{Tunnel: true}, hooks: []string{"tc"}, reasons: []string{"fast"}, steps: append([]handStep{step(chainedTo(pods...), append(do, lists)...)}, more...)}
	}
	node := nodeAt(1, 0, 1, flannelPort)
	wrapped := func() (packets []Packet) {
		outer := node
		for _, pair := range [][2]string{{podA, h0}, {podA6, h0v6}} {
			for i := range 6 {
				f := fromPod(pair[0], pair[1])
				f.SrcPort, f.DstPort, f.ID = 6000, 7000, uint16(i)
				outer.outer.ID++
				packets = append(packets, Packet{Port: 1, How: WireFrame, Frame: outer.wrap(f.UDP(strings.Repeat(string(rune('a'+i)), 300))), Merge: true})
			}
		}
		return packets
	}
	return append(out, tunnelled("into", "a list is cut, or gets its headers, as the tunnel's device has it", flannel(""), step(chainedTo(pods...), "ip link set vx0 mtu 900"), step(chainedTo(pods...), "ip link set vx0 mtu 1450", "ethtool -K vx0 tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off")),
		tunnelled("into IPv6", "the same over IPv6", overIPv6("")), tunnelled("into unchecked", "the same without outer checksums", flannel("noudpcsum")),
		tunnelled("out", "lists of a tunnel's packets, and of what was in them", flannel(""), step(wrapped(), back), step(wrapped(), "ethtool -K vx0 rx-gro-list on")),
		connected("masqueraded IPv6", talk{client: "fd00::1:0:0:0:11", server: podA6, port: 1000, seen: "2001:db8:f0::1"}, "nft table ip6 gw { chain pre { type nat hook prerouting priority dstnat; counter; }; chain post { type nat hook postrouting priority srcnat; ip6 saddr fd00::1:0:0:0:11 oifname vx0 snat to 2001:db8:f0::1; }; }"),
		connected("service IPv6", talk{client: h0v6, server: "2001:db8:43::80", port: 1000, real: podA6, realPort: 8080}, natTable("ip6", "ip6 daddr 2001:db8:43::80 tcp dport 80 dnat to [2001:db8:f1::5]:8080", "counter")))
}
