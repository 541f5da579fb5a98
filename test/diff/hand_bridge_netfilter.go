// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"cmp"
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
	said, few := join(everybody(), chat(), padded(), onPorts(), asks()), byWire(onPorts())
	on := bridge("", withBridgeNetfilter...)
	alone := slices.Concat(on, []string{"sysctl net.ipv4.ip_forward=0", "sysctl net.ipv6.conf.all.forwarding=0"}) // routed packets rest on the same words
	traps := slices.Concat(shownRules(), shownPorts(), shownConnections())
	return append(traps, []hand{
		bare("frames", "headers are checked, and what lies behind a packet is cut off, even where no rule looks", shown, []string{"fast", "ip4-options", "ip4-header", "ip4-checksum", "ip6-header", "ip6-extension", "too-short"},
			step(join(everybody(), across(byWire(join(eachEdit(v4, v6, lab.TTL(0), lab.TTL(1), lab.TTL(2), lab.BadIPChecksum(), lab.BadTransportChecksum()), options(v4), fragments(v4), shortMessages())))), on...),
			step(join(said, types(), across(byWire(join(lengths(v4, v6), extensions(v6), runts(v4, v6), tags()[:60])))))),
		bare("headers", "rules that ask for options and headers which no fast packet has: those that have them are Linux's before", ruled, []string{"fast", "rule-drop"},
			step(join(everybody(), across(byWire(join(options(v4), fragments(v4), extensions(v6)))), onPorts()), append(slices.Clip(on), nftFile("add table inet t", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f ip version != 4 counter drop",
				"add rule inet t f exthdr frag exists counter drop", "add rule inet t f exthdr hbh exists counter drop", "add rule inet t f ip option ra exists counter drop", "add rule inet t f ip option lsrr exists counter drop", "add rule inet t f ip6 nexthdr udp udp dport 53 counter drop"),
				forwardChain("ip6tables-legacy", "ACCEPT", "-m policy --dir in --pol ipsec -j DROP", "-m policy --dir out --pol none"))...)),
		bare("mtu", "what a port's MTU does not take is cut into fragments, or dropped", shown, []string{"fast", "mtu"}, step(join(everybody(), sizedTo(1300), sizedTo(1301), sizedTo(1304), sizedTo(1305), unfragmented(1300), unfragmented(1301)), slices.Concat(on, []string{"ip link set p1 mtu 1300"})...),
			step(join(sizedTo(1500), sizedTo(1501), sizedTo(3000), chat()), "ip link set p0 mtu 9000", "ip link set p1 mtu 9000")),
		{name: "bridge shown offloads", why: "what is still to be cut passes whole, and what is still to be summed stays so", bare: true, slow: shown, hooks: []string{"tc"}, reasons: []string{"fast"},
			steps: []handStep{step(join(everybody(), across(offloads()), across(partials())), on...), step(across(offloads()), "ip link set p1 mtu 1300")}},
		bare("by a switch", "each switch is for one family, and off means off", shown, []string{"fast"}, step(said, on...), step(said, withoutBridgeNetfilter[0]), step(said, withBridgeNetfilter[0], withoutBridgeNetfilter[1])),
		bare("by an option", "a bridge has switches of its own, which the next frame obeys", ruled, []string{"fast", "bridge-option"}, step(said, bridge("nf_call_iptables 1")...), frozen(said, "ip link set br0 type bridge nf_call_iptables 0"),
			frozen(said, "ip link set br0 type bridge nf_call_ip6tables 1"), step(said, "ip link set br0 type bridge nf_call_iptables 1 nf_call_arptables 1"), step(said, chainOf("inet", "forward"))),
		{name: "bridge shown by switches, to rules", why: "each switch turned while a rule of IP waits for frames: those of the namespace when they are seen, those of the bridge by the next frame", bare: true, slow: ruled, hooks: []string{"tc"}, reasons: []string{"fast", "rule-drop", "bridge-option"}, steps: []handStep{
			step(join(everybody(), few), bridge("", append(withoutBridgeNetfilter[:len(withoutBridgeNetfilter):len(withoutBridgeNetfilter)], chainOf("inet", "forward"))...)...), step(few, withBridgeNetfilter[0]), step(few, withBridgeNetfilter[1]), step(few, withoutBridgeNetfilter[0]), step(few, withoutBridgeNetfilter[1]),
			frozen(few, "ip link set br0 type bridge nf_call_iptables 1"), step(said), frozen(few, "ip link set br0 type bridge nf_call_iptables 0 nf_call_ip6tables 1"), step(said), step(few, slices.Concat(withBridgeNetfilter, []string{"ip link set br0 type bridge nf_call_ip6tables 0"})...)}},
		bare("rules", "a rule that comes under traffic is met by the next frame, and of its family alone", ruled, []string{"fast", "stale"}, step(said, alone...), frozen(said, chainOf("ip", "forward")), step(said, "nft flush ruleset"),
			frozen(said, chainOf("ip6", "prerouting")), step(said, "nft flush ruleset", "nft add table ip t", "nft add chain ip t empty { type filter hook postrouting priority 0; policy accept; }"), frozen(said, "nft add rule ip t empty udp dport 53 drop")),
		bare("rules of old tables", "the same with the old tools, whose tables stay when they are empty", ruled, []string{"fast", "stale"}, slices.Concat([]handStep{step(said, alone...)}, oldTables(said))...),
		bare("tracking", "connections of one family are followed: its frames are Linux's, fragments and all", six, []string{"fast"},
			step(join(said, across(byWire(fragments(v4)))), slices.Concat(on, []string{"nft table ip t { chain a { type filter hook forward priority 0; ct state established counter accept; ct state invalid counter drop; }; }"})...)),
		overBridge("a connection of", talk{client: "10.0.0.16", server: "10.0.3.10", port: 1000}, ""), overBridge("one of IPv6 of", talk{client: stationA.addr(true).String(), server: "fd00::4:0:0:0:10", port: 1000}, ""),
		overBridge("a masqueraded connection of", talk{client: "10.0.0.16", server: "10.0.3.10", port: 1000, seen: "10.0.3.1"}, "chain n { type nat hook postrouting priority srcnat; ip saddr 10.0.0.0/24 oifname != br0 masquerade; };"),
		overBridge("a masqueraded one of IPv6 of", talk{client: stationA.addr(true).String(), server: "fd00::4:0:0:0:10", port: 1000, seen: "fd00::4:0:0:0:1"}, "chain n { type nat hook postrouting priority srcnat; oifname != br0 masquerade; };"),
		overBridge("a redirected connection of", talk{client: "10.0.0.16", server: "10.0.0.1", port: 1000, dport: 8080, real: "10.0.3.10", realPort: 80}, "chain n { type nat hook prerouting priority dstnat; ip daddr 10.0.0.1 tcp dport 8080 dnat ip to 10.0.3.10:80; };"),
		bare("to the router", "what is addressed to the bridge meets prerouting once, and what is routed to it meets nothing more", ruled, []string{"fast"}, step(join(said, upAndDown()), irb("", withBridgeNetfilter...)...), step(join(upAndDown(), hostile(), strangers())),
			step(join(said, upAndDown(), hostile()), counting("prerouting"), counting("forward"), counting("postrouting")),
			step(join(said, upAndDown()), "nft flush ruleset", "iptables-legacy -A FORWARD -m physdev --physdev-in p0 -p udp -j DROP", "iptables-legacy -t raw -A PREROUTING -m physdev --physdev-in p1 -p icmp -j DROP")),
	}...)
}

