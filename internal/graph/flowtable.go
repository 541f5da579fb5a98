// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// entersFlowtable says whether the data path takes the place of a flow table at a device's ingress. Only connections that are marked as offloaded are in one,
// so what matters of it is asked where connections are: the entry at XDP, and all packets of such connections go to Linux at TC. That needs both families'
// connections looked up, and that Linux meets nothing before its entry that could let a packet past it, or mean something else by it:
// no other hook at the device's ingress, no rule before connection tracking; and nothing behind it. With tags packets are keyed otherwise (taggedIngress).
func (b *builder) entersFlowtable(h model.NFHook) bool {
	l := b.net.LinkByName(h.Device)
	if h.Kind != model.Flowtable || !b.policy.Kernel.Flowtable || l == nil || l.Type != arphrdEther || l.Master != 0 || l.Kind != kindNIC && l.Kind != kindVeth {
		return false
	}
	if len(h.Extra) != 1 || !b.tracking[model.IP4].on || !b.tracking[model.IP6].on { // more than its name, such as that the card forwards by it
		return false
	}
	here := 0
	for _, o := range b.net.Netfilter {
		switch {
		case o.Family == model.Netdev && (o.Device == h.Device || o.Device == "") && o.Hook == ruleset.Ingress.String():
			here++
		case o.Family == model.Netdev && o.Hook == ruleset.Egress.String(): // which what is sent by an entry meets too, though it met no other rule
			return false
		case (o.Family == model.IP4 || o.Family == model.IP6) && o.Hook == "prerouting" && o.Priority <= beforeTracking && o.Kind != model.Conntrack && !idle(o):
			return false
		}
	}
	return here == 1
}

// beforeTracking is the priority at which a chain may come before connections are looked up.
const beforeTracking = -200

// withFlowtable adds to the node of connections the name of the flow table that those of a device may be in, where programs can find its entries: at XDP.
func withFlowtable(nodes []Node, name string, p *Port) []Node {
	if name == "" || len(nodes) == 0 || !p.Has(XDP) {
		return nodes
	}
	return []Node{withParam(nodes[0], "flowtable", name)}
}
