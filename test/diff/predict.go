// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"slices"
)

// predict says by which reason a packet leaves at XDP for what is in the packet itself, as docs/reasons.md describes the reasons and in the order
// of the pipeline; "" when that is for the lookups to say. It is written from the documents, not from the data path.
func predict(p Packet) string {
	f := p.Frame
	ethertype := binary.BigEndian.Uint16(f[12:])
	switch {
	case p.How == Offload:
		return "skb-offload"
	case string(f[:6]) != string(portMAC(p.Port)):
		return "dst-mac"
	case ethertype == 0x0800:
		return predict4(f[14:])
	case ethertype == 0x86dd:
		return predict6(f[14:])
	case ethertype == 0x8100, ethertype == 0x88a8:
		return "vlan-unknown"
	}
	return "ethertype"
}

func predict4(ip []byte) string {
	if len(ip) < 20 {
		return "too-short"
	}
	total := int(binary.BigEndian.Uint16(ip[2:]))
	switch {
	case ip[0]>>4 == 4 && ip[0]&15 > 5:
		return "ip4-options"
	case ip[0] != 0x45, total < 20, total > len(ip):
		return "ip4-header"
	case binary.BigEndian.Uint16(ip[6:])&0x3fff != 0:
		return "fragment"
	case martian(ip[12]):
		return "martian-source"
	case martian(ip[16]):
		return "martian-destination"
	case ip[8] <= 1:
		return "ttl"
	case headerSum(ip[:20]) != 0xffff:
		return "ip4-checksum"
	case ip[9] == 1 && len(ip) < 21:
		return "too-short"
	case ip[9] == 1 && slices.Contains([]byte{3, 4, 5, 11, 12}, ip[20]):
		return "icmp-error"
	case ip[9] == 2:
		return "protocol"
	}
	return ""
}

func predict6(ip []byte) string {
	if len(ip) < 40 {
		return "too-short"
	}
	h, _ := readIP(append(make([]byte, 12), append([]byte{0x86, 0xdd}, ip...)...))
	length := int(binary.BigEndian.Uint16(ip[4:]))
	switch {
	case ip[0]>>4 != 6, length == 0, length > len(ip)-40:
		return "ip6-header"
	case special6(h.src), special6(h.dst):
		return "ip6-address"
	case ip[7] <= 1:
		return "ttl"
	case slices.Contains(extensionHeaders, ip[6]):
		return "ip6-extension"
	case ip[6] != 58:
		return ""
	case len(ip) < 41:
		return "too-short"
	case ip[40] != 128 && ip[40] != 129:
		return "icmp6-control"
	}
	return ""
}

// comparePredicted checks that as many packets left by each reason as the model says, where nothing but the packets decides.
func (r *run) comparePredicted(n int, packets []Packet, seen coverage) {
	want := map[string]uint64{}
	for _, p := range packets {
		want[predict(p)]++
	}
	for _, reason := range []string{
		"too-short", "dst-mac", "ethertype", "vlan-unknown", "ip4-header", "ip4-options", "ip4-checksum", "fragment", "ttl", "martian-source", "martian-destination", "icmp-error", "protocol",
		"ip6-header", "ip6-extension", "ip6-address", "icmp6-control", "skb-offload",
	} {
		if got := seen.packets["xdp "+reason]; got != want[reason] {
			r.differ("step %d: %d packets were to leave by %q, %d did", n+1, want[reason], reason, got)
		}
	}
}
