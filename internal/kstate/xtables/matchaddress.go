// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Matches of addresses: ranges and types of those of IP, and those of frames.

func matchIPRange(c *Context, i *info) (steps []rs.Step, text string, err error) {
	flags := i.u8(64)
	fields := []rs.Field{rs.IP4Src, rs.IP4Dst}
	if c.Six {
		fields = []rs.Field{rs.IP6Src, rs.IP6Dst}
	}
	var words []string
	for n, f := range fields {
		if flags>>n&1 == 0 {
			continue
		}
		lo, hi, not := i.addr(32*n, c.Six), i.addr(32*n+16, c.Six), flags>>(4+n)&1 != 0
		steps = append(steps, rs.Test{Field: f, Ranges: []rs.Range{{Lo: rs.Addr(lo), Hi: rs.Addr(hi)}}, Not: not})
		words = append(words, fmt.Sprintf("%s%s %s-%s", bang(not), []string{"--src-range", "--dst-range"}[n], lo, hi))
	}
	return steps, strings.Join(words, " "), nil
}

func matchMAC(_ *Context, i *info) ([]rs.Step, string, error) {
	mac, not := i.bytes(0, 6), i.u32(8) != 0
	return []rs.Step{rs.Test{Field: rs.EtherSrc, Ranges: []rs.Range{rs.One(rs.Bytes(mac))}, Not: not}},
		fmt.Sprintf("%s--mac-source %s", bang(not), net.HardwareAddr(mac)), nil
}

var addrTypes = []string{"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW", "NAT", "XRESOLVE"}

func matchAddrType(c *Context, i *info) (steps []rs.Step, text string, err error) {
	const invertSource, invertDest, limitIn, limitOut = 1, 2, 4, 8
	source, dest, flags := uint32(i.u16(0)), uint32(i.u16(2)), i.u32(4)
	var words []string
	for _, a := range []struct {
		bits  uint32
		not   bool
		field rs.Field
		addr  rs.Field
		name  string
	}{{source, flags&invertSource != 0, rs.SrcAddrType, rs.IP6Src, "--src-type "}, {dest, flags&invertDest != 0, rs.DstAddrType, rs.IP6Dst, "--dst-type "}} {
		if a.bits == 0 {
			continue
		}
		words = append(words, bang(a.not)+a.name+names(addrTypes, a.bits))
		if c.Six {
			steps = append(steps, addrType6(a.field, a.addr, a.bits, a.not)...)
		} else {
			steps = append(steps, rs.Test{Field: a.field, Ranges: oneOf(a.bits), Not: a.not})
		}
	}
	if flags&limitIn != 0 {
		words = append(words, "--limit-iface-in")
	}
	if flags&limitOut != 0 {
		words = append(words, "--limit-iface-out")
	}
	if flags&(limitIn|limitOut) != 0 {
		err = errors.New("types of one interface are not modelled")
	}
	if c.Six && (source|dest)&^addrTypes6 != 0 {
		err = errors.New("a type that IPv6 does not have") // which the kernel refuses
	}
	return steps, strings.Join(words, " "), err
}

// Types that xt_addrtype asks for in IPv6, as bits of the number of a type.
const (
	type6Unspec      = 1 << 0
	type6Unicast     = 1 << 1
	type6Multicast   = 1 << 5
	type6Unreachable = 1 << 7
	type6Looked      = 1<<2 | 1<<4 | type6Unreachable // local, anycast: of which one has to be what the lookup says
	addrTypes6       = type6Unspec | type6Unicast | type6Multicast | type6Looked
	type6Refused     = 1<<6 | type6Unreachable | 1<<8 | 1<<9 // whatever error the lookup ends with
)

// addrType6 is match_type6() of xt_addrtype.c: unicast, multicast and unspecified are kinds of addresses, whatever a lookup says, and of several things that are asked for all
// have to hold.
func addrType6(field, addr rs.Field, bits uint32, not bool) (steps []rs.Step) {
	group, mapped := rs.Prefix(netip.MustParsePrefix("ff00::/8")), rs.Prefix(netip.MustParsePrefix("::ffff:0:0/96"))
	var all []rs.Test
	if bits&type6Multicast != 0 {
		all = append(all, rs.Test{Field: addr, Ranges: []rs.Range{group}, Not: not})
	}
	if bits&type6Unicast != 0 {
		all = append(all, rs.Test{Field: addr, Ranges: []rs.Range{rs.One(rs.Value{}), mapped, group}, Not: !not})
	}
	if bits&type6Unspec != 0 {
		all = append(all, rs.Test{Field: addr, Ranges: []rs.Range{rs.One(rs.Value{})}, Not: not})
	}
	if looked := bits & type6Looked; looked != 0 {
		if looked&type6Unreachable != 0 {
			looked |= type6Refused
		}
		all = append(all, rs.Test{Field: field, Ranges: oneOf(looked), Not: not})
	}
	if not && len(all) > 1 {
		return []rs.Step{rs.AnyTest{Of: all}}
	}
	for _, t := range all {
		steps = append(steps, t)
	}
	return steps
}
