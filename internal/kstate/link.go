// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// Attributes of a link that do not decide over forwarded packets: counters, names, limits of queues and offloads that only
// local or slow packets meet, and what is read in a better place.
var linkIgnored = setOf(
	unix.IFLA_BROADCAST, unix.IFLA_STATS, unix.IFLA_COST, unix.IFLA_PRIORITY, unix.IFLA_WIRELESS, unix.IFLA_TXQLEN, unix.IFLA_MAP,
	unix.IFLA_WEIGHT, unix.IFLA_OPERSTATE, unix.IFLA_LINKMODE, unix.IFLA_IFALIAS, unix.IFLA_NUM_VF, unix.IFLA_STATS64,
	unix.IFLA_EXT_MASK, unix.IFLA_NUM_TX_QUEUES, unix.IFLA_NUM_RX_QUEUES, unix.IFLA_PHYS_PORT_ID,
	unix.IFLA_CARRIER_CHANGES, unix.IFLA_PHYS_SWITCH_ID, unix.IFLA_PHYS_PORT_NAME,
	unix.IFLA_PAD, unix.IFLA_EVENT, unix.IFLA_CARRIER_UP_COUNT, unix.IFLA_CARRIER_DOWN_COUNT, unix.IFLA_MIN_MTU, unix.IFLA_MAX_MTU,
	unix.IFLA_PROP_LIST, unix.IFLA_PERM_ADDRESS, unix.IFLA_PARENT_DEV_NAME, unix.IFLA_PARENT_DEV_BUS_NAME,
	unix.IFLA_GRO_MAX_SIZE, unix.IFLA_TSO_MAX_SIZE, unix.IFLA_TSO_MAX_SEGS, unix.IFLA_ALLMULTI, unix.IFLA_DEVLINK_PORT,
	unix.IFLA_GRO_IPV4_MAX_SIZE,
	unix.IFLA_CARRIER,                                 // IFF_RUNNING says the same
	unix.IFLA_PROTO_DOWN, unix.IFLA_PROTO_DOWN_REASON, // shown as no carrier
	unix.IFLA_PROMISCUITY, // IFF_PROMISC and packet sockets say what matters
	unix.IFLA_PROTINFO,    // of bridge ports, whose IFLA_INFO_SLAVE_DATA says the same
	65, 66, 67, 68, 69,    // DPLL_PIN, MAX_PACING_OFFLOAD_HORIZON, NETNS_IMMUTABLE, HEADROOM, TAILROOM
)

// rawLink is what one RTM_NEWLINK message says.
type rawLink struct {
	model.Link
	qdisc string // IFLA_QDISC: kind of the root qdisc
	xdp   []rawProgram
}

type rawProgram struct {
	id   uint32
	hook string
}

