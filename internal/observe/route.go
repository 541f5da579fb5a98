// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// byRoute says whether a reason rests on what a lookup of the route gave, so that the route is what a person asks for next.
func byRoute(c reason.Code) bool {
	switch nodeOf(c, "") {
	case graph.NodeFIB, graph.NodeSpecial, graph.NodeRPFilter, graph.NodeEgress:
		return true
	}
	return false
}

// found tells the route of a packet that a lookup decided about, "" for others. It must be called in the namespace.
func (x *explainer) found(link *model.Link) string {
	code, known := reason.Parse(x.out.Reason)
	if !known || !byRoute(code) {
		return ""
	}
	p, ok := rulePacket(x.frame)
	if !ok {
		return ""
	}
	r, err := x.way(link, &p)
	switch {
	case err != nil:
		return fmt.Sprintf("Linux has no way for it: %v", err)
	case r == nil:
		return "Linux has no way for it"
	}
	return x.told(r, p.Dst.AsSlice())
}

// told is a route in the words of `ip route get`, with the device's MTU and what is known of the next hop's address.
func (x *explainer) told(r *way, dst net.IP) string {
	words := []string{routeTypes[r.Type]}
	hop := dst
	if r.Gw != nil {
		hop = r.Gw
		words = append(words, "via", r.Gw.String())
	}
	l := x.state.Network.Link(r.Link)
	if l != nil {
		words = append(words, "dev", model.PrintableName(l.Name))
	}
	if r.Table != 0 && r.Table != unix.RT_TABLE_MAIN {
		words = append(words, "table", fmt.Sprint(r.Table))
	}
	if r.MTU != 0 {
		words = append(words, "mtu", fmt.Sprint(r.MTU))
	}
	if l == nil || r.Type != unix.RTN_UNICAST {
		return strings.Join(words, " ")
	}
	return fmt.Sprintf("%s; mtu of %s is %d; next hop %s is %s", strings.Join(words, " "), model.PrintableName(l.Name), mtuFor(l, dst), hop, neighbour(l.Index, hop))
}

// mtuFor is how long a packet to an address may be by a device, which may have another MTU for IPv6.
func mtuFor(l *model.Link, dst net.IP) int {
	if dst.To4() == nil && l.MTU6 != 0 {
		return min(l.MTU, l.MTU6)
	}
	return l.MTU
}

// routeTypes are the names of RTN_*.
var routeTypes = map[int]string{unix.RTN_UNSPEC: "unspecified", unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: "anycast",
	unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw", unix.RTN_NAT: "nat"}

// neighbour is the state of a next hop's entry, as `ip neighbour` names it.
func neighbour(index int, addr net.IP) string {
	all, err := netlink.NeighList(index, 0)
	if err != nil {
		return "not known: " + err.Error()
	}
	for _, n := range all {
		if n.IP.Equal(addr) {
			return neighbourStates[n.State]
		}
	}
	return "not in the table of neighbours"
}
