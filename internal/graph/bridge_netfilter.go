// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"math"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Call is what br_netfilter does with the frames of a bridge that carry one family: it checks them, and shows them to the rules of IP as if they were routed.
type Call struct {
	By  string `json:"by,omitempty"`  // what switches it on; empty: nothing does
	All bool   `json:"all,omitempty"` // whatever the bridge's own option says
	Why []Why  `json:"why,omitempty"` // why such frames are left to Linux; empty: the rules say nothing, and what is left of it is done in passing
}

// call describes what br_netfilter does with frames of a family between the ports of a bridge. ARP is Linux's anyway.
func (b *builder) call(br *model.Link, family model.Family) Call {
	c := b.calledBy(br, family)
	if c.By == "" {
		return c
	}
	if !b.bridgeNetfilter() { // its switches are there, but what they switch is not seen
		c.Why = append(c.Why, because(reason.BridgeNetfilter, "%s, but its hooks are not known", c.By))
	}
	if family == model.IP6 && !b.net.Sysctl.All6.Present { // without IPv6, Linux drops it
		c.Why = append(c.Why, because(reason.BridgeNetfilter, "%s, and this kernel has no IPv6", c.By))
	}
	for _, h := range b.net.Netfilter {
		if h.Family == family && h.Hook != "input" && h.Hook != "output" && !idle(h) {
			c.Why = append(c.Why, because(reason.BridgeNetfilter, "%s; %s %s: %s", c.By, family, h.Hook, describeHook(h)))
		}
	}
	c.Why = tidy(c.Why)
	return c
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

// unseen says whether no frame of IP between the bridge's ports can be fast here, and gives the reasons.
func (m *Member) unseen() []Why {
	if len(m.Why) > 0 || len(m.Call4.Why) == 0 || len(m.Call6.Why) == 0 {
		return m.Why
	}
	return m.Except
}
