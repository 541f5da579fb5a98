// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// Attributes of a route that the kernel's lookup honours by itself, or that do not matter to forwarded packets. What is
// missing here and below (and type numbers from 12 on) becomes Unknown.
var routeIgnored = setOf(unix.RTA_DST, unix.RTA_SRC, unix.RTA_IIF, unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_PRIORITY, unix.RTA_PREFSRC,
	rtaProtoInfo, unix.RTA_CACHEINFO, unix.RTA_TABLE, unix.RTA_VIA, unix.RTA_PREF, unix.RTA_EXPIRES, unix.RTA_PAD, unix.RTA_UID,
	rtaNexthopID, unix.RTA_METRICS, unix.RTA_MULTIPATH, unix.RTA_FLOW, unix.RTA_ENCAP, unix.RTA_ENCAP_TYPE)

const (
	rtaProtoInfo = 10
	rtaNexthopID = 30

	rtcfRedirected = 0x00040000 // RTCF_REDIRECTED

	rtnXResolve = 11 // last known route type
	rtaxMTU     = 2
	rtaxLock    = 1
	rtaxLast    = 17 // RTAX_FASTOPEN_NO_COOKIE
	nhHeader    = 8  // struct rtnexthop

	cacheExpires = 8 // offset of rta_expires in struct rta_cacheinfo
)

// routeKey is what the kernel tells routes of a table apart by. Routes appended to each other can share it.
type routeKey struct {
	family model.Family
	table  uint32
	prefix netip.Prefix
	tos    uint8
	metric uint32
}

// rawRoute is what one route message says.
type rawRoute struct {
	model.Route
	key         routeKey
	nexthop     uint32 // RTA_NH_ID
	customLocal bool   // of type local and not made by the kernel for an address
	cached      bool   // an exception, not configuration
	redirected  bool   // one of IPv4 that leads elsewhere: learned from an ICMP redirect
	expires     bool   // with the time
	typ         uint8  // RTN_*
	from        bool   // asks for the source
	gateway     bool
}

// notable says whether a route needs care by itself; its next-hop object may add to that.
func (r *rawRoute) notable() bool {
	return r.MTU != 0 || r.Encap || r.Realm || r.Multipath || r.Resilient || r.Unknown != nil
}

// ofEveryLink says whether a route is one of those that each interface has: for addresses of its link, and of groups.
func (r *rawRoute) ofEveryLink() bool {
	return r.Prefix.Bits() > 0 && (r.Prefix.Addr().IsLinkLocalUnicast() || r.Prefix.Addr().IsMulticast())
}

func decodeRoute(b []byte, rt *rawRoute) error {
	if len(b) < unix.SizeofRtMsg {
		return errors.New("route message too short")
	}
	*rt = rawRoute{}
	dstLen := b[1]
	rt.Family = model.IP4
	if b[0] == unix.AF_INET6 {
		rt.Family = model.IP6
	}
	rt.Table = uint32(b[4])
	rt.typ, rt.from = b[7], b[2] != 0
	rt.customLocal = b[7] == unix.RTN_LOCAL && b[5] != unix.RTPROT_KERNEL
	rt.cached = get32(b, 8)&unix.RTM_F_CLONED != 0
	rt.redirected = rt.cached && rt.Family == model.IP4 && get32(b, 8)&rtcfRedirected != 0
	rt.key.tos = b[3]
	dst := zero(rt.Family)
	var un unknowns
	types, err := attrs(b[unix.SizeofRtMsg:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case unix.RTA_DST:
			dst = address(raw(ad))
		case unix.RTA_TABLE:
			rt.Table = ad.Uint32()
		case unix.RTA_PRIORITY:
			rt.key.metric = ad.Uint32()
		case unix.RTA_GATEWAY:
			rt.gateway = true
		case unix.RTA_OIF:
			rt.Out = int(ad.Uint32())
		case rtaNexthopID:
			rt.nexthop = ad.Uint32()
		case unix.RTA_CACHEINFO: // struct rta_cacheinfo
			ci := raw(ad)
			rt.expires = rt.expires || len(ci) < cacheExpires+4 || get32(ci, cacheExpires) != 0
		case unix.RTA_EXPIRES:
			rt.expires = true
		case unix.RTA_FLOW:
			rt.Realm = true
		case unix.RTA_ENCAP, unix.RTA_ENCAP_TYPE:
			rt.Encap = true
		case unix.RTA_METRICS:
			return nested(ad, "metrics", &un, func(ad *netlink.AttributeDecoder) bool {
				switch ad.Type() {
				case rtaxLock:
					rt.MTULocked = ad.Uint32()&(1<<rtaxMTU) != 0
				case rtaxMTU:
					rt.MTU = ad.Uint32()
				}
				return ad.Type() <= rtaxLast // the others are for local sockets
			})
		case unix.RTA_MULTIPATH:
			return decodeMultipath(raw(ad), rt)
		default:
			return routeIgnored[ad.Type()]
		}
		return true
	})
	if rt.nexthop != 0 { // which may lead elsewhere without a word about the route
		rt.Out = 0
	}
	rt.Prefix = prefix(dst, dstLen)
	rt.key = routeKey{rt.Family, rt.Table, rt.Prefix, rt.key.tos, rt.key.metric}
	if b[7] > rtnXResolve {
		un.add("type %d", b[7])
	}
	if rt.redirected {
		un.add("learned from an ICMP redirect")
	}
	un.attributes("route", types)
	if un.list != nil {
		where := fmt.Sprintf("route %s table %d", rt.Prefix, rt.Table)
		for i := range un.list {
			un.list[i].Where = where
		}
	}
	rt.Unknown = un.list
	return err
}

// decodeMultipath walks the array of struct rtnexthop, each followed by its attributes; false if one is not understood.
func decodeMultipath(b []byte, rt *rawRoute) bool {
	hops := 0
	for len(b) >= nhHeader {
		n := int(get16(b, 0))
		if n < nhHeader || n > len(b) {
			return false
		}
		unknown, err := attrs(b[nhHeader:n], func(ad *netlink.AttributeDecoder) bool {
			switch ad.Type() {
			case unix.RTA_ENCAP, unix.RTA_ENCAP_TYPE:
				rt.Encap = true
			case unix.RTA_FLOW:
				rt.Realm = true
			case unix.RTA_GATEWAY, unix.RTA_VIA:
			default:
				return false
			}
			return true
		})
		if err != nil || unknown != nil {
			return false
		}
		hops++
		b = b[min(align4(n), len(b)):]
	}
	rt.Multipath = rt.Multipath || hops > 1
	return true
}
