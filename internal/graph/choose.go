// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// chooseHooks settles where programs are attached: XDP where frames come from a wire and can go out as XDP frames, tc where
// some interface can only be reached from there, nothing where nothing is won.
func (b *builder) chooseHooks() {
	g := b.graph
	across := b.across()
	b.chooseXDP()
	b.joinBridges(XDP, across)
	b.closeLatePorts()
	var byTC, onlyTC []int // interfaces that tc can enter, and those of them that XDP cannot
	for _, e := range g.Egress {
		if len(e.TC) == 0 {
			byTC = append(byTC, e.Index)
			if len(e.XDP) > 0 {
				onlyTC = append(onlyTC, e.Index)
			}
		}
	}
	for i := range g.Ports {
		b.chooseTC(&g.Ports[i], byTC, onlyTC)
	}
	b.joinBridges(TC, across)
	for i := range g.Ports {
		b.explain(&g.Ports[i])
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

// chooseXDP attaches XDP where it wins. A card that transmits only with a program of its own becomes a target with ours, so
// it is attached to for another port's sake too; until the program is there, it is not entered.
func (b *builder) chooseXDP() {
	candidates := map[int][]int{} // port → logical interfaces whose packets could be fast
	for _, p := range b.graph.Ports {
		if p.Kind == kindVLAN || len(p.XDP) > 0 {
			continue
		}
		if in := willing(p.Inputs); len(in) > 0 {
			candidates[p.Index] = in
		}
	}
	var targets []int        // interfaces that can be entered, now or once their port is attached to
	loaded := map[int]bool{} // ports that become targets by being attached to
	for _, e := range b.graph.Egress {
		_, attached := candidates[e.Port]
		switch ability := b.targets[e.Index]; {
		case len(e.XDP) > 0:
		case ability == onLoad && attached:
			loaded[e.Port] = true
			targets = append(targets, e.Index)
		case ability == can:
			targets = append(targets, e.Index)
		}
	}
	for i := range b.graph.Ports {
		p := &b.graph.Ports[i]
		in, ok := candidates[p.Index]
		switch {
		case !ok:
		case elsewhere(in, targets), loaded[p.Index] && len(candidates) > 1:
			p.Hooks = append(p.Hooks, XDP)
		default:
			p.XDP = []Why{because(reason.NothingToWin, "no other interface can be entered from XDP")}
		}
	}
	b.closeUntilLoaded()
}

// closeUntilLoaded takes the cards that do not transmit yet from the interfaces that XDP enters.
func (b *builder) closeUntilLoaded() {
	for i := range b.graph.Egress {
		e := &b.graph.Egress[i]
		if b.targets[e.Index] != onLoad {
			continue
		}
		when := "only with a program loaded on it"
		if p := b.port(e.Port); p != nil && p.Has(XDP) {
			when = "once a program is loaded on it"
		}
		e.XDP = tidy(append(e.XDP, because(reason.LinkXDPUnsupported, "%s sends XDP frames %s", driverName(b.net.Link(e.Port)), when)))
	}
}

func (b *builder) port(index int) *Port {
	i, ok := slices.BinarySearchFunc(b.graph.Ports, index, func(p Port, want int) int { return p.Index - want })
	if !ok {
		return nil
	}
	return &b.graph.Ports[i]
}

// served says by which port's XDP program a logical interface's packets can be forwarded; 0 when by none.
func (b *builder) served(l *model.Link) int {
	chain, _ := b.lowers(l)
	root := b.port(chain[len(chain)-1].Index)
	if root == nil || !root.Has(XDP) {
		return 0
	}
	for _, in := range root.Inputs {
		if (in.Index == l.Index || root.Index == l.Index && root.Bridge != nil) && (len(in.IP4.Why) == 0 || len(in.IP6.Why) == 0) {
			return root.Index
		}
	}
	return 0
}

// chooseTC attaches tc where some interface can be reached by it that XDP does not reach for the same packets.
func (b *builder) chooseTC(p *Port, byTC, onlyTC []int) {
	l := b.net.Link(p.Index)
	if len(p.Inputs) == 0 {
		return
	}
	served := b.served(l)
	if l.Kind == kindVLAN {
		p.Via = served
	}
	if len(p.TC) > 0 {
		return
	}
	in := willing(p.Inputs[:1])
	if len(in) == 0 {
		p.TC = slowPaths(p.Inputs[:1])
		return
	}
	reachable := byTC
	if served != 0 {
		reachable = onlyTC
	}
	switch {
	case elsewhere(in, reachable):
		p.Hooks = append(p.Hooks, TC)
	case served != 0:
		p.TC = []Why{because(reason.NothingToWin, "XDP reaches every interface that tc could")}
	default:
		p.TC = []Why{because(reason.NothingToWin, "no other interface can be entered from tc")}
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
func (b *builder) explain(p *Port) {
	l := b.net.Link(p.Index)
	if l.Master != 0 && l.MasterKind == kindBond {
		if bond := b.port(l.Master); bond != nil && len(bond.Hooks) > 0 {
			p.Via = bond.Index
		}
	}
	switch {
	case p.Has(XDP):
	case p.Kind == kindVLAN && p.Via == 0:
		chain, _ := b.lowers(l)
		if root := b.port(chain[len(chain)-1].Index); root != nil && root != p {
			p.XDP = join(p.XDP, root.XDP)
			for _, in := range root.Inputs {
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
