// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"slices"

	"github.com/gopacket/gopacket/layers"
)

// Fragments splits the IP packet in a frame as a sender would for an MTU: whole
// frames, in order, each IP packet of at most mtu bytes. An IPv4 packet keeps its
// id and has all options in each fragment; in IPv6 everything behind the first
// header is split, under the id 1. A packet that fits is returned as it is.
func Fragments(frame []byte, mtu int) [][]byte {
	o := needIP(frame)
	if o.end-o.l3 <= mtu {
		return [][]byte{frame}
	}
	header := o.l3 + 40
	room := mtu - 48
	if o.version == 4 {
		header = o.l4
		room = mtu - (o.l4 - o.l3)
	}
	if room = room / 8 * 8; room <= 0 || header < o.l3 {
		panic("lab: no fragment of this packet fits the MTU: " + Describe(frame))
	}
	var out [][]byte
	for at := header; at < o.end; at += room {
		part := frame[at:min(at+room, o.end)]
		more := at+room < o.end
		f := slices.Concat(frame[:header], part)
		if o.version == 4 {
			var flags byte
			if more {
				flags = 1
			}
			f = chain(IPLength(len(f)-o.l3), FragmentField(flags, uint16((at-header)/8)))(f)
		} else {
			field := uint16(at - header) // its low three bits are flags
			if more {
				field |= 1
			}
			ext := []byte{frame[o.l3+6], 0, byte(field >> 8), byte(field), 0, 0, 0, 1}
			f = slices.Insert(f, header, ext...)
			f[o.l3+6] = byte(layers.IPProtocolIPv6Fragment)
			binary.BigEndian.PutUint16(f[o.l3+4:], uint16(len(f)-header))
		}
		out = append(out, f)
	}
	return out
}
