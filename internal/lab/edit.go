// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Edit changes one thing about a frame, in place or by returning another slice.
// An edit of a header that the frame lacks panics: the test would not test what
// it says.
type Edit func(frame []byte) []byte

// Edited returns a copy of the frame with the edits applied in order.
func Edited(frame []byte, edits ...Edit) []byte {
	frame = slices.Clone(frame)
	for _, edit := range edits {
		frame = edit(frame)
	}
	return frame
}

// Truncate cuts the frame to n bytes and changes no length field.
func Truncate(n int) Edit {
	return func(f []byte) []byte { return f[:min(n, len(f))] }
}

// Pad extends the frame with zeros to n bytes, as a NIC does to 60.
func Pad(n int) Edit {
	return func(f []byte) []byte { return append(f, make([]byte, max(0, n-len(f)))...) }
}

// Append adds bytes behind the IP packet.
func Append(tail ...byte) Edit {
	return func(f []byte) []byte { return append(f, tail...) }
}

// L2 overwrites bytes at an offset from the start of the frame.
func L2(offset int, bytes ...byte) Edit {
	return func(f []byte) []byte { return overwrite(f, 0, offset, bytes) }
}

// L3 overwrites bytes at an offset from the start of the IP header. It mends no
// checksum: see [FixIPChecksum].
func L3(offset int, bytes ...byte) Edit {
	return func(f []byte) []byte { return overwrite(f, needIP(f).l3, offset, bytes) }
}

// L4 overwrites bytes at an offset from the start of the transport header.
func L4(offset int, bytes ...byte) Edit {
	return func(f []byte) []byte { return overwrite(f, needL4(f).l4, offset, bytes) }
}

// FixIPChecksum computes the IPv4 header checksum anew, over as many bytes as the
// header says it has; it leaves IPv6 alone.
func FixIPChecksum() Edit {
	return func(f []byte) []byte {
		o := needIP(f)
		if o.version == 4 {
			ip := f[o.l3:]
			ip = ip[:min(len(ip), max(20, int(ip[0]&0xf)*4))]
			ip[10], ip[11] = 0, 0
			binary.BigEndian.PutUint16(ip[10:], ^uint16(sum(0, ip)))
		}
		return f
	}
}

// FixTransportChecksum computes the checksum of UDP, TCP, ICMP or ICMPv6 anew.
func FixTransportChecksum() Edit {
	return func(f []byte) []byte {
		o := needL4(f)
		at := o.checksumOffset(f)
		if at < 0 {
			panic("lab: editing the checksum of a frame that has none: " + Describe(f))
		}
		f[at], f[at+1] = 0, 0
		c := ^uint16(o.transportSum(f))
		if c == 0 {
			c = 0xffff // zero would mean "no checksum" in UDP; both are the same sum
		}
		binary.BigEndian.PutUint16(f[at:], c)
		return f
	}
}

// TTL sets the TTL or hop limit.
func TTL(ttl byte) Edit {
	return func(f []byte) []byte {
		if needIP(f).version == 6 {
			return L3(7, ttl)(f)
		}
		return chain(L3(8, ttl), FixIPChecksum())(f)
	}
}

// IPLength sets IPv4's total length or IPv6's payload length, right checksum
// included.
func IPLength(n int) Edit {
	return func(f []byte) []byte {
		offset := 2
		if needIP(f).version == 6 {
			offset = 4
		}
		return chain(L3(offset, byte(n>>8), byte(n)), FixIPChecksum())(f)
	}
}

// IPVersion sets the version field alone.
func IPVersion(v byte) Edit {
	return func(f []byte) []byte {
		at := needIP(f).l3
		f[at] = v<<4 | f[at]&0xf
		return f
	}
}

// IHL sets IPv4's header length field, in words of four bytes, and a checksum
// that is right for that length.
func IHL(words byte) Edit {
	return func(f []byte) []byte {
		at := needIP(f).l3
		f[at] = f[at]&0xf0 | words&0xf
		return FixIPChecksum()(f)
	}
}

// FragmentField sets IPv4's flags (4 reserved, 2 don't fragment, 1 more
// fragments) and offset in units of eight bytes.
func FragmentField(flags byte, offset uint16) Edit {
	v := uint16(flags)<<13 | offset&0x1fff
	return chain(L3(6, byte(v>>8), byte(v)), FixIPChecksum())
}

// IPOptions inserts raw option bytes, padded with zeros to whole words, behind a
// plain IPv4 header and mends its lengths and checksum.
func IPOptions(raw ...byte) Edit {
	return func(f []byte) []byte {
		at := needIP(f).l3
		for len(raw)%4 != 0 {
			raw = append(raw, 0)
		}
		f = slices.Insert(f, at+20, raw...)
		total := binary.BigEndian.Uint16(f[at+2:]) + uint16(len(raw))
		return chain(IHL(byte(5+len(raw)/4)), IPLength(int(total)))(f)
	}
}

// BadIPChecksum makes the IPv4 header checksum wrong.
func BadIPChecksum() Edit {
	return func(f []byte) []byte { f[needIP(f).l3+11] ^= 0x5a; return f }
}

// BadTransportChecksum makes the transport checksum wrong.
func BadTransportChecksum() Edit {
	return func(f []byte) []byte {
		at := needL4(f).checksumOffset(f)
		if at < 0 {
			panic("lab: editing the checksum of a frame that has none: " + Describe(f))
		}
		f[at+1] ^= 0x5a
		return f
	}
}

func chain(edits ...Edit) Edit {
	return func(f []byte) []byte {
		for _, edit := range edits {
			f = edit(f)
		}
		return f
	}
}

func overwrite(f []byte, base, offset int, bytes []byte) []byte {
	if at := base + offset; at < 0 || at+len(bytes) > len(f) {
		panic(fmt.Sprintf("lab: editing bytes %d to %d of a frame of %d", at, at+len(bytes), len(f)))
	}
	copy(f[base+offset:], bytes)
	return f
}

func needIP(f []byte) offsets {
	o := parse(f)
	if o.l3 < 0 {
		panic("lab: editing the IP header of a frame that has none: " + Describe(f))
	}
	return o
}

func needL4(f []byte) offsets {
	o := parse(f)
	if o.l4 < 0 {
		panic("lab: editing the transport header of a frame that has none: " + Describe(f))
	}
	return o
}
