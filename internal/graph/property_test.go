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
	"github.com/shuntnet/shunt/internal/reason"
)

// drawNetwork makes a random network near the router: the changes of the decision table, in any number and order, are its
// vocabulary, so every reason can occur together with every other.
func drawNetwork(t *rapid.T) []change {
	base := rapid.SampledFrom([]string{"plain", "veth", "vlan", "vrf", "bond", "backup", "mixed"}).Draw(t, "base")
	out := slices.Clone(configurations()[base])
	var steps []change
	for _, d := range decisions {
		for _, list := range [][]change{d.make, d.near} {
			// Rows of one change need no device that another one adds.
			if len(list) == 1 {
				steps = append(steps, list[0])
			}
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		out = append(out, steps[rapid.IntRange(0, len(steps)-1).Draw(t, "change")])
	}
	return out
}

// ways lists what a graph forwards by itself: from which logical interface, in which family, to which interface, by either hook.
func ways(g *Graph) map[string]bool {
	out := map[string]bool{}
	for _, p := range g.Ports {
		for _, in := range p.Inputs {
			for family, path := range map[string]Path{"ip4": in.IP4, "ip6": in.IP6} {
				for _, e := range g.Egress {
					byXDP := p.Has(XDP) && len(e.XDP) == 0
					byTC := p.Has(TC) && len(e.TC) == 0 && len(in.VLANs) == 0
					if path.Fast() && e.Index != in.Index && (byXDP || byTC) {
						out[fmt.Sprintf("%s %s → %s", in.Name, family, e.Name)] = true
					}
				}
			}
		}
	}
	return out
}

// Whatever is seen and not understood, wherever, makes nothing faster; and where it stands, it makes things slow.
func TestUnknownMakesNothingFaster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		net, pol := router(drawNetwork(t)...)
		before := ways(Build(net, pol))
		u := []model.Unknown{{Where: "somewhere", What: "attribute 99"}}
		switch rapid.IntRange(0, 5).Draw(t, "where") {
		case 0:
			net.Unknown = u
		case 1:
			l := net.Links[rapid.IntRange(1, len(net.Links)-1).Draw(t, "link")]
			l.Unknown = append(l.Unknown, u...)
			for way := range ways(Build(net, pol)) {
				var from, family, to string
				if _, err := fmt.Sscanf(way, "%s %s → %s", &from, &family, &to); err != nil {
					t.Fatal(err)
				}
				if from == l.Name || to == l.Name {
					t.Fatalf("%s is fast past %s", way, l.Name)
				}
			}
		case 2:
			r := &net.Rules[rapid.IntRange(0, len(net.Rules)-1).Draw(t, "rule")]
			r.Unknown = u
		case 3:
			net.Routes.Notable = append(net.Routes.Notable, model.Route{Family: model.IP4, Prefix: netip.MustParsePrefix("10.0.0.0/8"), Unknown: u})
		case 4:
			net.Sysctl.Changed = u
		case 5:
			net.Faults = []model.ReadFault{{Part: "anything", Err: "EIO"}}
		}
		for way := range ways(Build(net, pol)) {
			if !before[way] {
				t.Fatalf("%s became fast", way)
			}
		}
	})
}

// Equal networks give equal graphs, and Build leaves its arguments alone.
func TestBuildIsDeterministicAndPure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		changes := drawNetwork(t)
		net, pol := router(changes...)
		again, _ := router(changes...)
		a, b := Build(net, pol), Build(net, pol)
		if !reflect.DeepEqual(a, b) || a.Text() != b.Text() || a.SVG() != b.SVG() || a.DOT() != b.DOT() {
			t.Fatal("two builds of one network differ")
		}
		if !reflect.DeepEqual(net, again) {
			t.Fatal("Build changed the network")
		}
	})
}

