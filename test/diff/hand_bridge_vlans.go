// SPDX-License-Identifier: Apache-2.0

package diff

import "fmt"

// bridgeVLANTraps are about bridges that filter by VLAN; this host's kernel may lack that, other kernels have it.
func bridgeVLANTraps() []hand {
	all := byWire(join(everybody(), chat(), strangers()))
	mixed := join(all, tagged(all, 5), tagged(all, 6), tagged(byWire(chat()), 0), tagged(byWire(chat()), 0x3005), tagged(byWire(chat()), 5, 7), byWire(groups()), tagged(byWire(groups()), 5))
	vlans := func(name, why string, steps ...handStep) hand {
		return hand{name: "bridge vlans " + name, why: why, needs: "bridge vlans", bare: true, slow: Excuse{Bridged: onBridge.Bridged}, steps: steps}
	}
	out := []hand{
		vlans("plain", "every port in VLAN 1 alone, as it begins", step(mixed, bridge("vlan_filtering 1")...), frozen(mixed, "ip link set br0 type bridge vlan_filtering 0"), step(mixed), frozen(mixed, "ip link set br0 type bridge vlan_filtering 1"), step(mixed)),
		vlans("trunk", "a trunk, a port with its VLAN's tag taken off, and one that is in both", step(mixed, bridge("vlan_filtering 1", "bridge vlan add dev p0 vid 5", "bridge vlan add dev p0 vid 6", "bridge vlan add dev p1 vid 5 pvid untagged", "bridge vlan del dev p1 vid 1", "bridge vlan add dev p2 vid 5", "bridge vlan add dev p2 vid 6 untagged")...),
			frozen(mixed, "bridge vlan del dev p0 vid 5"), frozen(mixed, "bridge vlan add dev p0 vid 5 pvid"), step(mixed, "bridge vlan add dev p1 vid 6 pvid untagged")),
		vlans("without a default", "untagged frames belong nowhere, priority tags neither", step(mixed, bridge("vlan_filtering 1 vlan_default_pvid 0")...), step(mixed, "bridge vlan add dev p0 vid 5 pvid untagged", "bridge vlan add dev p1 vid 5"), step(mixed, "bridge vlan add dev p1 vid 5 pvid untagged")),
		vlans("of providers", "802.1ad: other tags are payload", step(mixed, bridge("vlan_filtering 1 vlan_protocol 802.1ad", "bridge vlan add dev p0 vid 5", "bridge vlan add dev p1 vid 5 pvid untagged")...), step(mixed, "ip link set br0 type bridge vlan_protocol 802.1Q")),
		vlans("entries", "a station is known in one VLAN and not in another", step(mixed, bridge("vlan_filtering 1", "bridge vlan add dev p0 vid 5", "bridge vlan add dev p1 vid 5", "bridge vlan add dev p2 vid 5", "bridge fdb add 02:00:00:01:02:0b dev p1 master static vlan 5")...),
			step(join(byWire(nine()), tagged(byWire(nine()), 5), tagged(by(2, byWire(stationA.to(stationB))), 5), byWire(stationB.to(stationA)), tagged(byWire(stationB.to(stationA)), 5)))),
		vlans("states", "a VLAN's own state at a port", step(mixed, bridge("vlan_filtering 1", "bridge vlan add dev p0 vid 5", "bridge vlan add dev p1 vid 5", "bridge vlan add dev p2 vid 5", "bridge vlan set dev p1 vid 5 state blocking")...), step(mixed, "bridge vlan set dev p1 vid 5 state learning"), step(mixed, "bridge vlan set dev p1 vid 5 state forwarding")),
		vlans("routes", "the bridge itself is in VLAN 1, and routes it; then VLAN 5 by a device of its own", step(join(byWire(everybody()), upAndDown(), tagged(byWire(upAndDown()), 5)), irb("vlan_filtering 1")...), step(join(upAndDown(), tagged(byWire(upAndDown()), 5)), "bridge vlan add dev br0 vid 5 pvid untagged self", "bridge vlan add dev p0 vid 5"),
			step(join(byWire(everybody()), upAndDown()), "bridge vlan del dev br0 vid 5 self", "bridge vlan add dev br0 vid 1 pvid untagged self"),
			step(join(byWire(everybody()), tagged(byWire(everybody()), 5), upAndDown(), tagged(byWire(upAndDown()), 5)), "bridge vlan add dev br0 vid 5 self", "bridge vlan add dev p0 vid 5", "bridge vlan add dev p1 vid 5", "bridge vlan add dev p2 vid 5 pvid untagged",
				"ip link add link br0 name br0.5 type vlan id 5", "ip link set br0.5 up", "ip address add 10.5.0.1/24 dev br0.5", fmt.Sprintf("ip neighbour replace 10.5.0.32 lladdr %s dev br0.5 nud permanent", stationC.mac()), fmt.Sprintf("ip neighbour replace 10.5.0.16 lladdr %s dev br0.5 nud permanent", stationA.mac()),
				"ip route replace 10.1.0.0/16 via 10.5.0.32", "ip route add 10.2.0.0/16 via 10.5.0.16"),
			step(join(upAndDown(), tagged(byWire(upAndDown()), 5), down("10.2.1.1"), byWire(join(stationB.up("10.2.3.4"), stationC.up("10.1.3.4"))))),
			step(join(upAndDown(), tagged(byWire(upAndDown()), 5), down("10.2.1.1")), "bridge vlan del dev p0 vid 5")),
	}
	for i, reasons := range [][]string{
		{"fast", "bridge-member", "vlan-unknown"}, {"fast", "bridge-member"}, {"fast", "bridge-member"}, {"fast", "vlan-unknown"}, {"fast", "bridge-destination"}, {"fast", "bridge-member"}, {"fast", "bridge-member"},
	} {
		out[i].reasons = reasons
	}
	return out
}