func decodeLink(b []byte) (l rawLink, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return l, errors.New("link message too short")
	}
	flags := get32(b, 8)
	l.Type = get16(b, 2)
	l.Index = int(int32(get32(b, 4)))
	l.Up = flags&unix.IFF_UP != 0
	l.Running = flags&unix.IFF_RUNNING != 0
	l.Promisc = flags&unix.IFF_PROMISC != 0
	un := unknowns{where: fmt.Sprintf("link %d", l.Index)}
	peer := 0
	types, err := attrs(b[unix.SizeofIfInfomsg:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case unix.IFLA_GROUP:
			l.Group = ad.Uint32()
		case unix.IFLA_ADDRESS:
			if a := raw(ad); len(a) == len(l.MAC) {
				l.MAC = [6]byte(a)
			}
		case unix.IFLA_IFNAME:
			l.Name = ad.String()
			un.where = "link " + l.Name
		case unix.IFLA_MTU:
			l.MTU = int(ad.Uint32())
		case unix.IFLA_GSO_MAX_SEGS:
			l.GSOLimited = l.GSOLimited || ad.Uint32() < gsoSegments
		case unix.IFLA_GSO_MAX_SIZE, unix.IFLA_GSO_IPV4_MAX_SIZE:
			l.GSOLimited = l.GSOLimited || ad.Uint32() < gsoSize
		case unix.IFLA_LINK:
			peer = int(ad.Uint32())
		case unix.IFLA_LINK_NETNSID:
			l.PeerNS = true
		case unix.IFLA_QDISC:
			l.qdisc = ad.String()
		case unix.IFLA_MASTER:
			l.Master = int(ad.Uint32())
		case unix.IFLA_LINKINFO:
			return nested(ad, "linkinfo", &un, func(ad *netlink.AttributeDecoder) bool { return decodeLinkInfo(ad, &l, &un) })
		case unix.IFLA_AF_SPEC:
			return nested(ad, "af_spec", &un, func(ad *netlink.AttributeDecoder) bool { return decodeAFSpec(ad, &l, &un) })
		case unix.IFLA_XDP:
			return nested(ad, "xdp", &un, func(ad *netlink.AttributeDecoder) bool { return decodeXDP(ad, &l) })
		default:
			return linkIgnored[ad.Type()]
		}
		return true
	})
	un.attributes("link", types)
	// The other end of a veth or netkit is no lower device, and an ifindex of another namespace says nothing here.
	if !l.PeerNS && l.Kind != "veth" && l.Kind != "netkit" {
		l.Lower = peer
	}
	l.Unknown = un.list
	return l, err
}

func decodeLinkInfo(ad *netlink.AttributeDecoder, l *rawLink, un *unknowns) bool {
	switch ad.Type() {
	case unix.IFLA_INFO_KIND:
		l.Kind = ad.String()
	case unix.IFLA_INFO_SLAVE_KIND:
		l.MasterKind = ad.String()
	case unix.IFLA_INFO_DATA:
		// The kernel writes the kind before its data. Kinds without a case are for the graph to accept or refuse as such.
		switch l.Kind {
		case "vlan":
			return nested(ad, "vlan", un, func(ad *netlink.AttributeDecoder) bool { return decodeVLAN(ad, l) })
		case "vrf":
			return nested(ad, "vrf", un, func(ad *netlink.AttributeDecoder) bool {
				l.VRFTable = ad.Uint32()
				return ad.Type() == unix.IFLA_VRF_TABLE
			})
		case kindBridge:
			l.Bridge = &model.Bridge{}
			return nested(ad, kindBridge, un, func(ad *netlink.AttributeDecoder) bool { return decodeBridge(ad, l.Bridge) })
		case kindVXLAN:
			l.VXLAN = &model.VXLAN{}
			return nested(ad, kindVXLAN, un, func(ad *netlink.AttributeDecoder) bool { return decodeVXLAN(ad, l.VXLAN) })
		case "bond":
			l.Bond = &model.Bond{}
			return nested(ad, "bond", un, func(ad *netlink.AttributeDecoder) bool {
				if ad.Type() == unix.IFLA_BOND_MODE {
					l.Bond.Mode = ad.Uint8()
				}
				// Monitoring, timers, LACP and hash details: they choose the slave, which the bond itself does for us.
				return ad.Type() <= ifBondLacpStrict
			})
		}
	case unix.IFLA_INFO_SLAVE_DATA:
		switch l.MasterKind {
		case kindBridge:
			l.Port = &model.BridgePort{}
			return nested(ad, "bridge port", un, func(ad *netlink.AttributeDecoder) bool { return decodeBridgePort(ad, l.Port) })
		case "bond":
			return nested(ad, "bond slave", un, func(ad *netlink.AttributeDecoder) bool {
				if ad.Type() == unix.IFLA_BOND_SLAVE_STATE {
					l.BondActive = ad.Uint8() == 0 // BOND_STATE_ACTIVE
				}
				return true
			})
		}
	case unix.IFLA_INFO_XSTATS: // counters
	default:
		return false
	}
	return true
}

