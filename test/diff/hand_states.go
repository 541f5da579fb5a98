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
	// What saves the mark that the connection has is fast; what would give it another one is Linux's.
	saved := func(c talk, name, rules string) hand {
		h := conversation(c, name, rules)
		h.why, h.reasons = "a mark is saved with every packet, and changes with few", []string{"fast", "netfilter-rule"}
		flips := nftFile("add table inet flips", "add chain inet flips f { type filter hook forward priority 10; }", "add rule inet flips f tcp flags & psh == psh ct mark set 0x200", "add rule inet flips f tcp flags & psh == 0 ct mark set 0x201",
			"add rule inet flips f ct mark 0x200 counter", "add rule inet flips f ct mark 0x201 counter")
		h.steps = append(h.steps, step(c.data(5, 161, 504), flips), step(c.says(true, "A", 504, 166, "")), step(c.data(5, 166, 504)))
		return h
	}
	mwan := restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]", "-A PREROUTING -j CONNMARK --restore-mark", "-A PREROUTING -m mark --mark 0 -j MARK --set-mark 0x13", "-A PREROUTING -j CONNMARK --save-mark",
		"-A FORWARD -j CONNMARK --set-xmark 0x100/0xff00", "-A FORWARD -j CONNMARK --save-mark --nfmask 0x3 --ctmask 0x3", "-A FORWARD -m connmark --mark 0x113") // a packet moves few counters
	saves := nftFile("add table inet t", "add chain inet t p { type filter hook prerouting priority mangle; }", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t p meta mark set ct mark", "add rule inet t p meta mark 0 meta mark set 0x13",
		"add rule inet t p ct mark set meta mark", "add rule inet t f ct mark set ct mark & 0xffff00ff | 0x100", "add rule inet t f ct mark set meta mark & 0x000000ff | 0x00000100", "add rule inet t f ct state established ct mark set 0x113",
		"add rule inet t f ct mark 0x113 counter", "add rule inet t f meta mark 0x113 counter", "add rule inet t f ct mark 0 counter")
	dropped := append(to5(gw1, gw1v6), trackTable, restore("iptables-legacy", "raw", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -j DROP"), nftFile("add table inet t", "add chain inet t raw { type filter hook prerouting priority -300; policy drop; }", "add rule inet t raw meta nfproto ipv4 accept", "add rule inet t raw udp dport 53 counter accept"))
	return append(out,
		hand{name: "rules notrack inet", why: "the same by nf_tables, before and behind tracking", loads: true, slow: both, reasons: []string{"fast", "conntrack-new"}, steps: []handStep{step(web, append(to5(gw1, gw1v6), notrack)...), step(web)}},
		hand{name: "rules raw before tracking", why: "what raw rules drop does not wait for its connection, and counts once", loads: true, slow: both, reasons: []string{drop, "conntrack-new"}, steps: []handStep{step(web, dropped...)}},
		conversation(talk4, "connmark", restore("iptables-legacy", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]", "-A PREROUTING -m conntrack --ctstate NEW -j CONNMARK --set-mark 7", "-A PREROUTING -j CONNMARK --restore-mark",
			"-A FORWARD -m mark --mark 7 -m connmark --mark 7", "-A FORWARD -j CONNMARK --restore-mark --nfmask 0x2 --ctmask 0x2", "-A FORWARD -m mark --mark 7")),
		saved(talk4, "saved marks", mwan), saved(talk4, "marks saved by nf_tables", saves), saved(talk6, "marks of IPv6 saved by nf_tables", saves),
		conversation(talk4, "ip", fields(false)), conversation(talk6, "ip6", fields(true)),
		hand{name: "rules mac", why: "the sender's address as the frame has it", loads: true, slow: Excuse{Rules: true}, reasons: []string{"fast", drop}, steps: []handStep{step(web, append(to5(gw1, gw1v6),
			forwardChain("iptables-legacy", "ACCEPT", "-m mac --mac-source "+hostMAC(0, 0).String()+" -p tcp -j DROP", "-m mac ! --mac-source "+hostMAC(0, 0).String()+" -j DROP", "-m mac ! --mac-source 02:00:00:00:00:99"),
			nftFile("add table ip6 t", "add chain ip6 t f { type filter hook forward priority 0; }", "add rule ip6 t f ether saddr "+hostMAC(0, 0).String()+" meta l4proto udp counter drop", "add rule ip6 t f ether saddr != "+hostMAC(0, 0).String()+" counter drop",
				"add rule ip6 t f ether saddr { 02:00:00:00:00:99, "+hostMAC(0, 0).String()+" } counter"))...)}},
	)
}
