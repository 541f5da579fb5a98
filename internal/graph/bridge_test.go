// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
)

// inBridge makes devices ports of a new bridge br0 (ifindex 9) on a kernel whose bridges can be read.
func inBridge(names ...string) change {
	return func(n *model.Network, p *Policy) {
		l := card(9, "br0")
		l.Kind, l.Driver, l.XDPFeatures = kindBridge, "bridge", nil
		l.Bridge = &model.Bridge{Ageing: 30000}
		l.Qdiscs = []model.Qdisc{{Kind: "noqueue", Parent: 0xffffffff}}
		with(l)(n, p)
		enslave(kindBridge, 9, names...)(n, p)
		for _, name := range names {
			n.LinkByName(name).Port = &model.BridgePort{}
		}
		p.Kernel.Bridge = true
	}
}

var bridged01 = inBridge("eth0", "eth1")

func frames(name string) place {
	return place{"frames at " + name, func(t *testing.T, g *Graph) []Why {
		p := portOf(t, g, name)
		if p.Bridge == nil {
			t.Fatalf("%s is no port of a bridge", name)
		}
		return p.Bridge.Why
	}}
}

// toBridge is IPv4 to the bridge's own address at one of its ports.
func toBridge(name string) place {
	return place{"what comes to the bridge by " + name, func(t *testing.T, g *Graph) []Why { return portOf(t, g, name).Inputs[0].IP4.Why }}
}

// toVLAN is IPv4 at one of its ports that the bridge hands on to a VLAN device.
func toVLAN(name string) place {
	return place{"what comes to br0.5 by " + name, func(t *testing.T, g *Graph) []Why {
		for _, in := range portOf(t, g, name).Inputs {
			if in.Name == "br0.5" {
				return in.IP4.Why
			}
		}
		t.Fatalf("%s has no input br0.5", name)
		return nil
	}}
}

func overXDP(name string) place {
	return place{"bridge into " + name + " from XDP", func(t *testing.T, g *Graph) []Why { return egressOf(t, g, name).Bridge.XDP }}
}

func overTC(name string) place {
	return place{"bridge into " + name + " from tc", func(t *testing.T, g *Graph) []Why { return egressOf(t, g, name).Bridge.TC }}
}

func bridgeOption(f func(b *model.Bridge)) change {
	return on("br0", func(l *model.Link) { f(l.Bridge) })
}

var readVLANs = policy(func(p *Policy) { p.Kernel.BridgeVLANs = true })

// onBridge is br0 with two ports, by VLAN, and VLAN 5 on it.
func onBridge(n *model.Network, p *Policy) {
	for _, c := range []change{bridged01, filtering, readVLANs, with(vlan(15, "br0.5", 9, 5)), on("br0.5", func(l *model.Link) { l.MAC = n.LinkByName("br0").MAC })} {
		c(n, p)
	}
}

var filtering = bridgeOption(func(b *model.Bridge) { b.VLANFiltering = true })

