// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"maps"

	"golang.org/x/sys/unix"
)

// abstractPacket is a class of packets that the fast path can forward: the bytes of the frame that are the same in all of
// them, by offset from the Ethernet header, with the bits that are.
type abstractPacket struct {
	ethertype value         // of the frame without its outer tag
	frame     map[int]value // one byte each
	ports     int           // offset of the source port, 0 where there is none to speak of
	pktType   value         // PACKET_* on the way in, or 4 (PACKET_OUTGOING)
}

// routedPackets cover every packet that may be routed fast. Destination MACs are the router's own, so unicast; the IP
// version is known; fragments, options and extension headers go up. When a packet socket sees a frame, its outer VLAN tag is
// in the metadata, an inner one still in the frame.
var routedPackets = func() (out []abstractPacket) {
	with := func(ethertype uint32, ports int, bytes map[int]value) {
		for _, tag := range []uint32{0, unix.ETH_P_8021Q, unix.ETH_P_8021AD} {
			p := abstractPacket{exactly(ethertype), maps.Clone(unicast), ports, value{mask: ^uint32(4)}}
			off := 12
			if tag != 0 {
				p.ethertype, p.ports = exactly(tag), p.ports+4
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
	ip4 := map[int]value{0: byteIs(0x45), 6: {mask: 0xffffff3f}, 7: byteIs(0)} // not a fragment; DF may be set, and the bit that is reserved
	ip6 := map[int]value{0: {v: 0x60, mask: 0xfffffff0}}
	with(unix.ETH_P_IP, 34, ip4)
	with(unix.ETH_P_IPV6, 54, ip6)
	return out
}()

// bridgedPackets cover every frame that may pass from one port of a bridge to another, or from there into a container: unicast of any protocol but those that
// bpf/node/bridge.h leaves to the bridge. Its receiver is somebody else (PACKET_OTHERHOST).
var bridgedPackets = []abstractPacket{{value{mask: 0xffff0000, not: &toBridges}, unicast, 0, value{mask: ^uint32(7)}}}

var (
	unicast   = map[int]value{0: {mask: 1}}
	toBridges = []uint32{unix.ETH_P_ARP, unix.ETH_P_RARP, ethPMRP, ethPCFM}
	// dhcp are ports that a forwarded packet can have too, but what a DHCP client waits for is addressed to it and never routed, and it drops all else.
	dhcp = []uint32{67, 68, 546, 547}
)

const (
	ethPMRP = 0x88e3
	ethPCFM = 0x8902
)

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
	switch {
	case size != 2:
	case p.ports != 0 && (off == p.ports || off == p.ports+2):
		v.not = &dhcp
	case off == 12:
		v.not = p.ethertype.not
	}
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
		return p.ethertype
	case adPktType:
		return p.pktType
	}
	return value{} // VLAN tags may be there or not
}
