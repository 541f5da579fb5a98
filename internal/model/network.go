// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"sort"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Network is everything in one network namespace that decides the fate of a forwarded packet and is not read live.
type Network struct {
	Links     []*Link    // by ascending ifindex; one that is as it was before is the same pointer, so none is changed
	Addrs     []Addr     // every local address
	Rules     []Rule     // policy routing, both families, by family and priority
	Routes    RouteFacts // only what needs care
	Netfilter []NFHook   // every registered hook of a family that forwarded packets meet
	// Left are IPv4 addresses that this host has had since it was first read, and has no more; the latest ones last.
	Left []netip.Addr `json:",omitempty"`
	// Filter are the rules behind those hooks, without what their counters stood at; nil where there are no tables. It is the same pointer
	// as long as nothing in it changed. What could not be read of it is among Faults.
	Filter  *ruleset.Ruleset `json:"-"`
	Sysctl  Sysctl           // namespace-wide switches
	XFRM    XFRM             // IPsec
	Sockets Sockets          // packet, XDP and transparent sockets
	Unknown []Unknown        // seen but not understood, namespace-wide
	Faults  []ReadFault      // parts that could not be read at all
}

// Link is one network device.
type Link struct {
	Index      int
	Life       int // with Index names the device: a number given again is another one, with another Life
	Name       string
	Kind       string // IFLA_INFO_KIND: "veth", "vlan", "bridge" …; "" for a device without a kind (a NIC, lo)
	Driver     string // as ethtool names it; "" when it has none
	Type       uint16 // ARPHRD_*
	Group      uint32 // that rules and ip link know it by
	MAC        [6]byte
	MTU        int
	MTU6       int // net.ipv6.conf.IFACE.mtu; 0 when IPv6 is absent on the device
	Up         bool
	Running    bool // IFF_RUNNING, that is with carrier
	Promisc    bool
	Master     int         // ifindex of the master, 0 when none
	MasterKind string      // kind of the master
	Lower      int         // IFLA_LINK of a device on top of another (vlan, macvlan …) in this namespace, 0 when none
	PeerNS     bool        // IFLA_LINK_NETNSID given: the other end is in another namespace
	VLAN       *VLAN       // for Kind "vlan"
	VRFTable   uint32      // for Kind "vrf"
	Bond       *Bond       // for Kind "bond"
	Bridge     *Bridge     `json:",omitempty"` // for Kind "bridge"
	Port       *BridgePort `json:",omitempty"` // for MasterKind "bridge"
	VXLAN      *VXLAN      `json:",omitempty"` // for Kind "vxlan"
	BondActive bool        // a slave of a bond that takes part: IFLA_BOND_SLAVE_STATE is active

	Conf4 Conf4
	Conf6 Conf6

	Qdiscs        []Qdisc    // root, children, clsact/ingress
	TCFilters     []TCFilter // classic tc filters on clsact/ingress/egress or on classes
	XDP           []Program  // attached XDP programs
	TCX           []Program  // attached tcx programs, both directions
	XDPFeatures   *uint64    // netdev genetlink xdp-features; nil when the kernel does not say (before 6.3)
	VLANStripping bool       // a card that takes VLAN tags out of frames before XDP sees them (rx-vlan-offload)
	GRO, TSO      bool
	SendsAsIs     bool // its driver takes every packet as it is: none is segmented, gathered or given a checksum before. So do veths, unless they are told otherwise
	Handled       bool // a device that this namespace does not list takes its frames (rx_handler)
	GSOLimited    bool // it takes segments only so many or so long at once

	Unknown []Unknown
}

// VLAN is the tag of a VLAN device.
type VLAN struct {
	Proto uint16 // 0x8100 or 0x88a8, host byte order
	ID    uint16
	Flags uint32 // VLAN_FLAG_*
	Maps  bool   // an ingress or egress priority map is set
}

// Bond is what a bond's forwarding depends on.
type Bond struct {
	Mode   uint8 // BOND_MODE_*
	Slaves []int // ifindexes, ascending
	// Active are the slaves whose IFLA_BOND_SLAVE_STATE is active, ascending: Linux drops what the others receive. nil when
	// not known. XDP runs on bonds that can have inactive slaves (active-backup, 802.3ad) only while all are active.
	Active []int
}

