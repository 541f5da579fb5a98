// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
)

// place is where a decision shows in a graph.
type place struct {
	name string
	look func(t *testing.T, g *Graph) []Why
}

func ip4(name string) place {
	return place{"IPv4 at " + name, func(t *testing.T, g *Graph) []Why { return inputOf(t, g, name).IP4.Why }}
}

func ip6(name string) place {
	return place{"IPv6 at " + name, func(t *testing.T, g *Graph) []Why { return inputOf(t, g, name).IP6.Why }}
}

func atXDP(name string) place {
	return place{name + " at XDP", func(t *testing.T, g *Graph) []Why { return portOf(t, g, name).XDP }}
}

func atTC(name string) place {
	return place{name + " at tc", func(t *testing.T, g *Graph) []Why { return portOf(t, g, name).TC }}
}

func anyHook(name string) place {
	return place{name + " at all", func(t *testing.T, g *Graph) []Why { return portOf(t, g, name).Why }}
}

func outXDP(name string) place {
	return place{"into " + name + " from XDP", func(t *testing.T, g *Graph) []Why { return egressOf(t, g, name).XDP }}
}

func outTC(name string) place {
	return place{"into " + name + " from tc", func(t *testing.T, g *Graph) []Why { return egressOf(t, g, name).TC }}
}

// inputOf finds a logical interface where its packets are met first: at an XDP port if there is one.
func inputOf(t *testing.T, g *Graph, name string) *Input {
	t.Helper()
	for _, tagged := range []bool{true, false} {
		for i := range g.Ports {
			for j := range g.Ports[i].Inputs {
				if in := &g.Ports[i].Inputs[j]; in.Name == name && (len(in.VLANs) > 0) == tagged {
					return in
				}
			}
		}
	}
	t.Fatalf("no input %s", name)
	return nil
}

func nf(h model.NFHook) change {
	return network(func(n *model.Network) { n.Netfilter = append(n.Netfilter, h) })
}

func nfChain(f model.Family, hook string, rules int) model.NFHook {
	return model.NFHook{Family: f, Hook: hook, Kind: model.NFTables, Table: "t", Chain: "c", Rules: rules, PolicyAccept: true}
}

func rule(r model.Rule) change {
	if r.Action == 0 {
		r.Action = 1
	}
	return network(func(n *model.Network) { n.Rules = append(n.Rules, r) })
}

func listener(s model.PacketSocket) change {
	return network(func(n *model.Network) { n.Sockets.Packet = append(n.Sockets.Packet, s) })
}

func qdisc(name string, q model.Qdisc) change {
	return on(name, func(l *model.Link) { q.Parent = 0xffffffff; l.Qdiscs = []model.Qdisc{q} })
}

func program(name, hook string, own bool) change {
	return on(name, func(l *model.Link) {
		p := model.Program{ID: 40, Name: "other", Hook: hook, Own: own}
		if hook == "tcx-ingress" || hook == "tcx-egress" {
			l.TCX = append(l.TCX, p)
		} else {
			l.XDP = []model.Program{p}
		}
	})
}

func filter(name, kind string, parent uint32) change {
	return on(name, func(l *model.Link) {
		l.TCFilters = append(l.TCFilters, model.TCFilter{Kind: kind, Parent: parent, Prio: 1})
	})
}

func unknown(l *model.Link) {
	l.Unknown = append(l.Unknown, model.Unknown{Where: "link " + l.Name, What: "attribute 99"})
}

func failed(index int, h Hook) change {
	return policy(func(p *Policy) { p.Failed = map[Attachment]string{{index, h}: "operation not supported"} })
}

func hook(name string) change { return policy(func(p *Policy) { p.Hook = name }) }

// decision is a reason with what brings it about, and what nearly does.
type decision struct {
	what   string
	reason reason.Code
	place  place
	make   []change
	near   []change
}

