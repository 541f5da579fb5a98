// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/packet"
)

// ends are the Ethernet addresses of a packet that a device receives: the destination is the device's own, which a sender writes. At a port of a bridge, where it
// depends on both what becomes of the frame, they are those that stations would write, as far as Linux knows them; the sender's is given to the description, and assumed
// says where those are from that it left out. It must be called in the namespace.
func ends(network *model.Network, link *model.Link, desc *packet.Description) (dst net.HardwareAddr, assumed string) {
	br := network.Link(link.Master)
	if br == nil || link.Port == nil || desc.Raw != nil {
		return link.MAC[:], ""
	}
	e := &stations{network: network, br: br, link: link}
	e.neighbours, _ = netlink.NeighList(0, 0) // without these and the bridge's table nothing is known
	e.table, _ = netlink.NeighList(0, unix.AF_BRIDGE)
	var says []string
	if !desc.Has("smac") {
		mac, what := e.sender(net.IP(desc.Src.Addr().AsSlice()))
		if mac != nil {
			desc.From(mac)
		}
		says = append(says, "comes from "+what)
	}
	dst = br.MAC[:]
	if !desc.Has("dmac") && (desc.Proto != "arp" || desc.Has("reply")) {
		to, what := net.IP(desc.Dst.Addr().AsSlice()), ""
		routes, err := netlink.RouteGet(to)
		dst, what = e.receiver(to, err == nil && len(routes) > 0 && routes[0].LinkIndex == br.Index && routes[0].Gw == nil)
		says = append(says, "goes to "+what)
	}
	if len(says) == 0 {
		return dst, ""
	}
	return dst, "the frame " + strings.Join(says, ", and ")
}

// stations is what Linux knows of those who are behind a bridge.
type stations struct {
	network    *model.Network
	br, link   *model.Link // the bridge, and the port of it that the frame comes by
	neighbours []netlink.Neigh
	table      []netlink.Neigh // of stations
}

// sender finds the address of a sender: nil where Linux does not tell, with what would help.
func (e *stations) sender(src net.IP) (net.HardwareAddr, string) {
	if mac := e.neighbour(src); mac != nil {
		return mac, fmt.Sprintf("%s, the neighbour %s", mac, src)
	}
	bridge := model.PrintableName(e.br.Name)
	switch known := e.known(func(port int) bool { return port == e.link.Index }); len(known) {
	case 0:
		return nil, "a station that is new to " + bridge + ", which knows none at this port (smac=MAC for another)"
	case 1:
		return known[0], fmt.Sprintf("%s, the one station that %s knows at this port", known[0], bridge)
	default:
		return nil, fmt.Sprintf("a station that is new to %s (smac=MAC for one that it knows at this port: %s)", bridge, addresses(known))
	}
}

// receiver finds the address that a sender would write: the bridge's own, unless the destination is itself behind the bridge.
func (e *stations) receiver(dst net.IP, behind bool) (net.HardwareAddr, string) {
	bridge := model.PrintableName(e.br.Name)
	if !behind {
		return e.br.MAC[:], bridge + " itself, to be routed (dmac=MAC for a station behind it)"
	}
	if mac := e.neighbour(dst); mac != nil {
		return mac, fmt.Sprintf("%s, the neighbour %s", mac, dst)
	}
	switch known := e.known(func(port int) bool { return port != e.link.Index }); len(known) {
	case 0:
		return e.br.MAC[:], bridge + " itself, which knows no station at its other ports (dmac=MAC for one)"
	case 1:
		return known[0], fmt.Sprintf("%s, the one station that %s knows at its other ports", known[0], bridge)
	default:
		return e.br.MAC[:], fmt.Sprintf("%s itself, since %s is not in the table of neighbours (dmac=MAC for a station that it knows at its other ports: %s)", bridge, dst, addresses(known))
	}
}

// neighbour is the address of who has an IP address on the bridge, or on a VLAN of it; nil if that is not known.
func (e *stations) neighbour(ip net.IP) net.HardwareAddr {
	const unusable = unix.NUD_FAILED | unix.NUD_INCOMPLETE | unix.NUD_NOARP
	for _, n := range e.neighbours {
		on := e.network.Link(n.LinkIndex)
		if on != nil && (on.Index == e.br.Index || on.Lower == e.br.Index) && n.State&unusable == 0 && len(n.HardwareAddr) == 6 && n.IP.Equal(ip) {
			return n.HardwareAddr
		}
	}
	return nil
}

// known are the stations that the bridge knows at some of its ports, each once, in how many VLANs it may be.
func (e *stations) known(at func(port int) bool) (out []net.HardwareAddr) {
	for _, n := range e.table {
		own := n.State&unix.NUD_PERMANENT != 0 // an address of this host
		if n.MasterIndex != e.br.Index || !at(n.LinkIndex) || own || len(n.HardwareAddr) != 6 || n.HardwareAddr[0]&1 != 0 {
			continue
		}
		if !slices.ContainsFunc(out, func(k net.HardwareAddr) bool { return bytes.Equal(k, n.HardwareAddr) }) {
			out = append(out, n.HardwareAddr)
		}
	}
	return out
}

func addresses(macs []net.HardwareAddr) string {
	var names []string
	for _, mac := range macs {
		names = append(names, mac.String())
	}
	return listed(names, 5)
}
