// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"net/netip"
	"slices"
)

// foreignTraps are about other programs on the way, which see and drop what they would without shunt.
func foreignTraps() []hand {
	traffic := join(some(), services(), back())
	of0, of1, both := Excuse{In: []int{0}}, Excuse{Out: []int{1}}, Excuse{IP4: true, IP6: true}
	xdp, tc := []string{"xdp"}, []string{"tc"}
	carried := func(name, why, needs string, hooks []string, slow Excuse, reasons []string, do ...string) hand {
		return hand{name: "foreign " + name, why: why, needs: needs, hooks: hooks, slow: slow, reasons: reasons, loads: true, steps: []handStep{step(traffic, append(to5(gw1, gw1v6), do...)...)}}
	}
	filter := func(dev, way string) []string {
		return []string{"tc qdisc add dev " + dev + " clsact", "tc filter add dev " + dev + " " + way + " prio 1 bpf da bytecode " + dropUDP(foreignPort)}
	}
	mirror := func(dev, way string) []string {
		return []string{"tc qdisc add dev " + dev + " clsact", "tc filter add dev " + dev + " " + way + " prio 1 protocol ip u32 match ip dport 2000 0xffff action mirred egress redirect dev p3"}
	}
	block := func(dev, way string) []string {
		return []string{"tc qdisc add dev " + dev + " " + way + "_block 7 clsact", "tc filter add block 7 prio 1 bpf da bytecode " + dropUDP(foreignPort)}
	}
	// An interface that carries shunt's stub takes no second program (docs/deviations.md), so others come first.
	before := func(name, why string, hooks []string, slow Excuse, packets []Packet, reasons []string, do string) hand {
		return hand{name: "foreign " + name, why: why, hooks: hooks, slow: slow, reasons: reasons, loads: true, late: true, steps: []handStep{step(packets, append(to5(gw1, gw1v6), do)...)}}
	}
	// A kernel that copies a socket's packet for a generic program forgets how long its link header is, so that programs at tc find none.
	wires := slices.DeleteFunc(slices.Clone(traffic), func(p Packet) bool { return p.How != WireFrame })
	return []hand{
		before("xdp", "another XDP program, native: no XDP of shunt's there", xdp, of0, traffic, []string{"foreign-xdp", "fast"}, "foreign xdp p0"),
		before("xdp tc", "what it lets pass is fast at tc", tc, Excuse{}, traffic, []string{"fast"}, "foreign xdp p0"),
		before("xdp generic", "a generic one", xdp, of0, wires, []string{"foreign-xdp", "fast"}, "foreign xdpgeneric p0"),
		before("xdp generic tc", "a generic one, before tc", tc, Excuse{}, wires, []string{"fast"}, "foreign xdpgeneric p0"),
		before("xdp link", "attached by a link", xdp, of0, traffic, []string{"foreign-xdp", "fast"}, "foreign xdp-link p0"),
		carried("tcx ingress", "a tcx program where packets come in", "tcx", nil, of0, []string{"foreign-tc", "fast"}, "foreign tcx-ingress p0"),
		carried("tcx egress xdp", "a tcx program where they leave: XDP does not go around it", "tcx", xdp, of1, []string{"egress-slow", "fast"}, "foreign tcx-egress p1"),
		carried("tcx egress tc", "from tc it is met", "tcx", tc, Excuse{}, []string{"fast"}, "foreign tcx-egress p1"),
		carried("filter ingress", "a tc filter with a program of its own", "", nil, of0, []string{"foreign-tc", "fast"}, filter("p0", "ingress")...),
		carried("filter egress xdp", "the same on the way out", "", xdp, of1, []string{"egress-slow", "fast"}, filter("p1", "egress")...),
		carried("filter egress tc", "from tc it is met", "", tc, Excuse{}, []string{"fast"}, filter("p1", "egress")...),
		carried("u32 ingress", "a tc filter that redirects", "", nil, of0, []string{"tc-filter", "fast"}, mirror("p0", "ingress")...),
		carried("u32 egress xdp", "the same on the way out", "", xdp, Excuse{Out: []int{1, 3}}, []string{"egress-slow", "fast"}, mirror("p1", "egress")...),
		carried("u32 egress tc", "from tc it is met", "", tc, Excuse{}, []string{"fast"}, mirror("p1", "egress")...),
		carried("block ingress", "a block of filters that devices share, for what comes in: what leaves there does not meet it", "", nil, Excuse{In: []int{1}}, []string{"tc-filter", "fast"}, block("p1", "ingress")...),
		carried("block egress xdp", "one for what leaves", "", xdp, of1, []string{"egress-slow", "fast"}, block("p1", "egress")...),
		carried("block egress tc", "and from tc: no dump of the device shows what is in it", "", tc, of1, []string{"egress-slow", "fast"}, block("p1", "egress")...),
		carried("netfilter 4", "a program at netfilter's forward hook, which no table explains", "netfilter programs", nil, Excuse{IP4: true}, []string{"netfilter:unknown", "fast"}, "foreign netfilter4 forward"),
		carried("netfilter 6", "of the other family", "netfilter programs", nil, Excuse{IP6: true}, []string{"netfilter:unknown", "fast"}, "foreign netfilter6 forward"),
		{name: "foreign netfilter at once", why: "its hook tells with the next packet, and while shunt's process is stopped", needs: "netfilter programs", slow: both, reasons: []string{"fast", "stale"},
			steps: []handStep{step(traffic, to5(gw1, gw1v6)...), atOnce(traffic, "foreign netfilter4 forward"), step(traffic, "foreign none"), frozen(traffic, "foreign netfilter6 forward"), step(traffic, "foreign none")}},
		{name: "foreign comes and goes", why: "programs and filters come under traffic, and go again", needs: "tcx", slow: both, reasons: []string{"fast"},
			steps: []handStep{step(traffic, to5(gw1, gw1v6)...), step(traffic, "foreign tcx-ingress p0"), step(traffic, "foreign none"), step(traffic, filter("p0", "ingress")...), step(traffic, "tc qdisc del dev p0 clsact"), step(traffic, "foreign tcx-egress p1"), step(traffic, "foreign none")}},
		{name: "target without napi", why: "trap 1.23: a veth whose other end takes no XDP frames loses them in silence", slow: Excuse{Out: []int{1}}, hooks: xdp, reasons: []string{"egress-slow", "fast"},
			steps: []handStep{step(traffic, append(to5(gw1, gw1v6), "plain 1")...)}},
	}
}