// ifBondLacpStrict is the last IFLA_BOND_* attribute looked at when this was written.
const ifBondLacpStrict = 36

func decodeVLAN(ad *netlink.AttributeDecoder, l *rawLink) bool {
	if l.VLAN == nil {
		l.VLAN = &model.VLAN{Proto: unix.ETH_P_8021Q}
	}
	switch ad.Type() {
	case unix.IFLA_VLAN_ID:
		l.VLAN.ID = ad.Uint16()
	case unix.IFLA_VLAN_FLAGS:
		if b := raw(ad); len(b) >= 4 {
			l.VLAN.Flags = get32(b, 0)
		}
	case unix.IFLA_VLAN_PROTOCOL:
		if b := raw(ad); len(b) == 2 {
			l.VLAN.Proto = binary.BigEndian.Uint16(b)
		}
	case unix.IFLA_VLAN_INGRESS_QOS, unix.IFLA_VLAN_EGRESS_QOS:
		l.VLAN.Maps = l.VLAN.Maps || len(raw(ad)) > 0
	default:
		return false
	}
	return true
}

func decodeXDP(ad *netlink.AttributeDecoder, l *rawLink) bool {
	switch ad.Type() {
	case unix.IFLA_XDP_DRV_PROG_ID:
		l.xdp = append(l.xdp, rawProgram{ad.Uint32(), "xdp"})
	case unix.IFLA_XDP_SKB_PROG_ID:
		l.xdp = append(l.xdp, rawProgram{ad.Uint32(), "xdp-generic"})
	case unix.IFLA_XDP_HW_PROG_ID:
		l.xdp = append(l.xdp, rawProgram{ad.Uint32(), "xdp-offload"})
	case unix.IFLA_XDP_ATTACHED, unix.IFLA_XDP_PROG_ID: // the same again, summed up
	default:
		return false
	}
	return true
}

// GSO_LEGACY_MAX_SIZE, GSO_MAX_SEGS (linux/netdevice.h): what devices take at once unless they are told otherwise.
const (
	gsoSize     = 65536
	gsoSegments = 65535
)

const skipStats = 1 << 3 // RTEXT_FILTER_SKIP_STATS

// linkRequest asks for one link, or for all with index 0. Statistics are left out.
func linkRequest(index int) request {
	fixed := make([]byte, unix.SizeofIfInfomsg)
	put32(fixed, 4, uint32(index))
	return request{proto: unix.NETLINK_ROUTE, typ: unix.RTM_GETLINK, dump: index == 0, body: body(fixed, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_EXT_MASK, skipStats)
	})}
}

// readLinks reads all links, or those in only. The parts of a link that come from elsewhere are carried over from the last
// reading, unless it is a new device.
func (r *Reader) readLinks(n *model.Network, only map[int]bool) {
	old := n.Links
	var links []*model.Link
	take := func(_ uint16, b []byte) error {
		raw, err := decodeLink(b)
		if err != nil {
			return err
		}
		l := r.finishLink(raw, n.Link(raw.Index))
		links = append(links, &l)
		return nil
	}
	if only == nil {
		err := r.ask("links", func() error {
			links = nil
			return r.k.netlink(linkRequest(0), take)
		})
		if err != nil {
			r.fault(Links, "links", err)
			return
		}
		r.readDevices(links, 0)
	} else {
		for index := range only {
			from := len(links)
			err := r.ask("link", func() error { return r.k.netlink(linkRequest(index), take) })
			if errors.Is(err, unix.ENODEV) {
				continue // gone; its addresses and the rest have their own events
			}
			if err != nil {
				r.fault(Links, fmt.Sprintf("link %d", index), err)
				continue
			}
			r.readDevices(links[from:], index)
		}
		links = replaced(old, links, only)
	}
	byIndex := func(a, b *model.Link) int { return a.Index - b.Index }
	if !slices.IsSortedFunc(links, byIndex) {
		slices.SortFunc(links, byIndex)
	}
	relate(links)
	n.Links = links
	r.forget(links)
}

