// SPDX-License-Identifier: Apache-2.0

package diff

// stateRules are about rules that ask for a packet's connection, or keep it out of connection tracking.
func stateRules() []hand {
	both := Excuse{IP4: true, IP6: true} // what is tracked is new here, and Linux's
	web := join(some(), services())
	var out []hand
	for _, kind := range []string{"legacy", "nft"} {
		var do []string
		for _, tool := range []string{"iptables-" + kind, "ip6tables-" + kind} {
			do = append(do, restore(tool, "raw", ":PREROUTING ACCEPT [0:0]; :out - [0:0]", "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP", "-A PREROUTING -p udp -j out", "-A PREROUTING -p udp -m conntrack --ctstate UNTRACKED", "-A PREROUTING -m conntrack --ctstate INVALID",
				"-A out -p udp -m udp --dport 53 -j RETURN", "-A out -j CT --notrack"),
				forwardChain(tool, "ACCEPT", "-m conntrack --ctstate UNTRACKED", "-m conntrack --ctstate INVALID -j DROP", "-m conntrack --ctstate ESTABLISHED", "-m conntrack --ctstate NEW -p udp -m udp --dport 53", "-m conntrack --ctdir ORIGINAL"))
		}
		out = append(out, hand{name: "rules notrack " + kind, why: "what the raw table keeps out of tracking, or drops, meets no tracking; the rest does", loads: true, slow: both, reasons: []string{"fast", drop, "conntrack-new"},
			steps: []handStep{step(web, append(to5(gw1, gw1v6), do...)...), step(web), atOnce(web, "iptables-"+kind+" -t raw -F", "ip6tables-"+kind+" -t raw -F")}})
	}
	notrack := nftFile("add table inet t", "add chain inet t raw { type filter hook prerouting priority raw; }", "add chain inet t early { type filter hook prerouting priority mangle; }", "add chain inet t f { type filter hook forward priority 0; policy drop; }",
		"add rule inet t raw udp dport != 53 notrack", "add rule inet t raw meta l4proto { icmp, ipv6-icmp } notrack accept", "add rule inet t raw ct state untracked counter", "add rule inet t raw ct state invalid counter",
		"add rule inet t early notrack", "add rule inet t early ct state untracked counter", "add rule inet t f ct state untracked,established counter accept", "add rule inet t f ct state new counter accept")
	fields := func(v6 bool) string {
		ip := family("ip", "ip6")(v6)
		return nftFile("add table "+ip+" t", "add chain "+ip+" t f { type filter hook forward priority 0; policy drop; }", "add rule "+ip+" t f ct status assured counter", "add rule "+ip+" t f ct status dnat counter", "add rule "+ip+" t f ct direction reply counter",
			"add rule "+ip+" t f ct direction original counter", "add rule "+ip+" t f ct mark 0 counter", "add rule "+ip+" t f ct mark & 0xff00 == 0x100 counter", "add rule "+ip+" t f ct state established,related counter accept", "add rule "+ip+" t f counter accept")
	}
	conversation := func(c talk, name, rules string) hand {
		return hand{name: "rules of connections " + name, why: "status, direction and mark of a connection are asked for", loads: true, slow: both, reasons: []string{"fast"},
			steps: append(c.begins(trackTable, rules), step(c.data(10, 141, 501)), step(c.says(true, "PA", 501, 151, "yes")), step(c.data(10, 151, 504)))}
	}
	dropped := append(to5(gw1, gw1v6), trackTable, restore("iptables-legacy", "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -j DROP"), nftFile("add table inet t", "add chain inet t raw { type filter hook prerouting priority -300; policy drop; }", "add rule inet t raw meta nfproto ipv4 accept", "add rule inet t raw udp dport 53 counter accept"))
	return append(out,
		hand{name: "rules notrack inet", why: "the same by nf_tables, before and behind tracking", loads: true, slow: both, reasons: []string{"fast", "conntrack-new"}, steps: []handStep{step(web, append(to5(gw1, gw1v6), notrack)...), step(web)}},
		hand{name: "rules raw before tracking", why: "what raw rules drop does not wait for its connection, and counts once", loads: true, slow: both, reasons: []string{drop, "conntrack-new"}, steps: []handStep{step(web, dropped...)}},
		conversation(talk4, "connmark", restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]", "-A PREROUTING -m conntrack --ctstate NEW -j CONNMARK --set-mark 7", "-A PREROUTING -j CONNMARK --restore-mark",
			"-A FORWARD -m mark --mark 7 -m connmark --mark 7", "-A FORWARD -j CONNMARK --restore-mark --nfmask 0x2 --ctmask 0x2", "-A FORWARD -m mark --mark 7")),
		conversation(talk4, "ip", fields(false)), conversation(talk6, "ip6", fields(true)),
		hand{name: "rules mac", why: "the sender's address as the frame has it", loads: true, slow: Excuse{Rules: true}, reasons: []string{"fast", drop}, steps: []handStep{step(web, append(to5(gw1, gw1v6),
			forwardChain("iptables-legacy", "ACCEPT", "-m mac --mac-source "+hostMAC(0, 0).String()+" -p tcp -j DROP", "-m mac ! --mac-source "+hostMAC(0, 0).String()+" -j DROP", "-m mac ! --mac-source 02:00:00:00:00:99"),
			nftFile("add table ip6 t", "add chain ip6 t f { type filter hook forward priority 0; }", "add rule ip6 t f ether saddr "+hostMAC(0, 0).String()+" meta l4proto udp counter drop", "add rule ip6 t f ether saddr != "+hostMAC(0, 0).String()+" counter drop",
				"add rule ip6 t f ether saddr { 02:00:00:00:00:99, "+hostMAC(0, 0).String()+" } counter"))...)}},
	)
}
