// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"

	"github.com/gopacket/gopacket/layers"
)

// offsets says where the headers of a frame begin. A header that is not there or
// not whole has offset -1. It believes the frame's own fields as far as they
// stay inside the frame, since frames here are often broken on purpose.
type offsets struct {
	l3, l4    int
	version   byte   // 4, 6 or 0
	proto     byte   // of the header at l4
	fragment  bool   // not the first fragment: there is no header at l4
	more      bool   // more fragments follow
	end       int    // where the IP packet ends by its length field, within the frame
	etherType uint16 // behind VLAN tags
	body      int    // behind etherType
}

func parse(frame []byte) offsets {
	o := offsets{l3: -1, l4: -1, end: len(frame)}
	at := 12
	for len(frame) >= at+2 {
		o.etherType = binary.BigEndian.Uint16(frame[at:])
		at += 2
		if o.etherType != 0x8100 && o.etherType != 0x88a8 {
			break
		}
		at += 2
	}
	if len(frame) < at {
		return o
	}
	o.body = at
	switch {
	case o.etherType == uint16(layers.EthernetTypeIPv4) && len(frame) >= at+20:
		o.l3, o.version = at, 4
		o.parseV4(frame)
	case o.etherType == uint16(layers.EthernetTypeIPv6) && len(frame) >= at+40:
		o.l3, o.version = at, 6
		o.parseV6(frame)
	}
	return o
}

func (o *offsets) parseV4(frame []byte) {
	ip := frame[o.l3:]
	o.proto = ip[9]
	o.fragment = binary.BigEndian.Uint16(ip[6:])&0x1fff != 0
	o.more = ip[6]&0x20 != 0
	o.end = min(o.end, o.l3+int(binary.BigEndian.Uint16(ip[2:])))
	if size := int(ip[0]&0xf) * 4; size >= 20 && len(ip) >= size && !o.fragment {
		o.l4 = o.l3 + size
	}
}

func (o *offsets) parseV6(frame []byte) {
	ip := frame[o.l3:]
	o.proto = ip[6]
	o.end = min(o.end, o.l3+40+int(binary.BigEndian.Uint16(ip[4:])))
	at := o.l3 + 40
	for {
		size := 0
		switch layers.IPProtocol(o.proto) {
		case layers.IPProtocolIPv6HopByHop, layers.IPProtocolIPv6Routing, layers.IPProtocolIPv6Destination:
			if len(frame) < at+2 {
				return
			}
			size = (int(frame[at+1]) + 1) * 8
		case layers.IPProtocolIPv6Fragment:
			if len(frame) < at+8 {
				return
			}
			size = 8
			o.fragment = binary.BigEndian.Uint16(frame[at+2:])&0xfff8 != 0
			o.more = frame[at+3]&1 != 0
		default:
			if !o.fragment && at <= len(frame) {
				o.l4 = at
			}
			return
		}
		o.proto = frame[at]
		at += size
		if at > len(frame) || o.fragment {
			return
		}
	}
}

// checksumOffset is where the transport header at l4 keeps its checksum, or -1.
func (o offsets) checksumOffset(frame []byte) int {
	if o.l4 < 0 {
		return -1
	}
	at := -1
	switch layers.IPProtocol(o.proto) {
	case layers.IPProtocolUDP:
		at = o.l4 + 6
	case layers.IPProtocolTCP:
		at = o.l4 + 16
	case layers.IPProtocolICMPv4, layers.IPProtocolICMPv6:
		at = o.l4 + 2
	}
	if at+2 > o.end {
		return -1
	}
	return at
}

// sum is the ones' complement sum of RFC 1071, not yet complemented.
func sum(start uint32, data []byte) uint32 {
	for ; len(data) >= 2; data = data[2:] {
		start += uint32(binary.BigEndian.Uint16(data))
	}
	if len(data) == 1 {
		start += uint32(data[0]) << 8
	}
	for start > 0xffff {
		start = start>>16 + start&0xffff
	}
	return start
}

// transportSum is the sum over the transport part and its pseudo header,
// checksum field included: 0xffff if the checksum is right.
func (o offsets) transportSum(frame []byte) uint32 {
	size := uint32(o.end - o.l4)
	var pseudo uint32
	switch {
	case o.version == 6:
		pseudo = sum(size+uint32(o.proto), frame[o.l3+8:o.l3+40])
	case layers.IPProtocol(o.proto) != layers.IPProtocolICMPv4:
		pseudo = sum(size+uint32(o.proto), frame[o.l3+12:o.l3+20])
	}
	return sum(pseudo, frame[o.l4:o.end])
}
