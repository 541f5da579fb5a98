// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"

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
