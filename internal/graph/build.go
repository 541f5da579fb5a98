// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Build decides for every device of a network whether, by which hook and through which nodes its packets take the fast
// path. It is pure: equal arguments give equal graphs. With a memo, what follows from links that did not change is not worked out again but the same value.
func Build(net *model.Network, policy Policy) *Graph {
	g := &Graph{Special: specials(net), Flows: policy.Flows, Ports: make([]*Port, 0, len(net.Links)), Egress: make([]*Egress, 0, len(net.Links))}
	b := newBuilder(net, policy, g)
	for _, s := range g.Special {
		if s.Prefix.Addr().Is4() {
			g.Notable4 = true
		} else {
			g.Notable6 = true
		}
	}
	now := b.describe()
	b.chooseHooks()
	if policy.Memo == nil {
		return g
	}
	policy.Memo.last = now
	return now.settled(g)
}

// builder holds what is looked up often while a graph is made.
type builder struct {
	net    *model.Network
	policy Policy
	graph  *Graph

	uppers map[int][]*model.Link // devices whose IFLA_LINK is the key
	facts
	devices []*device // in the order of their numbers
	briefs  []brief   // theirs
}

// facts are what follows from everything but single links.
type facts struct {
	taps     map[int][]tap // packet sockets by ifindex, 0: on every device
	hooks    map[string][]model.NFHook
	ingress  map[string]bool // devices of which the data path asks chains at ingress
	egress   map[string]bool // and those of which it asks chains at egress
	afxdp    map[int]bool
	address4 map[int]bool // devices with an IPv4 address
	reached  map[int]bool // devices with an address that is not of their link alone

	wide         []Why             // reasons that hold for every packet: what could not be read
	bridgeHooks  []Why             // chains that bridged frames could meet
	bridgeUnread []Why             // those of them that the data path cannot ask
	bridgeUp     []Why             // chains that frames from a bridge to this host could meet
	flowtables   map[string]string // devices whose flow table the data path asks, with its name
	bridgeDown   []Why             // those that frames from this host to a bridge could meet
	bridgePlain  []Why             // those of the last that find in what tc sends all that they ask for
	wide4, wide6 []Why             // reasons that hold on every interface, by family
	tracking     map[model.Family]tracking
	rules4       ruleFacts
	rules6       ruleFacts
	realms4      bool // an IPv4 route has realms
	ecmp4, ecmp6 bool // a multipath route exists
	validMark    bool // somewhere the way back is looked up with the mark
	forwards4    bool // some device forwards IPv4
	renamed      bool // packets may have come by a bridge or VRF where a program says that they came by its port
}

func newBuilder(net *model.Network, policy Policy, g *Graph) *builder {
	b := &builder{
		net: net, policy: policy, graph: g, uppers: map[int][]*model.Link{},
		facts: facts{taps: map[int][]tap{}, hooks: map[string][]model.NFHook{}, ingress: map[string]bool{}, egress: map[string]bool{}, flowtables: map[string]string{}, afxdp: map[int]bool{}, address4: map[int]bool{}, reached: map[int]bool{}},
	}
	b.validMark = net.Sysctl.All4.SrcValidMark
	for _, l := range net.Links {
		b.validMark = b.validMark || l.Conf4.SrcValidMark
		b.forwards4 = b.forwards4 || l.Conf4.Forwarding
		b.renamed = b.renamed || l.Kind == kindVRF || l.Kind == kindBridge
		if l.Lower != 0 {
			b.uppers[l.Lower] = append(b.uppers[l.Lower], l)
		}
	}
	for _, s := range net.Sockets.Packet {
		if !s.Harmless || s.OfBridge {
			b.taps[s.Index] = append(b.taps[s.Index], tap{s})
		}
	}
	for _, i := range net.Sockets.XDP {
		b.afxdp[i] = true
	}
	for _, a := range net.Addrs {
		if a.Prefix.Addr().Is4() {
			b.address4[a.Index] = true
		}
		if !a.Prefix.Addr().IsLinkLocalUnicast() {
			b.reached[a.Index] = true
		}
	}
	for _, r := range net.Routes.Notable {
		v4, v6 := r.Family != model.IP6, r.Family != model.IP4
		b.realms4 = b.realms4 || r.Realm && v4
		b.ecmp4 = b.ecmp4 || r.Multipath && v4
		b.ecmp6 = b.ecmp6 || r.Multipath && v6
	}
	b.rules4 = readRules(net.Rules, model.IP4)
	b.rules6 = readRules(net.Rules, model.IP6)
	b.tracking = map[model.Family]tracking{model.IP4: b.findTracking(model.IP4), model.IP6: b.findTracking(model.IP6)}
	b.namespaceReasons()
	return b
}

// because makes one reason with a formatted detail.
func because(code reason.Code, format string, args ...any) Why {
	return Why{Reason: code, Detail: model.Printable(fmt.Sprintf(format, args...))}
}

// tidy sorts reasons by code and detail and drops doubles, so that graphs compare equal and print the same.
func tidy(whys []Why) []Why {
	if len(whys) == 0 {
		return nil
	}
	out := slices.Clone(whys)
	slices.SortFunc(out, func(a, b Why) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail))
	})
	return slices.Compact(out)
}

// join gathers reasons of several origins in a fresh slice.
func join(parts ...[]Why) []Why { return slices.Concat(parts...) }
