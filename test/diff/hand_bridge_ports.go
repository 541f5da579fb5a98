// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"

	"github.com/shuntnet/shunt/internal/lab"
)

// bridgePortTraps are about what ports and bridges are set to, and about their coming and going.
func bridgePortTraps() []hand {
	all := join(chat(), strangers(), groups(), stationA.word(stationA2, "by one port"), stationA2.word(stationA, "by one port"))
	bare := func(name, why string, steps ...handStep) hand {
		return hand{name: "bridge " + name, why: why, bare: true, slow: onBridge, steps: steps}
	}
	set := func(settings ...string) handStep {
		var do []string
		for _, s := range settings {
			do = append(do, "bridge link set dev "+s)
		}
		return step(join(everybody(), all), do...)
	}
	attribute := func(settings ...string) (steps []handStep) {
		for _, s := range settings {
			steps = append(steps, set("p0 "+s+" on"), set("p0 "+s+" off"))
		}
		return steps
	}
	unusual := bare("attributes", "what few ports are set to: left to Linux, and right", append([]handStep{step(join(meet(), all), bridge("")...)},
		attribute("neigh_suppress", "proxy_arp", "proxy_arp_wifi", "locked", "vlan_tunnel", "guard", "root_block", "fastleave", "mcast_to_unicast")...)...)
	unusual.slow.Bridge = true
	suppress := bare("neighbours suppressed", "a port that answers for others what the bridge knows", step(join(meet(), asks()), bridge("", "ip neighbour replace 10.0.0.32 lladdr 02:00:00:01:02:02 dev br0 nud permanent", "bridge link set dev p1 neigh_suppress on")...),
		step(asks(), "bridge link set dev p1 neigh_suppress off", "bridge link set dev p1 proxy_arp on"), step(join(asks(), chat()), "bridge link set dev p1 proxy_arp off"))
	suppress.slow.Bridge = true
	locked := bare("locked", "who is not known by hand is not let in", step(join(meet(), all), bridge("", "bridge link set dev p0 locked on learning off")...), step(all, "bridge fdb replace 02:00:00:01:01:02 dev p0 master static"),
		step(join(everybody(), all), "bridge link set dev p0 locked on learning on mab on"), step(join(everybody(), all), "bridge link set dev p0 locked off mab off", "ip link set br0 type bridge fdb_flush"))
	locked.slow.Bridge = true
	backup := bare("backup port", "frames for a port without carrier leave by another", step(join(meet(), all), bridge("", "bridge link set dev p1 backup_port p2")...), step(all, "carrier 1 down"), step(join(everybody(), all), "carrier 1 up"), step(all, "bridge link set dev p1 nobackup_port"))
	backup.slow.Bridge = true
	spanning := bare("spanning tree", "ports that a tree has just begun to look at pass nothing on; later they do", step(join(everybody(), chat()), bridge("stp_state 1 forward_delay 200 hello_time 100")...), step(join(meet(), all), "sleep 6s"),
		step(join(all, byWire(bpdus())), "ip link set br0 type bridge stp_state 0"), step(join(everybody(), all)))
	spanning.slow.Bridge = true
	return []hand{
		bare("hairpin", "back by the port that it came from, only where that is asked for", step(join(meet(), all), bridge("")...), set("p0 hairpin on"), set("p1 hairpin on"), set("p0 hairpin off")),
		bare("isolated", "isolated ports do not reach each other", step(join(meet(), all), bridge("", "bridge link set dev p0 isolated on")...), set("p1 isolated on"), set("p2 isolated on"), set("p0 isolated off")),
		bare("learning off", "a port that does not learn, and one whose entries are made by hand", step(join(meet(), all, senderMACs()), bridge("", "bridge link set dev p0 learning off")...), step(join(meet(), all), "bridge fdb add 02:00:00:01:01:02 dev p0 master static"),
			step(join(everybody(), all, by(1, stationA.to(stationC)), all), "bridge link set dev p0 learning on")),
		bare("flood off", "unknown destinations, groups and broadcast leave only by ports that flood", step(join(meet(), all), bridge("", "bridge link set dev p1 flood off")...), set("p1 mcast_flood off", "p2 flood off"), set("p1 bcast_flood off", "p1 flood on"), set("p0 flood off", "p1 flood off")),
		bare("states", "what a port passes on and learns in each state", step(join(meet(), all), bridge("")...), set("p1 state 4"), set("p1 state 1"), set("p1 state 2"), set("p1 state 0"), set("p1 state 3"), set("p0 state 2", "p2 state 4"),
			step(join(all, controls()), "bridge link set dev p0 state 3"), set("p2 state 3")),
		spanning, unusual, suppress, locked, backup,
		bare("ports come and go", "a port that leaves forgets, and routes for itself; one that comes takes part", step(join(meet(), all), bridge("")...), step(join(all, ownPort(2)), "ip link set p2 nomaster"), step(join(chat(), by(3, stationC.to(stationA)), stationA.to(stationC)), "ip link set p3 master br0"),
			step(join(meet(), all), "ip link set p2 master br0"), step(join(all, ownPort(0)), "ip link set p0 nomaster", "ip address add 10.0.0.1/24 dev p0"), step(join(meet(), all, ownPort(0)), "ip link set p0 master br0"), step(join(all, ownPort(1)), "ip link del br0")),
		bare("down and up", "ports, cables and the bridge itself", step(join(meet(), all), bridge("")...), step(all, "ip link set p1 down"), step(join(stationA.word(stationB, "forgotten"), all), "ip link set p1 up"), step(all, "carrier 2 down"), step(join(everybody(), all), "carrier 2 up"),
			step(join(all, ownPort(0)), "ip link set br0 down"), step(join(stationA.word(stationB, "forgotten"), meet(), all), "ip link set br0 up")),
		bare("addresses change", "the bridge's and a port's own addresses", step(join(meet(), toRouters()), bridge("", "ip address add 10.0.0.1/24 dev br0")...), step(join(toRouters(), pings(), newMAC()), "ip link set br0 address 02:00:00:00:b0:02"),
			step(join(toRouters(), pings(), newMAC()), "ip link set p1 address 02:00:00:00:b0:01"), step(join(toRouters(), pings(), newMAC()), "ip link set p1 address 02:00:00:00:02:01"),
			// The address of a station becomes the bridge's own, and back.
			step(join(chat(), newMAC()), "ip address del 10.0.0.1/24 dev br0", "ip link set br0 address 02:00:00:01:02:02"), step(join(chat(), newMAC()), "ip link set br0 address 02:00:00:00:b0:01")),
		bare("address of a port", "a bridge without an address of its own takes that of a port, and follows it", step(join(meet(), toRouters()), "ip link add br0 type bridge", "ip link set p1 master br0", "ip link set p2 master br0", "ip link set br0 up",
			"sysctl net.bridge.bridge-nf-call-iptables=0", "sysctl net.bridge.bridge-nf-call-ip6tables=0", "sysctl net.bridge.bridge-nf-call-arptables=0", "ip address add 10.0.0.1/24 dev br0"), step(join(meet(), toRouters(), pings()), "ip link set p0 master br0"), step(join(meet(), toRouters(), pings()), "ip link set p0 nomaster")),
		bare("two bridges", "a port moves to another bridge in the middle of a talk", step(join(meet(), all), bridge("", "ip link add br1 type bridge", "ip link set p3 master br1", "ip link set br1 up")...),
			step(join(all, by(3, stationB.to(stationA))), "ip link set p1 nomaster", "ip link set p1 master br1"), step(join(meet(), all, by(3, stationA.to(stationB)), stationB.to(stationA))), step(join(meet(), all), "ip link set p1 master br0")),
		bare("renamed", "names say nothing", step(join(meet(), all), bridge("")...), step(join(meet(), all), "ip link set br0 name br7"), step(join(meet(), all), "ip link set br7 name br0")),
	}
}

