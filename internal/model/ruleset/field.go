// SPDX-License-Identifier: Apache-2.0

package ruleset

// Field is something of a packet, its devices or its connection that a test can ask for. Values are in host order: port 80 is 80.
// A packet that lacks a field (an IPv4 address in an IPv6 packet) fails every test of it, negated ones too, as nf_tables does
// (NFT_BREAK); where an xt match answers otherwise, the reader writes down what it answers.
type Field uint8

// The fields. "Kernel" names the nf_tables expression and the xt match that read them.
const (
	NoField Field = iota

	// Link layer and device.
	IIFName    // 128 bits, name padded with zeros; all zero when the hook has no ingress device. Kernel: nft_meta iifname, -i
	OIFName    // 128 bits; all zero where the route is not known yet (ingress, prerouting). Kernel: nft_meta oifname, -o
	IIFIndex   // 32 bits, 0 without a device. Kernel: nft_meta iif
	OIFIndex   // 32 bits, 0 without a device. Kernel: nft_meta oif
	IIFGroup   // 32 bits, absent without a device. Kernel: nft_meta iifgroup, xt_devgroup
	OIFGroup   // 32 bits, absent without a device. Kernel: nft_meta oifgroup, xt_devgroup
	IIFType    // 16 bits, ARPHRD_*, absent without a device. Kernel: nft_meta iiftype
	OIFType    // 16 bits, ARPHRD_*, absent without a device. Kernel: nft_meta oiftype
	EtherSrc   // 48 bits, of the frame as received. Kernel: nft_payload link layer, xt_mac
	EtherDst   // 48 bits. Kernel: nft_payload link layer
	EtherType  // 16 bits, skb->protocol: 0x0800 … Kernel: nft_meta protocol, ether type
	PacketType // 3 bits, PACKET_HOST 0, PACKET_BROADCAST 1 … Kernel: nft_meta pkttype, xt_pkttype
	PhysIn     // 128 bits, name of the bridge port that the packet came by; all zero where br_netfilter has not shown it to rules. Kernel: xt_physdev
	PhysOut    // 128 bits, name of the port that it is bridged to; all zero where PhysIn is; absent before forward, and where the packet is routed

	// Network layer.
	NFProto    // 8 bits, NFPROTO_IPV4 2 or NFPROTO_IPV6 10. Kernel: nft_meta nfproto
	IP4Src     // 32 bits, absent in IPv6. Kernel: nft_payload ip saddr, -s
	IP4Dst     // 32 bits
	IP6Src     // 128 bits, absent in IPv4
	IP6Dst     // 128 bits
	L4Proto    // 8 bits, the protocol behind all extension headers. Kernel: nft_meta l4proto, ip protocol, -p
	DSField    // 8 bits, TOS or traffic class; dscp is mask 0xfc. Kernel: nft_payload, xt_dscp, xt_tos
	TTL        // 8 bits, TTL or hop limit as the hook sees it: one less from forward on. Kernel: nft_payload, xt_ttl, xt_hl
	Length     // 16 bits, bytes of the IP packet with its header. Kernel: nft_meta length (ip hooks), ip length, xt_length
	IP4ID      // 16 bits, identification. Kernel: nft_payload ip id
	FragOffset // 16 bits, flags (reserved, DF, MF) and offset as in the header; absent in IPv6. Kernel: nft_payload, -f is mask 0x1fff not 0
	FlowLabel  // 20 bits, absent in IPv4. Kernel: nft_payload ip6 flowlabel

	// Transport layer; all absent in fragments but the first.
	SPort    // 16 bits: bytes 0 and 1 of the transport header, of whatever protocol. Kernel: nft_payload th, xt_tcpudp, xt_multiport
	DPort    // 16 bits: bytes 2 and 3
	TCPFlags // 8 bits, from FIN 1 to CWR 0x80; only after a test for TCP. Kernel: nft_payload tcp flags, xt_tcpudp
	ICMPType // 16 bits: type << 8 | code, ICMP or ICMPv6; only after a test for the protocol. Kernel: nft_payload icmp, xt_icmp

	// What ip_set_get_ip4_port and ip_set_get_ip6_port give: the port of TCP, UDP, UDP-Lite and SCTP; type << 8 | code of ICMP and
	// ICMPv6; 0 for other protocols. 16 bits.
	SetSPort
	SetDPort

	// What the network stack knows.
	Mark        // 32 bits, skb->mark. Kernel: nft_meta mark, xt_mark
	Priority    // 32 bits, skb->priority. Kernel: nft_meta priority
	SrcAddrType // RTN_*: unicast 1, local 2, broadcast 3 …, 32 bits as in the register of nf_tables. Kernel: nft_fib type, xt_addrtype
	DstAddrType // the same for the destination
	RouteBack   // 1 bit: the route to the sender leads out of the interface that the packet came by. Kernel: nft_fib saddr . iif oif, xt_rpfilter
	RouteBackBy // 1 bit: there is a route to the sender. Kernel: nft_fib saddr oif, xt_rpfilter --loose
	IPsecIn     // 1 bit: was decrypted. Kernel: nft_meta secpath, xt_policy --dir in
	IPsecOut    // 1 bit: will be encrypted. Kernel: xt_policy --dir out

	// The connection. A packet without one has the state CTInvalid, or CTUntracked, and lacks the other fields.
	CTState     // 7 bits, one of the CT… bits. Kernel: nft_ct state, xt_state
	CTStateNAT  // 9 bits: CTState, CTSNAT and CTDNAT together. Kernel: xt_conntrack --ctstate
	CTStatus    // 32 bits, IPS_*. Kernel: nft_ct status, xt_conntrack --ctstatus
	CTDirection // 8 bits, original 0, reply 1. Kernel: nft_ct direction, xt_conntrack --ctdir
	CTMark      // 32 bits. Kernel: nft_ct mark, xt_connmark
	CTZone      // 16 bits. Kernel: nft_ct zone
	CTProto     // 8 bits, the connection's protocol. Kernel: nft_ct protocol, xt_conntrack --ctproto
	CTOrigSrc4  // 32 bits, of the connection's first packet as it came; absent in IPv6. Kernel: nft_ct original ip saddr, xt_conntrack --ctorigsrc
	CTOrigDst4
	CTOrigSrc6 // 128 bits, absent in IPv4. Kernel: nft_ct original ip6 saddr
	CTOrigDst6
	CTOrigSPort // 16 bits, of protocols with ports. Kernel: nft_ct original proto-src, xt_conntrack --ctorigsrcport
	CTOrigDPort

	numFields
)