// bothFamilies excuses what br_netfilter shows to rules or connection tracking.
var bothFamilies = Excuse{IP4: true, IP6: true, Bridged: onBridge.Bridged, Shown: true}

// shownRules are rules that bridged packets meet.
func shownRules() []hand {
	between := func(edits ...lab.Edit) (out []Packet) {
		for _, v6 := range []bool{false, true} {
			for _, f := range []lab.Flow{stationA.flow(stationB, v6), stationC.flow(stationA2, v6)} {
				out = append(out, in(map[bool]int{true: 0, false: 2}[f.SrcMAC.String() == stationA.mac().String()], lab.Edited(f.UDP("payload"), edits...), lab.Edited(f.TCP("S", 1, ""), edits...), lab.Edited(f.Echo(1, 1, "ping"), edits...))...)
			}
		}
		return out
	}
	ttls := join(between(lab.TTL(0)), between(lab.TTL(1)), between(lab.TTL(2)), between(lab.TTL(63)), between(lab.TTL(64)), between(lab.TTL(65)), between(lab.TTL(254)), between(lab.TTL(255)))
	said := join(everybody(), chat(), onPorts(), padded(), between())
	on := bridge("", withBridgeNetfilter...)
	rules := func(name, why string, reasons []string, steps ...handStep) hand {
		return hand{name: "bridge shown to " + name, why: why, bare: true, slow: bothFamilies, reasons: reasons, steps: steps, loads: true}
	}
	table := func(lines ...string) string {
		return nftFile(append([]string{"flush ruleset", "add table inet t"}, lines...)...)
	}
	chain := func(name, hook, priority string, lines ...string) (out []string) {
		out = append(out, fmt.Sprintf("add chain inet t %s { type filter hook %s priority %s; }", name, hook, priority))
		for _, l := range lines {
			out = append(out, fmt.Sprintf("add rule inet t %s %s", name, l))
		}
		return out
	}
	fast := []string{"fast", "rule-drop"}
	return []hand{
		rules("rules", "at each hook packets come by the bridge and leave by it, not by its ports", fast,
			step(said, slices.Concat(on, []string{table(chain("a", "prerouting", "-300", "iifname br0 counter", "iifname p0 counter drop", "oifname br0 counter drop", "udp dport 53 counter drop")...)})...),
			step(said, table(chain("a", "forward", "0", "iifname br0 oifname br0 counter", "iifname p0 counter drop", "oifname p1 counter drop", "iifname != br0 counter", "iif br0 tcp dport 53 counter drop", "ip saddr 10.0.0.16 udp dport 2000 counter accept", "counter")...)),
			step(said, table(chain("a", "postrouting", "0", "ip saddr 10.0.0.0/8 oifname br0 counter", "ip6 saddr fd00::/16 oifname br0 counter", "oifname p1 counter drop", "udp dport 53 counter drop", "ip daddr 10.0.0.0/8 meta length > 60 counter")...)), // not what the host itself reports of its groups
			step(said, table(slices.Concat(chain("a", "prerouting", "-150", "ether saddr "+stationA.mac().String()+" counter", "meta pkttype host counter", "meta pkttype != host counter drop"),
				chain("b", "forward", "10", "tcp dport 53 counter drop", "icmp type echo-request counter", "icmpv6 type echo-request counter drop", "tcp flags syn counter"), chain("c", "postrouting", "10", "counter"))...))),
		rules("rules by ttl", "no bridge takes anything off it", []string{"fast", "rule-drop", "netfilter-rule"}, step(join(everybody(), ttls), slices.Concat(on, []string{table(slices.Concat(chain("a", "prerouting", "0", "ip ttl 64 counter", "ip ttl 1 counter"),
			chain("b", "forward", "0", "ip ttl 64 counter", "ip ttl 63 counter drop", "ip ttl 0 counter drop", "ip ttl 1 counter", "ip ttl >= 254 counter", "ip ttl 255 counter drop", "ip6 hoplimit 65 counter drop"), chain("c", "postrouting", "0", "ip ttl 2 counter drop", "ip6 nexthdr { tcp, udp } ip6 hoplimit { 1, 254 } counter drop"))...)})...)),
		rules("rules that mark", "a mark is on the packet when it leaves", []string{"fast"}, step(said, slices.Concat(on, []string{table(slices.Concat(chain("a", "prerouting", "0", "udp dport 2000 meta mark set 7"), chain("b", "forward", "0", "meta mark 7 counter"))...), "drop-mark 1 7"})...)),
		rules("what only Linux asks", "by name", []string{"bridge-netfilter", "netfilter-rule"},
			step(said, slices.Concat(on, []string{table(chain("a", "forward", "0", "udp dport 53 limit rate 1/hour counter drop", "ip dscp set af11")...)})...),
			step(said, table(chain("a", "postrouting", "0", "meta nfproto ipv4 iifname br0 counter drop", "meta nfproto ipv4 iif 1 counter drop", "meta nfproto ipv4 meta iiftype ether counter drop")...)),
			step(said, table(chain("a", "forward", "0", "fib daddr type local counter drop")...), "ip address add 10.0.0.32/24 dev br0"),
			step(said, table(chain("a", "forward", "0", "udp dport 53 limit rate 1/hour counter drop", "counter")...))),
		rules("rules that change", "while shunt's process is stopped", []string{"fast", "stale"}, step(said, slices.Concat(on, []string{table(chain("a", "forward", "0", "udp dport 5353 counter drop")...)})...),
			frozen(said, "nft add rule inet t a udp dport 53 counter drop"), step(said), frozen(said, "nft insert rule inet t a tcp dport 53 counter drop"), step(said, "nft flush ruleset"), step(said, "iptables-legacy -P FORWARD ACCEPT", "iptables-legacy -A FORWARD -i br0 -o br0 -p udp --dport 53 -j DROP"),
			frozen(said, "iptables-legacy -I FORWARD -o br0 -p tcp --dport 53 -j DROP"), step(said)),
		{name: "bridge shown to rules, offloads", why: "what is still to be cut meets rules whole", bare: true, slow: bothFamilies, hooks: []string{"tc"}, reasons: []string{"fast"},
			steps: []handStep{step(join(everybody(), across(offloads()), across(partials())), slices.Concat(on, []string{table(chain("a", "forward", "0", "iifname br0 counter", "meta length > 1500 counter")...)})...)}},
		{name: "bridge shown to rules, fragments", why: "they are put together where connections are tracked, and rules see them otherwise", bare: true, slow: bothFamilies, reasons: []string{"fragment"},
			steps: []handStep{step(join(everybody(), across(byWire(fragments(flowOf(0, h0, h1))))), slices.Concat(on, []string{table(chain("a", "forward", "0", "udp dport 2000 counter drop", "counter")...)})...)}},
	}
}

