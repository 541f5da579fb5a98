// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"maps"

	"golang.org/x/sys/unix"
)

// abstractPacket is a class of packets that the fast path can forward: the bytes of the frame that are the same in all of
// them, by offset from the Ethernet header, with the bits that are.
type abstractPacket struct {
	ethertype uint32
	frame     map[int]value // one byte each
	ports     int           // offset of the source port
}

// abstractPackets cover every packet that may be forwarded fast. Destination MACs are the router's own, so unicast; the IP
// version is known; fragments, options and extension headers go up. When a packet socket sees a frame, its outer VLAN tag is
// in the metadata, an inner one still in the frame.
var abstractPackets = func() (out []abstractPacket) {
	unicast := map[int]value{0: {mask: 1}}
	with := func(ethertype uint32, ports int, bytes map[int]value) {
		for _, tag := range []uint32{0, unix.ETH_P_8021Q, unix.ETH_P_8021AD} {
			p := abstractPacket{ethertype, maps.Clone(unicast), ports}
			off := 12
			if tag != 0 {
				p.ethertype, p.ports = tag, p.ports+4
				p.frame[off], p.frame[off+1] = byteIs(tag>>8), byteIs(tag)
				off += 4
			}
			p.frame[off], p.frame[off+1] = byteIs(ethertype>>8), byteIs(ethertype)
			for k, v := range bytes {
				p.frame[off+2+k] = v
			}
			out = append(out, p)
		}
	}
	ip4 := map[int]value{0: byteIs(0x45), 6: {mask: 0xffffffbf}, 7: byteIs(0)} // not a fragment; DF may be set
	ip6 := map[int]value{0: {v: 0x60, mask: 0xfffffff0}}
	with(unix.ETH_P_IP, 34, ip4)
	with(unix.ETH_P_IPV6, 54, ip6)
	return out
}()

func byteIs(v uint32) value { return exactly(v & 0xff) }

// bytes loads size bytes in network order.
func (p abstractPacket) bytes(off, size int) value {
	var v value
	for i := range size {
		b, ok := p.frame[off+i]
		if !ok {
			b = value{mask: 0xffffff00}
		}
		v = value{v: v.v<<8 | b.v&0xff, mask: v.mask<<8 | b.mask&0xff}
	}
	if size < 4 {
		v.mask |= ^uint32(0) << (8 * size)
	}
	v.port = size == 2 && (off == p.ports || off == p.ports+2)
	return v
}

// Ancillary data that filters of listeners ask for.
const (
	adProtocol = 0
	adPktType  = 4
)

func (p abstractPacket) ancillary(what uint32) value {
	switch what {
	case adProtocol:
		return exactly(p.ethertype)
	case adPktType:
		// PACKET_HOST on the way in; a socket also sees frames on their way out (4).
		return value{mask: ^uint32(4)}
	}
	return value{} // VLAN tags may be there or not
}