// decisions has for every reason a change that brings it about at a place, and a near miss that does not: with the near miss
// the place has no reason at all.
var decisions = []decision{
	{"IPv4 forwarding is the device's", reason.ForwardingOff, ip4("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Conf4.Forwarding = false })},
		[]change{network(func(n *model.Network) { n.Sysctl.All4.Forwarding = false })}},
	{"no IPv4 on the device", reason.ForwardingOff, ip4("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Conf4 = model.Conf4{} })},
		[]change{on("eth1", func(l *model.Link) { l.Conf4 = model.Conf4{} })}},
	{"IPv6 forwarding is conf.all's", reason.ForwardingOff, ip6("eth0"),
		[]change{network(func(n *model.Network) { n.Sysctl.All6.Forwarding = false })},
		[]change{network(func(n *model.Network) { n.Sysctl.All6.Forwarding = false }), on("eth0", func(l *model.Link) { l.Conf6.ForceForwarding = true })}},
	{"and the lookup asks the device", reason.ForwardingOff, ip6("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Conf6.Forwarding = false })},
		[]change{on("eth1", func(l *model.Link) { l.Conf6.Forwarding = false })}},
	{"disable_ipv6", reason.ForwardingOff, ip6("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Conf6.Disabled = true })},
		[]change{on("eth1", func(l *model.Link) { l.Conf6.Disabled = true })}},
	{"no IPv6 on the device", reason.ForwardingOff, ip6("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Conf6 = model.Conf6{} })},
		[]change{on("eth1", func(l *model.Link) { l.Conf6 = model.Conf6{} })}},
	{"no IPv6 on the VRF", reason.ForwardingOff, ip6("eth0"),
		[]change{inVRF, on("red", func(l *model.Link) { l.Conf6 = model.Conf6{} })},
		[]change{inVRF, on("eth1", func(l *model.Link) { l.Conf6 = model.Conf6{} })}},
	{"disable_ipv6 of the VRF", reason.ForwardingOff, ip6("eth0"),
		[]change{inVRF, on("red", func(l *model.Link) { l.Conf6.Disabled = true })}, []change{inVRF}},
	{"IPv4 forwarding of the VRF", reason.ForwardingOff, ip4("eth0"),
		[]change{inVRF, on("red", func(l *model.Link) { l.Conf4.Forwarding = false })},
		[]change{inVRF}},
	{"IPv4 forwarding of a VRF's slave", reason.ForwardingOff, ip4("eth0"),
		[]change{inVRF, on("eth0", func(l *model.Link) { l.Conf4.Forwarding = false })},
		[]change{inVRF, on("eth1", func(l *model.Link) { l.Conf4.Forwarding = false })}},

	{"rule at IPv4 prerouting", reason.NetfilterIP4Prerouting, ip4("eth0"),
		[]change{nf(nfChain(model.IP4, "prerouting", 1))}, []change{nf(nfChain(model.IP4, "prerouting", 0))}},
	{"rule at IPv4 forward", reason.NetfilterIP4Forward, ip4("eth0"),
		[]change{nf(nfChain(model.IP4, "forward", 2))}, []change{nf(nfChain(model.IP4, "input", 2))}},
	{"rule at IPv4 postrouting", reason.NetfilterIP4Postrouting, ip4("eth0"),
		[]change{nf(nfChain(model.IP4, "postrouting", 1))}, []change{nf(nfChain(model.IP6, "postrouting", 1))}},
	{"rule at IPv6 prerouting", reason.NetfilterIP6Prerouting, ip6("eth0"),
		[]change{nf(nfChain(model.IP6, "prerouting", 1))}, []change{nf(nfChain(model.IP4, "prerouting", 1))}},
	{"rule at IPv6 forward", reason.NetfilterIP6Forward, ip6("eth0"),
		[]change{nf(nfChain(model.IP6, "forward", 1))}, []change{nf(nfChain(model.IP6, "output", 1))}},
	{"rule at IPv6 postrouting", reason.NetfilterIP6Postrouting, ip6("eth0"),
		[]change{nf(nfChain(model.IP6, "postrouting", 1))}, []change{nf(nfChain(model.IP6, "postrouting", 0))}},
	{"empty chain that drops", reason.NetfilterIP4Forward, ip4("eth0"),
		[]change{nf(model.NFHook{Family: model.IP4, Hook: "forward", Kind: model.NFTables})}, []change{nf(nfChain(model.IP4, "forward", 0))}},
	{"empty chain with a flowtable", reason.NetfilterIP4Forward, ip4("eth0"),
		[]change{nf(model.NFHook{Family: model.IP4, Hook: "forward", Kind: model.NFTables, PolicyAccept: true, Extra: []string{"flowtable ft"}})},
		[]change{nf(nfChain(model.IP4, "forward", 0))}},
	{"legacy table", reason.NetfilterIP4Forward, ip4("eth0"),
		[]change{nf(model.NFHook{Family: model.IP4, Hook: "forward", Kind: model.Legacy, Table: "filter", Rules: 1, PolicyAccept: true})},
		[]change{nf(model.NFHook{Family: model.IP4, Hook: "forward", Kind: model.Legacy, Table: "filter", PolicyAccept: true})}},
	{"connection tracking makes entries", reason.NetfilterIP4Prerouting, ip4("eth0"),
		[]change{nf(model.NFHook{Family: model.IP4, Hook: "prerouting", Kind: model.Conntrack, Function: "ipv4_conntrack_in", PolicyAccept: true})},
		[]change{nf(model.NFHook{Family: model.IP6, Hook: "prerouting", Kind: model.Conntrack, Function: "ipv6_conntrack_in", PolicyAccept: true})}},
	{"BPF netfilter link", reason.NetfilterUnknown, ip4("eth0"),
		[]change{nf(model.NFHook{Family: model.IP4, Hook: "forward", Kind: model.NFBPF, PolicyAccept: true})},
		[]change{nf(model.NFHook{Family: model.IP4, Hook: "input", Kind: model.NFBPF, PolicyAccept: true})}},
	{"a hook with an unheard name", reason.NetfilterUnknown, ip6("eth0"),
		[]change{nf(model.NFHook{Family: model.IP6, Hook: "sideways", Kind: model.NFTables, Rules: 1})},
		[]change{nf(model.NFHook{Family: model.BridgeFamily, Hook: "sideways", Kind: model.NFTables, Rules: 1})}},
	{"netdev ingress", reason.NetfilterNetdev, anyHook("eth0"),
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "ingress", Device: "eth0", Kind: model.NFTables, Rules: 1, PolicyAccept: true})},
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "ingress", Device: "eth1", Kind: model.NFTables, Rules: 1, PolicyAccept: true})}},
	{"tc redirects skip netdev egress", reason.NetfilterNetdev, outTC("eth0"),
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "egress", Device: "eth0", Kind: model.NFTables, Rules: 1, PolicyAccept: true})},
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "egress", Device: "eth0", Kind: model.NFTables, PolicyAccept: true})}},
	{"a netdev hook whose device is not known", reason.NetfilterNetdev, outXDP("eth0"),
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "egress", Kind: model.Flowtable})},
		[]change{nf(model.NFHook{Family: model.ARP, Hook: "output", Kind: model.NFTables, Rules: 1})}},
	{"a netdev hook with an unheard name, way in", reason.NetfilterNetdev, anyHook("eth0"),
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "sideways", Device: "eth0", Kind: model.NFTables, Rules: 1})},
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "egress", Device: "eth0", Kind: model.NFTables, Rules: 1})}},
	{"a netdev hook with an unheard name, way out", reason.NetfilterNetdev, outTC("eth0"),
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "sideways", Device: "eth0", Kind: model.NFTables, Rules: 1})},
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "ingress", Device: "eth0", Kind: model.NFTables, Rules: 1})}},
	{"netdev ingress below a VLAN interface", reason.NetfilterNetdev, ip4("eth0.5"),
		[]change{able, with(vlan(5, "eth0.5", 2, 5)), atIngress("c", ruleset.Netdev, []string{"eth0"}, drop)},
		[]change{able, with(vlan(5, "eth0.5", 2, 5)), atIngress("c", ruleset.Netdev, []string{"eth2"}, drop)}},
	{"netdev ingress of a VLAN interface, understood", reason.NetfilterNetdev, ip4("eth0.5"),
		[]change{able, with(vlan(5, "eth0.5", 2, 5)), atIngress("c", ruleset.Netdev, []string{"eth0.5"}, drop)},
		[]change{able, with(vlan(5, "eth0.5", 2, 5)), atIngress("c", ruleset.Netdev, []string{"eth0.6"}, drop)}},
	{"netdev ingress of a VLAN interface", reason.NetfilterNetdev, ip4("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), nf(model.NFHook{Family: model.Netdev, Hook: "ingress", Device: "eth0.5", Kind: model.NFTables, Rules: 1})},
		[]change{with(vlan(5, "eth0.5", 2, 5)), nf(model.NFHook{Family: model.Netdev, Hook: "egress", Device: "eth0.5", Kind: model.NFTables, Rules: 1})}},

	{"netdev egress, where the data path asks rules", reason.NetfilterNetdev, outTC("eth0"),
		[]change{nf(model.NFHook{Family: model.Netdev, Hook: "egress", Device: "eth0", Kind: model.NFTables, Rules: 1, PolicyAccept: true})},
		[]change{able, atEgress("c", []string{"eth0"}, drop)}},
	{"netdev egress below a VLAN interface", reason.NetfilterNetdev, outTC("eth0.5"),
		[]change{able, with(vlan(5, "eth0.5", 2, 5)), atEgress("c", []string{"eth0"}, drop)},
		[]change{able, with(vlan(5, "eth0.5", 2, 5)), atEgress("c", []string{"eth2"}, drop)}},
	{"netdev egress of a VLAN interface, understood", reason.NetfilterNetdev, outTC("eth0.5"),
		[]change{able, with(vlan(5, "eth0.5", 2, 5)), atEgress("c", []string{"eth0.5"}, drop)},
		[]change{able, with(vlan(5, "eth0.5", 2, 5)), atEgress("c", []string{"eth0.6"}, drop)}},
	{"netdev egress that asks for translated senders", reason.NetfilterNetdev, outTC("eth0"),
		[]change{able, lookups, tracks(defrag, trackIn, natIn, natOut, confirm), atEgress("c", []string{"eth0"}, fromThere)},
		[]change{able, lookups, tracks(defrag, trackIn, confirm), atEgress("c", []string{"eth0"}, fromThere), atEgress("d", []string{"eth2"}, drop)}},

	{"IPsec policy", reason.XFRM, ip4("eth0"),
		[]change{network(func(n *model.Network) { n.XFRM.Policies = 1 })}, []change{}},
	{"IPsec default block", reason.XFRM, ip6("eth0"),
		[]change{network(func(n *model.Network) { n.XFRM.DefaultBlock = true })}, []change{}},
	{"IPsec interface", reason.XFRM, ip4("eth0"),
		[]change{network(func(n *model.Network) { n.XFRM.Interfaces = 1 })}, []change{}},
	{"transparent socket", reason.TransparentSocket, ip4("eth0"),
		[]change{network(func(n *model.Network) { n.Sockets.Transparent = true })}, []change{}},

	{"more addresses than are kept", reason.Unreadable, ip4("eth0"), []change{moreAddresses(mostAddresses)}, []change{moreAddresses(mostAddresses - 10)}},

	{"tun_id rule", reason.RuleUnknown, ip4("eth0"),
		[]change{rule(model.Rule{Family: model.IP4, TunID: true})}, []change{rule(model.Rule{Family: model.IP6, TunID: true})}},
	{"uidrange rule", reason.RuleUnknown, ip6("eth0"),
		[]change{rule(model.Rule{Family: model.IP6, UIDRange: true})}, []change{rule(model.Rule{Family: model.IP6, Mark: true})}},
	{"realms rule", reason.RuleUnknown, ip4("eth0"),
		[]change{rule(model.Rule{Family: model.IP4, Realms: true})}, []change{rule(model.Rule{Family: model.IP4, TOS: true, Ports: true, Invert: true})}},
	{"rule action", reason.RuleUnknown, ip4("eth0"),
		[]change{rule(model.Rule{Family: model.IP4, Action: 4})}, []change{rule(model.Rule{Family: model.IP4, Action: 8})}},
	{"rule attribute", reason.RuleUnknown, ip4("eth0"),
		[]change{rule(model.Rule{Family: model.IP4, Unknown: []model.Unknown{{Where: "rule", What: "attribute 77"}}})},
		[]change{rule(model.Rule{Family: model.IP4, SuppressPrefix: true, FlowLabel: true})}},
	{"IPv6 rule with a suppressor", reason.RuleUnknown, ip6("eth0"),
		[]change{rule(model.Rule{Family: model.IP6, SuppressPrefix: true})}, []change{rule(model.Rule{Family: model.IP4, SuppressPrefix: true})}},
	{"IPv6 rule that suppresses a group", reason.RuleUnknown, ip6("eth0"),
		[]change{rule(model.Rule{Family: model.IP6, SuppressGroup: true})}, []change{rule(model.Rule{Family: model.IP4, SuppressGroup: true})}},
	{"iif names a VRF's slave", reason.RuleUnknown, ip6("eth0"),
		[]change{inVRF, rule(model.Rule{Family: model.IP6, IIF: "eth0"})}, []change{inVRF, rule(model.Rule{Family: model.IP6, IIF: "eth1"})}},
	{"iif names the VRF", reason.RuleUnknown, ip6("eth0"),
		[]change{inVRF, rule(model.Rule{Family: model.IP6, IIF: "red"})}, []change{rule(model.Rule{Family: model.IP6, IIF: "eth0"})}},
	{"iif and reverse check in a VRF", reason.RuleUnknown, ip4("eth0"),
		[]change{inVRF, rule(model.Rule{Family: model.IP4, IIF: "eth2"})}, []change{rule(model.Rule{Family: model.IP4, IIF: "eth2"})}},

	{"ip_forward_use_pmtu", reason.SysctlUnmodelled, ip4("eth0"),
		[]change{network(func(n *model.Network) { n.Sysctl.ForwardUsePMTU = true })}, []change{network(func(n *model.Network) { n.Sysctl.UpdatePriority = false })}},
	{"ICMP redirects are taken", reason.SysctlUnmodelled, outTC("eth0"),
		[]change{network(func(n *model.Network) { n.Sysctl.All4.AcceptRedirects = true }), on("eth0", func(l *model.Link) { l.Conf4.AcceptRedirects = true })},
		[]change{on("eth0", func(l *model.Link) { l.Conf4.AcceptRedirects = true })}},
	{"ICMP redirects are taken where nothing is forwarded", reason.SysctlUnmodelled, outXDP("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Conf4.AcceptRedirects, l.Conf4.Forwarding = true, false })},
		[]change{network(func(n *model.Network) { n.Sysctl.All4.AcceptRedirects = true })}},
	{"proxies for neighbours say nothing of what is forwarded to them", reason.SysctlUnmodelled, ip6("eth0"), nil,
		[]change{network(func(n *model.Network) { n.Sysctl.All6.ProxyNDP = true }), on("eth0", func(l *model.Link) { l.Conf6.ProxyNDP = true; l.Conf4.ProxyARP = true; l.Conf4.RouteLocalnet = true })}},
	{"switches about extension headers", reason.SysctlUnmodelled, ip6("eth0"), nil,
		[]change{network(func(n *model.Network) { n.Sysctl.All6.Seg6Enabled, n.Sysctl.All6.IOAM6Enabled = true, true }), on("eth0", func(l *model.Link) { l.Conf6.Seg6Enabled, l.Conf6.IOAM6Enabled = true, true })}},
	{"a sysctl that is not modelled", reason.SysctlUnmodelled, ip4("eth0"),
		[]change{network(func(n *model.Network) { n.Sysctl.Changed = []model.Unknown{{Where: "sysctl", What: "net.ipv4.x = 3"}} })},
		[]change{network(func(n *model.Network) { n.Sysctl.Changed = []model.Unknown{{Where: "sysctl", What: "net.ipv6.x = 3"}} })}},
	{"the lookup heeds an IPv6 MTU below the device's", reason.SysctlUnmodelled, outTC("eth0"), nil, []change{on("eth0", func(l *model.Link) { l.MTU6 = 1280 })}},
	{"src_valid_mark asks a mark that is 0", reason.RPFilter, ip4("eth0"), nil,
		[]change{on("eth0", func(l *model.Link) { l.Conf4.SrcValidMark = true; l.Conf4.RPFilter = 1 })}},

	{"down", reason.LinkDown, anyHook("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Up = false })}, []change{on("eth1", func(l *model.Link) { l.Up = false })}},
	{"no carrier", reason.LinkDown, outXDP("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Running = false })}, []change{on("eth1", func(l *model.Link) { l.Running = false })}},
	{"VLAN down", reason.LinkDown, ip4("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), on("eth0.5", func(l *model.Link) { l.Up = false })},
		[]change{with(vlan(5, "eth0.5", 2, 5)), with(vlan(6, "eth0.6", 2, 6)), on("eth0.6", func(l *model.Link) { l.Up = false })}},
	{"VRF down", reason.LinkDown, ip4("eth0"),
		[]change{inVRF, on("red", func(l *model.Link) { l.Up = false })}, []change{inVRF}},
	{"kind", reason.LinkKind, anyHook("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Kind = "dummy" })}, []change{on("eth0", asVeth)}},
	{"way out by kind", reason.LinkKind, outTC("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Kind = "geneve" })}, []change{on("eth0", func(l *model.Link) { l.Kind = kindTap })}},
	{"a vxlan device that carries metadata", reason.LinkAttribute, ip4("eth0"), []change{asVXLAN("eth0", "external")}, []change{asVXLAN("eth0")}},
	{"a vxlan device that carries metadata, on the way out", reason.LinkAttribute, outTC("eth0"), []change{asVXLAN("eth0", "external")}, []change{asVXLAN("eth0")}},
	{"a vxlan device of nobody knows what", reason.LinkAttribute, outTC("eth0"), []change{on("eth0", func(l *model.Link) { l.Kind = kindVXLAN })}, []change{asVXLAN("eth0")}},
	{"a vxlan device runs no XDP", reason.LinkXDPUnsupported, atXDP("eth0"), []change{asVXLAN("eth0")}, []change{}},
	{"and is not entered from there", reason.LinkXDPUnsupported, outXDP("eth0"), []change{asVXLAN("eth0")}, []change{}},
	{"a tunnel larger than its underlay", reason.TunnelMTU, outTC("eth0"), []change{asVXLAN("eth0"), on("eth0", func(l *model.Link) { l.MTU = 1451 })}, []change{asVXLAN("eth0")}},
	{"a tunnel of IPv6 larger than its underlay", reason.TunnelMTU, outTC("eth0"), []change{asVXLAN("eth0"), on("eth0", func(l *model.Link) { l.VXLAN.IP6 = true })}, []change{asVXLAN("eth0")}},
	{"a tunnel larger than the device that it names, whatever that is", reason.TunnelMTU, outTC("eth0"),
		[]change{asVXLAN("eth0"), on("eth0", func(l *model.Link) { l.VXLAN.Lower = 4 }), on("eth1", func(l *model.Link) { l.MTU, l.Type = 1420, 65534 }), on("eth2", func(l *model.Link) { l.MTU, l.Type = 1420, 65534 })},
		[]change{asVXLAN("eth0"), on("eth0", func(l *model.Link) { l.VXLAN.Lower = 4 }), on("eth1", func(l *model.Link) { l.MTU, l.Type = 1420, 65534 })}},
	{"a tunnel over a VRF, larger than one of its devices", reason.TunnelMTU, outTC("eth0"),
		[]change{asVXLAN("eth0"), with(vrfDevice(9, "red", 100)), on("red", func(l *model.Link) { l.MTU = 65575 }), on("eth0", func(l *model.Link) { l.VXLAN.Lower = 9 }), on("eth1", func(l *model.Link) { l.MTU = 1400 })},
		[]change{asVXLAN("eth0"), with(vrfDevice(9, "red", 100)), on("red", func(l *model.Link) { l.MTU = 65575 }), on("eth0", func(l *model.Link) { l.VXLAN.Lower = 9 })}},
	{"generic XDP on a VLAN device", reason.ForeignXDP, ip4("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), program("eth0.5", "xdp-generic", false)}, []change{with(vlan(5, "eth0.5", 2, 5)), program("eth1", "xdp-generic", false)}},
	{"a program as an action where packets come by a VRF", reason.TCFilter, outTC("eth0"),
		[]change{inVRF, on("eth0", func(l *model.Link) {
			l.TCFilters = []model.TCFilter{{Kind: "matchall", Parent: tcClsactEgress, Program: true}}
		})}, []change{on("eth0", func(l *model.Link) {
			l.TCFilters = []model.TCFilter{{Kind: "matchall", Parent: tcClsactEgress, Program: true}}
		})}},
	{"a tunnel larger than a path that Linux learned", reason.TunnelMTU, outTC("eth0"), []change{asVXLAN("eth0"), network(func(n *model.Network) { n.Routes.Path4 = 1400 })},
		[]change{asVXLAN("eth0"), network(func(n *model.Network) { n.Routes.Path6 = 1400 })}},
	{"a tunnel whose underlay is in another namespace", reason.TunnelMTU, outTC("eth0"), []change{asVXLAN("eth0"), on("eth0", func(l *model.Link) { l.PeerNS = true })}, []change{asVXLAN("eth0")}},
	{"a tunnel larger than one device that its packets could leave by", reason.TunnelMTU, outTC("eth0"), []change{asVXLAN("eth0"), on("eth1", func(l *model.Link) { l.MTU = 1499 })},
		[]change{asVXLAN("eth0"), on("eth0", func(l *model.Link) { l.VXLAN.Lower = 4 }), on("eth1", func(l *model.Link) { l.MTU = 1499 })}},
	{"a VRF is no port", reason.LinkKind, anyHook("red"), []change{inVRF}, nil},
	{"bridge port", reason.LinkUpper, anyHook("eth0"),
		[]change{enslave("bridge", 9, "eth0")}, []change{enslave("bridge", 9, "eth1")}},
	{"macvlan on top", reason.LinkUpper, anyHook("eth0"),
		[]change{with(model.Link{Index: 9, Name: "mv0", Kind: "macvlan", Type: arphrdEther, Lower: 2})},
		[]change{with(model.Link{Index: 9, Name: "vx0", Kind: "vxlan", Type: arphrdEther, Lower: 2})}},
	{"macvlan on a VLAN", reason.LinkUpper, ip4("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), with(model.Link{Index: 9, Name: "mv0", Kind: "ipvlan", Type: arphrdEther, Lower: 5})},
		[]change{with(vlan(5, "eth0.5", 2, 5)), with(vlan(6, "eth0.6", 2, 6)), with(model.Link{Index: 9, Name: "mv0", Kind: "ipvlan", Type: arphrdEther, Lower: 6})}},
	{"a VRF that is not known", reason.LinkUpper, anyHook("eth0"), []change{enslave(kindVRF, 9, "eth0")}, []change{inVRF}},
	{"a slave of a bond that cannot be used", reason.LinkUpper, anyHook("eth1"),
		[]change{asBond(bondXOR), on("bond0", func(l *model.Link) { l.Up = false })}, []change{asBond(bondXOR)}},
	{"attribute", reason.LinkAttribute, anyHook("eth0"), []change{on("eth0", unknown)}, []change{on("eth1", unknown)}},
	{"attribute of the way out", reason.LinkAttribute, outTC("eth0"), []change{on("eth0", unknown)}, []change{on("eth1", unknown)}},
	{"attribute of the VRF", reason.LinkAttribute, ip6("eth0"), []change{inVRF, on("red", unknown)}, []change{inVRF, on("eth2", unknown)}},
	{"way out by a bridge's port", reason.LinkUpper, outTC("eth0"), []change{enslave("bridge", 9, "eth0")}, []change{enslave("bridge", 9, "eth1")}},
	{"VLAN in a bridge", reason.LinkUpper, ip4("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), enslave("bridge", 9, "eth0.5")}, []change{with(vlan(5, "eth0.5", 2, 5)), enslave("bridge", 9, "eth1")}},
	{"VLAN excluded", reason.Excluded, ip6("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), policy(func(p *Policy) { p.Exclude = []string{"*.5"} })},
		[]change{with(vlan(5, "eth0.5", 2, 5)), policy(func(p *Policy) { p.Exclude = []string{"*.6"} })}},
	{"VLAN whose port is excluded, from XDP", reason.Excluded, outXDP("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), policy(func(p *Policy) { p.Exclude = []string{"eth0"} })},
		[]change{with(vlan(5, "eth0.5", 2, 5)), policy(func(p *Policy) { p.Exclude = []string{"eth1"} })}},
	{"but from tc", reason.Excluded, outTC("eth0.5"), nil,
		[]change{with(vlan(5, "eth0.5", 2, 5)), policy(func(p *Policy) { p.Exclude = []string{"eth0"} })}},
	{"marks from a peer in this namespace", reason.LinkAttribute, atXDP("eth0"),
		[]change{able, everywhere(asVeth), hook("xdp"), on("eth0", func(l *model.Link) { l.PeerNS = false })},
		[]change{able, everywhere(asVeth), hook("xdp")}},
	{"which tc sees", reason.LinkAttribute, atTC("eth0"), nil,
		[]change{able, everywhere(asVeth), on("eth0", func(l *model.Link) { l.PeerNS = false })}},
	{"marks for a peer in this namespace", reason.LinkAttribute, outXDP("eth0"),
		[]change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, mark), everywhere(asVeth), hook("xdp"), on("eth0", func(l *model.Link) { l.PeerNS = false })},
		[]change{able, chainOf(ruleset.IP4, ruleset.Forward, ruleset.Accept, mark), everywhere(asVeth), hook("xdp")}},
	{"attribute of the way out's VRF", reason.LinkAttribute, outTC("eth0"), []change{inVRF, on("red", unknown)}, []change{inVRF, on("eth2", unknown)}},
	{"shaper on the way out's VRF", reason.Qdisc, outXDP("eth0"), []change{inVRF, qdisc("red", model.Qdisc{Kind: "tbf"})}, []change{inVRF}},
	{"attribute below a VLAN's way out", reason.LinkAttribute, outXDP("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), on("eth0", unknown)}, []change{with(vlan(5, "eth0.5", 2, 5)), on("eth1", unknown)}},
	{"VLAN without a tag", reason.LinkAttribute, anyHook("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), on("eth0.5", func(l *model.Link) { l.VLAN = nil })}, []change{with(vlan(5, "eth0.5", 2, 5))}},
	{"VLAN whose lower device is in another namespace", reason.LinkAttribute, anyHook("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 0, 5))}, []change{with(vlan(5, "eth0.5", 0, 5)), on("eth0.5", func(l *model.Link) { l.PeerNS = true })}},
	{"VLAN that keeps its tag", reason.LinkAttribute, ip4("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), on("eth0.5", func(l *model.Link) { l.VLAN.Flags = 0 })},
		[]change{with(vlan(5, "eth0.5", 2, 5)), on("eth0.5", func(l *model.Link) { l.VLAN.Flags = 0xf })}},
	{"VLAN priority map on the way out", reason.LinkAttribute, outXDP("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), on("eth0.5", func(l *model.Link) { l.VLAN.Maps = true })},
		[]change{with(vlan(5, "eth0.5", 2, 5)), with(vlan(6, "eth0.6", 2, 6)), on("eth0.6", func(l *model.Link) { l.VLAN.Maps = true })}},
	{"no matter on the way in or at tc", reason.LinkAttribute, outTC("eth0.5"), nil,
		[]change{with(vlan(5, "eth0.5", 2, 5)), on("eth0.5", func(l *model.Link) { l.VLAN.Maps = true })}},
	{"three tags", reason.LinkAttribute, outXDP("q3"),
		[]change{with(vlan(5, "q1", 2, 5)), with(vlan(6, "q2", 5, 6)), with(vlan(7, "q3", 6, 7))},
		[]change{with(vlan(5, "q1", 2, 5)), with(vlan(7, "q3", 5, 7))}},
	{"no Ethernet", reason.LinkNoEthernet, anyHook("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.Kind = kindTap; l.Type = 65534 })}, []change{on("eth0", func(l *model.Link) { l.Kind = kindTap })}},

	{"stripping", reason.LinkVLANStripping, atXDP("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.VLANStripping = true })}, []change{on("eth1", func(l *model.Link) { l.VLANStripping = true })}},
	{"stripping by a bond's slave", reason.LinkVLANStripping, atXDP("bond0"),
		[]change{asBond(bondXOR), on("eth2", func(l *model.Link) { l.VLANStripping = true })}, []change{asBond(bondXOR)}},
	{"veth keeps tags anyway", reason.LinkVLANStripping, atXDP("eth0"), nil,
		[]change{everywhere(asVeth), hook("xdp"), on("eth0", func(l *model.Link) { l.VLANStripping = true })}},
	{"large frames by a driver of one buffer", reason.LinkXDPUnsupported, atXDP("eth0"),
		[]change{on("eth0", func(l *model.Link) { f := uint64(xdpReceive | xdpNDOXmit); l.XDPFeatures, l.MTU = &f, oneBuffer+1 })}, []change{on("eth0", func(l *model.Link) { l.MTU = 9000 })}},
	{"as large as fits", reason.LinkXDPUnsupported, atXDP("eth0"), nil, []change{on("eth0", func(l *model.Link) { f := uint64(xdpReceive | xdpNDOXmit); l.XDPFeatures, l.MTU = &f, oneBuffer })}},
	{"large frames by virtio_net", reason.LinkXDPUnsupported, atXDP("eth0"), nil,
		[]change{on("eth0", func(l *model.Link) {
			f := uint64(xdpReceive | xdpNDOXmit)
			l.XDPFeatures, l.MTU, l.Driver = &f, 9000, "virtio_net"
		})}},
	{"driver without XDP", reason.LinkXDPUnsupported, atXDP("eth0"),
		[]change{on("eth0", func(l *model.Link) { f := uint64(xdpBasic); l.XDPFeatures = &f })},
		[]change{on("eth0", func(l *model.Link) { f := uint64(xdpReceive); l.XDPFeatures = &f })}},
	{"driver not in the list before 6.3", reason.LinkXDPUnsupported, atXDP("eth0"),
		[]change{everywhere(func(l *model.Link) { l.XDPFeatures = nil }), on("eth0", func(l *model.Link) { l.Driver = "tg3" })},
		[]change{everywhere(func(l *model.Link) { l.XDPFeatures = nil })}},
	{"driver that sends no XDP frames", reason.LinkXDPUnsupported, outXDP("eth0"),
		[]change{on("eth0", func(l *model.Link) { f := uint64(xdpReceive); l.XDPFeatures = &f })}, []change{}},
	{"card without a program", reason.LinkXDPUnsupported, outXDP("eth0"),
		[]change{on("eth0", func(l *model.Link) { l.XDP = nil })}, []change{on("eth1", func(l *model.Link) { l.XDP = nil })}},
	{"card that has a program and still sends none", reason.LinkXDPUnsupported, outXDP("eth0"),
		[]change{on("eth0", func(l *model.Link) { f := uint64(xdpReceive); l.Driver, l.XDPFeatures = "virtio_net", &f })},
		[]change{on("eth0", func(l *model.Link) { l.Driver = "virtio_net" })}},
	{"veth whose peer does not poll", reason.LinkXDPUnsupported, outXDP("eth0"),
		[]change{everywhere(asVeth), hook("xdp"), on("eth0", func(l *model.Link) { f := uint64(xdpReceive); l.XDPFeatures = &f })},
		[]change{everywhere(asVeth), hook("xdp")}},
	{"tap", reason.LinkXDPUnsupported, atXDP("eth0"), []change{hook("xdp"), on("eth0", func(l *model.Link) { l.Kind = kindTap })}, nil},
	{"bond with an inactive slave", reason.LinkXDPUnsupported, atXDP("bond0"),
		[]change{asBond(bondActiveBackup, 3)}, []change{asBond(bondLACP, 3, 4)}},
	{"bond with states not known", reason.LinkXDPUnsupported, atXDP("bond0"), []change{asBond(bondLACP)}, []change{asBond(bondRoundRobin)}},
	{"bond mode before 6.3", reason.LinkXDPUnsupported, atXDP("bond0"),
		[]change{asBond(6), everywhere(func(l *model.Link) { l.XDPFeatures = nil })},
		[]change{asBond(bondXOR), everywhere(func(l *model.Link) { l.XDPFeatures = nil })}},

	{"foreign XDP", reason.ForeignXDP, atXDP("eth0"), []change{program("eth0", "xdp", false)}, []change{program("eth0", "xdp", true)}},
	{"foreign generic XDP", reason.ForeignXDP, atXDP("eth0"), []change{program("eth0", "xdp-generic", false)}, []change{program("eth1", "xdp-generic", false)}},
	{"foreign XDP leaves tc", reason.ForeignXDP, atTC("eth0"), nil, []change{program("eth0", "xdp", false)}},
	{"foreign tcx ingress", reason.ForeignTC, anyHook("eth0"), []change{program("eth0", "tcx-ingress", false)}, []change{program("eth0", "tcx-ingress", true)}},
	{"foreign tcx egress, from XDP", reason.ForeignTC, outXDP("eth0"), []change{program("eth0", "tcx-egress", false)}, []change{program("eth0", "tcx-ingress", false)}},
	{"foreign tcx egress is met from tc", reason.ForeignTC, outTC("eth0"), nil, []change{program("eth0", "tcx-egress", false)}},
	{"foreign cls_bpf ingress", reason.ForeignTC, anyHook("eth0"), []change{filter("eth0", "bpf", tcClsactIngress)}, []change{filter("eth0", "bpf", tcClsactEgress)}},
	{"tc filter on a VLAN", reason.ForeignTC, ip4("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), program("eth0.5", "tcx-ingress", false)}, []change{with(vlan(5, "eth0.5", 2, 5)), program("eth0.5", "tcx-egress", false)}},
	{"tc filter ingress", reason.TCFilter, anyHook("eth0"), []change{filter("eth0", "flower", tcIngress)}, []change{filter("eth0", "flower", 0x80010000)}},
	{"tc filter of a qdisc that bears the number of ingress, from tc", reason.TCFilter, outTC("eth0"),
		[]change{qdisc("eth0", model.Qdisc{Kind: "htb", Handle: tcIngress}), filter("eth0", "route", tcIngress)}, []change{filter("eth0", "route", tcIngress)}},
	{"tc filter of such a qdisc, ingress", reason.TCFilter, anyHook("eth0"),
		[]change{filter("eth0", "u32", tcIngress)}, []change{qdisc("eth0", model.Qdisc{Kind: "htb", Handle: tcIngress}), filter("eth0", "u32", tcIngress)}},
	{"tc filter egress, from XDP", reason.TCFilter, outXDP("eth0"), []change{filter("eth0", "u32", tcClsactEgress)}, []change{filter("eth0", "u32", tcClsactIngress)}},
	{"tc filter that asks for the connection, from tc", reason.TCFilter, outTC("eth0"),
		[]change{on("eth0", func(l *model.Link) {
			l.TCFilters = []model.TCFilter{{Kind: "flower", Parent: tcClsactEgress, Connection: true}}
		})},
		[]change{filter("eth0", "flower", tcClsactEgress)}},
	{"tc filter that asks for the input, from tc", reason.TCFilter, outTC("eth0"),
		[]change{on("eth0", func(l *model.Link) {
			l.TCFilters = []model.TCFilter{{Kind: "u32", Parent: tcClsactEgress, Input: true}}
		})},
		[]change{filter("eth0", "u32", tcClsactEgress)}},
	{"queueing that asks for the connection, from tc", reason.TCFilter, outTC("eth0"),
		[]change{qdisc("eth0", model.Qdisc{Kind: "cake", Connection: true})}, []change{qdisc("eth0", model.Qdisc{Kind: "cake"})}},
	{"tc filter that asks the route, from tc", reason.TCFilter, outTC("eth0"), []change{filter("eth0", "route", 0x80010000)}, []change{filter("eth0", "u32", 0x80010000)}},
	{"shared block", reason.TCFilter, anyHook("eth0"),
		[]change{qdisc("eth0", model.Qdisc{Kind: "clsact", BlockIn: true})}, []change{qdisc("eth0", model.Qdisc{Kind: "clsact", BlockOut: true})}},
	{"shared block of the ingress qdisc", reason.TCFilter, anyHook("eth0"),
		[]change{qdisc("eth0", model.Qdisc{Kind: "ingress", BlockIn: true})}, []change{qdisc("eth0", model.Qdisc{Kind: "ingress"})}},
	{"shared block on the way out, from tc", reason.TCFilter, outTC("eth0"),
		[]change{qdisc("eth0", model.Qdisc{Kind: "clsact", BlockOut: true})}, []change{qdisc("eth0", model.Qdisc{Kind: "clsact", BlockIn: true})}},
	{"shared block on the way out, from XDP", reason.TCFilter, outXDP("eth0"),
		[]change{qdisc("eth0", model.Qdisc{Kind: "clsact", BlockOut: true})}, []change{qdisc("eth0", model.Qdisc{Kind: "clsact", BlockIn: true})}},
	{"tc filter of a bond's slave, before XDP on the bond", reason.TCFilter, atXDP("bond0"),
		[]change{asBond(bondXOR), filter("eth2", "u32", tcClsactIngress)}, []change{asBond(bondXOR), filter("eth2", "u32", tcClsactEgress)}},
	{"and on the bond's way out", reason.TCFilter, outXDP("bond0"),
		[]change{asBond(bondXOR), filter("eth2", "u32", tcClsactEgress)}, []change{asBond(bondXOR), filter("eth2", "u32", tcClsactIngress)}},
	{"route classifier of a bond's slave", reason.TCFilter, outTC("bond0"),
		[]change{asBond(bondXOR), filter("eth2", "route", tcClsactEgress)}, []change{asBond(bondXOR), filter("eth2", "u32", tcClsactEgress)}},
	{"netdev egress of a bond's slave", reason.NetfilterNetdev, outTC("bond0"),
		[]change{asBond(bondXOR), nf(model.NFHook{Family: model.Netdev, Hook: "egress", Device: "eth2", Kind: model.NFTables, Rules: 1})},
		[]change{asBond(bondXOR), nf(model.NFHook{Family: model.Netdev, Hook: "ingress", Device: "eth2", Kind: model.NFTables, Rules: 1})}},
	{"macvlan on a bond's slave", reason.LinkUpper, atXDP("bond0"),
		[]change{asBond(bondXOR), with(model.Link{Index: 9, Name: "mv0", Kind: "macvlan", Type: arphrdEther, Lower: 4})},
		[]change{asBond(bondXOR), with(model.Link{Index: 9, Name: "mv0", Kind: "vxlan", Type: arphrdEther, Lower: 4})}},
	{"attribute of a bond's slave", reason.LinkAttribute, atXDP("bond0"),
		[]change{asBond(bondXOR), on("eth2", unknown)}, []change{asBond(bondXOR), with(vlan(9, "eth0.5", 2, 5)), on("eth0.5", unknown)}},
	{"AF_XDP on a bond's slave", reason.AFXDP, atXDP("bond0"),
		[]change{asBond(bondXOR), network(func(n *model.Network) { n.Sockets.XDP = []int{4} })}, []change{asBond(bondXOR), network(func(n *model.Network) { n.Sockets.XDP = []int{99} })}},
	{"a bond of nobody knows what", reason.LinkAttribute, atXDP("bond0"),
		[]change{asBond(bondXOR), on("bond0", func(l *model.Link) { l.Bond = nil })}, []change{asBond(bondXOR)}},
	{"a bond of nobody knows what before 6.3", reason.LinkXDPUnsupported, atXDP("bond0"),
		[]change{asBond(bondXOR), on("bond0", func(l *model.Link) { l.Bond = nil; l.XDPFeatures = nil })},
		[]change{asBond(bondXOR), on("bond0", func(l *model.Link) { l.XDPFeatures = nil })}},
	{"a bond without slaves", reason.LinkXDPUnsupported, atXDP("bond0"),
		[]change{asBond(bondXOR), on("bond0", func(l *model.Link) { l.Bond.Slaves = nil })}, []change{asBond(bondXOR)}},
	{"tc filter below the VRF", reason.TCFilter, ip4("eth0"), []change{inVRF, filter("red", "u32", tcClsactIngress)}, []change{inVRF}},

	{"shaper", reason.Qdisc, outXDP("eth0"), []change{qdisc("eth0", model.Qdisc{Kind: "tbf", Handle: 0x10000})}, []change{qdisc("eth1", model.Qdisc{Kind: "tbf", Handle: 0x10000})}},
	{"fq_codel of the user", reason.Qdisc, outXDP("eth0"), []change{qdisc("eth0", model.Qdisc{Kind: "fq_codel", Handle: 0x80010000})}, []change{qdisc("eth0", model.Qdisc{Kind: "fq_codel"})}},
	{"shaper below a VLAN", reason.Qdisc, outXDP("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), qdisc("eth0", model.Qdisc{Kind: "htb"})}, []change{with(vlan(5, "eth0.5", 2, 5)), qdisc("eth1", model.Qdisc{Kind: "htb"})}},
	{"shaper of a bond's slave", reason.Qdisc, outXDP("bond0"),
		[]change{asBond(bondXOR), qdisc("eth2", model.Qdisc{Kind: "htb"})}, []change{asBond(bondXOR), qdisc("eth0", model.Qdisc{Kind: "htb"})}},
	{"tc passes the shaper", reason.Qdisc, outTC("eth0"), nil, []change{qdisc("eth0", model.Qdisc{Kind: "tbf"})}},

	{"tcpdump, way in", reason.PacketSocket, atXDP("eth0"), []change{listener(model.PacketSocket{Index: 2, Protocol: ethPAll})}, []change{listener(model.PacketSocket{Index: 3, Protocol: ethPAll})}},
	{"tcpdump, way out", reason.PacketSocket, outXDP("eth0"), []change{listener(model.PacketSocket{Index: 2, Protocol: ethPAll})}, []change{listener(model.PacketSocket{Index: 2, Protocol: ethPAll, Harmless: true})}},
	{"tcpdump -i any", reason.PacketSocket, atXDP("eth0"), []change{listener(model.PacketSocket{Protocol: ethPAll})}, []change{listener(model.PacketSocket{Protocol: ethPAll, Harmless: true})}},
	{"tcpdump sees what tc takes", reason.PacketSocket, atTC("eth0"), nil, []change{listener(model.PacketSocket{Index: 2, Protocol: ethPAll})}},
	{"a socket for IPv4 alone does not", reason.PacketSocket, anyHook("eth0"), []change{listener(model.PacketSocket{Index: 2, Protocol: 0x0800})}, []change{listener(model.PacketSocket{Index: 2, Protocol: 0x88cc, Harmless: true})}},
	{"a socket for IPv4 alone below a VLAN", reason.PacketSocket, atTC("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), listener(model.PacketSocket{Index: 2, Protocol: 0x0800})},
		[]change{with(vlan(5, "eth0.5", 2, 5)), listener(model.PacketSocket{Index: 2, Protocol: ethPAll})}},
	{"a socket for IPv4 alone on a bond's slave", reason.PacketSocket, atTC("bond0"),
		[]change{asBond(bondXOR), listener(model.PacketSocket{Index: 4, Protocol: 0x0800})}, []change{asBond(bondXOR), listener(model.PacketSocket{Index: 4, Protocol: ethPAll})}},
	{"a listener to what is bridged alone", reason.PacketSocket, atXDP("eth0"), nil, []change{listener(model.PacketSocket{Index: 2, Protocol: ethPAll, Harmless: true, OfBridge: true})}},
	{"a program on the way out that may ask for the way in", reason.ForeignTC, outTC("eth0"),
		[]change{program("eth0", "tcx-egress", false), inVRF}, []change{program("eth0", "tcx-egress", false)}},
	{"tcpdump on a VLAN", reason.PacketSocket, ip4("eth0.5"),
		[]change{with(vlan(5, "eth0.5", 2, 5)), listener(model.PacketSocket{Index: 5, Protocol: ethPAll})},
		[]change{with(vlan(5, "eth0.5", 2, 5)), with(vlan(6, "eth0.6", 2, 6)), listener(model.PacketSocket{Index: 6, Protocol: ethPAll})}},
	{"tcpdump on a VRF", reason.PacketSocket, ip4("eth0"), []change{inVRF, listener(model.PacketSocket{Index: 9, Protocol: ethPAll})}, []change{inVRF}},
	{"AF_XDP", reason.AFXDP, atXDP("eth0"),
		[]change{network(func(n *model.Network) { n.Sockets.XDP = []int{2} })}, []change{network(func(n *model.Network) { n.Sockets.XDP = []int{3} })}},
	{"AF_XDP, way out", reason.AFXDP, outXDP("eth0"),
		[]change{network(func(n *model.Network) { n.Sockets.XDP = []int{2} })}, []change{network(func(n *model.Network) { n.Sockets.XDP = []int{3} })}},

	{"excluded", reason.Excluded, anyHook("eth0"), []change{policy(func(p *Policy) { p.Exclude = []string{"eth0"} })}, []change{policy(func(p *Policy) { p.Exclude = []string{"eth1*"} })}},
	{"not included", reason.Excluded, outTC("eth0"), []change{policy(func(p *Policy) { p.Include = []string{"eth[12]"} })}, []change{policy(func(p *Policy) { p.Include = []string{"eth*"} })}},
	{"paused", reason.Paused, anyHook("eth0"), []change{policy(func(p *Policy) { p.Paused = true })}, []change{policy(func(p *Policy) { p.PausedIf = []string{"eth1"} })}},
	{"paused alone", reason.Paused, outTC("eth0"), []change{policy(func(p *Policy) { p.PausedIf = []string{"eth0"} })}, []change{policy(func(p *Policy) { p.PausedIf = []string{"eth1"} })}},
	{"auto and veth", reason.HookChoice, atXDP("eth0"), []change{on("eth0", asVeth)}, []change{on("eth1", asVeth)}},
	{"--hook xdp", reason.HookChoice, atTC("eth0"), []change{hook("xdp")}, nil},
	{"--hook tc", reason.HookChoice, outXDP("eth0"), []change{hook("tc")}, []change{hook("auto")}},
	{"one interface", reason.NothingToWin, anyHook("eth0"), []change{policy(func(p *Policy) { p.Include = []string{"eth0"} })}, []change{policy(func(p *Policy) { p.Include = []string{"eth[01]"} })}},
	{"nowhere to go but by the other hook", reason.NothingToWin, atXDP("eth0"),
		[]change{qdisc("eth1", model.Qdisc{Kind: "tbf"}), qdisc("eth2", model.Qdisc{Kind: "tbf"})}, []change{qdisc("eth1", model.Qdisc{Kind: "tbf"})}},
	{"no tc in the kernel", reason.AttachFailed, atTC("eth0"), []change{on("eth0", asVeth), policy(func(p *Policy) { p.Kernel.TC = false })}, []change{on("eth0", asVeth)}},
	{"no tc in the kernel, way out", reason.AttachFailed, outTC("eth0"), []change{policy(func(p *Policy) { p.Kernel.TC = false })}, []change{}},
	{"XDP was refused", reason.AttachFailed, atXDP("eth0"), []change{failed(2, XDP)}, []change{failed(3, XDP)}},
	{"and tc is left", reason.AttachFailed, atTC("eth0"), []change{failed(2, TC)}, []change{failed(2, XDP)}},
	{"unreadable", reason.Unreadable, ip4("eth0"), []change{network(func(n *model.Network) { n.Faults = []model.ReadFault{{Part: "rules", Err: "EIO"}} })}, []change{}},
	{"not understood", reason.Unreadable, ip6("eth0"), []change{network(func(n *model.Network) { n.Unknown = []model.Unknown{{Where: "nexthop 3", What: "type 9"}} })}, []change{}},
}

func TestDecisions(t *testing.T) {
	for _, d := range slices.Concat(decisions, bridgeDecisions) {
		has := func(w Why) bool { return w.Reason == d.reason }
		if d.make != nil {
			inOrder(t, Build(router(d.make...)))
			if got := d.place.look(t, Build(router(d.make...))); !slices.ContainsFunc(got, has) {
				t.Errorf("%s: %s is %v, want %s", d.what, d.place.name, got, d.reason)
			}
		}
		if d.near != nil {
			if got := d.place.look(t, Build(router(d.near...))); len(got) > 0 && !expected(d.place.name, got) {
				t.Errorf("near %s: %s is %v, want nothing", d.what, d.place.name, got)
			}
		}
	}
}

// inOrder checks that the nodes of each path stand as Order says.
func inOrder(t *testing.T, g *Graph) {
	t.Helper()
	ordered := func(p Path) {
		last := -1
		for _, n := range p.Nodes {
			at := slices.Index(Order, n.Kind)
			if at <= last {
				t.Errorf("node %s comes after %s", n.Kind, Order[max(0, last)])
			}
			last = at
		}
	}
	for _, p := range g.Ports {
		if p.Bridge != nil {
			ordered(p.Bridge.Path)
		}
		for _, in := range p.Inputs {
			ordered(in.IP4)
			ordered(in.IP6)
		}
	}
}

// expected allows the one reason that a healthy port has at the hook that it does not need.
func expected(where string, got []Why) bool {
	for _, w := range got {
		if w.Reason != reason.NothingToWin || where[len(where)-2:] != "tc" {
			return false
		}
	}
	return true
}

// Every reason that configuration alone decides has a row that brings it about and one that nearly does.
func TestEveryConfigReasonHasItsRows(t *testing.T) {
	for c := reason.Code(0); c < reason.Count; c++ {
		if c.Describe().Class != reason.Config {
			continue
		}
		made, near := false, false
		for _, d := range slices.Concat(decisions, bridgeDecisions) {
			if d.reason == c {
				made, near = made || d.make != nil, near || d.near != nil
			}
		}
		if !made || !near {
			t.Errorf("%s: a row that produces it: %v, a near miss: %v", c, made, near)
		}
	}
}
