// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
)

func conf4(name string, f func(c *model.Conf4)) change {
	return on(name, func(l *model.Link) { f(&l.Conf4) })
}

func all4(f func(c *model.Conf4)) change {
	return network(func(n *model.Network) { f(&n.Sysctl.All4) })
}

func noAddress(name string) change {
	return network(func(n *model.Network) {
		var kept []model.Addr
		for _, a := range n.Addrs {
			if a.Index != n.LinkByName(name).Index {
				kept = append(kept, a)
			}
		}
		n.Addrs = kept
	})
}

func notable(r model.Route) change {
	return network(func(n *model.Network) { n.Routes.Notable = append(n.Routes.Notable, r) })
}

func connected(locals ...string) change {
	return network(func(n *model.Network) {
		for _, a := range locals {
			n.Sockets.Locals = append(n.Sockets.Locals, netip.MustParseAddr(a))
		}
	})
}

func withoutRule(priority uint32) change {
	return network(func(n *model.Network) {
		var kept []model.Rule
		for _, r := range n.Rules {
			if r.Family != model.IP4 || r.Priority != priority {
				kept = append(kept, r)
			}
		}
		n.Rules = kept
	})
}

// The nodes between the header checks and the way out, for exactly one configuration each.
func TestNodesAreTheMinimumForTheConfiguration(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")
	strict := all4(func(c *model.Conf4) { c.RPFilter = 1 })
	for _, c := range []struct {
		what    string
		changes []change
		at      string
		ip4     string
		ip6     string
	}{
		{"plain", nil, "eth0", "local-source fib", "fib"},
		{"rp_filter of the device", []change{conf4("eth0", func(c *model.Conf4) { c.RPFilter = 1 })}, "eth0", "fib rp-filter(iif=egress mode=strict)", "fib"},
		{"rp_filter of another device", []change{conf4("eth1", func(c *model.Conf4) { c.RPFilter = 1 })}, "eth0", "local-source fib", "fib"},
		{"rp_filter of all", []change{strict}, "eth0", "fib rp-filter(iif=egress mode=strict)", "fib"},
		{"the larger counts", []change{strict, conf4("eth0", func(c *model.Conf4) { c.RPFilter = 2 })}, "eth0", "fib rp-filter(iif=egress mode=loose)", "fib"},
		{"loose without an address", []change{conf4("eth0", func(c *model.Conf4) { c.RPFilter = 2 }), noAddress("eth0")}, "eth0", "fib rp-filter(iif=egress mode=strict)", "fib"},
		{"accept_local", []change{conf4("eth0", func(c *model.Conf4) { c.AcceptLocal = true })}, "eth0", "fib", "fib"},
		{"accept_local of all", []change{all4(func(c *model.Conf4) { c.AcceptLocal = true })}, "eth0", "fib", "fib"},
		{"accept_local of another", []change{conf4("eth1", func(c *model.Conf4) { c.AcceptLocal = true })}, "eth0", "local-source fib", "fib"},
		{"accept_local does not lift rp_filter", []change{strict, conf4("eth0", func(c *model.Conf4) { c.AcceptLocal = true })}, "eth0", "fib rp-filter(iif=egress mode=strict)", "fib"},
		{"custom rule", []change{rule(model.Rule{Family: model.IP4})}, "eth0", "fib rp-filter(iif=egress mode=source)", "fib"},
		{"custom rule of IPv6", []change{rule(model.Rule{Family: model.IP6})}, "eth0", "local-source fib", "fib"},
		{"custom rule with accept_local", []change{rule(model.Rule{Family: model.IP4}), conf4("eth0", func(c *model.Conf4) { c.AcceptLocal = true })}, "eth0", "fib", "fib"},
		{"a rule of the kernel's is gone", []change{withoutRule(32767)}, "eth0", "fib rp-filter(iif=egress mode=source)", "fib"},
		{"no rules at all (a kernel without policy routing)", []change{withoutRule(0), withoutRule(32766), withoutRule(32767)}, "eth0", "local-source fib", "fib"},
		{"custom local route", []change{network(func(n *model.Network) { n.Routes.Custom4 = true })}, "eth0", "fib rp-filter(iif=egress mode=source)", "fib"},
		{"ports in rules", []change{rule(model.Rule{Family: model.IP4, Ports: true})}, "eth0", "fib(ports=rules) rp-filter(iif=egress mode=source)", "fib"},
		{"ports in rules of IPv6", []change{rule(model.Rule{Family: model.IP6, Ports: true})}, "eth0", "local-source fib", "fib(ports=rules)"},
		{"sockets with addresses of ours", []change{connected("10.0.1.1", "2001:db8:2::1")}, "eth0", "local-source fib", "fib"},
		{"a socket with an address that is lost", []change{connected("10.0.1.1", "10.0.1.9")}, "eth0", "local-source special-route fib", "fib"},
		{"the same of IPv6", []change{connected("2001:db8:2::9")}, "eth0", "local-source fib", "special-route fib"},
		{"realms", []change{notable(model.Route{Family: model.IP4, Prefix: v4, Realm: true})}, "eth0", "special-route fib rp-filter(iif=egress mode=source)", "fib"},
		{"realms outweigh accept_local", []change{notable(model.Route{Family: model.IP4, Prefix: v4, Realm: true}), conf4("eth0", func(c *model.Conf4) { c.AcceptLocal = true })}, "eth0", "special-route fib rp-filter(iif=egress mode=source)", "fib"},
		{"realms of IPv6", []change{notable(model.Route{Family: model.IP6, Prefix: v6, Realm: true})}, "eth0", "local-source fib", "special-route fib"},
		{"multipath", []change{notable(model.Route{Family: model.IP4, Prefix: v4, Multipath: true})}, "eth0", "local-source fib(ecmp=addresses)", "fib"},
		{"multipath, and an address has left", []change{strict, notable(model.Route{Family: model.IP4, Prefix: v4, Multipath: true}), network(func(n *model.Network) { n.Left = []netip.Addr{v4.Addr()} })}, "eth0", "local-source fib(ecmp=addresses) rp-filter(iif=egress mode=strict)", "fib"},
		{"multipath of IPv6", []change{notable(model.Route{Family: model.IP6, Prefix: v6, Multipath: true})}, "eth0", "local-source fib", "fib(ecmp=addresses)"},
		{"a nearer notable route of IPv4 does not end it", []change{notable(model.Route{Family: model.IP4, Prefix: v4, Multipath: true}), notable(model.Route{Family: model.IP4, Prefix: v4, MTU: 1400, MTULocked: true})}, "eth0", "local-source special-route fib(ecmp=addresses)", "fib"},
		{"multipath hashed by ports", []change{network(func(n *model.Network) { n.Sysctl.HashPolicy4 = 1 }), notable(model.Route{Family: model.IP4, Prefix: v4, Multipath: true})}, "eth0", "local-source special-route fib(ecmp=addresses)", "fib"},
		{"multipath by neighbours", []change{network(func(n *model.Network) { n.Sysctl.UseNeigh4 = true }), notable(model.Route{Family: model.IP4, Prefix: v4, Multipath: true})}, "eth0", "local-source special-route fib(ecmp=addresses)", "fib"},
		{"multipath by neighbours is none of IPv6", []change{network(func(n *model.Network) { n.Sysctl.UseNeigh4 = true }), notable(model.Route{Family: model.IP6, Prefix: v6, Multipath: true})}, "eth0", "local-source fib", "fib(ecmp=addresses)"},
		{"the other family's hash policy", []change{network(func(n *model.Network) { n.Sysctl.HashPolicy6 = 1 }), notable(model.Route{Family: model.IP4, Prefix: v4, Multipath: true})}, "eth0", "local-source fib(ecmp=addresses)", "fib"},
		{"resilient group", []change{notable(model.Route{Family: model.IP6, Prefix: v6, Multipath: true, Resilient: true})}, "eth0", "local-source fib", "special-route fib(ecmp=addresses)"},
		{"mtu", []change{notable(model.Route{Family: model.IP4, Prefix: v4, MTU: 1400})}, "eth0", "local-source special-route fib", "fib"},
		{"locked mtu, for packets still to be segmented", []change{notable(model.Route{Family: model.IP4, Prefix: v4, MTU: 1400, MTULocked: true})}, "eth0", "local-source special-route fib", "fib"},
		{"encapsulation is the lookup's", []change{notable(model.Route{Family: model.IP4, Prefix: v4, Encap: true})}, "eth0", "local-source fib", "fib"},
		{"an mtu of IPv6 that is its device's is the lookup's", []change{on("eth1", func(l *model.Link) { l.MTU6 = 1400 }), notable(model.Route{Family: model.IP6, Prefix: v6, MTU: 1400, Out: 3})}, "eth0", "local-source fib", "fib"},
		{"one below it is not, nor a locked one", []change{on("eth1", func(l *model.Link) { l.MTU6 = 1401 }), notable(model.Route{Family: model.IP6, Prefix: v6, MTU: 1400, Out: 3})}, "eth0", "local-source fib", "special-route fib"},
		{"an mtu of IPv6 of a route of several devices", []change{notable(model.Route{Family: model.IP6, Prefix: v6, MTU: 1500})}, "eth0", "local-source fib", "special-route fib"},
		{"a route of a family not told", []change{notable(model.Route{MTU: 1400})}, "eth0", "local-source special-route fib", "special-route fib"},
		{"VRF", []change{inVRF}, "eth0", "fib rp-filter(iif=ingress mode=source)", "fib"},
		{"outside the VRF", []change{inVRF}, "eth2", "fib rp-filter(iif=egress mode=source)", "fib"},
		{"VRF with accept_local", []change{inVRF, conf4("eth0", func(c *model.Conf4) { c.AcceptLocal = true })}, "eth0", "fib", "fib"},
		{"accept_local of the VRF is not asked", []change{inVRF, conf4("red", func(c *model.Conf4) { c.AcceptLocal = true })}, "eth0", "fib rp-filter(iif=ingress mode=source)", "fib"},
		{"rp_filter of the VRF's slave", []change{inVRF, conf4("eth0", func(c *model.Conf4) { c.RPFilter = 1 })}, "eth0", "fib rp-filter(iif=ingress mode=strict)", "fib"},
		{"rp_filter of the VRF is not asked", []change{inVRF, conf4("red", func(c *model.Conf4) { c.RPFilter = 1 })}, "eth0", "fib rp-filter(iif=ingress mode=source)", "fib"},
		{"loose in a VRF", []change{inVRF, conf4("eth0", func(c *model.Conf4) { c.RPFilter = 2 })}, "eth0", "fib rp-filter(iif=ingress mode=loose)", "fib"},
		{"loose in a VRF at a device without an address", []change{inVRF, conf4("eth0", func(c *model.Conf4) { c.RPFilter = 2 }), noAddress("eth0")}, "eth0", "fib rp-filter(iif=ingress mode=strict)", "fib"},
	} {
		in := inputOf(t, Build(router(c.changes...)), c.at)
		if got := between(in.IP4, NodeIP4); got != c.ip4 {
			t.Errorf("%s: IPv4 at %s: %q, want %q", c.what, c.at, got, c.ip4)
		}
		if got := between(in.IP6, NodeIP6); got != c.ip6 {
			t.Errorf("%s: IPv6 at %s: %q, want %q", c.what, c.at, got, c.ip6)
		}
	}
}

