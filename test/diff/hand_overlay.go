// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// flannel is a tunnel as Flannel makes it: nothing learned, the other node's address, station and route given, over p1. Pods of the
// other node are 10.244.1.0/24 and 2001:db8:f1::/64.
func flannel(options string, more ...string) []string {
	out := []string{fmt.Sprintf("ip link add vx0 address %s type vxlan id 1 local 10.0.1.1 dev p1 dstport %d nolearning %s", vtepMAC, flannelPort, options)}
	return slices.Concat(out, quietDevice("vx0"), []string{
		"ip link set vx0 up", "ip address add 10.244.0.0/32 dev vx0",
		"ip route add 10.244.1.0/24 via 10.244.1.0 dev vx0 onlink", "ip route add 2001:db8:f1::/64 via fd00:f1::1 dev vx0 onlink",
		fmt.Sprintf("ip neighbour replace 10.244.1.0 lladdr %s dev vx0 nud permanent", peerMAC), fmt.Sprintf("ip neighbour replace fd00:f1::1 lladdr %s dev vx0 nud permanent", peerMAC),
		fmt.Sprintf("bridge fdb append %s dev vx0 dst 10.0.1.10", peerMAC),
	}, more)
}

// Pods behind the other end of the tunnel.
const podA, podA6 = "10.244.1.5", "2001:db8:f1::5"

// toPods are packets that the router sends by the tunnel, of each protocol and family.
func toPods() (out []Packet) {
	for _, pair := range [][2]string{{h0, podA}, {"10.3.4.5", "10.244.1.77"}, {h0v6, podA6}} {
		f := flowOf(0, pair[0], pair[1])
		out = append(out, in(0, f.UDP("u"), f.TCP("S", 1, ""), f.Echo(1, 1, "ping"))...)
	}
	return out
}

// podFrames are frames that pods of the other node send to hosts of the common router.
func podFrames() (out [][]byte) {
	for _, pair := range [][2]string{{podA, h0}, {"10.244.1.77", "10.2.9.9"}, {podA6, h0v6}} {
		f := fromPod(pair[0], pair[1])
		out = append(out, f.UDP("u"), f.TCP("S", 1, ""), f.Echo(1, 1, "ping"))
	}
	return out
}

// outerEdits are what may be odd about the outer packet.
func outerEdits(t tunnel) []Packet {
	frames := podFrames()[:2]
	other := t
	other.vni++
	out := join(other.carry(frames), t.carry(frames, lab.BadTransportChecksum()), t.carry(frames, lab.L4(6, 0, 0)), t.carry(frames, lab.L4(2, 0x12, 0xb6)), t.carry(frames, lab.TTL(1)),
		t.carry(frames, lab.L4(8, 0)), t.carry(frames, lab.L4(8, 0x88)), t.carry(frames, lab.L4(8, 0x0c)), t.carry(frames, lab.L4(11, 1)), t.carry(frames, lab.L4(15, 9)))
	for ecn := range byte(4) { // outer congestion marks over each inner one (RFC 6040)
		for inner := range byte(4) {
			out = append(out, t.carry([][]byte{lab.Edited(frames[0], lab.L3(1, inner), lab.FixIPChecksum())}, lab.L3(1, 0x40|ecn), lab.FixIPChecksum())...)
		}
	}
	return out
}

// pieces are a tunnel's packets cut by the underlay, whole and with one piece missing.
func pieces(t tunnel) (out []Packet) {
	f := fromPod(podA, h0)
	for i, size := range []int{600, 1400} {
		f.ID = uint16(100 + i)
		t.outer.ID = uint16(200 + i)
		cut := lab.Fragments(t.wrap(f.UDP(string(make([]byte, size)))), 576)
		out = append(out, byWire(in(t.port, cut...))...)
	}
	return append(out, t.carry(lab.Fragments(f.UDP(string(make([]byte, 1200))), 600))...)
}

// podEdits are odd packets from pods: what the fast path leaves alone must be left alone behind a tunnel too.
func podEdits(t tunnel) []Packet {
	v4, v6 := fromPod(podA, h0), fromPod(podA6, h0v6)
	var frames [][]byte
	for _, list := range [][]Packet{eachEdit(v4, v6, lab.TTL(1), lab.TTL(2), lab.TTL(255)), options(v4), fragments(v4), lengths(v4, v6), extensions(v6)} {
		for _, p := range list {
			if p.How == SKB {
				frames = append(frames, p.Frame)
			}
		}
	}
	stray := fromPod(podA, h0)
	stray.DstMAC = peerMAC // not this host's
	frames = append(frames, stray.UDP("not yours"), arpRequest(peerMAC, stray.Src, stray.Dst), fromPod(podA, "10.244.0.0").Echo(1, 2, "router"), fromPod(podA, podA).UDP("back"), fromPod(podA, "10.244.1.9").UDP("back"))
	return t.carry(frames)
}

