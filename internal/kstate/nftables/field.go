// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
	"golang.org/x/sys/unix"
)

// Payload bases (NFT_PAYLOAD_*).
const (
	baseLink = iota
	baseNetwork
	baseTransport
)

// facts are what the rule has tested so far and a later expression relies on.
type facts struct {
	family byte // of the table
	proto  int  // 4 or 6 once the packet is known to be IPv4 or IPv6
	l4     int  // protocol number, -1 while not known
}

// ipHook says whether rules meet packets that the kernel took for IP by the header's version, and that have neither options nor extension headers: those are Linux's.
func (f *facts) ipHook() bool {
	return f.family == familyIP4 || f.family == familyIP6 || f.family == familyInet
}

// segment is a field that lies in a loaded value: field = (value >> lo) in the field's width. A negative lo means that only
// the upper part of the field was loaded.
type segment struct {
	field rs.Field
	lo    int
	width int
}

// header is a field in a header: its first bit and its width.
type header struct {
	field      rs.Field
	at, length int
}

var (
	linkFields = []header{{rs.EtherDst, 0, 48}, {rs.EtherSrc, 48, 48}}
	// Rules ask for the frame's type where it stands, in front of addresses of frames beside those of IP too. There is no tag in front of it: those of VLANs are beside the frame, which are
	// Linux's, or have gone with it to the VLAN's device (vlan_do_receive(); devices that keep them are Linux's).
	frameFields = append(linkFields[:2:2], header{rs.EtherType, 96, 16})
	ip4Fields   = []header{{rs.DSField, 8, 8}, {rs.Length, 16, 16}, {rs.IP4ID, 32, 16}, {rs.FragOffset, 48, 16}, {rs.TTL, 64, 8},
		{rs.L4Proto, 72, 8}, {rs.IP4Src, 96, 32}, {rs.IP4Dst, 128, 32}}
	ip6Fields = []header{{rs.DSField, 4, 8}, {rs.FlowLabel, 12, 20}, {rs.TTL, 56, 8}, {rs.IP6Src, 64, 128}, {rs.IP6Dst, 192, 128}}
	// What comes next is the transport protocol, since packets with an extension header are left to Linux before they come to rules.
	ip6Routed  = append(slices.Clip(ip6Fields), header{rs.L4Proto, 48, 8})
	portFields = []header{{rs.SPort, 0, 16}, {rs.DPort, 16, 16}}
	tcpFields  = []header{{rs.SPort, 0, 16}, {rs.DPort, 16, 16}, {rs.TCPFlags, 104, 8}}
	icmpFields = []header{{rs.ICMPType, 0, 16}}
)

// fieldsOf are the fields of the header that a payload expression reads from.
func (f *facts) fieldsOf(base uint32) ([]header, error) {
	switch base {
	case baseLink:
		// Frames with a tag beside them, which a load would show in front of the type, are Linux's: those of a device that has VLANs above it, at ingress, and those of
		// bridges that br_netfilter shows.
		if f.family == familyBridge || f.ipHook() {
			return frameFields, nil
		}
		return linkFields, nil
	case baseNetwork:
		switch f.proto {
		case 4:
			return ip4Fields, nil
		case 6:
			if f.ipHook() {
				return ip6Routed, nil
			}
			return ip6Fields, nil
		}
		return nil, errors.New("which protocol the network header is of is not tested before")
	case baseTransport:
		switch f.l4 {
		case unix.IPPROTO_TCP:
			return tcpFields, nil
		case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
			return icmpFields, nil
		}
		return portFields, nil
	}
	return nil, fmt.Errorf("the payload base %d is not modelled", base)
}

// payloadSegments are the fields of which the masked bits of a load consist, in wire order.
func (f *facts) payloadSegments(p *Payload, mask rs.Value) (out []segment, err error) {
	fields, err := f.fieldsOf(p.Base)
	if err != nil {
		return nil, err
	}
	first, bits := int(p.Offset)*8, int(p.Len)*8
	covered := rs.Value{}
	for _, h := range fields {
		s := segment{field: h.field, lo: first + bits - (h.at + h.length), width: h.length}
		in := bitsAt(s.lo, s.width).And(rs.Max(bits))
		if s.lo < 0 {
			in = shift(rs.Max(s.width), -s.lo).And(rs.Max(bits))
		}
		if isZero(in.And(mask)) {
			continue
		}
		out = append(out, s)
		covered = covered.Or(in)
	}
	if !isZero(mask.And(covered.Not())) || len(out) == 0 {
		return nil, fmt.Errorf("%s has bits that are not modelled", p.text())
	}
	return out, nil
}

func (p *Payload) text() string {
	base := fmt.Sprintf("base %d", p.Base)
	switch p.Base {
	case baseLink:
		base = "ll"
	case baseNetwork:
		base = "nh"
	case baseTransport:
		base = "th"
	}
	return fmt.Sprintf("@%s,%d,%d", base, p.Offset*8, p.Len*8)
}

// loaded is what a meta or ct expression puts into a register.
type loaded struct {
	name  string
	size  int  // bytes
	host  bool // byte order
	field rs.Field
}