var bridgeDecisions = []decision{
	{"VLAN filtering", reason.BridgeVLAN, frames("eth0"), []change{bridged01, filtering}, []change{bridged01, filtering, policy(func(p *Policy) { p.Kernel.BridgeVLANs = true })}},
	{"VLAN filtering, the bridge itself", reason.BridgeVLAN, toBridge("eth0"), []change{bridged01, filtering}, []change{bridged01, filtering, readVLANs}},
	{"a VLAN device on the bridge is down", reason.LinkDown, toVLAN("eth0"), []change{onBridge, on("br0.5", func(l *model.Link) { l.Up = false })}, []change{onBridge}},
	{"a VLAN device on the bridge does not forward", reason.ForwardingOff, toVLAN("eth1"), []change{onBridge, on("br0.5", func(l *model.Link) { l.Conf4.Forwarding = false })},
		[]change{onBridge, on("br0", func(l *model.Link) { l.Conf4.Forwarding = false })}},
	{"a program on the bridge below a VLAN device", reason.ForeignTC, toVLAN("eth0"), []change{onBridge, program("br0", "tcx-ingress", false)}, []change{onBridge}},
	{"a program on a VLAN device on the bridge", reason.ForeignTC, toVLAN("eth0"), []change{onBridge, program("br0.5", "tcx-ingress", false)}, []change{onBridge}},
	{"priorities of a VLAN device on the bridge", reason.LinkAttribute, toVLAN("eth0"), []change{onBridge, on("br0.5", func(l *model.Link) { l.VLAN.Maps = true })}, []change{onBridge}},
	{"a provider's tag on the bridge", reason.LinkAttribute, toVLAN("eth0"), []change{onBridge, on("br0.5", func(l *model.Link) { l.VLAN.Proto = 0x88a8 })}, []change{onBridge}},
	{"br_netfilter and a VLAN device on the bridge", reason.BridgeNetfilter, toVLAN("eth0"), []change{onBridge, calls}, []change{onBridge}},
	{"br_netfilter and the bridge itself, by VLAN", reason.BridgeNetfilter, toBridge("eth0"), nil, []change{onBridge, calls}},
	{"a route to a bridge that filters by VLAN", reason.BridgeVLAN, outTC("br0"), nil, []change{bridged01, filtering}},
	{"a route to a VLAN device on a bridge", reason.LinkKind, outTC("br0.5"), nil, []change{onBridge}},
	{"the same, and the bridge does not filter", reason.LinkKind, outTC("br0.5"), nil, []change{onBridge, bridgeOption(func(b *model.Bridge) { b.VLANFiltering = false })}},
	{"a route to a VLAN device on a bridge, from XDP", reason.LinkKind, outXDP("br0.5"), []change{onBridge}, nil},
	{"a route to a VLAN device on one on a bridge", reason.LinkKind, outTC("br0.5.6"), []change{onBridge, with(vlan(16, "br0.5.6", 15, 6))}, nil},
	{"a route to a VLAN device on a bridge that is down", reason.LinkDown, outTC("br0.5"), []change{onBridge, on("br0", func(l *model.Link) { l.Up = false })}, []change{onBridge}},
	{"a route to a VLAN device on a bridge whose port has egress chains", reason.NetfilterNetdev, outTC("br0.5"),
		[]change{onBridge, nf(model.NFHook{Family: model.Netdev, Hook: "egress", Device: "eth1", Kind: model.NFTables, Rules: 1})}, []change{onBridge}},
	{"an option of the bridge", reason.BridgeOption, frames("eth0"), []change{bridged01, bridgeOption(func(b *model.Bridge) { b.On = []string{"mst_enabled"} })}, []change{bridged01}},
	{"nothing is learned", reason.BridgeOption, frames("eth1"), []change{bridged01, bridgeOption(func(b *model.Bridge) { b.Ageing = 0 })},
		[]change{bridged01, bridgeOption(func(b *model.Bridge) { b.Ageing = 1 })}},
	{"an option of the port", reason.BridgeOption, frames("eth0"), []change{bridged01, on("eth0", func(l *model.Link) { l.Port.On = []string{"locked"} })},
		[]change{inBridge("eth0", "eth1", "eth2"), on("eth1", func(l *model.Link) { l.Port.On = []string{"locked"} })}},
	{"an option of the port, way out", reason.BridgeOption, overTC("eth0"), []change{bridged01, on("eth0", func(l *model.Link) { l.Port.On = []string{"backup_port"} })},
		[]change{bridged01, on("eth0", func(l *model.Link) { l.Port.Isolated = true })}},
	{"br_netfilter and no rules", reason.BridgeNetfilter, shown4("eth0"), nil, []change{bridged01, calls}},
	{"br_netfilter and an empty chain", reason.BridgeNetfilter, shown4("eth0"), nil, []change{bridged01, calls, nf(nfChain(model.IP4, "forward", 0))}},
	{"br_netfilter and a rule", reason.BridgeNetfilter, shown4("eth0"), []change{bridged01, calls, nf(nfChain(model.IP4, "forward", 1))}, []change{bridged01, nf(nfChain(model.IP4, "forward", 1))}},
	{"br_netfilter and a rule before the route", reason.BridgeNetfilter, shown4("eth1"), []change{bridged01, calls, nf(nfChain(model.IP4, "prerouting", 1))},
		[]change{bridged01, calls, nf(nfChain(model.IP4, "input", 1))}},
	{"br_netfilter and a rule behind it", reason.BridgeNetfilter, shown6("eth0"), []change{bridged01, calls, nf(nfChain(model.IP6, "postrouting", 1))},
		[]change{bridged01, calls, nf(nfChain(model.IP6, "output", 1))}},
	{"br_netfilter and a rule of the other family", reason.BridgeNetfilter, shown6("eth0"), []change{bridged01, calls, nf(nfChain(model.IP6, "forward", 1))},
		[]change{bridged01, calls, nf(nfChain(model.IP4, "forward", 1))}},
	{"br_netfilter and connection tracking", reason.BridgeNetfilter, shown4("eth0"), []change{bridged01, calls, followed(model.IP4)}, []change{bridged01, calls, followed(model.IP6)}},
	{"br_netfilter and a legacy policy", reason.BridgeNetfilter, shown4("eth0"), []change{bridged01, calls, nf(model.NFHook{Family: model.IP4, Hook: "forward", Kind: model.Legacy, Table: "filter"})},
		[]change{bridged01, calls, nf(model.NFHook{Family: model.IP4, Hook: "forward", Kind: model.Legacy, Table: "filter", PolicyAccept: true})}},
	{"nf_call_iptables of the bridge", reason.BridgeNetfilter, shown4("eth0"), []change{bridged01, registered, nf(nfChain(model.IP4, "forward", 1)), asks("nf_call_iptables")},
		[]change{bridged01, registered, nf(nfChain(model.IP4, "forward", 1)), asks("nf_call_ip6tables", "nf_call_arptables")}},
	{"nf_call_ip6tables of the bridge", reason.BridgeNetfilter, shown6("eth0"), []change{bridged01, registered, nf(nfChain(model.IP6, "forward", 1)), asks("nf_call_ip6tables")},
		[]change{bridged01, registered, nf(nfChain(model.IP6, "forward", 1)), asks("nf_call_iptables", "nf_call_arptables")}},
	{"an option without br_netfilter", reason.BridgeNetfilter, shown4("eth0"), []change{bridged01, asks("nf_call_iptables")}, []change{bridged01, registered, asks("nf_call_iptables")}},
	{"br_netfilter without IPv6", reason.BridgeNetfilter, shown6("eth0"), []change{bridged01, calls, network(func(n *model.Network) { n.Sysctl.All6.Present = false })}, []change{bridged01, calls}},
	{"rules of one family leave the frames of the other", reason.BridgeNetfilter, anyHook("eth0"), nil, []change{routesNothing, bridged01, calls, nf(nfChain(model.IP4, "forward", 1))}},
	{"rules of both leave nothing to win", reason.BridgeNetfilter, anyHook("eth0"), []change{routesNothing, bridged01, calls, nf(nfChain(model.IP4, "forward", 1)), nf(nfChain(model.IP6, "forward", 1))},
		[]change{routesNothing, bridged01, nf(nfChain(model.IP4, "forward", 1)), nf(nfChain(model.IP6, "forward", 1))}},
	{"ebtables", reason.NetfilterBridge, frames("eth0"), []change{bridged01, nf(model.NFHook{Family: model.BridgeFamily, Hook: "forward", Kind: model.Legacy, Function: "ebt_in_hook"})},
		[]change{bridged01, nf(model.NFHook{Family: model.BridgeFamily, Hook: "input", Kind: model.Legacy, Function: "ebt_in_hook"})}},
	{"a chain of the bridge family", reason.NetfilterBridge, frames("eth0"), []change{bridged01, nf(nfChain(model.BridgeFamily, "postrouting", 1))},
		[]change{bridged01, nf(nfChain(model.BridgeFamily, "postrouting", 0))}},
	{"br_netfilter that is off", reason.NetfilterBridge, frames("eth0"), nil,
		[]change{bridged01, nf(model.NFHook{Family: model.BridgeFamily, Hook: "prerouting", Kind: model.BridgeNF, Function: "br_nf_pre_routing"})}},
	{"connection tracking of bridges", reason.NetfilterBridge, frames("eth0"),
		[]change{bridged01, nf(model.NFHook{Family: model.BridgeFamily, Hook: "prerouting", Kind: model.Conntrack, Function: "nf_ct_bridge_pre"})}, []change{bridged01}},
	{"rules of IP are not for frames", reason.NetfilterIP4Forward, frames("eth0"), nil, []change{bridged01, nf(nfChain(model.IP4, "forward", 1))}},
	{"bridges cannot be read", reason.BridgeUnreadable, frames("eth0"), []change{bridged01, policy(func(p *Policy) { p.Kernel.Bridge = false })}, []change{bridged01}},
	{"attribute of the bridge", reason.LinkAttribute, frames("eth0"), []change{bridged01, on("br0", unknown)}, []change{bridged01, on("eth2", unknown)}},
	{"attribute of the port", reason.LinkAttribute, anyHook("eth0"), []change{bridged01, on("eth0", unknown)}, []change{bridged01, on("eth2", unknown)}},
	{"attribute of the port, way out", reason.LinkAttribute, overTC("eth0"), []change{bridged01, on("eth0", unknown)}, []change{bridged01, on("eth1", unknown)}},
	{"something could not be read", reason.Unreadable, frames("eth0"), []change{bridged01, network(func(n *model.Network) { n.Faults = []model.ReadFault{{Part: "rules", Err: "EIO"}} })}, nil},
	{"the bridge is excluded", reason.Excluded, frames("eth0"), []change{bridged01, policy(func(p *Policy) { p.Exclude = []string{"br*"} })}, []change{bridged01}},
	{"a macvlan takes the port's frames", reason.LinkUpper, anyHook("eth0"),
		[]change{bridged01, with(model.Link{Index: 12, Name: "mv0", Kind: "macvlan", Type: arphrdEther, Lower: 2})}, []change{bridged01}},
	{"routes do not lead out of ports", reason.LinkUpper, outTC("eth0"), []change{bridged01}, []change{inBridge("eth1", "eth2")}},
	{"shaper", reason.Qdisc, overXDP("eth0"), []change{bridged01, qdisc("eth0", model.Qdisc{Kind: "htb"})}, []change{bridged01, qdisc("eth1", model.Qdisc{Kind: "htb"})}},
	{"tc passes the shaper", reason.Qdisc, overTC("eth0"), nil, []change{bridged01, qdisc("eth0", model.Qdisc{Kind: "htb"})}},
	{"netdev egress", reason.NetfilterNetdev, overTC("eth0"),
		[]change{bridged01, nf(model.NFHook{Family: model.Netdev, Hook: "egress", Device: "eth0", Kind: model.NFTables, Rules: 1})}, []change{bridged01}},
	{"an empty chain of family inet at ingress", reason.NetfilterNetdev, anyHook("eth0"), []change{bridged01, emptyIngress(ruleset.Inet)}, []change{bridged01, emptyIngress(ruleset.Netdev)}},
	{"tcpdump, way out", reason.PacketSocket, overXDP("eth0"), []change{bridged01, listener(model.PacketSocket{Index: 2, Protocol: ethPAll})}, []change{bridged01}},
	{"AF_XDP, way out", reason.AFXDP, overXDP("eth0"), []change{bridged01, network(func(n *model.Network) { n.Sockets.XDP = []int{2} })}, []change{bridged01}},
	{"tap as a port", reason.LinkXDPUnsupported, overXDP("eth0"), []change{bridged01, hook("xdp"), on("eth0", func(l *model.Link) { l.Kind = kindTap })}, []change{bridged01, hook("xdp")}},
	{"no carrier", reason.LinkDown, overTC("eth0"), []change{bridged01, on("eth0", func(l *model.Link) { l.Running = false })}, []change{bridged01}},
	{"a VLAN as a port, from XDP", reason.LinkKind, overXDP("eth0.5"), []change{with(vlan(5, "eth0.5", 2, 5)), inBridge("eth0.5", "eth1")}, nil},
	{"a VLAN as a port, from tc", reason.LinkKind, overTC("eth0.5"), nil, []change{with(vlan(5, "eth0.5", 2, 5)), inBridge("eth0.5", "eth1")}},
	{"one port", reason.NothingToWin, anyHook("eth0"), []change{inBridge("eth0"), policy(func(p *Policy) { p.Include = []string{"eth0", "br0"} })}, []change{inBridge("eth0")}},

	{"forwarding is the bridge's", reason.ForwardingOff, toBridge("eth0"), []change{bridged01, on("br0", func(l *model.Link) { l.Conf4.Forwarding = false })},
		[]change{bridged01, on("eth0", func(l *model.Link) { l.Conf4.Forwarding = false })}},
	{"a chain for what is addressed to the bridge", reason.NetfilterBridge, toBridge("eth0"), []change{bridged01, nf(nfChain(model.BridgeFamily, "input", 1))},
		[]change{bridged01, nf(nfChain(model.BridgeFamily, "input", 0))}},
	{"a program on the bridge", reason.ForeignTC, toBridge("eth0"), []change{bridged01, program("br0", "tcx-ingress", false)}, []change{bridged01, program("br0", "tcx-egress", false)}},
	{"XDP on the bridge", reason.ForeignXDP, toBridge("eth0"), []change{bridged01, program("br0", "xdp-generic", false)}, []change{bridged01}},
	{"a listener to frames that are not routed", reason.PacketSocket, overXDP("eth0"), []change{able, bridged01, listener(model.PacketSocket{Index: 2, Protocol: ethPAll, Harmless: true, OfBridge: true})},
		[]change{able, bridged01, listener(model.PacketSocket{Index: 2, Protocol: ethPAll, Harmless: true})}},
	{"tcpdump -p on the bridge", reason.PacketSocket, toBridge("eth1"), []change{bridged01, listener(model.PacketSocket{Index: 9, Protocol: ethPAll})},
		[]change{bridged01, listener(model.PacketSocket{Index: 9, Protocol: ethPAll, Harmless: true})}},
	{"chains at the bridge's ingress", reason.NetfilterNetdev, toBridge("eth0"),
		[]change{bridged01, nf(model.NFHook{Family: model.Netdev, Hook: "ingress", Device: "br0", Kind: model.NFTables, Rules: 1})}, []change{bridged01}},
	{"a macvlan on the bridge", reason.LinkUpper, toBridge("eth0"), []change{bridged01, with(model.Link{Index: 12, Name: "mv0", Kind: "macvlan", Type: arphrdEther, Lower: 9})}, []change{bridged01}},
	{"the bridge is down", reason.LinkDown, toBridge("eth0"), []change{bridged01, on("br0", func(l *model.Link) { l.Up = false })}, []change{bridged01}},
	{"what is on the bridge means nothing between ports", reason.ForeignTC, frames("eth0"), nil, []change{bridged01, program("br0", "tcx-ingress", false)}},
	{"rules of IP", reason.NetfilterIP4Forward, toBridge("eth0"), []change{bridged01, nf(nfChain(model.IP4, "forward", 1))}, []change{bridged01}},

	{"a route to a bridge with a tunnel larger than its underlay", reason.TunnelMTU, outTC("br0"), []change{asVXLAN("eth0"), bridged01, on("eth0", func(l *model.Link) { l.MTU = 1451 })}, []change{asVXLAN("eth0"), bridged01}},
	{"a route to a bridge, from XDP", reason.LinkKind, outXDP("br0"), []change{bridged01}, nil},
	{"a route to a bridge whose port has egress chains", reason.NetfilterNetdev, outTC("br0"),
		[]change{bridged01, nf(model.NFHook{Family: model.Netdev, Hook: "egress", Device: "eth1", Kind: model.NFTables, Rules: 1})}, []change{bridged01}},
	{"a route to a bridge with chains", reason.NetfilterBridge, outTC("br0"), []change{bridged01, nf(nfChain(model.BridgeFamily, "output", 1))}, []change{bridged01}},
	{"a route to a bridge with a chain that asks for more than the frame", reason.NetfilterBridge, outTC("br0"), []change{bridged01, chainOf(ruleset.Bridge, ruleset.Postrouting, ruleset.Accept, mark)},
		[]change{bridged01, chainOf(ruleset.Bridge, ruleset.Postrouting, ruleset.Drop, drop, accept)}},
	{"and another one in its table", reason.NetfilterBridge, outTC("br0"), []change{bridged01, chainOf(ruleset.Bridge, ruleset.Output, ruleset.Accept, toSSH, limits)}, []change{bridged01, chainOf(ruleset.Bridge, ruleset.Output, ruleset.Accept, toSSH)}},
	{"a hook of the family that is no chain", reason.NetfilterBridge, outTC("br0"), []change{bridged01, nf(model.NFHook{Family: model.BridgeFamily, Hook: "postrouting", Kind: model.NFOther})},
		[]change{bridged01, nf(model.NFHook{Family: model.BridgeFamily, Hook: "forward", Kind: model.NFOther})}},
	{"a chain for what this host sends", reason.NetfilterBridge, toBridge("eth0"), nil, []change{bridged01, nf(nfChain(model.BridgeFamily, "output", 1))}},
	{"a route to a bridge is none that br_netfilter looks at", reason.BridgeNetfilter, outTC("br0"), nil, []change{bridged01, calls, nf(nfChain(model.IP4, "forward", 1))}},
	{"what is addressed to the bridge was shown to prerouting", reason.BridgeNetfilter, toBridge("eth0"),
		[]change{bridged01, calls, nf(model.NFHook{Family: model.IP4, Hook: "prerouting", Kind: model.NFTables, Table: "t", Chain: "c", Rules: 1, PolicyAccept: true, Priority: math.MinInt32})},
		[]change{bridged01, calls, nf(nfChain(model.IP4, "prerouting", 0))}},
	{"and is shown to it again in a VRF", reason.BridgeNetfilter, toBridge("eth0"), []change{bridged01, calls, redBridge},
		[]change{bridged01, redBridge}},
	{"a route to a bridge without carrier", reason.LinkDown, outTC("br0"), []change{bridged01, on("br0", func(l *model.Link) { l.Running = false })}, []change{bridged01}},
}

