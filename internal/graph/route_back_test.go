// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"testing"

	"github.com/shuntnet/shunt/internal/model"
)

// routed is a network in which the lookup for programs finds what Linux's own does, or does not.
type routed struct {
	what   string
	family model.Family
	policy ruleFacts
	net    model.Network
	want   bool
}

func sameRoute(t *testing.T, same func(*builder, model.Family, ruleFacts) bool, cases []routed) {
	t.Helper()
	for _, c := range cases {
		if got := same(&builder{net: &c.net}, c.family, c.policy); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
}

// TestRouteBack: the lookup for programs finds the sender's route as Linux does only where both have one table to look in, and in IPv6 one route for each prefix.
func TestRouteBack(t *testing.T) {
	sameRoute(t, (*builder).routeBack, []routed{
		{"plain", model.IP6, ruleFacts{}, model.Network{}, true},
		{"plain IPv4", model.IP4, ruleFacts{}, model.Network{Routes: model.RouteFacts{Shared6: true}, Links: []*model.Link{{Conf6: model.Conf6{IgnoreLinkdown: true}}}}, true},
		{"rules of one's own in IPv4", model.IP4, ruleFacts{custom: true}, model.Network{}, false},
		{"routes by TOS", model.IP4, ruleFacts{}, model.Network{Routes: model.RouteFacts{TOS4: true}}, false},
		{"a device whose IPv4 routes go with its carrier", model.IP4, ruleFacts{}, model.Network{Links: []*model.Link{{Conf4: model.Conf4{IgnoreLinkdown: true}}}}, false},
		{"all devices' IPv4 routes do", model.IP4, ruleFacts{}, model.Network{Sysctl: model.Sysctl{All4: model.Conf4{IgnoreLinkdown: true}}}, false},
		{"a VRF in IPv4", model.IP4, ruleFacts{}, model.Network{Links: []*model.Link{{Kind: kindVRF}}}, false},
		{"rules of one's own", model.IP6, ruleFacts{custom: true}, model.Network{}, false},
		{"a prefix with two routes", model.IP6, ruleFacts{}, model.Network{Routes: model.RouteFacts{Shared6: true}}, false},
		{"a device whose routes go with its carrier", model.IP6, ruleFacts{}, model.Network{Links: []*model.Link{{Conf6: model.Conf6{IgnoreLinkdown: true}}}}, false},
		{"all devices' routes do", model.IP6, ruleFacts{}, model.Network{Sysctl: model.Sysctl{All6: model.Conf6{IgnoreLinkdown: true}}}, false},
		{"a VRF", model.IP6, ruleFacts{}, model.Network{Links: []*model.Link{{Kind: kindVRF}}}, false},
	})
}

// TestTypes6: types of IPv6 addresses can be told where the route back can, and the tables and the host are as the kernel's own lookup has them.
func TestTypes6(t *testing.T) {
	router := model.Sysctl{All6: model.Conf6{Forwarding: true}}
	sameRoute(t, (*builder).types6, []routed{
		{"plain", model.IP6, ruleFacts{}, model.Network{Sysctl: router}, true},
		{"IPv4", model.IP4, ruleFacts{}, model.Network{Sysctl: router}, false},
		{"rules of one's own", model.IP6, ruleFacts{custom: true}, model.Network{Sysctl: router}, false},
		{"a prefix with two routes", model.IP6, ruleFacts{}, model.Network{Sysctl: router, Routes: model.RouteFacts{Shared6: true}}, false},
		{"a route for some sources", model.IP6, ruleFacts{}, model.Network{Sysctl: router, Routes: model.RouteFacts{Odd6: true}}, false},
		{"devices alone forward", model.IP6, ruleFacts{}, model.Network{}, false},
		{"a VRF", model.IP6, ruleFacts{}, model.Network{Sysctl: router, Links: []*model.Link{{Kind: kindVRF}}}, false},
	})
}
