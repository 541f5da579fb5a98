// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"github.com/mdlayher/netlink"

	"github.com/shuntnet/shunt/internal/model"
)

const kindVXLAN = "vxlan"

// IFLA_VXLAN_*, include/uapi/linux/if_link.h.
const (
	vxlanLink   = 3
	vxlanGroup6 = 16
	vxlanLocal6 = 17
)

// vxlanLast is the last IFLA_VXLAN_* attribute looked at when this was written (MC_ROUTE, include/uapi/linux/if_link.h).
const vxlanLast = 34

// IFLA_VXLAN_* of which these are switches that change what a frame is to the rest of the host, not only how it is encapsulated: metadata beside the frame
// (collect_metadata, vnifilter), a mark in it (gbp), no Ethernet header (gpe), checksums left out of it (remcsum).
var vxlanSwitches = map[uint16]string{21: "remcsumtx", 22: "remcsumrx", 23: "gbp", 24: "remcsum_nopartial", 25: "external", 27: "gpe", 30: "vnifilter"}

// decodeVXLAN takes what concerns others than the device itself. Encapsulating and decapsulating stay the device's: addresses, ports, its table of
// stations and what it learns, TTL, TOS, flow label, checksums, PMTU, and what it answers or asks itself.
func decodeVXLAN(ad *netlink.AttributeDecoder, v *model.VXLAN) bool {
	typ := ad.Type()
	switch typ {
	case vxlanLink:
		v.Lower = int(ad.Uint32())
	case vxlanGroup6, vxlanLocal6:
		v.IP6 = true
	}
	name, odd := vxlanSwitches[typ]
	if !odd {
		return typ != 0 && typ <= vxlanLast
	}
	if b := raw(ad); len(b) == 0 || b[0] != 0 { // some are flags without a value
		v.On = append(v.On, name)
	}
	return true
}