// registered is br_netfilter, which does what the bridge's options say; calls is its switches on as well.
var registered = nf(model.NFHook{Family: model.BridgeFamily, Hook: "prerouting", Kind: model.BridgeNF, Function: "br_nf_pre_routing"})

func calls(n *model.Network, p *Policy) {
	registered(n, p)
	n.Sysctl.BridgeCall4, n.Sysctl.BridgeCall6, n.Sysctl.All6.Present = true, true, true
}

// redBridge puts the bridge into a VRF.
func redBridge(n *model.Network, p *Policy) {
	with(vrfDevice(20, "red", 100))(n, p)
	enslave(kindVRF, 20, "br0")(n, p)
}

func asks(options ...string) change {
	return func(n *model.Network, p *Policy) {
		n.Sysctl.All6.Present = true
		n.LinkByName("br0").Bridge.NFCall = options
	}
}

// followed is connection tracking of a family.
func followed(family model.Family) change {
	return nf(model.NFHook{Family: family, Hook: "prerouting", Kind: model.Conntrack, Function: string(family) + "_conntrack_in", Priority: -200})
}

// routesNothing leaves bridging as the only business.
func routesNothing(n *model.Network, p *Policy) {
	for i := range n.Links {
		n.Links[i].Conf4.Forwarding = false
	}
	n.Sysctl.All6.Forwarding = false
}

