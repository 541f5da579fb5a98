// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// tagged puts VLAN tags on packets, outermost first.
func tagged(packets []Packet, ids ...uint16) []Packet {
	out := slices.Clone(packets)
	for i := range out {
		f := slices.Clone(out[i].Frame)
		for n := len(ids) - 1; n >= 0; n-- {
			tpid := []byte{0x81, 0}
			if n == 0 && len(ids) > 1 {
				tpid = []byte{0x88, 0xa8}
			}
			f = slices.Insert(f, 12, tpid[0], tpid[1], byte(ids[n]>>8), byte(ids[n]))
		}
		out[i].Frame = f
	}
	return out
}

// onVLAN moves the address and the neighbours of a port of the common router to a device on top of it.
func onVLAN(port int, dev string) []string {
	out := []string{
		fmt.Sprintf("ip address flush dev p%d", port), fmt.Sprintf("ip link set %s up", dev),
		fmt.Sprintf("sysctl net/ipv6/conf/%s/accept_dad=0", dev), fmt.Sprintf("sysctl net/ipv6/conf/%s/router_solicitations=0", dev),
		fmt.Sprintf("ip address add 10.0.%d.1/24 dev %s", port, dev), fmt.Sprintf("ip address add %s/64 dev %s nodad", addr6(port, 0, 1), dev),
	}
	for n := range 2 {
		out = append(out, fmt.Sprintf("ip neighbour replace 10.0.%d.%d lladdr %s dev %s nud permanent", port, 10+n, hostMAC(port, n), dev),
			fmt.Sprintf("ip neighbour replace %s lladdr %s dev %s nud permanent", addr6(port, 0, byte(0x10+n)), hostMAC(port, n), dev))
	}
	net := []string{"10.3.0.0/16 via 10.0.0.11", "10.1.0.0/16 via 10.0.1.10", "10.2.0.0/16 via 10.0.2.10"}[port]
	net6 := []string{"2001:db8:3::/48 via fd00::1:0:0:0:11", "2001:db8:1::/48 via fd00::2:0:0:0:10", "2001:db8:2::/48 via fd00::3:0:0:0:10"}[port]
	return append(out, "ip route replace "+net, "ip route replace "+net6)
}

