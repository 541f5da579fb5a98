// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// routeState is kept between reads: counts, and the routes that need care.
type routeState struct {
	news    uint64 // how many events there were, and readings of all
	count   map[model.Family]int
	notable map[routeKey]model.Route
	copies  map[routeKey]int // how often a notable route was added under the same key
	custom  bool
	tos     bool                // an IPv4 route asks for the TOS; stays so until the next full read
	prefix6 map[prefixKey]uint8 // IPv6 routes of the main table by their prefix, without those of every interface's own
	shared6 int                 // prefixes that have several, or several next hops, or one that expires
	odd6    bool                // these two, too, stay so until the next full read
	onLink6 uint8
	hops    map[uint32]nexthop
	valid   bool          // deltas may be applied
	doubt   bool          // a delta could not be decided; the next read starts anew
	changed bool          // something notable changed since the last read
	read    time.Time     // of the last full read
	cost    time.Duration // of the last full read
}

// apply adds what a next-hop object says, and enters the route if it needs care.
func (s *routeState) apply(rt *rawRoute) {
	s.custom = s.custom || rt.customLocal && rt.Family == model.IP4
	s.addNexthop(rt)
	if rt.key.tos != 0 && rt.Family == model.IP4 && !s.tos {
		s.tos, s.changed = true, true
	}
	s.share(rt, 1)
	s.types(rt)
	if !rt.notable() {
		return
	}
	if old, ok := s.notable[rt.key]; ok { // appended to a route with the same key: both may match
		rt.Route = merge(old, rt.Route)
	}
	s.notable[rt.key] = rt.Route
	s.copies[rt.key]++
	s.changed = true
}

// addNexthop adds what its next-hop object says of a route.
func (s *routeState) addNexthop(rt *rawRoute) {
	if h, ok := s.hops[rt.nexthop]; ok && rt.nexthop != 0 {
		rt.Multipath = rt.Multipath || h.group
		rt.Resilient = rt.Resilient || h.resilient
		rt.Encap = rt.Encap || h.encap
		rt.Unknown = append(rt.Unknown, h.unknown...)
	} else if rt.nexthop != 0 {
		s.doubt = true // an object that came after the last reading of objects
		rt.Unknown = append(rt.Unknown, model.Unknown{Where: "route " + rt.Prefix.String(), What: fmt.Sprintf("nexthop %d", rt.nexthop)})
	}
}

// share counts a route in or out among those of its prefix. Which of several goes is not always said: prefixes stay shared then until the next full read.
func (s *routeState) share(rt *rawRoute, n int) {
	if rt.Family != model.IP6 || rt.Table != unix.RT_TABLE_MAIN || rt.ofEveryLink() {
		return
	}
	key := prefixKey(append(rt.Prefix.Addr().AsSlice(), byte(rt.Prefix.Bits())))
	was := s.prefix6[key]
	now := was
	switch {
	case was == many || n > 0 && (rt.Multipath || rt.expires || was == many-1): // what has expired is found until it is collected, and by one lookup of two
		now = many
	case n > 0:
		now++
	case was > 0:
		now--
	}
	if (was > 1) != (now > 1) {
		before := s.shared6 > 0
		s.shared6 += cmp.Compare(now, was)
		s.changed = s.changed || before != (s.shared6 > 0)
	}
	if now == 0 {
		delete(s.prefix6, key)
	} else {
		s.prefix6[key] = now
	}
}

// types notes what makes the type of an address another than the lookup for programs tells: rules are told that of a lookup without a source (xt_addrtype), and without a
// device that would be preferred among routes of one prefix. The first address of a prefix on a link is anycast, whoever has it; a next-hop object may lead there tomorrow.
func (s *routeState) types(rt *rawRoute) {
	if rt.Family != model.IP6 || rt.ofEveryLink() {
		return
	}
	if rt.from || rt.Table == unix.RT_TABLE_LOCAL && rt.typ != unix.RTN_LOCAL && rt.typ != unix.RTN_ANYCAST {
		s.odd6, s.changed = true, s.changed || !s.odd6
	}
	if n := uint8(rt.Prefix.Bits()); rt.Table == unix.RT_TABLE_MAIN && rt.typ == unix.RTN_UNICAST && (!rt.gateway || rt.nexthop != 0) && n > 64 && n < 127 && n > s.onLink6 {
		s.onLink6, s.changed = n, true
	}
}

