// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket/layers"
)

// Describe returns the frame in one line for people: addresses, tags, the fields
// that forwarding changes, the transport, and what is wrong with it. Any bytes
// will do.
func Describe(frame []byte) string {
	if len(frame) < 14 {
		return fmt.Sprintf("runt of %d bytes: % x", len(frame), frame)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s > %s", net.HardwareAddr(frame[6:12]), net.HardwareAddr(frame[:6]))
	for at := 12; len(frame) >= at+4; at += 4 {
		tpid, tci := binary.BigEndian.Uint16(frame[at:]), binary.BigEndian.Uint16(frame[at+2:])
		if tpid != 0x8100 && tpid != 0x88a8 {
			break
		}
		fmt.Fprintf(&b, " %s %d", map[uint16]string{0x8100: "vlan", 0x88a8: "qinq"}[tpid], tci&0xfff)
		if prio := tci >> 12; prio != 0 {
			fmt.Fprintf(&b, " pcp %d dei %d", prio>>1, prio&1)
		}
	}
	o := parse(frame)
	switch {
	case o.version == 4:
		describeV4(&b, frame, o)
	case o.version == 6:
		describeV6(&b, frame, o)
	case o.etherType == uint16(layers.EthernetTypeARP) && len(frame) >= o.body+28:
		describeARP(&b, frame[o.body:])
	default:
		fmt.Fprintf(&b, " type %#04x", o.etherType)
	}
	fmt.Fprintf(&b, ", %d bytes", len(frame))
	if o.l3 >= 0 && o.end < len(frame) && o.end > o.l3 {
		fmt.Fprintf(&b, " (%d behind the packet)", len(frame)-o.end)
	}
	return b.String()
}

func describeV4(b *strings.Builder, frame []byte, o offsets) {
	ip := frame[o.l3:]
	fmt.Fprintf(b, " %s > %s ttl %d id %d", netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20])),
		ip[8], binary.BigEndian.Uint16(ip[4:]))
	if ip[1] != 0 {
		fmt.Fprintf(b, " tos %#02x", ip[1])
	}
	frag := binary.BigEndian.Uint16(ip[6:])
	if frag&0x8000 != 0 {
		b.WriteString(" reserved-flag")
	}
	if frag&0x4000 != 0 {
		b.WriteString(" df")
	}
	if frag&0x3fff != 0 {
		fmt.Fprintf(b, " fragment at %d", frag&0x1fff*8)
		if frag&0x2000 != 0 {
			b.WriteString("+")
		}
	}
	size := int(ip[0]&0xf) * 4
	total := int(binary.BigEndian.Uint16(ip[2:]))
	switch {
	case ip[0]>>4 != 4:
		fmt.Fprintf(b, " BAD VERSION %d", ip[0]>>4)
	case size < 20 || size > len(ip):
		fmt.Fprintf(b, " BAD HEADER LENGTH %d", size)
	default:
		if size > 20 {
			fmt.Fprintf(b, " options % x", ip[20:size])
		}
		if sum(0, ip[:size]) != 0xffff {
			b.WriteString(" BAD IP CHECKSUM")
		}
	}
	if total < size || total > len(ip) {
		fmt.Fprintf(b, " BAD LENGTH %d", total)
	}
	describeTransport(b, frame, o)
}

func describeV6(b *strings.Builder, frame []byte, o offsets) {
	ip := frame[o.l3:]
	fmt.Fprintf(b, " %s > %s hlim %d", netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40])), ip[7])
	if word := binary.BigEndian.Uint32(ip); word&0x0fffffff != 0 {
		fmt.Fprintf(b, " class %#02x flow %#05x", word>>20&0xff, word&0xfffff)
	}
	if ip[0]>>4 != 6 {
		fmt.Fprintf(b, " BAD VERSION %d", ip[0]>>4)
	}
	if ip[6] != o.proto {
		fmt.Fprintf(b, " ext %d", ip[6])
	}
	switch {
	case o.fragment && !o.more:
		b.WriteString(" last fragment")
	case o.fragment || o.more:
		b.WriteString(" fragment")
	}
	if n := int(binary.BigEndian.Uint16(ip[4:])); n > len(ip)-40 {
		fmt.Fprintf(b, " BAD LENGTH %d", n)
	}
	describeTransport(b, frame, o)
}

