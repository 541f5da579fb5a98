// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"

	"github.com/shuntnet/shunt/internal/lab"
)

// nobody are rules that no packet here satisfies, so many that what they say is worth remembering (bpf/node/verdicts.h).
func nobody(rule string, first byte) []string {
	var out []string
	for i := range 8 {
		out = append(out, fmt.Sprintf(rule, int(first)+i))
	}
	return out
}

// inTurns sends the first packet before each of the others, and all of it three times, so that whatever can be remembered is.
func inTurns(packets ...[]Packet) (out []Packet) {
	for range 3 {
		for _, p := range packets[1:] {
			out = append(out, join(packets[0], p, p)...)
		}
	}
	return out
}

// alike are packets each of which differs from the first in one thing that a rule asks for.
func alike(src, src2, dst, dst2 string) []Packet {
	frames := func(src, dst string, sport, dport uint16, edits ...lab.Edit) []Packet {
		f := flowOf(0, src, dst)
		f.SrcPort, f.DstPort = sport, dport
		return in(0, lab.Edited(f.UDP("payload"), edits...))
	}
	base := frames(src, dst, 1000, 2000)
	f := flowOf(0, src, dst)
	tos, other := lab.Edited(f.UDP("payload"), lab.L3(1, 0x48), lab.FixIPChecksum()), lab.Edited(f.Echo(1, 1, ""), lab.L4(0, 13), lab.FixTransportChecksum())
	if f.Dst.Is6() {
		tos, other = lab.Edited(f.UDP("payload"), lab.L3(0, 0x64, 0x80)), lab.Edited(f.Echo(1, 1, ""), lab.L4(0, 129), lab.FixTransportChecksum())
	}
	return inTurns(base, frames(src2, dst, 1000, 2000), frames(src, dst2, 1000, 2000), frames(src, dst, 1001, 2000), frames(src, dst, 1000, 2001), in(0, tos), in(0, f.TCP("S", 1, "")), in(0, f.TCP("A", 1, "")),
		in(0, f.Echo(1, 1, "")), in(0, other), frames(src, dst, 1000, 2000, lab.TTL(10)))
}

// rememberedRules are about what is remembered of rules: packets that are alike but for what a rule asks, and rules that change in between.
func rememberedRules() []hand {
	all := join(alike(h0, "10.0.0.11", "10.5.1.1", "10.5.1.2"), alike(h0v6, "2001:db8:3::10", "2001:db8:5::1", "2001:db8:5:1::1"))
	filter := func(tool, nobodies, src, dst, icmp string) string {
		return forwardChain(tool, "ACCEPT", append(nobody(nobodies, 100), "-s "+src+" -j DROP", "-d "+dst+" -j DROP", "-p udp -m udp --sport 1001 -j DROP", "-p udp -m udp --dport 2001 -j DROP", "-m tos --tos 0x48/0xff -j DROP",
			"-p tcp -m tcp --tcp-flags ACK ACK -j DROP", icmp+" -j DROP", "-m mark --mark 5 -j DROP", "-p udp")...)
	}
	ttl := func(tool, nobodies, match string) string {
		return restore(tool, "mangle", ":PREROUTING ACCEPT [0:0]", append(prefixed("-A PREROUTING ", nobody(nobodies, 120)), "-A PREROUTING "+match+" -j MARK --set-mark 5")...)
	}
	const v4, v6 = "-s 172.20.%d.0/24 -j DROP", "-s 2001:db8:f:%d::/64 -j DROP"
	out := []hand{{name: "remembered rules", why: "a packet is treated by what rules say of it, and not of one that was alike but for what they ask", reasons: []string{drop, "fast"},
		steps: []handStep{step(all, append(to5(gw1, gw1v6), filter("iptables-legacy", v4, "10.0.0.11/32", "10.5.1.2/32", "-p icmp -m icmp --icmp-type 13"), ttl("iptables-legacy", v4, "-m ttl --ttl-eq 10"),
			filter("ip6tables-legacy", v6, "2001:db8:3::/64", "2001:db8:5:1::/64", "-p icmpv6 -m icmp6 --icmpv6-type 129"), ttl("ip6tables-legacy", v6, "-m hl --hl-eq 10"))...),
			atOnce(all, "iptables-legacy -I FORWARD -p udp --dport 2000 -j DROP", "ip6tables-legacy -I FORWARD -p udp --dport 2000 -j DROP"), step(all),
			atOnce(all, "iptables-legacy -D FORWARD 1", "ip6tables-legacy -D FORWARD 1"), step(all)}}}
	chain := func(family, nobodies string) string {
		return nftFile(append([]string{"add table " + family + " t", "add chain " + family + " t raw { type filter hook prerouting priority -300; }", "add chain " + family + " t f { type filter hook forward priority 0; }",
			"add rule " + family + " t raw udp sport 1001 counter meta mark set 5", "add rule " + family + " t f meta mark 5 counter drop", "add rule " + family + " t f udp dport 2001 counter ip dscp set af11"},
			append(prefixed("add rule "+family+" t raw ", nobody(nobodies, 100)), prefixed("add rule "+family+" t f ", nobody(nobodies, 120))...)...)...)
	}
	four := chain("ip", "ip saddr 172.20.%d.0/24 counter drop")
	marks := alike(h0, "10.0.0.11", "10.5.1.1", "10.5.1.2")
	return append(out, hand{name: "remembered rules that change packets", why: "rules that set marks and fields set them on each packet", reasons: []string{drop, "fast"},
		steps: []handStep{step(marks, append(to5(gw1, gw1v6), four)...), atOnce(marks, "nft insert rule ip t f udp dport 2000 counter drop"), step(marks)}})
}
