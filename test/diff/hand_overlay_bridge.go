// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// Stations behind a tunnel, by two other hosts.
var stationR, stationS = station{3, 0}, station{3, 1}

// joined is br0 over p0, p2 and a tunnel to two other hosts, as networks of containers are joined; learning finds who is where.
func joined(options string, more ...string) []string {
	out := []string{"ip address add 10.0.1.1/24 dev p1", "ip address add " + addr6(1, 0, 1).String() + "/64 dev p1 nodad",
		fmt.Sprintf("ip neighbour replace 10.0.1.10 lladdr %s dev p1 nud permanent", hostMAC(1, 0)), fmt.Sprintf("ip neighbour replace 10.0.1.11 lladdr %s dev p1 nud permanent", hostMAC(1, 1)),
		fmt.Sprintf("ip link add br0 address %s type bridge", bridgeMAC)}
	out = append(out, quietDevice("br0")...)
	out = append(out, "ip link set p0 master br0", "ip link set p2 master br0", fmt.Sprintf("ip link add vx0 address %s type vxlan id 1 local 10.0.1.1 dev p1 dstport %d remote 10.0.1.10 %s", vtepMAC, vxlanPort, options))
	return slices.Concat(out, quietDevice("vx0"), []string{"ip link set vx0 master br0", "bridge fdb append 00:00:00:00:00:00 dev vx0 dst 10.0.1.11", "ip link set br0 up", "ip link set vx0 up"}, withoutBridgeNetfilter, more)
}

// through are packets as they come by a tunnel.
func (t tunnel) through(lists ...[]Packet) (out []Packet) {
	for _, p := range join(lists...) {
		out = append(out, Packet{Port: t.port, How: p.How, Frame: t.wrap(p.Frame)})
	}
	return out
}

// overlayBridgeTraps are about tunnels as ports of bridges, and about routes from a bridge into one.
func overlayBridgeTraps() []hand {
	one, two := nodeAt(1, 0, 1, vxlanPort), nodeAt(1, 1, 1, vxlanPort)
	hello := join(stationA.hello(), stationC.hello(), one.through(stationR.hello()), two.through(stationS.hello()))
	talk := join(stationA.to(stationR), one.through(stationR.to(stationA)), stationC.to(stationS), two.through(stationS.to(stationC)), stationA.to(stationC), stationC.word(stationR, "c"))
	all := join(hello, talk)
	joins := func(name, why string, steps ...handStep) hand {
		return hand{name: "overlay bridge " + name, why: why, needs: "vxlan", bare: true, loads: true, slow: Excuse{Tunnel: true, Bridged: []int{0, 2}}, reasons: []string{"fast"}, steps: steps}
	}
	moves := join(hello, stationA.word(stationR, "1"), two.through(stationR.hello()), stationA.word(stationR, "2"), by(2, stationR.hello()), stationA.word(stationR, "3"), one.through(stationR.hello()), stationA.word(stationR, "4"))
	other := one
	other.vni = 9
	out := []hand{
		joins("learning", "stations behind other hosts, learned by the bridge and by the tunnel", step(all, joined("")...), step(talk)),
		joins("moves", "a station moves from one host to another, to this one, and back", step(moves, joined("")...), step(join(moves, all))),
		joins("static", "nothing is learned by the tunnel: what is not known goes to every host", step(all, joined("nolearning", fmt.Sprintf("bridge fdb append %s dev vx0 dst 10.0.1.10", stationR.mac()))...), step(all)),
		joins("strangers", "networks that are none of ours, from hosts that are", step(join(all, other.through(stationR.to(stationA)), strangers(), one.through(groups()), groups()), joined("")...)),
		joins("odd", "whatever a bridge must not care about, through the tunnel", step(join(hello, one.through(byWire(toward(stationA.mac(), from(stationR, join(fragments(flowOf(0, h0, h1)), options(flowOf(0, h0, h1)), everyProtocol()))))), toward(stationR.mac(), join(fragments(flowOf(0, h0, h1)), everyProtocol()))), joined("")...)),
		joins("sizes", "frames around the tunnel's MTU, from ports of a larger one", step(join(hello, toward(stationR.mac(), join(sized(0, h0, h1, 1449), sized(0, h0, h1, 1450), sized(0, h0, h1, 1451), sized(0, h0, h1, 1500)))), joined("")...),
			step(toward(stationR.mac(), join(sized(0, h0, h1, 1300), sized(0, h0, h1, 1301), sized(0, h0v6, h1v6, 1301))), "ip link set vx0 mtu 1300")),
		joins("oversize", "a tunnel whose MTU is more than its underlay can carry answers for the underlay", step(join(hello, tooLong(stationA, stationR)), loose(joined(""))...), step(tooLong(stationA, stationR)), step(tooLong(stationA, stationR), "ip link set vx0 type vxlan df set")),
		joins("tags", "a tag between the addresses and the type goes along", step(join(all, tagged(stationA.to(stationR), 5), one.through(tagged(stationR.to(stationA), 5))), joined("")...)),
		joins("faults", "another host's entry, the tunnel, its underlay go", step(all, joined("")...), atOnce(talk, "bridge fdb flush dev vx0"), step(all), atOnce(talk, "bridge link set dev vx0 learning off"), step(all, "bridge link set dev vx0 isolated on"),
			atOnce(talk, "ip link set vx0 nomaster"), step(all), atOnce(all, "ip link set vx0 master br0"), atOnce(talk, "ip link set p1 down"), atOnce(all, "ip link del vx0")),
		joins("group", "hosts found by a group of the underlay", step(join(all, stationA.group("239.1.1.1")), joinedByGroup()...), step(talk)),
	}
	third := nodeAt(1, 1, 2, vxlanPort)
	apart := slices.Concat(joined("", "bridge fdb del 00:00:00:00:00:00 dev vx0 dst 10.0.1.11", fmt.Sprintf("ip link add vx1 address 02:00:00:00:aa:07 type vxlan id 2 local 10.0.1.1 dev p1 dstport %d remote 10.0.1.11 df set", vxlanPort)),
		quietDevice("vx1"), []string{"ip link set vx1 master br0", "ip link set vx1 up"}, metadata)
	far := join(one.through(stationR.hello()), third.through(stationS.hello()), one.through(stationR.to(stationS)), third.through(stationS.to(stationR)), stationA.hello(), stationA.to(stationS), third.through(stationS.to(stationA)))
	onwards := joins("into another", "from one tunnel to another what the first one's outer header said goes along, unless br_netfilter gives the packet a route",
		step(far, apart...), step(far, withBridgeNetfilter...), step(far, "nft table inet t { chain f { type filter hook forward priority 0; counter; }; }"), step(far, withoutBridgeNetfilter...))
	onwards.reasons = []string{"fast", "tunnel-metadata"}
	out = append(out, onwards)
	switched := joins("switches", "what the tunnel's end of the bridge may be told to do instead", step(all, joined("")...), step(all, "bridge link set dev vx0 neigh_suppress on"), step(all, "bridge link set dev vx0 neigh_suppress off", "ip link set vx0 down", "ip link set vx0 up"))
	switched.slow.Bridge = true
	return append(out, switched, pods())
}

