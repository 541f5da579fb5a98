// SPDX-License-Identifier: Apache-2.0

package reason

// Code is the index of a reason in the table, of its counter in the data path, and its value in the C enum.
type Code uint8

// Class says what kind of fact a reason speaks of.
type Class uint8

const (
	// Forwarded: the packet left by the fast path.
	Forwarded Class = iota
	// Packet: something in this very packet, found by the data path.
	Packet
	// Lookup: the kernel's own tables sent this packet to Linux.
	Lookup
	// State: the data path turned itself off, for all packets or for a family.
	State
	// Config: the configuration of Linux keeps an interface or a family out; decided by the graph.
	Config
	// Dropped: the packet ended in the fast path, as it would have in Linux.
	Dropped
)

func (c Class) String() string {
	return [...]string{"forwarded", "packet", "lookup", "state", "config", "dropped"}[c]
}

// Info is one row of the list.
type Info struct {
	Name  string // as status, explain, metrics and docs print it
	Class Class
	Doc   string // one sentence: what it means and, where there is something to do, what
}

// Codes, in the order of the table. The identifiers become SHUNT_R_<UPPER> in C.
const (
	Fast Code = iota

	TooShort
	DstMAC
	EtherType
	VLANUnknown
	IP4Header
	IP4Options
	IP4Checksum
	Fragment
	TTL
	MartianSource
	MartianDestination
	LocalSource
	ICMPError
	Protocol
	IP6Header
	IP6Extension
	IP6Address
	ICMP6Control
	PacketType
	SKBOffload
	SKBMark
	SegmentMTU
	TunnelMetadata
	EgressFrags
	TrimFailed
	RewriteFailed
	RuleDrop
	NetfilterRule
	NetfilterLong
	BridgeGroup

	RPFilter
	NotForwarded
	Blackhole
	Unreachable
	Prohibit
	ForwardingDisabled
	NoNeighbour
	MTU
	RouteMTU
	RouteEncap
	RouteRealm
	RouteECMP
	RouteUnknown
	LookupError
	SameInterface
	EgressSlow
	ConntrackProtocol
	ConntrackFlags
	ConntrackChecksum
	ConntrackNew
	ConntrackState
	ConntrackNAT
	ConntrackExtension
	ConntrackWindow
	BridgeSource
	BridgeRefresh
	BridgeDestination
	BridgeLocal
	BridgePort
	BridgeTable
	BridgePromisc
	BridgeMember

	Resting
	Watchdog
	Stale
	WrongDevice
	Paused

	ForwardingOff
	NetfilterIP4Prerouting
	NetfilterIP4Forward
	NetfilterIP4Postrouting
	NetfilterIP6Prerouting
	NetfilterIP6Forward
	NetfilterIP6Postrouting
	NetfilterNetdev
	NetfilterBridge
	NetfilterUnknown
	XFRM
	RuleUnknown
	TransparentSocket
	SysctlUnmodelled
	LinkDown
	LinkKind
	LinkUpper
	LinkAttribute
	TunnelMTU
	LinkNoEthernet
	LinkVLANStripping
	LinkXDPUnsupported
	BridgeOption
	BridgeVLAN
	BridgeNetfilter
	BridgeUnreadable
	ForeignXDP
	ForeignTC
	TCFilter
	Qdisc
	PacketSocket
	AFXDP
	Excluded
	HookChoice
	NothingToWin
	AttachFailed
	Unreadable

	// Count is the number of codes: the length of every per-interface counter array.
	Count
)

