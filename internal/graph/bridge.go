// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// bridge gives the bridge that a device is a port of; nil when it is none's, or of one that is not known.
func (b *builder) bridge(l *model.Link) *model.Link {
	if l.Master == 0 || l.MasterKind != kindBridge {
		return nil
	}
	if br := b.net.Link(l.Master); br != nil && br.Bridge != nil && l.Port != nil {
		return br
	}
	return nil
}

// describeBridge adds to a port of a bridge what becomes of known unicast that comes in there, and to the device as a way out, whether it can
// leave there.
func (b *builder) describeBridge(l *model.Link, p *Port, e *Egress) {
	br := b.bridge(l)
	if br == nil {
		return
	}
	why := join(b.bridgeReasons(br, b.bridgeUnread), memberReasons(l))
	if !b.policy.Kernel.BridgeVLANs {
		why = join(why, filtersVLANs(br))
	}
	p.Bridge = &Member{VLANs: br.Bridge.VLANFiltering, Chains: len(b.bridgeHooks) > 0, Index: br.Index, Name: model.PrintableName(br.Name), Path: Path{Why: tidy(why)}, Call4: b.call(br, model.IP4), Call6: b.call(br, model.IP6)}
	p.Bridge.except()
	if len(p.XDP) == 0 && (p.Kind == kindVLAN || p.Kind == kindBond) {
		p.XDP = []Why{because(reason.LinkKind, "%s is a %s in a bridge", p.Name, p.Kind)}
	}
	if e != nil {
		e.Bridge = &Way{Index: br.Index, XDP: tidy(join(why, b.wayXDP(l))), TC: tidy(join(why, b.wayTC(l)))}
		e.Bridge.Veth = l.Kind == kindVeth
		e.Bridge.Peer = len(e.Bridge.TC) == 0 && e.Bridge.Veth && l.PeerNS && l.SendsAsIs && !l.GSOLimited && len(b.xdpEgressHooks(l)) == 0
	}
}

// bridgeReasons gives the reasons that keep all frames of a bridge with Linux; hooks are those in chains of family bridge.
func (b *builder) bridgeReasons(br *model.Link, hooks []Why) []Why {
	why := join(b.wide, hooks, b.asked(br))
	if !b.policy.Kernel.Bridge {
		why = append(why, because(reason.BridgeUnreadable, "%s", b.policy.Kernel.NoBridge))
	}
	for _, u := range br.Unknown {
		why = append(why, because(reason.LinkAttribute, "%s: %s", u.Where, u.What))
	}
	if br.Bridge.Ageing == 0 {
		why = append(why, because(reason.BridgeOption, "%s: ageing_time 0", br.Name))
	}
	for _, o := range br.Bridge.On {
		why = append(why, because(reason.BridgeOption, "%s: %s", br.Name, o))
	}
	return why
}

// filtersVLANs gives the reason against what does not know the VLANs of a bridge.
func filtersVLANs(br *model.Link) []Why {
	if !br.Bridge.VLANFiltering {
		return nil
	}
	return []Why{because(reason.BridgeVLAN, "%s: vlan_filtering 1", br.Name)}
}

// memberReasons gives the reasons in a port's options, which hold for frames in and out.
func memberReasons(l *model.Link) []Why {
	var why []Why
	for _, o := range l.Port.On {
		why = append(why, because(reason.BridgeOption, "%s: %s", l.Name, o))
	}
	return why
}

// wayBoth gives the reasons against frames of a bridge leaving by a port, from either hook: everything on the devices down to the one that sends.
func (b *builder) wayBoth(l *model.Link, chain []*model.Link) []Why {
	why := b.asked(l)
	if l.Up && !l.Running {
		why = append(why, because(reason.LinkDown, "%s has no carrier", l.Name))
	}
	for _, d := range chain {
		why = join(why, b.state(d), b.passedEgress(d))
		if d != l {
			why = join(why, b.master(d))
		}
	}
	for _, s := range b.bondSlaves(chain[len(chain)-1]) {
		why = join(why, b.passedEgress(s))
	}
	return why
}

func (b *builder) wayXDP(l *model.Link) []Why {
	chain, _ := b.lowers(l)
	why := join(b.wayBoth(l, chain), b.hookChoice(l, XDP), b.xdpEgressHooks(l))
	if b.afxdp[l.Index] {
		why = append(why, because(reason.AFXDP, "%s", l.Name))
	}
	if l.Kind == kindVLAN || l.Kind == kindBond {
		why = append(why, because(reason.LinkKind, "%s is a %s in a bridge", l.Name, l.Kind))
	} else if b.transmits(l) == cannot {
		why = append(why, cannotTransmit(l))
	}
	return why
}

