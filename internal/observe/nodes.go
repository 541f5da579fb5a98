// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/reason"
)

const (
	nodeHook  = "hook"  // before any node: what the hook itself finds
	nodeInput = "input" // the family's answer, frozen into the input that the packet enters
)

// nodes says which node of bpf/node decides for which reasons; those of class config are frozen into the input that the packet enters.
var nodes = map[string][]reason.Code{
	graph.NodeGuard: {reason.WrongDevice, reason.Watchdog, reason.Stale},
	graph.NodeVLAN:  {reason.VLANUnknown, reason.DstMAC, reason.EtherType},
	graph.NodeIP4: {reason.IP4Header, reason.IP4Options, reason.IP4Checksum, reason.Fragment, reason.MartianSource, reason.MartianDestination,
		reason.ICMPError, reason.Protocol, reason.TTL},
	graph.NodeIP6: {reason.IP6Header, reason.IP6Extension, reason.IP6Address, reason.ICMP6Control},
	graph.NodeTrack: {reason.ConntrackProtocol, reason.ConntrackFlags, reason.ConntrackChecksum, reason.ConntrackNew, reason.ConntrackState,
		reason.ConntrackNAT, reason.ConntrackExtension, reason.ConntrackWindow},
	graph.NodeRulesOut: {reason.RuleDrop, reason.NetfilterRule, reason.NetfilterLong}, // or NodeRulesIn: a program does not say
	graph.NodeLocal:    {reason.LocalSource},
	graph.NodeSpecial:  {reason.RouteMTU, reason.RouteRealm, reason.RouteECMP, reason.RouteUnknown},
	graph.NodeFIB:      {reason.NotForwarded, reason.Blackhole, reason.Unreachable, reason.Prohibit, reason.ForwardingDisabled, reason.RouteEncap, reason.NoNeighbour, reason.MTU, reason.LookupError, reason.SameInterface},
	graph.NodeRPFilter: {reason.RPFilter},
	graph.NodeEgress:   {reason.EgressSlow, reason.EgressFrags, reason.SegmentMTU, reason.TunnelMetadata},
	graph.NodeRewrite:  {reason.TrimFailed, reason.RewriteFailed},
	graph.NodeRedirect: {reason.Fast},
	graph.NodeBridge: {reason.BridgeGroup, reason.BridgeSource, reason.BridgeRefresh, reason.BridgeDestination, reason.BridgeLocal, reason.BridgePort,
		reason.BridgeTable, reason.BridgePromisc, reason.BridgeMember},
	nodeHook: {reason.Resting, reason.SKBOffload, reason.SKBMark, reason.PacketType, reason.TooShort},
}

// nodeOf is the node that a reason belongs to for packets of a family; nodeInput for what is frozen from Linux's configuration.
func nodeOf(c reason.Code, family string) string {
	node, ok := nodeBy[c]
	switch {
	case !ok:
		return nodeInput
	case node == graph.NodeIP4 && family == "ip6":
		return graph.NodeIP6 // which decides by the header's fields too, for the same reasons
	}
	return node
}

// nodeBy is the other way round.
var nodeBy = func() map[reason.Code]string {
	by := map[reason.Code]string{}
	for node, codes := range nodes {
		for _, c := range codes {
			by[c] = node
		}
	}
	return by
}()

// order is that in which a packet meets all that may decide.
var order = slices.Concat([]string{nodeHook, graph.NodeVLAN, nodeInput}, slices.DeleteFunc(slices.Clone(graph.Order), func(node string) bool { return node == graph.NodeVLAN }))

// before says whether a packet meets node a before node b.
func before(a, b string) bool { return slices.Index(order, a) < slices.Index(order, b) }

// listed joins names, at most n of them.
func listed(names []string, n int) string {
	if len(names) > n {
		return strings.Join(names[:n], ", ") + fmt.Sprintf(" and %d more", len(names)-n)
	}
	return strings.Join(names, ", ")
}
