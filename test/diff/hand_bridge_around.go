// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// irb is the bridge with addresses, and p3 routed beside it: net 10.3/16 and 2001:db8:3::/48 are behind a host at p3, 10.1/16 and 2001:db8:1::/48 behind station B.
func irb(options string, more ...string) []string {
	var neighbours []string
	for _, s := range []station{stationA, stationB, stationC, {2, 7}} {
		for _, v6 := range []bool{false, true} {
			neighbours = append(neighbours, fmt.Sprintf("ip neighbour replace %s lladdr %s dev br0 nud permanent", s.addr(v6), s.mac()))
		}
	}
	return slices.Concat(bridge(options, "ip address add 10.0.0.1/24 dev br0", "ip address add fd00::1:0:0:0:1/64 dev br0 nodad", "ip address add 10.0.3.1/24 dev p3", "ip address add fd00::4:0:0:0:1/64 dev p3 nodad"), neighbours, []string{
		fmt.Sprintf("ip neighbour replace 10.0.3.10 lladdr %s dev p3 nud permanent", hostMAC(3, 0)), fmt.Sprintf("ip neighbour replace fd00::4:0:0:0:10 lladdr %s dev p3 nud permanent", hostMAC(3, 0)),
		"ip route add 10.3.0.0/16 via 10.0.3.10", "ip route add 2001:db8:3::/48 via fd00::4:0:0:0:10", "ip route add 10.1.0.0/16 via 10.0.0.32", "ip route add 2001:db8:1::/48 via fd00::1:0:0:0:20"}, more)
}

// up are packets from a station to somewhere behind the router.
func (s station) up(dst string, edits ...lab.Edit) []Packet {
	to := netip.MustParseAddr(dst)
	f := lab.Flow{SrcMAC: s.mac(), DstMAC: bridgeMAC, Src: s.addr(to.Is6()), Dst: to, SrcPort: 1000, DstPort: 2000}
	return in(s.port, lab.Edited(f.UDP("up"), edits...), lab.Edited(f.TCP("S", 1, ""), edits...), lab.Edited(f.Echo(1, 1, "up"), edits...))
}

// down are packets from the host at p3 to somewhere behind the bridge.
func down(dst string, edits ...lab.Edit) []Packet {
	src := map[bool]string{false: "10.0.3.10", true: "fd00::4:0:0:0:10"}[netip.MustParseAddr(dst).Is6()]
	f := flowOf(3, src, dst)
	return in(3, lab.Edited(f.UDP("down"), edits...), lab.Edited(f.TCP("S", 1, ""), edits...), lab.Edited(f.Echo(1, 1, "down"), edits...))
}

// upAndDown crosses the router both ways, to stations that the bridge knows and to one that it does not.
func upAndDown() []Packet {
	return join(stationA.up("10.0.3.10"), stationB.up("10.3.1.1"), stationC.up("2001:db8:3::5"), stationA.up("fd00::4:0:0:0:10"), down("10.0.0.16"), down("10.1.9.9"), down("fd00::1:0:0:0:30"), down("2001:db8:1::5"),
		down("10.0.0.55"), down(station{2, 7}.addr(true).String()), stationA.up("10.1.2.2"), stationA.up("10.0.0.32"))
}

// hostile is what a router must look at before it routes what a bridge brings.
func hostile() []Packet {
	out := join(stationA.up("10.3.1.1", lab.TTL(1)), stationA.up("10.3.1.1", lab.BadIPChecksum()), stationA.up("2001:db8:3::1", lab.TTL(0)), stationA.up("10.3.1.1", lab.FragmentField(1, 0)), stationA.up("127.0.0.1"), stationA.up("10.0.3.1"),
		down("10.0.0.16", lab.TTL(1)), down("10.0.0.255"), down("10.0.0.1"), down("fd00::1:0:0:0:0"))
	f := stationA.flow(stationB, false)
	f.DstMAC, f.Dst = bridgeMAC, netip.MustParseAddr("10.3.1.1")
	for _, src := range []string{"10.0.3.10", "10.0.0.1", "172.16.0.1", "127.0.0.1", "10.3.4.4", "224.0.0.1", "10.1.5.5"} {
		f.Src = netip.MustParseAddr(src)
		out = join(out, in(0, f.UDP("from elsewhere")), in(1, f.UDP("from elsewhere")))
	}
	other := f
	other.Src, other.DstMAC = stationA.addr(false), portMAC(0)
	return join(out, in(0, other.UDP("by the port's address")), tagged(stationA.up("10.3.1.1"), 5), tagged(stationA.up("10.3.1.1"), 0), in(0, f.UDP("padded"), lab.Edited(stationA.up("10.3.1.1")[0].Frame, lab.Pad(64))))
}

