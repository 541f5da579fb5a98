// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// packetGen makes packets near a configuration. Each carries a number in its payload and, at IPv4, in its
// identification, so that a person can tell them apart.
type packetGen struct {
	rng    *rand.Rand
	c      *Config
	hook   string
	serial int
}

// packets makes n packets: most plain ones that have a way out, a third of these with
// something changed, and some that are not IP at all.
func (g *packetGen) packets(n int) []Packet {
	var out []Packet
	for len(out) < n {
		p := Packet{Port: g.c.port(g.rng), How: WireFrame}
		v6 := chance(g.rng, 35)
		switch k := g.rng.IntN(100); {
		case k < 4:
			p.Frame = g.foreign(p.Port)
		case k < 7:
			p.Frame = g.neighbourly(p.Port)
		case k < 9:
			for _, p := range g.burst(p.Port, v6) {
				p.Frame = g.tag(p.Port, p.Frame)
				out = append(out, g.within(p)...)
			}
			continue
		case k < 11:
			p = g.offload(p.Port, v6)
			p.Frame = g.between(p.Port, p.Frame)
			out = append(out, p)
			continue
		default:
			p.Frame = g.near(p.Port, v6)
		}
		p.Frame = g.between(p.Port, g.tag(p.Port, p.Frame))
		if chance(g.rng, 20) || len(p.Frame) > lab.MaxWireFrame {
			p.How = SKB
		}
		out = append(out, g.within(p)...)
	}
	return out
}

// tag gives most frames for a port the VLAN tags that its device expects.
func (g *packetGen) tag(port int, frame []byte) []byte {
	if len(g.c.Tags[port]) == 0 || chance(g.c.Stacking, 10) {
		return frame
	}
	return slices.Insert(slices.Clone(frame), 12, g.c.Tags[port]...)
}

// flow chooses addresses, ports and header fields.
func (g *packetGen) flow(port int, v6 bool) lab.Flow {
	g.serial++
	f := lab.Flow{
		SrcMAC: hostMAC(port, g.rng.IntN(2)), DstMAC: g.c.routerMAC(port),
		Src: g.source(port, v6), Dst: g.destination(port, v6),
		SrcPort: pick(g.rng, []uint16{1000, 1000, 53, uint16(g.rng.IntN(65536))}),
		DstPort: pick(g.rng, []uint16{2000, 2000, 53, 80, uint16(g.rng.IntN(65536))}),
		ID:      uint16(g.serial),
	}
	if chance(g.rng, 10) {
		f.TTL = pick(g.rng, []uint8{1, 1, 2, 2, 255})
	}
	if chance(g.rng, 10) {
		f.TOS = pick(g.rng, []uint8{0x04, 0x08, 0x10, 0x1c, 0xb8, 0x03, uint8(g.rng.IntN(256))})
	}
	return f
}

// payload is the packet's number, and padding up to a length that a size is chosen for.
func (g *packetGen) payload(headers int) string {
	s := fmt.Sprintf("%06x", g.serial)
	if !chance(g.rng, 15) {
		return s[:pickWeighted(g.rng, len(s))]
	}
	want := pick(g.rng, g.c.MTU[:g.c.N]) + g.rng.IntN(3) - 1
	if chance(g.rng, 50) {
		want = pick(g.rng, []int{100, 548, 576, 600, 601, 1000, 1280, 1281, 1300, 1400, 1499, 1500, 1501, 3000})
	}
	if want > lab.MaxWireFrame-40 && !chance(g.rng, 10) {
		want = 1500
	}
	for len(s) < want-headers {
		s += string(rune('a' + len(s)%26))
	}
	return s
}

// pickWeighted mostly gives n, sometimes less.
func pickWeighted(rng *rand.Rand, n int) int {
	if chance(rng, 95) {
		return n
	}
	return rng.IntN(n + 1)
}

// near makes a packet that is likely to be forwarded, and changes something about every third.
func (g *packetGen) near(port int, v6 bool) []byte {
	f := g.flow(port, v6)
	frame := g.carry(f, v6)
	for n := 30; chance(g.rng, n); n /= 3 {
		frame = g.mutate(frame, port, v6)
	}
	return frame
}

// carry puts a transport into a flow's packet.
func (g *packetGen) carry(f lab.Flow, v6 bool) []byte {
	ip := 20
	if v6 {
		ip = 40
	}
	switch n := g.rng.IntN(100); {
	case n < 50:
		return f.UDP(g.payload(ip + 8))
	case n < 72:
		return f.TCP(pick(g.rng, []string{"S", "A", "PA", "FA", "R", "SA"}), uint32(g.serial), g.payload(ip+20))
	case n < 82:
		return f.Echo(uint16(g.serial), 1, g.payload(ip+8))
	case n < 87:
		return g.icmp(f, v6)
	default:
		proto := pick(g.rng, []byte{2, 4, 33, 41, 47, 50, 51, 59, 89, 103, 112, 115, 132, 136, 253, byte(g.rng.IntN(256))})
		at := 9
		if v6 {
			at = 6
		}
		return lab.Edited(f.UDP(g.payload(ip+8)), lab.L3(at, proto), lab.FixIPChecksum())
	}
}

