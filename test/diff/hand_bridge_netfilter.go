// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// withBridgeNetfilter has bridged packets of both families shown to the rules of IP.
var withBridgeNetfilter = []string{"sysctl net.bridge.bridge-nf-call-iptables=1", "sysctl net.bridge.bridge-nf-call-ip6tables=1", "sysctl net.bridge.bridge-nf-call-arptables=1"}

// shown excuses what br_netfilter drops, cuts or looks into.
var shown = Excuse{Bridged: onBridge.Bridged, Shown: true}

// bridgeNetfilterTraps are about br_netfilter: what it does to frames by itself, and the rules that it shows them to.
func bridgeNetfilterTraps() []hand {
	v4, v6 := flowOf(0, h0, h1), flowOf(0, h0v6, h1v6)
	bare := func(name, why string, slow Excuse, reasons []string, steps ...handStep) hand {
		return hand{name: "bridge shown " + name, why: why, bare: true, slow: slow, reasons: reasons, steps: steps}
	}
	ruled := shown
	ruled.IP4, ruled.IP6 = true, true
	six := shown
	six.IP4 = true
	said := join(everybody(), chat(), padded(), onPorts(), asks())
	on := bridge("", withBridgeNetfilter...)
	alone := slices.Concat(on, []string{"sysctl net.ipv4.ip_forward=0", "sysctl net.ipv6.conf.all.forwarding=0"}) // routed packets rest on the same words
	return []hand{
		bare("frames", "headers are checked, and what lies behind a packet is cut off, even where no rule looks", shown, []string{"fast", "ip4-options", "ip4-header", "ip4-checksum", "ip6-header", "ip6-extension", "too-short"},
			step(join(everybody(), across(byWire(join(eachEdit(v4, v6, lab.TTL(0), lab.TTL(1), lab.TTL(2), lab.BadIPChecksum(), lab.BadTransportChecksum()), options(v4), fragments(v4), shortMessages())))), on...),
			step(join(said, types(), across(byWire(join(lengths(v4, v6), extensions(v6), runts(v4, v6), tags()[:60])))))),
		bare("mtu", "what a port's MTU does not take is cut into fragments, or dropped", shown, []string{"fast", "mtu"}, step(join(everybody(), sizedTo(1300), sizedTo(1301), sizedTo(1304), sizedTo(1305), unfragmented(1300), unfragmented(1301)), slices.Concat(on, []string{"ip link set p1 mtu 1300"})...),
			step(join(sizedTo(1500), sizedTo(1501), sizedTo(3000), chat()), "ip link set p0 mtu 9000", "ip link set p1 mtu 9000")),
		{name: "bridge shown offloads", why: "what is still to be cut passes whole, and what is still to be summed stays so", bare: true, slow: shown, hooks: []string{"tc"}, reasons: []string{"fast"},
			steps: []handStep{step(join(everybody(), across(offloads()), across(partials())), on...), step(across(offloads()), "ip link set p1 mtu 1300")}},
		bare("by a switch", "each switch is for one family, and off means off", shown, []string{"fast"}, step(said, on...), step(said, withoutBridgeNetfilter[0]), step(said, withBridgeNetfilter[0], withoutBridgeNetfilter[1])),
		bare("by an option", "a bridge has switches of its own, which the next frame obeys", ruled, []string{"fast", "bridge-option", "bridge-netfilter"}, step(said, bridge("nf_call_iptables 1")...), frozen(said, "ip link set br0 type bridge nf_call_iptables 0"),
			frozen(said, "ip link set br0 type bridge nf_call_ip6tables 1"), step(said, "ip link set br0 type bridge nf_call_iptables 1 nf_call_arptables 1"), step(said, chainOf("inet", "forward"))),
		bare("rules", "a rule that comes under traffic is met by the next frame, and of its family alone", ruled, []string{"fast", "stale", "bridge-netfilter"}, step(said, alone...), frozen(said, chainOf("ip", "forward")), step(said, "nft flush ruleset"),
			frozen(said, chainOf("ip6", "prerouting")), step(said, "nft flush ruleset", "nft add table ip t", "nft add chain ip t empty { type filter hook postrouting priority 0; policy accept; }"), frozen(said, "nft add rule ip t empty udp dport 53 drop")),
		bare("rules of old tables", "the same with the old tools, whose tables stay when they are empty", ruled, []string{"fast", "stale", "bridge-netfilter"}, slices.Concat([]handStep{step(said, alone...)}, oldTables(said))...),
		bare("tracking", "connections of one family are followed: its frames are Linux's, fragments and all", six, []string{"fast", "bridge-netfilter"},
			step(join(said, across(byWire(fragments(v4)))), slices.Concat(on, []string{"nft table ip t { chain a { type filter hook forward priority 0; ct state established counter accept; ct state invalid counter drop; }; }"})...)),
		overBridge("a connection of", talk{"10.0.0.16", "10.0.3.10", 1000}), overBridge("one of IPv6 of", talk{stationA.addr(true).String(), "fd00::4:0:0:0:10", 1000}),
		bare("to the router", "what is addressed to the bridge meets prerouting once, and what is routed to it meets nothing more", ruled, []string{"fast", "bridge-netfilter"}, step(join(said, upAndDown()), irb("", withBridgeNetfilter...)...), step(join(upAndDown(), hostile(), strangers())),
			step(join(said, upAndDown(), hostile()), counting("prerouting"), counting("forward"), counting("postrouting")),
			step(join(said, upAndDown()), "nft flush ruleset", "iptables-legacy -A FORWARD -m physdev --physdev-in p0 -p udp -j DROP", "iptables-legacy -t raw -A PREROUTING -m physdev --physdev-in p1 -p icmp -j DROP")),
	}
}

