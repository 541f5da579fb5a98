// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Carry gives the links that were read, with those that are as they were before as the very same values, and the slice of before if all are: what was decided for one
// holds for it as long as it and all that the decision rests on are. Both are in the order of their numbers.
func Carry(links, before []*Link) []*Link {
	out, same, at := make([]*Link, len(links)), len(links) == len(before), 0
	for i, l := range links {
		for at < len(before) && before[at].Index < l.Index {
			at++
		}
		if at < len(before) && l.Equal(before[at]) {
			l = before[at]
		}
		out[i] = l
		same = same && l == before[i]
	}
	if same {
		return before
	}
	return out
}

// Equal says whether two links are the same in everything.
func (l *Link) Equal(o *Link) bool {
	return l == o ||
		l.Index == o.Index && l.Life == o.Life && l.Name == o.Name && l.Kind == o.Kind && l.Driver == o.Driver && l.Type == o.Type && l.Group == o.Group &&
			l.MAC == o.MAC && l.MTU == o.MTU && l.MTU6 == o.MTU6 && l.Up == o.Up && l.Running == o.Running && l.Promisc == o.Promisc &&
			l.Master == o.Master && l.MasterKind == o.MasterKind && l.Lower == o.Lower && l.PeerNS == o.PeerNS && l.VRFTable == o.VRFTable && l.BondActive == o.BondActive &&
			l.Conf4 == o.Conf4 && l.Conf6 == o.Conf6 && l.VLANStripping == o.VLANStripping && l.GRO == o.GRO && l.TSO == o.TSO && l.Handled == o.Handled && l.SendsAsIs == o.SendsAsIs && l.GSOLimited == o.GSOLimited &&
			equalAt(l.VLAN, o.VLAN, func(a, b VLAN) bool { return a == b }) && equalAt(l.XDPFeatures, o.XDPFeatures, func(a, b uint64) bool { return a == b }) &&
			equalAt(l.Bond, o.Bond, func(a, b Bond) bool {
				return a.Mode == b.Mode && equalList(a.Slaves, b.Slaves) && equalList(a.Active, b.Active)
			}) &&
			equalAt(l.Bridge, o.Bridge, func(a, b Bridge) bool {
				return a.VLANFiltering == b.VLANFiltering && a.Ageing == b.Ageing && equalList(a.NFCall, b.NFCall) && equalList(a.On, b.On)
			}) &&
			equalAt(l.Port, o.Port, func(a, b BridgePort) bool { return a.Isolated == b.Isolated && equalList(a.On, b.On) }) &&
			equalAt(l.VXLAN, o.VXLAN, func(a, b VXLAN) bool { return a.Lower == b.Lower && a.IP6 == b.IP6 && equalList(a.On, b.On) }) &&
			equalList(l.Qdiscs, o.Qdiscs) && equalList(l.TCFilters, o.TCFilters) && equalList(l.XDP, o.XDP) && equalList(l.TCX, o.TCX) && equalList(l.Unknown, o.Unknown)
}

func equalAt[T any](a, b *T, equal func(a, b T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equal(*a, *b)
}

// equalList tells none from nothing known, as readers may.
func equalList[T comparable](a, b []T) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }
