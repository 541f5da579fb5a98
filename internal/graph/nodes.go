// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Modes of the reverse path check.
const (
	reverseStrict = "strict" // the route back must lead out of the ingress interface
	reverseLoose  = "loose"  // there must be a unicast route back
	reverseSource = "source" // if there is a route back, it must be unicast
)

// fillNodes gives every fast path of a port its nodes: only those that this configuration needs. Paths of ports without a program
// inherit the port's reasons.
func (b *builder) fillNodes(p *Port, push int) {
	b.bridgeNodes(p)
	if len(p.Hooks) == 0 && p.Via != 0 {
		p.Inputs = []Input{}
	}
	if !p.Has(XDP) && len(p.Inputs) > 1 && (p.Bridge == nil || !p.Bridge.VLANs) {
		p.Inputs = p.Inputs[:1] // at tc a VLAN device is a port of its own
	}
	for j := range p.Inputs {
		in := &p.Inputs[j]
		l := b.net.Link(in.Index)
		for _, path := range []*Path{&in.IP4, &in.IP6} {
			filter, family := b.graph.Filter4, model.IP4
			if path == &in.IP6 {
				filter, family = b.graph.Filter6, model.IP6
			}
			if len(path.Why) == 0 && len(p.Hooks) > 0 {
				if filter != nil {
					path.Except = b.slowAt(l, filter)
				}
				if t := b.tracking[family]; t.nat && t.natWhy != "" {
					path.Except = append(slices.Clip(path.Except), because(reason.ConntrackNAT, "what is translated: %s", t.natWhy))
				}
			}
			switch {
			case len(path.Why) > 0:
			case len(p.Hooks) == 0:
				path.Why = p.Why
			case path == &in.IP4:
				path.Nodes = b.nodes4(p, in, l, push)
			default:
				path.Nodes = b.nodes6(p, in, l, push)
			}
		}
	}
}

func (b *builder) nodes4(p *Port, in *Input, l *model.Link, push int) []Node {
	nodes := slices.Concat(vlanNode(in), []Node{{Kind: NodeIP4}}, withFlowtable(b.trackNode(model.IP4), b.flowtables[l.Name], p), rulesIn(b.graph.Filter4), b.natNode(model.IP4))
	mode := b.reverseMode(l)
	// Of several next hops the lookup for programs prefers that of the source's own interface (fib_select_multipath(), since Linux 6.15), as for packets of this host; and
	// a next hop goes on calling an address its own that has left this host since (nh_saddr).
	if mode == "" && !b.acceptLocal(l) || b.ecmp4 && (mode == "" || len(b.net.Left) > 0) {
		nodes = append(nodes, Node{Kind: NodeLocal})
	}
	if b.graph.Notable4 {
		nodes = append(nodes, Node{Kind: NodeSpecial})
	}
	nodes = append(nodes, fibNode(b.rules4, b.ecmp4, b.rules4.marks || b.validMark, b.graph.Filter4))
	if mode != "" {
		iif := "egress"
		if in.VRF != 0 {
			iif = "ingress"
		}
		nodes = append(nodes, Node{NodeRPFilter, map[string]string{"mode": mode, "iif": iif}})
	}
	rewrite := rewriteNode(p, in, push)
	if p.Has(TC) && b.net.Sysctl.UpdatePriority {
		rewrite = withParam(rewrite, "priority", "tos")
	}
	nodes = append(append(nodes, Node{Kind: NodeEgress}), rulesOut(b.graph.Filter4)...)
	return append(nodes, Node{Kind: NodeGuard}, rewrite, Node{Kind: NodeRedirect})
}

func (b *builder) nodes6(p *Port, in *Input, l *model.Link, push int) []Node {
	nodes := slices.Concat(vlanNode(in), []Node{{Kind: NodeIP6}}, withFlowtable(b.trackNode(model.IP6), b.flowtables[l.Name], p), rulesIn(b.graph.Filter6), b.natNode(model.IP6))
	if b.graph.Notable6 {
		nodes = append(nodes, Node{Kind: NodeSpecial})
	}
	nodes = append(append(nodes, fibNode(b.rules6, b.ecmp6, b.rules6.marks, b.graph.Filter6), Node{Kind: NodeEgress}), rulesOut(b.graph.Filter6)...)
	return append(nodes, Node{Kind: NodeGuard}, rewriteNode(p, in, push), Node{Kind: NodeRedirect})
}

