// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
)

// ip is what comparing needs of a frame's IP header.
type ip struct {
	version   int
	l3        int // offset of the header
	proto     byte
	src, dst  netip.Addr
	l4        int  // offset behind the header and behind no extension header
	first     bool // not a later fragment
	headerLen int
}

// readIP finds the IP header behind any VLAN tags; ok is false when there is none.
func readIP(f []byte) (h ip, ok bool) {
	at := 12
	for len(f) >= at+4 {
		switch binary.BigEndian.Uint16(f[at:]) {
		case 0x8100, 0x88a8:
			at += 4
			continue
		case 0x0800:
			h.version = 4
		case 0x86dd:
			h.version = 6
		}
		break
	}
	h.l3 = at + 2
	switch {
	case h.version == 4 && len(f) >= h.l3+20:
		h.proto = f[h.l3+9]
		h.src, h.dst = netip.AddrFrom4([4]byte(f[h.l3+12:])), netip.AddrFrom4([4]byte(f[h.l3+16:]))
		h.headerLen = int(f[h.l3]&15) * 4
		h.first = binary.BigEndian.Uint16(f[h.l3+6:])&0x1fff == 0
	case h.version == 6 && len(f) >= h.l3+40:
		h.proto = f[h.l3+6]
		h.src, h.dst = netip.AddrFrom16([16]byte(f[h.l3+8:])), netip.AddrFrom16([16]byte(f[h.l3+24:]))
		h.headerLen, h.first = 40, true
	default:
		return h, false
	}
	h.l4 = h.l3 + h.headerLen
	return h, true
}

// tagsOf are a frame's VLAN tags, as they lie between its addresses and its type.
func tagsOf(f []byte) []byte {
	at := 12
	for len(f) >= at+4 && (binary.BigEndian.Uint16(f[at:]) == 0x8100 || binary.BigEndian.Uint16(f[at:]) == 0x88a8) {
		at += 4
	}
	return f[min(12, len(f)):min(at, len(f))]
}

// icmpType is the type of an ICMP or ICMPv6 message, -1 for anything else.
func (h ip) icmpType(f []byte) int {
	if h.first && h.l4 < len(f) && (h.version == 4 && h.proto == 1 || h.version == 6 && h.proto == 58) {
		return int(f[h.l4])
	}
	return -1
}

// noise is what a router says unasked, by timers: membership reports, queries and router
// solicitations, and a bridge's spanning tree. They go to multicast groups, so none of them was routed; what hosts sent was bridged.
func noise(f []byte) bool {
	if inner, _ := unwrap(f); inner != nil {
		return noise(inner)
	}
	if fromHost(f) {
		return false
	}
	if len(f) >= 6 && string(f[:6]) == "\x01\x80\xc2\x00\x00\x00" {
		return true
	}
	h, ok := readIP(f)
	if !ok || !h.dst.IsMulticast() {
		return false
	}
	if h.version == 4 {
		return h.proto == 2
	}
	// MLDv2 reports carry a hop-by-hop header.
	if h.proto == 0 && h.l4+8 < len(f) && f[h.l4] == 58 {
		t := f[h.l4+8]
		return t >= 130 && t <= 132 || t == 143
	}
	return h.icmpType(f) == 133
}

// once says whether a frame is to be counted once however often it was sent: solicitations, which are repeated by the clock.
func once(f []byte, own *addresses) bool {
	if inner, _ := unwrap(f); inner != nil {
		return once(inner, own)
	}
	if fromHost(f) {
		return false
	}
	if at := 12 + len(tagsOf(f)); len(f) >= at+30 && binary.BigEndian.Uint16(f[at:]) == 0x0806 && f[at+9] == 1 {
		return true
	}
	h, ok := readIP(f)
	return ok && own.has(h.src) && h.version == 6 && h.icmpType(f) == 135
}

