// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// drawDevice makes a device with its part of a graph.
func drawDevice(t *rapid.T, index int) (*model.Link, *graph.Port, *graph.Egress) {
	some := func(label string) []graph.Why {
		if rapid.Bool().Draw(t, label) {
			return []graph.Why{{Reason: reason.Qdisc}}
		}
		return nil
	}
	l := &model.Link{Index: index, Life: rapid.IntRange(0, 1).Draw(t, "life"), Up: rapid.Bool().Draw(t, "up"), Kind: rapid.SampledFrom([]string{"", "veth", "bond"}).Draw(t, "kind")}
	path := graph.Path{Nodes: []graph.Node{{Kind: graph.NodeFIB}}, Why: some("slow")}
	p := &graph.Port{Index: index, Kind: l.Kind, Hooks: rapid.SampledFrom([][]graph.Hook{{}, {graph.XDP}, {graph.TC}, {graph.XDP, graph.TC}}).Draw(t, "hooks"), Inputs: []graph.Input{{Index: index, IP4: path}}}
	if rapid.Bool().Draw(t, "vlan") {
		p.Inputs = append(p.Inputs, graph.Input{Index: 90 + index, VLANs: []model.VLAN{{Proto: 0x8100, ID: uint16(index)}}, IP4: path})
	}
	e := &graph.Egress{Index: index, Port: index, XDP: some("not by xdp"), TC: some("not by tc"), Frags: rapid.Bool().Draw(t, "frags"), Tunnel: rapid.Bool().Draw(t, "tunnel"), Onto: rapid.Bool().Draw(t, "onto"), ByVLAN: rapid.Bool().Draw(t, "by vlan")}
	if rapid.Bool().Draw(t, "tagged") {
		e.VLANs = []model.VLAN{{Proto: 0x8100, ID: 5}}
	}
	if rapid.Bool().Draw(t, "bridged") {
		p.Bridge = &graph.Member{Index: rapid.IntRange(1, 9).Draw(t, "bridge"), Path: path, VLANs: rapid.Bool().Draw(t, "filters")}
		e.Bridge = &graph.Way{Index: p.Bridge.Index, XDP: some("no way by xdp"), TC: some("no way by tc"), Peer: rapid.Bool().Draw(t, "peer")}
	}
	return l, p, e
}

// A plan after another one is that which the graph gives by itself, whatever came before, and what did not change is the same value.
func TestNextIsBuild(t *testing.T) {
	var kept, all int
	rapid.Check(t, func(t *rapid.T) {
		links, ports, ways := map[int]*model.Link{}, map[int]*graph.Port{}, map[int]*graph.Egress{}
		rest := model.Network{}
		var before *Plan
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			index := rapid.IntRange(1, 6).Draw(t, "index")
			flows := false
			switch rapid.SampledFrom([]string{"device", "device", "device", "gone", "way", "way", "no way", "link", "link", "link", "flows", "address", "rule", "nothing"}).Draw(t, "step") {
			case "device":
				links[index], ports[index], ways[index] = drawDevice(t, index)
			case "gone":
				delete(links, index)
				delete(ports, index)
				delete(ways, index)
			case "way":
				if links[index] != nil {
					_, _, ways[index] = drawDevice(t, index)
				}
			case "no way":
				delete(ways, index)
			case "link":
				if l := links[index]; l != nil {
					links[index] = &model.Link{Index: index, Kind: l.Kind, Life: l.Life + rapid.IntRange(0, 1).Draw(t, "lives"), Up: rapid.Bool().Draw(t, "up")}
				}
			case "flows":
				flows = true
			case "address":
				rest.Addrs = append(slices.Clone(rest.Addrs), model.Addr{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(index)}), 24)})
			case "rule":
				rest.Rules = append(slices.Clone(rest.Rules), model.Rule{Family: model.IP4})
			}
			net, g := rest, &graph.Graph{Flows: flows}
			for i := range 10 {
				if links[i] != nil {
					net.Links, g.Ports = append(net.Links, links[i]), append(g.Ports, ports[i])
				}
				if ways[i] != nil {
					g.Egress = append(g.Egress, ways[i])
				}
			}
			got, want := Next(&net, g, before), Build(&net, g)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("next: %+v\nby itself: %+v", got, want)
			}
			for _, p := range got.Ports {
				if all++; before != nil && slices.Contains(before.Ports, p) {
					kept++
				}
			}
			before = got
		}
	})
	if kept*4 < all {
		t.Errorf("of %d ports only %d were carried over", all, kept)
	}
}