// shownPorts are rules that ask for the bridge's ports. Of what is routed they know the port that it came by, and none that it leaves by.
func shownPorts() []hand {
	said := join(everybody(), chat(), onPorts())
	routed := join(said, upAndDown())
	rules := func(tool, at string, matches ...string) (out []string) {
		out = []string{"nft flush ruleset"}
		for _, family := range []string{"ip", "ip6"} {
			for _, m := range matches {
				out = append(out, family+tool+" "+at+" -m physdev "+m)
			}
		}
		return out
	}
	early := rules("tables", "-t raw -A PREROUTING", "--physdev-in p0", "! --physdev-in p0", "--physdev-is-in", "! --physdev-is-in", "! --physdev-is-bridged", "! --physdev-is-out", "! --physdev-out p1", "--physdev-out p+ -j DROP")
	forward := rules("tables", "-A FORWARD", "--physdev-in p0 --physdev-out p1 -p udp --dport 53 -j DROP", "--physdev-is-bridged", "! --physdev-is-bridged", "--physdev-in p+", "! --physdev-in p1", "! --physdev-out p+", "! --physdev-out p1", "--physdev-out p2", "--physdev-is-out")
	late := rules("tables", "-t mangle -A POSTROUTING", "--physdev-is-bridged --physdev-out p1", "--physdev-is-bridged ! --physdev-out p1", "--physdev-is-in ! --physdev-out p2", "--physdev-in p0 -p tcp --dport 53 -j DROP", "--physdev-out br0 -j DROP", "--physdev-in p3 -j DROP")
	old := rules("tables-legacy", "-A FORWARD", "! --physdev-is-out", "--physdev-in p0 -p udp --dport 53 -j DROP", "--physdev-is-bridged --physdev-out p1 -j ACCEPT", "! --physdev-in p0 --physdev-is-in")
	fast := []string{"fast", "rule-drop"}
	asked := func(name, why string, packets []Packet, first []string, more ...handStep) hand {
		steps := []handStep{step(packets, slices.Concat(first, withBridgeNetfilter, early)...), step(packets, forward...), step(packets, late...), step(packets, old...)}
		return hand{name: "bridge shown " + name, why: why, bare: true, slow: Excuse{Rules: true, Bridged: onBridge.Bridged, Shown: true}, reasons: fast, loads: true, steps: append(steps, more...)}
	}
	return []hand{
		asked("to rules of its ports", "physdev asks for the ports of what is bridged", said, bridge(""), frozen(said, "iptables-legacy -I FORWARD -m physdev --physdev-out p0 -p tcp --dport 53 -j DROP")),
		asked("to rules of its ports, routed", "of what is routed it knows the port that it came by", routed, irb("")),
		{name: "bridge not shown to rules of its ports", why: "where br_netfilter is off, by its switch or a bridge's, no packet has a port", bare: true, slow: Excuse{IP4: true, IP6: true, Bridged: onBridge.Bridged, Shown: true}, reasons: []string{"fast"},
			steps: []handStep{step(routed, slices.Concat(irb("", withoutBridgeNetfilter...), early)...), step(routed, forward...), step(routed, late...), step(routed, "ip link set br0 type bridge nf_call_iptables 1"), step(routed, withBridgeNetfilter...)}},
	}
}

