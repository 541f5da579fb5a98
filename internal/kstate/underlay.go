// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model"
)

// underlays is where Linux sends what tunnels wrap: each host in a tunnel's table of stations has a route of its own, by whatever device. No program sees
// that route, and which stations there are changes with what comes out of a tunnel; so it is asked for once a second.
type underlays struct {
	known []model.Underlay
	asked map[int]seenTunnel // by tunnel
	read  time.Time
	cost  time.Duration // of that reading, which takes one part of the time in underlayShare at most
}

// seenTunnel is what was found of a tunnel. As long as it has the same hosts and no route came or went, the routes to them are not asked again.
type seenTunnel struct {
	hosts map[station]bool
	news  uint64 // how many events there had been of routes
	way   model.Underlay
	known bool
}

const (
	underlayShare = 20
	// underlayHosts is how many hosts of a tunnel are asked for; of one with more it is not known where their packets go.
	underlayHosts = 4096
)

// rtmFFIBMatch asks for the route as it is configured, with all of its next hops, and not for what a packet would take (RTM_F_FIB_MATCH, linux/rtnetlink.h).
const rtmFFIBMatch = 0x2000

// underlaysDue reads them anew, and says whether anything is otherwise than at the last Read.
func (r *Reader) underlaysDue() bool {
	u := &r.underlays
	if !tunnels(&r.last) || r.now().Sub(u.read) < underlayShare*u.cost {
		return false
	}
	was := u.known
	r.findUnderlays(&r.last)
	return !reflect.DeepEqual(was, u.known)
}

// readUnderlays gives what is known of them; a tunnel that came is asked for at once.
func (r *Reader) readUnderlays(n *model.Network) {
	u := &r.underlays
	for _, l := range n.Links {
		if _, is := u.asked[l.Index]; l.Kind == kindVXLAN && !is {
			r.findUnderlays(n)
			break
		}
	}
	n.Routes.Underlays = u.known
}

func (r *Reader) findUnderlays(n *model.Network) {
	u := &r.underlays
	start, before := r.now(), u.asked
	u.known, u.asked = nil, map[int]seenTunnel{}
	for _, l := range n.Links {
		if l.Kind != kindVXLAN {
			continue
		}
		now := r.underlay(l.Index, before[l.Index])
		if u.asked[l.Index] = now; now.known {
			u.known = append(u.known, now.way)
		}
	}
	u.read, u.cost = start, r.now().Sub(start)
}

// station is a host in a tunnel's table, and the device that its entry names.
type station struct {
	host netip.Addr
	via  int
}

// errStation is an entry that does not say where its packets go.
var errStation = errors.New("an entry that is not understood")

// underlay asks for the hosts of a tunnel and the routes to them; it is not known where anything of that is not understood.
func (r *Reader) underlay(tunnel int, before seenTunnel) seenTunnel {
	now := seenTunnel{news: r.routes.news, way: model.Underlay{Tunnel: tunnel}}
	var err error
	now.hosts, err = r.stations(tunnel)
	switch {
	case err != nil, len(now.hosts) == 0, len(now.hosts) > underlayHosts: // one without hosts is about to get some
		return now
	case before.known && before.news == now.news && maps.Equal(before.hosts, now.hosts):
		return before
	}
	by := map[int]bool{}
	for s := range now.hosts {
		if s.via != 0 { // without a route a host is taken to be on that device's link (ip_route_output_key_hash_rcu())
			by[s.via] = true
		}
		if s.host.IsMulticast() && s.via == 0 || !s.host.IsMulticast() && !r.routeTo(s, by, &now.way.MTU) {
			return now
		}
	}
	now.way.Devices = slices.Sorted(maps.Keys(by))
	now.known = true
	return now
}

// stations lists the hosts that a tunnel sends to.
func (r *Reader) stations(index int) (map[station]bool, error) {
	// struct ndmsg, NDA_*
	const size, ifindex, flags, self, dst, device, group = 12, 4, 10, 1 << 1, 1, 8, 13
	fixed := make([]byte, size)
	fixed[0] = unix.AF_BRIDGE
	put32(fixed, ifindex, uint32(index))
	out := map[station]bool{}
	err := r.ask("stations of a tunnel", func() error {
		clear(out)
		return r.k.netlink(request{proto: unix.NETLINK_ROUTE, typ: unix.RTM_GETNEIGH, dump: true, body: fixed}, func(_ uint16, b []byte) error {
			if len(b) < size || int(get32(b, ifindex)) != index || b[flags]&self == 0 {
				return nil
			}
			var s station
			odd := false
			_, err := attrs(b[size:], func(ad *netlink.AttributeDecoder) bool {
				switch ad.Type() {
				case dst:
					s.host = address(raw(ad)).Unmap()
				case device:
					s.via = int(ad.Uint32())
				case group:
					odd = true
				}
				return true
			})
			if err == nil && (odd || !s.host.IsValid()) {
				err = errStation
			}
			out[s] = true
			return err
		})
	})
	return out, err
}

// routeTo adds the devices of the route to a host, and its MTU if that is less; false if it cannot be told. Where there is no route nothing is sent.
func (r *Reader) routeTo(s station, by map[int]bool, mtu *int) (known bool) {
	fixed := make([]byte, unix.SizeofRtMsg)
	fixed[0], fixed[1] = unix.AF_INET, 32
	if s.host.Is6() {
		fixed[0], fixed[1] = unix.AF_INET6, 128
	}
	put32(fixed, 8, rtmFFIBMatch)
	q := request{proto: unix.NETLINK_ROUTE, typ: unix.RTM_GETROUTE, body: body(fixed, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.RTA_DST, s.host.AsSlice())
		if s.via != 0 {
			ae.Uint32(unix.RTA_OIF, uint32(s.via))
		}
	})}
	found := false
	err := r.k.netlink(q, func(_ uint16, b []byte) error {
		var rt rawRoute
		if err := decodeRoute(b, &rt); err != nil {
			return err
		}
		if rt.Encap {
			return errStation
		}
		if n := int(rt.MTU); n != 0 && (*mtu == 0 || n < *mtu) {
			*mtu = n
		}
		_, err := attrs(b[unix.SizeofRtMsg:], func(ad *netlink.AttributeDecoder) bool {
			switch ad.Type() {
			case unix.RTA_OIF:
				by[int(ad.Uint32())], found = true, true
			case unix.RTA_MULTIPATH:
				for hops := raw(ad); len(hops) >= nhHeader; {
					n := int(get16(hops, 0))
					if n < nhHeader || n > len(hops) {
						break
					}
					by[int(get32(hops, 4))], found = true, true
					hops = hops[min(align4(n), len(hops)):]
				}
			}
			return true
		})
		found = found || rt.typ != unix.RTN_UNICAST && rt.typ != unix.RTN_LOCAL
		return err
	})
	switch {
	case err == nil:
		return found
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ESRCH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL) && !s.host.IsGlobalUnicast():
		return true
	}
	return false
}
