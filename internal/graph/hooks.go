// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Where a tc filter or qdisc hangs (linux/pkt_sched.h).
const (
	tcIngress       = 0xffff0000 // parent of filters on the old ingress qdisc
	tcClsact        = 0xfffffff1
	tcClsactIngress = 0xfffffff2
	tcClsactEgress  = 0xfffffff3
)

const ethPAll = 0x0003

// tap is a packet socket that may see forwarded packets.
type tap struct{ model.PacketSocket }

func (t tap) on(l *model.Link) Why {
	who := t.Process
	if who == "" {
		who = fmt.Sprintf("socket inode %d", t.Inode)
	}
	if t.Index == 0 {
		return because(reason.PacketSocket, "%s on every interface", who)
	}
	return because(reason.PacketSocket, "%s on %s", who, l.Name)
}

// tapsOn lists the packet sockets that see a device. Sockets for every protocol see frames before tc on the way in and after
// it on the way out, so only XDP hides frames from them; sockets for one protocol see them after tc, where the fast path has
// already taken them. What a socket can accept only of frames between the ports of a bridge it sees at such ports.
func (b *builder) tapsOn(l *model.Link, early bool) []Why {
	var why []Why
	bridged := l.Port != nil
	for _, list := range [][]tap{b.taps[0], b.taps[l.Index]} {
		for _, t := range list {
			if (t.Protocol == ethPAll) == early && (!t.Harmless || t.OfBridge && bridged) {
				why = append(why, t.on(l))
			}
		}
	}
	return why
}

// tapsBelow lists the sockets for one protocol on the devices that a device's packets came by before: they see the packets last of all, when the
// device above has had them (the orig_dev of __netif_receive_skb_core()).
func (b *builder) tapsBelow(l *model.Link) []Why {
	var why []Why
	chain, _ := b.lowers(l)
	for _, d := range chain[1:] {
		why = join(why, b.tapsOn(d, false))
	}
	if port := chain[len(chain)-1]; port.Kind == kindBond {
		for _, s := range b.bondSlaves(port) {
			why = join(why, b.tapsOn(s, false))
		}
	}
	return why
}

// ingressHooks gives the reasons in what is hooked into a device's receive path behind our program, for both of our hooks:
// tc programs and filters, netfilter's ingress, packet sockets for one protocol.
func (b *builder) ingressHooks(l *model.Link) []Why {
	var why []Why
	for _, p := range l.TCX {
		if !p.Own && p.Hook != "tcx-egress" {
			why = append(why, because(reason.ForeignTC, "%s: program %d %s at %s", l.Name, p.ID, p.Name, p.Hook))
		}
	}
	for _, f := range l.TCFilters {
		if !f.Own && ingressFilter(l, f) {
			why = append(why, b.filter(l, f))
		}
	}
	for _, q := range l.Qdiscs {
		if q.BlockIn {
			why = append(why, because(reason.TCFilter, "%s: %s with a shared block for what comes in", l.Name, q.Kind))
		}
	}
	return join(why, b.netdevHooks(l, "ingress"), b.tapsOn(l, false))
}

// xdpEgressHooks gives the reasons in what a frame sent by XDP would not meet on a device: tc programs and filters, queueing,
// packet sockets.
func (b *builder) xdpEgressHooks(l *model.Link) []Why {
	var why []Why
	for _, p := range l.TCX {
		if !p.Own && p.Hook != "tcx-ingress" {
			why = append(why, because(reason.ForeignTC, "%s: program %d %s at %s", l.Name, p.ID, p.Name, p.Hook))
		}
	}
	for _, f := range l.TCFilters {
		if !f.Own && !ingressFilter(l, f) {
			why = append(why, b.filter(l, f))
		}
	}
	for _, q := range l.Qdiscs {
		switch {
		case q.BlockOut:
			why = append(why, because(reason.TCFilter, "%s: %s with a shared block for what leaves", l.Name, q.Kind))
		case !bypassable(q):
			why = append(why, because(reason.Qdisc, "%s: %s", l.Name, q.Kind))
		}
	}
	return join(why, b.tapsOn(l, true))
}

