// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Bytes that a vxlan device puts in front of an inner IP packet (vxlan_headroom()): an Ethernet, a VXLAN, a UDP and an IP header.
const (
	vxlanHeadroom4 = 14 + 8 + 8 + 20
	vxlanHeadroom6 = 14 + 8 + 8 + 40
)

// tunnel gives the reasons in what a vxlan device does to frames beside encapsulating and decapsulating them.
func tunnel(l *model.Link) []Why {
	if l.VXLAN == nil {
		return []Why{because(reason.LinkAttribute, "%s: its options are not known", l.Name)}
	}
	var why []Why
	for _, o := range l.VXLAN.On {
		why = append(why, because(reason.LinkAttribute, "%s: %s", l.Name, o))
	}
	return why
}

// exceeds gives the reason why a logical interface cannot be entered that leads into a tunnel and lets packets be longer than the tunnel's underlay carries. The
// device then writes the path's MTU down in the route that the packet came by (skb_tunnel_check_pmtu()), and routed packets that shunt hands to it have none. Frames
// from a bridge have none in Linux either.
func (b *builder) exceeds(l, tunnel *model.Link) []Why {
	if tunnel.VXLAN == nil {
		return nil // said by tunnel()
	}
	if tunnel.PeerNS { // the device was moved; its packets stay where it was made (vxlan->net), and so do the indexes of IFLA_VXLAN_LINK
		return []Why{because(reason.TunnelMTU, "%s: its underlay is in another namespace", l.Name)}
	}
	room, by := b.underlay(tunnel)
	if head := headroom(tunnel.VXLAN); by != "" && l.MTU+head > room {
		return []Why{because(reason.TunnelMTU, "%s: %d bytes and %d of headers are more than %d of %s", l.Name, l.MTU, head, room, by)}
	}
	return nil
}

func headroom(v *model.VXLAN) int {
	if v.IP6 {
		return vxlanHeadroom6
	}
	return vxlanHeadroom4
}

// underlay gives the least that may bind a tunnel's packets, and what does: the devices of the routes to its hosts and the MTU of such a route, and that of any path that Linux learned.
func (b *builder) underlay(tunnel *model.Link) (mtu int, by string) {
	least := func(n int, who string) {
		if n != 0 && (by == "" || n < mtu) {
			mtu, by = n, who
		}
	}
	device := func(l *model.Link) {
		least(l.MTU, l.Name)
		if tunnel.VXLAN.IP6 {
			least(l.MTU6, l.Name)
		}
	}
	if u := b.routesOf(tunnel); u != nil {
		// Entries that come are seen within a second, and most go by the device that the tunnel names.
		if l := b.net.Link(tunnel.VXLAN.Lower); l != nil && l.Kind != kindVRF {
			device(l)
		}
		for _, index := range u.Devices {
			if l := b.net.Link(index); l != nil {
				device(l)
			}
		}
		least(u.MTU, "a route")
	} else {
		b.anyUnderlay(tunnel, device, least)
	}
	path := b.net.Routes.Path4
	if tunnel.VXLAN.IP6 {
		path = b.net.Routes.Path6
	}
	least(int(path), "a path, as Linux learned from ICMP")
	return mtu, by
}

// routesOf is where the packets of a tunnel leave by; nil where that is not known, or hangs on more than their receiver.
func (b *builder) routesOf(tunnel *model.Link) *model.Underlay {
	rules := b.rules4
	if tunnel.VXLAN.IP6 {
		rules = b.rules6
	}
	all := b.net.Routes.Underlays
	i := slices.IndexFunc(all, func(u model.Underlay) bool { return u.Tunnel == tunnel.Index })
	if i < 0 || rules.custom {
		return nil
	}
	return &all[i]
}

// anyUnderlay gives what may be a tunnel's underlay where its routes are not known: the device that it names, else every one that is no port of a bridge and no tunnel, and
// the MTU of any route.
func (b *builder) anyUnderlay(tunnel *model.Link, device func(*model.Link), least func(int, string)) {
	named := b.net.Link(tunnel.VXLAN.Lower)
	if named != nil && named.Kind == kindVRF { // whose own MTU binds nothing: packets leave by its slaves
		named = nil
	}
	for i := range b.net.Links {
		l := b.net.Links[i]
		switch {
		case l == named:
			device(l)
		case named != nil, l.Type == arphrdLoopback, l.Kind == kindVXLAN, b.bridge(l) != nil:
		case l.Type == arphrdEther, l.Up && l.Running: // another tunnel may be the underlay; what has no Ethernet header and is down is no news
			device(l)
		}
	}
	family := model.IP4
	if tunnel.VXLAN.IP6 {
		family = model.IP6
	}
	for _, r := range b.net.Routes.Notable {
		if other := model.IP4 + model.IP6 - family; r.MTU != 0 && r.Family != other {
			least(int(r.MTU), "a route")
		}
	}
}
