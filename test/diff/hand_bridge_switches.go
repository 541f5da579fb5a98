// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// overPPPoE puts packets of IP into a PPPoE session, whose length may be said to be more than it is.
func overPPPoE(packets []Packet, more int) []Packet {
	out := slices.Clone(packets)
	for i := range out {
		f := out[i].Frame
		h, ok := readIP(f)
		if !ok || h.l3 != 14 {
			continue
		}
		protocol := map[int]byte{4: 0x21, 6: 0x57}[int(h.version)]
		head := []byte{0x88, 0x64, 0x11, 0, 0, 7, 0, 0, 0, protocol}
		binary.BigEndian.PutUint16(head[6:], uint16(len(f)-14+2+more))
		out[i].Frame = slices.Concat(f[:12], head, f[14:])
	}
	return out
}

// bridgeSwitchTraps turn the switches of br_netfilter one by one while rules wait for what each of them shows: what is tagged, what is in a session of PPPoE, ARP, and by which
// of its interfaces a tagged frame came.
func bridgeSwitchTraps() []hand {
	v4 := flowOf(0, h0, h1)
	var plainly []Packet
	for _, v6 := range []bool{false, true} {
		f := stationA.flow(stationB, v6)
		ask, web := f, f
		ask.DstPort, web.DstPort = 53, 80
		plainly = append(plainly, byWire(in(0, f.UDP("u"), ask.UDP("53"), web.TCP("S", 1, "")))...)
	}
	odd := byWire(across(join(eachEdit(v4, flowOf(0, h0v6, h1v6), lab.BadIPChecksum()), options(v4)[:2], fragments(v4)[:2])))
	shut := byWire(join(plainly, tagged(plainly, 5), tagged(plainly, 0), overPPPoE(plainly, 0), tagged(overPPPoE(plainly[1:3], 0), 5), overPPPoE(plainly[:1], 9), tagged(odd, 5), overPPPoE(odd, 0),
		in(0, arpBetween(stationA, stationB, 1))))
	other := join(everybody(), shut)
	set := func(name, to string) string { return "sysctl net.bridge.bridge-nf-" + name + "=" + to }
	begin := func(rules ...string) []string {
		return slices.Concat(bridge("", withBridgeNetfilter...), []string{set("filter-vlan-tagged", "0"), set("filter-pppoe-tagged", "0"), set("pass-vlan-input-dev", "0")}, rules)
	}
	rules := nftFile("add table inet t", "add chain inet t p { type filter hook prerouting priority -300; }", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t p counter", "add rule inet t f udp dport 53 counter drop", "add rule inet t f tcp dport 80 counter drop", "add rule inet t f iifname br0 counter")
	ports := []string{"iptables-legacy -A FORWARD -m physdev --physdev-in p0 -p udp --dport 2000 -j DROP", "ip6tables-legacy -A FORWARD -m physdev --physdev-out p1 -p tcp -j DROP"}
	slow := Excuse{IP4: true, IP6: true, Bridged: onBridge.Bridged, Shown: true}
	turned := func(name, why string, reasons []string, first []string, names ...string) hand {
		h := hand{name: "bridge switches " + name, why: why, bare: true, loads: true, slow: slow, reasons: append([]string{"fast"}, reasons...), steps: []handStep{step(other, first...)}}
		for _, n := range names {
			h.steps = append(h.steps, step(shut, set(n, "1")))
		}
		for _, n := range names {
			h.steps = append(h.steps, step(shut, set(n, "0")))
		}
		return h
	}
	all := []string{"filter-vlan-tagged", "filter-pppoe-tagged", "pass-vlan-input-dev"}
	calls := turned("of families", "while what is tagged is shown, too", []string{drop}, begin(append([]string{rules, set("filter-vlan-tagged", "1"), set("filter-pppoe-tagged", "1"), set("call-iptables", "0"), set("call-ip6tables", "0"), set("call-arptables", "0")}, ports...)...), "call-iptables", "call-ip6tables", "call-arptables")
	option := turned("of the bridge", "while those of the namespace are off", nil, append(begin(append([]string{rules}, ports...)...), withoutBridgeNetfilter...), all...)
	option.steps = slices.Insert(option.steps, 1, step(shut, "ip link set br0 type bridge nf_call_iptables 1"), step(shut, "ip link set br0 type bridge nf_call_ip6tables 1 nf_call_arptables 1"))
	option.steps = append(option.steps, frozen(shut, "ip link set br0 type bridge nf_call_iptables 0"), frozen(shut, "ip link set br0 type bridge nf_call_ip6tables 0 nf_call_arptables 0"), step(shut))
	return []hand{
		turned("of tags", "what is tagged, or in a session, is shown to rules by a switch of its own", []string{drop}, begin(rules), all...),
		turned("of tags, by ports", "the same where rules ask for the bridge's ports", []string{drop}, begin(ports...), all...),
		turned("of tags, without rules", "where no rule is, headers are checked all the same", nil, begin(), all...),
		calls, option,
	}
}
