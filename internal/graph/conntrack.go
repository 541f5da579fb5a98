// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"math"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// trackingPlace is where one of the functions stands by which Linux tracks and translates connections. A packet of a connection that is
// established on both sides passes all of them unchanged, or as its connection is translated (docs/semantics-conntrack.md).
type trackingPlace struct {
	hook     string
	priority int
}

var trackingFunctions = map[string]trackingPlace{
	"ipv4_conntrack_defrag":   {"prerouting", -400},
	"ipv6_defrag":             {"prerouting", -400},
	"ipv4_conntrack_in":       {"prerouting", -200},
	"ipv6_conntrack_in":       {"prerouting", -200},
	"nf_nat_ipv4_pre_routing": {"prerouting", -100},
	"nf_nat_ipv4_in":          {"prerouting", -100},
	"nf_nat_ipv6_in":          {"prerouting", -100},
	"nf_nat_ipv4_out":         {"postrouting", 100},
	"nf_nat_ipv6_out":         {"postrouting", 100},
	"ipv4_helper":             {"postrouting", 300},
	"ipv6_helper":             {"postrouting", 300},
	"ipv4_confirm":            {"postrouting", math.MaxInt32},
	"ipv6_confirm":            {"postrouting", math.MaxInt32},
	"nf_confirm":              {"postrouting", math.MaxInt32},
}

// tracking is what Linux's tracking of connections means for a family.
type tracking struct {
	on  bool   // a node can take the hooks' place
	why string // why none can; empty if on, or if Linux does not track
	// Linux translates; and why that cannot be done for it, empty if it can.
	nat    bool
	natWhy string
}

// Where Linux translates destinations and sources: what stands there or behind sees the packet otherwise than what stands before.
const (
	natDestinations = -100
	natSources      = 100
)

// findTracking judges the hooks of connection tracking of one family, all together: half of them make no sense.
func (b *builder) findTracking(family model.Family) tracking {
	var in, confirm, strange, dst, src, chains bool
	for _, h := range b.net.Netfilter {
		chains = chains || h.NAT && h.Family == family
		if h.Family != family || h.Kind != model.Conntrack || h.Hook == "input" || h.Hook == "output" {
			continue
		}
		place, known := trackingFunctions[h.Function]
		strange = strange || !known || place != trackingPlace{h.Hook, h.Priority} || len(h.Extra) > 0
		in = in || place.priority == -200
		confirm = confirm || place.priority == math.MaxInt32
		dst, src = dst || place.priority == natDestinations, src || place.priority == natSources
	}
	switch {
	case strange:
		return tracking{why: "its hooks are not at their usual places"}
	case !in && !confirm: // nothing, or reassembly, which plain packets pass unchanged
		return tracking{}
	case !in || !confirm:
		return tracking{why: "half of its hooks are registered"}
	case !b.policy.Kernel.Conntrack:
		return tracking{why: "connections cannot be looked up by programs: " + b.policy.Kernel.NoConntrack}
	}
	// Recent kernels (7.3) list the chains that the functions of translation call in place of these. The first chain has all of them registered, the last one takes them away (nf_nat_register_fn).
	nat := dst && src || chains && !dst && !src
	return tracking{on: true, nat: nat, natWhy: b.withoutNAT(family)}
}

// withoutNAT says why packets that Linux translates are left to it.
func (b *builder) withoutNAT(family model.Family) string {
	if !b.policy.Kernel.NAT {
		return "the type information of nf_nat is not there"
	}
	return b.behindNAT(family)
}

// behindNAT names a hook whose rules would have to see what is translated already: they are asked before.
func (b *builder) behindNAT(family model.Family) string {
	for _, h := range b.net.Netfilter {
		behind := h.Hook == "prerouting" && h.Priority >= natDestinations || h.Hook == "postrouting" && h.Priority >= natSources
		if behind && h.Family == family && !h.NAT && h.Kind != model.Conntrack && (h.Rules > 0 || !h.PolicyAccept || len(h.Extra) > 0) && b.asksTranslated(h) {
			return describeHook(h) + " sees what is translated"
		}
	}
	return ""
}