// icmp is a message of any type, with a plausible packet inside where errors carry one.
func (g *packetGen) icmp(f lab.Flow, v6 bool) []byte {
	inner := lab.Flow{SrcMAC: f.DstMAC, DstMAC: f.SrcMAC, Src: f.Dst, Dst: f.Src, SrcPort: 7, DstPort: 8}
	if chance(g.rng, 30) {
		inner.Src, inner.Dst = g.destination(0, v6), g.source(0, v6)
	}
	quoted := gopacket.Payload(inner.UDP("quoted")[14:])
	code := uint8(g.rng.IntN(8))
	if v6 {
		t := pick(g.rng, []uint8{1, 2, 3, 4, 100, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 141, 143, 144, 151, 200, uint8(g.rng.IntN(256))})
		return f.Carry(&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(t, code)}, gopacket.Payload([]byte{0, 0, 5, 0}), quoted)
	}
	t := pick(g.rng, []uint8{0, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 17, 30, 42, uint8(g.rng.IntN(256))})
	return f.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(t, code), Seq: pick(g.rng, []uint16{0, 552, 1300})}, quoted)
}

// source chooses where a packet claims to come from.
func (g *packetGen) source(port int, v6 bool) netip.Addr {
	switch n := g.rng.IntN(100); {
	case n < 72:
		if a, ok := g.hostAt(port, v6); ok {
			return a
		}
	case n < 77:
		if h := g.c.host(g.rng, v6); h != nil {
			return h.Addr
		}
	case n < 82:
		if a, ok := g.target(v6); ok {
			return a
		}
	case n < 84:
		if a, ok := g.own(v6); ok {
			return a
		}
	case n < 89:
		return g.special(v6)
	case n < 91:
		return g.anywhere(v6)
	case n < 98: // what a router says to a host that never answers ARP stays in memory that all routers of a machine share
		if a, ok := g.hostAt(port, v6); ok {
			return a
		}
	}
	if v6 {
		return addr6(port, 0, byte(0x40+g.rng.IntN(100)))
	}
	return netip.AddrFrom4([4]byte{10, 0, byte(port), byte(40 + g.rng.IntN(200))})
}

// destination chooses where a packet goes.
func (g *packetGen) destination(port int, v6 bool) netip.Addr {
	switch n := g.rng.IntN(100); {
	case n < 45:
		for range 4 { // most of them elsewhere
			if h := g.c.host(g.rng, v6); h != nil && (h.Port != port || chance(g.rng, 10)) {
				return h.Addr
			}
		}
	case n < 85:
		if a, ok := g.target(v6); ok {
			return a
		}
	case n < 88:
		if a, ok := g.own(v6); ok {
			return a
		}
	case n < 91:
		return g.special(v6)
	case n < 94:
		if h := g.c.host(g.rng, v6); h != nil {
			return flip(g.rng, h.Addr)
		}
	}
	return g.anywhere(v6)
}

func (g *packetGen) hostAt(port int, v6 bool) (netip.Addr, bool) {
	var fit []netip.Addr
	for _, h := range g.c.Hosts {
		if h.Port == port && h.Addr.Is6() == v6 && h.Kind != "silent" {
			fit = append(fit, h.Addr)
		}
	}
	if len(fit) == 0 {
		return netip.Addr{}, false
	}
	return pick(g.rng, fit), true
}

// target is an address in a configured prefix: inside, first, last, or just outside.
func (g *packetGen) target(v6 bool) (netip.Addr, bool) {
	var fit []netip.Prefix
	for _, p := range g.c.Targets {
		if p.Addr().Is6() == v6 {
			fit = append(fit, p)
		}
	}
	if len(fit) == 0 {
		return netip.Addr{}, false
	}
	p := pick(g.rng, fit)
	first, last := p.Masked().Addr(), lastOf(p)
	var a netip.Addr
	switch g.rng.IntN(10) {
	case 0:
		a = first
	case 1:
		a = last
	case 2:
		a = first.Prev()
	case 3:
		a = last.Next()
	default:
		a = inside(g.rng, p)
	}
	return a, a.IsValid()
}

func (g *packetGen) own(v6 bool) (netip.Addr, bool) {
	var fit []netip.Addr
	for _, o := range g.c.Own {
		if o.Prefix.Addr().Is6() == v6 {
			fit = append(fit, o.Prefix.Addr(), o.Prefix.Addr(), lastOf(o.Prefix), o.Prefix.Masked().Addr())
		}
	}
	if len(fit) == 0 {
		return netip.Addr{}, false
	}
	return pick(g.rng, fit), true
}

