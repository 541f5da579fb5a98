// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/shuntnet/shunt/internal/model"
)

// drawSteps are changes of a network with a bridge of veths, a tunnel and VLANs beside all that drawNetwork knows: of single devices, of their places, and of all else.
func drawSteps(t *rapid.T) change {
	name := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	link := func(f func(n *model.Network, l *model.Link)) change {
		i := rapid.IntRange(0, 40).Draw(t, "link")
		return func(n *model.Network, _ *Policy) { f(n, n.Links[i%len(n.Links)]) }
	}
	switch name("step", "up", "running", "mtu", "name", "forwarding", "filter", "qdisc", "option", "master", "lower", "gone", "new", "vxlan", "vlan", "features", "bridge", "socket", "local", "address", "address gone", "change") {
	case "up":
		return link(func(_ *model.Network, l *model.Link) { l.Up = !l.Up })
	case "running":
		return link(func(_ *model.Network, l *model.Link) { l.Running = !l.Running })
	case "mtu":
		return link(func(_ *model.Network, l *model.Link) { l.MTU = 2900 - l.MTU })
	case "name":
		return link(func(_ *model.Network, l *model.Link) { l.Name += "x" })
	case "forwarding":
		return link(func(_ *model.Network, l *model.Link) { l.Conf4.Forwarding = !l.Conf4.Forwarding })
	case "filter":
		return link(func(_ *model.Network, l *model.Link) {
			l.TCFilters = []model.TCFilter{{Kind: "route", Parent: tcClsactEgress}}
		})
	case "qdisc":
		return link(func(_ *model.Network, l *model.Link) { l.Qdiscs = []model.Qdisc{{Kind: "tbf", Handle: 1}} })
	case "option":
		return link(func(_ *model.Network, l *model.Link) {
			if l.Port != nil {
				l.Port = &model.BridgePort{On: []string{"neigh_suppress"}[len(l.Port.On):]}
			}
		})
	case "master": // of another bridge, VRF or bond, or of none
		other := rapid.IntRange(0, 40).Draw(t, "master")
		return link(func(n *model.Network, l *model.Link) {
			l.Master, l.MasterKind, l.Port = 0, "", nil
			switch m := n.Links[other%len(n.Links)]; {
			case m == l:
			case m.Kind == kindBridge:
				l.Master, l.MasterKind, l.Port = m.Index, kindBridge, &model.BridgePort{}
			case m.Kind == kindVRF || m.Kind == kindBond:
				l.Master, l.MasterKind = m.Index, m.Kind
			}
		})
	case "lower":
		other := rapid.IntRange(0, 40).Draw(t, "lower")
		return link(func(n *model.Network, l *model.Link) {
			if m := n.Links[other%len(n.Links)]; l.Kind == kindVLAN && m.Kind != kindVLAN {
				l.Lower = m.Index
			}
		})
	case "gone":
		i := rapid.IntRange(0, 40).Draw(t, "gone")
		return func(n *model.Network, _ *Policy) {
			if len(n.Links) > 3 {
				at := 1 + i%(len(n.Links)-1)
				n.Links = slices.Delete(slices.Clone(n.Links), at, at+1)
			}
		}
	case "new":
		l := card(rapid.IntRange(5, 60).Draw(t, "index"), "new")
		asVeth(&l)
		return with(l)
	case "vxlan":
		l := card(rapid.IntRange(5, 60).Draw(t, "index"), "vx")
		l.Kind, l.XDPFeatures, l.MTU, l.VXLAN = kindVXLAN, nil, 1450, &model.VXLAN{Lower: rapid.IntRange(0, 4).Draw(t, "lower")}
		return with(l)
	case "vlan":
		return with(vlan(rapid.IntRange(5, 60).Draw(t, "index"), "vlan", rapid.IntRange(2, 60).Draw(t, "lower"), 7))
	case "features":
		return link(func(_ *model.Network, l *model.Link) { l.XDPFeatures, l.XDP = nil, nil })
	case "bridge":
		filters := rapid.Bool().Draw(t, "filters")
		return link(func(_ *model.Network, l *model.Link) {
			if l.Bridge != nil {
				l.Bridge = &model.Bridge{Ageing: 300 - l.Bridge.Ageing, VLANFiltering: filters}
			}
		})
	case "socket":
		i := rapid.IntRange(0, 60).Draw(t, "ifindex")
		return func(n *model.Network, _ *Policy) {
			n.Sockets.Packet = append(slices.Clone(n.Sockets.Packet), model.PacketSocket{Index: i, Protocol: ethPAll})
		}
	case "local":
		return func(n *model.Network, _ *Policy) {
			n.Sockets.Locals = append(slices.Clone(n.Sockets.Locals), rapid.SampledFrom(addresses).Draw(t, "address").Addr())
		}
	case "address gone":
		i := rapid.IntRange(0, 60).Draw(t, "address")
		return func(n *model.Network, _ *Policy) {
			i %= len(n.Addrs)
			n.Addrs = slices.Delete(slices.Clone(n.Addrs), i, i+1)
		}
	case "address":
		i := rapid.IntRange(0, 60).Draw(t, "ifindex")
		return func(n *model.Network, _ *Policy) {
			n.Addrs = append(slices.Clone(n.Addrs), model.Addr{Index: i, Prefix: rapid.SampledFrom(addresses).Draw(t, "address")})
		}
	}
	return drawNetwork(t)[0]
}

