// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"net/netip"

	"github.com/shuntnet/shunt/internal/model"
)

// named are ten configurations that an administrator would give a name to; their graphs are kept in testdata.
var named = map[string][]change{
	"plain-router": nil,
	"v6-only": {everywhere(func(l *model.Link) { l.Conf4.Forwarding = false }),
		network(func(n *model.Network) { n.Sysctl.All4.Forwarding = false })},
	"rp-filter-strict": {network(func(n *model.Network) { n.Sysctl.All4.RPFilter = 1 })},
	"vlan":             {with(vlan(5, "eth0.5", 2, 5)), with(vlan(6, "eth1.6", 3, 6)), with(vlan(7, "eth1.6.9", 6, 9))},
	"vrf":              {inVRF},
	"ecmp": {network(func(n *model.Network) {
		n.Routes.Notable = []model.Route{{Family: model.IP4, Table: 254, Prefix: netip.MustParsePrefix("10.9.0.0/16"), Multipath: true}}
	})},
	"route-mtu": {network(func(n *model.Network) {
		n.Routes.Notable = []model.Route{
			{Family: model.IP4, Table: 254, Prefix: netip.MustParsePrefix("10.8.0.0/16"), MTU: 1400},
			{Family: model.IP4, Table: 254, Prefix: netip.MustParsePrefix("10.8.1.0/24"), MTU: 1300},
			{Family: model.IP4, Table: 254, Prefix: netip.MustParsePrefix("10.7.0.0/16"), MTU: 1300, MTULocked: true},
		}
	})},
	"nft-forward-rules": {nf(model.NFHook{Family: model.IP4, Hook: "forward", Kind: model.NFTables, Table: "filter", Chain: "forward", Rules: 3, PolicyAccept: true})},
	"tcpdump":           {listener(model.PacketSocket{Index: 2, Protocol: ethPAll, Process: "tcpdump[123]"})},
	"veth-tc":           {everywhere(asVeth)},
}