const vip6 = "fd00::1:0:0:0:100"

// vipBehind has a virtual address at a station behind the bridge, and beside it at the host at p3, where routes lead there.
func vipBehind(mac fmt.Stringer) (out []string) {
	for _, addr := range []string{"10.0.0.100", vip6} {
		out = append(out, fmt.Sprintf("ip neighbour replace %s lladdr %s dev br0 nud permanent", addr, mac), fmt.Sprintf("ip neighbour replace %s lladdr %s dev p3 nud permanent", addr, hostMAC(3, 0)))
	}
	return out
}

// toVIP are packets to that address from both sides, without replies of the router's own that are never the same twice.
func toVIP() []Packet {
	return join(down("10.0.0.100")[:2], down(vip6)[:2], stationA.up("10.0.0.100")[:2], stationA.up(vip6)[:2], down("10.0.0.16")[:2])
}

// unrouted are frames from station to station that no router forwards fast: of another protocol, with options, a piece of a packet.
func unrouted() []Packet {
	f := stationA.flow(stationB, false)
	discovery := lab.Packet(&layers.Ethernet{SrcMAC: f.SrcMAC, DstMAC: f.DstMAC, EthernetType: layers.EthernetTypePPPoEDiscovery}, gopacket.Payload(make([]byte, 46)))
	return join(in(stationA.port, discovery, lab.Edited(f.UDP("piece"), lab.FragmentField(0, 5))), byWire(options(f)))
}