// metas by NFT_META_*. Those without a field depend on more than the packet, or nobody forwards by them.
var metas = []loaded{
	0: {"meta length", 4, true, rs.Length}, 1: {"meta protocol", 2, false, rs.EtherType}, 2: {"meta priority", 4, true, rs.Priority},
	3: {"meta mark", 4, true, rs.Mark}, 4: {"iif", 4, true, rs.IIFIndex}, 5: {"oif", 4, true, rs.OIFIndex},
	6: {"iifname", 16, false, rs.IIFName}, 7: {"oifname", 16, false, rs.OIFName}, 8: {"iiftype", 2, true, rs.IIFType},
	9: {"oiftype", 2, true, rs.OIFType}, 10: {"meta skuid", 4, true, 0}, 11: {"meta skgid", 4, true, 0}, 12: {"meta nftrace", 1, true, 0},
	13: {"meta rtclassid", 4, true, 0}, 14: {"meta secmark", 4, true, 0}, 15: {"meta nfproto", 1, true, rs.NFProto},
	16: {"meta l4proto", 1, true, rs.L4Proto}, 17: {"meta ibrname", 16, false, 0}, 18: {"meta obrname", 16, false, 0},
	19: {"meta pkttype", 1, true, rs.PacketType}, 20: {"meta cpu", 4, true, 0}, 21: {"iifgroup", 4, true, rs.IIFGroup},
	22: {"oifgroup", 4, true, rs.OIFGroup}, 23: {"meta cgroup", 4, true, 0}, 24: {"meta random", 4, true, 0},
	25: {"meta ipsec", 1, true, rs.IPsecIn}, 26: {"iifkind", 16, false, 0}, 27: {"oifkind", 16, false, 0}, 28: {"meta ibrpvid", 2, true, 0},
	29: {"meta ibrvproto", 2, false, 0}, 30: {"meta time", 8, true, 0}, 31: {"meta day", 1, true, 0}, 32: {"meta hour", 4, true, 0},
	33: {"meta sdif", 4, true, 0}, 34: {"meta sdifname", 16, false, 0}, 35: {"meta broute", 1, true, 0},
}

// cts by NFT_CT_*.
var cts = []loaded{
	0: {"ct state", 4, true, rs.CTState}, 1: {"ct direction", 1, true, rs.CTDirection}, 2: {"ct status", 4, true, rs.CTStatus},
	3: {"ct mark", 4, true, rs.CTMark}, 4: {"ct secmark", 4, true, 0}, 5: {"ct expiration", 4, true, 0}, 6: {"ct helper", 16, false, 0},
	7: {"ct l3proto", 1, true, 0}, 8: {"ct saddr", 16, false, 0}, 9: {"ct daddr", 16, false, 0}, 10: {"ct protocol", 1, true, rs.CTProto},
	11: {"ct proto-src", 2, false, 0}, 12: {"ct proto-dst", 2, false, 0}, 13: {"ct label", 16, true, 0}, 14: {"ct packets", 8, true, 0},
	15: {"ct bytes", 8, true, 0}, 16: {"ct avgpkt", 8, true, 0}, 17: {"ct zone", 2, true, rs.CTZone}, 18: {"ct event", 4, true, 0},
	19: {"ct ip saddr", 4, false, 0}, 20: {"ct ip daddr", 4, false, 0}, 21: {"ct ip6 saddr", 16, false, 0}, 22: {"ct ip6 daddr", 16, false, 0},
	23: {"ct id", 4, true, 0},
}

func metaOf(key uint32) loaded {
	if int(key) < len(metas) {
		return metas[key]
	}
	return loaded{name: fmt.Sprintf("meta key %d", key), size: 16}
}

func ctOf(key uint32, dir int) loaded {
	l := loaded{name: fmt.Sprintf("ct key %d", key), size: 16}
	if int(key) < len(cts) {
		l = cts[key]
	}
	if dir >= 0 && l.field != rs.CTProto { // the field speaks of the connection as a whole
		l.field = 0
		if dir == 0 {
			l.field = ctFirst[key]
		}
		l.name = "ct " + [...]string{"original", "reply"}[dir&1] + strings.TrimPrefix(l.name, "ct")
	}
	return l
}

// ctFirst are those by NFT_CT_* that the direction of a connection's first packet has a field for.
var ctFirst = map[uint32]rs.Field{11: rs.CTOrigSPort, 12: rs.CTOrigDPort, 19: rs.CTOrigSrc4, 20: rs.CTOrigDst4, 21: rs.CTOrigSrc6, 22: rs.CTOrigDst6}

// byFamily gives addresses, which are those of the table's family (NFT_CT_SRC, NFT_CT_DST), the keys of that.
func (e *CT) byFamily(family byte) *CT {
	to := map[[2]uint32]uint32{{8, familyIP4}: 19, {9, familyIP4}: 20, {8, familyIP6}: 21, {9, familyIP6}: 22}[[2]uint32{e.Key, uint32(family)}]
	if to == 0 {
		return e
	}
	of := *e
	of.Key = to
	return &of
}