// acceptLocal says whether packets with this host's own addresses as source are forwarded.
func (b *builder) acceptLocal(l *model.Link) bool {
	return b.net.Sysctl.All4.AcceptLocal || l.Conf4.AcceptLocal
}

// reverseMode tells which look at the way back Linux takes before forwarding IPv4, "" when it takes none.
//
// rp_filter is the larger of all's and the device's. Loose mode on a device without an address is strict: Linux takes a route
// by another interface only if it could have an address to answer from. Without rp_filter, custom rules, custom local routes
// or realms still make Linux look up the source, which must then not be local, broadcast or multicast; otherwise a search
// among the local addresses is enough. In a VRF the switches asked are those of the device that the packet came by (ip_rcv_finish()
// hands it on), not the VRF's. Marks take no part (src_valid_mark): where it is on, packets that carry one are not fast.
func (b *builder) reverseMode(l *model.Link) string {
	switch filter := max(b.net.Sysctl.All4.RPFilter, l.Conf4.RPFilter); {
	case filter == 1, filter > 1 && !b.address4[l.Index]:
		return reverseStrict
	case filter > 1:
		return reverseLoose
	case b.realms4:
		return reverseSource
	case b.acceptLocal(l):
		return ""
	case b.rules4.custom, b.net.Routes.Custom4, b.net.Routes.CustomRules4:
		return reverseSource
	}
	return ""
}

func vlanNode(in *Input) []Node {
	if len(in.VLANs) == 0 {
		return nil
	}
	return []Node{{NodeVLAN, map[string]string{"tags": fmt.Sprint(len(in.VLANs))}}}
}

// slowAt are the rules that leave packets of an interface to Linux: those at the ingress of devices are not met by others' packets.
func (b *builder) slowAt(l *model.Link, f *Filter) []Why {
	if b.ingress[l.Name] {
		return f.Slow
	}
	return slices.DeleteFunc(slices.Clone(f.Slow), func(w Why) bool { return slices.Contains(f.atIngress, w) })
}

func rulesIn(f *Filter) []Node {
	if f == nil {
		return nil
	}
	return f.Pre.node(NodeRulesIn)
}

func rulesOut(f *Filter) []Node {
	if f == nil {
		return nil
	}
	return f.Post.node(NodeRulesOut)
}

// node is the node of a stage that does something.
func (s Stage) node(kind string) []Node {
	if s.Entries == 0 {
		return nil
	}
	n := Node{kind, map[string]string{"entries": fmt.Sprint(s.Entries)}}
	if s.Slow > 0 {
		n = withParam(n, "slow", fmt.Sprint(s.Slow))
	}
	if s.Dims > 0 {
		n = withParam(n, "dims", fmt.Sprint(s.Dims))
	}
	return []Node{n}
}

// MarksSet is what a fib node's parameter marks says where its lookup takes the mark that rules have set.
const MarksSet = "set by rules"

func fibNode(rules ruleFacts, ecmp, marks bool, f *Filter) Node {
	n := Node{Kind: NodeFIB}
	if rules.ports {
		n = withParam(n, "ports", "rules")
	}
	if ecmp {
		n = withParam(n, "ecmp", "addresses")
	}
	switch {
	case marks && f != nil && f.routeMark:
		n = withParam(n, "marks", MarksSet)
	case marks:
		n = withParam(n, "marks", "asked")
	}
	return n
}

func rewriteNode(p *Port, in *Input, push int) Node {
	n := Node{Kind: NodeRewrite}
	if !p.Has(XDP) {
		return n
	}
	if len(in.VLANs) > 0 {
		n = withParam(n, "pop", fmt.Sprint(len(in.VLANs)))
	}
	if push > 0 {
		n = withParam(n, "push", fmt.Sprint(push))
	}
	return n
}

func withParam(n Node, key, value string) Node {
	params := map[string]string{key: value}
	for k, v := range n.Params {
		params[k] = v
	}
	n.Params = params
	return n
}
