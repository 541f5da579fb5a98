// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
)

// underlayAgain puts back what goes with p1 when it goes down, as far as the cases here ask for it.
var underlayAgain = []string{"ip link set p1 up", "ip address replace 10.0.1.1/24 dev p1", "ip address replace " + addr6(1, 0, 1).String() + "/64 dev p1 nodad",
	fmt.Sprintf("ip neighbour replace 10.0.1.10 lladdr %s dev p1 nud permanent", hostMAC(1, 0)), fmt.Sprintf("ip neighbour replace 10.0.1.11 lladdr %s dev p1 nud permanent", hostMAC(1, 1))}

// overlayFaultTraps are about what happens to a tunnel's underlay and to its other end, which the device alone has to notice, and about devices that go while nobody watches.
func overlayFaultTraps() []hand {
	node := nodeAt(1, 0, 1, flannelPort)
	both := join(toPods(), node.carry(podFrames()))
	fault := func(name, why string, slow Excuse, reasons []string, steps ...handStep) hand {
		return hand{name: "overlay fault " + name, why: why, needs: "vxlan", loads: true, slow: slow, reasons: reasons, steps: steps}
	}
	tunnel := Excuse{Tunnel: true}
	free := append(loose(flannel("")), "ip link set vx0 mtu 1450") // goes wherever routes say
	one, two := nodeAt(1, 0, 1, vxlanPort), nodeAt(1, 1, 1, vxlanPort)
	hello := join(stationA.hello(), one.through(stationR.hello()), two.through(stationS.hello()))
	talk := join(stationA.to(stationR), one.through(stationR.to(stationA)), stationC.to(stationS), two.through(stationS.to(stationC)))
	bridged := fault("bridged", "a bridge's tunnel loses its other end and its underlay, and is made anew", Excuse{Tunnel: true, Bridged: []int{0, 2}}, []string{"fast"},
		step(join(hello, talk), joined("")...), atOnce(talk, fmt.Sprintf("ip neighbour replace 10.0.1.10 lladdr %s dev p1 nud permanent", hostMAC(1, 1))), atOnce(talk, "ip link set p1 down"), step(join(hello, talk), underlayAgain...),
		atOnce(talk, "ip link del vx0"),
		step(join(hello, talk), fmt.Sprintf("ip link add vx0 address %s type vxlan id 1 local 10.0.1.1 dev p1 dstport %d remote 10.0.1.10", vtepMAC, vxlanPort), "ip link set vx0 master br0", "bridge fdb append 00:00:00:00:00:00 dev vx0 dst 10.0.1.11", "ip link set vx0 up"))
	bridged.bare = true
	gone := fault("unwatched", "the tunnel goes and is made anew while shunt is not there", tunnel, []string{"fast"}, step(both, flannel("")...), killed(both, append([]string{"ip link del vx0"}, flannel("")...)...), step(both))
	gone.hooks = []string{"tc"}
	return []hand{bridged,
		fault("other end", "the tunnel's other end is another machine, is behind another one, cannot be reached, and does not answer", tunnel, []string{"fast"}, step(both, free...),
			atOnce(both, fmt.Sprintf("ip neighbour replace 10.0.1.10 lladdr %s dev p1 nud permanent", hostMAC(1, 1))), atOnce(both, "ip route add 10.0.1.10/32 via 10.0.2.10"), atOnce(both, "ip route del 10.0.1.10/32", "ip route add unreachable 10.0.1.10/32"),
			atOnce(both, "ip route del unreachable 10.0.1.10/32", "ip neighbour del 10.0.1.10 dev p1"), step(both, underlayAgain...)),
		fault("underlay", "the underlay's address goes and comes back, the underlay goes down and up, and the other end answers again", tunnel, []string{"fast"}, step(both, flannel("")...),
			atOnce(both, "ip address del 10.0.1.1/24 dev p1"), step(both, underlayAgain...), atOnce(both, "ip link set p1 down"), step(both, slices.Concat(underlayAgain, []string{"ip route replace 10.1.0.0/16 via 10.0.1.10"})...)),
		fault("underlay mtu", "the underlay carries less than it did when the tunnel was made, and more again", Excuse{Tunnel: true, Out: []int{1}}, []string{"egress-slow", "fast"}, step(both, flannel("")...),
			atOnce(podSizes(), "ip link set p1 mtu 1400"), step(both, "ip link set p1 mtu 1500")),
		gone,
	}
}