// between gives a path's nodes after the header checks and before the way out.
func between(p Path, first string) string {
	_, rest, _ := strings.Cut(" "+strings.Join(p.nodeNames(), " "), " "+first+" ")
	middle, _, _ := strings.Cut(rest, " egress")
	return middle
}

func TestRewriteKnowsTagsAndPriority(t *testing.T) {
	tagged := []change{with(vlan(5, "eth0.5", 2, 5)), with(vlan(6, "eth0.5.6", 5, 6))}
	for _, c := range []struct {
		what    string
		changes []change
		at      string
		want    string
	}{
		{"no tags", nil, "eth0", "rewrite"},
		{"some way out has two tags", tagged, "eth1", "rewrite(push=2)"},
		{"one tag in", tagged, "eth0.5", "rewrite(pop=1 push=2)"},
		{"two tags in", tagged, "eth0.5.6", "rewrite(pop=2 push=2)"},
		{"a VLAN that cannot be entered costs nothing", append(tagged, on("eth0", func(l *model.Link) { l.Running = false; l.Unknown = nil }),
			on("eth0.5", func(l *model.Link) { l.Running = false }), on("eth0.5.6", func(l *model.Link) { l.Running = false })), "eth1", "rewrite"},
		{"tc sets the priority", []change{everywhere(asVeth)}, "eth0", "rewrite(priority=tos)"},
		{"unless that is off", []change{everywhere(asVeth), network(func(n *model.Network) { n.Sysctl.UpdatePriority = false })}, "eth0", "rewrite"},
		{"tc leaves tags to the device", append(tagged, everywhere(asVethUnlessVLAN)), "eth0.5", "rewrite(priority=tos)"},
	} {
		in := inputOf(t, Build(router(c.changes...)), c.at)
		if n := in.IP4.Node(NodeRewrite); n == nil || n.String() != c.want {
			t.Errorf("%s: %v, want %s (%v)", c.what, n, c.want, in.IP4.Why)
		}
		if n := in.IP6.Node(NodeRewrite); n == nil || strings.Contains(n.String(), "priority") {
			t.Errorf("%s: IPv6 %v (%v)", c.what, n, in.IP6.Why)
		}
	}
}

func asVethUnlessVLAN(l *model.Link) {
	if l.Kind != kindVLAN {
		asVeth(l)
	}
}
