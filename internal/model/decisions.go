// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// Family is an address family as shunt tells them apart.
type Family uint8

// The two families that are forwarded, and the layer-2 families that netfilter hooks can belong to.
const (
	IP4          Family = 4
	IP6          Family = 6
	ARP          Family = 1
	BridgeFamily Family = 7
	Netdev       Family = 5
)

func (f Family) String() string {
	return map[Family]string{IP4: "ip4", IP6: "ip6", ARP: "arp", BridgeFamily: "bridge", Netdev: "netdev"}[f]
}

// Rule is one policy routing rule. bpf_fib_lookup evaluates rules itself; the model needs to know only which inputs they use.
type Rule struct {
	Family                        Family
	Priority                      uint32
	Action                        uint8 // FR_ACT_*
	Table                         uint32
	Src, Dst                      netip.Prefix // zero when not given
	IIF, OIF                      string
	TOS                           bool // tos or dscp selector
	Mark                          bool // fwmark selector
	Ports                         bool // ipproto, sport or dport selector: needs flow dissection
	TunID                         bool
	Invert                        bool
	L3MDev                        bool
	SuppressPrefix, SuppressGroup bool
	UIDRange                      bool
	FlowLabel                     bool
	Realms                        bool
	Default                       bool // one of the kernel's own: local, main, default
	Unknown                       []Unknown
}

// RouteFacts is what must be known of routes beyond what bpf_fib_lookup answers.
type RouteFacts struct {
	Count4, Count6 int     // routes of all tables, for status
	Notable        []Route // routes with a property that the lookup does not honour
	Custom4        bool    // a local IPv4 route was ever made by hand (net->ipv4.fib_has_custom_local_routes, which is never cleared)
	TOS4           bool    // some IPv4 route is for packets with a TOS
	Shared6        bool    `json:",omitempty"` // some IPv6 prefix of the main table has several routes or next hops
	Odd6           bool    `json:",omitempty"` // some IPv6 route asks for the packet's source, or one of the table of local addresses is for others
	OnLink6        uint8   `json:",omitempty"` // length of the longest IPv6 prefix of the main table that is on a link, 126 at most; 0 where that is 64 or less
	CustomRules4   bool    // an IPv4 policy rule was ever touched (net->ipv4.fib_has_custom_rules, likewise)
	// Underlays are where what tunnels wrap is sent. Of a tunnel that is not among them it is not known: it has no hosts yet, or too many, or something of them is not understood.
	Underlays    []Underlay `json:",omitempty"`
	Path4, Path6 uint32     `json:",omitempty"` // the least MTU of a path that Linux learned from ICMP, bytes; 0 if none, or where no tunnel is
}

// Underlay is where a tunnel's packets leave by, as the routes to the hosts in its table say.
type Underlay struct {
	Tunnel  int   // the vxlan device's index
	Devices []int `json:",omitempty"` // in order
	MTU     int   `json:",omitempty"` // the least that one of these routes has, bytes; 0 if none has any
}

// Route is a route that needs care. Several properties may hold at once.
type Route struct {
	Family    Family
	Table     uint32
	Prefix    netip.Prefix
	MTU       uint32 // RTAX_MTU, bytes, 0 when not set
	MTULocked bool   // locked metrics are honoured by the lookup
	Out       int    // index of the device that it leads to; 0 where there are several, or it is not said
	Encap     bool   // lwtunnel on any next hop
	Realm     bool   // RTA_FLOW
	Multipath bool   // more than one next hop, or a next-hop group
	Resilient bool   // a resilient next-hop group
	Unknown   []Unknown
}

// NFHook is one hook function registered with netfilter, from nfnetlink_hook or, where the kernel lacks that, derived from
// the tables.
type NFHook struct {
	Family   Family // IP4, IP6, ARP, BridgeFamily, Netdev (inet hooks appear as both IP4 and IP6)
	Hook     string // "prerouting", "input", "forward", "output", "postrouting", "ingress", "egress"
	Device   string // for Netdev
	Priority int
	Kind     NFKind
	Table    string // nf_tables or legacy table
	Chain    string // nf_tables base chain
	Function string // symbol, for hooks that no table explains
	// Rules is the number of rules that a packet entering this base chain or legacy hook could evaluate, user chains included.
	Rules int
	NAT   bool // a chain of type nat, or of the legacy table nat: only the first packet of a connection meets it
	// PolicyAccept: packets that match no rule go on.
	PolicyAccept bool
	// Flags that make even an empty chain matter (a flowtable, a chain with hardware offload …), named.
	Extra []string
}

// NFKind says what registered a netfilter hook.
type NFKind string

// The kinds of netfilter hooks.
const (
	NFTables  NFKind = "nf_tables"
	Legacy    NFKind = "legacy"
	Conntrack NFKind = "conntrack" // conntrack, NAT core, defragmentation
	NFBPF     NFKind = "bpf"
	Flowtable NFKind = "flowtable"
	BridgeNF  NFKind = "br_netfilter" // act only on packets that came through a bridge
	NFLocal   NFKind = "local"        // act only on packets of this host's own sockets (AppArmor)
	NFOther   NFKind = "other"
)

// Sysctl are the namespace-wide switches.
type Sysctl struct {
	All4, Default4  Conf4
	All6            Conf6
	HashPolicy4     uint8
	HashPolicy6     uint8
	UseNeigh4       bool `json:",omitempty"` // net.ipv4.fib_multipath_use_neigh
	ForwardUsePMTU  bool // net.ipv4.ip_forward_use_pmtu
	UpdatePriority  bool // net.ipv4.ip_forward_update_priority
	BridgeCall4     bool // net.bridge.bridge-nf-call-iptables
	BridgeCall6     bool // net.bridge.bridge-nf-call-ip6tables
	EarlyDemux      bool
	FibNotifyOnFlag bool
	Values          map[string]string // every sysctl that was read, for `show` and for the record
	Changed         []Unknown         // sysctls at values that are not modelled
}

// XFRM is the IPsec state that matters: any policy makes forwarding a matter for Linux.
type XFRM struct {
	Policies     int
	States       int
	Interfaces   int
	DefaultBlock bool
}

// Sockets are the sockets that change what forwarded packets meet.
type Sockets struct {
	Packet      []PacketSocket
	XDP         []int // ifindexes with an AF_XDP socket
	Transparent bool  // a connected socket with IP_TRANSPARENT exists
	// Locals are the addresses that connected TCP and UDP sockets call their own, but for loopback and link-local ones. One that is not this host's any more (it moved to
	// another router) still has Linux find the socket for packets on their way there, and forward none of those.
	Locals []netip.Addr
}

// PacketSocket is an AF_PACKET socket that could see packets.
type PacketSocket struct {
	Index    int    // ifindex, 0 for all devices
	Protocol uint16 // ETH_P_*, host byte order; ETH_P_ALL sees forwarded packets
	// Harmless: its protocol or classic BPF filter can accept no packet that is routed fast.
	Harmless bool
	// OfBridge: it can accept a frame that passes between the ports of a bridge.
	OfBridge bool
	Inode    uint64
	Process  string // "tcpdump[123]" when known
}
