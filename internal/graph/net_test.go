// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"net/netip"
	"slices"

	"github.com/shuntnet/shunt/internal/model"
)

// change alters a network under construction.
type change func(n *model.Network, p *Policy)

const everyXDPFeature = xdpReceive | xdpNDOXmit | 1<<5 | xdpNDOXmitSG

// router is a plain forwarding network: lo and three cards eth0, eth1, eth2 (ifindex 2, 3, 4) that carry our XDP program,
// with one address of each family, the kernel's own rules, and nothing else configured.
func router(changes ...change) (*model.Network, Policy) {
	on4 := model.Conf4{Present: true, Forwarding: true, SendRedirects: true}
	on6 := model.Conf6{Present: true, Forwarding: true}
	n := &model.Network{
		Links: []*model.Link{{Index: 1, Name: "lo", Type: arphrdLoopback, MTU: 65536, Up: true, Running: true, Conf4: on4, Conf6: on6}},
		Sysctl: model.Sysctl{
			All4: on4, All6: on6, UpdatePriority: true, EarlyDemux: true,
		},
	}
	for i, name := range []string{"eth0", "eth1", "eth2"} {
		l := card(2+i, name)
		l.XDP = []model.Program{{ID: 7, Name: "shunt", Hook: "xdp", Own: true}}
		n.Links = append(n.Links, &l)
		n.Addrs = append(n.Addrs,
			model.Addr{Index: l.Index, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 24)},
			model.Addr{Index: l.Index, Prefix: netip.MustParsePrefix([]string{"2001:db8:0::1/64", "2001:db8:1::1/64", "2001:db8:2::1/64"}[i])})
	}
	for _, f := range []model.Family{model.IP4, model.IP6} {
		for i, prio := range []uint32{0, 32766, 32767} {
			if f == model.IP6 && i == 2 {
				continue
			}
			n.Rules = append(n.Rules, model.Rule{Family: f, Priority: prio, Action: 1, Table: []uint32{255, 254, 253}[i], Default: true})
		}
	}
	p := Policy{Hook: "auto", Kernel: Kernel{XDPFeatures: true, VethSKBCheck: true, TC: true, BondXDP: true, FibMark: true}}
	for _, c := range changes {
		c(n, &p)
	}
	return n, p
}

// card is a network card without anything attached.
func card(index int, name string) model.Link {
	features := uint64(everyXDPFeature)
	return model.Link{
		Index: index, Name: name, Driver: "ice", Type: arphrdEther, MAC: [6]byte{2, 0, 0, 0, 0, byte(index)},
		MTU: 1500, MTU6: 1500, Up: true, Running: true, XDPFeatures: &features, GRO: true, TSO: true,
		Conf4:  model.Conf4{Present: true, Forwarding: true, SendRedirects: true},
		Conf6:  model.Conf6{Present: true, Forwarding: true},
		Qdiscs: []model.Qdisc{{Kind: "mq", Parent: 0xffffffff}, {Kind: "fq_codel", Parent: 1}},
	}
}

// on alters one device.
func on(name string, f func(l *model.Link)) change {
	return func(n *model.Network, _ *Policy) { f(n.LinkByName(name)) }
}

// everywhere alters every device but lo.
func everywhere(f func(l *model.Link)) change {
	return func(n *model.Network, _ *Policy) {
		for i := range n.Links[1:] {
			f(n.Links[1+i])
		}
	}
}

// moreAddresses gives the host so many more of IPv4.
func moreAddresses(n int) change {
	return network(func(net *model.Network) {
		for i := range n {
			net.Addrs = append(net.Addrs, model.Addr{Index: 2, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)}), 32)})
		}
	})
}

func network(f func(n *model.Network)) change { return func(n *model.Network, _ *Policy) { f(n) } }

func policy(f func(p *Policy)) change { return func(_ *model.Network, p *Policy) { f(p) } }

func pointer(l model.Link) *model.Link { return &l }

// with adds a device, in place of one with the same index.
func with(l model.Link) change {
	return func(n *model.Network, _ *Policy) {
		n.Links = slices.DeleteFunc(n.Links, func(o *model.Link) bool { return o.Index == l.Index })
		n.Links = append(n.Links, pointer(l))
		slices.SortFunc(n.Links, func(a, b *model.Link) int { return a.Index - b.Index })
	}
}

// vlan is a VLAN device over another.
func vlan(index int, name string, lower int, id uint16) model.Link {
	l := card(index, name)
	l.Kind, l.Driver, l.Lower, l.XDPFeatures = kindVLAN, "802.1Q VLAN Support", lower, nil
	l.VLAN = &model.VLAN{Proto: 0x8100, ID: id, Flags: vlanReorder}
	l.Qdiscs = []model.Qdisc{{Kind: "noqueue", Parent: 0xffffffff}}
	return l
}

// asVeth makes a card a veth whose peer polls.
func asVeth(l *model.Link) {
	l.Kind, l.Driver, l.XDP, l.PeerNS = kindVeth, "veth", nil, true
	l.Qdiscs = []model.Qdisc{{Kind: "noqueue", Parent: 0xffffffff}}
}

// asVXLAN makes a card a vxlan device with options that are on.
func asVXLAN(name string, on ...string) change {
	return func(n *model.Network, _ *Policy) {
		l := n.LinkByName(name)
		asVeth(l)
		l.Kind, l.Driver, l.PeerNS, l.XDPFeatures, l.MTU, l.VXLAN = kindVXLAN, "vxlan", false, nil, 1450, &model.VXLAN{On: on}
	}
}

// vrf is a VRF device, and enslave puts devices into it.
func vrfDevice(index int, name string, table uint32) model.Link {
	l := card(index, name)
	l.Kind, l.Driver, l.XDPFeatures, l.VRFTable = kindVRF, "vrf", nil, table
	l.Qdiscs = []model.Qdisc{{Kind: "noqueue", Parent: 0xffffffff}}
	return l
}

func enslave(kind string, master int, names ...string) change {
	return func(n *model.Network, _ *Policy) {
		for _, name := range names {
			l := n.LinkByName(name)
			l.Master, l.MasterKind = master, kind
		}
	}
}

// inVRF puts eth0 and eth1 into a VRF red, with the rule that the kernel adds for it.
func inVRF(n *model.Network, p *Policy) {
	with(vrfDevice(9, "red", 100))(n, p)
	enslave(kindVRF, 9, "eth0", "eth1")(n, p)
	for _, f := range []model.Family{model.IP4, model.IP6} {
		n.Rules = append(n.Rules, model.Rule{Family: f, Priority: 1000, Action: 1, L3MDev: true})
	}
}

// asBond makes eth1 and eth2 the slaves of a new bond0 (ifindex 8) that has eth1's place as a router's interface.
func asBond(mode uint8, active ...int) change {
	return func(n *model.Network, p *Policy) {
		l := card(8, "bond0")
		l.Kind, l.Driver = kindBond, "bonding"
		l.Bond = &model.Bond{Mode: mode, Slaves: []int{3, 4}, Active: active}
		l.XDP = []model.Program{{ID: 7, Name: "shunt", Hook: "xdp", Own: true}}
		l.Qdiscs = []model.Qdisc{{Kind: "noqueue", Parent: 0xffffffff}}
		with(l)(n, p)
		enslave(kindBond, 8, "eth1", "eth2")(n, p)
		for _, name := range []string{"eth1", "eth2"} {
			n.LinkByName(name).XDP = nil
		}
	}
}
