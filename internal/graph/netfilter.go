// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
)

// routedHooks are the netfilter hooks that a forwarded packet passes; input and output are for this host's own packets.
var routedHooks = map[model.Family]map[string]reason.Code{
	model.IP4: {
		"prerouting":  reason.NetfilterIP4Prerouting,
		"forward":     reason.NetfilterIP4Forward,
		"postrouting": reason.NetfilterIP4Postrouting,
	},
	model.IP6: {
		"prerouting":  reason.NetfilterIP6Prerouting,
		"forward":     reason.NetfilterIP6Forward,
		"postrouting": reason.NetfilterIP6Postrouting,
	},
}

// idle says whether a hook changes nothing for any packet: a chain of tables without rules that lets everything pass.
// Connection tracking is never idle, since it makes entries (see conntrack.go). br_netfilter looks only at packets that came in through a
// bridge, and where its switches are on nothing is forwarded past it (bridge.go); a local hook looks only at packets of sockets.
func idle(h model.NFHook) bool {
	if h.Kind == model.BridgeNF || h.Kind == model.NFLocal {
		return true
	}
	return (h.Kind == model.NFTables || h.Kind == model.Legacy) && h.Rules == 0 && h.PolicyAccept && len(h.Extra) == 0
}

// dropsBadHeaders says whether even an empty chain at a device's ingress has an effect: one of family inet drops packets of IP whose header is wrong
// (nft_do_chain_inet_ingress() in net/netfilter/nft_chain_filter.c). The router leaves these to Linux anyway; a bridge, or what else is above the device, does not look at them.
func (b *builder) dropsBadHeaders(h model.NFHook) bool {
	if h.Family != model.Netdev || h.Kind != model.NFTables || h.Hook != ruleset.Ingress.String() {
		return false
	}
	if l := b.net.LinkByName(h.Device); l != nil && l.Master == 0 && len(b.uppers[l.Index]) == 0 {
		return false
	}
	return b.net.Filter == nil || slices.ContainsFunc(b.net.Filter.Tables, func(t ruleset.Table) bool {
		return t.Dialect == ruleset.NFT && t.Family == ruleset.Inet && t.Name == h.Table && t.Chain(h.Chain) != nil
	})
}

// netfilterReasons sorts the registered hooks into reasons for each family, and by device for netdev. Hooks whose rules are known are left
// to those.
func (b *builder) netfilterReasons() (ip4, ip6 []Why) {
	known := map[model.Family][]model.NFHook{}
	for _, h := range b.net.Netfilter {
		if h.Family == model.BridgeFamily && !idle(h) {
			b.bridgeChain(h)
		}
		if idle(h) && !b.dropsBadHeaders(h) || b.passedByTracked(h) {
			continue
		}
		switch h.Family {
		case model.IP4, model.IP6:
			why, met := routedHook(b.withTracking(h))
			if !met {
				continue
			}
			if filtered(b.net.Filter, h) {
				known[h.Family] = append(known[h.Family], h)
				continue
			}
			if h.Family == model.IP4 {
				ip4 = append(ip4, why)
			} else {
				ip6 = append(ip6, why)
			}
		case model.Netdev:
			if b.asksAtIngress(h) {
				known[model.IP4], known[model.IP6] = append(known[model.IP4], h), append(known[model.IP6], h)
				b.ingress[h.Device] = true
				continue
			}
			if b.asksAtEgress(h) {
				known[model.IP4], known[model.IP6] = append(known[model.IP4], h), append(known[model.IP6], h)
				b.egress[h.Device] = true
				continue
			}
			if b.entersFlowtable(h) {
				b.flowtables[h.Device] = h.Chain
				continue
			}
			b.hooks[h.Device] = append(b.hooks[h.Device], h)
		case model.ARP, model.BridgeFamily:
			// Routed packets do not pass these: ARP goes to Linux, and frames of bridges have reasons of their own.
		default:
			why := because(reason.NetfilterUnknown, "family %d %s: %s", h.Family, h.Hook, describeHook(h))
			ip4, ip6 = append(ip4, why), append(ip6, why)
		}
	}
	f4, why4 := b.filterReasons(model.IP4, known[model.IP4], b.rules4)
	f6, why6 := b.filterReasons(model.IP6, known[model.IP6], b.rules6)
	b.graph.Filter4, b.graph.Filter6 = f4, f6
	b.graph.Frames4, b.graph.Frames6 = b.frameFilter(model.IP4), b.frameFilter(model.IP6)
	return append(ip4, why4...), append(ip6, why6...)
}

