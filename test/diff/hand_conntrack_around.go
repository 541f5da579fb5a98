// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// ftpGate lets in what is established or related to a connection that the helper of FTP follows; each counts.
const ftpGate = `nft table ip ftp { ct helper f { type "ftp" protocol tcp; }; chain pre { type filter hook prerouting priority mangle; tcp dport 21 ct state new ct helper set "f"; }; ` +
	`chain f { type filter hook forward priority 0; policy drop; ct state established counter accept; ct state related counter accept; tcp dport 21 counter accept; }; }`

// opened is a connection of data that a server opens from its port 20 to a client's port 8080, as it knows it, up to ten packets that may be fast.
func opened(client, known string) (out []handStep) {
	say := func(server bool, tcp layers.TCP, payload string) []Packet {
		port, f := 1, flowOf(1, "10.1.2.3", known)
		tcp.SrcPort, tcp.DstPort, tcp.Window = 20, 8080, 60000
		if !server {
			port, f = 0, flowOf(0, client, "10.1.2.3")
			tcp.SrcPort, tcp.DstPort = 8080, 20
		}
		return []Packet{{Port: port, How: WireFrame, Frame: f.Carry(&tcp, gopacket.Payload(payload))}}
	}
	out = []handStep{step(say(true, layers.TCP{SYN: true, Seq: 700}, "")), step(say(false, layers.TCP{SYN: true, ACK: true, Seq: 900, Ack: 701}, ""))}
	seq := uint32(701)
	for range 3 {
		var data []Packet
		for range 10 {
			data = append(data, say(true, layers.TCP{ACK: true, PSH: true, Seq: seq, Ack: 901}, "file")...)
			seq += 4
		}
		out = append(out, step(data), step(say(false, layers.TCP{ACK: true, Seq: 901, Ack: seq}, "")), step(nil, "sleep 50ms"))
	}
	return out
}