// replaced gives the old links with those in only taken out and the new ones in their place.
func replaced(old, fresh []*model.Link, only map[int]bool) []*model.Link {
	slices.SortFunc(fresh, func(a, b *model.Link) int { return a.Index - b.Index })
	out := make([]*model.Link, 0, len(old)+len(fresh))
	for i := range old {
		for len(fresh) > 0 && fresh[0].Index < old[i].Index {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		if !only[old[i].Index] {
			out = append(out, old[i])
		}
	}
	return append(out, fresh...)
}

// finishLink adds to a decoded link what other sources said at the last reading.
func (r *Reader) finishLink(raw rawLink, old *model.Link) model.Link {
	l := raw.Link
	if l.Life = r.lives.life(l.Index); old != nil && old.Life != l.Life {
		old = nil // a new device with an old number
	}
	if old != nil {
		l.Qdiscs, l.TCFilters, l.TCX = old.Qdiscs, old.TCFilters, old.TCX
	}
	if old == nil && l.MTU6 > 0 && l.MTU6 < l.MTU || old != nil && old.MTU6 != l.MTU6 { // the message that says so will find it known
		r.routes.doubt = true
		r.stale |= Routes
	}
	// The kernel announces a new root qdisc made by a command, but not one made by bringing the device up.
	if r.qdisc[l.Index] != raw.qdisc || old == nil {
		r.qdisc[l.Index] = raw.qdisc
		if qs, told := byRoot(raw.qdisc, l.Qdiscs); told {
			l.Qdiscs = qs
		} else {
			r.stale |= TC
		}
	}
	if old == nil {
		r.fresh[l.Index] = true
		if l.Kind == kindBridge || l.Kind == "ipvlan" {
			r.stale |= Netfilter // the first of these hooks into netfilter, which nothing announces
		}
	}
	if old == nil || old.Name != l.Name {
		was := l.Name
		if old != nil {
			was = old.Name
		}
		r.noteDevice(was, l.Name)
		r.watchDevice(l.Name)
	}
	for _, p := range raw.xdp {
		l.XDP = append(l.XDP, r.programOf(p.id, p.hook))
	}
	return l
}

// relate fills in what follows from other links. Those of earlier readings are not changed, but others take their places.
func relate(links []*model.Link) {
	for i, l := range links {
		kind := l.MasterKind
		if l.Master == 0 {
			kind = ""
		} else if kind == "" {
			if j, ok := slices.BinarySearchFunc(links, l.Master, func(l *model.Link, want int) int { return l.Index - want }); ok {
				kind = links[j].Kind
			}
		}
		if l.Bond == nil && kind == l.MasterKind {
			continue
		}
		related := *l
		related.MasterKind = kind
		if l.Bond != nil {
			related.Bond = bondOf(l, links)
		}
		links[i] = &related
	}
}

// bondOf is a bond with its slaves.
func bondOf(bond *model.Link, links []*model.Link) *model.Bond {
	out := &model.Bond{Mode: bond.Bond.Mode}
	for _, s := range links {
		if s.Master != bond.Index {
			continue
		}
		out.Slaves = append(out.Slaves, s.Index)
		if s.BondActive {
			out.Active = append(out.Active, s.Index)
		}
	}
	return out
}

// forget drops what is kept by ifindex of devices that are gone.
func (r *Reader) forget(links []*model.Link) {
	r.lives.forget(links)
	if len(r.qdisc) <= len(links) {
		return
	}
	have := make(map[int]bool, len(links))
	for i := range links {
		have[links[i].Index] = true
	}
	for index := range r.qdisc {
		if !have[index] {
			delete(r.qdisc, index)
			delete(r.drivers, index)
		}
	}
}