func (b *builder) wayTC(l *model.Link) []Why {
	chain, _ := b.lowers(l)
	why := join(b.wayBoth(l, chain), b.hookChoice(l, TC), b.attachesTC())
	for _, d := range append(chain[:len(chain):len(chain)], b.bondSlaves(chain[len(chain)-1])...) {
		why = join(why, b.tcEgressHooks(d))
	}
	return why
}

// hosts describes a bridge as the logical interface that frames to its own address enter by, at any of its ports, and, where it filters by VLAN, the VLAN devices on it.
func (b *builder) hosts(br, port *model.Link) []Input {
	why := join(b.bridgeReasons(br, b.bridgeUp), memberReasons(port), b.stacked(br), b.ingressHooks(br), b.xdpOnly(br))
	if !b.policy.Kernel.BridgeVLANs {
		why = join(why, filtersVLANs(br))
	}
	if !br.Up {
		why = append(why, because(reason.LinkDown, "%s", br.Name))
	}
	add := func(in *Input, what4, what6 []Why) {
		in.IP4.Why, in.IP6.Why = tidy(join(in.IP4.Why, why, what4)), tidy(join(in.IP6.Why, why, what6))
	}
	in := b.input(br, nil)
	add(&in, join(b.master(br), b.calledHost(br, model.IP4)), join(b.master(br), b.calledHost(br, model.IP6)))
	all := []Input{in}
	if !br.Bridge.VLANFiltering {
		return all
	}
	for _, u := range b.uppers[br.Index] {
		if u.Kind != kindVLAN || u.VLAN == nil || u.PeerNS {
			continue
		}
		own := join(b.state(u), b.asked(u), b.master(u), b.stacked(u), b.ingressHooks(u), b.xdpOnly(u), vlanMaps(u), otherTag(u), b.taggedIngress(br))
		in := b.input(u, []model.VLAN{*u.VLAN})
		add(&in, join(own, b.calledVLAN(br, model.IP4)), join(own, b.calledVLAN(br, model.IP6)))
		all = append(all, in)
	}
	return all
}

// vlanMaps gives the reason in priorities that a VLAN device translates.
func vlanMaps(l *model.Link) []Why {
	if !l.VLAN.Maps {
		return nil
	}
	return []Why{because(reason.LinkAttribute, "%s: VLAN priority map", l.Name)}
}

// otherTag gives the reason in tags that the data path does not look for where a bridge hands packets on to its VLAN devices.
func otherTag(l *model.Link) []Why {
	if l.VLAN.Proto == ethP8021Q {
		return nil
	}
	return []Why{because(reason.LinkAttribute, "%s: VLAN protocol %#x on a bridge", l.Name, l.VLAN.Proto)}
}

// calledVLAN gives the reason against what a bridge hands on to a VLAN device: br_netfilter has shown it to prerouting as the bridge's, or not at all, which another switch says.
func (b *builder) calledVLAN(br *model.Link, family model.Family) []Why {
	c := b.calledBy(br, family)
	if c.By == "" {
		return nil
	}
	return []Why{because(reason.BridgeNetfilter, "%s, and %s filters by VLAN", c.By, br.Name)}
}

// ontoBridge gives the reasons against a route that leads to a bridge, from tc: there the packet goes through Linux's own bridge, which finds the port.
func (b *builder) ontoBridge(br *model.Link) []Why {
	why := join(b.asked(br), b.master(br), b.passedEgress(br), b.egressTC(br, []*model.Link{br}))
	for _, w := range b.bridgeReasons(br, b.bridgeDown) {
		if w.Reason != reason.BridgeUnreadable {
			why = append(why, w)
		}
	}
	switch {
	case !br.Up:
		why = append(why, because(reason.LinkDown, "%s", br.Name))
	case !br.Running:
		why = append(why, because(reason.LinkDown, "%s has no carrier", br.Name))
	}
	if vrf := b.vrf(br); vrf != nil {
		why = join(why, b.state(vrf))
	}
	for i := range b.net.Links {
		l := b.net.Links[i]
		if l.Master != br.Index {
			continue
		}
		chain, _ := b.lowers(l)
		switch port := chain[len(chain)-1]; port.Kind {
		case kindBond:
			chain = slices.Concat(chain, b.bondSlaves(port))
		case kindVXLAN: // a bridge hands on the route that a packet came by (no IFF_XMIT_DST_RELEASE)
			why = join(why, b.exceeds(l, port))
		}
		for _, d := range chain {
			why = join(why, b.passedEgress(d), b.tcEgressHooks(d))
		}
	}
	return why
}

// intoTunnel says whether some port of a bridge leads into a tunnel.
func (b *builder) intoTunnel(br *model.Link) bool {
	return slices.ContainsFunc(b.net.Links, func(l *model.Link) bool {
		if l.Master != br.Index {
			return false
		}
		chain, _ := b.lowers(l)
		return chain[len(chain)-1].Kind == kindVXLAN
	})
}

