// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// Prefixes is Count prefixes of one length at equal distance, the destinations of
// a benchmark: At(i) = First + i·Step·(size of First). Step 0 means 1, that is
// adjacent prefixes. The zero value holds none.
type Prefixes struct {
	First netip.Prefix
	Count int
	Step  int
}

// V4Prefixes returns n adjacent /24 networks from 16.0.0.0 on; n up to 2^20 stays
// in unicast space clear of the lab's own addresses.
func V4Prefixes(n int) Prefixes {
	return Prefixes{First: netip.MustParsePrefix("16.0.0.0/24"), Count: n}
}

// V6Prefixes returns n adjacent /64 networks from 2001:db8:: on, n up to 2^32.
func V6Prefixes(n int) Prefixes {
	return Prefixes{First: netip.MustParsePrefix("2001:db8::/64"), Count: n}
}

// At returns the prefix with index i.
func (p Prefixes) At(i int) netip.Prefix {
	return netip.PrefixFrom(p.addr(i), p.First.Bits())
}

// Host returns address number host (1: the first) of the prefix with index i.
func (p Prefixes) Host(i, host int) netip.Addr {
	b := p.addr(i).As16()
	low := binary.BigEndian.Uint64(b[8:])
	binary.BigEndian.PutUint64(b[8:], low+uint64(host))
	a := netip.AddrFrom16(b)
	if p.First.Addr().Is4() {
		return a.Unmap()
	}
	return a
}

func (p Prefixes) addr(i int) netip.Addr {
	n := uint64(i) * uint64(max(p.Step, 1))
	bits, a := p.First.Bits(), p.First.Masked().Addr()
	if a.Is4() {
		b := a.As4()
		v := binary.BigEndian.Uint32(b[:]) + uint32(n<<(32-bits))
		binary.BigEndian.PutUint32(b[:], v)
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	half, shift := b[:8], 64-bits
	if bits > 64 {
		half, shift = b[8:], 128-bits
	}
	binary.BigEndian.PutUint64(half, binary.BigEndian.Uint64(half)+n<<shift)
	return netip.AddrFrom16(b)
}

// AddRoutes adds a route to every prefix, all with the same target, given as the
// rest of an `ip route add` command: "via 10.0.1.2 dev out".
func (ns *NS) AddRoutes(to Prefixes, target string) error {
	if to.Count == 0 {
		return nil
	}
	var batch strings.Builder
	for i := range to.Count {
		fmt.Fprintf(&batch, "route add %s %s\n", to.At(i), target)
	}
	family := "-4"
	if to.First.Addr().Is6() {
		family = "-6"
	}
	return ns.Feed(batch.String(), "ip %s -batch -", family)
}
