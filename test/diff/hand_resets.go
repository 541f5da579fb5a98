// SPDX-License-Identifier: Apache-2.0

package diff

import "slices"

// resets are about TCP connections that are reset after fast packets, and called again from the same port within the ten seconds that Linux keeps the entry for.
func resets() []hand {
	again := func(name string, begins []handStep, c talk, more ...handStep) hand {
		return hand{name: "conntrack reset " + name, why: "after an RST Linux takes a call from the same port for a new connection", slow: Excuse{IP4: true, IP6: true}, loads: true, reasons: []string{"fast", "conntrack-flags"}, steps: slices.Concat(begins,
			[]handStep{step(c.data(20, 141, 501)), step(c.says(true, "A", 501, 161, "")), step(c.data(20, 161, 501)), step(c.says(true, "A", 501, 181, ""))}, more)}
	}
	// The answer and what follows, on the connection that there is then, or none.
	calls := func(c talk, server bool, do ...string) []handStep {
		return []handStep{step(c.says(server, "S", 900000, 0, ""), do...), step(c.says(!server, "SA", 700000, 900001, "")), step(c.says(server, "A", 900001, 700001, "")), step(c.says(server, "PA", 900001, 700001, "more"))}
	}
	reset := func(c talk, server bool) handStep {
		if server {
			return step(c.says(true, "RA", 501, 181, ""))
		}
		return step(c.says(false, "RA", 181, 501, ""))
	}
	accepts := func(rule string) []string {
		return []string{trackTable, "nft table inet n { chain f { type filter hook forward priority 0; ct state established accept; " + rule + " }; }"}
	}
	drops := "nft add rule inet n f ct state new counter drop"
	half := func(c talk) []handStep { // a client that has forgotten finds out
		return []handStep{step(c.says(false, "S", 5000, 0, "")), step(c.says(true, "A", 501, 181, "")), step(c.says(false, "R", 181, 0, "")), step(c.says(false, "S", 5000, 0, "")), step(c.says(true, "SA", 9000, 5001, "")), step(c.says(false, "A", 5001, 9001, ""))}
	}
	return []hand{
		again("and rules for new ones", talk4.begins(accepts("")...), talk4, slices.Concat([]handStep{reset(talk4, false)}, calls(talk4, false, drops))...),
		again("of IPv6", talk6.begins(accepts("ct state new counter;")...), talk6, slices.Concat([]handStep{reset(talk6, false)}, calls(talk6, false))...),
		again("by the server", talk4.begins(accepts("ct state new counter;")...), talk4, slices.Concat([]handStep{reset(talk4, true)}, calls(talk4, false))...),
		again("and called back", talk4.begins(accepts("ct state new counter;")...), talk4, slices.Concat([]handStep{reset(talk4, true)}, calls(talk4, true))...),
		again("and translated", masqueraded4.begins(natTable("ip", "counter", "oifname p1 counter masquerade")), masqueraded4, slices.Concat([]handStep{reset(masqueraded4, false)}, calls(masqueraded4, false, "nft add rule ip gw pre tcp dport 80 counter drop"))...),
		again("of half a connection", masqueraded4.begins(masquerades), masqueraded4, half(masqueraded4)...),
	}
}
