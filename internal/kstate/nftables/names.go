// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"maps"
	"strings"
)

// What nft calls the numbers that it hands to the kernel, for those who write rules, and the way back for those who read nft's own words.

var (
	protoNames = map[uint64]string{1: "icmp", 2: "igmp", 4: "ipencap", 6: "tcp", 17: "udp", 33: "dccp", 41: "ipv6", 47: "gre", 50: "esp", 51: "ah",
		58: "ipv6-icmp", 132: "sctp", 136: "udplite"}
	stateNames   = []string{"invalid", "established", "related", "new", "", "", "untracked", "snat", "dnat"}
	statusNames  = []string{"expected", "seen-reply", "assured", "confirmed", "snat", "dnat", "", "", "", "dying"}
	flagNames    = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"}
	addrTypes    = []string{"unspec", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit"}
	packetTypes  = []string{"host", "broadcast", "multicast", "other"}
	icmpTypes    = map[uint64]string{0: "echo-reply", 3: "destination-unreachable", 4: "source-quench", 5: "redirect", 8: "echo-request", 9: "router-advertisement", 10: "router-solicitation", 11: "time-exceeded", 12: "parameter-problem", 13: "timestamp-request", 14: "timestamp-reply", 17: "address-mask-request", 18: "address-mask-reply"}
	icmpv6Types  = map[uint64]string{1: "destination-unreachable", 2: "packet-too-big", 3: "time-exceeded", 4: "parameter-problem", 128: "echo-request", 129: "echo-reply", 130: "mld-listener-query", 131: "mld-listener-report", 132: "mld-listener-done", 133: "nd-router-solicit", 134: "nd-router-advert", 135: "nd-neighbor-solicit", 136: "nd-neighbor-advert", 137: "nd-redirect", 143: "mld2-listener-report"}
	dscpNames    = map[uint32]string{0x00: "cs0", 0x08: "cs1", 0x10: "cs2", 0x18: "cs3", 0x20: "cs4", 0x28: "cs5", 0x30: "cs6", 0x38: "cs7", 0x0a: "af11", 0x0c: "af12", 0x0e: "af13", 0x12: "af21", 0x14: "af22", 0x16: "af23", 0x1a: "af31", 0x1c: "af32", 0x1e: "af33", 0x22: "af41", 0x24: "af42", 0x26: "af43", 0x2e: "ef"}
	etherTypes   = map[uint64]string{0x0800: "ip", 0x0806: "arp", 0x86dd: "ip6", 0x8100: "8021q", 0x88a8: "8021ad"}
	familyProtos = map[uint64]string{familyIP4: "ipv4", familyIP6: "ipv6", familyARP: "arp", familyBridge: "bridge"}
)

// Type is a data type of nft: its number, its bytes (0 where that depends), and whether they lie in the machine's order.
type Type struct {
	ID, Size int
	Host     bool
}

// TypeNamed finds a type by its name.
func TypeNamed(name string) (Type, bool) {
	for id, t := range keyTypes {
		if t.name == name {
			return Type{int(id), t.size, t.host}, true
		}
	}
	return Type{}, false
}

// MetaNamed finds what `meta NAME` loads: its key, its bytes and their order.
func MetaNamed(name string) (key uint32, size int, host, ok bool) {
	for i, m := range metas {
		if strings.TrimPrefix(m.name, "meta ") == name {
			return uint32(i), m.size, m.host, true
		}
	}
	return 0, 0, false, false
}

// CTNamed finds what `ct NAME` loads.
func CTNamed(name string) (key uint32, size int, host, ok bool) {
	for i, c := range cts {
		if strings.TrimPrefix(c.name, "ct ") == name {
			return uint32(i), c.size, c.host, true
		}
	}
	return 0, 0, false, false
}

// otherProtocols are protocols that nft names and that are not worth printing.
var otherProtocols = map[uint64]string{0: "ip", 3: "ggp", 8: "egp", 46: "rsvp", 89: "ospf", 94: "ipip", 103: "pim", 112: "vrrp", 115: "l2tp"}

// valueNames are the values of a type that have names, by the type's name; bits says that they are numbers of bits.
var valueNames = map[string]struct {
	values map[uint64]string
	list   []string
	bits   bool
}{
	"nf_proto": {values: familyProtos}, "ether_type": {values: etherTypes}, "inet_proto": {values: merged(protoNames, otherProtocols)},
	"icmp_type": {values: icmpTypes}, "icmpv6_type": {values: icmpv6Types},
	"icmp_code":    {values: map[uint64]string{0: "net-unreachable", 1: "host-unreachable", 2: "prot-unreachable", 3: "port-unreachable", 4: "frag-needed", 9: "net-prohibited", 10: "host-prohibited", 13: "admin-prohibited"}},
	"icmpv6_code":  {list: []string{"no-route", "admin-prohibited", "", "addr-unreachable", "port-unreachable", "policy-fail", "reject-route"}},
	"icmpx_code":   {list: []string{"no-route", "port-unreachable", "host-unreachable", "admin-prohibited"}},
	"tcp_flag":     {list: flagNames, bits: true},
	"ct_state":     {list: stateNames[:7], bits: true},
	"ct_status":    {list: statusNames, bits: true},
	"ct_dir":       {list: []string{"original", "reply"}},
	"pkt_type":     {list: packetTypes},
	"fib_addrtype": {list: addrTypes}, "boolean": {list: []string{"missing", "exists"}},
	"iface_type": {values: map[uint64]string{1: "ether", 512: "ppp", 769: "ipip6", 768: "ipip", 772: "loopback", 776: "sit", 778: "ipgre"}},
	"dscp":       {values: dscpValues()}, "ecn": {list: []string{"not-ect", "ect1", "ect0", "ce"}},
	"devgroup": {values: map[uint64]string{0: "default"}},
}

func merged(a, b map[uint64]string) map[uint64]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func dscpValues() map[uint64]string {
	out := map[uint64]string{}
	for n, name := range dscpNames {
		out[uint64(n)] = name
	}
	return out
}

// ValueNamed is the number that a name stands for in a type.
func ValueNamed(typ, name string) (uint64, bool) {
	names := valueNames[typ]
	for n, s := range names.values {
		if s == name {
			return n, true
		}
	}
	for i, s := range names.list {
		if s == name && s != "" {
			if names.bits {
				return 1 << i, true
			}
			return uint64(i), true
		}
	}
	return 0, false
}

// ObjectTypeNamed is the number of a kind of object.
func ObjectTypeNamed(name string) (uint32, bool) {
	for typ := uint32(1); typ < 11; typ++ {
		if objectName(typ) == name {
			return typ, true
		}
	}
	return 0, false
}

// Flags and numbers that messages carry, for those who make the structs without messages.
const (
	TableDormant = tableDormant
	TypeVerdict  = verdictType
)

// Verdict codes (NF_*, NFT_*).
const (
	CodeDrop     = nfDrop
	CodeAccept   = nfAccept
	CodeContinue = nftContinue
	CodeJump     = nftJump
	CodeGoto     = nftGoto
	CodeReturn   = nftReturn
)

func dscpName(n uint32) string {
	if s := dscpNames[n]; s != "" {
		return s
	}
	return fmt.Sprintf("0x%02x", n)
}
