// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// describePort gives a device with the reasons against attaching to it by each hook, and the logical interfaces whose
// packets it receives with theirs. Whether attaching wins anything is settled by chooseHooks.
func (b *builder) describePort(l *model.Link) Port {
	p := Port{Index: l.Index, Name: model.PrintableName(l.Name), Kind: l.Kind, Hooks: []Hook{}, Inputs: []Input{}}
	both := join(b.state(l), b.asked(l), b.stacked(l), b.ingressHooks(l), b.tapsBelow(l))
	br := b.bridge(l)
	if br == nil {
		both = join(both, b.master(l))
	}
	if l.Kind == kindVRF {
		both = append(both, because(reason.LinkKind, "%s is a vrf; its slaves are the ports", l.Name))
	}
	if p.XDP, p.TC = both, both; portKinds[l.Kind] && l.Type == arphrdEther {
		p.TC = join(both, b.hookChoice(l, TC), b.attachesTC(), b.failed(l, TC))
		if l.Kind != kindVLAN {
			p.XDP = join(both, b.hookChoice(l, XDP), b.receives(l), b.failed(l, XDP))
		}
		if br == nil {
			p.Inputs = append(p.Inputs, b.input(l, nil))
		} else {
			p.Inputs = append(p.Inputs, b.hosts(br, l)...)
		}
		if l.Kind != kindVLAN && br == nil {
			p.Inputs = append(p.Inputs, b.tagged(l, nil, b.taggedIngress(l))...)
		}
	}
	return p
}

// tagged lists the VLAN interfaces over a device, those with fewer tags first under each, with the reasons gathered from the
// VLAN devices below them.
func (b *builder) tagged(lower *model.Link, tags []model.VLAN, below []Why) []Input {
	if len(tags) == maxTags {
		return nil
	}
	var out []Input
	for _, u := range b.uppers[lower.Index] {
		if u.Kind != kindVLAN || u.VLAN == nil {
			continue
		}
		own := append(slices.Clone(tags), *u.VLAN)
		why := join(below, b.state(u), b.ingressHooks(u), b.xdpOnly(u), b.stacked(u)) // a generic program on it runs when the tag is off (__netif_receive_skb_core())
		in := b.input(u, own)
		extra := join(why, b.asked(u), b.master(u))
		in.IP4.Why = tidy(join(in.IP4.Why, extra))
		in.IP6.Why = tidy(join(in.IP6.Why, extra))
		out = append(out, in)
		out = append(out, b.tagged(u, own, why)...)
	}
	return out
}

// input describes a logical interface with the reasons of each family and of its VRF.
func (b *builder) input(l *model.Link, tags []model.VLAN) Input {
	in := Input{VLANs: tags, Index: l.Index, Name: model.PrintableName(l.Name), MAC: l.MAC}
	vrf := b.vrf(l)
	var master []Why
	if vrf != nil {
		in.VRF = vrf.Index
		master = join(b.state(vrf), b.ingressHooks(vrf), b.tapsOn(vrf, true))
	}
	in.IP4.Why = tidy(join(master, b.path4(l, vrf)))
	in.IP6.Why = tidy(join(master, b.path6(l, vrf)))
	return in
}

// NotAtXDP are the reasons why a network card, or a bond of cards, is served at tc alone, though XDP is what `--hook auto` prefers there. There are none where the user wants it so.
func (p *Port) NotAtXDP() []Why {
	if p.Kind != kindNIC && p.Kind != kindBond || !slices.Contains(p.Hooks, TC) || slices.Contains(p.Hooks, XDP) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.XDP), func(w Why) bool { return w.Reason == reason.HookChoice })
}
