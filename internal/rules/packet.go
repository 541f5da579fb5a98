// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/netip"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Packet is a packet that is being forwarded, as far as rules can see it. Its family is that of the addresses.
type Packet struct {
	IIF, OIF           Device // as the rules see them: the bridge or VLAN device, not the port
	PhysIn, PhysOut    Device // the bridge ports, where br_netfilter shows the packet to rules; PhysOut only if it is bridged
	EtherSrc, EtherDst uint64 // 48 bits
	EtherPadding       int    // bytes of the received frame behind the IP packet
	PacketType         uint8  // PACKET_*
	Bridged            bool   // it goes from a port of a bridge to another, and nothing counts down its TTL (TraceFrame)

	Src, Dst   netip.Addr
	Proto      uint8 // of the transport header, behind extension headers
	DSField    uint8
	TTL        uint8  // as received
	Length     uint16 // bytes of the IP packet
	ID         uint16 // IPv4
	FragOffset uint16 // IPv4: flags and offset as in the header
	FlowLabel  uint32 // IPv6

	SPort, DPort uint16 // TCP, UDP, UDP-Lite, SCTP, DCCP
	TCPFlags     uint8
	ICMPType     uint16 // type << 8 | code of ICMP and ICMPv6

	Mark, Priority           uint32
	SrcAddrType, DstAddrType uint16  // RTN_*; 0 counts as unicast
	Back                     WayBack // the route to the sender

	CT *Connection // what connection tracking finds, unless the packet is kept out of it; nil when it finds nothing
	// Behind the route the packet's destination as Linux has translated it; nil where it has not.
	Translated *Destination
}

// WayBack is where the route to a packet's sender leads.
type WayBack uint8

// Routes back.
const (
	BackUnknown WayBack = iota // only Linux knows
	NoBack
	BackElsewhere // by another interface than the packet came by
	BackSame
)

// Destination is an address and the port of TCP or UDP.
type Destination struct {
	Addr netip.Addr
	Port uint16
}

// Field is the value that a test of one of the device's fields sees, iif for the way in; false where it is missing.
func (d Device) Field(f ruleset.Field) (ruleset.Value, bool) {
	v, p := device(f, d)
	return v, p == there
}

// Device is a network device. The zero value is none.
type Device struct {
	Name  string
	Index int
	Group uint32
	Type  uint16 // ARPHRD_*
}

// Connection is the tracked connection that a packet belongs to.
type Connection struct {
	State  uint8  // CTEstablished, CTRelated or CTNew
	Reply  bool   // the packet goes against the direction of the first one
	Status uint32 // IPS_*
	Mark   uint32
	Zone   uint16
	First  *Ends // of its first packet, as it came; nil where that is not known
}

// Ends are addresses and what a connection is told apart by beside them.
type Ends struct {
	Src, Dst     netip.Addr
	SPort, DPort uint16
	Proto        uint8
}

// Values of IPS_SRC_NAT and IPS_DST_NAT in nf_conntrack_common.h.
const (
	ipsSrcNAT = 1 << 4
	ipsDstNAT = 1 << 5
)

// Transport protocols.
const (
	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoDCCP    = 33
	protoICMPv6  = 58
	protoSCTP    = 132
	protoUDPLite = 136
)

// ported are the protocols whose first four bytes are two ports, as ranges.
var ported = []ruleset.Range{
	ruleset.Nums(protoTCP, protoTCP), ruleset.Nums(protoUDP, protoUDP), ruleset.Nums(protoDCCP, protoDCCP),
	ruleset.Nums(protoSCTP, protoSCTP), ruleset.Nums(protoUDPLite, protoUDPLite),
}

// presence is what a packet says to being asked for a field.
type presence uint8

const (
	absent   presence = iota // the test fails
	there                    // the value counts
	unseen                   // the kernel would read bytes that a Packet does not have: slow
	rtnUcast = 1             // RTN_UNICAST
)

// place is where in the packet's way a rule asks.
type place struct {
	hook    ruleset.Hook
	tracked bool // connection tracking has seen the packet
}

// walk is a packet on its way, with what the rules changed so far.
type walk struct {
	p         *Packet
	mark      uint32
	priority  uint32
	ds        uint8
	untracked bool
	zone      ruleset.SetZone // that rules gave; Dir is 0 where none did
}

