// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"path"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Kinds of links as IFLA_INFO_KIND names them; a NIC has none.
const (
	kindNIC  = ""
	kindVeth = "veth"
	kindVLAN = "vlan"
	kindBond = "bond"
	kindVRF  = "vrf"

	kindBridge = "bridge"
	kindVXLAN  = "vxlan"
	kindTap    = "tun" // with an Ethernet header
)

const (
	ethP8021Q      = 0x8100
	arphrdEther    = 1
	arphrdLoopback = 772
)

// portKinds are the kinds that programs are attached to and that packets leave by. Everything else is Linux's.
var portKinds = map[string]bool{kindNIC: true, kindVeth: true, kindVLAN: true, kindBond: true, kindTap: true, kindVXLAN: true}

// quietUppers are the kinds that name a device as their lower one without taking its frames by an rx_handler: VLANs, which
// the graph follows, tunnels, whose packets are addressed to this host, and the other end of a veth pair.
var quietUppers = map[string]bool{
	kindVLAN: true, kindVeth: true,
	kindVXLAN: true, "geneve": true, "gre": true, "gretap": true, "erspan": true, "ip6gre": true, "ip6gretap": true,
	"ip6erspan": true, "ipip": true, "sit": true, "ip6tnl": true, "vti": true, "vti6": true, "xfrm": true,
}

// VLAN_FLAG_*: without REORDER_HDR the tag stays in the frame that the VLAN device receives; GVRP, MVRP and loose binding
// are about control frames and operational state.
const (
	vlanReorder  = 0x1
	vlanHarmless = 0x1 | 0x2 | 0x4 | 0x8
)

// state gives the reasons that keep a device out in both directions: it is down or has properties that are not understood.
func (b *builder) state(l *model.Link) []Why {
	if !l.Up {
		return append([]Why{because(reason.LinkDown, "%s", l.Name)}, b.shape(l)...)
	}
	return b.shape(l)
}

// asked gives the reasons in what the user wants of shunt for a device.
func (b *builder) asked(l *model.Link) []Why {
	var why []Why
	if !b.wanted(l.Name) {
		why = append(why, because(reason.Excluded, "%s", l.Name))
	}
	switch {
	case b.policy.Paused:
		why = append(why, Why{Reason: reason.Paused})
	case slices.Contains(b.policy.PausedIf, l.Name):
		why = append(why, because(reason.Paused, "%s", l.Name))
	}
	return why
}

// shape gives the reasons in what a device is: its kind, header, and attributes.
func (b *builder) shape(l *model.Link) []Why {
	var why []Why
	switch {
	case l.Type != arphrdEther:
		why = append(why, because(reason.LinkNoEthernet, "%s has link type %d", l.Name, l.Type))
	case !portKinds[l.Kind] && l.Kind != kindVRF:
		why = append(why, because(reason.LinkKind, "%s is a %s", l.Name, l.Kind))
	}
	if l.Kind == kindVLAN {
		switch {
		case l.VLAN == nil || l.Lower == 0 && !l.PeerNS: // a lower device in another namespace is tc's business only
			why = append(why, because(reason.LinkAttribute, "%s: tag or lower device not known", l.Name))
		case l.VLAN.Flags&vlanReorder == 0 || l.VLAN.Flags&^vlanHarmless != 0:
			why = append(why, because(reason.LinkAttribute, "%s: VLAN flags %#x", l.Name, l.VLAN.Flags))
		}
	}
	if l.Kind == kindVXLAN {
		why = join(why, tunnel(l))
	}
	for _, u := range l.Unknown {
		why = append(why, because(reason.LinkAttribute, "%s: %s", u.Where, u.What))
	}
	return why
}

// master gives the reason in belonging to another device; a VRF is understood.
func (b *builder) master(l *model.Link) []Why {
	switch {
	case l.Master == 0 || l.MasterKind == kindVRF && b.net.Link(l.Master) != nil:
		return nil
	case l.MasterKind == kindVRF:
		return []Why{because(reason.LinkUpper, "%s: VRF %d not known", l.Name, l.Master)}
	}
	return []Why{because(reason.LinkUpper, "%s belongs to %s", l.Name, b.masterName(l))}
}

// stacked gives the reasons in devices on top that take this one's frames.
func (b *builder) stacked(l *model.Link) []Why {
	var why []Why
	for _, u := range b.uppers[l.Index] {
		if !quietUppers[u.Kind] {
			why = append(why, because(reason.LinkUpper, "%s carries %s %s", l.Name, u.Kind, u.Name))
		}
	}
	if l.Handled && len(why) == 0 {
		why = append(why, because(reason.LinkUpper, "%s carries a device in another namespace, such as a macvlan or ipvlan", l.Name))
	}
	return why
}

func (b *builder) masterName(l *model.Link) string {
	if m := b.net.Link(l.Master); m != nil {
		return fmt.Sprintf("%s %s", l.MasterKind, m.Name)
	}
	return fmt.Sprintf("%s %d", l.MasterKind, l.Master)
}

// vrf gives the VRF master of a device; nil when it has none.
func (b *builder) vrf(l *model.Link) *model.Link {
	if l.Master == 0 || l.MasterKind != kindVRF {
		return nil
	}
	return b.net.Link(l.Master)
}

// lowers gives the devices under a logical interface, from the interface itself down to the port, and the tags on the way,
// outer first. The last device is the port. A chain that cannot be followed ends where it breaks.
func (b *builder) lowers(l *model.Link) (chain []*model.Link, tags []model.VLAN) {
	for depth := 0; l != nil && depth < 8; depth++ {
		chain = append(chain, l)
		if l.Kind != kindVLAN || l.VLAN == nil || l.Lower == 0 {
			break
		}
		tags = append([]model.VLAN{*l.VLAN}, tags...)
		l = b.net.Link(l.Lower)
	}
	return chain, tags
}

// root is the device at the end of lowers.
func (b *builder) root(l *model.Link) *model.Link {
	for depth := 1; depth < 8 && l.Kind == kindVLAN && l.VLAN != nil && l.Lower != 0; depth++ {
		lower := b.net.Link(l.Lower)
		if lower == nil {
			break
		}
		l = lower
	}
	return l
}

// bondSlaves gives the slaves of a bond, ascending.
func (b *builder) bondSlaves(bond *model.Link) []*model.Link {
	var out []*model.Link
	if bond.Bond == nil {
		return nil
	}
	for _, i := range bond.Bond.Slaves {
		if s := b.net.Link(i); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// wanted applies the user's include and exclude globs.
func (b *builder) wanted(name string) bool {
	return (len(b.policy.Include) == 0 || matches(b.policy.Include, name)) && !matches(b.policy.Exclude, name)
}

// matches says whether any glob matches; a malformed glob matches nothing (the command line refuses those).
func matches(globs []string, name string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, name); ok && err == nil {
			return true
		}
	}
	return false
}