// ownPort are packets for a port that is, or was, no longer a bridge's.
func ownPort(port int) []Packet {
	f := flowOf(port, fmt.Sprintf("10.0.%d.10", port), "10.0.0.1")
	return in(port, f.UDP("a port of its own"), f.Echo(1, 2, "ping"))
}

// newMAC are packets to an address that the bridge is given.
func newMAC() []Packet {
	return toward([]byte{0x02, 0, 0, 0, 0xb0, 0x02}, join(stationA.word(stationB, "new"), stationB.word(stationA, "new")))
}

// asks are requests for neighbours that a port may answer itself.
func asks() []Packet {
	return join(arp(0, 1, stationA.mac(), "10.0.0.16", "10.0.0.32"), arp(0, 1, stationA.mac(), "10.0.0.16", "10.0.0.99"), arp(2, 1, stationC.mac(), "10.0.0.48", "10.0.0.32"), in(0, arpBetween(stationA, stationB, 1)))
}

// bpdus are configuration messages of the spanning tree, better and worse than the router's own, and torn ones.
func bpdus() (out []Packet) {
	for i, priority := range []byte{0x00, 0xff} {
		body := append([]byte{0x42, 0x42, 0x03, 0, 0, 0, 0, 0, priority, 0, 2, 0, 0, 1, 1, 2, 0, 0, 0, 0, priority, 0, 2, 0, 0, 1, 1, 2, 0x80, 1, 0, 0, 20, 0, 2, 0, 15, 0}, make([]byte, 8)...)
		frame := append([]byte{1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 1, byte(i + 1), 2, 0, 38}, body...)
		out = append(out, in(i, frame, lab.Edited(frame, lab.Truncate(30)))...)
	}
	return out
}