// overBridge is a connection from a station to the host at p3, as container hosts have them: its rules and its tracking see what a bridge has shown to prerouting.
func overBridge(name string, c talk) hand {
	rules := "nft table inet t { chain f { type filter hook forward priority 0; policy drop; ct state established,related counter accept; ct state invalid counter drop; iifname br0 counter accept; }; chain n { type nat hook postrouting priority srcnat; ip saddr 10.0.0.32 masquerade; }; }"
	steps := append(c.begins(irb("", slices.Concat(withBridgeNetfilter, []string{rules})...)...), step(c.data(10, 141, 501)), step(c.says(true, "PA", 501, 151, "answer")), step(c.says(true, "FA", 507, 151, "")), step(join(c.says(false, "FA", 151, 508, ""), c.data(2, 152, 508))))
	for i := range steps {
		steps[i].packets = slices.Clone(steps[i].packets)
		for j := range steps[i].packets {
			p := &steps[i].packets[j]
			if p.Port == 0 {
				p.Frame = slices.Concat(bridgeMAC, p.Frame[6:])
			} else {
				p.Port, p.Frame = 3, slices.Concat(portMAC(3), hostMAC(3, 0), p.Frame[12:])
			}
		}
	}
	steps[0].packets = join(everybody(), steps[0].packets)
	return hand{name: "bridge shown " + name + " a station", why: "what Linux tracks of a bridge's host is fast towards a routed port and back", bare: true, slow: Excuse{IP4: true, IP6: true, Bridged: onBridge.Bridged, Shown: true}, reasons: []string{"fast", "conntrack-flags"}, steps: steps}
}

// chainOf is a table of a family with a chain that drops what goes to port 53.
func chainOf(family, hook string) string {
	return nftFile("add table "+family+" t", fmt.Sprintf("add chain %s t %s { type filter hook %s priority 0; }", family, hook, hook), fmt.Sprintf("add rule %s t %s udp dport 53 counter drop", family, hook))
}

// counting is a chain that counts what comes by the bridge or leaves by it, and drops what goes to port 53.
func counting(hook string) string {
	by := map[bool]string{true: "oifname", false: "iifname"}[hook == "postrouting"]
	return nftFile("add table inet t", fmt.Sprintf("add chain inet t %s { type filter hook %s priority 0; }", hook, hook), fmt.Sprintf("add rule inet t %s %s br0 udp dport 53 counter drop", hook, by), fmt.Sprintf("add rule inet t %s %s br0 counter", hook, by))
}

// oldTables come into being with a rule, and get it again once they are empty.
func oldTables(packets []Packet) (out []handStep) {
	for _, table := range []string{"iptables-legacy -t raw %s PREROUTING", "ip6tables-legacy -t filter %s FORWARD"} {
		rule := fmt.Sprintf(table, "-A") + " -p udp --dport 53 -j DROP"
		out = append(out, frozen(packets, rule), step(packets, fmt.Sprintf(table, "-F")), frozen(packets, rule))
	}
	return out
}

// padded are packets with more behind them than their headers say, as short ones have on a wire.
func padded() (out []Packet) {
	for _, v6 := range []bool{false, true} {
		f := stationA.flow(stationB, v6)
		for _, n := range []int{60, 64, 100} {
			out = append(out, in(0, lab.Edited(f.TCP("A", 1, ""), lab.Pad(n)), lab.Edited(f.UDP("p"), lab.Pad(n)))...)
		}
		out = append(out, in(0, lab.Edited(f.UDP("tail"), lab.Append(1, 2, 3)))...)
	}
	return out
}

// unfragmented are packets of n bytes that must not be cut.
func unfragmented(n int) []Packet {
	return in(0, lab.Edited(stationA.flow(stationB, false).UDP(strings.Repeat("d", n-28)), lab.FragmentField(2, 0)))
}
