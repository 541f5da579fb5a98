// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"net/netip"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// specials lists the destinations that need more than the live lookup: routes with an mtu (the lookup honours
// locked ones only, and not for packets that are still to be segmented), realms, multipath hashed otherwise than by addresses, and attributes that are not understood. Routes with an
// encapsulation need no row, since the lookup itself refuses them. Destinations that sockets would take have one too.
func specials(net *model.Network) []Special {
	var rows []Special
	for _, r := range net.Routes.Notable {
		for _, family := range []model.Family{model.IP4, model.IP6} {
			other := model.IP4 + model.IP6 - family
			if r.Family == other {
				continue
			}
			otherwise := net.Sysctl.HashPolicy4 != 0 || net.Sysctl.UseNeigh4
			if family == model.IP6 {
				otherwise = net.Sysctl.HashPolicy6 != 0
			}
			if s, ok := special(r, family, otherwise); ok && !heeded(net, r, family, s) {
				rows = append(rows, s)
			}
		}
	}
	rows = append(rows, strays(net)...)
	slices.SortFunc(rows, comparePrefix)
	return fitting(cover(rows), mostSpecial)
}

// mostSpecial is how many rows of a family there may be: half of what their tables have room for (special4, special6), since those that come are written before those go that are no longer wanted.
const mostSpecial = 1 << 19

// fitting makes rows shorter until so many of a family suffice: what one says is then said of its neighbours, too, so that more packets than need be are Linux's.
func fitting(rows []Special, most int) []Special {
	for shorter := 8; ; shorter += 8 {
		var n4, n6 int
		for _, r := range rows {
			if r.Prefix.Addr().Is4() {
				n4++
			} else {
				n6++
			}
		}
		if n4 <= most && n6 <= most || shorter >= 128 {
			return rows
		}
		for i, r := range rows {
			length, many := r.Prefix.Addr().BitLen()-shorter, n6 > most
			if r.Prefix.Addr().Is4() {
				many = n4 > most
			}
			if many && r.Prefix.Bits() > length {
				rows[i].Prefix = netip.PrefixFrom(r.Prefix.Addr(), max(0, length)).Masked()
			}
		}
		slices.SortFunc(rows, comparePrefix)
		rows = cover(rows)
	}
}

// heeded says whether a row says no more than the lookup heeds anyway: that a route of IPv6 takes packets of the MTU of its device, as a router's advertisement gives it to both. The row of a
// default route would be everyone's.
func heeded(net *model.Network, r model.Route, family model.Family, s Special) bool {
	l := net.Link(r.Out)
	return family == model.IP6 && r.Family == model.IP6 && l != nil && l.MTU6 != 0 && int(s.MTU) >= l.MTU6 && !r.MTULocked && s.Always == reason.Fast
}

// strays are the destinations that connected sockets call their own address and that are this host's no more: Linux finds the socket before the route
// (early demultiplexing), and does not forward what has one.
func strays(net *model.Network) []Special {
	if len(net.Sockets.Locals) == 0 {
		return nil
	}
	own := map[netip.Addr]bool{}
	for _, a := range net.Addrs {
		own[a.Prefix.Addr()] = true
	}
	var rows []Special
	for _, a := range net.Sockets.Locals {
		if !own[a] {
			rows = append(rows, Special{Prefix: netip.PrefixFrom(a, a.BitLen()), Always: reason.TransparentSocket})
		}
	}
	return rows
}

const ip6MinMTU = 1280

// special is the row of a route, if it needs one. otherwise says that next hops are not chosen by addresses alone: by more of the packet, or by the state of neighbours, which has no event at each turn.
func special(r model.Route, family model.Family, otherwise bool) (Special, bool) {
	s := Special{Prefix: r.Prefix.Masked()}
	if s.Prefix.IsValid() && s.Prefix.Addr().Is4() != (family == model.IP4) {
		s.Prefix = netip.Prefix{}
	}
	if !s.Prefix.IsValid() {
		s.Prefix = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if family == model.IP4 {
			s.Prefix = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
	}
	s.MTU = r.MTU
	// IPv6 binds forwarded packets to a path MTU that was learned below a locked one; less than that cannot be learned.
	if r.MTULocked && family == model.IP6 {
		s.MTU = min(s.MTU, ip6MinMTU)
	}
	switch {
	case len(r.Unknown) > 0:
		s.Always = reason.RouteUnknown
	case r.Multipath && (otherwise || r.Resilient):
		s.Always = reason.RouteECMP
	case r.Realm:
		s.Always = reason.RouteRealm
	}
	return s, s.MTU != 0 || s.Always != reason.Fast
}

// comparePrefix orders by family, address and length.
func comparePrefix(a, b Special) int {
	if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
		return c
	}
	return a.Prefix.Bits() - b.Prefix.Bits()
}

// cover merges rows of one prefix and hands what a row says on to the rows inside it. In sorted order every row follows
// those that cover it, so a stack of the open ones is enough.
func cover(rows []Special) []Special {
	var out []Special
	var open []int // indexes in out of the rows that cover the current one, outermost first
	for _, r := range rows {
		if n := len(out); n > 0 && out[n-1].Prefix == r.Prefix {
			out[n-1] = merge(out[n-1], r)
			continue
		}
		for len(open) > 0 && !covers(out[open[len(open)-1]].Prefix, r.Prefix) {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			r = merge(r, out[open[len(open)-1]])
		}
		open = append(open, len(out))
		out = append(out, r)
	}
	return out
}

func covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func merge(a, b Special) Special {
	if a.MTU == 0 || b.MTU != 0 && b.MTU < a.MTU {
		a.MTU = b.MTU
	}
	if a.Always == reason.Fast {
		a.Always = b.Always
	}
	return a
}