// socketTraps are about sockets that may take packets which are not for this host.
func socketTraps() []hand {
	traffic := join(some(), services(), back())
	both := Excuse{IP4: true, IP6: true}
	lost := Excuse{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.5.1.1/32"), netip.MustParsePrefix("2001:db8:5::1/128")}}
	return []hand{
		{name: "socket af_xdp", why: "an AF_XDP socket is bound to a port's queue", slow: both, steps: []handStep{step(traffic, append(to5(gw1, gw1v6), "socket xdp p0")...)}},
		{name: "socket transparent listens", why: "by itself it takes nothing of what is forwarded", reasons: []string{"fast"}, steps: []handStep{step(traffic, append(to5(gw1, gw1v6), "socket tcp-transparent 10.5.1.1:80", "socket tcp-transparent [2001:db8:5::1]:80", "socket udp-transparent 10.5.1.1:2000")...)}},
		{name: "socket transparent connected", why: "packets of its connection are found early, and not forwarded", slow: both, reasons: []string{"transparent-socket"},
			steps: []handStep{step(traffic, append(to5(gw1, gw1v6), "socket udp-transparent 10.5.1.1:2000 10.0.0.10:1000", "socket udp-transparent [2001:db8:5::1]:53 [fd00::1:0:0:0:10]:1000")...)}},
		{name: "socket of a lost address", why: "a connected socket whose address is another's now: Linux finds it early, and forwards none of its packets", slow: lost, loads: true, reasons: []string{"transparent-socket", "fast"},
			steps: []handStep{step(traffic, append(to5(gw1, gw1v6), "ip address add 10.5.1.1/32 dev p2", "ip address add 2001:db8:5::1/128 dev p2 nodad", "socket udp 10.5.1.1:2000 10.0.0.10:1000", "socket udp [2001:db8:5::1]:53 [fd00::1:0:0:0:10]:1000")...),
				step(traffic, "ip address del 10.5.1.1/32 dev p2", "ip address del 2001:db8:5::1/128 dev p2"), step(traffic, "ip address add 10.5.1.1/32 dev p2"), atOnce(traffic, "ip address del 10.5.1.1/32 dev p2"), step(traffic, "socket none")}},
	}
}
