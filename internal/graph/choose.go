// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"reflect"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// choice is what devices are to each other: all that becomes of one by others, but for those that it stands on or belongs to.
type choice struct {
	acrossXDP, acrossTC bool // frames between the ports of its bridge need the hook
	routed              bool // XDP wins for what is routed
	xdp                 bool // there is a program at XDP
	served              int  // the port whose XDP program can forward what the interface receives; 0: none
	tc                  bool // from tc another interface can be entered, where XDP serves this one another that XDP cannot enter
	loaded              bool // there is a program for what is routed on the port by which the egress leaves
	push                int  // the most tags that an interface has that this port's XDP program enters
}

// chooseHooks settles where programs are attached: XDP where frames come from a wire and can go out as XDP frames, tc where
// some interface can only be reached from there, nothing where nothing is won.
func (b *builder) chooseHooks() {
	choices := b.choices()
	for i, d := range b.devices {
		if d.final != nil {
			if d.apart && d.choice == choices[i] {
				continue
			}
			if !d.apart {
				was := *d
				d.was = &was
			}
			d.final, d.out = nil, nil
		}
		d.choice = choices[i]
		if d.egress != nil {
			d.out = b.settleEgress(d)
			if d.was != nil && reflect.DeepEqual(d.was.out, d.out) {
				d.out = d.was.out
			}
		}
	}
	for _, d := range b.devices {
		b.settle(d)
		d.was = nil
		b.graph.Ports = append(b.graph.Ports, d.final)
		if d.out != nil {
			b.graph.Egress = append(b.graph.Egress, d.out)
		}
	}
}

// willing says whether some packet that arrives at the port could take the fast path, and gives the logical interfaces.
func willing(inputs []Input) (fast []int) {
	for _, in := range inputs {
		if len(in.IP4.Why) == 0 || len(in.IP6.Why) == 0 {
			fast = append(fast, in.Index)
		}
	}
	return fast
}

// elsewhere says whether a packet from one of the inputs could leave by another interface.
func elsewhere(inputs, outputs []int) bool {
	for _, out := range outputs {
		for _, in := range inputs {
			if in != out {
				return true
			}
		}
	}
	return false
}

// choices settles everything between devices. It looks at each a few times and makes nothing: there may be a thousand, of which one changed.
func (b *builder) choices() []choice {
	out := make([]choice, len(b.briefs))
	b.across(out)
	b.chooseXDP(out)
	var byTC, onlyTC []int // interfaces that tc can enter, and those of them that XDP cannot
	push := 0
	for i := range b.briefs {
		d := &b.briefs[i]
		byXDP := d.byXDP && d.ability != onLoad
		if byXDP {
			push = max(push, d.tags)
		}
		if d.byTC {
			byTC = append(byTC, d.index)
			if !byXDP {
				onlyTC = append(onlyTC, d.index)
			}
		}
	}
	for i := range b.briefs {
		c := &out[i]
		if c.xdp {
			c.push = push
		}
		if !b.briefs[i].inputs {
			continue
		}
		reachable := byTC
		if c.served = b.served(i, out); c.served != 0 {
			reachable = onlyTC
		}
		c.tc = elsewhere(b.briefs[i].first, reachable)
	}
	return out
}

// chooseXDP attaches XDP where it wins. A card that transmits only with a program of its own becomes a target with ours, so
// it is attached to for another port's sake too; until the program is there, it is not entered.
func (b *builder) chooseXDP(out []choice) {
	candidates := 0
	var targets []int        // interfaces that can be entered, now or once their port is attached to
	loaded := map[int]bool{} // ports that become targets by being attached to
	for i := range b.briefs {
		d := &b.briefs[i]
		if d.candidate {
			candidates++
		}
		if !d.byXDP {
			continue
		}
		switch d.ability {
		case can:
			targets = append(targets, d.index)
		case onLoad:
			if at, ok := b.position(d.by); ok && b.briefs[at].candidate {
				loaded[d.by] = true
				targets = append(targets, d.index)
			}
		}
	}
	for i := range b.briefs {
		d := &b.briefs[i]
		out[i].routed = d.candidate && (elsewhere(d.fast, targets) || loaded[d.index] && candidates > 1)
		out[i].xdp = out[i].routed || out[i].acrossXDP
	}
	for i := range b.briefs {
		if d := &b.briefs[i]; d.way && d.ability == onLoad {
			at, ok := b.position(d.by)
			out[i].loaded = ok && out[at].routed
		}
	}
}

// settleEgress gives the way out, without XDP where the card does not transmit yet.
func (b *builder) settleEgress(d *device) *Egress {
	if d.ability != onLoad && !d.late {
		return d.egress
	}
	e := *d.egress
	not := func(l *model.Link, loaded bool) Why {
		when := "only with a program loaded on it"
		if loaded {
			when = "once a program is loaded on it"
		}
		return because(reason.LinkXDPUnsupported, "%s sends XDP frames %s", driverName(l), when)
	}
	if d.ability == onLoad {
		e.XDP = tidy(append(slices.Clip(e.XDP), not(b.net.Link(e.Port), d.choice.loaded)))
	}
	if d.late {
		way := *e.Bridge
		way.XDP = tidy(append(slices.Clip(way.XDP), not(d.link, d.choice.xdp)))
		e.Bridge = &way
	}
	return &e
}

// served says by which port's XDP program a logical interface's packets can be forwarded; 0 when by none.
func (b *builder) served(i int, choices []choice) int {
	at, ok := i, true
	if b.briefs[i].vlan {
		at, ok = b.position(b.root(b.devices[i].link).Index)
	}
	if !ok || !choices[at].xdp {
		return 0
	}
	d, root := b.devices[i], &b.devices[at].port
	for i := range root.Inputs {
		in := &root.Inputs[i]
		if (in.Index == d.link.Index || root.Index == d.link.Index && root.Bridge != nil) && (len(in.IP4.Why) == 0 || len(in.IP6.Why) == 0) {
			return root.Index
		}
	}
	return 0
}

// NoWayOut begins what is said with reason.NothingToWin where that is for want of a way out; the reasons of those that there are stand with them (Egress).
const NoWayOut = "no other interface can be entered from "

// settle makes what becomes of a device, after what it stands on and belongs to.
func (b *builder) settle(d *device) {
	if d.final != nil || d.settling {
		return
	}
	d.settling = true
	defer func() { d.settling = false }()
	p := d.port
	p.Inputs = slices.Clone(p.Inputs)
	if p.Bridge != nil {
		member := *p.Bridge
		p.Bridge = &member
	}
	if d.candidate {
		if d.choice.routed {
			p.Hooks = append(p.Hooks, XDP)
		} else {
			p.XDP = []Why{because(reason.NothingToWin, NoWayOut+"XDP")}
		}
	}
	joinBridge(&p, XDP, d.choice.acrossXDP)
	chooseTC(&p, d)
	joinBridge(&p, TC, d.choice.acrossTC)
	b.explain(&p, d)
	b.fillNodes(&p, d.choice.push)
	d.final = &p
	if d.was != nil && reflect.DeepEqual(d.was.final, d.final) {
		d.final = d.was.final
	}
}

// chooseTC attaches tc where some interface can be reached by it that XDP does not reach for the same packets.
func chooseTC(p *Port, d *device) {
	if len(p.Inputs) == 0 {
		return
	}
	c := &d.choice
	if p.Kind == kindVLAN {
		p.Via = c.served
	}
	if len(p.TC) > 0 {
		return
	}
	if len(d.first) == 0 {
		p.TC = slowPaths(p.Inputs[:1])
		return
	}
	switch {
	case c.tc:
		p.Hooks = append(p.Hooks, TC)
	case c.served != 0:
		p.TC = []Why{because(reason.NothingToWin, "XDP reaches every interface that tc could")}
	default:
		p.TC = []Why{because(reason.NothingToWin, NoWayOut+"tc")}
	}
}

// slowPaths gathers why no family of any input is fast.
func slowPaths(inputs []Input) []Why {
	var why []Why
	for _, in := range inputs {
		why = join(why, in.IP4.Why, in.IP6.Why)
	}
	return tidy(why)
}

// explain completes a port's reasons: those of each hook, and for a port without a hook what keeps it out altogether.
func (b *builder) explain(p *Port, d *device) {
	l := d.link
	if l.Master != 0 && l.MasterKind == kindBond {
		if bond := b.settled(l.Master); bond != nil && len(bond.final.Hooks) > 0 {
			p.Via = l.Master
		}
	}
	switch {
	case p.Has(XDP):
	case p.Kind == kindVLAN && p.Via == 0:
		if root := b.settled(b.root(l).Index); root != nil {
			p.XDP = join(p.XDP, root.final.XDP)
			for _, in := range root.port.Inputs {
				if in.Index == p.Index {
					p.XDP = join(p.XDP, slowPaths([]Input{in}))
				}
			}
		}
	case p.Kind != kindVLAN && len(p.XDP) == 0:
		p.XDP = slowPaths(p.Inputs)
	}
	if p.Bridge != nil && len(p.Hooks) == 0 {
		p.XDP, p.TC = join(p.XDP, p.Bridge.unseen()), join(p.TC, p.Bridge.unseen())
	}
	p.XDP, p.TC = tidy(p.XDP), tidy(p.TC)
	if len(p.Hooks) > 0 || p.Via != 0 {
		return
	}
	all := tidy(join(p.XDP, p.TC))
	for _, w := range all {
		if w.Reason != reason.HookChoice {
			p.Why = append(p.Why, w)
		}
	}
	if len(p.Why) == 0 {
		p.Why = all
	}
}

// settled is another device with what became of it; nil if there is none.
func (b *builder) settled(index int) *device {
	d := b.device(index)
	if d == nil || d.settling {
		return nil
	}
	b.settle(d)
	return d
}
