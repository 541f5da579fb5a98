// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
)

func portOf(t *testing.T, g *Graph, name string) *Port {
	t.Helper()
	for i := range g.Ports {
		if g.Ports[i].Name == name {
			return g.Ports[i]
		}
	}
	t.Fatalf("no port %s", name)
	return nil
}

func egressOf(t *testing.T, g *Graph, name string) *Egress {
	t.Helper()
	for i := range g.Egress {
		if g.Egress[i].Name == name {
			return g.Egress[i]
		}
	}
	t.Fatalf("no egress %s", name)
	return nil
}

func kinds(p Path) []string {
	var out []string
	for _, n := range p.Nodes {
		out = append(out, n.Kind)
	}
	return out
}

func TestPlainRouterIsFastAtXDP(t *testing.T) {
	g := Build(router())
	for _, name := range []string{"eth0", "eth1", "eth2"} {
		p := portOf(t, g, name)
		if !slices.Equal(p.Hooks, []Hook{XDP}) {
			t.Errorf("%s: hooks %v, want [xdp]; xdp %v tc %v", name, p.Hooks, p.XDP, p.TC)
		}
		want4 := []string{NodeIP4, NodeLocal, NodeFIB, NodeEgress, NodeGuard, NodeRewrite, NodeRedirect}
		want6 := []string{NodeIP6, NodeFIB, NodeEgress, NodeGuard, NodeRewrite, NodeRedirect}
		if got := kinds(p.Inputs[0].IP4); !slices.Equal(got, want4) {
			t.Errorf("%s IPv4: %v, want %v", name, got, want4)
		}
		if got := kinds(p.Inputs[0].IP6); !slices.Equal(got, want6) {
			t.Errorf("%s IPv6: %v, want %v", name, got, want6)
		}
		if e := egressOf(t, g, name); len(e.XDP) > 0 || len(e.TC) > 0 || !e.Frags {
			t.Errorf("egress %s: %+v", name, e)
		}
	}
	if lo := portOf(t, g, "lo"); len(lo.Hooks) > 0 || len(lo.Why) == 0 {
		t.Errorf("lo: %+v", lo)
	}
}

// An XDP frame may be one tag longer than a port's MTU and an Ethernet header, so two tags leave less for the packet.
func TestTwoTagsLeaveLessRoomAtXDP(t *testing.T) {
	g := Build(router(with(vlan(5, "eth0.5", 2, 5)), with(vlan(7, "eth0.5.9", 5, 9))))
	for name, want := range map[string]int{"eth0": 0, "eth0.5": 0, "eth0.5.9": 1500 - 4} {
		if got := egressOf(t, g, name).XDPMax; got != want {
			t.Errorf("%s: at most %d bytes, want %d", name, got, want)
		}
	}
}

func TestVethRouterIsFastAtTCAndAtXDPWhenForced(t *testing.T) {
	g := Build(router(everywhere(asVeth)))
	if p := portOf(t, g, "eth0"); !slices.Equal(p.Hooks, []Hook{TC}) {
		t.Errorf("auto: %v, xdp %v tc %v", p.Hooks, p.XDP, p.TC)
	}
	g = Build(router(everywhere(asVeth), policy(func(p *Policy) { p.Hook = "xdp" })))
	if p := portOf(t, g, "eth0"); !slices.Equal(p.Hooks, []Hook{XDP}) {
		t.Errorf("forced: %v, xdp %v tc %v", p.Hooks, p.XDP, p.TC)
	}
}

func TestMixedRouterUsesBothHooks(t *testing.T) {
	g := Build(router(on("eth2", asVeth)))
	if p := portOf(t, g, "eth0"); !slices.Equal(p.Hooks, []Hook{XDP, TC}) {
		t.Errorf("card: %v, xdp %v tc %v", p.Hooks, p.XDP, p.TC)
	}
	if p := portOf(t, g, "eth2"); !slices.Equal(p.Hooks, []Hook{TC}) {
		t.Errorf("veth: %v", p.Hooks)
	}
}

// A card that sends XDP frames only with a program of its own is attached to first and entered afterwards.
func TestCardBecomesATargetOnceAttached(t *testing.T) {
	bare := everywhere(func(l *model.Link) {
		f := uint64(xdpReceive)
		l.Driver, l.XDP, l.XDPFeatures = "virtio_net", nil, &f
	})
	g := Build(router(bare))
	if p := portOf(t, g, "eth0"); !p.Has(XDP) || !p.Has(TC) {
		t.Errorf("before: %v", p.Hooks)
	}
	if e := egressOf(t, g, "eth1"); len(e.XDP) == 0 {
		t.Error("eth1 is entered before a program is loaded on it")
	}
}

// A card is attached to for the sake of another port that can send to it only then, and not without such a port.
func TestCardIsAttachedForAnotherPortsSake(t *testing.T) {
	receiver := func(driver string) func(l *model.Link) {
		return func(l *model.Link) {
			f := uint64(xdpReceive)
			l.Driver, l.XDP, l.XDPFeatures = driver, nil, &f
		}
	}
	pair := []change{on("eth0", receiver("never_sends")), on("eth1", receiver("virtio_net")), policy(func(p *Policy) { p.Exclude = []string{"eth2"} })}
	g := Build(router(pair...))
	if p := portOf(t, g, "eth1"); !p.Has(XDP) {
		t.Errorf("eth1: %v", p.XDP)
	}
	g = Build(router(append(pair, on("eth0", func(l *model.Link) { l.Up = false }))...))
	if p := portOf(t, g, "eth1"); len(p.Hooks) > 0 {
		t.Errorf("eth1 is attached at %v for nobody", p.Hooks)
	}
}

// Nobody is attached to for a driver that will not send XDP frames even then: one that is not known to, or lacks more.
func TestOnlyKnownDriversAreTargetsToBe(t *testing.T) {
	for driver, features := range map[string]uint64{"no_such_driver": xdpReceive, "virtio_net": xdpBasic} {
		g := Build(router(everywhere(func(l *model.Link) { l.Driver, l.XDP, l.XDPFeatures = driver, nil, &features })))
		if p := portOf(t, g, "eth0"); p.Has(XDP) {
			t.Errorf("%s with features %#x is attached to at XDP", driver, features)
		}
	}
}

func TestEveryPathIsFastOrSaysWhy(t *testing.T) {
	for name, c := range configurations() {
		g := Build(router(c...))
		for _, p := range g.Ports {
			if len(p.Hooks) == 0 && p.Via == 0 && len(p.Why) == 0 {
				t.Errorf("%s: %s is not attached and does not say why", name, p.Name)
			}
			for _, in := range p.Inputs {
				for _, path := range []Path{in.IP4, in.IP6} {
					if (len(path.Why) == 0) == (len(path.Nodes) == 0) {
						t.Errorf("%s: %s %s: why %v nodes %v", name, p.Name, in.Name, path.Why, path.Nodes)
					}
				}
			}
		}
	}
}

// configurations are networks of many shapes, for the tests that hold for all of them.
func configurations() map[string][]change {
	return map[string][]change{
		"plain":  nil,
		"veth":   {everywhere(asVeth)},
		"vlan":   {with(vlan(5, "eth0.5", 2, 5)), with(vlan(6, "eth1.6", 3, 6)), with(vlan(7, "eth0.5.9", 5, 9))},
		"vrf":    {inVRF},
		"bond":   {asBond(bondXOR)},
		"backup": {asBond(bondActiveBackup, 3)},
		"mixed":  {on("eth2", asVeth), with(vlan(5, "eth2.5", 4, 5))},
	}
}