// special are addresses with a meaning of their own.
func (g *packetGen) special(v6 bool) netip.Addr {
	list := []string{
		"0.0.0.0", "0.0.0.1", "0.255.255.255", "127.0.0.1", "127.255.255.255", "126.255.255.255", "128.0.0.0", "169.254.1.1",
		"224.0.0.1", "224.0.0.5", "232.1.2.3", "239.255.255.255", "240.0.0.1", "255.255.255.255", "255.255.255.254", "223.255.255.255",
		"1.0.0.0", "192.0.2.1", "100.64.0.1",
	}
	if v6 {
		list = []string{
			"::", "::1", "::ffff:10.0.0.10", "::10.0.0.10", "fe80::1", "fec0::1", "ff02::1", "ff02::2", "ff05::1", "ff0e::1", "ff01::1",
			"fd00:0:0:1::", "2001:db8::", "64:ff9b::1", "2002:a00:1::1", "fdff:ffff::1", "fe7f::1", "febf::1", "0:0:0:1::1", "100::1",
		}
	}
	return netip.MustParseAddr(pick(g.rng, list))
}

func (g *packetGen) anywhere(v6 bool) netip.Addr {
	if v6 {
		b := [16]byte{0x20, 1, 0x0d, 0xb8}
		for i := 4; i < 16; i++ {
			b[i] = byte(g.rng.IntN(256))
		}
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte{byte(g.rng.IntN(256)), byte(g.rng.IntN(256)), byte(g.rng.IntN(256)), byte(g.rng.IntN(256))})
}

// flip changes one bit.
func flip(rng *rand.Rand, a netip.Addr) netip.Addr {
	b := a.AsSlice()
	bit := rng.IntN(len(b) * 8)
	b[bit/8] ^= 1 << (bit % 8)
	out, _ := netip.AddrFromSlice(b)
	return out
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

func inside(rng *rand.Rand, p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		if rng.IntN(2) == 1 {
			b[i/8] |= 0x80 >> (i % 8)
		}
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

// burst is a run of packets of one flow, whose order matters.
func (g *packetGen) burst(port int, v6 bool) []Packet {
	f := g.flow(port, v6)
	f.TTL = 64
	var out []Packet
	if chance(g.rng, 40) && !g.c.filtered() { // rules count what GRO has merged as one
		return segments(port, f, pick(g.rng, []int{536, 1000, 1200, 1400}), 2+g.rng.IntN(6))
	}
	for range 2 + g.rng.IntN(6) {
		g.serial++
		f.ID = uint16(g.serial)
		out = append(out, Packet{Port: port, How: WireFrame, Frame: f.UDP(fmt.Sprintf("%06x", g.serial))})
	}
	return out
}

// segments are neighbouring parts of one TCP stream, which GRO merges and forwarding cuts again.
func segments(port int, f lab.Flow, size, n int) []Packet {
	var out []Packet
	for i := range n {
		f.ID++
		body := make([]byte, size)
		for j := range body {
			body[j] = byte('a' + (i+j)%26)
		}
		out = append(out, Packet{Port: port, How: WireFrame, Frame: f.TCP("A", uint32(1000+i*size), string(body)), Merge: true})
	}
	return out
}

// offload is a packet as a local sender's stack hands it to its device.
func (g *packetGen) offload(port int, v6 bool) Packet {
	f := g.flow(port, v6)
	p := Packet{Port: port, How: Offload}
	// With a program at XDP a veth's sender cuts segments itself, and the link's MTU then applies to each of them.
	if g.hook != "tc" && g.c.filtered() || g.hook == "xdp" || chance(g.rng, 50) { // rules count a packet to be cut as one
		p.Frame = f.UDP(g.payload(48))
		return partial(p)
	}
	size := pick(g.rng, []int{536, 1000, 1200, 1400, 1440})
	body := make([]byte, size*(1+g.rng.IntN(3))+g.rng.IntN(100))
	for i := range body {
		body[i] = byte('A' + i%26)
	}
	p.Frame = f.TCP("A", uint32(g.serial)<<16, string(body))
	p.GSO = uint16(size)
	return partial(p)
}

// partial writes the pseudo header's sum where the checksum goes, as CHECKSUM_PARTIAL means.
func partial(p Packet) Packet {
	h, _ := readIP(p.Frame)
	at := h.l4 + 6
	if h.proto == 6 {
		at = h.l4 + 16
	}
	pseudo := append(h.src.AsSlice(), h.dst.AsSlice()...)
	n := len(p.Frame) - h.l4
	pseudo = append(pseudo, 0, h.proto, byte(n>>8), byte(n))
	sum := headerSum(pseudo)
	p.Frame[at], p.Frame[at+1] = byte(sum>>8), byte(sum)
	return p
}

// mac is an Ethernet address that is not the port's own.
func (g *packetGen) mac(port int) net.HardwareAddr {
	return pick(g.rng, []net.HardwareAddr{
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x01, 0, 0x5e, 0, 0, 1}, {0x33, 0x33, 0, 0, 0, 1}, {0x01, 0x80, 0xc2, 0, 0, 0},
		portMAC((port + 1) % Ports), {0x02, 0, 0, 0, byte(port + 1), 0x02}, {0x03, 0, 0, 0, byte(port + 1), 0x01}, {0, 0, 0, 0, 0, 0},
		{0x02, 1, 0, 0, byte(port + 1), 0x01}, hostMAC(port, 0),
	})
}
