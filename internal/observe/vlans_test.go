// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	"github.com/vishvananda/netlink/nl"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/packet"
)

func TestHandedOn(t *testing.T) {
	const pvid, untagged = nl.BRIDGE_VLAN_INFO_PVID, nl.BRIDGE_VLAN_INFO_UNTAGGED
	p := &graph.Port{Index: 2, Bridge: &graph.Member{Index: 9, VLANs: true}, Inputs: []graph.Input{
		{Name: "br0"}, {Name: "br0.5", VLANs: []model.VLAN{{Proto: 0x8100, ID: 5}}}, {Name: "br0.7", VLANs: []model.VLAN{{Proto: 0x8100, ID: 7}}},
	}}
	all := map[int32][]*nl.BridgeVlanInfo{
		2: {{Vid: 1}, {Vid: 5, Flags: pvid | untagged}, {Vid: 6}},
		9: {{Vid: 1, Flags: pvid | untagged}, {Vid: 5}, {Vid: 7, Flags: untagged}, {Vid: 8}},
	}
	for _, c := range []struct {
		what string
		tags []packet.Tag
		want string
	}{
		{"the port's PVID", nil, "br0.5"},
		{"the bridge's own VLAN", []packet.Tag{{Proto: 0x8100, ID: 1}}, "br0"},
		{"one that has a device and leaves without a tag", []packet.Tag{{Proto: 0x8100, ID: 7}}, "br0"},
		{"one that the bridge is not in", []packet.Tag{{Proto: 0x8100, ID: 6}}, ""},
		{"one without a device", []packet.Tag{{Proto: 0x8100, ID: 8}}, ""},
		{"two tags", []packet.Tag{{Proto: 0x8100, ID: 5}, {Proto: 0x8100, ID: 5}}, ""},
	} {
		got := ""
		if in := handedOn(p, c.tags, all); in != nil {
			got = in.Name
		}
		if got != c.want {
			t.Errorf("%s: by %q, want %q", c.what, got, c.want)
		}
	}
}