// NumFields is the number of fields, for tables indexed by Field.
const NumFields = int(numFields)

// Bits of CTState, as include/uapi/linux/netfilter/nf_conntrack_common.h counts them, and two that only CTStateNAT has.
const (
	CTInvalid     = 1 << 0
	CTEstablished = 1 << 1
	CTRelated     = 1 << 2
	CTNew         = 1 << 3
	CTUntracked   = 1 << 6
	CTSNAT        = 1 << 7 // the connection has IPS_SRC_NAT
	CTDNAT        = 1 << 8 // the connection has IPS_DST_NAT
)

type fieldInfo struct {
	name  string
	width int
}

var fields = [numFields]fieldInfo{
	NoField: {"", 0},
	IIFName: {"iifname", 128}, OIFName: {"oifname", 128}, IIFIndex: {"iif", 32}, OIFIndex: {"oif", 32},
	IIFGroup: {"iifgroup", 32}, OIFGroup: {"oifgroup", 32}, IIFType: {"iiftype", 16}, OIFType: {"oiftype", 16},
	EtherSrc: {"ether saddr", 48}, EtherDst: {"ether daddr", 48}, EtherType: {"ether type", 16}, PacketType: {"pkttype", 3},
	PhysIn: {"physin", 128}, PhysOut: {"physout", 128},
	NFProto: {"nfproto", 8}, IP4Src: {"ip saddr", 32}, IP4Dst: {"ip daddr", 32}, IP6Src: {"ip6 saddr", 128}, IP6Dst: {"ip6 daddr", 128},
	L4Proto: {"l4proto", 8}, DSField: {"dsfield", 8}, TTL: {"ttl", 8}, Length: {"length", 16}, IP4ID: {"ip id", 16},
	FragOffset: {"ip frag-off", 16}, FlowLabel: {"ip6 flowlabel", 20},
	SPort: {"sport", 16}, DPort: {"dport", 16}, TCPFlags: {"tcp flags", 8}, ICMPType: {"icmp type-code", 16},
	SetSPort: {"set sport", 16}, SetDPort: {"set dport", 16},
	Mark: {"mark", 32}, Priority: {"priority", 32}, SrcAddrType: {"fib saddr type", 32}, DstAddrType: {"fib daddr type", 32},
	RouteBack: {"fib saddr . iif oif", 1}, RouteBackBy: {"fib saddr oif", 1},
	IPsecIn: {"ipsec in", 1}, IPsecOut: {"ipsec out", 1},
	CTState: {"ct state", 7}, CTStateNAT: {"ct state", 9}, CTStatus: {"ct status", 32}, CTDirection: {"ct direction", 8},
	CTMark: {"ct mark", 32}, CTZone: {"ct zone", 16}, CTProto: {"ct protocol", 8},
	CTOrigSrc4: {"ct original ip saddr", 32}, CTOrigDst4: {"ct original ip daddr", 32}, CTOrigSrc6: {"ct original ip6 saddr", 128}, CTOrigDst6: {"ct original ip6 daddr", 128},
	CTOrigSPort: {"ct original proto-src", 16}, CTOrigDPort: {"ct original proto-dst", 16},
}

func (f Field) String() string { return fields[f].name }

// Width is the field's width in bits, 1 to 128.
func (f Field) Width() int { return fields[f].width }

// OfConnection says whether the field is missing where a packet has no connection.
func (f Field) OfConnection() bool { return f >= CTStatus && f <= CTOrigDPort }

// IsName says whether the field's values are interface names.
func (f Field) IsName() bool { return f == IIFName || f == OIFName || f == PhysIn || f == PhysOut }
