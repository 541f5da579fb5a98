// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// bridgeChainTraps are about chains of family bridge, which frames between ports meet by the ports' names.
func bridgeChainTraps() []hand {
	var others []Packet // frames without IP, to a station that is known
	for _, t := range []uint16{0x88b5, 0x8863, 0x0806, 0x86dd} {
		others = append(others, in(0, slices.Concat(stationB.mac(), stationA.mac(), []byte{byte(t >> 8), byte(t)}, make([]byte, 50)))...)
	}
	udp := func(v6 bool, port uint16, edits ...lab.Edit) []Packet {
		f := stationA.flow(stationB, v6)
		f.DstPort = port
		return in(0, lab.Edited(f.UDP("payload"), edits...))
	}
	said := join(everybody(), chat(), onPorts(), padded(), asks(), others, udp(false, 53), udp(true, 53), udp(false, 5353), udp(true, 5353), udp(false, 2000, lab.TTL(1)), udp(true, 2000, lab.TTL(1)), across(byWire(fragments(flowOf(0, h0, h1)))), groups(), strangers())
	off, on := bridge("", withoutBridgeNetfilter...), bridge("", withBridgeNetfilter...)
	table := func(chains ...[]string) string {
		return nftFile(append([]string{"flush ruleset", "add table bridge t"}, slices.Concat(chains...)...)...)
	}
	chain := func(hook string, priority int, rules ...string) []string {
		out := []string{fmt.Sprintf("add chain bridge t %s { type filter hook %s priority %d; }", hook, hook, priority)}
		for _, r := range rules {
			out = append(out, fmt.Sprintf("add rule bridge t %s %s", hook, r))
		}
		return out
	}
	a, b := stationA.mac().String(), stationB.mac().String()
	early := table(chain("prerouting", -300, "iifname p0 counter", "iifname br0 counter drop", "oifname p1 counter drop", "ether saddr "+a+" counter", "ether saddr != "+a+" iifname p0 counter drop", "ether type 0x88b5 counter drop", "udp dport 53 counter drop", "ip ttl 1 counter", "ip6 hoplimit 1 counter", "ether daddr "+b+" counter", "ether daddr != "+b+" tcp dport 53 counter drop"))
	mid := table(chain("forward", -200, "iifname p0 oifname p1 counter", "iifname p0 oifname p2 counter drop", "ip saddr 10.0.0.16 udp dport 2000 counter accept", "ip6 saddr fd00::/16 ip6 daddr fd00::/16 counter", "ether type ip counter", "meta protocol ip6 counter", "ether type arp counter drop", "tcp dport 53 counter drop", "ip ttl 1 counter", "ip ttl 63 counter", "counter"))
	late := table(chain("prerouting", 10, "counter"), chain("forward", 10, "ip protocol icmp counter", "counter"), chain("postrouting", 300, "oifname p1 counter", "oifname br0 counter drop", "udp dport 5353 counter drop", "ip saddr { 10.0.0.16, 10.0.0.17 } ip daddr . udp dport { 10.0.0.32 . 2000, 10.0.0.32 . 53 } counter", "ether saddr "+a+" counter")) // what the host itself sends is not the same twice
	chains := func(name, why string, reasons []string, steps ...handStep) hand {
		return hand{name: "bridge chains " + name, why: why, bare: true, slow: Excuse{IP4: true, IP6: true, Bridged: onBridge.Bridged}, reasons: append([]string{"fast", "netfilter:bridge"}, reasons...), loads: true, steps: steps}
	}
	return []hand{
		chains("decide", "what all chains let pass is fast, whatever hook and port they ask for; what they count is counted", nil, step(said, append(off, early)...), step(said, mid), step(said, late), step(said, table(chain("forward", 0, "iifname p3 counter drop"), []string{"add chain bridge t o { type filter hook output priority 0; policy drop; }"}))),
		chains("not understood", "what changes a frame, or asks for more than is in it, leaves to Linux whoever comes to it", nil,
			step(said, append(off, table(chain("forward", 0, "udp dport 53 meta mark set 7 counter", "udp dport 5353 limit rate 1/hour counter drop", "counter")))...),
			step(said, table(chain("forward", 0, "tcp dport 53 meta pkttype host counter drop", "counter"), chain("postrouting", 0, "udp dport 53 iifname p0 counter drop", "ether saddr "+a+" counter"))),
			step(said, table(chain("prerouting", 0, "udp dport 2000 meta length < 100 counter", "counter"))),
			step(said, table(chain("forward", 0, "limit rate 1/hour counter drop")))),
		chains("and rules of IP", "with br_netfilter on a frame meets both", []string{"rule-drop"}, step(said, append(on, early)...), step(said, mid), step(said, late),
			step(said, table(chain("forward", 0, "udp dport 53 counter drop", "counter"), []string{"add table inet i", "add chain inet i f { type filter hook forward priority 0; }", "add rule inet i f tcp dport 53 counter drop", "add rule inet i f counter"})),
			step(said, "nft delete table bridge t"), step(said, table(chain("forward", 0, "counter")), "ip link set br0 type bridge nf_call_iptables 1")),
		chains("that change", "while shunt's process is stopped, the next frame meets a rule that came", []string{"stale"}, step(said, append(off, table(chain("forward", 0, "udp dport 5353 counter drop")))...),
			frozen(said, "nft add rule bridge t forward udp dport 53 counter drop"), step(said), frozen(said, "nft insert rule bridge t forward ether saddr "+a+" counter drop"), step(said, "nft flush ruleset"), frozen(said, table(chain("prerouting", 0, "ip saddr 10.0.0.16 counter drop"))), step(said)),
		chains("of ebtables", "the old tool writes chains of the same family", nil,
			step(said, append(off, "ebtables -A FORWARD -p IPv4 --ip-protocol udp --ip-destination-port 53 -j DROP", "ebtables -A FORWARD -p IPv4 --ip-source 10.0.0.16 --ip-tos 0 -j CONTINUE", "ebtables -A FORWARD -p IPv4 --ip-destination ! 10.0.0.0/255.0.0.3 -j CONTINUE",
				"ebtables -A FORWARD -p IPv6 --ip6-source fd00::/16 --ip6-protocol tcp --ip6-destination-port 53 -j DROP", "ebtables -A FORWARD -p IPv6 --ip6-destination ! fd00:0:0:4::/64 -j CONTINUE", "ebtables -A FORWARD -i p0 -o p1 -s "+a+" -j CONTINUE", "ebtables -A FORWARD -i p+ -d ! "+b+" -j CONTINUE")...),
			step(said, "ebtables -N who", "ebtables -A who -s "+a+" -j RETURN", "ebtables -A who -p IPv4 --ip-protocol udp --ip-source-port 1000:2000 -j ACCEPT", "ebtables -I FORWARD -p ! ARP -j who", "ebtables -P FORWARD DROP", "ebtables -A FORWARD -i p1 -j ACCEPT", "ebtables -A FORWARD -s "+a+" -j ACCEPT"),
			step(said, "ebtables -F", "ebtables -P FORWARD ACCEPT", "ebtables -t nat -A PREROUTING -i p0 -p IPv4 --ip-protocol tcp --ip-source-port 53 -j DROP", "ebtables -t nat -A POSTROUTING -o p1 -s "+a+" -j CONTINUE"),
			step(said, "ebtables -A FORWARD -p IPv4 --ip-protocol udp --ip-destination-port 5353 --limit 1/hour -j ACCEPT", "ebtables -A FORWARD --mark 1 -j DROP")),
		{name: "bridge chains beside routes", why: "what is routed to a bridge meets chains at output and postrouting alone, in the bridge's own transmit function", bare: true, slow: Excuse{Bridged: onBridge.Bridged, In: onBridge.Bridged}, hooks: []string{"tc"}, reasons: []string{"fast", "netfilter:bridge"}, loads: true, steps: []handStep{
			step(join(everybody(), upAndDown()), append(irb("", withoutBridgeNetfilter...), table(chain("forward", 0, "udp dport 2000 counter drop", "counter"), chain("prerouting", 0, "udp dport 2001 counter drop"), chain("input", 0, "tcp dport 2000 counter drop")))...),
			step(join(upAndDown(), downSized(1500)), table(chain("output", 0, "ip saddr 10.0.3.10 counter", "oifname p1 tcp dport 2000 counter drop", "iifname p3 counter drop", "ip ttl 63 udp dport 2000 counter", "ip6 hoplimit 64 counter drop", "ether saddr "+bridgeMAC.String()+" udp dport 2000 counter"),
				chain("postrouting", 300, "ether daddr "+a+" udp dport 2000 counter", "ip6 saddr fd00::4:0:0:0:10 counter", "oifname p2 ip6 saddr fd00::/16 tcp dport 2000 counter drop"))),
			step(upAndDown(), table([]string{"add chain bridge t o { type filter hook output priority 0; policy drop; }", "add rule bridge t o meta l4proto udp counter accept"})),
			step(upAndDown(), "ebtables -A OUTPUT -p IPv4 --ip-protocol udp --ip-destination-port 2000 -j DROP", "nft delete table bridge t"), step(upAndDown(), "nft flush ruleset")}},
		{name: "bridge chains of others", why: "what is addressed to the bridge meets no chain at forward or postrouting, whatever that asks", bare: true, slow: Excuse{Bridged: onBridge.Bridged}, reasons: []string{"fast", "netfilter:bridge"}, loads: true, steps: []handStep{
			step(join(everybody(), upAndDown()), append(irb("", withoutBridgeNetfilter...), table(chain("forward", 0, "udp dport 2000 counter drop", "ether type ip counter", "limit rate 1/hour counter drop"), chain("postrouting", 300, "oifname p3 counter drop")))...),
			step(upAndDown(), table(chain("forward", 0, "counter drop"))),
			step(upAndDown(), append(slices.Clone(withBridgeNetfilter), table(chain("forward", 0, "ip saddr 10.0.0.0/8 counter drop"), []string{"add table inet i", "add chain inet i f { type filter hook forward priority 0; }", "add rule inet i f tcp dport 2000 counter drop", "add rule inet i f counter"}))...),
			frozen(upAndDown(), nftFile("add chain bridge t up { type filter hook input priority 0; }", "add rule bridge t up udp dport 2000 counter drop")), step(upAndDown(), "nft flush chain bridge t up", "nft delete chain bridge t up")}},
		{name: "bridge chains beside routes, not understood", why: "what such chains ask beside the frame may not be the same", bare: true, slow: Excuse{Bridge: true, Bridged: onBridge.Bridged}, reasons: []string{"netfilter:bridge", "fast"}, hooks: []string{"tc"}, loads: true, steps: []handStep{
			step(join(everybody(), upAndDown()), append(irb("", withoutBridgeNetfilter...), nftFile("add table inet i", "add chain inet i f { type filter hook forward priority 0; }", "add rule inet i f udp dport 2000 meta mark set 7"), nftFile(slices.Concat([]string{"add table bridge t"}, chain("output", 0, "meta mark 7 counter drop", "meta priority 1 counter drop"))...))...),
			step(upAndDown(), "nft delete table bridge t")}},
		{name: "bridge chains and offloads", why: "what is still to be cut meets them whole", bare: true, slow: Excuse{IP4: true, IP6: true, Bridged: onBridge.Bridged}, hooks: []string{"tc"}, reasons: []string{"fast"},
			steps: []handStep{step(join(everybody(), across(offloads()), across(partials())), append(off, table(chain("forward", 0, "iifname p0 counter", "counter")))...)}},
	}
}
