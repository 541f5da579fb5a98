// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model"
)

// TestStations: at a port of a bridge a packet comes from the station that would send it and goes to the one that has its address; nobody is guessed among several.
func TestStations(t *testing.T) {
	br, port := &model.Link{Index: 9, Name: "br0", MAC: [6]byte{2, 0, 0, 0, 0, 9}}, &model.Link{Index: 2, Name: "eth0", Master: 9, Port: &model.BridgePort{}}
	network := &model.Network{Links: []*model.Link{port, {Index: 3, Name: "eth1"}, {Index: 4, Name: "eth2", Master: 9}, br, {Index: 10, Name: "br0.5", Lower: 9}}}
	a, b := net.HardwareAddr{2, 0, 0, 0, 0, 0xa}, net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
	own, group := net.HardwareAddr(br.MAC[:]), net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	ip := net.IP{10, 0, 0, 2}
	at := func(link int, mac net.HardwareAddr, state, vlan int) netlink.Neigh {
		return netlink.Neigh{LinkIndex: link, MasterIndex: 9, HardwareAddr: mac, State: state, Vlan: vlan}
	}
	neighbour := func(link int, ip net.IP, state int) []netlink.Neigh {
		return []netlink.Neigh{{LinkIndex: link, IP: ip, HardwareAddr: a, State: state}}
	}
	list := func(n ...netlink.Neigh) []netlink.Neigh { return n }
	const here, other = 2, 4
	two := list(at(here, a, unix.NUD_REACHABLE, 0), at(here, b, unix.NUD_STALE, 0))
	for _, c := range []struct {
		what       string
		neighbours []netlink.Neigh
		table      []netlink.Neigh
		from       net.HardwareAddr
		fromSays   string
		to         net.HardwareAddr
		toSays     string
	}{
		{"nothing is known", nil, nil, nil, "knows none at this port", own, "knows no station at its other ports"},
		{"one station", nil, list(at(here, b, unix.NUD_NOARP, 0)), b, "the one station", own, "knows no station at its other ports"},
		{"one in two VLANs", nil, list(at(here, b, unix.NUD_REACHABLE, 1), at(here, b, unix.NUD_REACHABLE, 5)), b, "the one station", own, "no station"},
		{"beside the port's own address", nil, list(at(here, a, unix.NUD_PERMANENT, 0), at(here, b, unix.NUD_REACHABLE, 0)), b, "the one station", own, "no station"},
		{"beside groups and the device's own list", nil, list(at(here, group, 0, 0), netlink.Neigh{LinkIndex: here, HardwareAddr: a}, at(here, b, 0, 0)), b, "the one station", own, "no station"},
		{"several", nil, two, nil, "02:00:00:00:00:0a, 02:00:00:00:00:0b", own, "no station"},
		{"one at each port", nil, list(at(here, a, unix.NUD_REACHABLE, 0), at(other, b, unix.NUD_REACHABLE, 0)), a, "at this port", b, "at its other ports"},
		{"several at other ports", nil, list(at(other, a, unix.NUD_REACHABLE, 0), at(other, b, 0, 0)), nil, "none at this port", own, "other ports: 02:00:00:00:00:0a, 02:"},
		{"a neighbour among several", neighbour(9, ip, unix.NUD_STALE), two, a, "the neighbour 10.0.0.2", a, "the neighbour 10.0.0.2"},
		{"a neighbour on a VLAN of the bridge", neighbour(10, ip, unix.NUD_REACHABLE), two, a, "the neighbour 10.0.0.2", a, "the neighbour 10.0.0.2"},
		{"a neighbour that did not answer", neighbour(9, ip, unix.NUD_FAILED), two, nil, "smac=MAC", own, "no station"},
		{"a neighbour by another device", neighbour(3, ip, unix.NUD_REACHABLE), two, nil, "smac=MAC", own, "no station"},
		{"another neighbour", neighbour(9, net.IP{10, 0, 0, 9}, unix.NUD_REACHABLE), two, nil, "smac=MAC", own, "no station"},
	} {
		e := &stations{network: network, br: br, link: port, neighbours: c.neighbours, table: c.table}
		if mac, says := e.sender(ip); mac.String() != c.from.String() || !strings.Contains(says, c.fromSays) {
			t.Errorf("%s: from %s (%s), want %s (%s)", c.what, mac, says, c.from, c.fromSays)
		}
		if mac, says := e.receiver(ip, true); mac.String() != c.to.String() || !strings.Contains(says, c.toSays) {
			t.Errorf("%s: to %s (%s), want %s (%s)", c.what, mac, says, c.to, c.toSays)
		}
		if mac, says := e.receiver(ip, false); mac.String() != own.String() || !strings.Contains(says, "br0 itself") {
			t.Errorf("%s: to %s (%s) to be routed", c.what, mac, says)
		}
	}
}