// podSizes are packets around the tunnel's MTU.
func podSizes() (out []Packet) {
	for _, n := range []int{1300, 1449, 1450, 1451, 1500} {
		out = append(out, sized(0, h0, podA, n)...)
		out = append(out, sized(0, h0, podA, n, lab.FragmentField(2, 0), lab.FixIPChecksum())...)
		out = append(out, sized(0, h0v6, podA6, n)...)
	}
	return out
}

// narrow is what a router says of packets to the other end of a tunnel: that the way takes mtu bytes.
func narrow(t tunnel, mtu uint16) []byte {
	f, local, remote := t.outer, t.outer.Dst.String(), t.outer.Src.String()
	if f.Src.Is4() {
		return f.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: mtu}, gopacket.Payload(reply(local, remote)))
	}
	ping := lab.Flow{SrcMAC: f.DstMAC, DstMAC: f.SrcMAC, Src: f.Dst, Dst: f.Src}.Echo(1, 1, "inner")[14:]
	return f.Carry(&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}, gopacket.Payload([]byte{0, 0, byte(mtu >> 8), byte(mtu)}), gopacket.Payload(ping))
}

// overlayTraps are about tunnels of this host: routed into them and out of them.
func overlayTraps() []hand {
	node := nodeAt(1, 0, 1, flannelPort)
	both := join(toPods(), node.carry(podFrames()))
	overlay := func(name, why string, packets []Packet, do []string, more ...handStep) hand {
		return hand{name: "overlay " + name, why: why, needs: "vxlan", loads: true, reasons: []string{"fast"}, slow: Excuse{Tunnel: true}, steps: append([]handStep{step(packets, do...)}, more...)}
	}
	plain := overlay("flannel", "pods of another node, as Flannel joins them", both, flannel(""))
	out := []hand{
		plain,
		overlay("outer", "wrong network and port, flags, checksums, congestion marks, TTL", join(both, outerEdits(node)), flannel("")),
		overlay("pieces", "fragments of the outer and of the inner packet", join(both, pieces(node)), flannel("")),
		overlay("inner", "odd packets from pods", podEdits(node), flannel("")),
		overlay("sizes", "around the tunnel's MTU", podSizes(), flannel("")),
		overlay("tos", "the outer TOS and TTL that inner ones give", join(everyTOSTo(podA), node.carry(podFrames())), flannel("tos inherit ttl inherit df inherit")),
		overlay("fixed", "TTL and TOS of the tunnel's own, don't fragment", join(everyTOSTo(podA), podSizes()), flannel("tos 0x28 ttl 7 df set")),
		overlay("unchecked", "no outer checksum", both, flannel("noudpcsum")),
		overlay("ports", "a range for the outer source port", both, flannel("srcport 40000 40004")),
		overlay("names", "rules see the tunnel's device, and the outer packet meets the host's own", both, flannel("", nftFile("add table inet t", "add chain inet t f { type filter hook forward priority 0; }", "add chain inet t o { type filter hook output priority 0; }",
			"add chain inet t i { type filter hook input priority 0; }", "add rule inet t f oifname vx0 udp dport 2000 counter drop", "add rule inet t f iifname vx0 icmp type echo-request counter drop", "add rule inet t f counter",
			"add rule inet t o udp dport 8472 counter", "add rule inet t i udp dport 8472 counter")), step(both, "nft add rule inet t o udp dport 8472 counter drop"), step(both, "nft flush chain inet t o", "nft add rule inet t i udp dport 8472 counter drop")),
		overlay("changed", "the other node's station, address and route change, and come back", both, flannel(""),
			atOnce(both, fmt.Sprintf("bridge fdb replace %s dev vx0 dst 10.0.1.11", peerMAC)), atOnce(both, fmt.Sprintf("bridge fdb del %s dev vx0 dst 10.0.1.11", peerMAC)), atOnce(both, fmt.Sprintf("bridge fdb append %s dev vx0 dst 10.0.1.10", peerMAC)),
			atOnce(both, "ip neighbour replace 10.244.1.0 lladdr 02:00:00:00:aa:03 dev vx0 nud permanent"), atOnce(both, "ip route del 10.244.1.0/24"), atOnce(both, "ip route add 10.244.1.0/24 via 10.244.1.0 dev vx0 onlink", fmt.Sprintf("ip neighbour replace 10.244.1.0 lladdr %s dev vx0 nud permanent", peerMAC))),
		overlay("gone", "the tunnel goes down, its underlay does, and it is made anew", both, flannel(""), atOnce(both, "ip link set vx0 down"), step(both, flannelAgain...), atOnce(both, "ip link del vx0"), step(both, flannel("")...),
			atOnce(both, "ip link set vx0 mtu 1200"), step(podSizes(), "ip link set vx0 mtu 1400"), atOnce(both, "ip link set p1 down")),
		overlay("frozen", "the same while shunt's process is stopped", both, flannel(""), frozen(both, fmt.Sprintf("bridge fdb replace %s dev vx0 dst 10.0.1.11", peerMAC)), frozen(both, "ip route del 10.244.1.0/24"), step(both), frozen(both, "ip link set vx0 down"), step(both), frozen(both, "ip link del vx0")),
		overlay("IPv6", "an underlay of IPv6", join(toPods(), sixth.carry(podFrames()), sixth.carry(podFrames()[:2], lab.L4(6, 0, 0))), overIPv6("")),
		overlay("IPv6 unchecked", "and without checksums", join(toPods(), sixth.carry(podFrames()), sixth.carry(podFrames()[:2], lab.L4(6, 0, 0))), overIPv6("udp6zerocsumtx udp6zerocsumrx")),
		overlay("two", "two networks at one port of UDP", join(both, second.carry(fromSecond()), in(0, flowOf(0, h0, "10.245.1.5").UDP("to the second"))), flannel("", secondTunnel...)),
	}
	oversize := overlay("oversize", "a tunnel whose MTU is more than its underlay carries: Linux tells senders of IPv6, and cuts the outer packets of IPv4", podSizes(), loose(flannel("")), step(podSizes(), "ip link set vx0 mtu 1500"), step(both, "ip link set vx0 mtu 1450"))
	oversize.slow.Out, oversize.reasons = []int{1}, []string{"egress-slow", "fast"}
	marks := overlay("marks", "a mark that the outer packet got stays with the inner one, and rules and routes ask it", both, flannel("", nftFile("add table inet t", "add chain inet t i { type filter hook input priority 0; }", "add chain inet t f { type filter hook forward priority 0; }",
		"add rule inet t i udp dport 8472 meta mark set 7", "add rule inet t f meta mark 7 udp dport 2000 counter drop", "add rule inet t f counter")))
	marks.steps = append(marks.steps, step(both, "ip rule add pref 50 fwmark 7 lookup 100", "ip route add 10.2.0.0/16 via 10.0.2.10 table 100"))
	marks.reasons, marks.slow.In = []string{"fast", "skb-mark"}, []int{1}
	another := overlay("into another", "out of one tunnel and into another, which must not take what the first one's outer header said for orders", out2out(node, second), append(flannel("df set", secondTunnel...), metadata...))
	another.reasons = []string{"tunnel-metadata"}
	// What Linux writes down of one mtu stays for the next: each needs a case of its own.
	oversize1 := overlay("oversize by one", "the same, and one byte less would fit", podSizes(), append(loose(flannel("")), "ip link set vx0 mtu 1451"), step(both, "ip link set vx0 mtu 1450"))
	oversize1.slow.Out, oversize1.reasons = oversize.slow.Out, oversize.reasons
	oversize6 := overlay("oversize IPv6", "the same over IPv6, whose header is longer", podSizes(), append(loose(overIPv6("")), "ip link set vx0 mtu 1450"), step(join(toPods(), sixth.carry(podFrames())), "ip link set vx0 mtu 1430"))
	oversize6.slow.Out, oversize6.reasons = oversize.slow.Out, oversize.reasons
	// What Linux learns of the way to the other end it writes down once a packet is too long for it, and tells senders of IPv6; over IPv6 and with DF the outer packet is lost otherwise.
	path := func(name, why string, t tunnel, do []string) hand {
		fits := join(toPods(), sized(0, h0v6, podA6, 1290), sized(0, h0, podA, 1290))
		long := join(fits, sized(0, h0v6, podA6, 1400), sized(0, h0, podA, 1400))
		h := overlay(name, why, fits, do, atOnce(in(1, narrow(t, 1380))), step(long, "sleep 1500ms"), step(long, "sleep 1500ms"), step(fits))
		h.slow.Out, h.reasons = oversize.slow.Out, oversize.reasons
		return h
	}
	out = append(out, path("path", "the way to the other end carries less than the underlay's device", node, flannel("")), path("path whole", "the same where outer packets may not be cut", node, flannel("df set")),
		path("path IPv6", "the same over IPv6", sixth, overIPv6("")))
	out = append(out, underlayCases(overlay)...)
	another6 := overlay("into another from IPv6", "an outer header of the other family says as much", sixth.carry([][]byte{fromPod(podA, "10.245.1.5").UDP("on"), fromPod(podA, "10.245.1.5").TCP("S", 1, "")}), slices.Concat(overIPv6(""), secondTunnel, metadata))
	another6.reasons = []string{"tunnel-metadata"}
	offload := overlay("offloads", "segments and checksums that are still to be done when a packet is put into the tunnel", podOffloads(), flannel(""), step(podOffloads(), "ip link set vx0 mtu 1300"))
	offload.hooks = []string{"tc"}
	external := overlay("metadata", "a device that takes the tunnel from routes is Linux's", both, []string{fmt.Sprintf("ip link add vx0 address %s type vxlan external dstport %d", vtepMAC, flannelPort), "ip link set vx0 up",
		"ip route add 10.244.1.0/24 encap ip id 1 dst 10.0.1.10 dev vx0", "ip address add 10.244.0.0/32 dev vx0"})
	external.slow, external.reasons = Excuse{}, []string{"link-attribute"}
	policy := overlay("group policy", "a mark that travels in the outer header", both, flannel("gbp"))
	policy.slow, policy.reasons = Excuse{}, []string{"link-attribute"}
	clash := overlay("clash", "a second device of the network at the same port, which Linux refuses; and foreign hosts in it, by the other node's station and by one of their own, which the device hears, or drops once it learns", join(both, foreigners()),
		flannel("", fmt.Sprintf("ip link add vx1 type vxlan id 1 local 10.0.1.1 dev p1 dstport %d nolearning", flannelPort)), step(join(foreigners(), both), "ip link set vx0 type vxlan learning"), step(join(both, foreigners()), "ip link set vx0 type vxlan nolearning"))
	clash.loads = false
	transit := overlay("transit", "other hosts' tunnels are packets like others", in(0, tunnelOf(flowOf(0, h0, h1)).wrap(podFrames()[0]), tunnelOf(flowOf(0, h0v6, h1v6)).wrap(podFrames()[1])), nil)
	transit.slow = Excuse{}
	return append(out, marks, another, another6, oversize, oversize1, oversize6, offload, external, policy, clash, transit, connected("tracked", talk{client: h0, server: podA, port: 1000}, stateful), connected("tracked IPv6", talk{client: h0v6, server: podA6, port: 1000}, stateful),
		connected("service", talk{client: h0, server: "10.43.0.80", port: 1000, real: podA, realPort: 8080}, natTable("ip", "ip daddr 10.43.0.80 tcp dport 80 dnat to 10.244.1.5:8080", "counter")),
		connected("masqueraded", talk{client: "10.0.0.11", server: podA, port: 1000, seen: "10.244.0.0"}, natTable("ip", "counter", "ip saddr 10.0.0.11 oifname vx0 masquerade")))
}

