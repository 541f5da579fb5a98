// SPDX-License-Identifier: Apache-2.0

package diff

import "slices"

// priorityRules set priorities, by which queueing disciplines choose a class. One of those takes no packet, so what gets another priority than Linux gives it shows.
func priorityRules() (out []hand) {
	said := join(services(), some(), tosTo5(), udp(2, h0, "10.5.1.1"), udp(2, h0v6, "2001:db8:5::1"), in(0, flowOf(0, h0v6, "2001:db8:5::1").TCP("S", 1, ""))) // the last one, which is explained, has to arrive
	queue := []string{"tc qdisc add dev p1 root handle 1: htb default 1", "tc class add dev p1 parent 1: classid 1:1 htb rate 10gbit quantum 60000", "tc class add dev p1 parent 1: classid 1:2 htb rate 10gbit quantum 60000", "tc qdisc add dev p1 parent 1:2 handle 20: pfifo limit 0"}
	// The last chain would count reports of multicast listeners, which come when a timer says so.
	silent := nftFile("add table ip6 silent", "add chain ip6 silent o { type filter hook output priority -200; }", "add rule ip6 silent o icmpv6 type mld2-listener-report drop")
	add := func(name string, do []string, then string) {
		h := hand{name: "rules priority " + name, why: "packets of a class are those that rules have put there, not those of which the router took it back", loads: true, slow: Excuse{Rules: true, Out: []int{1}}, reasons: []string{"tc fast"},
			steps: []handStep{step(said, slices.Concat(to5(gw1, gw1v6), queue, do)...), atOnce(said, then), step(said), step(said, "sysctl net.ipv4.ip_forward_update_priority=0")}}
		out = append(out, h)
		h.name, h.why, h.slow, h.reasons = h.name+", no class", "where nothing queues it does not matter", Excuse{Rules: true}, []string{"xdp fast", "tc fast"}
		h.steps = []handStep{step(said, slices.Concat(to5(gw1, gw1v6), do)...), step(said, then)}
		out = append(out, h)
	}
	add("nft", []string{silent, nftFile("add table inet t", "add map inet t classes { type inet_service : classid; }", "add element inet t classes { 2000 : 1:2, 80 : 1:1 }", "add chain inet t p { type filter hook prerouting priority mangle; }", "add chain inet t f { type filter hook forward priority 0; }", "add chain inet t o { type filter hook postrouting priority 0; }",
		"add rule inet t p udp dport 53 meta priority set 1:2 counter", "add rule inet t f tcp dport 80 meta priority set 1:2 counter", "add rule inet t f tcp sport 53 meta priority set none", "add rule inet t f icmp type echo-request meta priority set root counter", "add rule inet t f meta priority set udp dport map @classes counter", "add rule inet t o ip6 saddr 2001:db8:3::4 meta priority set 1:2",
		"add rule inet t o ip dscp cs1 meta priority set 1:2 counter")}, "nft add rule inet t o udp sport 1000 meta priority set 1:1 counter")
	for _, tool := range []string{"legacy", "nft"} {
		rules := func(tool string) string {
			return restore(tool, "mangle", ":FORWARD ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]; :qos - [0:0]", "-A FORWARD -p udp -m udp --dport 2000 -j CLASSIFY --set-class 1:2", "-A FORWARD -p tcp -j qos", "-A qos -p tcp -m tcp --dport 80 -j CLASSIFY --set-class 1:2", "-A qos -j RETURN",
				"-A POSTROUTING -p tcp -m tcp --sport 53 -j CLASSIFY --set-class 0:0", "-A POSTROUTING -m dscp --dscp 0x08 -j CLASSIFY --set-class 1:2")
		}
		add("iptables-"+tool, []string{silent, rules("iptables-" + tool), rules("ip6tables-" + tool)}, "iptables-"+tool+" -t mangle -I qos -p tcp -m tcp --sport 1000 -j CLASSIFY --set-class 1:1")
	}
	return out
}