// A port without a hook says why, a path has reasons or nodes and never both, and hooks have no reasons against them.
func TestGraphsAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Build(router(drawNetwork(t)...))
		for _, p := range g.Ports {
			if len(p.Hooks) == 0 && p.Via == 0 && len(p.Why) == 0 {
				t.Fatalf("%s is not attached and does not say why", p.Name)
			}
			if p.Has(XDP) && len(p.XDP) > 0 || p.Has(TC) && len(p.TC) > 0 {
				t.Fatalf("%s is attached in spite of %v %v", p.Name, p.XDP, p.TC)
			}
			for _, in := range p.Inputs {
				for _, path := range []Path{in.IP4, in.IP6} {
					if (len(path.Why) == 0) == (len(path.Nodes) == 0) {
						t.Fatalf("%s %s: why %v nodes %v", p.Name, in.Name, path.Why, path.Nodes)
					}
				}
			}
		}
	})
}

// The longest match in the special destinations demands at least what every matching route demands, also where there is not room for all: a slow twin that asks all.
func TestSpecialCoversEveryRoute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		net, _ := router()
		for range rapid.IntRange(0, 12).Draw(t, "routes") {
			net.Routes.Notable = append(net.Routes.Notable, drawRoute(t))
		}
		net.Sysctl.HashPolicy4 = uint8(rapid.IntRange(0, 1).Draw(t, "hash"))
		rows := specials(net)
		if most := rapid.IntRange(1, 15).Draw(t, "most"); len(rows) > most {
			if rows = fitting(rows, most); len(rows) > most {
				t.Fatalf("%d rows where there is room for %d", len(rows), most)
			}
		}
		dst := drawAddr(t)
		best := -1
		for i, s := range rows {
			if s.Prefix.Contains(dst) && (best < 0 || s.Prefix.Bits() > rows[best].Prefix.Bits()) {
				best = i
			}
		}
		for _, r := range net.Routes.Notable {
			if !r.Prefix.Contains(dst) {
				continue
			}
			always := r.Realm || r.Resilient && r.Multipath || r.Multipath && net.Sysctl.HashPolicy4 != 0 || len(r.Unknown) > 0
			if always && (best < 0 || rows[best].Always == reason.Fast) {
				t.Fatalf("%v under %v is not always slow", dst, r.Prefix)
			}
			if r.MTU != 0 && (best < 0 || rows[best].MTU == 0 || rows[best].MTU > r.MTU) {
				t.Fatalf("%v under %v: mtu %d is not heeded", dst, r.Prefix, r.MTU)
			}
		}
		if best >= 0 && rows[best].Always == reason.Fast && rows[best].MTU == 0 {
			t.Fatalf("row %v demands nothing", rows[best])
		}
	})
}

// drawAddr takes addresses that differ in few places, so that prefixes nest and match.
func drawAddr(t *rapid.T) netip.Addr {
	b := [4]byte{10, 0, 0, 0}
	for i := 1; i < 4; i++ {
		b[i] = rapid.SampledFrom([]byte{0, 1, 128, 255}).Draw(t, "byte")
	}
	return netip.AddrFrom4(b)
}

func drawRoute(t *rapid.T) model.Route {
	r := model.Route{
		Family:    model.IP4,
		Prefix:    netip.PrefixFrom(drawAddr(t), rapid.SampledFrom([]int{0, 7, 8, 9, 16, 17, 24, 32}).Draw(t, "bits")).Masked(),
		MTU:       rapid.SampledFrom([]uint32{0, 0, 1300, 1400}).Draw(t, "mtu"),
		MTULocked: rapid.Bool().Draw(t, "locked"),
		Realm:     rapid.IntRange(0, 5).Draw(t, "realm") == 0,
		Multipath: rapid.Bool().Draw(t, "multipath"),
		Resilient: rapid.IntRange(0, 5).Draw(t, "resilient") == 0,
	}
	if rapid.IntRange(0, 8).Draw(t, "unknown") == 0 {
		r.Unknown = []model.Unknown{{What: "attribute 40"}}
	}
	return r
}
