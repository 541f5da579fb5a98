// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
	"strings"
)

// forgottenTraps are about connections that are taken out of the table in the midst of what they say, when what rules say of their packets, and what they become, is long remembered (remembered rules, verdicts.h).
func forgottenTraps() []hand {
	const byPort = "conntrack -D -p tcp --orig-port-src 1000"
	tables := func(tool, nobodies string) string {
		return forwardChain(tool, "DROP", append(nobody(nobodies, 100), "-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "-p tcp --syn -m conntrack --ctstate NEW -j ACCEPT", "-p udp -m conntrack --ctstate NEW -j ACCEPT", "-m conntrack --ctstate NEW", "-m conntrack --ctstate INVALID")...)
	}
	four, six := tables("iptables-legacy", "-s 172.20.%d.0/24 -j DROP"), tables("ip6tables-nft", "-s 2001:db8:f:%d::/64 -j DROP")
	told := func(name, why string, c talk, gone string, do ...string) hand {
		lost := c.says(true, "PA", 504, 166, "lost")
		if strings.Contains(name, "picked up") {
			lost = c.data(5, 166, 504) // what the server says would begin a connection of its own, for whose ports Linux would have to draw others
		}
		return hand{name: "conntrack forgotten " + name, why: why, slow: Excuse{IP4: true, IP6: true}, loads: true, reasons: []string{"fast", "conntrack-new"},
			steps: slices.Concat(c.begins(do...), []handStep{step(c.data(10, 141, 501)), step(c.says(true, "PA", 501, 151, "yes")), step(c.data(5, 151, 504)),
				atOnce(c.data(5, 156, 504), gone), step(c.data(5, 161, 504)), atOnce(lost, "conntrack -F"), step(c.data(5, 171, 504)), step(nil, "conntrack -F")},
				c.begins(), []handStep{step(c.data(10, 141, 501)), frozen(c.data(5, 151, 501), gone), step(c.says(true, "PA", 501, 156, "and again"))})}
	}
	answered := func(name string, c talk, do ...string) hand {
		steps := c.datagrams(do, []string{"a", "odd"})
		port, f := c.flow(false)
		back, b := c.flow(true)
		asks, says := in(port, f.UDP("asks")), in(back, b.UDP("says"))
		return hand{name: "conntrack forgotten " + name, why: "an answer to what nobody asked any more is a question of its own", slow: Excuse{IP4: true, IP6: true}, loads: true, reasons: []string{"fast", "conntrack-new"},
			steps: append(steps, step(asks), atOnce(says, "conntrack -F"), step(says), step(asks, "conntrack -F"), step(says), atOnce(says, "conntrack -D -p udp --orig-port-src 1000"), step(says))}
	}
	const strictly = "sysctl net.netfilter.nf_conntrack_tcp_loose=0"
	return []hand{
		told("by name", "whoever is taken out of the table is new with the next packet", talk4, byPort, trackTable, gatekeeper()),
		told("all at once", "and so is everybody behind a flush", talk6, "conntrack -F", trackTable, six),
		told("masqueraded", "no packet is translated as it was", masqueraded4, byPort, trackTable, four, strictly),
		told("masqueraded, ip6", "the same, by the other tools", masqueraded6, "conntrack -F", natTable("inet", "counter", "oifname p1 counter masquerade"), six, strictly),
		told("published", "what is behind another address", published4, byPort, publishes4, gatekeeper()),
		told("published, picked up", "where Linux takes up what is under way", published6, "conntrack -F -f ipv6", publishes6, nftFile(append([]string{"add table inet g", "add chain inet g f { type filter hook forward priority 0; }"}, append(prefixed("add rule inet g f ", nobody("ip6 saddr 2001:db8:f:%d::/64 counter drop", 100)), "add rule inet g f ct state established counter", "add rule inet g f ct state new counter ct mark set 5", "add rule inet g f ct mark 5 counter")...)...)),
		answered("udp", talk4, trackTable, gatekeeper()), answered("udp, masqueraded", masqueraded4, trackTable, gatekeeper()),
	}
}

// gatekeeper lets in what belongs to a connection or begins one, by rules enough that what they say of a connection's packets is remembered.
func gatekeeper() string {
	lines := []string{"add table inet g", "add chain inet g f { type filter hook forward priority 0; policy drop; }"}
	lines = append(lines, prefixed("add rule inet g f ", nobody("ip saddr 172.20.%d.0/24 counter drop", 100))...)
	return nftFile(append(lines, "add rule inet g f ct state established counter accept", "add rule inet g f ct state new tcp flags & (syn | ack) == syn counter accept", "add rule inet g f ct state new meta l4proto udp counter accept", "add rule inet g f counter")...)
}