// trackAroundTraps are about what can hang on connections and is Linux's, each where the connection has it and nowhere else.
func trackAroundTraps() []hand {
	both := Excuse{IP4: true, IP6: true}
	ftp, data := talk{client: h0, server: "10.1.2.3", port: 1000, dport: 21}, talk{client: h0, server: "10.1.2.3", port: 1001, dport: 8080}
	hidden := talk{client: "10.0.0.11", server: "10.1.2.3", port: 1000, dport: 21, seen: "10.0.1.1"}
	passive, active := "227 Entering Passive Mode (10,1,2,3,31,144)\r\n", "PORT 10,0,0,11,31,144\r\n"
	told := uint32(149 + len(active))
	return []hand{
		trackDropped(),
		{name: "conntrack zones", why: "connections move from zone to zone, by whatever rule; a zone that is the mark, and those of kernels whose lookup takes none, are Linux's", slow: both, loads: true, reasons: []string{"fast", "netfilter-rule"},
			steps: slices.Concat(talk4.begins(trackTable, "nft table inet z { chain p { type filter hook prerouting priority raw; iifname p2 ct zone set 5; }; }"), []handStep{step(talk4.data(5, 141, 501)),
				atOnce(talk4.data(5, 146, 501), "nft add rule inet z p iifname { p0, p1 } ct zone set 7")}, talk6.begins(), []handStep{step(talk6.data(5, 141, 501)),
				atOnce(talk4.data(5, 151, 501), "nft delete table inet z"), step(talk6.data(5, 146, 501), "iptables-legacy -t raw -A PREROUTING -i p0 -j CT --zone 7", "ip6tables-legacy -t raw -A PREROUTING -i p0 -j CT --zone 7"), step(talk4.data(5, 156, 501)),
				atOnce(talk4.data(5, 161, 501), "iptables-legacy -t raw -I PREROUTING -i p0 -j CT --zone mark")})},
		{name: "conntrack helper", why: "what a helper follows is Linux's; the connection that it expects is like any other once it is established", slow: both, loads: true, reasons: []string{"fast", "conntrack-extension"},
			steps: slices.Concat(ftp.begins(trackTable, ftpGate), []handStep{step(ftp.says(true, "PA", 501, 141, "220 hi\r\n")), step(ftp.says(true, "PA", 509, 141, passive)), step(ftp.says(false, "A", 141, 509+uint32(len(passive)), ""))},
				data.begins(), []handStep{step(data.data(10, 141, 501)), step(data.says(true, "PA", 501, 151, strings.Repeat("y", 1400)))})},
		{name: "conntrack helper nat", why: "a helper writes another address into what a client says, of another length: sequence numbers are moved from then on; the connection that it expects is translated", slow: both, loads: true,
			reasons: []string{"fast", "conntrack-extension"},
			steps: slices.Concat(hidden.begins(masquerades, ftpGate), []handStep{step(hidden.says(false, "PA", 141, 501, "USER a\r\n")), step(hidden.says(false, "PA", 149, 501, active)), step(hidden.says(true, "A", 501, told-1, "")),
				step(hidden.data(3, told, 501)), step(hidden.says(true, "A", 501, told+2, ""))}, opened("10.0.0.11", "10.0.1.1"))},
		{name: "conntrack policy", why: "connections with timeouts of their own are Linux's, others are not", slow: both, loads: true, reasons: []string{"fast", "conntrack-extension"},
			steps: slices.Concat(talk4.begins(trackTable, `nft table ip h { ct timeout f { protocol tcp; l3proto ip; policy = { established : 500000 }; }; chain p { type filter hook prerouting priority mangle; tcp dport 80 ct state new ct timeout set "f"; }; }`),
				[]handStep{step(talk4.data(10, 141, 501), "sleep 1100ms"), step(talk4.says(true, "A", 501, 151, ""))}, data.begins(), []handStep{step(data.data(10, 141, 501))})},
		{name: "conntrack labels", why: "labels and times of connections do not concern their packets; rules that ask for labels are Linux's", slow: both, loads: true, reasons: []string{"fast", "netfilter-rule"},
			steps: slices.Concat(talk4.begins(trackTable, "sysctl net.netfilter.nf_conntrack_timestamp=1", "nft table ip l { chain p { type filter hook prerouting priority mangle; ct state new ct label set 1; }; }"),
				[]handStep{step(talk4.data(10, 141, 501)), atOnce(talk4.data(10, 151, 501), "nft add rule ip l p tcp dport 80 ct label 1 counter"), step(talk4.data(3, 161, 501))})},
	}
}

// trackDropped is what rules behind connection tracking drop whatever its state: it has moved its connection all the same.
func trackDropped() hand {
	answer, first := talk{client: h0, server: "10.1.2.3", port: 2000, dport: 54}, talk{client: h0, server: "10.1.2.3", port: 2001, dport: 81}
	gate := "nft table inet f { chain f { type filter hook forward priority 0; udp sport 54 drop; tcp dport 81 counter drop; }; }"
	return hand{name: "conntrack dropped", why: "what forward drops for every state has begun, answered, refreshed or ended a connection before: only Linux may drop what does more than refresh one", slow: Excuse{IP4: true, IP6: true}, loads: true,
		reasons: []string{"fast", "rule-drop", "conntrack-flags", "conntrack-new"},
		steps: slices.Concat(talk4.begins(natTable("ip", "tcp dport 81 counter", "ip saddr 10.0.0.11 masquerade"), gate), []handStep{step(talk4.data(5, 141, 501)), step(first.says(false, "S", 100, 0, "")), step(first.says(false, "S", 100, 0, ""))},
			answer.datagrams(nil, []string{"asks"}), []handStep{step(talk4.data(5, 146, 501), "nft insert rule inet f f tcp dport 80 counter drop", "nft insert rule inet f f tcp sport 80 counter drop"),
				step(talk4.says(true, "PA", 501, 146, "lost")), step(talk4.says(false, "FA", 151, 501, "")), step(talk4.says(true, "FA", 501, 152, "")), step(talk4.data(2, 152, 502))})}
}
