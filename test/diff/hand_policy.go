// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// policyTraps are about rules, reverse paths and switches.
func policyTraps() []hand {
	rules := func(sel string, excuse Excuse, reasons ...string) hand {
		return hand{name: "rule " + sel, why: "a policy rule by " + sel, slow: excuse, reasons: reasons, steps: []handStep{step(join(services(), some(), tosTo5()),
			append(to5(gw1, gw1v6), "ip route add default via 10.0.2.10 table 100", "ip route add default via fd00::3:0:0:0:10 table 100",
				"ip rule add pref 100 "+sel+" lookup 100", "ip -6 rule add pref 100 "+sel+" lookup 100")...)}}
	}
	rp := func(all, p0, p1 int) hand {
		return hand{name: "rp-filter " + string(rune('0'+all)) + string(rune('0'+p0)) + string(rune('0'+p1)), why: "trap 1.11: the reverse path, strict and loose, per device and for all",
			steps: []handStep{step(sources(), sysctlN("all.rp_filter", all), sysctlN("p0.rp_filter", p0), sysctlN("p1.rp_filter", p1))}}
	}
	strict := rp(1, 0, 0)
	strict.reasons = []string{"rp-filter", "fast"}
	ports := Excuse{Ports: true}
	return []hand{
		rules("iif p0", Excuse{}, "fast"), rules("tos 0x10", Excuse{}, "fast"), rules("ipproto udp", ports, "fast"), rules("ipproto udp dport 53", ports, "fast"),
		rules("ipproto tcp sport 1000", ports, "fast"), rules("sport 53", ports), rules("dport 2000-2010", ports), rules("ipproto icmp", ports), rules("ipproto 132 dport 53", ports),
		rules("not iif p0", Excuse{}, "fast"), rules("fwmark 1", Excuse{}, "fast"), rules("not fwmark 1", Excuse{}), rules("oif p1", Excuse{}), rules("uidrange 0-1000", Excuse{IP4: true, IP6: true}), rules("tun_id 5", Excuse{IP4: true, IP6: true}, "rule-unknown"),
		{name: "rule-from-to", why: "rules by source and destination; a way back that a rule forbids is for Linux to judge", slow: Excuse{IP4: true}, reasons: []string{"fast", "blackhole", "prohibit"}, steps: []handStep{step(join(some(), sources()),
			"ip route add default via 10.0.2.10 table 100", "ip rule add pref 100 from 10.3.0.0/16 lookup 100", "ip rule add pref 110 to 10.2.0.0/16 prohibit", "ip rule add pref 90 from 10.77.0.0/16 blackhole",
			"ip -6 rule add pref 100 from 2001:db8:3::/48 unreachable", "ip -6 rule add pref 110 to 2001:db8:2::/48 blackhole")}},
		{name: "rule-goto", why: "goto, nop, suppress_prefixlength; the way back meets the blackhole, so Linux judges it", slow: Excuse{IP4: true}, reasons: []string{"fast"}, steps: []handStep{step(join(some(), services()), append(to5(gw1, gw1v6),
			"ip route add default via 10.0.2.10 table 100", "ip rule add pref 10 iif p0 goto 200", "ip rule add pref 20 blackhole", "ip rule add pref 200 nop",
			"ip rule add pref 210 lookup main suppress_prefixlength 16", "ip rule add pref 220 lookup 100")...)}},
		{name: "rule-no-local", why: "the rule for the local table moved behind others", slow: Excuse{IP4: true},
			steps: []handStep{step(join(some(), toRouter()), "ip rule add pref 300 lookup local", "ip rule del pref 0", "ip route add 10.0.0.1/32 via 10.0.1.10 table 100", "ip rule add pref 100 lookup 100")}},
		{name: "rule-flush", why: "no rules at all", slow: Excuse{IP4: true, IP6: true}, steps: []handStep{step(some(), "ip rule flush", "ip -6 rule flush")}},
		strict, rp(2, 0, 0), rp(0, 1, 0), rp(0, 2, 1), rp(1, 2, 2), rp(0, 0, 0),
		{name: "rp-filter-less-specific", why: "trap 1.11: a less specific route out of the ingress interface must not satisfy the check", reasons: []string{"rp-filter"},
			steps: []handStep{step(sources(), "ip route add 10.0.0.0/8 via 10.0.0.10", "sysctl net.ipv4.conf.all.rp_filter=1")}},
		{name: "rp-filter-multipath", why: "the source's route has several next hops", slow: Excuse{IP4: true},
			steps: []handStep{step(sources(), "ip route add 10.77.0.0/16 nexthop via 10.0.0.10 nexthop via 10.0.1.10", "sysctl net.ipv4.conf.all.rp_filter=1")}},
		{name: "rp-filter-rules", why: "a rule by source or iif decides over the reverse path", slow: Excuse{IP4: true},
			steps: []handStep{step(sources(), "ip route add 10.77.0.0/16 via 10.0.0.10 table 100", "ip rule add pref 50 to 10.77.0.0/16 lookup 100", "ip rule add pref 60 from 10.1.2.0/24 blackhole", "sysctl net.ipv4.conf.all.rp_filter=1"),
				step(sources(), "ip rule add pref 40 iif p1 to 10.3.0.0/16 prohibit")}},
		{name: "rp-filter-ports", why: "rules by ports see the way back with the ports exchanged", slow: Excuse{IP4: true}, reasons: []string{"rp-filter", "fast"}, steps: []handStep{step(services(), append(to5(gw1, gw1v6),
			"sysctl net.ipv4.conf.all.rp_filter=1", "ip rule add pref 50 ipproto udp dport 1000 to 10.0.0.0/24 blackhole")...), step(services(), "ip rule del pref 50", "ip rule add pref 50 ipproto tcp sport 80 to 10.0.0.0/24 blackhole")}},
		{name: "rp-filter-no-address", why: "an interface without an address", slow: Excuse{In: []int{2}},
			steps: []handStep{step(sources(), "ip address flush dev p2", "sysctl net.ipv4.conf.all.rp_filter=1"), step(sources(), "sysctl net.ipv4.conf.all.rp_filter=2")}},
		{name: "no-address", why: "an interface without an address and without a filter takes any source", reasons: []string{"fast"},
			steps: []handStep{step(join(udp(2, "10.1.2.3", "10.3.4.9"), udp(2, "172.16.9.9", "10.3.4.9"), udp(2, "10.0.2.10", "10.1.2.3")), "ip address flush dev p2")}},
		{name: "rule4-ports", why: "ports matter to IPv4 alone: what one packet found must not be remembered for the next", slow: Excuse{Ports: true}, reasons: []string{"fast"}, steps: []handStep{step(join(services(), some()), append(to5(gw1, gw1v6),
			"ip route add default via 10.0.2.10 table 100", "ip rule add pref 100 ipproto udp dport 53 lookup 100")...)}},
		{name: "rule6-ports", why: "ports matter to IPv6 alone", slow: Excuse{Ports: true}, reasons: []string{"fast"}, steps: []handStep{step(join(services(), some()), append(to5(gw1, gw1v6),
			"ip route add default via fd00::3:0:0:0:10 table 100", "ip -6 rule add pref 100 ipproto udp dport 53 lookup 100")...)}},
		{name: "rp-filter-mark", why: "src_valid_mark", slow: Excuse{IP4: true}, reasons: []string{}, steps: []handStep{step(sources(), "sysctl net.ipv4.conf.all.src_valid_mark=1", "sysctl net.ipv4.conf.all.rp_filter=1")}},
		{name: "local-source", why: "the router's own addresses as sources, with and without accept_local", reasons: []string{"local-source"},
			steps: []handStep{step(sources()), step(sources(), "sysctl net.ipv4.conf.p0.accept_local=1"), step(sources(), "sysctl net.ipv4.conf.all.accept_local=1"), step(sources(), "ip address add 10.3.4.4/32 dev lo", "sysctl net.ipv4.conf.all.accept_local=0", "sysctl net.ipv4.conf.p0.accept_local=0")}},
		{name: "broadcast-source", why: "broadcast sources pass without a full check and not with one", slow: Excuse{IP4: true},
			steps: []handStep{step(sources()), step(sources(), "ip rule add pref 77 from 9.9.9.9 lookup main"), step(sources(), "ip rule del pref 77"), step(sources(), "ip route add local 9.9.9.0/24 dev lo"), step(sources(), "ip route del local 9.9.9.0/24 dev lo")}},
		{name: "forwarding-per-device", why: "IPv4 forwarding by ingress device", slow: Excuse{In: []int{0}, Out: []int{0}}, steps: []handStep{step(join(some(), sources()), "sysctl net.ipv4.conf.p0.forwarding=0")}, reasons: []string{"forwarding-off"}},
		{name: "forwarding-egress", why: "the egress device's switch does not matter", slow: Excuse{In: []int{1}, Out: []int{1}}, steps: []handStep{step(join(some(), sources()), "sysctl net.ipv4.conf.p1.forwarding=0", "sysctl net.ipv4.conf.p0.rp_filter=1")}},
		{name: "forwarding6-all", why: "trap 1.10: conf.all decides for IPv6", slow: Excuse{IP6: true}, steps: []handStep{
			step(some(), "sysctl net.ipv6.conf.all.forwarding=0", "sysctl net.ipv6.conf.p0.forwarding=1", "sysctl net.ipv6.conf.p1.forwarding=1"), step(some(), "sysctl net.ipv6.conf.all.forwarding=1"),
			step(some(), "sysctl net.ipv6.conf.p0.forwarding=0")}},
		{name: "forwarding6-forced", why: "force_forwarding for one device", slow: Excuse{IP6: true}, steps: []handStep{step(some(), "sysctl net.ipv6.conf.all.forwarding=0", "sysctl net.ipv6.conf.p0.force_forwarding=1")}},
		{name: "forwarding4-off", why: "no IPv4 forwarding at all", slow: Excuse{IP4: true}, steps: []handStep{step(some(), "sysctl net.ipv4.ip_forward=0"), step(some(), "sysctl net.ipv4.ip_forward=1")}},
		{name: "disable-ipv6", why: "IPv6 switched off on ingress, on egress", slow: Excuse{IP6: true}, steps: []handStep{step(some(), "sysctl net.ipv6.conf.p0.disable_ipv6=1"), step(some(), "sysctl net.ipv6.conf.p0.disable_ipv6=0", "sysctl net.ipv6.conf.p1.disable_ipv6=1")}},
		{name: "proxy-arp", why: "the router answers for others", steps: []handStep{step(join(some(), arps()), "sysctl net.ipv4.conf.all.proxy_arp=1", "ip neighbour add proxy 10.0.0.77 dev p0")}},
		{name: "proxy-ndp", why: "the router answers for others: it takes what asks for them, and forwards the rest", reasons: []string{"fast", "icmp6-control", "ip6-address"},
			steps: []handStep{step(join(some(), udp(0, h0v6, "2001:db8:1::77"), udp(0, h0v6, "fe80::77"), udp(1, "fd00::2:0:0:0:10", h0v6), soliciting("2001:db8:1::77")),
				"sysctl net.ipv6.conf.all.proxy_ndp=1", "sysctl net.ipv6.conf.p0.proxy_ndp=1", "ip neighbour add proxy 2001:db8:1::77 dev p0", "ip neighbour add proxy fe80::77 dev p0", "ip neighbour add proxy "+h0v6+" dev p1")}},
		{name: "update-priority", why: "ip_forward_update_priority off", steps: []handStep{step(everyTOS(), "sysctl net.ipv4.ip_forward_update_priority=0")}, reasons: []string{"fast"}},
		{name: "priority", why: "forwarding sets skb->priority from the TOS byte; a filter behind it sees that", slow: Excuse{Out: []int{1, 2}}, reasons: []string{"fast"},
			steps: []handStep{step(join(tosTo5(), everyTOS()), append(to5(gw1, gw1v6), "drop-priority 1 2", "drop-priority 2 6")...), step(join(tosTo5(), everyTOS()), "ip route replace 10.5.0.0/16 via 10.0.2.10"),
				step(join(tosTo5(), everyTOS()), "sysctl net.ipv4.ip_forward_update_priority=0")}},
		{name: "priority zero", why: "and a packet without a TOS keeps the best effort", slow: Excuse{Out: []int{1, 2}}, hooks: []string{"tc"},
			steps: []handStep{step(join(tosTo5(), everyTOS()), append(to5(gw1, gw1v6), "drop-priority 1 4", "drop-priority 2 0")...), step(join(tosTo5(), everyTOS()), "ip route replace 10.5.0.0/16 via 10.0.2.10")}},
		{name: "seg6", why: "segment routing taken from packets, which is none of what comes without a routing header", reasons: []string{"fast", "ip6-extension"}, steps: []handStep{
			step(join(some(), extensions(flowOf(0, h0v6, h1v6)), segmentRouted("fd00::1:0:0:0:1", "2001:db8:1::9")), "sysctl net.ipv6.conf.all.seg6_enabled=1", "sysctl net.ipv6.conf.p0.seg6_enabled=1", "sysctl net.ipv6.conf.all.rpl_seg_enabled=1", "sysctl net.ipv6.conf.p0.rpl_seg_enabled=1")}},
	}
}

func sysctlN(name string, n int) string {
	return "sysctl net.ipv4.conf." + name + "=" + string(rune('0'+n))
}

// soliciting are neighbour solicitations and advertisements sent to a neighbour itself, with the hop limit that they must have and with another.
func soliciting(target string) (out []Packet) {
	f := flowOf(0, h0v6, target)
	body := append(make([]byte, 4), netip.MustParseAddr(target).AsSlice()...)
	for _, kind := range []uint8{135, 136} {
		frame := f.Carry(&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}, gopacket.Payload(body))
		out = append(out, in(0, lab.Edited(frame, lab.TTL(255)), frame)...)
	}
	return out
}