// ontoVLAN gives the reasons against a route that leads to a VLAN device on a bridge, from tc: it puts its tag beside the packet and hands it to the bridge.
func (b *builder) ontoVLAN(l, br *model.Link) []Why {
	why := join(b.asked(l), b.state(l), b.master(l), b.netdevHooks(l, "egress"), b.egressTC(l, []*model.Link{l}), b.ontoBridge(br))
	if l.Up && !l.Running {
		why = append(why, because(reason.LinkDown, "%s has no carrier", l.Name))
	}
	if vrf := b.vrf(l); vrf != nil {
		why = join(why, b.state(vrf))
	}
	return why
}

// findOnto says of an interface, a bridge or a VLAN device on it, whether the bridge's port may be found and entered at once. Of a VLAN device on a bridge that does
// not filter it is not looked for.
func (b *builder) findOnto(e *Egress, l, br *model.Link) {
	e.ByVLAN = br.Bridge.VLANFiltering
	known := b.policy.Kernel.Bridge && (l == br && !e.ByVLAN || e.ByVLAN && b.policy.Kernel.BridgeVLANs)
	e.Onto = len(e.TC) == 0 && known && b.routed(l) && len(b.pastBridge(br)) == 0
	if l != br {
		e.Onto = e.Onto && len(join(b.pastBridge(l), vlanMaps(l))) == 0
	}
}

// pastBridge gives the reasons against going around a bridge's own transmit function: what is sent by it would be seen there.
func (b *builder) pastBridge(br *model.Link) []Why {
	why := join(b.bridgePlain, b.xdpEgressHooks(br))
	if vrf := b.vrf(br); vrf != nil {
		why = join(why, b.xdpEgressHooks(vrf))
	}
	return why
}

// routed says whether routes can be expected to lead to a bridge: it has an address that is not of its link alone. Those of others go through it as well.
func (b *builder) routed(br *model.Link) bool {
	return b.reached[br.Index]
}

// across says which hooks the ports of bridges need for frames between them, by the same rules as for others: XDP towards ports that XDP frames can
// leave by, tc where some port can only be reached from there.
func (b *builder) across(out []choice) {
	all := map[int]exits{} // by bridge
	for i := range b.briefs {
		if d := &b.briefs[i]; d.leaves != 0 {
			all[d.leaves] = all[d.leaves].plus(d.exit, 1)
		}
	}
	for i := range b.briefs {
		d := &b.briefs[i]
		if d.bridge == 0 {
			continue
		}
		others := all[d.bridge]
		if d.leaves == d.bridge {
			others = others.plus(d.exit, -1)
		}
		out[i].acrossXDP = d.willing && (others.byXDP > 0 || d.late && others.willing > 0)
		out[i].acrossTC = d.openTC && (others.onlyTC > 0 || others.byTC > 0 && !out[i].acrossXDP)
	}
}

// exits counts the ports of a bridge by how frames can leave there: those that XDP reaches, that tc reaches, that only tc reaches, and those where frames could be
// taken at XDP. There may be a thousand, so that none can be compared with each other one.
type exits struct{ byXDP, byTC, onlyTC, willing int }

func (w exits) plus(o exits, n int) exits {
	return exits{w.byXDP + n*o.byXDP, w.byTC + n*o.byTC, w.onlyTC + n*o.onlyTC, w.willing + n*o.willing}
}

// exitOf is one port.
func exitOf(xdp, tc, willing bool) exits {
	count := map[bool]int{true: 1}
	return exits{byXDP: count[xdp], byTC: count[tc], onlyTC: count[tc && !xdp], willing: count[willing]}
}

// joinBridge attaches to a port of a bridge at a hook what frames between its ports need, where nothing else wanted it.
func joinBridge(p *Port, hook Hook, across bool) {
	why := &p.XDP
	if hook == TC {
		why = &p.TC
	}
	switch {
	case p.Bridge == nil || p.Has(hook):
	case across:
		p.Hooks, *why = append(p.Hooks, hook), nil
	case len(*why) == 0 && len(p.Bridge.unseen()) == 0:
		*why = []Why{because(reason.NothingToWin, "no other port of %s is to be entered from %s", p.Bridge.Name, hook)}
	}
}

// bridgeNodes gives the path of bridged frames its nodes; without a program it inherits the port's reasons.
func (b *builder) bridgeNodes(p *Port) {
	switch {
	case p.Bridge == nil:
	case len(p.Bridge.Why) > 0:
		p.Bridge.Except = nil
	case len(p.Hooks) == 0:
		p.Bridge.Why, p.Bridge.Except = p.Why, nil
	default:
		b.callNodes(p)
		p.Bridge.Nodes = []Node{{Kind: NodeBridge}, {Kind: NodeEgress}, {Kind: NodeGuard}, {Kind: NodeRedirect}}
	}
}
