// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// headed makes packets of a tunnel whose VXLAN header is another: what extensions say there.
func (t tunnel) headed(header [8]byte, inners ...[]byte) (out []Packet) {
	for _, inner := range inners {
		out = append(out, in(t.port, t.outer.UDP(string(slices.Concat(header[:], inner))))...)
	}
	return out
}

// overlayFlagTraps send packets of the extensions of VXLAN, to devices that know them and to those that do not. Their devices are Linux's; what passes beside them is not.
func overlayFlagTraps() []hand {
	node := nodeAt(1, 0, 1, flannelPort)
	frames := podFrames()
	beside := join(some(), back())
	// Group policy (draft-smith-vxlan-group-policy): the group is the mark, on the way in and out.
	policies := join(node.carry(frames), node.headed([8]byte{0x88, 0, 0x01, 0x23, 0, 0, 1, 0}, frames...), node.headed([8]byte{0x88, 0x48, 0, 7, 0, 0, 1, 0}, frames[:3]...), node.headed([8]byte{0x80, 0, 0, 7, 0, 0, 1, 0}, frames[0]), node.headed([8]byte{0x88, 0, 0, 7, 0, 0, 2, 0}, frames[0]))
	marks := nftFile("add table inet t", "add chain inet t p { type filter hook prerouting priority -150; }", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t p meta mark 0x123 counter", "add rule inet t p meta mark & 0xffff == 7 counter",
		"add rule inet t f meta mark 0x123 udp dport 2000 counter drop", "add rule inet t f iifname vx0 meta mark 0 counter", "add rule inet t f oifname vx0 udp dport 2000 meta mark set 0x55", "add rule inet t f oifname vx0 tcp dport 2000 meta mark set 0x480077", "add rule inet t f counter")
	// Remote checksum offload: the place of the inner checksum and where it begins, in words of two bytes.
	summed := func(start, bits byte) [8]byte { return [8]byte{0x08, 0x20, 0, 0, 0, 0, 1, start | bits} }
	udp4, udp6, tcp4 := frames[0], frames[6], frames[1]
	remote := join(node.carry(frames), node.headed(summed(17, 0x80), udp4), node.headed(summed(27, 0x80), udp6), node.headed(summed(17, 0), tcp4), node.headed(summed(127, 0), tcp4), node.headed(summed(17, 0x80), lab.Edited(udp4, lab.BadTransportChecksum())))
	// Generic protocol extension (draft-ietf-nvo3-vxlan-gpe): no Ethernet header inside.
	bare := func(next byte, inners ...[]byte) (out []Packet) {
		far := nodeAt(1, 0, 1, 4790)
		for _, f := range inners {
			out = append(out, far.headed([8]byte{0x0c, 0, 0, next, 0, 0, 1, 0}, f[14:])...)
		}
		return out
	}
	generic := join(bare(1, frames[:6]...), bare(2, frames[6:]...), bare(2, frames[0]), bare(3, frames[0]), bare(9, frames[0]), nodeAt(1, 0, 1, 4790).carry(frames[:2]))
	second := node
	second.vni = 2
	third := node
	third.vni = 3
	tunnels := join(node.carry(frames), second.carry(frames[:3]), third.carry(frames[:3]))
	external := func(options string, more ...string) []string {
		return slices.Concat([]string{fmt.Sprintf("ip link add vx0 address %s type vxlan external local 10.0.1.1 %s", vtepMAC, options)}, quietDevice("vx0"), []string{"ip link set vx0 up", "ip address add 10.244.0.0/32 dev vx0"}, more,
			[]string{"ip route add 10.244.1.0/24 encap ip id 1 dst 10.0.1.10 dev vx0"})
	}
	all := func(name, why string, reasons []string, steps ...handStep) hand {
		return hand{name: "overlay extension " + name, why: why, needs: "vxlan", loads: true, reasons: append([]string{"fast"}, reasons...), slow: Excuse{Rules: true}, steps: steps}
	}
	attribute := []string{"link-attribute"}
	out := []hand{
		all("group policy", "packets with a group and without, to a device that takes it for a mark, and from one that sends the mark along", attribute, step(join(beside, toPods(), policies), flannel("gbp", marks)...),
			step(join(beside, toPods(), policies), "nft flush chain inet t p", "nft insert rule inet t p ip daddr 10.244.1.0/24 meta mark set 9"), step(join(beside, toPods(), policies), "ip link del vx0"), step(join(beside, toPods(), policies), flannel("")...)),
		all("remote checksum", "packets whose inner checksum the receiver is to fill in, to a device that does and to one that does not", attribute, step(join(beside, remote, toPods()), flannel("remcsumtx remcsumrx")...), step(remote, append([]string{"ip link del vx0"}, flannel("")...)...)),
		all("metadata", "a device that takes every network, and routes that say which one to send by", attribute, step(join(beside, tunnels, toPods()), external(fmt.Sprintf("dstport %d", flannelPort))...)),
		all("no Ethernet", "packets of IP right behind the header", attribute, step(join(beside, generic), external("gpe dstport 4790")...)),
		all("some networks", "a device for those networks that it is told of, more and fewer of them", attribute, step(join(beside, tunnels, toPods()), external(fmt.Sprintf("vnifilter dstport %d", flannelPort), "bridge vni add dev vx0 vni 1")...),
			step(tunnels, "bridge vni add dev vx0 vni 2"), step(join(tunnels, toPods()), "bridge vni delete dev vx0 vni 1")),
	}
	offload := all("remote checksum offloads", "sums and segments that are still to be done, left to the receiver", nil, step(podOffloads(), flannel("remcsumtx remcsumrx")...))
	offload.hooks, offload.reasons = []string{"tc"}, nil
	for i := range out {
		switch out[i].name {
		case "overlay extension no Ethernet":
			out[i].steps[0].do[0] = "ip link add vx0 type vxlan external local 10.0.1.1 gpe dstport 4790"
			out[i].steps[0].do = slices.Insert(out[i].steps[0].do, 1, "ip link set vx0 addrgenmode none") // whose address would be drawn
			out[i].needs = "vxlan gpe"
		case "overlay extension some networks":
			out[i].needs = "vxlan vnifilter"
		}
	}
	return append(out, offload)
}
