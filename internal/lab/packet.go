// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Packet composes a frame from gopacket layers, outermost first, and fills in
// what a correct sender would: versions, lengths, checksums, the type that each
// layer gives for the next one, and a TTL of 64, each only where the layer holds
// zero. It writes these into the layers given. Nothing is padded (see [Pad]).
//
// Layers that cannot be written are a mistake in the caller and panic. To break
// a frame on purpose use [Edited].
func Packet(stack ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	complete(stack)
	for i := len(stack) - 1; i >= 0; i-- {
		inner := len(buf.Bytes())
		if err := stack[i].SerializeTo(buf, opts); err != nil {
			panic(fmt.Sprintf("lab: writing layer %d (%s) of a packet: %v", i, stack[i].LayerType(), err))
		}
		buf.PushLayer(stack[i].LayerType())
		if _, ok := stack[i].(*layers.Ethernet); ok && i == 0 {
			return buf.Bytes()[:14+inner] // without gopacket's padding
		}
	}
	return buf.Bytes()
}

// complete fills in what a layer says about its neighbours.
func complete(stack []gopacket.SerializableLayer) {
	var network gopacket.NetworkLayer
	for i, l := range stack {
		var next gopacket.SerializableLayer
		if i+1 < len(stack) {
			next = stack[i+1]
		}
		switch l := l.(type) {
		case *layers.Ethernet:
			setIfZero(&l.EthernetType, etherType(next))
		case *layers.Dot1Q:
			setIfZero(&l.Type, etherType(next))
		case *layers.IPv4:
			network = l
			setIfZero(&l.Version, 4)
			setIfZero(&l.TTL, 64)
			setIfZero(&l.Protocol, ipProtocol(next))
		case *layers.IPv6:
			network = l
			setIfZero(&l.Version, 6)
			setIfZero(&l.HopLimit, 64)
			setIfZero(&l.NextHeader, ipProtocol(next))
		case *Ext:
			setIfZero(&l.Next, ipProtocol(next))
		case *layers.UDP:
			checksumOver(l, network)
		case *layers.TCP:
			checksumOver(l, network)
		case *layers.ICMPv6:
			checksumOver(l, network)
		}
	}
}

func setIfZero[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func checksumOver(l interface {
	SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
}, network gopacket.NetworkLayer) {
	if network == nil {
		panic("lab: a transport layer without an IP layer before it")
	}
	if err := l.SetNetworkLayerForChecksum(network); err != nil {
		panic("lab: " + err.Error())
	}
}

// etherTypeLocal is for payload that no layer describes: IEEE 802 local
// experimental, which no protocol handler takes.
const etherTypeLocal layers.EthernetType = 0x88b5

func etherType(next gopacket.SerializableLayer) layers.EthernetType {
	switch next.(type) {
	case *layers.Dot1Q:
		return layers.EthernetTypeDot1Q
	case *layers.ARP:
		return layers.EthernetTypeARP
	case *layers.IPv4:
		return layers.EthernetTypeIPv4
	case *layers.IPv6:
		return layers.EthernetTypeIPv6
	}
	return etherTypeLocal
}

// protocolLocal is for payload that no layer describes: RFC 3692 experimental.
const protocolLocal layers.IPProtocol = 253

func ipProtocol(next gopacket.SerializableLayer) layers.IPProtocol {
	switch next := next.(type) {
	case *layers.UDP:
		return layers.IPProtocolUDP
	case *layers.TCP:
		return layers.IPProtocolTCP
	case *layers.SCTP:
		return layers.IPProtocolSCTP
	case *layers.ICMPv4:
		return layers.IPProtocolICMPv4
	case *layers.ICMPv6:
		return layers.IPProtocolICMPv6
	case *layers.GRE:
		return layers.IPProtocolGRE
	case *layers.IPv4:
		return layers.IPProtocolIPv4
	case *layers.IPv6:
		return layers.IPProtocolIPv6
	case *Ext:
		return next.Type
	case nil:
		return layers.IPProtocolNoNextHeader
	}
	return protocolLocal
}

// Ext is an IPv6 extension header of any type and content. Body is what follows
// the two bytes of next header and length; it is padded with zeros to a multiple
// of eight bytes in all, and the length written to match. A fragment header
// carries no length: there Body is its remaining seven bytes, the first reserved.
type Ext struct {
	Type layers.IPProtocol
	Next layers.IPProtocol
	Body []byte
}

// LayerType implements gopacket.SerializableLayer.
func (e *Ext) LayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// SerializeTo implements gopacket.SerializableLayer.
func (e *Ext) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	head := []byte{byte(e.Next), 0}
	if e.Type == layers.IPProtocolIPv6Fragment {
		head = head[:1]
	}
	size := (len(head) + len(e.Body) + 7) / 8 * 8
	if len(head) == 2 {
		head[1] = byte(size/8 - 1)
	}
	bytes, err := b.PrependBytes(size)
	if err != nil {
		return err
	}
	clear(bytes[copy(bytes, append(head, e.Body...)):])
	return nil
}