func begin(p *Packet) walk { return walk{p: p, mark: p.Mark, priority: p.Priority, ds: p.DSField} }

// connection is what the packet's conntrack entry is at that place: its state bit, and the entry itself if there is one.
func (w *walk) connection(tracked bool) (uint16, *Connection) {
	switch {
	case w.untracked:
		return ruleset.CTUntracked, nil
	case w.zone.Dir != 0 && !tracked:
		return ruleset.CTNew, nil // a template; who asks for more of it is the kernel's (ofTemplate)
	case !tracked || w.p.CT == nil:
		return ruleset.CTInvalid, nil
	}
	return uint16(w.p.CT.State), w.p.CT
}

// behind has the packet go to the receiver that it has at a place, until what it returns is called.
func (w *walk) behind(at place) (restore func()) {
	was := w.p
	if to := was.Translated; to != nil && routed(at.hook) {
		p := *was
		p.Dst, p.DPort, p.Translated = to.Addr, to.Port, nil
		w.p = &p
	}
	return func() { w.p = was }
}

// field is a field's value as a rule sees it at a place.
func (w *walk) field(f ruleset.Field, at place) (ruleset.Value, presence) {
	defer w.behind(at)()
	switch f {
	case ruleset.IIFName, ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType:
		if at.hook == ruleset.Egress || at.hook == ruleset.Postrouting && w.p.Bridged { // br_nf_post_routing()
			return device(f, Device{})
		}
		return device(f, w.p.IIF)
	case ruleset.OIFName, ruleset.OIFIndex, ruleset.OIFGroup, ruleset.OIFType:
		if at.hook == ruleset.Ingress || at.hook == ruleset.Prerouting {
			return device(f, Device{})
		}
		return device(f, w.p.OIF)
	case ruleset.PhysIn, ruleset.PhysOut:
		if at.hook == ruleset.Ingress || at.hook == ruleset.Egress { // before br_netfilter, and behind it
			return device(f, Device{})
		}
		if f == ruleset.PhysOut && at.hook == ruleset.Prerouting {
			return ruleset.Value{}, toPresence(w.p.PhysIn == Device{})
		}
	case ruleset.TTL:
		if routed(at.hook) && !w.p.Bridged {
			return ruleset.Num(uint64(w.p.TTL - 1)), there // ip_forward and ip6_forward count down before the hook
		}
		return ruleset.Num(uint64(w.p.TTL)), there
	}
	return w.raw(f, at.tracked)
}

// routed says whether a hook comes after the routing decision.
func routed(h ruleset.Hook) bool {
	return h == ruleset.Forward || h == ruleset.Postrouting || h == ruleset.Egress
}

func device(f ruleset.Field, d Device) (ruleset.Value, presence) {
	none := d == Device{}
	switch f {
	case ruleset.IIFName, ruleset.OIFName, ruleset.PhysIn, ruleset.PhysOut:
		return ruleset.Name(d.Name), there
	case ruleset.IIFIndex, ruleset.OIFIndex:
		return ruleset.Num(uint64(d.Index)), there
	case ruleset.IIFGroup, ruleset.OIFGroup:
		return ruleset.Num(uint64(d.Group)), toPresence(!none)
	}
	return ruleset.Num(uint64(d.Type)), toPresence(!none)
}

func toPresence(has bool) presence {
	if has {
		return there
	}
	return absent
}