func describeTransport(b *strings.Builder, frame []byte, o offsets) {
	size := o.end - o.l4
	if o.l4 < 0 || size < 8 {
		fmt.Fprintf(b, " proto %d", o.proto)
		return
	}
	t := frame[o.l4:o.end]
	ports := fmt.Sprintf("%d > %d", binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:]))
	unset := false // UDP over IPv4 without a checksum is legal
	switch layers.IPProtocol(o.proto) {
	case layers.IPProtocolUDP:
		fmt.Fprintf(b, " udp %s", ports)
		if n := int(binary.BigEndian.Uint16(t[4:])); n != size && !o.more {
			fmt.Fprintf(b, " BAD UDP LENGTH %d", n)
		}
		unset = o.version == 4 && t[6] == 0 && t[7] == 0
	case layers.IPProtocolTCP:
		fmt.Fprintf(b, " tcp %s", ports)
		if size >= 20 {
			for i, letter := range "FSRPAUEC" {
				if t[13]>>i&1 == 1 {
					fmt.Fprintf(b, "%s%c", map[bool]string{true: " "}[t[13]&(1<<i-1) == 0], letter)
				}
			}
			fmt.Fprintf(b, " seq %d", binary.BigEndian.Uint32(t[4:]))
		}
	case layers.IPProtocolICMPv4:
		fmt.Fprintf(b, " icmp %s", layers.CreateICMPv4TypeCode(t[0], t[1]))
	case layers.IPProtocolICMPv6:
		fmt.Fprintf(b, " icmp6 %s", layers.CreateICMPv6TypeCode(t[0], t[1]))
	default:
		fmt.Fprintf(b, " proto %d", o.proto)
	}
	// A first fragment has the length and the sum of the whole.
	if o.checksumOffset(frame) >= 0 && !unset && !o.more && o.transportSum(frame) != 0xffff {
		b.WriteString(" BAD CHECKSUM")
	}
}

func describeARP(b *strings.Builder, a []byte) {
	fmt.Fprintf(b, " arp op %d, %s at %s, for %s", binary.BigEndian.Uint16(a[6:]),
		netip.AddrFrom4([4]byte(a[14:18])), net.HardwareAddr(a[8:14]), netip.AddrFrom4([4]byte(a[24:28])))
}

// Dump returns the frame as a hex dump with offsets.
func Dump(frame []byte) string { return hex.Dump(frame) }

// Diff returns "" for equal frames, or both in one line each and the bytes in
// which they differ.
func Diff(want, got []byte) string {
	if string(want) == string(got) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "want %s\n got %s\n", Describe(want), Describe(got))
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			fmt.Fprintf(&b, " byte %3d: want none, got %02x\n", i, got[i])
		case i >= len(got):
			fmt.Fprintf(&b, " byte %3d: want %02x, got none\n", i, want[i])
		case want[i] != got[i]:
			fmt.Fprintf(&b, " byte %3d: want %02x, got %02x\n", i, want[i], got[i])
		}
	}
	return b.String()
}

// Noise reports whether a frame is one that the kernel sends by itself at a time
// of its own choosing: router and neighbour discovery, multicast reports. Compare
// captures without it unless it is what the test is about.
func Noise(frame []byte) bool {
	o := parse(frame)
	switch {
	case o.version == 4:
		return o.proto == byte(layers.IPProtocolIGMP)
	case o.version == 6 && o.proto == byte(layers.IPProtocolICMPv6) && o.l4 >= 0 && o.l4 < len(frame):
		switch t := frame[o.l4]; t {
		case 130, 131, 132, 133, 134, 135, 136, 143: // MLD, RS, RA, NS, NA, MLDv2
			return true
		}
	}
	return false
}
