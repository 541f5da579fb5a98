// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"math"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
)

// Call is what br_netfilter does with the frames of a bridge that carry one family: it checks them, and shows them to the rules of IP as if they were routed.
type Call struct {
	By  string `json:"by,omitempty"`  // what switches it on; empty: nothing does
	All bool   `json:"all,omitempty"` // whatever the bridge's own option says
	Why []Why  `json:"why,omitempty"` // why such frames are left to Linux; empty: the rules say nothing, and what is left of it is done in passing, or Asks
	// Frames: chains of family bridge say something, and the data path asks them.
	Frames bool `json:"frames,omitempty"`
	// Asks: rules and connection tracking say something, and the data path asks them.
	Asks bool `json:"asks,omitempty"`
	// Except are the rules that leave part of these frames to Linux.
	Except []Why  `json:"except,omitempty"`
	Nodes  []Node `json:"nodes,omitempty"` // that ask, in order
}

// call describes what br_netfilter does with frames of a family between the ports of a bridge. ARP is Linux's anyway.
func (b *builder) call(br *model.Link, family model.Family) Call {
	c := b.calledBy(br, family)
	if c.By != "" {
		b.shown(br, family, &c)
	}
	b.framed(br, family, &c)
	if c.Why = tidy(c.Why); len(c.Why) > 0 {
		c.Asks, c.Frames, c.Except = false, false, nil
	}
	return c
}

// shown adds what rules of IP do to what br_netfilter shows them.
func (b *builder) shown(br *model.Link, family model.Family, c *Call) {
	if !b.bridgeNetfilter() { // its switches are there, but what they switch is not seen
		c.Why = append(c.Why, because(reason.BridgeNetfilter, "%s, but its hooks are not known", c.By))
	}
	if family == model.IP6 && !b.net.Sysctl.All6.Present { // without IPv6, Linux drops it
		c.Why = append(c.Why, because(reason.BridgeNetfilter, "%s, and this kernel has no IPv6", c.By))
	}
	ruled := false
	for _, h := range b.net.Netfilter {
		switch {
		case h.Family != family || h.Hook == "input" || h.Hook == "output" || idle(h):
		case b.passedByTracked(h): // or reassembly alone, for which fragments are Linux's
			c.Asks = true
		case b.policy.Kernel.Rules && filtered(b.net.Filter, h):
			ruled = true
		default:
			c.Why = append(c.Why, because(reason.BridgeNetfilter, "%s; %s %s: %s", c.By, family, h.Hook, describeHook(b.withTracking(h))))
		}
	}
	if f := b.filterOf(family); ruled && f != nil {
		c.Asks = true
		c.Why = append(c.Why, f.unasked(c.By)...)
		for _, w := range f.Slow {
			if w.Reason != reason.NetfilterNetdev { // of no device of which chains at ingress are asked
				c.Except = append(c.Except, w)
			}
		}
	}
	if c.Asks {
		c.Why = append(c.Why, b.unasked(br, c.By)...)
	}
}

// framed adds what chains of family bridge do.
func (b *builder) framed(br *model.Link, family model.Family, c *Call) {
	f := b.graph.Frames4
	if family == model.IP6 {
		f = b.graph.Frames6
	}
	if f == nil {
		return
	}
	c.Frames = true
	c.Except = append(c.Except, f.Slow...)
	slow := func(format string, args ...any) {
		c.Why = append(c.Why, because(reason.NetfilterBridge, format, args...))
	}
	if br.Bridge.VLANFiltering { // a frame has its tag beside it there
		slow("chains of family bridge, and %s filters by VLAN", br.Name)
	}
	if c.By != "" && !c.All { // the option is read with each frame, and what is asked of one that it shows would be another thing
		slow("chains of family bridge, and %s", c.By)
	}
	if f.Problem != "" {
		slow("%s", f.Problem)
	}
	if f.closed {
		c.Why = append(c.Why, f.Slow...)
	}
}

// bridgeChain sorts a hook of family bridge, in a chain or not, by the frames that meet it: between ports prerouting, forward and postrouting, from a port to this host
// prerouting and input, and from this host output and postrouting (br_pass_frame_up(), __br_forward()). One that is not known could be met by all.
func (b *builder) bridgeChain(h model.NFHook) {
	why := because(reason.NetfilterBridge, "%s: %s", h.Hook, describeHook(h))
	if h.Hook != "output" && h.Hook != "forward" && h.Hook != "postrouting" {
		b.bridgeUp = append(b.bridgeUp, why)
	}
	if h.Hook != "output" && h.Hook != "input" {
		b.bridgeHooks = append(b.bridgeHooks, why)
		if !b.policy.Kernel.Rules || !filtered(b.net.Filter, h) {
			b.bridgeUnread = append(b.bridgeUnread, why)
		}
	}
	switch {
	case h.Hook == "prerouting" || h.Hook == "input" || h.Hook == "forward":
	case filtered(b.net.Filter, h) && rules.OfFrames(b.net.Filter, h.Table):
		b.bridgePlain = append(b.bridgePlain, why)
	default:
		b.bridgeDown = append(b.bridgeDown, why)
	}
}

// frameFilter is what chains of family bridge do to frames of a family between the ports of bridges; nil where they do nothing, or where there are some that the data
// path cannot ask.
func (b *builder) frameFilter(family model.Family) *Filter {
	if len(b.bridgeHooks) == 0 || len(b.bridgeUnread) > 0 {
		return nil
	}
	f := b.policy.Memo.filter(b.net, true, filterKey{family: family, sets: b.policy.Kernel.Sets, bridged: true})
	if f.Pre.Entries+f.Post.Entries == 0 {
		return nil
	}
	return f
}

