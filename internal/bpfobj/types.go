// SPDX-License-Identifier: Apache-2.0

package bpfobj

// Short names for the structures of bpf/types.h.
type (
	Config     = GuardShuntConfig
	Input      = GuardShuntInput
	GuardWord  = GuardShuntGuardWord
	Live       = GuardShuntLive
	Count      = GuardShuntCount
	VLANKey    = GuardShuntVlanKey
	Tags       = GuardShuntTags
	Prefix4    = GuardShuntPrefix4
	Prefix6    = GuardShuntPrefix6
	Special    = GuardShuntSpecial
	NeighUse   = GuardShuntNeighUse
	Conn       = GuardShuntConn
	Trace      = GuardShuntTrace
	GuardQuery = GuardShuntGuardQuery
	HooksQuery = GuardShuntHooksQuery
	WordValue  = GuardShuntWordValue
	Sets       = GuardShuntSets
	Bridges    = GuardShuntBridges
	SetKind    = GuardShuntSetKind
	SetsQuery  = GuardShuntSetsQuery
	BeatQuery  = GuardShuntBeatQuery
	Word       = GuardShuntWord
)

// Bridged is SHUNT_BRIDGED: in the tables of ways out, for frames that a bridge hands to its port.
const Bridged = uint32(1) << 31

// RuleMoves and RuleMovesFew are SHUNT_RULE_MOVES and SHUNT_RULE_MOVES_FEW: the first moves through an image of rules that a program makes without bpf_loop().
const (
	RuleMoves    = 12
	RuleMovesFew = 2
)

// GenericWhole and GenericLean are SHUNT_GENERIC_WHOLE and SHUNT_GENERIC_LEAN: what a program has that serves every port.
const (
	GenericWhole = 1
	GenericLean  = 2
)

// ByPeer is SHUNT_BY_PEER: in the way out by a port of a bridge at tc, that the other end of the veth may be entered.
const ByPeer = uint32(1) << 30

// Veth is SHUNT_VETH: in the way out by a port of a bridge at tc, that it is a veth.
const Veth = uint32(1) << 27

// Onto is SHUNT_ONTO: in the way out by a bridge at tc, that its port may be found and entered at once.
const Onto = uint32(1) << 29

// IntoTunnel is SHUNT_INTO_TUNNEL: in the way out by an interface at tc, that it leads into a tunnel.
const IntoTunnel = uint32(1) << 28

// Short6 is SHUNT_SHORT6: in the way out by an interface at tc, that of IPv6 it takes shorter packets than its MTU says.
const Short6 = uint32(1) << 26

// What is fast at a bridge's port, enum shunt_bridge.
const (
	BridgeFrames = uint8(GuardShuntBridgeSHUNT_BRIDGE_FRAMES)
	BridgeHost   = uint8(GuardShuntBridgeSHUNT_BRIDGE_HOST)
)

// Which bridges routes lead to whose ports are entered at once, enum shunt_onto.
const (
	OntoPlain = uint8(GuardShuntOntoSHUNT_ONTO_PLAIN)
	OntoVLANs = uint8(GuardShuntOntoSHUNT_ONTO_VLANS)
)

// What br_netfilter is to a bridge's frames of a family, enum shunt_called.
const (
	CalledOption = uint8(GuardShuntCalledSHUNT_CALLED_OPTION)
	CalledNone   = uint8(GuardShuntCalledSHUNT_CALLED_NONE)
	CalledAll    = uint8(GuardShuntCalledSHUNT_CALLED_ALL)
	CalledSlow   = uint8(GuardShuntCalledSHUNT_CALLED_SLOW)
	TrackAll     = uint8(GuardShuntTrackSHUNT_TRACK_ALL)
	TrackNoTCP   = uint8(GuardShuntTrackSHUNT_TRACK_NO_TCP)
	LookUp       = uint8(GuardShuntLookSHUNT_LOOK_UP)
	LookNoted    = uint8(GuardShuntLookSHUNT_LOOK_NOTED)
	NATIP4       = uint8(GuardShuntNatSHUNT_NAT_IP4)
	NATIP6       = uint8(GuardShuntNatSHUNT_NAT_IP6)
	ShownIP      = uint8(GuardShuntShownSHUNT_SHOWN_IP)
	ShownFrames  = uint8(GuardShuntShownSHUNT_SHOWN_FRAMES)
)

// Reverse path modes, enum shunt_rpf.
const (
	RPFSource = uint8(GuardShuntRpfSHUNT_RPF_SOURCE)
	RPFStrict = uint8(GuardShuntRpfSHUNT_RPF_STRICT)
	RPFLoose  = uint8(GuardShuntRpfSHUNT_RPF_LOOSE)
)

// Ways to read kernel memory, enum shunt_peek.
const (
	PeekNone  = uint8(GuardShuntPeekSHUNT_PEEK_NONE)
	PeekCast  = uint8(GuardShuntPeekSHUNT_PEEK_CAST)
	PeekProbe = uint8(GuardShuntPeekSHUNT_PEEK_PROBE)
)

// Ways to read the device that a packet came by, enum shunt_kern_ctx.
const (
	CtxNone  = uint8(GuardShuntKernCtxSHUNT_CTX_NONE)
	CtxCast  = uint8(GuardShuntKernCtxSHUNT_CTX_CAST)
	CtxProbe = uint8(GuardShuntKernCtxSHUNT_CTX_PROBE)
)