// Flow makes the packets that most tests send. IPv4 or IPv6 follows from Dst.
type Flow struct {
	SrcMAC, DstMAC   net.HardwareAddr
	VLANs            []uint16 // outermost first; with two, the outer tag is 802.1ad
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	TTL, TOS         uint8  // TTL 0: 64
	ID               uint16 // of the IPv4 header
}

// Flow returns a flow that leaves this port towards its peer's MAC address, with
// ports 1000 and 2000. Bad addresses panic.
func (p *Port) Flow(src, dst string) Flow {
	return Flow{
		SrcMAC: p.MAC, DstMAC: p.Peer.MAC, SrcPort: 1000, DstPort: 2000,
		Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst),
	}
}

// UDP returns a UDP packet of the flow.
func (f Flow) UDP(payload string) []byte {
	return f.Carry(&layers.UDP{SrcPort: layers.UDPPort(f.SrcPort), DstPort: layers.UDPPort(f.DstPort)}, gopacket.Payload(payload))
}

// TCP returns a TCP segment of the flow. flags are letters: S A F R P U E C.
func (f Flow) TCP(flags string, seq uint32, payload string) []byte {
	return f.Carry(&layers.TCP{
		SrcPort: layers.TCPPort(f.SrcPort), DstPort: layers.TCPPort(f.DstPort), Seq: seq, Window: 65535,
		SYN: strings.Contains(flags, "S"), ACK: strings.Contains(flags, "A"), FIN: strings.Contains(flags, "F"),
		RST: strings.Contains(flags, "R"), PSH: strings.Contains(flags, "P"), URG: strings.Contains(flags, "U"),
		ECE: strings.Contains(flags, "E"), CWR: strings.Contains(flags, "C"),
	}, gopacket.Payload(payload))
}

// Echo returns an ICMP or ICMPv6 echo request of the flow.
func (f Flow) Echo(id, seq uint16, payload string) []byte {
	if f.Dst.Is4() {
		return f.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: id, Seq: seq}, gopacket.Payload(payload))
	}
	return f.Carry(&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)},
		&layers.ICMPv6Echo{Identifier: id, SeqNumber: seq}, gopacket.Payload(payload))
}

// Carry returns a packet of the flow with anything above its IP header.
func (f Flow) Carry(above ...gopacket.SerializableLayer) []byte {
	eth := &layers.Ethernet{SrcMAC: f.SrcMAC, DstMAC: f.DstMAC}
	if len(f.VLANs) > 1 {
		eth.EthernetType = layers.EthernetTypeQinQ
	}
	stack := []gopacket.SerializableLayer{eth}
	for _, id := range f.VLANs {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: id})
	}
	if f.Dst.Is4() {
		stack = append(stack, &layers.IPv4{SrcIP: f.Src.AsSlice(), DstIP: f.Dst.AsSlice(), TTL: f.TTL, TOS: f.TOS, Id: f.ID})
	} else {
		stack = append(stack, &layers.IPv6{SrcIP: f.Src.AsSlice(), DstIP: f.Dst.AsSlice(), HopLimit: f.TTL, TrafficClass: f.TOS})
	}
	return Packet(append(stack, above...)...)
}