// metadata is a rule that has the kernel keep what outer headers say (ip_tunnel_need_metadata()), for all namespaces, and if it goes with its namespace for good. It is
// one of IPv6, so that it leaves the routes of IPv4 to the fast path.
var metadata = []string{"ip -6 rule add tun_id 77 lookup 77"}

// foreigners are frames of hosts that nobody has told of: one beside the other node, and one at another port.
func foreigners() []Packet {
	own := fromPod("10.244.9.9", h0)
	own.SrcMAC = hostMAC(1, 1)
	frames := append(podFrames(), own.UDP("foreign"), own.TCP("S", 1, ""))
	return join(nodeAt(1, 1, 1, flannelPort).carry(frames), nodeAt(2, 0, 1, flannelPort).carry(frames))
}

// out2out are packets from one tunnel to another and back, one of them with bytes behind the packet.
func out2out(node, second tunnel) []Packet {
	there, back := fromPod(podA, "10.245.1.5"), fromPod("10.245.1.5", podA)
	return join(node.carry([][]byte{there.UDP("on"), there.TCP("S", 1, "")}), second.carry([][]byte{back.UDP("back"), lab.Edited(back.UDP("padded"), lab.Append(0, 0, 0, 0))}))
}

// stateful is how nearly every host's rules begin.
var stateful = nftFile("add table inet t", "add chain inet t f { type filter hook forward priority 0; policy drop; }",
	"add rule inet t f ct state established,related counter accept", "add rule inet t f ct state invalid counter drop", "add rule inet t f iifname p0 counter accept", "add rule inet t f counter")

