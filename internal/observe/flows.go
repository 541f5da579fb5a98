// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/datapath"
)

// protocols are those that people know by name.
var protocols = map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 47: "gre", 50: "esp", 58: "icmp6", 132: "sctp"}

// Flows lists the heaviest flows, heaviest first; it belongs into control.Engine.Do.
func Flows(d *datapath.Datapath, since time.Time) (*api.Flows, error) {
	all, packets, err := d.Flows()
	if err != nil {
		return nil, err
	}
	out := &api.Flows{Each: datapath.FlowsEach, Since: since, Packets: packets, Flows: []api.FlowRow{}}
	for _, f := range all {
		name := protocols[f.Protocol]
		if name == "" {
			name = strconv.Itoa(int(f.Protocol))
		}
		out.Flows = append(out.Flows, api.FlowRow{Protocol: name, From: f.From, To: f.To, Packets: f.Packets})
	}
	slices.SortFunc(out.Flows, func(a, b api.FlowRow) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Protocol, b.Protocol), a.From.Compare(b.From), a.To.Compare(b.To))
	})
	return out, nil
}