// bridgeAroundTraps are about everything else that a bridged frame may meet, and about routes through bridges.
func bridgeAroundTraps() []hand {
	all := join(chat(), strangers(), groups(), upAndDown(), onPorts())
	odd := across(byWire(join(options(flowOf(0, h0, h1)), lengths(flowOf(0, h0, h1), flowOf(0, h0v6, h1v6)), fragments(flowOf(0, h0, h1)))))
	called := []string{"sysctl net.bridge.bridge-nf-call-iptables=1", "sysctl net.bridge.bridge-nf-call-ip6tables=1"}
	both := Excuse{IP4: true, IP6: true, Bridge: true, Bridged: onBridge.Bridged}
	around := func(name, why string, slow Excuse, do ...[]string) hand {
		h := hand{name: "bridge with " + name, why: why, bare: true, slow: slow, steps: []handStep{step(join(everybody(), all), irb("")...)}}
		for _, commands := range do {
			h.steps = append(h.steps, step(join(everybody(), all), commands...))
		}
		return h
	}
	drops := nftFile("add table inet t", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f udp dport 53 counter drop", "add rule inet t f iifname br0 oifname br0 tcp dport 53 counter reject with tcp reset", "add rule inet t f counter")
	netfilter := around("netfilter", "br_netfilter: IP's rules see what is bridged, and what is no IP packet ends", both, called, append([]string{"iptables-nft -A FORWARD -p udp --dport 53 -j DROP", "ip6tables-nft -A FORWARD -p udp --dport 53 -j DROP"}, called...),
		[]string{drops}, []string{"nft flush ruleset", "iptables-legacy -A FORWARD -p udp --dport 53 -j DROP"}, append([]string{"iptables-legacy -F FORWARD"}, withoutBridgeNetfilter...), []string{drops})
	netfilter.steps[1].packets = join(netfilter.steps[1].packets, odd)
	family := around("rules of its own family", "nf_tables at the bridge: frames by type, address and port", both, []string{nftFile("add table bridge t", "add chain bridge t f { type filter hook forward priority 0; }", "add rule bridge t f ether daddr "+stationB.mac().String()+" udp dport 53 counter drop")},
		[]string{nftFile("add chain bridge t p { type filter hook prerouting priority -300; }", "add rule bridge t p ether saddr "+stationC.mac().String()+" counter drop")}, []string{nftFile("add chain bridge t i { type filter hook input priority 0; policy drop; }", "flush chain bridge t p")},
		[]string{"nft flush ruleset", "nft add table bridge empty", "nft add chain bridge empty f { type filter hook forward priority 0; policy accept; }"})
	ebtables := around("ebtables", "the old tool's rules", both, []string{"ebtables -A FORWARD -p IPv4 --ip-protocol udp --ip-destination-port 53 -j DROP"}, []string{"ebtables -P FORWARD DROP", "ebtables -A FORWARD -s " + stationA.mac().String() + " -j ACCEPT"}, []string{"ebtables -F", "ebtables -P FORWARD ACCEPT"})
	early := around("filters on ports", "what stands before and behind a port is met by bridged frames too", both, []string{nftFile("add table netdev t", "add chain netdev t a { type filter hook ingress device p0 priority 0; }", "add rule netdev t a udp dport 53 counter drop")}, []string{"nft flush ruleset"},
		[]string{"tc qdisc add dev p1 clsact", "tc filter add dev p1 ingress prio 1 bpf da bytecode " + dropUDP(53), "tc filter add dev p1 egress prio 1 bpf da bytecode " + dropUDP(2000)}, []string{"tc qdisc del dev p1 clsact"},
		[]string{"tc qdisc add dev br0 clsact", "tc filter add dev br0 ingress prio 1 bpf da bytecode " + dropUDP(53), "tc filter add dev br0 egress prio 1 bpf da bytecode " + dropUDP(2000)}, []string{"tc qdisc del dev br0 clsact"},
		[]string{nftFile("add table netdev t", "add chain netdev t e { type filter hook egress device p1 priority 0; }", "add rule netdev t e udp dport 2000 counter drop")}, []string{"nft flush ruleset"})
	queue := around("queues and sockets", "a queueing discipline on the way out, and who listens", both, []string{"tc qdisc add dev p1 root tbf rate 1gbit burst 128k latency 400ms"}, []string{"tc qdisc del dev p1 root", "tc qdisc add dev br0 root tbf rate 1gbit burst 128k latency 400ms"},
		[]string{"tc qdisc del dev br0 root", "listen p1 all"}, []string{"unlisten", "listen br0 all"}, []string{"unlisten", "drop-priority 1 2"})
	conntrack := around("tracking", "connections of bridged and routed packets", both, append([]string{"nft table inet t { chain a { type filter hook forward priority 0; ct state established counter accept; ct state invalid counter drop; }; }"}, called...), nil, withoutBridgeNetfilter)
	return []hand{
		netfilter, family, ebtables, early, queue, conntrack,
		{name: "bridge routes", why: "a host behind the bridge and one behind a routed port, both ways", bare: true, slow: onBridge, steps: []handStep{
			step(upAndDown(), irb("")...), step(join(everybody(), upAndDown())), step(join(by(2, stationA.to(stationB)), down("10.0.0.16"), stationA.hello(), down("10.0.0.16"))), step(join(everybody(), hostile())),
			step(upAndDown(), "bridge fdb add "+station{2, 7}.mac().String()+" dev p1 master static", "bridge link set dev p0 isolated on"), step(join(everybody(), upAndDown(), chat()), "ip address add 10.0.0.2/24 dev br0", "ip address del 10.0.0.1/24 dev br0")}},
		{name: "bridge routes checked", why: "reverse paths see the bridge, not the port", bare: true, slow: onBridge, steps: []handStep{
			step(join(everybody(), upAndDown(), hostile()), irb("", "sysctl net.ipv4.conf.br0.rp_filter=1")...), step(join(upAndDown(), hostile()), "sysctl net.ipv4.conf.br0.rp_filter=0", "sysctl net.ipv4.conf.p0.rp_filter=1")}},
		{name: "bridge routes filtered by input", why: "a filter on the way out that asks where packets came in sees the bridge", bare: true, loads: true, slow: Excuse{Out: []int{3, 4}, Bridged: onBridge.Bridged}, reasons: []string{"egress-slow"}, steps: []handStep{
			step(join(everybody(), upAndDown()), irb("", "tc qdisc add dev p3 clsact", "tc filter add dev p3 egress prio 1 protocol ip u32 match ip dport 2000 0xffff indev br0 action mirred egress redirect dev p4")...), step(join(everybody(), upAndDown()))}},
		{name: "bridge routes filtered by number", why: "so does one of a qdisc that bears the number of the one for what comes in, and it is not asked for that", bare: true, loads: true, slow: Excuse{Out: []int{3, 4}, Bridged: onBridge.Bridged}, reasons: []string{"egress-slow"}, steps: []handStep{
			step(join(everybody(), upAndDown()), irb("", "tc qdisc add dev p3 root handle ffff: htb default 10", "tc class add dev p3 parent ffff: classid ffff:10 htb rate 1gbit quantum 60000", "tc filter add dev p3 parent ffff: prio 1 protocol ip u32 match ip dport 2000 0xffff indev br0 action mirred egress redirect dev p4")...), step(join(everybody(), upAndDown()))}},
		{name: "bridge routes by another's program", why: "a program on the way out that asks where packets came in sees the bridge, and one that is not there for bridges is not in the way", bare: true, loads: true, slow: Excuse{Out: []int{3}, Bridged: onBridge.Bridged}, reasons: []string{"egress-slow"}, needs: "tcx", steps: []handStep{
			step(join(everybody(), upAndDown()), irb("", "foreign tcx-egress-from p3 br0")...), step(join(everybody(), upAndDown())), step(upAndDown(), "foreign none")}},
		{name: "bridge heard", why: "who listens for what is never routed hears it pass from port to port all the same", bare: true, hooks: []string{"xdp"}, slow: Excuse{Bridge: true, IP4: true, IP6: true, Bridged: onBridge.Bridged}, steps: []handStep{
			step(join(everybody(), chat(), unrouted()), irb("")...), step(join(chat(), unrouted()), "listen p0 all ether proto 0x8863"), step(join(chat(), unrouted()), "unlisten", "listen p1 all ip[0] & 0xf > 5"), step(join(chat(), unrouted()), "unlisten", "listen any all ip[6:2] & 0x1fff != 0"),
			step(join(chat(), unrouted()), "unlisten")}},
		{name: "bridge routes ruled", why: "so do policy rules; where there are any, a source without a route is Linux's", bare: true, slow: Excuse{IP4: true, Bridged: onBridge.Bridged}, steps: []handStep{
			step(join(everybody(), upAndDown(), hostile()), irb("", "sysctl net.ipv4.conf.p0.rp_filter=1", "ip rule add pref 50 iif p0 prohibit")...),
			step(join(upAndDown(), hostile()), "ip rule add pref 40 iif br0 to 10.3.0.0/16 prohibit", "ip -6 rule add pref 40 iif br0 to 2001:db8:3::/48 prohibit"), step(upAndDown(), "ip rule del pref 40", "ip -6 rule del pref 40")}},
		{name: "bridge routes switched", why: "the bridge's switches are those that its host's packets meet; nothing is fast into what does not forward itself", bare: true, slow: Excuse{Bridge: true, Bridged: onBridge.Bridged}, steps: []handStep{
			step(join(everybody(), upAndDown()), irb("", "sysctl net.ipv4.conf.br0.forwarding=0", "sysctl net.ipv4.conf.p0.forwarding=1")...), step(upAndDown(), "sysctl net.ipv4.conf.br0.forwarding=1", "sysctl net.ipv6.conf.br0.disable_ipv6=1"),
			step(upAndDown(), "sysctl net.ipv6.conf.br0.disable_ipv6=0", "sysctl net.ipv4.conf.all.forwarding=0")}},
		{name: "bridge routes changed", why: "the bridge and its ports change under routed traffic", bare: true, slow: onBridge, steps: []handStep{
			step(join(everybody(), upAndDown()), irb("")...), step(upAndDown(), "ip link set p1 mtu 1300"), step(join(downSized(1300), downSized(1301), downSized(1400))), step(join(downSized(1300), downSized(1301)), "ip link set p1 mtu 1500", "ip link set br0 mtu 1300"),
			step(upAndDown(), "bridge link set dev p1 state 4"), step(upAndDown(), "bridge link set dev p1 state 3"), step(join(everybody(), upAndDown()), "ip link set p0 nomaster"), step(upAndDown(), "ip link set br0 down"), step(join(everybody(), upAndDown()), "ip link set br0 up", "ip link set p0 master br0")}},
		{name: "bridge routes to an address that moves", why: "a virtual address is the router's until it leaves the bridge, then a station's behind it, then one's beside it, for the next packet each time", bare: true, slow: onBridge, hooks: []string{"tc"}, reasons: []string{"fast", "stale"}, steps: []handStep{
			step(join(everybody(), toVIP()), irb("", append(vipBehind(stationC.mac()), "ip address add 10.0.0.100/32 dev br0", "ip address add "+vip6+"/128 dev br0 nodad")...)...), frozen(toVIP(), "ip address del 10.0.0.100/32 dev br0", "ip address del "+vip6+"/128 dev br0"), step(join(everybody(), toVIP())),
			step(toVIP(), "ip route add 10.0.0.100/32 dev p3", "ip route add "+vip6+"/128 dev p3"), step(join(everybody(), toVIP()), "ip route del 10.0.0.100/32 dev p3", "ip route del "+vip6+"/128 dev p3"),
			frozen(toVIP(), "ip address add 10.0.0.100/32 dev br0", "ip address add "+vip6+"/128 dev br0 nodad"), step(toVIP(), "ip address del 10.0.0.100/32 dev br0", "ip address del "+vip6+"/128 dev br0", "ip address add 10.0.0.100/32 dev p3", "ip address add "+vip6+"/128 dev p3 nodad"),
			step(join(everybody(), toVIP()), append([]string{"ip address del 10.0.0.100/32 dev p3", "ip address del " + vip6 + "/128 dev p3"}, vipBehind(stationB.mac())...)...)}},
		{name: "bridge routes asked", why: "neighbours behind a bridge answer, and are learned by their answers", bare: true, slow: onBridge, steps: []handStep{
			step(join(down("10.0.0.70"), down("fd00::1:0:0:0:70")), irb("", hostLine(1, "10.0.0.70", 6), hostLine(1, "fd00::1:0:0:0:70", 6))...), step(join(down("10.0.0.70"), down("fd00::1:0:0:0:70"))), step(join(down("10.0.0.70"), station{1, 6}.hello(2), down("10.0.0.70")))}},
	}
}

// onPorts are packets with ports that rules look at, from one station to others.
func onPorts() (out []Packet) {
	for _, v6 := range []bool{false, true} {
		f := stationA.flow(stationB, v6)
		f.DstPort = 53
		g := stationC.flow(stationA, v6)
		g.DstPort = 53
		up := f
		up.DstMAC, up.Dst = bridgeMAC, map[bool]netip.Addr{false: netip.MustParseAddr("10.3.1.1"), true: netip.MustParseAddr("2001:db8:3::9")}[v6]
		out = join(out, in(0, f.UDP("dns"), f.TCP("S", 1, ""), up.UDP("dns"), up.TCP("S", 1, "")), in(2, g.UDP("dns"), g.TCP("S", 1, "")))
	}
	return out
}

// downSized is a packet of n bytes to a station.
func downSized(n int) []Packet {
	return join(sized(3, "10.0.3.10", "10.0.0.32", n), sized(3, "10.0.3.10", "10.0.0.32", n, lab.FragmentField(2, 0)), sized(3, "fd00::4:0:0:0:10", "fd00::1:0:0:0:20", n))
}