// dockerRules are those of a container host, as Docker writes them for one network, with a published port.
var dockerRules = []string{"iptables -P FORWARD DROP", "iptables -N DOCKER", "iptables -N DOCKER-FORWARD", "iptables -N DOCKER-BRIDGE", "iptables -N DOCKER-CT", "iptables -N DOCKER-ISOLATION-STAGE-1", "iptables -N DOCKER-ISOLATION-STAGE-2", "iptables -N DOCKER-USER",
	"iptables -A FORWARD -j DOCKER-USER", "iptables -A FORWARD -j DOCKER-FORWARD", "iptables -A DOCKER ! -i br0 -o br0 -j DROP", "iptables -I DOCKER -d 10.0.0.32/32 ! -i br0 -o br0 -p tcp -m tcp --dport 80 -j ACCEPT",
	"iptables -A DOCKER-BRIDGE -o br0 -j DOCKER", "iptables -A DOCKER-CT -o br0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "iptables -A DOCKER-FORWARD -j DOCKER-CT", "iptables -A DOCKER-FORWARD -j DOCKER-ISOLATION-STAGE-1",
	"iptables -A DOCKER-FORWARD -j DOCKER-BRIDGE", "iptables -A DOCKER-FORWARD -i br0 -j ACCEPT", "iptables -A DOCKER-ISOLATION-STAGE-1 -i br0 ! -o br0 -j DOCKER-ISOLATION-STAGE-2", "iptables -A DOCKER-ISOLATION-STAGE-2 -o br0 -j DROP", "iptables -A DOCKER-USER -j RETURN",
	"iptables -t nat -N DOCKER", "iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER", "iptables -t nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER", "iptables -t nat -A POSTROUTING -s 10.0.0.0/24 ! -o br0 -j MASQUERADE",
	"iptables -t nat -A DOCKER ! -i br0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.32:80", "iptables -t raw -A PREROUTING -d 10.0.0.32/32 ! -i br0 -j DROP"}