// stackedTraps are about devices on top of others; this host's kernel may lack them, other kernels have them.
func stackedTraps() []hand {
	with := func(lists ...[]string) []string { return slices.Concat(lists...) }
	return []hand{
		{name: "stacked vlan ingress", why: "packets that come in tagged", needs: "vlan", slow: Excuse{Tagged: true}, reasons: []string{"fast", "vlan-unknown"},
			steps: []handStep{step(join(some(), tagged(some(), 5), tagged(some(), 6), tagged(some(), 0), tagged(some(), 5, 7), tagged(some(), 0x2005)),
				with([]string{"ip link add link p0 name p0.5 type vlan id 5"}, onVLAN(0, "p0.5"))...)}},
		{name: "stacked vlan egress", why: "packets that leave tagged", needs: "vlan", slow: Excuse{Tagged: true}, reasons: []string{"fast"},
			steps: []handStep{step(join(some(), sizes(1500)), with([]string{"ip link add link p1 name p1.9 type vlan id 9"}, onVLAN(1, "p1.9"))...)}},
		{name: "stacked vlan both", why: "tag to tag, and router on a stick", needs: "vlan", slow: Excuse{Tagged: true}, reasons: []string{"fast"},
			steps: []handStep{step(join(tagged(some(), 5), tagged(sizes(1400), 5)), with([]string{"ip link add link p0 name p0.5 type vlan id 5", "ip link add link p0 name p0.9 type vlan id 9"}, onVLAN(0, "p0.5"), onVLAN(1, "p0.9"))...)}},
		{name: "stacked qinq", why: "two tags in, two tags out", needs: "vlan", slow: Excuse{Tagged: true}, reasons: []string{"fast"},
			steps: []handStep{step(join(tagged(some(), 5, 7), tagged(some(), 5), some()), with([]string{
				"ip link add link p0 name s5 type vlan proto 802.1ad id 5", "ip link set s5 up", "ip link add link s5 name s5.7 type vlan id 7",
				"ip link add link p1 name s6 type vlan proto 802.1ad id 6", "ip link set s6 up", "ip link add link s6 name s6.8 type vlan id 8"}, onVLAN(0, "s5.7"), onVLAN(1, "s6.8"))...)}},
		{name: "stacked qinq length", why: "an XDP frame has room for one tag beside a packet of full length", needs: "vlan", slow: Excuse{Tagged: true, Out: []int{1}}, reasons: []string{"fast"},
			steps: []handStep{step(join(some(), sizes(1496), sizes(1500)), with([]string{
				"ip link add link p1 name s6 type vlan proto 802.1ad id 6", "ip link set s6 up", "ip link add link s6 name s6.8 type vlan id 8"}, onVLAN(1, "s6.8"))...)}},
		{name: "stacked vlan priority map", why: "the tag's priority follows the packet's", needs: "vlan", slow: Excuse{Tagged: true, Out: []int{1}},
			steps: []handStep{step(everyTOS(), with([]string{"ip link add link p1 name p1.9 type vlan id 9 egress-qos-map 0:1 2:3 4:5 6:7"}, onVLAN(1, "p1.9"))...)}},
		{name: "stacked vlan rp-filter", why: "rules and reverse paths see the VLAN device, not the port", needs: "vlan", slow: Excuse{Tagged: true},
			steps: []handStep{step(tagged(sources(), 5), with([]string{"ip link add link p0 name p0.5 type vlan id 5"}, onVLAN(0, "p0.5"), []string{"sysctl net/ipv4/conf/p0.5/rp_filter=1"})...),
				step(tagged(some(), 5), "ip rule add pref 40 iif p0.5 to 10.1.0.0/16 prohibit", "ip rule add pref 41 iif p0 blackhole")}},
		{name: "stacked vlan removed", why: "a VLAN device that goes while packets come", needs: "vlan", slow: Excuse{Tagged: true},
			steps: []handStep{step(tagged(some(), 5), with([]string{"ip link add link p0 name p0.5 type vlan id 5"}, onVLAN(0, "p0.5"))...), step(tagged(some(), 5), "ip link del p0.5"), step(join(some(), tagged(some(), 5)), "ip address add 10.0.0.1/24 dev p0")}},
		{name: "stacked vrf", why: "two ports in a VRF of their own", needs: "vrf", reasons: []string{"fast"}, slow: Excuse{IP6: true},
			steps: []handStep{step(join(some(), sources()), "ip link add red type vrf table 77", "ip link set red up", "ip link set p0 master red", "ip link set p1 master red",
				"ip address add fd00::1:0:0:0:1/64 dev p0 nodad", "ip address add fd00::2:0:0:0:1/64 dev p1 nodad", "ip route add 10.1.0.0/16 via 10.0.1.10 table 77", "ip route add 10.3.0.0/16 via 10.0.0.11 table 77",
				"ip neighbour replace 10.0.1.10 lladdr 02:00:00:01:02:02 dev p1 nud permanent", "ip neighbour replace 10.0.0.10 lladdr 02:00:00:01:01:02 dev p0 nud permanent")}},
		{name: "stacked bond", why: "a bond as the way out and in", needs: "bond", slow: Excuse{Out: []int{1, 2}, In: []int{1, 2}},
			steps: []handStep{step(join(some(), udp(1, "10.0.1.10", h0)), "ip link add bond0 type bond mode active-backup", "ip link set p1 down", "ip link set p1 master bond0", "ip link set bond0 up", "ip address add 10.0.1.1/24 dev bond0",
				"ip neighbour replace 10.0.1.10 lladdr 02:00:00:01:02:02 dev bond0 nud permanent", "ip route replace 10.1.0.0/16 via 10.0.1.10")}},
		{name: "stacked macvlan", why: "a device that takes some of the port's frames", needs: "macvlan", slow: Excuse{In: []int{0}, Out: []int{0}},
			steps: []handStep{step(join(some(), in(0, lab.Edited(flowOf(0, h0, h1).UDP("to the macvlan"), lab.L2(0, 2, 0, 0, 0x55, 0, 1)))), "ip link add mv0 link p0 address 02:00:00:55:00:01 type macvlan", "ip link set mv0 up")}},
		{name: "stacked bridge port", why: "a port of a bridge routes nothing itself", needs: "bridge", slow: Excuse{In: []int{0}, Out: []int{0}},
			steps: []handStep{step(some(), "ip link add br0 type bridge", "ip link set p0 master br0", "ip link set br0 up", "ip address add 10.0.0.1/24 dev br0")}},
	}
}
