// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

const (
	maxTags = 2 // VLAN tags that the data path reads and writes
	tagLen  = 4 // bytes of one
)

// describeEgress gives a device as a way out that a route can lead to, with the reasons against entering it from each hook; nil where none does. Whether
// a card already transmits XDP frames is settled by chooseHooks, for which it says whether frames can be sent to it.
func (b *builder) describeEgress(l *model.Link) (*Egress, ability) {
	if l.Type == arphrdLoopback {
		return nil, cannot
	}
	chain, tags := b.lowers(l)
	port, able := chain[len(chain)-1], cannot
	e := &Egress{Index: l.Index, Name: model.PrintableName(l.Name), Kind: l.Kind, Port: port.Index, VLANs: tags, MTU: l.MTU}
	if len(tags) > 1 { // of a frame longer than the port's MTU, the kernel redirects one tag (xdp_ok_fwd_dev()); a socket buffer may have both
		e.XDPMax = port.MTU - (len(tags)-1)*tagLen
	}
	e.Frags = port.XDPFeatures != nil && *port.XDPFeatures&xdpNDOXmitSG != 0
	e.Tunnel = port.Kind == kindVXLAN
	e.Short6 = l.MTU6 != 0 && l.MTU6 < l.MTU
	both := b.egressBoth(l, chain)
	if e.XDP, e.TC = tidy(both), tidy(both); portKinds[l.Kind] && l.Type == arphrdEther {
		e.XDP = tidy(join(both, b.egressXDP(l, chain, tags)))
		e.TC = tidy(join(both, b.egressTC(l, chain)))
		if able = b.transmits(port); able == cannot {
			e.XDP = tidy(append(e.XDP, cannotTransmit(port)))
		}
	}
	if l.Kind == kindBridge && l.Bridge != nil && l.Type == arphrdEther {
		e.TC, e.Tunnel = tidy(b.ontoBridge(l)), b.intoTunnel(l)
		b.findOnto(e, l, l)
	}
	if l.Kind == kindVLAN && len(chain) == 2 && port.Kind == kindBridge && port.Bridge != nil && port.Type == arphrdEther {
		e.TC, e.Tunnel = tidy(b.ontoVLAN(l, port)), b.intoTunnel(port)
		b.findOnto(e, l, port)
	}
	return e, able
}

// egressBoth gives the reasons that hold for both hooks.
func (b *builder) egressBoth(l *model.Link, chain []*model.Link) []Why {
	why := b.asked(l)
	if l.Up && !l.Running {
		why = append(why, because(reason.LinkDown, "%s has no carrier", l.Name))
	}
	if l.Kind == kindVRF {
		why = append(why, because(reason.LinkKind, "%s is a vrf", l.Name))
	}
	if vrf := b.vrf(l); vrf != nil {
		why = join(why, b.state(vrf))
	}
	for _, d := range chain {
		why = join(why, b.state(d), b.master(d))
		if d == l {
			why = join(why, b.netdevHooks(d, "egress"))
		} else {
			why = join(why, b.passedEgress(d))
		}
	}
	if port := chain[len(chain)-1]; port.Kind == kindBond {
		for _, s := range b.bondSlaves(port) {
			why = join(why, b.passedEgress(s))
		}
	}
	return why
}

// egressXDP gives the reasons against entering an interface from XDP: everything that the frame would go around, on the
// interface, on the devices under it down to the port, and on the VRF.
func (b *builder) egressXDP(l *model.Link, chain []*model.Link, tags []model.VLAN) []Why {
	port := chain[len(chain)-1]
	why := join(b.hookChoice(port, XDP), b.redirected(l))
	if port != l {
		why = join(why, b.asked(port))
	}
	devices := chain
	if vrf := b.vrf(l); vrf != nil {
		devices = append(devices[:len(devices):len(devices)], vrf)
	}
	if port.Kind == kindBond {
		devices = append(devices[:len(devices):len(devices)], b.bondSlaves(port)...)
	}
	for _, d := range devices {
		why = join(why, b.xdpEgressHooks(d))
		if b.afxdp[d.Index] {
			why = append(why, because(reason.AFXDP, "%s", d.Name))
		}
		if d.VLAN != nil && d.VLAN.Maps {
			why = append(why, because(reason.LinkAttribute, "%s: VLAN priority map", d.Name))
		}
	}
	if port.Kind == kindVeth && !port.PeerNS && b.marksSet() {
		why = append(why, because(reason.LinkAttribute, "%s: its peer in this namespace would see the marks that rules set", port.Name))
	}
	if len(tags) > maxTags {
		why = append(why, because(reason.LinkAttribute, "%s: %d VLAN tags", l.Name, len(tags)))
	}
	return why
}

// egressTC gives the reasons against entering an interface from tc.
func (b *builder) egressTC(l *model.Link, chain []*model.Link) []Why {
	why := join(b.hookChoice(l, TC), b.attachesTC(), b.redirected(l))
	for _, d := range chain {
		why = join(why, b.tcEgressHooks(d))
	}
	switch port := chain[len(chain)-1]; port.Kind {
	case kindBond:
		for _, s := range b.bondSlaves(port) {
			why = join(why, b.tcEgressHooks(s))
		}
	case kindVXLAN:
		why = join(why, b.exceeds(l, port))
	}
	return why
}

// redirected tells that Linux takes ICMP redirects on a device (IN_DEV_RX_REDIRECTS()). Next hops there can have exceptions, which forwarded
// packets follow and bpf_fib_lookup does not know. A host that forwards no IPv4 at all takes redirects by default, and nothing follows them.
func (b *builder) redirected(l *model.Link) []Why {
	if !b.forwards4 {
		return nil
	}
	all, dev := b.net.Sysctl.All4.AcceptRedirects, l.Conf4.AcceptRedirects
	if !l.Conf4.Present || !(all && dev) && (l.Conf4.Forwarding || !all && !dev) {
		return nil
	}
	if all {
		return []Why{because(reason.SysctlUnmodelled, "net.ipv4.conf.all.accept_redirects = 1")}
	}
	return []Why{because(reason.SysctlUnmodelled, "net.ipv4.conf.%s.accept_redirects = 1, and it does not forward", l.Name)}
}

func cannotTransmit(port *model.Link) Why {
	if port.Kind == kindVeth {
		return because(reason.LinkXDPUnsupported, "%s: the peer has neither GRO nor an XDP program", port.Name)
	}
	return because(reason.LinkXDPUnsupported, "%s does not send XDP frames", driverName(port))
}