// connected is a connection to a pod by the tunnel, tracked; rules say what becomes of it.
func connected(name string, c talk, rules string) hand {
	node := nodeAt(1, 0, 1, flannelPort)
	c.tunnel = &node
	all := Excuse{IP4: true, IP6: true, Tunnel: true}
	return hand{name: "overlay " + name, why: "a connection through the tunnel from its beginning to its end", needs: "vxlan", loads: true, slow: all, reasons: []string{"fast", "conntrack-state"},
		steps: append(c.begins(flannel("", rules)...), step(c.data(10, 141, 501)), step(c.says(true, "PA", 501, 151, strings.Repeat("y", 1300))), step(c.data(3, 151, 1801)),
			step(c.says(false, "FA", 154, 1801, "")), step(c.says(true, "FA", 1801, 155, "")), step(c.data(2, 155, 1802)))}
}

// flannelAgain puts back what goes with the device when it goes down.
var flannelAgain = []string{"ip link set vx0 up", "ip route add 10.244.1.0/24 via 10.244.1.0 dev vx0 onlink", "ip route add 2001:db8:f1::/64 via fd00:f1::1 dev vx0 onlink",
	fmt.Sprintf("ip neighbour replace 10.244.1.0 lladdr %s dev vx0 nud permanent", peerMAC), fmt.Sprintf("ip neighbour replace fd00:f1::1 lladdr %s dev vx0 nud permanent", peerMAC)}

