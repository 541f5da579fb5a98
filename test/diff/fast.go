// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// Excuse is what a configuration lets shunt leave to Linux; the features that make the
// configuration fill it in.
type Excuse struct {
	IP4      bool           `json:"ip4,omitempty"`      // everything of the family
	IP6      bool           `json:"ip6,omitempty"`      //
	In       []int          `json:"in,omitempty"`       // ports by which packets enter
	Out      []int          `json:"out,omitempty"`      // ports by which they leave
	Prefixes []netip.Prefix `json:"prefixes,omitempty"` // destinations
	Ports    bool           `json:"ports,omitempty"`    // rules look at protocols or ports
	Rules    bool           `json:"rules,omitempty"`    // packet filters: what meets a rule that only Linux can evaluate (oracle.go)
	Tagged   bool           `json:"tagged,omitempty"`   // not an excuse: tagged packets belong to VLAN devices, so they can be fast too
	Bridge   bool           `json:"bridge,omitempty"`   // everything that comes by a bridge or leaves by one
	Shown    bool           `json:"shown,omitempty"`    // br_netfilter looks at what is bridged: what is not plain is Linux's
	Tunnel   bool           `json:"tunnel,omitempty"`   // not an excuse: VXLAN packets to and from the router are its tunnels', so what is in them can be fast at tc
	Bridged  []int          `json:"bridged,omitempty"`  // not an excuse: the ports that belong to the bridge br0, whose address is bridgeMAC
}

// mustFast is the model of which packets shunt has to forward itself: plain ones, by a
// predicate on the packet alone (plain), that Linux forwarded as they were but for the TOS (out and
// neighbour say where to), through a configuration without an excuse.
func (x *Excuse) mustFast(p Packet, out int) bool {
	h, ok := readIP(p.Frame)
	if !ok || !plain(p) || out == p.Port && !x.Tagged {
		return false
	}
	if x.IP4 && h.version == 4 || x.IP6 && h.version == 6 || slices.Contains(x.In, p.Port) || slices.Contains(x.Out, out) {
		return false
	}
	// Sources that may be the first or last address of a subnet are Linux's to judge.
	if last := h.src.AsSlice(); h.version == 4 && (last[3] == 0 || last[3] == 255) {
		return false
	}
	if x.Ports && len(p.Frame) < h.l4+4 {
		return false
	}
	if x.Ports && !slices.Contains([]byte{1, 6, 17, 58, 132}, h.proto) {
		return false
	}
	for _, prefix := range x.Prefixes {
		if prefix.Contains(h.dst) {
			return false
		}
	}
	return true
}

// plain says whether a packet by itself has nothing that is Linux's business, as
// docs/reasons.md draws the line.
func plain(p Packet) bool {
	f := p.Frame
	h, ok := readIP(f)
	if !ok || h.l3 != 14 || p.How == Offload || p.Merge || len(f) > lab.MaxWireFrame || string(f[:6]) != string(portMAC(p.Port)) {
		return false
	}
	if h.version == 6 {
		return plain6(f, h)
	}
	total := int(binary.BigEndian.Uint16(f[16:]))
	if f[14] != 0x45 || total < 20 || total > len(f)-14 || binary.BigEndian.Uint16(f[20:])&0x3fff != 0 || f[22] <= 1 {
		return false
	}
	if headerSum(f[14:34]) != 0xffff || martian(f[26]) || martian(f[30]) || h.proto == 2 {
		return false
	}
	switch t := h.icmpType(f); t {
	case 3, 4, 5, 11, 12:
		return false
	case -1:
		return h.proto != 1
	}
	return true
}

func plain6(f []byte, h ip) bool {
	length := int(binary.BigEndian.Uint16(f[18:]))
	if f[14]>>4 != 6 || length == 0 || length > len(f)-54 || f[21] <= 1 || special6(h.src) || special6(h.dst) {
		return false
	}
	if h.proto == 58 {
		t := h.icmpType(f)
		return t == 128 || t == 129
	}
	return !slices.Contains(extensionHeaders, h.proto)
}

// extensionHeaders of IPv6 are those that Linux looks behind, and the one that says that nothing comes.
var extensionHeaders = []byte{0, 43, 44, 51, 59, 60}

func martian(first byte) bool { return first == 0 || first == 127 || first >= 224 }