// tcEgressFilters are the classic classifiers that see no difference between a packet that Linux forwards and one that a tc
// program redirects. The others may look at the packet's route, which a redirected packet does not have, nor has it a connection; and it came by
// a port where Linux would say that it came by the port's bridge or VRF. Whether a program asks that is not known.
var tcEgressFilters = map[string]bool{"bpf": true, "u32": true, "flower": true, "matchall": true, "fw": true}

// tcEgressHooks gives the reasons in what a packet redirected by tc would not meet on a device, or meet in another state:
// redirected packets pass qdiscs and tc filters, but the kernel skips netfilter's egress hook for them (nf_skip_egress).
func (b *builder) tcEgressHooks(l *model.Link) []Why {
	var why []Why
	for _, p := range l.TCX {
		if b.renamed && !p.Own && p.Hook != "tcx-ingress" {
			why = append(why, because(reason.ForeignTC, "%s: program %d %s at %s may ask which bridge or VRF a packet came by", l.Name, p.ID, p.Name, p.Hook))
		}
	}
	for _, f := range l.TCFilters {
		if !f.Own && !ingressFilter(l, f) && (!tcEgressFilters[f.Kind] || f.Connection || f.Input || b.renamed && (f.Kind == "bpf" || f.Program)) {
			why = append(why, b.filter(l, f))
		}
	}
	for _, q := range l.Qdiscs {
		if q.BlockOut {
			why = append(why, because(reason.TCFilter, "%s: %s with a shared block for what leaves", l.Name, q.Kind))
		}
		if q.Connection {
			why = append(why, because(reason.TCFilter, "%s: %s asks for packets' connections (nat)", l.Name, q.Kind))
		}
	}
	return why
}

// ingressFilter says whether a filter classifies incoming packets: where those of clsact or the old ingress qdisc hang. A qdisc of the way out may bear the
// number of these two, which then are not there.
func ingressFilter(l *model.Link, f model.TCFilter) bool {
	switch f.Parent {
	case tcIngress, tcClsact, tcClsactIngress:
		return !slices.ContainsFunc(l.Qdiscs, func(q model.Qdisc) bool { return q.Handle == tcIngress && q.Parent != tcClsact })
	}
	return false
}

func (b *builder) filter(l *model.Link, f model.TCFilter) Why {
	if f.Kind == "bpf" {
		return because(reason.ForeignTC, "%s: tc filter bpf, prio %d", l.Name, f.Prio)
	}
	return because(reason.TCFilter, "%s: tc filter %s, prio %d", l.Name, f.Kind, f.Prio)
}

// bypassable says whether a frame sent by XDP may go around a qdisc: it neither shapes nor classifies, and no user set it up
// with limits of his own. The kernel's default qdiscs have handle 0.
func bypassable(q model.Qdisc) bool {
	switch q.Kind {
	case "noqueue", "pfifo_fast", "mq", "clsact", "ingress":
		return true
	case "fq_codel", "fq":
		return q.Handle == 0
	}
	return false
}

// taggedIngress gives the reason in chains and flow tables at a device's ingress for packets of the VLANs on top: they meet those chains too, without their tags.
func (b *builder) taggedIngress(l *model.Link) []Why {
	if !b.ingress[l.Name] && b.flowtables[l.Name] == "" {
		return nil
	}
	return []Why{because(reason.NetfilterNetdev, "%s ingress: met by packets with tags too", l.Name)}
}

// passedEgress gives the reasons in chains at the egress of a device that packets leave by which were not routed to it, but to what is on top of it: those chains
// meet them with tags, or as frames.
func (b *builder) passedEgress(l *model.Link) []Why {
	why := b.netdevHooks(l, "egress")
	if b.egress[l.Name] {
		why = append(why, because(reason.NetfilterNetdev, "%s egress: met by what was not routed to it", l.Name))
	}
	return why
}

// netdevHooks gives the reasons in a device's netfilter ingress or egress chains, but for those that the data path asks.
func (b *builder) netdevHooks(l *model.Link, hook string) []Why {
	var why []Why
	for _, name := range []string{"", l.Name} {
		for _, h := range b.hooks[name] {
			if h.Hook == hook || h.Hook != "ingress" && h.Hook != "egress" {
				why = append(why, because(reason.NetfilterNetdev, "%s %s: %s", l.Name, h.Hook, describeHook(h)))
			}
		}
	}
	return why
}
