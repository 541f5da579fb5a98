// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// linux/nexthop.h, which x/sys/unix has only in part.
const (
	nhMsg = 8 // struct nhmsg

	nhaID         = 1
	nhaGroup      = 2
	nhaGroupType  = 3
	nhaBlackhole  = 4
	nhaOIF        = 5
	nhaGateway    = 6
	nhaEncapType  = 7
	nhaEncap      = 8
	nhaMaster     = 10
	nhaFDB        = 11
	nhaResGroup   = 12
	nhaOpFlags    = 14
	nhaGroupStats = 15
	nhaHWStatsOn  = 16
	nhaHWStatsUse = 17

	nhGroupResilient = 1
	nhGroupEntry     = 8 // struct nexthop_grp
)

// nexthop is what a next-hop object means for the routes that use it.
type nexthop struct {
	group     bool // more than one member
	resilient bool
	encap     bool
	unknown   []model.Unknown
	members   []uint32
}

func decodeNexthop(b []byte) (id uint32, h nexthop, err error) {
	if len(b) < nhMsg {
		return 0, h, errors.New("nexthop message too short")
	}
	types, err := attrs(b[nhMsg:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case nhaID:
			id = ad.Uint32()
		case nhaGroup:
			for g := raw(ad); len(g) >= nhGroupEntry; g = g[nhGroupEntry:] {
				h.members = append(h.members, get32(g, 0))
			}
			h.group = len(h.members) > 1
		case nhaGroupType:
			switch ad.Uint16() {
			case 0:
			case nhGroupResilient:
				h.resilient = true
			default:
				return false
			}
		case nhaEncap, nhaEncapType:
			h.encap = true
		case nhaBlackhole, nhaOIF, nhaGateway, nhaMaster, nhaFDB, nhaResGroup, nhaOpFlags, nhaGroupStats:
			// the lookup honours them; a group of FDB next hops is for VXLAN only
		case nhaHWStatsOn, nhaHWStatsUse:
			return ad.Uint32() == 0 // packets are counted in hardware
		default:
			return false
		}
		return true
	})
	un := unknowns{where: fmt.Sprintf("nexthop %d", id)}
	un.attributes("nexthop", types)
	h.unknown = un.list
	return id, h, err
}

// readNexthops reads all next-hop objects; a group inherits what its members are.
func (r *Reader) readNexthops() (map[uint32]nexthop, error) {
	var hops map[uint32]nexthop
	err := r.ask("nexthops", func() error {
		hops = map[uint32]nexthop{}
		return r.k.netlink(request{proto: unix.NETLINK_ROUTE, typ: unix.RTM_GETNEXTHOP, dump: true, body: make([]byte, nhMsg)}, func(_ uint16, b []byte) error {
			id, h, err := decodeNexthop(b)
			if err == nil {
				hops[id] = h
			}
			return err
		})
	})
	for id, h := range hops {
		for _, m := range h.members {
			h.encap = h.encap || hops[m].encap
			h.unknown = append(h.unknown, hops[m].unknown...)
		}
		hops[id] = h
	}
	return hops, err
}