// Bridge is what forwarding between a bridge's ports depends on and is not read live: the table of stations, states and timers are.
type Bridge struct {
	VLANFiltering bool
	Ageing        uint32   // hundredths of a second; 0: every frame is flooded
	NFCall        []string // per-bridge switches of br_netfilter that are on: "nf_call_iptables" …
	On            []string // other options that are on and not modelled, by name
}

// BridgePort is the same for one of its ports.
type BridgePort struct {
	Isolated bool
	On       []string // options that are on and not modelled, by name
}

// VXLAN is what concerns others than the device itself, which encapsulates and decapsulates as it is configured.
type VXLAN struct {
	Lower int      // ifindex of the device that encapsulated packets leave by; 0: any that routes lead to
	IP6   bool     // encapsulated packets are IPv6
	On    []string // options that are on and not modelled, as ip link names them
}

// Conf4 are a device's IPv4 switches as in force for it (the device's own; the "all" values are in Sysctl).
type Conf4 struct {
	Present         bool // the device has IPv4 configuration at all
	Forwarding      bool
	RPFilter        uint8
	AcceptLocal     bool
	SrcValidMark    bool
	SendRedirects   bool
	AcceptRedirects bool
	RouteLocalnet   bool
	BCForwarding    bool
	ProxyARP        bool
	IgnoreLinkdown  bool
	DisablePolicy   bool
	DisableXFRM     bool
}

// Conf6 are a device's IPv6 switches.
type Conf6 struct {
	Present           bool
	Disabled          bool // disable_ipv6
	Forwarding        bool
	ForceForwarding   bool
	ProxyNDP          bool
	AcceptSourceRoute int
	Seg6Enabled       bool
	IOAM6Enabled      bool
	DisablePolicy     bool
	IgnoreLinkdown    bool
}

// Qdisc is a queueing discipline on a device.
type Qdisc struct {
	Kind   string
	Handle uint32
	Parent uint32 // TC_H_ROOT, TC_H_INGRESS / TC_H_CLSACT, or a class

	// Bound to a shared block of filters, which no dump of the device shows, for what comes in and for what leaves. clsact has one for each.
	BlockIn, BlockOut bool

	Connection bool // asks for the packet's connection
}

// TCFilter is a classic tc filter.
type TCFilter struct {
	Kind   string
	Parent uint32
	Prio   uint16
	Own    bool // ours

	Connection bool // it or one of its actions asks for the packet's connection, or does what is not known
	Input      bool // asks by which interface the packet came
	Program    bool `json:",omitempty"` // one of its actions is a program: what that asks is not known
}

// Program is an attached BPF program.
type Program struct {
	ID   uint32
	Name string
	Hook string // "xdp", "xdp-generic", "xdp-offload", "tcx-ingress", "tcx-egress"
	Own  bool   // attached by shunt in this namespace
}

// Addr is a local address.
type Addr struct {
	Prefix    netip.Prefix // the address with its prefix length
	Index     int
	Broadcast netip.Addr // zero when none
	Anycast   bool
	Tentative bool
}

// Unknown is something that was seen but not understood.
type Unknown struct {
	Where string // "link eth0", "rule 100 ip4"
	What  string // "attribute 77", "kind \"foo\""
}

// ReadFault is a part of the configuration that could not be read.
type ReadFault struct {
	Part string // "tc filters of eth0"
	Err  string
}

// Link finds a device by ifindex; nil when there is none.
func (n *Network) Link(index int) *Link {
	i := sort.Search(len(n.Links), func(i int) bool { return n.Links[i].Index >= index })
	if i == len(n.Links) || n.Links[i].Index != index {
		return nil
	}
	return n.Links[i]
}

// LinkByName finds a device by name; nil when there is none.
func (n *Network) LinkByName(name string) *Link {
	for i := range n.Links {
		if n.Links[i].Name == name {
			return n.Links[i]
		}
	}
	return nil
}
