// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// mutation changes a frame; frames that it does not apply to come back as they are.
type mutation func(g *packetGen, f []byte, port int) []byte

// anyMutations work on bytes alone, the others need a whole IP header of their version.
var (
	anyMutations = []mutation{
		mutateMAC, mutateMAC, mutateVLAN, mutateVLAN, mutateTruncate, mutatePad, mutatePad, mutateAppend, mutateBit, mutateBit, mutateEtherType, mutateL4Checksum,
		mutateUDPZero,
	}
	mutations4 = []mutation{
		mutateTTL, mutateTTL, mutateTTL, mutateTOS, mutateOptions, mutateOptions, mutateFragment, mutateFragment, mutateChecksum, mutateChecksum,
		mutateLength, mutateLength, mutateIHL, mutateVersion, mutateChecksumFFFF,
	}
	mutations6 = []mutation{
		mutateTTL, mutateTTL, mutateFlowLabel, mutateExtension, mutateExtension, mutateExtension, mutateLength, mutateLength, mutateVersion,
	}
)

func (g *packetGen) mutate(f []byte, port int, v6 bool) []byte {
	list := anyMutations
	if h, ok := readIP(f); ok && chance(g.rng, 65) && (h.version == 6) == v6 && h.l3 < len(f) {
		list = mutations4
		if v6 {
			list = mutations6
		}
	}
	return pick(g.rng, list)(g, slices.Clone(f), port)
}

func mutateMAC(g *packetGen, f []byte, port int) []byte {
	copy(f, g.mac(port))
	return f
}

func mutateVLAN(g *packetGen, f []byte, _ int) []byte {
	tag := func(tpid uint16) []byte {
		tci := pick(g.rng, []uint16{0, 1, 10, 0x2000, 0x200a, 4095, 100})
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, tpid), tci)
	}
	f = slices.Insert(f, 12, tag(pick(g.rng, []uint16{0x8100, 0x8100, 0x88a8}))...)
	if chance(g.rng, 30) {
		f = slices.Insert(f, 12, tag(pick(g.rng, []uint16{0x8100, 0x88a8}))...)
	}
	return f
}

func mutateTruncate(g *packetGen, f []byte, _ int) []byte {
	return f[:14+g.rng.IntN(max(1, len(f)-13))]
}

func mutatePad(g *packetGen, f []byte, _ int) []byte {
	return lab.Edited(f, lab.Pad(pick(g.rng, []int{60, 60, 64, len(f) + 1, len(f) + 4})))
}

func mutateAppend(g *packetGen, f []byte, _ int) []byte {
	for range 1 + g.rng.IntN(40) {
		f = append(f, byte(g.rng.IntN(256)))
	}
	return f
}

func mutateBit(g *packetGen, f []byte, _ int) []byte {
	f[g.rng.IntN(min(len(f), 64))] ^= 1 << g.rng.IntN(8)
	return f
}

func mutateEtherType(g *packetGen, f []byte, _ int) []byte {
	binary.BigEndian.PutUint16(f[12:], pick(g.rng, []uint16{0x0800, 0x86dd, 0x0806, 0x8847, 0x88cc, 0x8863, 0x8864, 0x0064, 0x88e5, 0x9000, 0x88a8}))
	return f
}

func mutateL4Checksum(_ *packetGen, f []byte, _ int) []byte {
	if h, ok := readIP(f); ok && h.first && (h.proto == 17 || h.proto == 6) && len(f) > h.l4+18 {
		f[h.l4+7] ^= 0x11
	}
	return f
}

func mutateUDPZero(_ *packetGen, f []byte, _ int) []byte {
	if h, ok := readIP(f); ok && h.proto == 17 && len(f) >= h.l4+8 {
		f[h.l4+6], f[h.l4+7] = 0, 0
	}
	return f
}

func mutateTTL(g *packetGen, f []byte, _ int) []byte {
	return lab.Edited(f, lab.TTL(pick(g.rng, []byte{0, 1, 1, 2, 2, 3, 255, 128})))
}

func mutateTOS(g *packetGen, f []byte, _ int) []byte {
	return lab.Edited(f, lab.L3(1, byte(g.rng.IntN(256))), lab.FixIPChecksum())
}