// shown4 is IPv4 between the ports of a bridge.
func shown4(name string) place {
	return place{"bridged IPv4 at " + name, func(t *testing.T, g *Graph) []Why { return portOf(t, g, name).Bridge.Call4.Why }}
}

func shown6(name string) place {
	return place{"bridged IPv6 at " + name, func(t *testing.T, g *Graph) []Why { return portOf(t, g, name).Bridge.Call6.Why }}
}

// Ports of one bridge reach each other by the hook that fits both; ports of two do not.
func TestBridgeHooks(t *testing.T) {
	for _, c := range []struct {
		what string
		make []change
		want map[string][]Hook
	}{
		{"cards", []change{bridged01}, map[string][]Hook{"eth0": {XDP}, "eth1": {XDP}, "eth2": {TC}}},
		{"veths", []change{everywhere(asVeth), bridged01}, map[string][]Hook{"eth0": {TC}, "eth1": {TC}}},
		{"two cards and a veth", []change{on("eth2", asVeth), inBridge("eth0", "eth1", "eth2")}, map[string][]Hook{"eth0": {XDP, TC}, "eth1": {XDP, TC}, "eth2": {TC}}},
		{"a card and a veth", []change{on("eth1", asVeth), bridged01}, map[string][]Hook{"eth0": {XDP, TC}, "eth1": {TC}}},
		{"cards that send once a program is loaded", []change{bridged01, everywhere(func(l *model.Link) { l.Driver, l.XDP = "virtio_net", nil })},
			map[string][]Hook{"eth0": {XDP, TC}, "eth1": {XDP, TC}}},
	} {
		g := Build(router(c.make...))
		for name, want := range c.want {
			if got := portOf(t, g, name).Hooks; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s has %v, want %v", c.what, name, got, want)
			}
		}
	}
}

