// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// trackTable turns connection tracking on, as a gateway that masquerades some of its clients does.
const trackTable = "nft table inet gw { chain post { type nat hook postrouting priority srcnat; ip saddr 10.0.0.11 masquerade; }; }"

// invalidDrop drops what Linux calls invalid.
const invalidDrop = "nft table inet bad { chain f { type filter hook forward priority 0; ct state invalid drop; }; }"

// talk is a TCP connection between a host behind p0 and one behind p1, packet by packet.
type talk struct {
	client, server string
	port           uint16
	dport          uint16 // 0: 80
	// Where the router translates: what the server is really, and what it takes the client for; "" and 0: what they are.
	real, seen         string
	realPort, seenPort uint16
	hairpin            bool      // the server is behind p0, too
	tunnel             *tunnel   // by which the server is reached
	stations           []station // the ends are these, on a bridge
	behind             [2]int    // the ports of client and server, where they are not p0 and p1
}

var (
	talk4 = talk{client: h0, server: "10.1.2.3", port: 1000}
	talk6 = talk{client: h0v6, server: "2001:db8:1::9", port: 1000}
)

// flow is what one side sends, as it sees the other.
func (c talk) flow(server bool) (port int, f lab.Flow) {
	if c.stations != nil {
		defer func() {
			s := c.stations[map[bool]int{true: 1}[server]]
			port, f.SrcMAC, f.DstMAC = s.port, s.mac(), bridgeMAC
			if server && c.seen == "" {
				f.DstMAC = c.stations[0].mac()
			} else if !server && c.seen == "" && c.real == "" {
				f.DstMAC = c.stations[1].mac()
			}
		}()
	}
	if !server {
		f = flowOf(c.behind[0], c.client, c.server)
		f.SrcPort, f.DstPort = c.port, cmp.Or(c.dport, 80)
		return c.behind[0], f
	}
	if port = cmp.Or(c.behind[1], 1); c.hairpin {
		port = 0
	}
	f = flowOf(port, cmp.Or(c.real, c.server), cmp.Or(c.seen, c.client))
	f.SrcPort, f.DstPort = cmp.Or(c.realPort, c.dport, 80), cmp.Or(c.seenPort, c.port)
	return port, f
}

// says is one segment: from the client by p0, or from the server by p1.
func (c talk) says(server bool, flags string, seq, ack uint32, payload string, edits ...lab.Edit) []Packet {
	port, f := c.flow(server)
	frame := f.Carry(&layers.TCP{
		SrcPort: layers.TCPPort(f.SrcPort), DstPort: layers.TCPPort(f.DstPort), Seq: seq, Ack: ack, Window: 60000,
		SYN: strings.Contains(flags, "S"), ACK: strings.Contains(flags, "A"), FIN: strings.Contains(flags, "F"), RST: strings.Contains(flags, "R"), PSH: strings.Contains(flags, "P"),
	}, gopacket.Payload(payload))
	frame = lab.Edited(frame, edits...)
	if server && c.tunnel != nil {
		copy(frame, vtepMAC)
		port, frame = c.tunnel.port, c.tunnel.wrap(frame)
	}
	return []Packet{{Port: port, How: WireFrame, Frame: frame}}
}

// data are n segments of one byte from the client.
func (c talk) data(n int, seq, ack uint32, edits ...lab.Edit) (out []Packet) {
	for i := range n {
		out = append(out, c.says(false, "PA", seq+uint32(i), ack, "x", edits...)...)
	}
	return out
}

// begins is the handshake, and data until shunt has asked Linux not to look at the windows. Each side's packets are a step: two ports have
// no order between them.
func (c talk) begins(do ...string) []handStep {
	return []handStep{
		step(c.says(false, "S", 100, 0, ""), do...), step(c.says(true, "SA", 500, 101, "")), step(c.says(false, "A", 101, 501, "")),
		step(c.data(20, 101, 501)), step(c.says(true, "A", 501, 121, "")), step(c.data(20, 121, 501)), step(c.says(true, "A", 501, 141, "")), step(nil, "sleep 50ms"),
	}
}

// talkBytes is what a round of bulk carries, less than the window.
const talkBytes = 30 * 1400

// bulk is rounds of data from the client, each acknowledged: more altogether than the window.
func (c talk) bulk(seq uint32, rounds int) (out []handStep) {
	for range rounds {
		var data []Packet
		for range talkBytes / 1400 {
			data = append(data, c.says(false, "PA", seq, 501, strings.Repeat("x", 1400))...)
			seq += 1400
		}
		out = append(out, step(data), step(c.says(true, "A", 501, seq, "")))
	}
	return out
}