// What Linux has translated by the time that rules behind the translation are asked, and what hangs on it.
var (
	translatedReceiver = []ruleset.Field{ruleset.IP4Dst, ruleset.IP6Dst, ruleset.DPort, ruleset.SetDPort, ruleset.DstAddrType}
	translatedSender   = []ruleset.Field{ruleset.IP4Src, ruleset.IP6Src, ruleset.SPort, ruleset.SetSPort, ruleset.SrcAddrType, ruleset.RouteBack, ruleset.RouteBackBy}
)

// asksTranslated says whether rules behind the translation ask for what it changes: a receiver at prerouting, a sender at postrouting. Chains that do not (the assignment of helpers by zones,
// a check of IPv6's reverse paths) say the same of the packet as it came. A rule that is not understood leaves the packets that come to it to Linux in any case.
func (b *builder) asksTranslated(h model.NFHook) bool {
	if h.Kind != model.NFTables || !b.policy.Kernel.Rules || !filtered(b.net.Filter, h) {
		return true
	}
	known, key := b.policy.Memo.asked(b.net.Filter).translated, behindChain{h.Family, h.Hook, h.Table, h.Chain}
	asks, ok := known[key]
	if !ok {
		asks = asksOf(b.net.Filter, key)
		known[key] = asks
	}
	return asks
}

func asksOf(rs *ruleset.Ruleset, c behindChain) bool {
	family, fields := ruleset.IP4, translatedReceiver
	if c.family == model.IP6 {
		family = ruleset.IP6
	}
	if c.hook == "postrouting" {
		fields = translatedSender
	}
	for i := range rs.Tables {
		t := &rs.Tables[i]
		if t.Name == c.table && t.Dialect == ruleset.NFT && (t.Family == ruleset.Inet || t.Family == family) && rules.Asks(rs, t, c.chain, family, fields) {
			return true
		}
	}
	return false
}

// passedByTracked says whether a hook concerns no packet that the conntrack node lets go on: that of tracking itself, and nat chains, which
// only the first packet of a connection meets.
func (b *builder) passedByTracked(h model.NFHook) bool {
	t := b.tracking[h.Family]
	switch {
	case h.Kind == model.Conntrack:
		return t.why == ""
	case h.NAT:
		return t.on
	}
	return false
}

// withTracking adds to a hook's description why the conntrack node cannot take its place.
func (b *builder) withTracking(h model.NFHook) model.NFHook {
	if why := b.tracking[h.Family].why; h.Kind == model.Conntrack && why != "" {
		h.Extra = append(slices.Clone(h.Extra), why)
	}
	return h
}

// trackNode gives the node of a family whose connections Linux tracks.
func (b *builder) trackNode(family model.Family) []Node {
	t := b.tracking[family]
	if !t.on {
		return nil
	}
	n := Node{Kind: NodeTrack}
	leave := func(what, why string) {
		if n.Params == nil {
			n.Params = map[string]string{}
		}
		n.Params[what] = "left to Linux: " + why
	}
	if t.nat && t.natWhy != "" {
		leave("nat", t.natWhy)
	}
	if b.policy.Strict {
		leave("tcp", "--strict")
	}
	return []Node{n}
}

// natNode gives the node of a family whose connections Linux translates.
func (b *builder) natNode(family model.Family) []Node {
	if t := b.tracking[family]; !t.on || !t.nat || t.natWhy != "" {
		return nil
	}
	return []Node{{Kind: NodeNAT}}
}

// trackedVRF gives the reason against interfaces of a VRF, in which packets pass prerouting twice, and kernels differ in what that means
// for their connection.
func (b *builder) trackedVRF(l, vrf *model.Link, family model.Family) []Why {
	if vrf == nil || !b.tracking[family].on {
		return nil
	}
	return []Why{because(routedHooks[family]["prerouting"], "conntrack with %s in a VRF", l.Name)}
}