// from are packets as another station sends them.
func from(s station, packets []Packet) []Packet {
	out := slices.Clone(packets)
	for i := range out {
		out[i].Frame = slices.Concat(out[i].Frame[:6], s.mac(), out[i].Frame[12:])
	}
	return out
}

// loose makes the tunnel without saying by which device it goes, so that its MTU is not bound to that device's.
func loose(do []string) []string {
	out := slices.Clone(do)
	for i := range out {
		out[i] = strings.Replace(out[i], " dev p1 dstport", " dstport", 1)
	}
	return out
}

// tooLong are packets from one station to another that are longer inside a tunnel than the underlay carries, and some that just fit.
func tooLong(s, to station) (out []Packet) {
	for _, v6 := range []bool{false, true} {
		f := s.flow(to, v6)
		for _, n := range []int{1370, 1422, 1423, 1472} {
			if v6 {
				n -= 20
			}
			out = append(out, in(s.port, f.UDP(strings.Repeat("l", n)), lab.Edited(f.UDP(strings.Repeat("l", n)), dontFragment(v6)...))...)
		}
	}
	return out
}

// dontFragment is the edit that forbids it, where there is one.
func dontFragment(v6 bool) []lab.Edit {
	if v6 {
		return nil
	}
	return []lab.Edit{lab.FragmentField(2, 0), lab.FixIPChecksum()}
}

// joinedByGroup has the tunnel's other ends be found by multicast.
func joinedByGroup() []string {
	out := joined("")
	for i, do := range out {
		if len(do) > 20 && do[:20] == "ip link add vx0 addr" {
			out[i] = fmt.Sprintf("ip link add vx0 address %s type vxlan id 1 local 10.0.1.1 dev p1 dstport %d group 239.7.7.7", vtepMAC, vxlanPort)
		}
	}
	return slices.DeleteFunc(out, func(do string) bool { return do[:min(20, len(do))] == "bridge fdb append 00" })
}

// pods is a node as Flannel and the bridge plugin of CNI make it: pods at a bridge, another node's behind a tunnel.
func pods() hand {
	node := nodeAt(3, 0, 1, flannelPort)
	do := irb("", slices.Concat([]string{fmt.Sprintf("ip link add vx0 address %s type vxlan id 1 local 10.0.3.1 dev p3 dstport %d nolearning", vtepMAC, flannelPort)}, quietDevice("vx0"), []string{
		"ip link set vx0 up", "ip address add 10.244.0.0/32 dev vx0", "ip route add 10.244.1.0/24 via 10.244.1.0 dev vx0 onlink", "ip route add 2001:db8:f1::/64 via fd00:f1::1 dev vx0 onlink",
		fmt.Sprintf("ip neighbour replace 10.244.1.0 lladdr %s dev vx0 nud permanent", peerMAC), fmt.Sprintf("ip neighbour replace fd00:f1::1 lladdr %s dev vx0 nud permanent", peerMAC),
		fmt.Sprintf("bridge fdb append %s dev vx0 dst 10.0.3.10", peerMAC)})...)
	var back [][]byte
	for _, s := range []station{stationA, stationB} {
		for _, v6 := range []bool{false, true} {
			f := fromPod(map[bool]string{false: podA, true: podA6}[v6], s.addr(v6).String())
			back = append(back, f.UDP("back"), f.TCP("SA", 1, ""), f.Echo(1, 1, "back"))
		}
	}
	packets := join(everybody(), stationA.up(podA), stationB.up(podA6), stationC.up("10.244.1.9"), node.carry(back), chat())
	return hand{name: "overlay pods", why: "pods at a bridge and another node's behind a tunnel, as Flannel and CNI join them", needs: "vxlan", bare: true, slow: Excuse{Tunnel: true, Bridged: onBridge.Bridged},
		reasons: []string{"fast"}, steps: []handStep{step(packets, do...), step(packets), atOnce(packets, "ip link set vx0 down"), step(packets, flannelAgain...),
			step(packets, "nft table inet t { chain f { type filter hook forward priority 0; oifname vx0 udp dport 2000 drop; }; }")}}
}
