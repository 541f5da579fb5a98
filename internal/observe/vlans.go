// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/packet"
)

// up is the logical interface that a frame for this host enters by which a port of a bridge receives that filters by VLAN, by what Linux says of the VLANs of both at this
// moment; nil where there is none. It must be called in the namespace.
func up(p *graph.Port, frame []byte) *graph.Input {
	all, err := netlink.BridgeVlanList()
	if err != nil {
		return nil
	}
	return handedOn(p, packet.Tags(frame), all)
}

// handedOn finds the VLAN of a frame by its tag or the port's PVID, and how the bridge's own device hands it on.
func handedOn(p *graph.Port, tags []packet.Tag, all map[int32][]*nl.BridgeVlanInfo) *graph.Input {
	id := uint16(0)
	switch len(tags) {
	case 0:
		for _, v := range all[int32(p.Index)] {
			if v.PortVID() {
				id = v.Vid
			}
		}
	case 1:
		id = tags[0].ID
	}
	for _, v := range all[int32(p.Bridge.Index)] {
		if id == 0 || v.Vid != id {
			continue
		}
		for i := range p.Inputs {
			in := &p.Inputs[i]
			if v.EngressUntag() && len(in.VLANs) == 0 || !v.EngressUntag() && len(in.VLANs) == 1 && in.VLANs[0].ID == id {
				return in
			}
		}
	}
	return nil
}