// Ways to ask an ipset, enum shunt_set_method.
const (
	SetHash       = uint8(GuardShuntSetMethodSHUNT_SET_HASH)
	SetBitmapIP   = uint8(GuardShuntSetMethodSHUNT_SET_BITMAP_IP)
	SetBitmapPort = uint8(GuardShuntSetMethodSHUNT_SET_BITMAP_PORT)
	SetBitmapMAC  = uint8(GuardShuntSetMethodSHUNT_SET_BITMAP_MAC)
	SetList       = uint8(GuardShuntSetMethodSHUNT_SET_LIST)
)

// What of a set's key is no address, enum shunt_set_tail.
const (
	TailPort  = uint8(GuardShuntSetTailSHUNT_TAIL_PORT)
	TailMark  = uint8(GuardShuntSetTailSHUNT_TAIL_MARK)
	TailIface = uint8(GuardShuntSetTailSHUNT_TAIL_IFACE)
	TailMAC   = uint8(GuardShuntSetTailSHUNT_TAIL_MAC)
)

// Guard words, enum shunt_word: of the namespace up to WordNetCount, of a device from there on.
const (
	WordIP4Prerouting     = GuardShuntWordSHUNT_W_IP4PREROUTING
	WordIP4Forward        = GuardShuntWordSHUNT_W_IP4FORWARD
	WordIP4Postrouting    = GuardShuntWordSHUNT_W_IP4POSTROUTING
	WordIP6Prerouting     = GuardShuntWordSHUNT_W_IP6PREROUTING
	WordIP6Forward        = GuardShuntWordSHUNT_W_IP6FORWARD
	WordIP6Postrouting    = GuardShuntWordSHUNT_W_IP6POSTROUTING
	WordNFTBaseSeq        = GuardShuntWordSHUNT_W_NFT_BASE_SEQ
	WordAddrGenID4        = GuardShuntWordSHUNT_W_ADDR_GENID4
	WordAllRPFilter       = GuardShuntWordSHUNT_W_ALL_RP_FILTER
	WordAllForwarding6    = GuardShuntWordSHUNT_W_ALL_FORWARDING6
	WordRulesSeq4         = GuardShuntWordSHUNT_W_RULES_SEQ4
	WordRulesSeq6         = GuardShuntWordSHUNT_W_RULES_SEQ6
	WordCustomRules4      = GuardShuntWordSHUNT_W_CUSTOM_RULES4
	WordCustomLocal4      = GuardShuntWordSHUNT_W_CUSTOM_LOCAL4
	WordNexthopSeq        = GuardShuntWordSHUNT_W_NEXTHOP_SEQ
	WordXFRMPolicies      = GuardShuntWordSHUNT_W_XFRM_POLICIES
	WordPacketSockets     = GuardShuntWordSHUNT_W_PTYPE_ALL
	WordBridgePrerouting  = GuardShuntWordSHUNT_W_BR_PREROUTING
	WordBridgeInput       = GuardShuntWordSHUNT_W_BR_INPUT
	WordBridgeForward     = GuardShuntWordSHUNT_W_BR_FORWARD
	WordBridgeOutput      = GuardShuntWordSHUNT_W_BR_OUTPUT
	WordBridgePostrouting = GuardShuntWordSHUNT_W_BR_POSTROUTING
	WordLegacy4Raw        = GuardShuntWordSHUNT_W_LEGACY4RAW
	WordLegacy4Mangle     = GuardShuntWordSHUNT_W_LEGACY4MANGLE
	WordLegacy4Filter     = GuardShuntWordSHUNT_W_LEGACY4FILTER
	WordLegacy4Sec        = GuardShuntWordSHUNT_W_LEGACY4SECURITY
	WordLegacy6Raw        = GuardShuntWordSHUNT_W_LEGACY6RAW
	WordLegacy6Mangle     = GuardShuntWordSHUNT_W_LEGACY6MANGLE
	WordLegacy6Filter     = GuardShuntWordSHUNT_W_LEGACY6FILTER
	WordLegacy6Sec        = GuardShuntWordSHUNT_W_LEGACY6SECURITY
	WordRouteGenID6       = GuardShuntWordSHUNT_W_ROUTE_GENID6
	WordRouteGenID4       = GuardShuntWordSHUNT_W_ROUTE_GENID4
	WordCTEstablished     = GuardShuntWordSHUNT_W_CT_ESTABLISHED
	WordCTStream          = GuardShuntWordSHUNT_W_CT_STREAM
	WordCTChecksum        = GuardShuntWordSHUNT_W_CT_CHECKSUM
	WordNetCount          = GuardShuntWordSHUNT_W_NET_COUNT
	WordDevRPFilter       = GuardShuntWordSHUNT_W_DEV_RP_FILTER
	WordDevSockets        = GuardShuntWordSHUNT_W_DEV_PTYPE_ALL
	WordDevForwarding6    = GuardShuntWordSHUNT_W_DEV_FORWARDING6
	WordDevDisable6       = GuardShuntWordSHUNT_W_DEV_DISABLE6
	WordDevHandler        = GuardShuntWordSHUNT_W_DEV_HANDLER
)