// shownConnections are connections between stations, tracked by what a bridge shows.
func shownConnections() (out []hand) {
	const one = "nft table inet t { chain f { type filter hook forward priority 0; policy drop; ct state established,related counter accept; ct state invalid counter drop; iifname br0 oifname br0 counter accept; counter; }; }"
	const nat = "nft table inet n { chain p { type nat hook prerouting priority dstnat; tcp dport 8080 redirect to :80; }; chain n { type nat hook postrouting priority srcnat; oifname != br0 ip saddr 10.0.0.0/24 masquerade; }; }"
	for _, v6 := range []bool{false, true} {
		c := talk{client: stationA.addr(v6).String(), server: stationB.addr(v6).String(), port: 1000}
		family := map[bool]string{false: "", true: " of IPv6"}[v6]
		for _, by := range []struct {
			name  string
			rules []string
		}{{"one rule", []string{one, nat}}, {"Docker's rules", dockerRules}} {
			if v6 && by.name != "one rule" {
				continue
			}
			out = append(out, hand{name: "bridge shown connection" + family + " by " + by.name, why: "what is established between containers is fast, the rest is Linux's", bare: true, slow: bothFamilies, loads: true,
				reasons: []string{"fast", "conntrack-new", "conntrack-flags", "conntrack-window", "conntrack-checksum", "conntrack-state"}, steps: onOneBridge(c, slices.Concat(bridge("", withBridgeNetfilter...), by.rules))})
		}
	}
	c := talk{client: stationA.addr(false).String(), server: stationB.addr(false).String(), port: 1000}
	frozenSteps := acrossBridge(append(c.begins(slices.Concat(bridge("", withBridgeNetfilter...), []string{one})...), step(c.data(10, 141, 501)), frozen(c.data(10, 151, 501), "nft insert rule inet t f tcp dport 80 counter drop"), step(c.data(5, 151, 501)), atOnce(c.data(5, 151, 501), "nft flush ruleset")))
	frozenSteps[0].packets = join(everybody(), frozenSteps[0].packets)
	out = append(out, hand{name: "bridge shown connection frozen", why: "a rule that comes while shunt's process is stopped is met by the next packet of the connection", bare: true, slow: bothFamilies, reasons: []string{"fast", "stale"}, loads: true, steps: frozenSteps})
	out = append(out, hand{name: "bridge shown connection in a zone", why: "rules that br_netfilter shows a frame to give its connection a zone, too", needs: "conntrack zones", bare: true, slow: bothFamilies, reasons: []string{"fast", "conntrack-new"}, loads: true,
		steps: onOneBridge(c, slices.Concat(bridge("", withBridgeNetfilter...), []string{one, zones("meta l4proto tcp ct zone set 5", "ct original zone set 6", "iifname br0 counter")}))})
	ask, answer := stationA.flow(stationB, false), stationC.flow(stationA, false)
	ask.DstPort, answer.SrcPort, answer.DstPort = 80, 80, 1000
	dnat := slices.Concat(bridge("", withBridgeNetfilter...), []string{"ip address add 10.0.0.1/24 dev br0", fmt.Sprintf("ip neighbour replace %s lladdr %s dev br0 nud permanent", stationC.addr(false), stationC.mac()), one,
		"nft table ip n { chain p { type nat hook prerouting priority dstnat; udp dport 80 dnat to " + stationC.addr(false).String() + "; }; }"})
	asked, answered := byWire(in(0, ask.UDP("which"), ask.UDP("of you"))), byWire(in(2, answer.UDP("me"), answer.UDP("me")))
	return append(out, hand{name: "bridge shown connection translated", why: "what gets another receiver is Linux's, which finds another station for it; what comes back gets another sender alone", bare: true, slow: bothFamilies, loads: true, reasons: []string{"fast", "conntrack-new", "conntrack-nat"},
		steps: []handStep{step(join(everybody(), asked), dnat...), step(answered), step(nil, "sleep 2100ms"), step(asked), step(answered), step(asked), step(answered)}})
}

