// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"

	"github.com/shuntnet/shunt/internal/lab"
)

// writingRules are about rules that change packets: the TOS or traffic class, and the mark.
func writingRules() []hand {
	rules := Excuse{Rules: true}
	all := join(some(), services(), marked())
	var out []hand
	for _, kind := range []string{"legacy", "nft"} {
		var mangle []string
		for _, tool := range []string{"iptables-", "ip6tables-"} {
			rules := []string{"-A PREROUTING -p udp -j DSCP --set-dscp 10", "-A PREROUTING -m dscp --dscp 10", "-A FORWARD -m dscp --dscp 10 -m multiport -p udp --dports 53,2000 -j TOS --set-tos 0x10/0x3f",
				"-A FORWARD -p tcp -j DSCP --set-dscp 0", "-A POSTROUTING -p tcp -j TOS --set-tos 0xff/0x0c", "-A POSTROUTING -m tos --tos 0x10/0x3f"}
			if tool == "ip6tables-" {
				rules = append([]string{"-A POSTROUTING -d ff00::/8 -m comment --comment " + unasked + " -j ACCEPT"}, rules...)
			}
			mangle = append(mangle, restore(tool+kind, "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]", rules...))
		}
		out = append(out, hand{name: "rules tos " + kind, why: "the TOS and traffic class are written, in every table, and later rules see them", loads: true, slow: rules, reasons: []string{"fast"},
			steps: []handStep{step(all, append(to5(gw1, gw1v6), mangle...)...)}})
	}
	nft := nftFile("add table inet t", "add chain inet t pre { type filter hook prerouting priority -150; }", "add chain inet t f { type filter hook forward priority 0; }", "add chain inet t post { type filter hook postrouting priority 0; }",
		"add rule inet t pre meta l4proto udp ip dscp set cs1", "add rule inet t pre meta l4proto udp ip6 dscp set cs1", "add rule inet t f ip dscp cs1 counter ip dscp set 0x2e", "add rule inet t f ip6 dscp cs1 counter ip6 dscp set 0x2e",
		"add rule inet t post meta l4proto tcp ip dscp set 4", "add rule inet t post ip dscp 0x2e counter")
	return append(out,
		hand{name: "rules tos inet", why: "the same by nf_tables, whose checksums are never 0", loads: true, slow: rules, reasons: []string{"fast"}, steps: []handStep{step(join(all, noSum(0xb8, 17), noSum(0x10, 6)), append(to5(gw1, gw1v6), nft)...)}},
		hand{name: "rules tos part", why: "of a traffic class that lies across two bytes nf_tables loads and writes the half with the congestion bits alone", loads: true, slow: rules, reasons: []string{"fast"}, steps: []handStep{step(all, append(to5(gw1, gw1v6), nftFile("add table inet t",
			"add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f ip6 daddr 2001:db8:1::/48 ip6 ecn set ce", "add rule inet t f ip6 daddr 2001:db8:2::/48 ip6 ecn set not-ect", "add rule inet t f ip6 dscp 0x0a counter", "add rule inet t f ip daddr 10.1.0.0/16 ip ecn set ce"))...)}},
		hand{name: "rules tos route", why: "the route is looked up by the TOS that prerouting leaves, and a packet keeps its route when the TOS changes behind it", loads: true, slow: rules, reasons: []string{"fast"},
			steps: []handStep{
				step(all, append(to5(gw1, gw1v6), "ip route add 10.1.0.0/16 tos 0x10 via 10.0.2.10", restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]", "-A PREROUTING -p udp -j TOS --set-tos 0x10/0x3f", "-A FORWARD -p tcp -j TOS --set-tos 0x10/0x3f"))...),
				step(all, "ip route del 10.1.0.0/16 tos 0x10", "ip route add 10.1.0.0/16 via 10.0.2.10 table 100", "ip route add 2001:db8:1::/48 via fd00::3:0:0:0:10 table 100", "ip rule add pref 100 tos 0x10 lookup 100", "ip -6 rule add pref 100 tos 0x10 lookup 100",
					restore("ip6tables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]; :POSTROUTING ACCEPT [0:0]", "-A POSTROUTING -d ff00::/8 -m comment --comment "+unasked+" -j ACCEPT", "-A PREROUTING -p udp -j TOS --set-tos 0x10/0x3f", "-A FORWARD -p tcp -j TOS --set-tos 0x10/0x3f")),
				step(join(all, all), "ip rule del pref 100", "ip -6 rule del pref 100")}},
		hand{name: "rules tos priority", why: "forwarding sets skb->priority from the TOS that prerouting leaves", loads: true, slow: rules, hooks: []string{"tc"}, reasons: []string{"fast"},
			steps: []handStep{step(all, append(to5(gw1, gw1v6), "drop-priority 1 2", "drop-priority 2 6", restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]",
				"-A PREROUTING -p udp -j TOS --set-tos 0x08/0xff", "-A FORWARD -p tcp -j TOS --set-tos 0x08/0xff"))...)}},
		hand{name: "rules mark tc", why: "what comes behind sees the mark that rules have set", loads: true, slow: rules, hooks: []string{"tc"}, reasons: []string{"fast"},
			steps: []handStep{step(all, append(to5(gw1, gw1v6), "drop-mark 1 5", "drop-mark 2 6", restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]",
				"-A PREROUTING -p udp -j MARK --set-mark 5", "-A FORWARD -p tcp -j MARK --set-mark 6", "-A FORWARD -m mark --mark 5 -m multiport -p udp --dports 53 -j MARK --or-mark 2"))...)}},
	)
}

// marked are packets with a TOS or traffic class of their own, ECN included.
func marked() []Packet {
	return join(udp(0, h0, "10.1.2.3", lab.L3(1, 0x2b), lab.FixIPChecksum()), udp(0, h0, "10.1.2.3", lab.L3(1, 0xff), lab.FixIPChecksum()), udp(0, h0, "10.2.9.9", lab.L3(1, 0x10), lab.FixIPChecksum()),
		udp(0, h0v6, "2001:db8:1::9", lab.L3(0, 0x62, 0xb1)), udp(0, h0v6, "2001:db8:2::9", lab.L3(0, 0x6f, 0xf7)))
}

// noSum are packets whose checksum is 0 or 0xffff once they have that TOS and one hop less, and the same of those that arrive so.
func noSum(tos, protocol byte) (out []Packet) {
	f := flowOf(0, h0, "10.1.2.3")
	frame := f.UDP("payload")
	if protocol == 6 {
		frame = f.TCP("S", 1, "")
	}
	for _, want := range []byte{tos, frame[15]} {
		h := lab.Edited(frame, lab.L3(1, want), lab.TTL(frame[22]-1))[14:34]
		h[4], h[5], h[10], h[11] = 0, 0, 0, 0
		id := ^uint16(headerSum(h)) // which makes the sum 0xffff
		out = append(out, in(0, lab.Edited(frame, lab.L3(4, binary.BigEndian.AppendUint16(nil, id)...), lab.FixIPChecksum()))...)
	}
	return out
}