// raw is a field's value as it is on the wire or was changed, without regard to the hook; devices as if both were known.
func (w *walk) raw(f ruleset.Field, tracked bool) (ruleset.Value, presence) {
	p := w.p
	four := p.Src.Is4()
	num := func(n uint64) (ruleset.Value, presence) { return ruleset.Num(n), there }
	when := func(has bool, n uint64) (ruleset.Value, presence) { return ruleset.Num(n), toPresence(has) }
	switch f {
	case ruleset.IIFName, ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType:
		return device(f, p.IIF)
	case ruleset.OIFName, ruleset.OIFIndex, ruleset.OIFGroup, ruleset.OIFType:
		return device(f, p.OIF)
	case ruleset.EtherSrc:
		return num(p.EtherSrc)
	case ruleset.EtherDst:
		return num(p.EtherDst)
	case ruleset.EtherType:
		if four {
			return num(0x0800)
		}
		return num(0x86dd)
	case ruleset.PacketType:
		return num(uint64(p.PacketType))
	case ruleset.PhysIn:
		return device(f, p.PhysIn)
	case ruleset.PhysOut:
		return ruleset.Name(p.PhysOut.Name), toPresence(p.PhysIn == Device{} || p.PhysOut != Device{})
	case ruleset.IPsecIn, ruleset.IPsecOut:
		return num(0) // other packets are slow before any rule is asked
	case ruleset.NFProto:
		if four {
			return num(uint64(ruleset.IP4))
		}
		return num(uint64(ruleset.IP6))
	case ruleset.IP4Src:
		return ruleset.Addr(p.Src), toPresence(four)
	case ruleset.IP4Dst:
		return ruleset.Addr(p.Dst), toPresence(four)
	case ruleset.IP6Src:
		return ruleset.Addr(p.Src), toPresence(!four)
	case ruleset.IP6Dst:
		return ruleset.Addr(p.Dst), toPresence(!four)
	case ruleset.L4Proto:
		return num(uint64(p.Proto))
	case ruleset.DSField:
		return num(uint64(w.ds))
	case ruleset.TTL:
		return num(uint64(p.TTL))
	case ruleset.Length:
		return num(uint64(p.Length))
	case ruleset.IP4ID:
		return when(four, uint64(p.ID))
	case ruleset.FragOffset:
		return when(four, uint64(p.FragOffset))
	case ruleset.FlowLabel:
		return when(!four, uint64(p.FlowLabel))
	case ruleset.Mark:
		return num(uint64(w.mark))
	case ruleset.Priority:
		return num(uint64(w.priority))
	case ruleset.SrcAddrType:
		return num(uint64(max(p.SrcAddrType, rtnUcast)))
	case ruleset.DstAddrType:
		return num(uint64(max(p.DstAddrType, rtnUcast)))
	case ruleset.RouteBack, ruleset.RouteBackBy:
		if p.Back == BackUnknown {
			return ruleset.Value{}, unseen
		}
		return num(uint64(min(p.Back/map[ruleset.Field]WayBack{ruleset.RouteBack: BackSame, ruleset.RouteBackBy: BackElsewhere}[f], 1)))
	case ruleset.SPort, ruleset.DPort, ruleset.SetSPort, ruleset.SetDPort, ruleset.TCPFlags, ruleset.ICMPType:
		return w.transport(f)
	}
	if f == ruleset.CTState || f == ruleset.CTStateNAT || f.OfConnection() {
		return w.ct(f, tracked)
	}
	return ruleset.Value{}, unseen
}

// hasPorts says whether a protocol's header begins with two ports.
func hasPorts(proto uint8) bool { return contains(ported, ruleset.Num(uint64(proto))) }

func (w *walk) transport(f ruleset.Field) (ruleset.Value, presence) {
	p := w.p
	first := !p.Src.Is4() || p.FragOffset&0x1fff == 0
	icmp := p.Proto == protoICMP || p.Proto == protoICMPv6
	switch f {
	case ruleset.SPort, ruleset.DPort:
		if !hasPorts(p.Proto) {
			return ruleset.Value{}, unseen
		}
		if f == ruleset.SPort {
			return ruleset.Num(uint64(p.SPort)), toPresence(first)
		}
		return ruleset.Num(uint64(p.DPort)), toPresence(first)
	case ruleset.TCPFlags:
		return ruleset.Num(uint64(p.TCPFlags)), toPresence(first && p.Proto == protoTCP)
	case ruleset.ICMPType:
		return ruleset.Num(uint64(p.ICMPType)), toPresence(first && icmp)
	}
	switch {
	case icmp:
		return ruleset.Num(uint64(p.ICMPType)), toPresence(first)
	case !hasPorts(p.Proto) || p.Proto == protoDCCP: // get_port in ip_set_getport.c does not know DCCP
		return ruleset.Num(0), toPresence(first)
	case f == ruleset.SetSPort:
		return ruleset.Num(uint64(p.SPort)), toPresence(first)
	}
	return ruleset.Num(uint64(p.DPort)), toPresence(first)
}