// The port of a bridge that routes lead to is entered at once where nothing would see or do anything on the way through the bridge's own device.
func TestOnto(t *testing.T) {
	address := func(prefix string) change {
		return func(n *model.Network, p *Policy) {
			n.Addrs = append(n.Addrs, model.Addr{Index: 9, Prefix: netip.MustParsePrefix(prefix)})
		}
	}
	addressed := address("10.9.0.1/24")
	for _, c := range []struct {
		what string
		make []change
		want bool
	}{
		{"a bridge with an address", []change{bridged01, addressed}, true},
		{"IPv6", []change{bridged01, address("fd09::1/64")}, true},
		{"no address", []change{bridged01}, false},
		{"an address of its link", []change{bridged01, address("fe80::1/64")}, false},
		{"br_netfilter and rules", []change{bridged01, addressed, calls, nf(nfChain(model.IP4, "forward", 1))}, true},
		{"bridges cannot be read", []change{bridged01, addressed, policy(func(p *Policy) { p.Kernel.Bridge = false })}, false},
		{"a queue on the bridge", []change{bridged01, addressed, on("br0", func(l *model.Link) { l.Qdiscs = []model.Qdisc{{Kind: "tbf", Parent: 0xffffffff}} })}, false},
		{"a queue on a port", []change{bridged01, addressed, on("eth0", func(l *model.Link) { l.Qdiscs = []model.Qdisc{{Kind: "tbf", Parent: 0xffffffff}} })}, true},
		{"a program behind the bridge", []change{bridged01, addressed, on("br0", func(l *model.Link) { l.TCX = []model.Program{{ID: 7, Name: "out", Hook: "tcx-egress"}} })}, false},
		{"a listener", []change{bridged01, addressed, func(n *model.Network, p *Policy) {
			n.Sockets.Packet = append(n.Sockets.Packet, model.PacketSocket{Index: 9, Protocol: 3})
		}}, false},
		{"VLAN filtering", []change{bridged01, addressed, filtering, readVLANs}, true},
		{"VLAN filtering that cannot be read", []change{bridged01, addressed, filtering}, false},
		{"a chain of the family", []change{bridged01, addressed, nf(nfChain(model.BridgeFamily, "output", 1))}, false},
		{"chains of the family that others meet", []change{bridged01, addressed, nf(nfChain(model.BridgeFamily, "prerouting", 1)), nf(nfChain(model.BridgeFamily, "input", 1)), nf(nfChain(model.BridgeFamily, "forward", 1))}, true},
		{"a chain of the family that is understood", []change{bridged01, addressed, chainOf(ruleset.Bridge, ruleset.Postrouting, ruleset.Accept, drop)}, false},
		{"a bridge in a VRF", []change{bridged01, addressed, redBridge}, true},
		{"the bridge is down", []change{bridged01, addressed, on("br0", func(l *model.Link) { l.Up = false })}, false},
	} {
		if got := egressOf(t, Build(router(c.make...)), "br0").Onto; got != c.want {
			t.Errorf("%s: entered at once: %v", c.what, got)
		}
	}
	onVLAN := func(n *model.Network, p *Policy) {
		n.Addrs = append(n.Addrs, model.Addr{Index: 15, Prefix: netip.MustParsePrefix("10.15.0.1/24")})
	}
	for _, c := range []struct {
		what string
		make []change
		want bool
	}{
		{"a VLAN device on a bridge", []change{onBridge, onVLAN}, true},
		{"no address", []change{onBridge, addressed}, false},
		{"one that translates priorities", []change{onBridge, onVLAN, on("br0.5", func(l *model.Link) { l.VLAN.Maps = true })}, false},
		{"a program behind it", []change{onBridge, onVLAN, on("br0.5", func(l *model.Link) { l.TCX = []model.Program{{ID: 7, Name: "out", Hook: "tcx-egress"}} })}, false},
		{"a program behind the bridge", []change{onBridge, onVLAN, on("br0", func(l *model.Link) { l.TCX = []model.Program{{ID: 7, Name: "out", Hook: "tcx-egress"}} })}, false},
		{"the bridge does not filter", []change{onBridge, onVLAN, bridgeOption(func(b *model.Bridge) { b.VLANFiltering = false })}, false},
	} {
		if got := egressOf(t, Build(router(c.make...)), "br0.5").Onto; got != c.want {
			t.Errorf("VLAN, %s: entered at once: %v", c.what, got)
		}
	}
}

func TestBridgeInText(t *testing.T) {
	text := Build(router(bridged01)).Text()
	for _, want := range []string{"├─ bridge br0\n│  frames ─▶ bridge ─ egress ─ guard ─ redirect\n├─ to br0\n", "╰─▶ eth1 (bridge, xdp)   eth2 (xdp)", "  of br0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// emptyIngress is a chain without rules at eth0's ingress.
func emptyIngress(family ruleset.Family) change {
	return network(func(n *model.Network) {
		n.Netfilter = append(n.Netfilter, model.NFHook{Family: model.Netdev, Hook: "ingress", Device: "eth0", Kind: model.NFTables, Table: "t", Chain: "c", PolicyAccept: true})
		n.Filter = &ruleset.Ruleset{Tables: []ruleset.Table{{Name: "t", Dialect: ruleset.NFT, Family: family, Chains: []ruleset.Chain{{Name: "c",
			Base: &ruleset.Base{Hook: ruleset.Ingress, Policy: ruleset.Accept, Counter: ruleset.NoCounter, Devices: []string{"eth0"}}}}}}}
	})
}