// mutateOptions inserts what RFC 791 and 2113 describe, some of it broken.
func mutateOptions(g *packetGen, f []byte, _ int) []byte {
	h, _ := readIP(f)
	if f[h.l3]&15 != 5 {
		return f
	}
	hop := g.destination(0, false).As4()
	return lab.Edited(f, lab.IPOptions(pick(g.rng, [][]byte{
		{1, 1, 1, 0}, {0}, {0x94, 4, 0, 0}, {0x94, 4, 0, 1},
		{7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0}, {7, 7, 4, 0, 0, 0, 0}, {7, 3, 4}, {7, 7, 8, 0, 0, 0, 0},
		{0x44, 12, 5, 3, 9, 9, 9, 9, 0, 0, 0, 0}, {0x44, 8, 9, 0, 0, 0, 0, 0},
		{0x83, 7, 4, hop[0], hop[1], hop[2], hop[3]}, {0x89, 7, 4, hop[0], hop[1], hop[2], hop[3]}, {0x83, 7, 8, 1, 2, 3, 4},
		{0x88, 4, 0, 1}, {0x82, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {99, 4, 1, 2}, {7, 1}, {7, 40}, {0x86, 6, 0, 0, 0, 1},
	})...))
}

func mutateFragment(g *packetGen, f []byte, _ int) []byte {
	flags := pick(g.rng, []byte{1, 0, 1, 2, 3, 4, 5, 0})
	offset := pick(g.rng, []uint16{0, 0, 1, 185, 8191, uint16(g.rng.IntN(8192))})
	return lab.Edited(f, lab.FragmentField(flags, offset))
}

func mutateChecksum(_ *packetGen, f []byte, _ int) []byte { return lab.Edited(f, lab.BadIPChecksum()) }

// mutateChecksumFFFF chooses an identification that makes the checksum 0x0000 or 0xffff, or the one that it has after a hop.
func mutateChecksumFFFF(g *packetGen, f []byte, _ int) []byte {
	h, _ := readIP(f)
	if f[h.l3] != 0x45 || len(f) < h.l3+20 {
		return f
	}
	f = lab.Edited(f, lab.L3(4, 0, 0), lab.FixIPChecksum())
	want := pick(g.rng, []uint16{0x0000, 0xffff, 0xfeff, 0xfefe, 0x00ff, 0xff00, 0x0001})
	at := binary.BigEndian.Uint16(f[h.l3+10:])
	id := uint32(at) + uint32(^want)
	id = id>>16 + id&0xffff
	binary.BigEndian.PutUint16(f[h.l3+4:], uint16(id))
	binary.BigEndian.PutUint16(f[h.l3+10:], want)
	return f
}

func mutateLength(g *packetGen, f []byte, _ int) []byte {
	h, _ := readIP(f)
	have := len(f) - h.l3
	if h.version == 6 {
		have -= 40
	}
	return lab.Edited(f, lab.IPLength(max(0, pick(g.rng, []int{have + 1, have - 1, have + 100, 0, 19, 20, 21, 1, 8, 65535, have - 8}))))
}

func mutateIHL(g *packetGen, f []byte, _ int) []byte {
	h, _ := readIP(f)
	words := pick(g.rng, []byte{0, 1, 4, 6, 7, 15})
	f[h.l3] = f[h.l3]&0xf0 | words
	if chance(g.rng, 70) && words >= 5 && len(f) >= h.l3+int(words)*4 {
		return lab.Edited(f, lab.FixIPChecksum())
	}
	return f
}

func mutateVersion(g *packetGen, f []byte, _ int) []byte {
	f = lab.Edited(f, lab.IPVersion(pick(g.rng, []byte{0, 4, 5, 6, 7, 15})))
	if h, ok := readIP(f); ok && h.version == 4 {
		return lab.Edited(f, lab.FixIPChecksum())
	}
	return f
}

func mutateFlowLabel(g *packetGen, f []byte, _ int) []byte {
	return lab.Edited(f, lab.L3(1, byte(g.rng.IntN(256)), byte(g.rng.IntN(256)), byte(g.rng.IntN(256))))
}

// mutateExtension puts an extension header behind the IPv6 header, with whatever follows left as it is.
func mutateExtension(g *packetGen, f []byte, _ int) []byte {
	h, _ := readIP(f)
	if h.version != 6 || len(f) < h.l3+40 {
		return f
	}
	next := f[h.l3+6]
	kind := pick(g.rng, []layers.IPProtocol{0, 0, 43, 43, 44, 44, 51, 60, 135, 139, 59})
	body := pick(g.rng, [][]byte{
		{1, 4, 0, 0, 0, 0}, {5, 2, 0, 0, 1, 0}, {5, 2, 0, 0, 0, 0, 0, 0}, {0xc2, 4, 0, 1, 0, 0}, {0x1e, 4, 0, 0, 0, 0}, {0x80, 4, 0, 0, 0, 0}, {},
		{0, 0, 0, 0, 0, 0},
	})
	switch kind {
	case 43: // routing: type and segments left
		body = append([]byte{pick(g.rng, []byte{0, 2, 3, 4, 253}), pick(g.rng, []byte{0, 1, 2})}, make([]byte, 20)...)
	case 44: // fragment: offset and more-fragments
		body = []byte{0, pick(g.rng, []byte{0, 1, 0xff}), pick(g.rng, []byte{0, 1, 0xf9, 8}), 0, 0, byte(g.serial >> 8), byte(g.serial)}
	}
	ext := &lab.Ext{Type: kind, Next: layers.IPProtocol(next), Body: body}
	if next == 0 {
		ext.Next = 59
	}
	buf := serialize(ext)
	buf[0] = next
	f[h.l3+6] = byte(kind)
	f = slices.Insert(f, h.l3+40, buf...)
	return lab.Edited(f, lab.IPLength(len(f)-h.l3-40))
}

func serialize(l gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := l.SerializeTo(buf, gopacket.SerializeOptions{}); err != nil {
		panic("diff: " + err.Error())
	}
	return slices.Clone(buf.Bytes())
}

// foreign is a frame that is no IP at all.
func (g *packetGen) foreign(port int) []byte {
	g.serial++
	types := []layers.EthernetType{0x88cc, 0x8863, 0x8864, 0x8809, 0x888e, 0x88f7, 0x8847, 0x88e5, 0x9000, 0x0026, 0x88b5, 0x8035, 0x22f3}
	dst := g.mac(port)
	if chance(g.rng, 50) {
		dst = portMAC(port)
	}
	body := make([]byte, pick(g.rng, []int{0, 1, 30, 46, 46, 200}))
	for i := range body {
		body[i] = byte(g.rng.IntN(256))
	}
	return lab.Packet(&layers.Ethernet{SrcMAC: hostMAC(port, 0), DstMAC: dst, EthernetType: pick(g.rng, types)}, gopacket.Payload(body))
}

// neighbourly is ARP or neighbour discovery: requests, answers that nobody asked for, conflicts.
func (g *packetGen) neighbourly(port int) []byte {
	g.serial++
	v6 := chance(g.rng, 40)
	src, dst := g.source(port, v6), g.destination(port, v6)
	if own, ok := g.own(v6); ok && chance(g.rng, 50) {
		dst = own
	}
	mac := hostMAC(port, g.rng.IntN(8))
	to := portMAC(port)
	if chance(g.rng, 40) {
		to = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	if v6 {
		if chance(g.rng, 50) {
			return advertisement(mac, portMAC(port), src, dst, byte(g.rng.IntN(8))<<5)
		}
		return lab.Packet(&layers.Ethernet{SrcMAC: mac, DstMAC: portMAC(port)},
			&layers.IPv6{SrcIP: src.AsSlice(), DstIP: dst.AsSlice(), HopLimit: pick(g.rng, []uint8{255, 255, 254})},
			&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135, 0)},
			&layers.ICMPv6NeighborSolicitation{TargetAddress: dst.AsSlice(), Options: layers.ICMPv6Options{{Type: 1, Data: mac}}}, gopacket.Payload(nil))
	}
	return lab.Packet(&layers.Ethernet{SrcMAC: mac, DstMAC: to}, &layers.ARP{
		AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: pick(g.rng, []uint16{1, 1, 2, 3, 8}),
		SourceHwAddress: mac, SourceProtAddress: src.AsSlice(), DstHwAddress: to, DstProtAddress: dst.AsSlice(),
	})
}
