// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
)

// turn is a change of a bridge and what takes it back.
type turn struct{ do, undo []string }

func turned(do, undo string) turn { return turn{[]string{do}, []string{undo}} }

// turns are what commands do to a bridge's ports, stations and itself.
func turns() []turn {
	b, by1, by2 := stationB.mac().String(), "bridge link set dev p1 ", "bridge link set dev p0 "
	return []turn{
		turned(by1+"state 4", by1+"state 3"), turned(by2+"state 2", by2+"state 3"),
		{[]string{by1 + "isolated on", by2 + "isolated on"}, []string{by1 + "isolated off", by2 + "isolated off"}},
		turned(by2+"learning off", by2+"learning on"), {[]string{by2 + "locked on learning off", "bridge fdb del " + station{0, 7}.mac().String() + " dev p0 master"}, []string{by2 + "locked off learning on"}}, turned(by2+"hairpin on", by2+"hairpin off"),
		turned("bridge fdb replace "+b+" dev p2 master static", "bridge fdb del "+b+" dev p2 master"),
		turned("bridge fdb replace "+b+" dev p1 master permanent", "bridge fdb del "+b+" dev p1 master"),
		turned("bridge fdb replace "+b+" dev br0 self permanent", "bridge fdb del "+b+" dev br0 self"),
		turned("ip link set br0 address "+b, "ip link set br0 address "+bridgeMAC.String()),
		turned("ip link set br0 promisc on", "ip link set br0 promisc off"), turned("ip link set p1 mtu 1300", "ip link set p1 mtu 1500"),
		turned("ip link set p1 nomaster", "ip link set p1 master br0"), turned("ip link set p1 down", "ip link set p1 up"), turned("ip link set br0 type bridge fdb_flush", "true"),
	}
}

// frozenTurns makes each change while shunt's process is stopped, and takes it back when it runs: what the data path reads by itself has to do.
func frozenTurns(turns []turn, packets []Packet) (out []handStep) {
	for _, t := range turns {
		out = append(out, frozen(packets, t.do...), step(join(stationA.hello(), stationB.hello(), stationC.hello(), packets), t.undo...))
	}
	return out
}

// bridgeFrozenTraps are changes of a bridge that nobody tells the data path of.
func bridgeFrozenTraps() (out []hand) {
	// Few packets: the programs turn themselves off when shunt has been stopped for long.
	frames := byWire(join(stationA.word(stationB, "a"), stationB.word(stationA, "b"), stationC.word(stationB, "c"), stationA.word(stationA2, "by one port"), station{0, 7}.word(stationB, "who"), sizedTo(1400)[:2]))
	routed := byWire(join(down("10.0.0.32")[:4], down("10.0.0.16")[:2], down("fd00::1:0:0:0:20")[:2], stationB.up("10.3.1.1")[:2], sized(3, "10.0.3.10", "10.0.0.32", 1400)))
	all := turns()
	half := len(all) / 2
	for i, part := range [][]turn{all[:half], all[half:]} {
		name := []string{"settings", "entries"}[i]
		out = append(out, hand{name: "bridge frozen " + name, why: "what changes at a bridge holds for the next frame, whoever is stopped", bare: true, slow: onBridge, reasons: []string{"fast"},
			steps: slices.Concat([]handStep{step(join(everybody(), frames), bridge("")...)}, frozenTurns(part, frames))})
		out = append(out, hand{name: "bridge routes frozen " + name, why: "the same for what is routed to a bridge, straight to its port", bare: true, slow: onBridge, hooks: []string{"tc"}, reasons: []string{"fast"},
			steps: slices.Concat([]handStep{step(join(everybody(), routed), irb("")...)}, frozenTurns(part, routed))})
	}
	heard := hand{name: "bridge frozen listeners", why: "who begins to listen to a bridge hears what it sends and, once it is promiscuous, what passes it", bare: true, slow: onBridge, hooks: []string{"tc"}, reasons: []string{"fast"},
		steps: []handStep{step(join(everybody(), frames, routed), irb("", "listen br0 all")...), step(join(everybody(), frames, routed), "unlisten"), frozen(join(frames, routed), "listen br0 all"), frozen(join(frames, routed), "ip link set br0 promisc on"), step(join(everybody(), routed), "unlisten", "ip link set br0 promisc off")}}
	tight := hand{name: "bridge routes frozen mtu", why: "a port that takes less than the bridge, whose own MTU was set by hand, sends nothing longer", bare: true, slow: onBridge, hooks: []string{"tc"}, reasons: []string{"fast"},
		steps: []handStep{step(join(everybody(), routed, downSized(1400)), irb("", "ip link set br0 mtu 1500")...), frozen(join(routed, downSized(1300), downSized(1304), downSized(1305), downSized(1400)), "ip link set p1 mtu 1300"), step(join(everybody(), routed, downSized(1300), downSized(1304), downSized(1305), downSized(1400))), step(join(everybody(), routed, downSized(1400)), "ip link set p1 mtu 1500")}}
	return append(out, heard, tight, hand{name: "bridge routes aged", why: "a station that has not been heard for long is looked for everywhere, also by what is routed to it", bare: true, slow: onBridge, hooks: []string{"tc"}, reasons: []string{"fast"},
		steps: []handStep{step(join(everybody(), routed), irb("")...), step(routed, "ip link set br0 type bridge ageing_time 100", "sleep 3500ms"), step(join(everybody(), routed), "ip link set br0 type bridge ageing_time 30000")}})
}
