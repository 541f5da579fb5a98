// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"
	"strings"

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

// bridged says whether a hook of the bridge family is met by frames between ports and does something.
func bridged(h model.NFHook) bool {
	return h.Hook != "input" && h.Hook != "output" && !idle(h)
}

// describeBridges adds to every port of a bridge what becomes of known unicast that comes in there, and to the device as a way out, whether it can
// leave there.
func (b *builder) describeBridges() {
	for i := range b.graph.Ports {
		p := &b.graph.Ports[i]
		l := b.net.Link(p.Index)
		br := b.bridge(l)
		if br == nil {
			continue
		}
		why := join(b.bridgeReasons(br), memberReasons(l))
		p.Bridge = &Member{Index: br.Index, Name: br.Name, Path: Path{Why: tidy(why)}}
		if e := b.egress(l.Index); e != nil {
			e.Bridge = &Way{Index: br.Index, XDP: tidy(join(why, b.wayXDP(l))), TC: tidy(join(why, b.wayTC(l)))}
		}
	}
}

func (b *builder) egress(index int) *Egress {
	i, ok := slices.BinarySearchFunc(b.graph.Egress, index, func(e Egress, want int) int { return e.Index - want })
	if !ok {
		return nil
	}
	return &b.graph.Egress[i]
}

// bridgeReasons gives the reasons that keep all frames of a bridge with Linux.
func (b *builder) bridgeReasons(br *model.Link) []Why {
	why := join(b.wide, b.bridgeHooks, b.asked(br))
	if !b.policy.Kernel.Bridge {
		why = append(why, because(reason.BridgeUnreadable, "%s", b.policy.Kernel.NoBridge))
	}
	for _, u := range br.Unknown {
		why = append(why, because(reason.LinkAttribute, "%s: %s", u.Where, u.What))
	}
	if br.Bridge.VLANFiltering {
		why = append(why, because(reason.BridgeVLAN, "%s: vlan_filtering 1", br.Name))
	}
	if br.Bridge.Ageing == 0 {
		why = append(why, because(reason.BridgeOption, "%s: ageing_time 0", br.Name))
	}
	for _, o := range br.Bridge.On {
		why = append(why, because(reason.BridgeOption, "%s: %s", br.Name, o))
	}
	for _, o := range br.Bridge.NFCall {
		why = append(why, because(reason.BridgeNetfilter, "%s: %s 1", br.Name, o))
	}
	// What br_netfilter does is done by its hooks, which come with it (brnf_init_net()).
	if b.net.Sysctl.BridgeNFCall {
		why = append(why, because(reason.BridgeNetfilter, "%s", strings.Join(b.callingSysctls(), ", ")))
	}
	return why
}

// callingSysctls names the switches of br_netfilter that are on.
func (b *builder) callingSysctls() (out []string) {
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		if v := b.net.Sysctl.Values["bridge/bridge-nf-call-"+name]; v != "" && v != "0" {
			out = append(out, "net.bridge.bridge-nf-call-"+name+" = "+v)
		}
	}
	return out
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
		why = join(why, b.state(d), b.netdevHooks(d, "egress"))
		if d != l {
			why = join(why, b.master(d))
		}
	}
	for _, s := range b.bondSlaves(chain[len(chain)-1]) {
		why = join(why, b.netdevHooks(s, "egress"))
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

// chooseBridges attaches to the ports of bridges by the same rules as to others: XDP towards ports that XDP frames can leave by, tc where some
// port can only be reached from there.
func (b *builder) chooseBridges() {
	g := b.graph
	willing := map[int]bool{} // ports where frames could be taken at XDP
	for i := range g.Ports {
		p := &g.Ports[i]
		willing[p.Index] = p.Bridge != nil && len(p.Bridge.Why) == 0 && len(p.XDP) == 0 && p.Kind != kindVLAN && p.Kind != kindBond
	}
	late := map[int]bool{} // ways out that need a program of their own
	for i := range g.Egress {
		e := &g.Egress[i]
		late[e.Index] = e.Bridge != nil && len(e.Bridge.XDP) == 0 && b.transmits(b.net.Link(e.Index)) == onLoad
	}
	for i := range g.Ports {
		p := &g.Ports[i]
		if p.Bridge == nil || len(p.Bridge.Why) > 0 {
			continue
		}
		var byXDP, byTC, onlyTC, waiting bool // other ports: those that XDP reaches, tc reaches, only tc; those that wait for this one to be loaded
		for j := range g.Egress {
			e := &g.Egress[j]
			if e.Index == p.Index || e.Bridge == nil || e.Bridge.Index != p.Bridge.Index {
				continue
			}
			x := len(e.Bridge.XDP) == 0 && (!late[e.Index] || willing[e.Index])
			byXDP, byTC = byXDP || x, byTC || len(e.Bridge.TC) == 0
			onlyTC = onlyTC || !x && len(e.Bridge.TC) == 0
			waiting = waiting || late[p.Index] && willing[e.Index]
		}
		if willing[p.Index] {
			if byXDP || waiting {
				p.Hooks = append(p.Hooks, XDP)
			} else {
				p.XDP = []Why{because(reason.NothingToWin, "no other port of %s can be entered from XDP", p.Bridge.Name)}
			}
		} else if len(p.XDP) == 0 {
			p.XDP = []Why{because(reason.LinkKind, "%s is a %s in a bridge", p.Name, p.Kind)}
		}
		switch {
		case len(p.TC) > 0:
		case onlyTC, byTC && !p.Has(XDP):
			p.Hooks = append(p.Hooks, TC)
		case byTC:
			p.TC = []Why{because(reason.NothingToWin, "XDP reaches every port that tc could")}
		default:
			p.TC = []Why{because(reason.NothingToWin, "no other port of %s can be entered from tc", p.Bridge.Name)}
		}
	}
	for i := range g.Egress {
		if e := &g.Egress[i]; late[e.Index] {
			when := "only with a program loaded on it"
			if p := b.port(e.Index); p != nil && p.Has(XDP) {
				when = "once a program is loaded on it"
			}
			e.Bridge.XDP = tidy(append(e.Bridge.XDP, because(reason.LinkXDPUnsupported, "%s sends XDP frames %s", driverName(b.net.Link(e.Index)), when)))
		}
	}
}

// bridgeNodes gives the path of bridged frames its nodes; without a program it inherits the port's reasons.
func (b *builder) bridgeNodes(p *Port) {
	switch {
	case p.Bridge == nil || len(p.Bridge.Why) > 0:
	case len(p.Hooks) == 0:
		p.Bridge.Why = p.Why
	default:
		p.Bridge.Nodes = []Node{{Kind: NodeBridge}, {Kind: NodeEgress}, {Kind: NodeGuard}, {Kind: NodeRedirect}}
	}
}