// onOneBridge is a connection between two stations from its beginning to its end, and some datagrams.
func onOneBridge(c talk, commands []string) []handStep {
	steps := append(c.begins(commands...), step(c.data(10, 141, 501)), step(c.says(true, "PA", 501, 151, strings.Repeat("y", 1400))),
		step(c.data(3, 151, 1901, lab.L4(16, 0x12, 0x34))), step(c.says(false, "PA", 151, 1901, "odd")), step(c.says(false, "PA", 154, 1901, strings.Repeat("z", 511))),
		step(c.says(false, "FA", 665, 1901, "")), step(c.says(true, "FA", 1901, 666, "")), step(c.data(5, 666, 1902)), step(c.says(true, "R", 1902, 0, "")), step(c.data(5, 671, 1902)))
	steps = acrossBridge(steps)
	steps[0].packets = join(everybody(), steps[0].packets)
	ask, answer := flowBetween(stationA, stationB), flowBetween(stationB, stationA)
	for range 3 { // both directions, and assured
		steps = append(steps, step(ask), step(answer))
	}
	return append(steps, step(join(chat(), onPorts())))
}

// flowBetween are datagrams of one flow.
func flowBetween(from, to station) (out []Packet) {
	for _, v6 := range []bool{false, true} {
		f := from.flow(to, v6)
		f.SrcPort, f.DstPort = 4000, 4000
		out = append(out, in(from.port, f.UDP("one"), f.UDP("two"))...)
	}
	return out
}

// acrossBridge has a conversation between p0 and p1 held by the stations there.
func acrossBridge(steps []handStep) []handStep {
	for i := range steps {
		steps[i].packets = slices.Clone(steps[i].packets)
		for j := range steps[i].packets {
			p := &steps[i].packets[j]
			p.Frame = slices.Concat(hostMAC(1-p.Port, 0), hostMAC(p.Port, 0), p.Frame[12:])
		}
	}
	return steps
}

// overBridge is a connection from a station to the host at p3, as container hosts have them: its rules and its tracking see what a bridge has shown to prerouting.
// nat is a chain of type nat, "" for one that the connection does not meet.
func overBridge(name string, c talk, nat string) hand {
	nat = cmp.Or(nat, "chain n { type nat hook postrouting priority srcnat; ip saddr 10.0.0.32 masquerade; };")
	rules := "nft table inet t { chain f { type filter hook forward priority 0; policy drop; ct state established,related counter accept; ct state invalid counter drop; iifname br0 counter accept; }; " + nat + " }"
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