// trackTraps are about connections, where Linux tracks them.
func trackTraps() []hand {
	both := Excuse{IP4: true, IP6: true}
	conversation := func(c talk, name string) hand {
		return hand{name: "conntrack " + name, why: "a connection from its beginning to its end", slow: both, reasons: []string{"fast", "conntrack-flags", "conntrack-window", "conntrack-checksum", "conntrack-state"},
			steps: append(c.begins(trackTable), step(c.data(10, 141, 501)), step(c.says(true, "PA", 501, 151, strings.Repeat("y", 1400))),
				step(c.data(3, 151, 1901, lab.L4(16, 0x12, 0x34))), step(c.says(false, "PA", 151, 1901, "odd")), step(c.says(false, "PA", 154, 1901, strings.Repeat("z", 511))),
				step(c.says(false, "FA", 665, 1901, "")), step(c.says(true, "FA", 1901, 666, "")), step(c.data(5, 666, 1902)), step(c.says(true, "R", 1902, 0, "")), step(c.data(5, 671, 1902)))}
	}
	again := join(udp(0, h0, "10.1.2.3"), udp(0, h0, "10.1.2.3"), udp(0, h0v6, "2001:db8:1::9"), udp(0, h0v6, "2001:db8:1::9"))
	return slices.Concat(trackAroundTraps(), zoneTraps(), hairpinTraps(), forgottenTraps(), firstTraps(), []hand{
		conversation(talk4, "tcp"), conversation(talk6, "tcp ip6"),
		{name: "conntrack plain", why: "new connections, other protocols, and everything else that passes a router", slow: both, reasons: []string{"conntrack-new", "conntrack-protocol", "conntrack-state"},
			steps: []handStep{step(join(some(), services(), back()), append(to5(gw1, gw1v6), trackTable)...), step(join(some(), back(), again))}},
		{name: "conntrack acct", why: "Linux counts the packets of connections that began when it was told to", slow: both, reasons: []string{"conntrack-extension"},
			steps: append(talk4.begins(trackTable, "sysctl net.netfilter.nf_conntrack_acct=1"), step(talk4.data(10, 141, 501)))},
		{name: "conntrack checksum off", why: "told not to, Linux does not look at checksums", slow: both, reasons: []string{"fast"},
			steps: append(talk4.begins(trackTable, "sysctl net.netfilter.nf_conntrack_checksum=0"), step(talk4.data(10, 141, 501, lab.L4(16, 0x12, 0x34))))},
		{name: "conntrack liberal", why: "told not to, Linux does not look at windows", slow: both, reasons: []string{"fast"},
			steps: append(talk6.begins(trackTable, "sysctl net.netfilter.nf_conntrack_tcp_be_liberal=1"), step(talk6.data(10, 1000141, 90501)))},
		{name: "conntrack acknowledged", why: "what Linux saw go stays its business until it is acknowledged, or the connection has five minutes to live instead of five days", slow: both, reasons: []string{"fast"},
			steps: append(talk4.begins(trackTable), step(talk4.data(10, 141, 501)), step(talk4.data(1, 151, 501, lab.TTL(1))), step(talk4.says(true, "A", 501, 152, "")), step(talk4.says(false, "A", 152, 501, "", lab.TTL(1))))},
		{name: "conntrack liberal off", why: "windows are looked at again: what the fast path carried meanwhile must not make Linux call the rest invalid", slow: both, reasons: []string{"fast"},
			steps: slices.Concat(talk4.begins(trackTable, invalidDrop, "sysctl net.netfilter.nf_conntrack_tcp_be_liberal=1"), talk4.bulk(141, 3),
				[]handStep{step(talk4.data(3, 141+3*talkBytes, 501), "sysctl net.netfilter.nf_conntrack_tcp_be_liberal=0"), step(talk4.says(false, "FA", 144+3*talkBytes, 501, ""))})},
		{name: "conntrack crossing", why: "both sides end at the same time, and neither's FIN knows of the other's", slow: both, reasons: []string{"fast", "conntrack-flags"},
			steps: append(talk4.begins(trackTable), step(talk4.data(10, 141, 501)), step(join(talk4.says(true, "A", 501, 151, ""), talk4.says(true, "FA", 501, 151, ""))), step(talk4.says(false, "FA", 151, 501, "")),
				step(talk4.says(false, "A", 152, 502, "")), step(talk4.says(true, "A", 502, 152, "")), step(talk4.data(2, 152, 502)))},
		{name: "conntrack killed", why: "shunt dies, and with it whoever would mark, and comes back: connections go on, begin and end meanwhile as in Linux", slow: both, reasons: []string{"fast"},
			steps: slices.Concat(talk4.begins(trackTable, invalidDrop), talk4.bulk(141, 3), []handStep{killed(talk4.data(3, 141+3*talkBytes, 501)), step(talk4.data(10, 144+3*talkBytes, 501)),
				killed(join(talk4.data(3, 154+3*talkBytes, 501), talk6.says(false, "S", 100, 0, "")), "sleep 900ms"), step(talk6.says(true, "SA", 500, 101, "")), step(talk6.says(false, "A", 101, 501, "")),
				step(talk4.says(true, "A", 501, 157+3*talkBytes, "")), killed(talk4.says(false, "FA", 157+3*talkBytes, 501, "")), step(talk4.says(true, "FA", 501, 158+3*talkBytes, "")), step(talk4.says(false, "A", 158+3*talkBytes, 502, ""))})},
		{name: "conntrack strict", why: "told to be strict, shunt leaves TCP to Linux, which drops what is outside of the window", slow: both, strict: true, reasons: []string{"conntrack-window"},
			steps: append(talk4.begins(trackTable, invalidDrop), step(talk4.data(3, 141, 501)), step(join(talk4.data(2, 1000141, 501), talk4.data(2, 144, 1000501), talk4.data(2, 4294000000, 501), talk4.data(2, 144, 501))))},
		{name: "conntrack flush", why: "without a table nothing is tracked, though entries live on; with one again they count", slow: both, reasons: []string{"fast"},
			steps: append(talk4.begins(trackTable), step(talk4.data(10, 141, 501)), atOnce(talk4.data(10, 151, 501), "nft flush ruleset"), step(join(talk4.data(10, 161, 501), some())),
				atOnce(talk4.data(10, 171, 501), trackTable), step(talk4.data(10, 181, 501)))},
	})
}
