// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"bytes"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Multicast groups. Neighbours are not among them: the data path reads those live.
var (
	rtGroups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_TC, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_IFINFO,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF}
	routeGroups = []int{unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEXTHOP}
)

// rtEvents marks what a message of rtnetlink speaks of. A message that is not known may mean anything.
func rtEvents(r *Reader, h header, b []byte) {
	index := func(off int) int {
		if len(b) < off+4 {
			return 0
		}
		return int(int32(get32(b, off)))
	}
	switch h.typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if h.typ == unix.RTM_DELLINK && len(b) > 0 && b[0] == unix.AF_UNSPEC { // of another family it left a bridge
			r.lives.end(index(4))
		}
		if h.typ == unix.RTM_NEWLINK && len(b) > 0 && b[0] == unix.AF_INET6 && r.otherMTU6(index(4), b) {
			r.mtus6()
		}
		r.markLink(index(4))
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		r.markAddr(index(4))
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		r.mark(Rules)
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER, unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS,
		unix.RTM_NEWCHAIN, unix.RTM_DELCHAIN:
		r.mark(TC)
	case unix.RTM_NEWACTION, unix.RTM_DELACTION: // an action does nothing before a filter uses it
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		r.netconf(b)
	case unix.NLMSG_NOOP, unix.NLMSG_ERROR, unix.NLMSG_DONE:
	default:
		r.mark(Links | Addrs | Rules | TC | Sysctl)
	}
}

// mtus6 has routes read again, where IPv6 has got another MTU on a device: by a router's advertisement, or by a person. Linux gives that to routes, too, but tells of none.
func (r *Reader) mtus6() {
	r.routes.doubt = true
	r.dirty |= Routes
}

// otherMTU6 says whether a message about IPv6 on a device tells of another MTU than is known: there is one whenever a device comes up. One that has just come has no routes
// from before it, unless its MTU is its own alone.
func (r *Reader) otherMTU6(index int, b []byte) bool {
	if len(b) < unix.SizeofIfInfomsg {
		return true
	}
	device, of6 := -1, 0
	_, err := attrs(b[unix.SizeofIfInfomsg:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case unix.IFLA_MTU:
			device = int(ad.Uint32())
		case unix.IFLA_PROTINFO:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == unix.IFLA_INET6_CONF {
						of6 = conf(ad.Bytes(), conf6MTU)
					}
				}
				return nil
			})
		}
		return true
	})
	if l := r.last.Link(index); l != nil {
		device = l.MTU6
	}
	return err != nil || of6 != device
}

// netconf marks the device of a changed forwarding, rp_filter or similar switch; negative indexes stand for "all" and "default".
func (r *Reader) netconf(b []byte) {
	const header, netconfaIndex = 4, 1
	index := 0
	if len(b) >= header {
		attrs(b[header:], func(ad *netlink.AttributeDecoder) bool {
			if ad.Type() == netconfaIndex {
				index = int(int32(ad.Uint32()))
			}
			return true
		})
	}
	switch {
	case index > 0:
		r.markLink(index)
	default:
		r.mark(Sysctl)
	}
}

// routeEvents applies route changes to the routes that need care; only if one of those changed there is something to read.
func routeEvents(r *Reader, h header, b []byte) {
	r.routes.news++
	switch h.typ {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		r.routes.event(h.typ, h.flags, b)
		if r.routes.changed {
			r.dirty |= Routes
		}
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		r.nexthopEvent(h.typ, b)
	case unix.RTM_NEWNEXTHOPBUCKET, unix.RTM_DELNEXTHOPBUCKET: // which member a bucket leads to does not matter here
	default:
		r.lost(Routes)
	}
}

// nexthopEvent notes a changed next-hop object. If that makes routes notable, or one no longer notable, which routes those
// are is known only by reading all.
func (r *Reader) nexthopEvent(typ uint16, b []byte) {
	id, h, err := decodeNexthop(b)
	if err != nil || !r.routes.valid {
		r.lost(Routes)
		return
	}
	old, had := r.routes.hops[id]
	if typ == unix.RTM_DELNEXTHOP {
		delete(r.routes.hops, id) // its routes are removed with it
		return
	}
	for _, m := range h.members {
		h.encap = h.encap || r.routes.hops[m].encap
		h.unknown = append(h.unknown, r.routes.hops[m].unknown...)
	}
	plain := func(h nexthop) bool { return !h.group && !h.resilient && !h.encap && h.unknown == nil }
	r.routes.hops[id] = h
	if had && !(plain(old) && plain(h)) {
		r.routes.valid = false
		r.dirty |= Routes
	}
}

// netdevEvents marks a device whose driver can do something else than before.
func netdevEvents(r *Reader, _ header, b []byte) {
	index := 0
	if len(b) >= genlHeader {
		attrs(b[genlHeader:], func(ad *netlink.AttributeDecoder) bool {
			if ad.Type() == netdevIndex {
				index = int(ad.Uint32())
			}
			return true
		})
	}
	if index == 0 {
		r.mark(Links)
		return
	}
	r.markLink(index)
}

// moduleEvent looks for a module that was loaded: with nf_tables come the events that could not be subscribed to before, and
// legacy tables begin to exist.
func (r *Reader) moduleEvent(b []byte) {
	if bytes.HasPrefix(b, []byte("add@/module/")) {
		r.mark(Netfilter | XFRM)
	}
}

// subscribeNFT begins to listen to nf_tables. It must not be called before the module is there, since joining would load it.
func (r *Reader) subscribeNFT() {
	const group = 7 // NFNLGRP_NFTABLES
	if r.subscribed(nftSource) {
		return
	}
	if err := r.subscribe(nftSource, unix.NETLINK_NETFILTER, nftEvent, Netfilter, group); err != nil {
		r.fault(Netfilter, "nf_tables events", err)
	}
}

func (r *Reader) subscribeXFRM() {
	const name = "xfrm"
	if r.subscribed(name) {
		return
	}
	mark := func(r *Reader, _ header, _ []byte) { r.mark(XFRM) }
	if err := r.subscribe(name, unix.NETLINK_XFRM, mark, XFRM, xfrmGroupSA, xfrmGroupPolicy); err != nil {
		r.fault(XFRM, "xfrm events", err)
	}
}
