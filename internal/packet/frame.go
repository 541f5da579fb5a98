// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

const payloadBytes = 18 // fills the smallest UDP packet up to the smallest Ethernet frame

var senderMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 1}

// Frame composes the frame; own is the address of the interface that receives it.
func (d *Description) Frame(own net.HardwareAddr) ([]byte, error) {
	if d.Raw != nil {
		return d.Raw, nil
	}
	ip, err := d.network()
	if err != nil {
		return nil, err
	}
	frame := append(d.ethernet(own), ip...)
	if pad := int(d.number("pad", 0)); pad > len(frame) {
		frame = append(frame, make([]byte, pad-len(frame))...)
	}
	return frame, nil
}

// ethernet gives addresses, tags and type.
func (d *Description) ethernet(own net.HardwareAddr) []byte {
	dst, src := own, senderMAC
	if d.Proto == "arp" && !d.Has("reply") {
		dst = layers.EthernetBroadcast
	}
	if v, ok := d.options["dmac"]; ok {
		dst = v.mac
	}
	if v, ok := d.options["smac"]; ok {
		src = v.mac
	}
	out := append(append([]byte{}, dst...), src...)
	for _, t := range d.options["svlan"].list {
		out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(out, uint16(layers.EthernetTypeQinQ)), t)
	}
	for _, t := range d.options["vlan"].list {
		out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(out, uint16(layers.EthernetTypeDot1Q)), t)
	}
	kind := layers.EthernetTypeIPv4
	switch {
	case d.Proto == "arp":
		kind = layers.EthernetTypeARP
	case d.Src.Addr().Is6():
		kind = layers.EthernetTypeIPv6
	}
	return binary.BigEndian.AppendUint16(out, uint16(kind))
}

// network composes everything behind the Ethernet header.
func (d *Description) network() ([]byte, error) {
	if d.Proto == "arp" {
		return d.arp()
	}
	header := d.ip()
	stack := append([]gopacket.SerializableLayer{header.(gopacket.SerializableLayer)}, d.transport(header)...)
	base, err := serialize(append(stack, gopacket.Payload(nil))...)
	if err != nil {
		return nil, err
	}
	payload := payloadBytes
	if d.Has("len") {
		if payload = int(d.number("len", 0)) - len(base); payload < 0 {
			return nil, fmt.Errorf("option len=%d: the headers alone need %d bytes", d.number("len", 0), len(base))
		}
	}
	out, err := serialize(append(stack, gopacket.Payload(make([]byte, payload)))...)
	if err != nil {
		return nil, err
	}
	if d.Has("badsum") {
		out[10] ^= 0xff
	}
	return out, nil
}

func serialize(stack ...gopacket.SerializableLayer) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		return nil, fmt.Errorf("composing the packet: %w", err)
	}
	return buf.Bytes(), nil
}

func (d *Description) ip() gopacket.NetworkLayer {
	src, dst := net.IP(d.Src.Addr().AsSlice()), net.IP(d.Dst.Addr().AsSlice())
	ttl, tos := uint8(d.number("ttl", 64)), uint8(d.number("tos", 0))
	if d.Src.Addr().Is6() {
		return &layers.IPv6{Version: 6, SrcIP: src, DstIP: dst, HopLimit: ttl, TrafficClass: tos, NextHeader: d.protocol()}
	}
	ip := &layers.IPv4{Version: 4, SrcIP: src, DstIP: dst, TTL: ttl, TOS: tos, Protocol: d.protocol(),
		Id: uint16(d.number("id", 1)), FragOffset: uint16(d.number("frag", 0) / 8)}
	if d.Has("df") {
		ip.Flags |= layers.IPv4DontFragment
	}
	if d.Has("mf") {
		ip.Flags |= layers.IPv4MoreFragments
	}
	if d.Has("rr") { // RFC 791: type 7, length, pointer, room for one address, and an end of the list
		ip.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 7, OptionData: []byte{4, 0, 0, 0, 0}}, {OptionType: 0, OptionLength: 1}}
	}
	return ip
}

func (d *Description) protocol() layers.IPProtocol {
	switch d.Proto {
	case "udp":
		return layers.IPProtocolUDP
	case "tcp":
		return layers.IPProtocolTCP
	case "icmp":
		return layers.IPProtocolICMPv4
	case "icmp6":
		return layers.IPProtocolICMPv6
	}
	return layers.IPProtocol(d.number("proto", 253)) // RFC 3692: for experiments
}

// transport composes the header behind the IP header; a later fragment has none.
func (d *Description) transport(ip gopacket.NetworkLayer) []gopacket.SerializableLayer {
	if d.number("frag", 0) > 0 {
		return nil
	}
	switch d.Proto {
	case "udp":
		udp := &layers.UDP{SrcPort: layers.UDPPort(d.Src.Port()), DstPort: layers.UDPPort(d.Dst.Port())}
		udp.SetNetworkLayerForChecksum(ip)
		return []gopacket.SerializableLayer{udp}
	case "tcp":
		tcp := d.tcp()
		tcp.SetNetworkLayerForChecksum(ip)
		return []gopacket.SerializableLayer{tcp}
	case "icmp":
		kind := layers.CreateICMPv4TypeCode(uint8(d.number("type", layers.ICMPv4TypeEchoRequest)), uint8(d.number("code", 0)))
		return []gopacket.SerializableLayer{&layers.ICMPv4{TypeCode: kind, Id: uint16(d.number("id", 1)), Seq: uint16(d.number("seq", 1))}}
	case "icmp6":
		kind := layers.CreateICMPv6TypeCode(uint8(d.number("type", layers.ICMPv6TypeEchoRequest)), uint8(d.number("code", 0)))
		icmp := &layers.ICMPv6{TypeCode: kind}
		icmp.SetNetworkLayerForChecksum(ip)
		return []gopacket.SerializableLayer{icmp, &layers.ICMPv6Echo{Identifier: uint16(d.number("id", 1)), SeqNumber: uint16(d.number("seq", 1))}}
	}
	return nil
}

func (d *Description) tcp() *layers.TCP {
	letters := "A"
	if v, ok := d.options["flags"]; ok {
		letters = v.text
	}
	on := func(letter string) bool { return strings.Contains(letters, letter) }
	return &layers.TCP{SrcPort: layers.TCPPort(d.Src.Port()), DstPort: layers.TCPPort(d.Dst.Port()), Seq: uint32(d.number("seq", 1)), Window: 1024,
		FIN: on("F"), SYN: on("S"), RST: on("R"), PSH: on("P"), ACK: on("A"), URG: on("U"), ECE: on("E"), CWR: on("C")}
}

func (d *Description) arp() ([]byte, error) {
	from := senderMAC
	if v, ok := d.options["smac"]; ok {
		from = v.mac
	}
	op := uint16(layers.ARPRequest)
	if d.Has("reply") {
		op = layers.ARPReply
	}
	return serialize(&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
		SourceHwAddress: from, SourceProtAddress: d.Src.Addr().AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: d.Dst.Addr().AsSlice()})
}
