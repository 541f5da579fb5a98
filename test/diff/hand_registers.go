// SPDX-License-Identifier: Apache-2.0

package diff

// registerRules are about what nf_tables makes of registers: masks that leave nothing of a value, and values that a packet does not have.
func registerRules() []hand {
	both := Excuse{IP4: true, IP6: true} // what is tracked is new here, and Linux's
	said := join(some(), services())
	chain := func(family string, rules ...string) string {
		lines := []string{"add table " + family + " t", "add chain " + family + " t p { type filter hook prerouting priority -300; }", "add chain " + family + " t f { type filter hook forward priority 0; }"}
		for _, rule := range rules {
			lines = append(lines, "add rule "+family+" t "+rule)
		}
		return nftFile(lines...)
	}
	of := func(name, why string, slow Excuse, do ...string) hand {
		return hand{name: "rules registers " + name, why: why, loads: true, slow: slow, reasons: []string{"fast", drop}, steps: []handStep{step(said, append(to5(gw1, gw1v6), do...)...)}}
	}
	return []hand{
		of("masked away", "of a value with a mask that leaves nothing zero is left, whatever it was", Excuse{Rules: true},
			restore("iptables-nft", "mangle", ":PREROUTING ACCEPT [0:0]; :FORWARD ACCEPT [0:0]", "-A PREROUTING -p udp -j MARK --set-mark 5", "-A FORWARD -p udp -m mark ! --mark 0/0 -j DROP", "-A FORWARD -p udp -m mark --mark 0/0", "-A FORWARD -p udp -m udp --dport 53 -m mark --mark 0/0 -j DROP"),
			chain("inet", "f meta l4proto tcp meta length and 0xff0000 == 0x10000 counter drop", "f tcp dport 80 meta length and 0xff0000 == 0x0 counter drop", "f tcp dport 443 meta mark and 0x0 != 0x0 counter drop", "f meta mark and 0x0 < 0x1 counter", "f counter")),
		of("not there", "who asks a set by what a packet does not have ends the rule, also where the packet is to be in none of its elements", both,
			chain("ip", "p notrack", "f ct mark . ip daddr != { 1 . 10.9.9.9, 2 . 10.9.9.8 } counter drop", "f ct direction . ip daddr != { original . 10.9.9.9, reply . 10.9.9.8 } counter drop", "f tcp flags . tcp dport != { syn . 53, ack . 80 } counter", "f tcp dport 80 counter drop", "f counter"),
			nftFile("add table ip u", "add chain ip u p { type filter hook prerouting priority 0; }", "add rule ip u p oifgroup . ip daddr != { 1 . 10.9.9.9, 2 . 10.9.9.8 } counter drop", "add rule ip u p iifgroup . ip daddr != { 1 . 10.9.9.9, 2 . 10.9.9.8 } counter")),
		{name: "rules registers replaced", why: "a rule that replaces another has its handle, and a counter that begins at zero", loads: true, slow: Excuse{Rules: true}, reasons: []string{"fast", drop}, steps: []handStep{
			step(said, append(to5(gw1, gw1v6), nftFile("add table inet t", "add chain inet t f { type filter hook forward priority 0; }", "add rule inet t f tcp dport 80 counter drop", "add rule inet t f udp dport 53 counter drop", "add rule inet t f counter"))...),
			step(said, "nft replace rule inet t f handle 2 tcp dport 53 counter drop"), atOnce(said, "nft replace rule inet t f handle 4 ip ttl 64 counter")}},
	}
}