func (w *walk) ct(f ruleset.Field, tracked bool) (ruleset.Value, presence) {
	state, c := w.connection(tracked)
	switch f {
	case ruleset.CTState:
		return ruleset.Num(uint64(state)), there
	case ruleset.CTStateNAT:
		if c != nil && c.Status&ipsSrcNAT != 0 {
			state |= ruleset.CTSNAT
		}
		if c != nil && c.Status&ipsDstNAT != 0 {
			state |= ruleset.CTDNAT
		}
		return ruleset.Num(uint64(state)), there
	}
	if c == nil {
		return ruleset.Value{}, absent
	}
	switch f {
	case ruleset.CTStatus:
		return ruleset.Num(uint64(c.Status)), there
	case ruleset.CTMark:
		return ruleset.Num(uint64(c.Mark)), there
	case ruleset.CTZone:
		return ruleset.Num(uint64(c.Zone)), there
	case ruleset.CTDirection:
		return ruleset.Num(uint64(btoi(c.Reply))), there
	}
	four := w.p.Src.Is4()
	switch {
	case (f == ruleset.CTOrigSrc6 || f == ruleset.CTOrigDst6) && four, (f == ruleset.CTOrigSrc4 || f == ruleset.CTOrigDst4) && !four:
		return ruleset.Value{}, absent
	case c.First == nil:
		return ruleset.Value{}, unseen
	}
	return c.First.field(f), there
}

func (e *Ends) field(f ruleset.Field) ruleset.Value {
	switch f {
	case ruleset.CTProto:
		return ruleset.Num(uint64(e.Proto))
	case ruleset.CTOrigSPort:
		return ruleset.Num(uint64(e.SPort))
	case ruleset.CTOrigDPort:
		return ruleset.Num(uint64(e.DPort))
	case ruleset.CTOrigSrc4, ruleset.CTOrigSrc6:
		return ruleset.Addr(e.Src)
	}
	return ruleset.Addr(e.Dst)
}

// apply changes a field as a SetField step does.
func (w *walk) apply(s ruleset.SetField, at place) {
	xor := s.Xor
	if s.From != ruleset.NoField {
		v, p := w.field(s.From, at)
		if p != there {
			return
		}
		xor ^= uint32(v.Lo) & s.Mask
	}
	switch s.Field {
	case ruleset.Mark:
		w.mark = w.mark&s.And ^ xor
	case ruleset.Priority:
		w.priority = w.priority&s.And ^ xor
	case ruleset.DSField:
		w.ds = w.ds&uint8(s.And) ^ uint8(xor)
	}
}

// newMark is why a packet is the kernel's that gives its connection another mark. Which packets do depends on what the connection has, so that no region of Slow foretells it.
const newMark = "another mark for the connection"

// otherPorts is why a packet is the kernel's whose ports would have to be read from a header without ports.
const otherPorts = "ports of another protocol"

// saved says whether a SaveMark step would leave the connection's mark as it is.
func (w *walk) saved(s ruleset.SaveMark, at place) bool {
	v, p := w.field(ruleset.CTMark, at)
	mark := uint32(v.Lo)
	return p != there || mark&s.And^s.Xor^w.mark&s.Mask == mark
}

// notrack is a NoTrack step: a packet that has a connection, or a zone before that, keeps it.
func (w *walk) notrack(tracked bool) {
	if state, _ := w.connection(tracked); state == ruleset.CTInvalid {
		w.untracked = true
	}
}

// setZone is a SetZone step before connection tracking.
func (w *walk) setZone(s ruleset.SetZone) {
	if state, _ := w.connection(false); state == ruleset.CTInvalid || s.Back && state == ruleset.CTUntracked {
		w.zone, w.untracked = s, false
	}
}

// zoneOfMap is the SetZone step that a SetByMap is for an element.
func zoneOfMap(e *ruleset.Element) ruleset.SetZone {
	return ruleset.SetZone{Zone: uint16(e.Data.Lo), Dir: ruleset.ZoneBoth, Back: true}
}

// bytes is what a counter adds at a hook: skb->len.
func (p *Packet) bytes(h ruleset.Hook) int {
	switch h {
	case ruleset.Ingress: // not trimmed yet
		return int(p.Length) + p.EtherPadding
	case ruleset.Egress: // with the Ethernet header in front
		return int(p.Length) + 14
	}
	return int(p.Length)
}