var table = [Count]Info{
	Fast: {"fast", Forwarded, "Forwarded by the fast path."},

	TooShort:           {"too-short", Packet, "The frame ends before the headers that it announces."},
	DstMAC:             {"dst-mac", Packet, "The destination MAC is not the interface's own: broadcast, multicast, or a frame for another host."},
	EtherType:          {"ethertype", Packet, "Neither IPv4 nor IPv6 (ARP, LLDP, PPPoE …); at a bridge's port ARP, RARP and what bridges themselves speak (MRP, CFM)."},
	VLANUnknown:        {"vlan-unknown", Packet, "A VLAN tag for which no modelled VLAN interface exists, or a priority tag; at a bridge's port any tag, but where the bridge filters by VLAN: a second one, of another protocol, or of a VLAN device."},
	IP4Header:          {"ip4-header", Packet, "IPv4 version, header length or total length that Linux may drop."},
	IP4Options:         {"ip4-options", Packet, "IPv4 options, which Linux interprets."},
	IP4Checksum:        {"ip4-checksum", Packet, "A wrong IPv4 header checksum; Linux drops and counts it."},
	Fragment:           {"fragment", Packet, "An IPv4 fragment."},
	TTL:                {"ttl", Packet, "TTL or hop limit is 1 or 0; Linux answers with ICMP time exceeded."},
	MartianSource:      {"martian-source", Packet, "An IPv4 source that Linux treats specially: 0/8, 127/8, 224/4, 240/4."},
	MartianDestination: {"martian-destination", Packet, "An IPv4 destination that Linux treats specially: 0/8, 127/8, 224/4, 240/4."},
	LocalSource:        {"local-source", Packet, "The source is one of this host's own addresses; Linux drops it unless accept_local is set."},
	ICMPError:          {"icmp-error", Packet, "An ICMP error message, which Linux hashes by the packet inside."},
	Protocol:           {"protocol", Packet, "A protocol that the policy rules in force cannot be evaluated for, or one that routers listen to (IGMP)."},
	IP6Header:          {"ip6-header", Packet, "IPv6 version or payload length that Linux may drop."},
	IP6Extension:       {"ip6-extension", Packet, "An IPv6 extension header."},
	IP6Address:         {"ip6-address", Packet, "An IPv6 source or destination that is not plain global unicast."},
	ICMP6Control:       {"icmp6-control", Packet, "ICMPv6 other than echo: errors, neighbour discovery, multicast listener discovery."},
	PacketType:         {"packet-type", Packet, "The kernel marked the packet as not for this host."},
	SKBOffload:         {"skb-offload", Packet, "A socket-born packet at XDP whose checksum, segmentation or VLAN tag is still to be done."},
	SKBMark:            {"skb-mark", Packet, "The packet carries a mark set before routing."},
	TunnelMetadata:     {"tunnel-metadata", Packet, "A packet that came out of one tunnel and leads into another still carries what the first one's outer header said."},
	SegmentMTU:         {"segment-mtu", Packet, "A segmentation-offload packet whose segments exceed the egress MTU."},
	EgressFrags:        {"egress-frags", Packet, "A frame in several buffers towards a device that cannot send those from XDP."},
	TrimFailed:         {"trim-failed", Packet, "The padding behind the IP packet could not be cut off."},
	RewriteFailed:      {"rewrite-failed", Packet, "Room for a VLAN tag could not be made, or it could not be put on or taken off; or there is no room for the headers of a packet to be translated."},
	RuleDrop:           {"rule-drop", Dropped, "Dropped by the fast path, as a rule or a chain's policy says."},
	NetfilterRule:      {"netfilter-rule", Packet, "The packet meets a rule that only Linux can evaluate (`shunt show rules` names them), or rules ask for the type of its sender's address, to which there is no route, or of an IPv6 address that may be the first of a prefix on a link."},
	NetfilterLong:      {"netfilter-long", Packet, "More rules apply to the packet, or move counters for it, than the fast path follows."},
	BridgeGroup:        {"bridge-group", Packet, "A frame to a group or to all (broadcast, multicast, spanning tree, LLDP), which the bridge floods or takes."},

	RPFilter:           {"rp-filter", Lookup, "The reverse path check did not confirm the ingress interface; Linux decides."},
	NotForwarded:       {"not-forwarded", Lookup, "The destination is local, broadcast, multicast or has no route."},
	Blackhole:          {"blackhole", Lookup, "A blackhole route; Linux drops and counts it."},
	Unreachable:        {"unreachable", Lookup, "An unreachable route; Linux answers with ICMP."},
	Prohibit:           {"prohibit", Lookup, "A prohibit route; Linux answers with ICMP."},
	ForwardingDisabled: {"forwarding-disabled", Lookup, "Forwarding is disabled on the ingress or, for the reverse check, on the egress interface."},
	NoNeighbour:        {"no-neighbour", Lookup, "The next hop's MAC is not known yet; Linux resolves it."},
	MTU:                {"mtu", Lookup, "Longer than the egress interface or path allows; Linux fragments or answers with ICMP."},
	RouteMTU:           {"route-mtu", Lookup, "Longer than the mtu metric of a route that may match."},
	RouteEncap:         {"route-encap", Lookup, "A route with an encapsulation (lwtunnel)."},
	RouteRealm:         {"route-realm", Lookup, "A route with realms."},
	RouteECMP:          {"route-ecmp", Lookup, "A multipath route that the kernel hashes in a way that the fast path cannot repeat (fib_multipath_hash_policy other than 0, fib_multipath_use_neigh, or a resilient group)."},
	RouteUnknown:       {"route-unknown", Lookup, "A route with an attribute that is not understood."},
	LookupError:        {"lookup-error", Lookup, "The kernel's FIB lookup gave an answer that is not understood."},
	SameInterface:      {"same-interface", Lookup, "The packet would leave where it came in; Linux may send an ICMP redirect (but not about a translated connection of IPv4)."},
	EgressSlow:         {"egress-slow", Lookup, "The egress interface cannot be entered by the fast path from this hook; `shunt show interfaces` says why."},
	ConntrackProtocol:  {"conntrack-protocol", Packet, "Linux tracks connections, and the packet is neither TCP nor UDP."},
	ConntrackFlags:     {"conntrack-flags", Packet, "A TCP packet that begins, ends or resets a tracked connection (SYN, FIN, RST), or is malformed."},
	ConntrackChecksum:  {"conntrack-checksum", Packet, "A TCP or UDP checksum, or UDP length, that is wrong or cannot be verified here; to Linux the packet belongs to no connection."},
	ConntrackNew:       {"conntrack-new", Lookup, "No connection is known for the packet: it is new or invalid."},
	ConntrackState:     {"conntrack-state", Lookup, "The connection is not established on both sides, not yet assured, ending, or has been handed to a flow table."},
	ConntrackNAT:       {"conntrack-nat", Lookup, "The connection is translated, and not where that is done here: the frame is bridged, rules stand behind the translation (`show graph` names them), Linux translates no more, the kernel does not tell what it notes of translation, or the way out is not the one that the connection was masqueraded for. Or it was masqueraded for the address that it has anyway."},
	ConntrackExtension: {"conntrack-extension", Lookup, "Something hangs on the connection that has to see its packets: a helper, accounting (nf_conntrack_acct), a timeout policy, synproxy; or its timeout is longer than 24 days and due to be extended."},
	ConntrackWindow:    {"conntrack-window", Lookup, "Linux still checks the connection's TCP windows; after some packets the daemon marks it as one where it does not, unless it was started with --strict."},
	BridgeSource:       {"bridge-source", Lookup, "The bridge does not know the frame's sender at this port: Linux learns it, or refuses it."},
	BridgeRefresh:      {"bridge-refresh", Lookup, "Linux saw no frame of the sender for up to a quarter of the bridge's ageing time; it sees this one, so that the entry lives on."},
	BridgeDestination:  {"bridge-destination", Lookup, "The bridge does not know the frame's destination, or not any more; Linux floods it."},
	BridgeLocal:        {"bridge-local", Lookup, "The frame is addressed to this host: to the bridge or one of its ports."},
	BridgePort:         {"bridge-port", Lookup, "A port of the way does not forward, has a flag that only Linux knows, or must not have this frame (where it came in, isolated, backup port); or the spanning tree is changing."},
	BridgeTable:        {"bridge-table", Lookup, "The bridge's table of stations is being resized, or too many share a place in it."},
	BridgeMember:       {"bridge-member", Lookup, "The frame's VLAN is not one of the port's that it came by or leaves by, or does not forward there; or the table of a port's VLANs is being resized."},
	BridgePromisc:      {"bridge-promisc", Lookup, "The bridge itself is promiscuous: this host gets a copy of every frame."},

	Resting:     {"resting", State, "Thousands of packets in a row went to Linux by other reasons; now one in sixteen is looked at, until the fast path decides one again."},
	Watchdog:    {"watchdog", State, "The daemon has not shown itself alive in time; everything goes to Linux."},
	Stale:       {"stale", State, "Linux changed and the daemon has not yet caught up; everything goes to Linux until it has."},
	WrongDevice: {"wrong-device", State, "The program runs on another device or network namespace than it was made for."},
	Paused:      {"paused", State, "Paused by `shunt pause`."},

	ForwardingOff:           {"forwarding-off", Config, "Linux is not set to forward this family here (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding)."},
	NetfilterIP4Prerouting:  {"netfilter:ip4:prerouting", Config, "A netfilter rule or chain at IPv4 prerouting that a forwarded packet could meet."},
	NetfilterIP4Forward:     {"netfilter:ip4:forward", Config, "A netfilter rule or chain at IPv4 forward that a forwarded packet could meet."},
	NetfilterIP4Postrouting: {"netfilter:ip4:postrouting", Config, "A netfilter rule or chain at IPv4 postrouting that a forwarded packet could meet."},
	NetfilterIP6Prerouting:  {"netfilter:ip6:prerouting", Config, "A netfilter rule or chain at IPv6 prerouting that a forwarded packet could meet."},
	NetfilterIP6Forward:     {"netfilter:ip6:forward", Config, "A netfilter rule or chain at IPv6 forward that a forwarded packet could meet."},
	NetfilterIP6Postrouting: {"netfilter:ip6:postrouting", Config, "A netfilter rule or chain at IPv6 postrouting that a forwarded packet could meet."},
	NetfilterNetdev:         {"netfilter:netdev", Config, "Netfilter rules at the ingress or egress of a device of the way that only Linux can evaluate, or chains there that the fast path cannot ask."},
	NetfilterBridge:         {"netfilter:bridge", Config, "A chain of the bridge family, or of ebtables, which bridged frames could meet and which the fast path cannot ask, or that does not let the frame pass; with any such chain also what carries no IP."},
	NetfilterUnknown:        {"netfilter:unknown", Config, "A netfilter hook that no table explains (BPF link, IPVS, SELinux, out-of-tree)."},
	XFRM:                    {"xfrm", Config, "IPsec policies or states are configured; they decide over forwarded packets."},
	RuleUnknown:             {"rule-unknown", Config, "A policy routing rule with a selector or action that is not understood."},
	TransparentSocket:       {"transparent-socket", Config, "A connected socket may take forwarded packets (early demux): a transparent one any of them, one whose address is this host's no more what is sent there."},
	SysctlUnmodelled:        {"sysctl", Config, "A sysctl is set to a value whose effect on forwarding is not modelled."},
	LinkDown:                {"link-down", Config, "The interface is down."},
	LinkKind:                {"link-kind", Config, "An interface kind that is not accelerated."},
	LinkUpper:               {"link-upper", Config, "The interface belongs to another (bridge, macvlan, team …) in a way that is not accelerated."},
	LinkAttribute:           {"link-attribute", Config, "The interface has an attribute that is not understood and not at its default."},
	TunnelMTU:               {"tunnel-mtu", Config, "A tunnel's MTU is more than its underlay carries, or may be, since that is in another namespace, so that Linux has to tell senders of routed packets; a smaller MTU, or naming the underlay's device, helps."},
	LinkNoEthernet:          {"link-no-ethernet", Config, "The interface carries no Ethernet header."},
	LinkVLANStripping:       {"link-vlan-stripping", Config, "The card strips VLAN tags before XDP sees them, as most do by default; `ethtool -K IFACE rxvlan off` would allow XDP."},
	LinkXDPUnsupported:      {"link-xdp-unsupported", Config, "The driver cannot run XDP programs or send XDP frames."},
	BridgeOption:            {"bridge-option", Config, "The bridge or its port has an option on that is not accelerated (locked, MAB, neighbour suppression, proxy ARP, VLAN tunnel, MST …)."},
	BridgeVLAN:              {"bridge-vlan", Config, "The bridge filters by VLAN (vlan_filtering), and this kernel's tables of VLANs cannot be read: its frames, and what is routed from it."},
	BridgeNetfilter:         {"bridge-netfilter", Config, "br_netfilter (net.bridge.bridge-nf-call-…, or nf_call_… of the bridge) shows bridged packets of this family to rules of IP, or to connection tracking, that the fast path does not ask for them: what only Linux evaluates, what means something else there; or one in PPPoE."},
	BridgeUnreadable:        {"bridge-unreadable", Config, "The bridge's table of stations cannot be read by programs on this kernel; `shunt check` says why."},
	ForeignXDP:              {"foreign-xdp", Config, "Another XDP program is attached; it is respected."},
	ForeignTC:               {"foreign-tc", Config, "Another tc or tcx program is attached; it is respected."},
	TCFilter:                {"tc-filter", Config, "A tc filter on the interface decides over packets."},
	Qdisc:                   {"qdisc", Config, "A queueing discipline that shapes or classifies; XDP would bypass it."},
	PacketSocket:            {"packet-socket", Config, "A packet socket (tcpdump) listens; the fast path steps aside so that it sees everything."},
	AFXDP:                   {"af-xdp", Config, "An AF_XDP socket is bound to the interface."},
	Excluded:                {"excluded", Config, "Excluded by the configuration of shunt."},
	HookChoice:              {"hook-choice", Config, "This hook is not used here: `--hook` says so, or `auto` takes the other one because of what stands behind the interface."},
	NothingToWin:            {"nothing-to-win", Config, "No other interface can be reached by the fast path, so nothing is attached."},
	AttachFailed:            {"attach-failed", Config, "Loading or attaching the program failed; the log has the kernel's message."},
	Unreadable:              {"unreadable", Config, "A part of Linux's configuration could not be read or understood, so nothing can be promised."},
}

// String gives the name; it panics on a code outside the table, which is a programming error.
func (c Code) String() string { return table[c].Name }

// Describe gives the whole row.
func (c Code) Describe() Info { return table[c] }

// MarshalText makes reasons appear by name in JSON, also as map keys.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Parse finds a code by name.
func Parse(name string) (Code, bool) {
	for i, r := range table {
		if r.Name == name {
			return Code(i), true
		}
	}
	return 0, false
}