// prefixKey is an IPv6 prefix, address and length, without a pointer: a million of them are nothing for the collector to look at.
type prefixKey [17]byte

// many is how many routes of a prefix are not counted any more.
const many = 255

func merge(a, b model.Route) model.Route {
	if a.MTU != 0 && (b.MTU == 0 || a.MTU < b.MTU) {
		b.MTU = a.MTU
	}
	b.MTULocked = a.MTULocked || b.MTULocked
	if a.Out != b.Out {
		b.Out = 0
	}
	b.Encap, b.Realm, b.Multipath, b.Resilient = b.Encap || a.Encap, b.Realm || a.Realm, b.Multipath || a.Multipath, b.Resilient || a.Resilient
	b.Unknown = append(slices.Clip(a.Unknown), b.Unknown...)
	return b
}

// event applies the change that a route event tells of. In doubt a route stays notable until the next full read.
func (s *routeState) event(typ, flags uint16, b []byte) {
	if !s.valid {
		return
	}
	var rt rawRoute
	if err := decodeRoute(b, &rt); err != nil {
		s.doubt, s.changed = true, true
		return
	}
	if rt.cached {
		return
	}
	had := s.copies[rt.key]
	if typ == unix.RTM_DELROUTE {
		s.count[rt.Family]--
		s.share(&rt, -1)
		if had == 0 {
			return
		}
		s.changed = true
		// IPv6 says of one next hop among several that it goes as it says of a route, without the others.
		some := rt.Family == model.IP6 && rt.nexthop == 0 && s.notable[rt.key].Multipath && !rt.Multipath
		s.addNexthop(&rt)
		switch mine := rt.notable(); {
		case mine && had == 1 && !some:
			delete(s.notable, rt.key)
			delete(s.copies, rt.key)
		case mine:
			s.copies[rt.key] = max(1, had-1)
			s.doubt = true // which of them went is not said
		default: // one beside the notable ones, or a next hop of one
			s.doubt = true
		}
		return
	}
	if flags&unix.NLM_F_REPLACE != 0 {
		if had > 0 {
			s.doubt, s.changed = true, true // the notable one may be the replaced one
		}
		s.share(&rt, -1)
	} else {
		s.count[rt.Family]++
	}
	s.apply(&rt)
}

// Reading a million routes takes the better part of a second. Deltas are exact enough for a full read to be rare: not before
// routeRest, nor before routeShare times what the last one took, unless events were lost.
const (
	routeRest  = 10 * time.Second
	routeShare = 100
	// notableLimit bounds the memory for routes that need care for one and the same cause; beyond it they are replaced by
	// one entry for the whole table.
	notableLimit = 4096
)

func (r *Reader) readRoutes(n *model.Network) {
	s := &r.routes
	age := r.now().Sub(s.read)
	cheap := age > routeShare*s.cost
	if !s.valid || cheap && (s.doubt || age > routeRest) {
		r.readAllRoutes()
	}
	s.changed = false
	n.Routes = model.RouteFacts{
		Count4: s.count[model.IP4], Count6: s.count[model.IP6],
		Notable: collapse(s.notable),
		Custom4: s.custom, TOS4: s.tos, Shared6: s.shared6 > 0, Odd6: s.odd6, OnLink6: s.onLink6,
	}
	r.readPaths(n)
	r.readUnderlays(n)
}