// tunnelOf is one between the ends of a flow.
func tunnelOf(f lab.Flow) tunnel {
	f.DstPort = vxlanPort
	return tunnel{port: 0, outer: f, vni: 77}
}

// sixth is a tunnel of IPv6, and overIPv6 makes it.
var sixth = func() tunnel {
	t := nodeAt(1, 0, 1, flannelPort)
	t.outer.Src, t.outer.Dst = addr6(1, 0, 0x10), addr6(1, 0, 1)
	return t
}()

func overIPv6(options string) []string {
	out := flannel(options)
	out[0] = fmt.Sprintf("ip link add vx0 address %s type vxlan id 1 local %s dev p1 dstport %d nolearning %s", vtepMAC, addr6(1, 0, 1), flannelPort, options)
	for i, do := range out {
		out[i] = strings.Replace(do, "dst 10.0.1.10", "dst "+addr6(1, 0, 0x10).String(), 1)
	}
	return out
}

// second is a tunnel of another network beside Flannel's, to a host at p2; 10.245.1.0/24 is there.
var second = nodeAt(2, 0, 2, flannelPort)

var secondTunnel = slices.Concat([]string{fmt.Sprintf("ip link add vx1 address %s type vxlan id 2 local 10.0.2.1 dev p2 dstport %d nolearning", vtepMAC, flannelPort)}, quietDevice("vx1"), []string{
	"ip link set vx1 up", "ip address add 10.245.0.0/32 dev vx1", "ip route add 10.245.1.0/24 via 10.245.1.0 dev vx1 onlink",
	fmt.Sprintf("ip neighbour replace 10.245.1.0 lladdr %s dev vx1 nud permanent", peerMAC), fmt.Sprintf("bridge fdb append %s dev vx1 dst 10.0.2.10", peerMAC)})

func fromSecond() [][]byte {
	return [][]byte{fromPod("10.245.1.5", h0).UDP("from the second"), fromPod("10.245.1.5", h1).TCP("S", 1, "")}
}

// podOffloads are packets of a local sender's stack to pods.
func podOffloads() (out []Packet) {
	for _, pair := range [][2]string{{h0, podA}, {h0v6, podA6}} {
		f := flowOf(0, pair[0], pair[1])
		for _, size := range []int{500, 1220, 1240, 1390, 1410, 1411} {
			out = append(out, partial(Packet{Port: 0, How: Offload, GSO: uint16(size), Frame: f.TCP("A", uint32(size), string(make([]byte, 2*size+50)))}))
		}
		out = append(out, partial(Packet{Port: 0, How: Offload, Frame: f.UDP("partial")}), partial(Packet{Port: 0, How: Offload, Frame: f.TCP("S", 1, "partial")}))
	}
	return out
}

// everyTOSTo is a packet of each TOS.
func everyTOSTo(dst string) (out []Packet) {
	for tos := range 256 {
		out = append(out, Packet{Port: 0, How: SKB, Frame: lab.Edited(flowOf(0, h0, dst).UDP("tos"), lab.L3(1, byte(tos)), lab.FixIPChecksum())})
	}
	return out
}
