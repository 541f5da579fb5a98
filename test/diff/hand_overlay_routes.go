// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"
)

// underlayCases are about tunnels whose packets leave by something that carries less than the tunnel lets pass. Which way they go is a matter of each host in the tunnel's table and of Linux's
// routes, whatever device the tunnel names; Linux tells senders, and shunt has to find out within a second.
func underlayCases(overlay func(name, why string, packets []Packet, do []string, more ...handStep) hand) (out []hand) {
	slow := []int{1, 2} // where they leave by
	narrow := func(name, why string, packets []Packet, do []string, then ...string) {
		h := overlay("underlay "+name, why, toPods(), do, step(packets, append(then, "sleep 2500ms")...), step(packets))
		h.slow.Out, h.reasons = slow, []string{"egress-slow", "fast"}
		out = append(out, h)
	}
	big := join(toPods(), sized(0, h0v6, podA6, 1400)) // of IPv4 Linux remembers what did not fit, which is another reason
	elsewhere := fmt.Sprintf("bridge fdb replace %s dev vx0 dst 10.0.2.10", peerMAC)
	narrow("of another device", "a host is behind another device than the tunnel names", big, flannel(""), "ip link set p2 mtu 1400", elsewhere)
	narrow("by its entry", "an entry names another device than the tunnel", big, flannel("df set"), "ip link set p2 mtu 1400", elsewhere+" via p2")
	narrow("of IPv6", "a device carries less of IPv6 than of anything else", big, overIPv6(""), "sysctl net.ipv6.conf.p1.mtu=1400")
	narrow("of one next hop", "one of two ways to a host carries less", big, flannel(""), "ip link set p2 mtu 1400", "ip route add 10.77.0.5/32 nexthop via 10.0.1.10 nexthop via 10.0.2.10", strings.Replace(elsewhere, "10.0.2.10", "10.77.0.5", 1))
	var learns []string
	for _, c := range flannel("") {
		if !strings.HasPrefix(c, "bridge fdb append") {
			learns = append(learns, strings.Replace(c, " nolearning", "", 1))
		}
	}
	learned := overlay("underlay that was learned", "where a host is was learned from what it sent", nodeAt(2, 0, 1, flannelPort).carry(podFrames()), append(learns, "ip link set p2 mtu 1400"), step(big, "sleep 2500ms"), step(big))
	learned.slow.Out, learned.reasons = slow, []string{"egress-slow"}
	nested := slices.Concat(flannel(""), []string{"ip link add vx1 address 02:00:00:00:cc:01 type vxlan id 9 local 10.244.0.0 dstport 4790 nolearning"}, quietDevice("vx1"), []string{"ip link set vx1 mtu 1400", "ip link set vx1 up", "ip address add 10.246.0.1/24 dev vx1",
		"ip address add 2001:db8:f6::1/64 dev vx1 nodad", "ip neighbour replace 10.246.0.5 lladdr 02:00:00:00:cc:02 dev vx1 nud permanent", "ip neighbour replace 2001:db8:f6::5 lladdr 02:00:00:00:cc:02 dev vx1 nud permanent", "bridge fdb append 02:00:00:00:cc:02 dev vx1 dst 10.244.1.5"})
	narrow("of another tunnel", "a tunnel leads through another", join(toPods(), sized(0, h0v6, "2001:db8:f6::5", 1440)), nested, "ip link set vx1 mtu 1450")
	return append(out, learned)
}