// filterOf is what the rules of a family do; nil where they do nothing.
func (b *builder) filterOf(family model.Family) *Filter {
	if family == model.IP6 {
		return b.graph.Filter6
	}
	return b.graph.Filter4
}

// unasked gives the reasons against asking rules and connections for what a bridge shows them.
func (b *builder) unasked(br *model.Link, by string) (why []Why) {
	if br.Bridge.VLANFiltering { // a frame has its tag beside it from the table of VLANs on, and forward and postrouting are not shown it
		why = append(why, because(reason.BridgeNetfilter, "%s; rules, and %s filters by VLAN", by, br.Name))
	}
	if vrf := b.vrf(br); vrf != nil {
		why = append(why, because(reason.BridgeNetfilter, "%s; rules, and %s is in VRF %s", by, br.Name, vrf.Name))
	}
	return why
}

// unasked gives the reasons against asking these rules for packets that a bridge shows them.
func (f *Filter) unasked(by string) (why []Why) {
	switch {
	case f.Problem != "":
		why = append(why, because(reason.BridgeNetfilter, "%s; %s", by, f.Problem))
	case f.closed:
		for _, w := range f.Slow {
			why = append(why, because(reason.BridgeNetfilter, "%s; %s", by, w.Detail))
		}
	case f.unbridged != "":
		why = append(why, because(reason.BridgeNetfilter, "%s; %s", by, f.unbridged))
	case f.Over != nil: // what it asks was not looked at
		why = append(why, because(reason.BridgeNetfilter, "%s; changed rules are being compiled", by))
	}
	return why
}

// unbridged says what in an entry is of another meaning to bridged packets than to the forwarded ones that images are made for: at postrouting they have no input device
// (br_nf_post_routing()), their receiver can be this host, and headers are sent as rules have left them, where a router has changed the TTL and its checksum.
func unbridged(e *rules.Entry) string {
	for _, field := range e.Asks() {
		switch field {
		case ruleset.RouteBack, ruleset.RouteBackBy:
			return fmt.Sprintf("%s: the route to the sender, of which images know no bridged packet's", e.By)
		case ruleset.SrcAddrType, ruleset.DstAddrType:
			return fmt.Sprintf("%s: the type of an address, of which images know no bridged packet's", e.By)
		case ruleset.IIFName, ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType:
			if e.Hook() == ruleset.Postrouting {
				return fmt.Sprintf("%s: the input device at postrouting, where bridged packets have none", e.By)
			}
		}
	}
	for _, s := range e.Do {
		if set, ok := s.(ruleset.SetField); ok && set.Field != ruleset.Mark {
			return fmt.Sprintf("%s: sets %s", e.By, set.Field)
		}
	}
	return ""
}

func (b *builder) calledBy(br *model.Link, family model.Family) Call {
	all, sysctl, option := b.net.Sysctl.BridgeCall4, "iptables", "nf_call_iptables"
	if family == model.IP6 {
		all, sysctl, option = b.net.Sysctl.BridgeCall6, "ip6tables", "nf_call_ip6tables"
	}
	switch {
	case all:
		return Call{By: "net.bridge.bridge-nf-call-" + sysctl + " = 1", All: true}
	case slices.Contains(br.Bridge.NFCall, option):
		return Call{By: br.Name + ": " + option + " 1"}
	}
	return Call{}
}

// bridgeNetfilter says whether br_netfilter is registered, without which its switches do nothing.
func (b *builder) bridgeNetfilter() bool {
	return slices.ContainsFunc(b.net.Netfilter, func(h model.NFHook) bool {
		return h.Kind == model.BridgeNF && h.Family == model.BridgeFamily && h.Hook == "prerouting"
	})
}

// calledHost gives the reasons against what is addressed to a bridge of which br_netfilter has shown it to prerouting already. Linux leaves prerouting out then, and
// so it is met once, but for interfaces of a VRF, and for chains before the one that says so (ip_sabotage_in()).
func (b *builder) calledHost(br *model.Link, family model.Family) (why []Why) {
	c := b.calledBy(br, family)
	if c.By == "" {
		return nil
	}
	if vrf := b.vrf(br); vrf != nil {
		why = append(why, because(reason.BridgeNetfilter, "%s, and %s is in VRF %s", c.By, br.Name, vrf.Name))
	}
	for _, h := range b.net.Netfilter {
		if h.Family == family && h.Hook == "prerouting" && h.Priority == math.MinInt32 && !idle(h) {
			why = append(why, because(reason.BridgeNetfilter, "%s; %s before all others", c.By, describeHook(h)))
		}
	}
	return why
}

// callNodes gives what is asked for bridged packets its nodes.
func (b *builder) callNodes(p *Port) {
	for family, c := range map[model.Family]*Call{model.IP4: &p.Bridge.Call4, model.IP6: &p.Bridge.Call6} {
		if c.Asks {
			c.Nodes = slices.Concat(b.trackNode(family), rulesIn(b.filterOf(family)), rulesOut(b.filterOf(family)))
		}
	}
	p.Bridge.except()
}

// except gathers what br_netfilter leaves to Linux.
func (m *Member) except() {
	m.Except = tidy(join(m.Call4.Why, m.Call4.Except, m.Call6.Why, m.Call6.Except))
}

// unseen says whether no frame of IP between the bridge's ports can be fast here, and gives the reasons.
func (m *Member) unseen() []Why {
	if len(m.Why) > 0 || len(m.Call4.Why) == 0 || len(m.Call6.Why) == 0 {
		return m.Why
	}
	return m.Except
}