// asksAtIngress says whether the data path asks the rules of a chain at a device's ingress. It does where the device is the logical interface of all packets
// that meet the chain, and what meets it is what came over the wire: not for VLANs, bonds and what belongs to another device. Those that came with tags
// are left out by tagged().
func (b *builder) asksAtIngress(h model.NFHook) bool {
	return h.Hook == ruleset.Ingress.String() && b.asksOfDevice(h)
}

// asksAtEgress says whether the data path asks the rules of a chain at a device's egress, of the same devices: for what is routed to the device itself. Rules are
// asked before a sender is translated, and so chains that ask for it are Linux's where connections are.
func (b *builder) asksAtEgress(h model.NFHook) bool {
	translated := b.tracking[model.IP4].nat || b.tracking[model.IP6].nat
	return h.Hook == ruleset.Egress.String() && b.asksOfDevice(h) && !(translated && asksSender(b.net.Filter))
}

func (b *builder) asksOfDevice(h model.NFHook) bool {
	l := b.net.LinkByName(h.Device)
	return b.policy.Kernel.Rules && l != nil && filtered(b.net.Filter, h) &&
		l.Type == arphrdEther && l.Master == 0 && (l.Kind == kindNIC || l.Kind == kindVeth || l.Kind == kindTap)
}

// asksSender says whether rules of devices ask for a sender's address or port.
func asksSender(rs *ruleset.Ruleset) bool {
	for _, t := range rs.Tables {
		if t.Family != ruleset.Netdev {
			continue
		}
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				for _, s := range r.Steps {
					if slices.ContainsFunc(rules.AskedFor(s), func(f ruleset.Field) bool {
						return f == ruleset.IP4Src || f == ruleset.IP6Src || f == ruleset.SPort || f == ruleset.SetSPort
					}) {
						return true
					}
				}
			}
		}
	}
	return false
}

// routedHook gives the reason in an IPv4 or IPv6 hook that is not idle, and whether forwarded packets meet it at all.
func routedHook(h model.NFHook) (Why, bool) {
	if h.Hook == "input" || h.Hook == "output" {
		return Why{}, false
	}
	code, known := routedHooks[h.Family][h.Hook]
	understood := h.Kind == model.NFTables || h.Kind == model.Legacy || h.Kind == model.Conntrack || h.Kind == model.Flowtable
	if !known || !understood {
		return because(reason.NetfilterUnknown, "%s %s: %s", h.Family, h.Hook, describeHook(h)), true
	}
	return because(code, "%s", describeHook(h)), true
}

// describeHook names a hook as its owner would: the table and chain, or the function.
func describeHook(h model.NFHook) string {
	var parts []string
	if h.Table != "" {
		parts = append(parts, "table "+h.Table)
	}
	if h.Chain != "" {
		parts = append(parts, "chain "+h.Chain)
	}
	if len(parts) == 0 && h.Function != "" {
		parts = append(parts, h.Function)
	}
	name := strings.Join(append([]string{string(h.Kind)}, parts...), " ")
	var notes []string
	switch {
	case h.Rules == 1:
		notes = append(notes, "1 rule")
	case h.Rules > 1:
		notes = append(notes, fmt.Sprintf("%d rules", h.Rules))
	}
	if !h.PolicyAccept && (h.Kind == model.NFTables || h.Kind == model.Legacy) {
		notes = append(notes, "policy drop")
	}
	if notes = append(notes, h.Extra...); len(notes) == 0 {
		return name
	}
	return name + " (" + strings.Join(notes, ", ") + ")"
}
