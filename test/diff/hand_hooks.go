// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
)

// hookTraps are ports that carry programs at XDP and at tc at once, as cards do beside containers: what goes from wire to wire leaves at XDP, what goes to a container passes that program
// without a trace and leaves at tc. p0, p1 and p3 are the cards, p2 is a container whose end takes no XDP frames.
func hookTraps() []hand {
	const xdp, tc = "xdp fast", "tc fast"
	web := join(some(), services(), back())
	few := join(some(), back())
	wired := func(name, why string, reasons []string, steps ...handStep) hand {
		steps[0].do = append([]string{"plain 2"}, steps[0].do...)
		return hand{name: "hooks " + name, why: why, loads: true, hooks: []string{"tc"}, wires: "p0 p1 p3", reasons: append([]string{xdp, tc}, reasons...), steps: steps}
	}
	both := func(h hand) hand { h.slow.IP4, h.slow.IP6 = true, true; return h }
	filtered := func(h hand) hand { h.slow.Rules = true; return h }
	to5 := to5(gw1, gw1v6)
	// Half of what rules meet goes to p2: routes for both.
	split := append(slices.Clone(to5), "ip route add 10.5.1.1/32 "+gw2, "ip route add 10.6.0.0/16 "+gw1)
	asked := nftFile("add table inet t", "add chain inet t p { type filter hook prerouting priority -300; }", "add chain inet t f { type filter hook forward priority 0; }", "add chain inet t o { type filter hook postrouting priority 100; }",
		"add rule inet t p tcp dport 80 counter drop", "add rule inet t p udp dport 53 meta mark set 7 counter", "add rule inet t p counter", "add rule inet t f oifname p2 udp dport 2000 counter drop", "add rule inet t f oifname p1 icmp type echo-request counter drop", "add rule inet t f meta mark 7 counter",
		"add rule inet t f ip dscp set af11", "add rule inet t f counter", "add rule inet t o ip daddr 10.0.0.0/8 counter", "add rule inet t o ip dscp af11 oifname p2 counter")
	legacy := []string{restore("iptables-legacy", "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP", "-A PREROUTING -p udp"), forwardChain("iptables-legacy", "ACCEPT", "-o p2 -p udp -m udp --dport 2000 -j DROP", "-o p1 -p icmp -j DROP", "-p udp", "-i p0"),
		forwardChain("ip6tables-legacy", "ACCEPT", "-o p2 -p udp -m udp --dport 2000 -j DROP", "-p tcp")}
	devices := ingressLines([][]string{ingressChain("netdev", "t", "c", "p0, p1", "0", ""), egressChain("e", "c", "p1, p2", "0", "")}, "netdev t c udp dport 53 counter drop", "netdev t c counter", "netdev e c tcp dport 80 counter drop", "netdev e c counter")
	out := []hand{
		wired("routes", "routes lead from one to the other, and back", nil, step(web, to5...), step(web, "ip route replace 10.5.0.0/16 "+gw2, "ip route replace 10.1.0.0/16 "+gw2), atOnce(web, "ip route replace 10.1.0.0/16 "+gw1), atOnce(web, "ip route replace 10.5.0.0/16 "+gw1, "ip route replace 2001:db8:5::/48 "+gw2v6), step(web)),
		both(wired("frozen", "the same while shunt's process is stopped", nil, step(few, to5...), frozen(few, "ip route replace 10.1.0.0/16 "+gw2), frozen(few, "ip route replace 10.2.0.0/16 "+gw1, "ip -6 route replace 2001:db8:2::/48 "+gw1v6), frozen(few, "nft table inet t { chain f { type filter hook forward priority 0; udp dport 2000 counter drop; }; }"), step(few))),
		filtered(wired("rules", "a rule counts a packet once, whichever program decides; and what one hook drops does not come to the other", []string{"xdp " + drop, "tc " + drop}, step(web, append(split, asked)...), atOnce(web, "nft add rule inet t f udp dport 53 counter drop"), step(web), atOnce(web, "nft flush chain inet t p"), step(web))),
		filtered(wired("rules legacy", "the same in legacy tables, whose counters get the sum of both hooks", []string{"xdp " + drop, "tc " + drop}, step(web, append(split, legacy...)...), atOnce(web, "iptables-legacy -I FORWARD -p udp --dport 53 -j DROP"), step(web), step(web, "iptables-legacy -Z FORWARD"))),
		filtered(wired("rules netdev", "chains at ingress and egress of devices, each of which may be entered from either hook", []string{"xdp " + drop, "tc " + drop}, step(web, append(split, devices)...), step(web, "nft flush chain netdev e c"))),
		wired("mtu", "what is too long for one of the ways out", []string{"mtu"}, step(join(sizes(1300), sized(0, h0, "10.2.9.9", 1300), sized(0, h0, "10.2.9.9", 1301)), "ip link set p2 mtu 1300"), step(join(sizes(1300), sized(0, h0, "10.2.9.9", 1301)), "ip link set p1 mtu 1300", "ip link set p2 mtu 1500")),
		wired("listener", "a listener on a card takes its program at XDP away, one on the container's device nothing", nil, step(few, to5...), atOnce(few, "listen p2 all"), step(few), atOnce(few, "listen p0 all"), step(few), step(few, "unlisten")),
		wired("container", "a container's end begins to take XDP frames, and ends", nil, step(few, to5...), step(few, "carrier 2 down"), step(few, "carrier 2 up"), step(few, "ip link set p2 down"), step(few, "ip link set p2 up", "ip route add 10.2.0.0/16 "+gw2)),
	}
	for i := range out {
		switch out[i].name {
		case "hooks listener":
			out[i].slow.In, out[i].slow.Out = []int{0}, []int{0}
		case "hooks container":
			out[i].slow.In, out[i].slow.Out = []int{2}, []int{2}
		}
	}
	for _, c := range []struct {
		name  string
		talk  talk
		rules string
	}{{"masquerade", masqueraded4, masquerades}, {"masquerade ip6", masqueraded6, masquerades}, {"both ways", both4, doesBoth4}} {
		reply := []string{"fast", "conntrack-flags"}
		h := both(wired("connection "+c.name, "a connection whose server moves from wire to container and back: what either program sees of it belongs to one connection", reply,
			slices.Concat(c.talk.begins(append([]string{"plain 2"}, c.rules, nftFile("add table inet t", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f ct state established counter", "add rule inet t f ct state new counter", "add rule inet t f ct direction reply counter"))...),
				[]handStep{step(c.talk.data(10, 141, 501)), step(c.talk.says(true, "PA", 501, 151, "answer")), step(c.talk.data(5, 151, 507)), step(few), step(c.talk.says(true, "PA", 507, 156, "more")), step(c.talk.says(false, "FA", 156, 511, "")), step(c.talk.says(true, "FA", 511, 157, ""))})...))
		h.reasons = append([]string{xdp}, reply...)
		out = append(out, h)
	}
	ports := []string{fmt.Sprintf("ip link add br0 address %s type bridge", bridgeMAC)}
	ports = slices.Concat(ports, quietDevice("br0"), []string{"ip link set p0 master br0", "ip link set p1 master br0", "ip link set p2 master br0", "ip link set br0 up"}, withoutBridgeNetfilter)
	bridged := wired("bridge", "a bridge of cards and a container", nil, step(meet(), ports...), step(chat()), step(join(chat(), strangers())), step(join(stationA.hello(2), chat())), step(meet(), withBridgeNetfilter...), step(join(meet(), onPorts()), chainOf("inet", "forward")), frozen(chat(), "bridge link set dev p2 isolated on", "bridge link set dev p0 isolated on"), step(chat()))
	bridged.bare, bridged.slow = true, Excuse{Bridged: onBridge.Bridged, Shown: true, IP4: true, IP6: true}
	pods := filtered(wired("pods", "a bridge of containers that cards route to: from tc straight to its ports, from XDP not at all", nil,
		step(join(everybody(), upAndDown(), between(3, 4)), irb("", "ip address add 10.0.4.1/24 dev p4", fmt.Sprintf("ip neighbour replace 10.0.4.10 lladdr %s dev p4 nud permanent", hostMAC(4, 0)))...), step(join(upAndDown(), hostile(), between(3, 4))),
		step(join(upAndDown(), between(3, 4)), nftFile("add table inet t", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f oifname br0 counter", "add rule inet t f oifname p4 counter", "add rule inet t f ip daddr 10.1.9.9 meta l4proto udp counter drop", "add rule inet t f ip daddr 10.0.4.10 meta l4proto icmp counter drop")),
		step(join(upAndDown(), between(3, 4)), "bridge link set dev p0 state 4", "ip route replace 10.1.0.0/16 via 10.0.4.10")))
	pods.bare, pods.wires, pods.slow = true, "p3 p4", Excuse{Bridged: onBridge.Bridged, Rules: true}
	return append(out, bridged, pods)
}

// between are packets from the host at one port to that at another.
func between(from, to int) []Packet {
	f := flowOf(from, fmt.Sprintf("10.0.%d.10", from), fmt.Sprintf("10.0.%d.10", to))
	return in(from, f.UDP("between"), f.TCP("S", 1, ""), f.Echo(1, 1, "between"))
}
