// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"github.com/mdlayher/netlink"

	"github.com/shuntnet/shunt/internal/model"
)

const kindBridge = "bridge"

// IFLA_BR_*, include/uapi/linux/if_link.h.
const (
	brAgeing        = 4
	brVLANFiltering = 7
	brNFCall4       = 36
	brNFCall6       = 37
	brNFCallARP     = 38
	brMultiBoolopt  = 46
	brLast          = 50 // STP_MODE: who runs the spanning tree
)

// Attributes of a bridge that do not decide over known unicast between ports: spanning tree (ports' states are read live), timers, group
// addresses and multicast (groups are Linux's), VLANs (a bridge that filters by them is), limits of learning (what is not learned is Linux's).
var bridgeIgnored = func() map[uint16]bool {
	out := map[uint16]bool{}
	for i := uint16(1); i <= brLast; i++ {
		out[i] = true
	}
	return out
}()

// boolopts are the bits of IFLA_BR_MULTI_BOOLOPT. no_linklocal_learn concerns frames to link-local groups alone.
var boolopts = []string{"", "mcast_vlan_snooping", "mst_enabled", "mdb_offload_fail_notification", "fdb_local_vlan_0"}

func decodeBridge(ad *netlink.AttributeDecoder, b *model.Bridge) bool {
	call := func(name string) {
		if ad.Uint8() != 0 {
			b.NFCall = append(b.NFCall, name)
		}
	}
	switch typ := ad.Type(); typ {
	case brAgeing:
		b.Ageing = ad.Uint32()
	case brVLANFiltering:
		b.VLANFiltering = ad.Uint8() != 0
	case brNFCall4:
		call("nf_call_iptables")
	case brNFCall6:
		call("nf_call_ip6tables")
	case brNFCallARP:
		call("nf_call_arptables")
	case brMultiBoolopt: // struct br_boolopt_multi: values, and which of them this kernel has
		v := raw(ad)
		if len(v) < 8 {
			return false
		}
		for bit := range 32 {
			switch on := get32(v, 0)&(1<<bit) != 0; {
			case !on || bit == 0:
			case bit < len(boolopts):
				b.On = append(b.On, boolopts[bit])
			default:
				return false
			}
		}
	default:
		return bridgeIgnored[typ]
	}
	return true
}

// IFLA_BRPORT_*, of which these are switches that are not modelled; at 0 they do nothing.
var portSwitches = map[uint16]string{
	10: "proxy_arp", 12: "proxy_arp_wifi", 29: "vlan_tunnel", 32: "neigh_suppress", 34: "backup_port", 35: "mrp_ring_open", 36: "mrp_in_open",
	39: "locked", 40: "mab", 43: "neigh_vlan_suppress", 44: "backup_nhid", 45: "neigh_forward_grat",
}

const (
	brportIsolated = 33
	brportLast     = 45
)

// decodeBridgePort takes what decides over known unicast. State, learning and hairpin are read live; flooding, multicast, costs and timers
// are about other frames.
func decodeBridgePort(ad *netlink.AttributeDecoder, p *model.BridgePort) bool {
	typ := ad.Type()
	if typ == brportIsolated {
		p.Isolated = ad.Uint8() != 0
		return true
	}
	name, odd := portSwitches[typ]
	if odd {
		for _, b := range raw(ad) {
			if b != 0 {
				p.On = append(p.On, name)
				break
			}
		}
		return true
	}
	return typ != 0 && typ <= brportLast
}