var addresses = []netip.Prefix{netip.MustParsePrefix("10.0.7.1/24"), netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix("2001:db8:7::1/64")}

// A sequence of changes, of which each network shares with the one before what did not change, comes to the graphs that each network gives by itself; and a port whose
// graph is the same is the same value.
func TestCarriedGraphsAreThoseFromScratch(t *testing.T) {
	var kept, all int
	rapid.Check(t, func(t *rapid.T) {
		changes := drawNetwork(t)
		if rapid.Bool().Draw(t, "bridge") {
			var names []string
			for i := range 6 {
				l := card(20+i, fmt.Sprintf("v%d", i))
				asVeth(&l)
				changes, names = append(changes, with(l)), append(names, l.Name)
			}
			changes = append(changes, inBridge(names...))
			if rapid.Bool().Draw(t, "by VLAN") {
				changes = append(changes, filtering, readVLANs, with(vlan(15, "br0.5", 9, 5)))
			}
		}
		net, pol := router(changes...)
		pol.Memo = &Memo{}
		scratch := func() *Graph { alone := pol; alone.Memo = nil; return Build(net, alone) }
		before := Build(net, pol)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			old := net
			next := *net
			next.Links = nil
			for _, l := range old.Links {
				next.Links = append(next.Links, pointer(*l))
			}
			func() {
				defer func() { _ = recover() }() // a change for a device that is not there
				drawSteps(t)(&next, &pol)
			}()
			next.Links = model.Carry(next.Links, old.Links)
			net = &next
			got, want := Build(net, pol), scratch()
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("with a memo:\n%s\nwithout:\n%s", got.Text(), want.Text())
			}
			for _, p := range got.Ports {
				if all++; slices.Contains(before.Ports, p) {
					kept++
				}
			}
			if again := Build(net, pol); again != got {
				t.Fatal("the same network gives another graph")
			}
			before = got
		}
	})
	if kept*4 < all {
		t.Errorf("of %d ports only %d were carried over", all, kept)
	}
}

// One changed port of a bridge leaves the others alone.
func TestOneChangedPortIsOne(t *testing.T) {
	var changes []change
	var names []string
	for i := range 50 {
		l := card(20+i, fmt.Sprintf("v%d", i))
		asVeth(&l)
		changes, names = append(changes, with(l)), append(names, l.Name)
	}
	net, pol := router(append(changes, inBridge(names...))...)
	pol.Memo = &Memo{}
	before := Build(net, pol)
	next := *net
	next.Links = slices.Clone(net.Links)
	next.Addrs = append(slices.Clone(net.Addrs), model.Addr{Index: 27, Prefix: netip.MustParsePrefix("fe80::7/64")}) // as of a port that came up
	for i, l := range next.Links {
		if l.Name == "v7" {
			slow := *l
			slow.Port = &model.BridgePort{On: []string{"neigh_suppress"}}
			next.Links[i] = &slow
		}
	}
	after := Build(&next, pol)
	others := 0
	for i := range after.Ports {
		if after.Ports[i] != before.Ports[i] {
			others++
		}
	}
	if p := portOf(t, after, "v7"); p.Bridge.Fast() || others != 1 {
		t.Errorf("%d ports are others, and that of v7 is %+v", others, p.Bridge)
	}
}
