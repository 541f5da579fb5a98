// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"net"
	"sort"

	"github.com/vishvananda/netlink"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
)

var neighbourStates = map[int]string{
	netlink.NUD_INCOMPLETE: "incomplete", netlink.NUD_REACHABLE: "reachable", netlink.NUD_STALE: "stale", netlink.NUD_DELAY: "delay",
	netlink.NUD_PROBE: "probe", netlink.NUD_FAILED: "failed", netlink.NUD_NOARP: "noarp", netlink.NUD_PERMANENT: "permanent",
}

// Neighbours lists the next hops that XDP programs used, with what Linux has of them; it belongs into control.Engine.Do.
func Neighbours(s *control.State, d *datapath.Datapath) ([]api.NeighbourRow, error) {
	used, err := d.Neighbours()
	if err != nil {
		return nil, err
	}
	rows := []api.NeighbourRow{}
	for _, n := range used {
		row := api.NeighbourRow{Interface: name(s, n.Index), Address: n.Addr.String(), State: "none"}
		entries, err := netlink.NeighList(n.Index, n.Family)
		if err != nil {
			return nil, fmt.Errorf("listing the neighbours of %s: %w", row.Interface, err)
		}
		for _, e := range entries {
			if e.IP.Equal(net.IP(n.Addr.AsSlice())) {
				row.State, row.MAC = neighbourStates[e.State], e.HardwareAddr.String()
			}
		}
		rows = append(rows, row)
	}
	sort.Slice(rows, func(i, j int) bool {
		return rows[i].Interface < rows[j].Interface || rows[i].Interface == rows[j].Interface && rows[i].Address < rows[j].Address
	})
	return rows, nil
}