func (r *Reader) readAllRoutes() {
	s := &r.routes
	start := r.now()
	s.valid = true
	s.news++
	if hops, err := r.readNexthops(); err != nil {
		r.fault(Routes, "nexthop objects", err)
		s.valid = false
	} else {
		s.hops = hops
	}
	s.notable, s.copies = map[routeKey]model.Route{}, map[routeKey]int{}
	s.custom, s.tos, s.doubt = false, false, false
	s.odd6, s.onLink6 = false, 0
	s.count = map[model.Family]int{}
	s.shared6 = 0
	if s.prefix6 == nil {
		s.prefix6 = map[prefixKey]uint8{}
	}
	clear(s.prefix6)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		of := model.IP4
		if family == unix.AF_INET6 {
			of = model.IP6
		}
		// An interrupted dump may have missed routes or shown some twice. What it found stays notable, which errs towards
		// Linux; only the counts start again.
		err := r.ask("routes", func() error {
			s.count[of] = 0
			return r.dumpRoutes(family, 0, func(rt *rawRoute) {
				if !rt.cached {
					s.count[of]++
					s.apply(rt)
				}
			})
		})
		if err != nil && !noFamily(family, err) {
			s.valid = false
			r.fault(Routes, fmt.Sprintf("routes of family %d", family), err)
		}
	}
	if r.lessons.redirects > 0 {
		r.readRedirected()
	}
	s.read = r.now()
	s.cost = s.read.Sub(start)
}

// readRedirected reads what Linux made of ICMP redirects: forwarded packets follow that, and the lookup for programs does not.
func (r *Reader) readRedirected() {
	r.exceptions(unix.AF_INET, func() {}, func(rt *rawRoute) {
		if rt.redirected {
			r.routes.apply(rt)
		}
	})
}

// exceptions reads what Linux keeps of single destinations; begin is called before each attempt.
func (r *Reader) exceptions(family byte, begin func(), each func(*rawRoute)) {
	err := r.ask("exceptions from routes", func() error {
		begin()
		return r.dumpRoutes(family, unix.RTM_F_CLONED, func(rt *rawRoute) {
			if rt.cached {
				each(rt)
			}
		})
	})
	if err != nil && !noFamily(family, err) {
		r.fault(Routes, fmt.Sprintf("exceptions from routes of family %d", family), err)
	}
}

// dumpRoutes asks for the routes of a family. The one that each is given is good until it returns: there may be a million.
func (r *Reader) dumpRoutes(family byte, flags uint32, each func(*rawRoute)) error {
	fixed := make([]byte, unix.SizeofRtMsg)
	fixed[0] = family
	put32(fixed, 8, flags)
	var rt rawRoute
	return r.k.netlink(request{proto: unix.NETLINK_ROUTE, typ: unix.RTM_GETROUTE, dump: true, body: fixed}, func(_ uint16, b []byte) error {
		if len(b) == 0 || b[0] != family {
			return nil
		}
		if err := decodeRoute(b, &rt); err != nil {
			return err
		}
		each(&rt)
		return nil
	})
}

// collapse lists the notable routes in order. A cause that very many routes of a table share becomes one route that covers
// the table.
func collapse(routes map[routeKey]model.Route) []model.Route {
	type cause struct {
		family                             model.Family
		table, mtu                         uint32
		locked, encap, realm, multi, resil bool
		unknown                            bool
	}
	of := func(r model.Route) cause {
		return cause{r.Family, r.Table, r.MTU, r.MTULocked, r.Encap, r.Realm, r.Multipath, r.Resilient, r.Unknown != nil}
	}
	count := map[cause]int{}
	for _, r := range routes {
		count[of(r)]++
	}
	var out []model.Route
	whole := map[cause]bool{}
	for _, r := range routes {
		if c := of(r); count[c] > notableLimit {
			if whole[c] {
				continue
			}
			whole[c] = true
			r.Prefix, r.Out = netip.PrefixFrom(zero(r.Family), 0), 0
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b model.Route) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Table, b.Table), a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()), cmp.Compare(a.MTU, b.MTU))
	})
	return out
}
