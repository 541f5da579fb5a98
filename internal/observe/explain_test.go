// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"net"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
)

// TestMTUFor: what is told of a packet that is too long for IPv6 is the MTU of that.
func TestMTUFor(t *testing.T) {
	l := &model.Link{MTU: 1500, MTU6: 1400}
	if four, six := mtuFor(l, net.ParseIP("10.0.0.1")), mtuFor(l, net.ParseIP("fd00::1")); four != 1500 || six != 1400 {
		t.Errorf("%d for IPv4, %d for IPv6", four, six)
	}
}

// What a member of a bond receives is the bond's, but for members that Linux does not listen to.
func TestReceiver(t *testing.T) {
	plain, bridge, bond := &model.Link{Index: 1}, &model.Link{Index: 2, Kind: "bridge"}, &model.Link{Index: 3, Kind: "bond", Bond: &model.Bond{Slaves: []int{4, 5}, Active: []int{4}}}
	active, backup, port := &model.Link{Index: 4, Master: 3}, &model.Link{Index: 5, Master: 3}, &model.Link{Index: 6, Master: 2}
	net := &model.Network{Links: []*model.Link{plain, bridge, bond, active, backup, port}}
	for link, want := range map[*model.Link]*model.Link{plain: plain, active: bond, backup: backup, port: port, bond: bond} {
		if got := receiver(net, link); got != want {
			t.Errorf("device %d: the packets are those of %d, want %d", link.Index, got.Index, want.Index)
		}
	}
}