// normalise takes out of a frame that the router itself made what the kernel draws at
// random or from the clock: the identification of IPv4 and of IPv6 fragments, times.
func normalise(f []byte, own *addresses) []byte {
	h, ok := readIP(f)
	if !ok {
		return f
	}
	f = withinTunnel(withoutTimestamps(f, h), own)
	fragment6 := h.proto == 44 && len(f) >= h.l4+8
	says := own.has(h.src) || own.hides && h.version == 4 && slices.Contains([]int{3, 11, 12}, h.icmpType(f))
	if !says && !(own.cuts && fragment6) {
		return f
	}
	switch {
	case h.icmpType(f) == 14 && h.version == 4 && len(f) >= h.l4+20: // a timestamp reply tells the time
		return lab.Edited(f, lab.L3(4, 0, 0), lab.L3(h.headerLen+2, 0, 0), lab.L3(h.headerLen+8, make([]byte, 12)...), lab.FixIPChecksum())
	case h.version == 4:
		return lab.Edited(f, lab.L3(4, 0, 0), lab.FixIPChecksum())
	case fragment6:
		return lab.Edited(f, lab.L3(h.l4-h.l3+4, 0, 0, 0, 0))
	}
	return f
}

// withoutTimestamps clears what routers, this one too, have written into a timestamp option (RFC 781), and the checksum over it.
func withoutTimestamps(f []byte, h ip) []byte {
	if h.version != 4 || h.headerLen <= 20 || len(f) < h.l4 {
		return f
	}
	for at := h.l3 + 20; at+1 < h.l4; {
		const end, noOperation, timestamp = 0, 1, 68
		size := int(f[at+1])
		switch {
		case f[at] == end:
			return f
		case f[at] == noOperation:
			at++
			continue
		case size < 2 || at+size > h.l4:
			return f
		case f[at] == timestamp && size > 4:
			f = slices.Clone(f)
			clear(f[at+4 : at+size])
			clear(f[h.l3+10 : h.l3+12])
		}
		at += size
	}
	return f
}

// addresses are the routers' own: those of interfaces, and what local routes cover.
type addresses struct {
	single   map[netip.Addr]bool
	prefixes map[netip.Prefix]bool
	cuts     bool // what was reassembled for br_netfilter or connection tracking is cut into fragments of IPv6 again, which get an identification then (ip6_fragment())
	hides    bool // what the router says of a connection may have the address that it translated
}

func newAddresses() *addresses {
	return &addresses{prefixes: map[netip.Prefix]bool{}, single: map[netip.Addr]bool{
		netip.IPv4Unspecified():          true,
		netip.MustParseAddr("192.0.0.8"): true, // RFC 7600, where a router has no address of its own
	}}
}

func (a *addresses) has(addr netip.Addr) bool {
	if a.single[addr] || addr.IsLoopback() { // all of 127/8 answers where route_localnet is set
		return true
	}
	for p := range a.prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// learn adds what a router has now; what it had earlier stays.
func (a *addresses) learn(ns *lab.NS) error {
	for _, own := range []struct{ family, kind int }{{netlink.FAMILY_V4, unix.RTN_LOCAL}, {netlink.FAMILY_V6, unix.RTN_LOCAL}, {netlink.FAMILY_V6, unix.RTN_ANYCAST}} {
		routes, err := ns.Netlink().RouteListFiltered(own.family, &netlink.Route{Type: own.kind}, netlink.RT_FILTER_TYPE|netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("reading local routes: %w", err)
		}
		for _, r := range routes {
			if r.Dst == nil {
				continue
			}
			bits, _ := r.Dst.Mask.Size()
			addr, ok := netip.AddrFromSlice(r.Dst.IP)
			switch {
			case !ok:
			case bits == addr.Unmap().BitLen():
				a.single[addr.Unmap()] = true
			default:
				a.prefixes[netip.PrefixFrom(addr.Unmap(), bits)] = true
			}
		}
	}
	return nil
}