// special6 are the addresses that are not plain global unicast.
func special6(a netip.Addr) bool {
	b := a.As16()
	return b[0] >= 0xfe || binary.BigEndian.Uint64(b[:]) == 0
}

func headerSum(b []byte) uint32 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}

// forwarded is the IP packet that a router makes of a plain one: one hop less, padding gone.
func forwarded(p Packet) string {
	h, _ := readIP(p.Frame)
	f := lab.Edited(p.Frame, lab.TTL(p.Frame[14+8-h.version/6]-1))
	end := 14 + int(binary.BigEndian.Uint16(f[16:]))
	if h.version == 6 {
		end = 54 + int(binary.BigEndian.Uint16(f[18:]))
	}
	return string(f[14:end])
}

// packetOf is a frame from its IP header on, "" where it has none.
func packetOf(f []byte) string {
	if h, ok := readIP(f); ok {
		return string(f[h.l3:])
	}
	return ""
}

// untagged is a frame without its VLAN tags.
func untagged(f []byte) []byte {
	if tags := tagsOf(f); len(tags) > 0 {
		return slices.Concat(f[:12], f[12+len(tags):])
	}
	return f
}

// withoutDS is a packet without its TOS or traffic class, which rules may change, and without the IPv4 checksum.
func withoutDS(packet string) string {
	b := []byte(packet)
	if b[0]>>4 == 6 {
		b[0], b[1] = b[0]&0xf0, b[1]&0x0f
	} else {
		b[1], b[10], b[11] = 0, 0, 0
	}
	return string(b)
}

// withoutNAT is a TCP or UDP packet without what translation changes, of others all.
func withoutNAT(packet string) string {
	b := []byte(packet)
	addrs, l4, proto := 12, 20, b[9]
	if b[0]>>4 == 6 {
		addrs, l4, proto = 8, 40, b[6]
	}
	check := map[byte]int{6: 16, 17: 6}[proto]
	if check == 0 || len(b) < l4+check+2 {
		return packet
	}
	clear(b[addrs:l4])
	clear(b[l4 : l4+4])
	clear(b[l4+check : l4+check+2])
	return string(b)
}

// carried is what a tunnel's packet has in it, as the router would have it by the port itself.
func (x *Excuse) carried(p Packet, l learned) (_ Packet, within bool) {
	inner, _ := unwrap(p.Frame)
	if inner == nil || !x.Tunnel || !l.tunnels {
		return p, false
	}
	p.Frame = inner
	if string(inner[:6]) == string(vtepMAC) {
		p.Frame = slices.Concat(portMAC(p.Port), inner[6:])
	}
	return p, true
}

// expectation is what a step's packets had to do.
type expectation struct {
	packets []Packet        // that had to be fast
	frames  map[string]bool // what they became, without Ethernet header
}

// expect applies the model to the packets of a step and to what left the Linux twin.
// Neighbours that were not known at the start of the step excuse their packets, and so do rules where allowed says no, and what a bridge had not learned.
func (x *Excuse) expect(packets []Packet, linux *output, known map[string]bool, l learned, allowed func(p Packet, out int) bool) expectation {
	type exit struct {
		port int
		mac  string
		as   string // the packet
		in   bool   // a tunnel
	}
	exits := map[string][]exit{}
	for i := range Ports {
		for _, f := range linux[i] {
			inner, _ := unwrap(f)
			within := inner != nil && x.Tunnel && l.tunnels
			if within {
				f = inner
			}
			if key := packetOf(f); key != "" {
				exits[withoutDS(key)] = append(exits[withoutDS(key)], exit{i, string(f[:6]), key, within})
			}
		}
	}
	e := expectation{frames: map[string]bool{}}
	for _, p := range packets {
		if x.Tagged {
			p.Frame = untagged(p.Frame)
		}
		sent := p
		p, within := x.carried(p, l)
		p, ok := x.routed(p, l)
		if !plain(p) {
			continue
		}
		key := withoutDS(forwarded(p))
		out := exits[key]
		if len(out) == 0 {
			continue
		}
		exits[key] = out[1:]
		if within && out[0].in { // Linux's, where the machine keeps what the first tunnel's outer header said
			continue
		}
		if ok && known[out[0].mac] && x.mustFast(p, out[0].port) && x.leaves(p, out[0].port, out[0].mac, l) && (!x.Rules || allowed(p, out[0].port)) {
			e.packets = append(e.packets, sent)
			e.frames[out[0].as] = true
		}
	}
	return e
}
