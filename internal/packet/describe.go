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

// Describe puts a frame into one line for people. Any bytes will do.
func Describe(frame []byte) string {
	var b strings.Builder
	d := decode(frame)
	if d.eth == nil {
		return fmt.Sprintf("%d bytes that are no Ethernet frame", len(frame))
	}
	for _, tag := range d.tags {
		fmt.Fprintf(&b, "vlan %d ", tag.VLANIdentifier)
	}
	switch {
	case d.ip4 != nil:
		fmt.Fprintf(&b, "%s %s > %s ttl %d", d.transport(uint8(d.ip4.Protocol)), d.end(d.ip4.SrcIP, true), d.end(d.ip4.DstIP, false), d.ip4.TTL)
		describeIP4(&b, d.ip4)
	case d.ip6 != nil:
		fmt.Fprintf(&b, "%s %s > %s hlim %d", d.transport(uint8(d.ip6.NextHeader)), d.end(d.ip6.SrcIP, true), d.end(d.ip6.DstIP, false), d.ip6.HopLimit)
		if d.ip6.TrafficClass != 0 {
			fmt.Fprintf(&b, " tos %#02x", d.ip6.TrafficClass)
		}
		fmt.Fprintf(&b, " len %d", int(d.ip6.Length)+40)
	case d.arp != nil:
		fmt.Fprintf(&b, "arp %s > %s", net.IP(d.arp.SourceProtAddress), net.IP(d.arp.DstProtAddress))
		if d.arp.Operation == layers.ARPReply {
			b.WriteString(" reply")
		}
	default:
		fmt.Fprintf(&b, "ethertype %#04x", uint16(d.ethertype()))
	}
	if d.tcp != nil {
		fmt.Fprintf(&b, " flags %s", tcpFlags(d.tcp))
	}
	fmt.Fprintf(&b, ", %s > %s, %d bytes", d.eth.SrcMAC, d.eth.DstMAC, len(frame))
	return b.String()
}

func describeIP4(b *strings.Builder, ip *layers.IPv4) {
	if ip.TOS != 0 {
		fmt.Fprintf(b, " tos %#02x", ip.TOS)
	}
	if ip.Flags&layers.IPv4DontFragment != 0 {
		b.WriteString(" df")
	}
	if ip.Flags&layers.IPv4MoreFragments != 0 {
		b.WriteString(" mf")
	}
	if ip.FragOffset != 0 {
		fmt.Fprintf(b, " frag %d", int(ip.FragOffset)*8)
	}
	fmt.Fprintf(b, " len %d", ip.Length)
}

// decoded is what could be read of a frame, as far as it goes.
type decoded struct {
	eth  *layers.Ethernet
	tags []*layers.Dot1Q
	ip4  *layers.IPv4
	ip6  *layers.IPv6
	arp  *layers.ARP
	tcp  *layers.TCP
	udp  *layers.UDP
}

func decode(frame []byte) (d decoded) {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.Ethernet:
			if d.eth == nil {
				d.eth = l
			}
		case *layers.Dot1Q:
			d.tags = append(d.tags, l)
		case *layers.IPv4:
			if d.ip4 == nil && d.ip6 == nil {
				d.ip4 = l
			}
		case *layers.IPv6:
			if d.ip4 == nil && d.ip6 == nil {
				d.ip6 = l
			}
		case *layers.ARP:
			d.arp = l
		case *layers.TCP:
			d.tcp = l
		case *layers.UDP:
			d.udp = l
		}
	}
	return d
}

func (d decoded) ethertype() layers.EthernetType {
	if n := len(d.tags); n > 0 {
		return d.tags[n-1].Type
	}
	return d.eth.EthernetType
}

func (d decoded) transport(proto uint8) string {
	switch layers.IPProtocol(proto) {
	case layers.IPProtocolUDP:
		return "udp"
	case layers.IPProtocolTCP:
		return "tcp"
	case layers.IPProtocolICMPv4:
		return "icmp"
	case layers.IPProtocolICMPv6:
		return "icmp6"
	}
	return fmt.Sprintf("ip proto %d", proto)
}

// end is one side of the conversation: the address, with the port where there is one.
func (d decoded) end(ip net.IP, src bool) string {
	var port uint16
	switch {
	case d.udp != nil && src:
		port = uint16(d.udp.SrcPort)
	case d.udp != nil:
		port = uint16(d.udp.DstPort)
	case d.tcp != nil && src:
		port = uint16(d.tcp.SrcPort)
	case d.tcp != nil:
		port = uint16(d.tcp.DstPort)
	default:
		return ip.String()
	}
	return net.JoinHostPort(ip.String(), fmt.Sprint(port))
}

const flagLetters = "FSRPAUEC" // from bit 0

func tcpFlags(t *layers.TCP) string {
	var b strings.Builder
	for i, on := range []bool{t.FIN, t.SYN, t.RST, t.PSH, t.ACK, t.URG, t.ECE, t.CWR} {
		if on {
			b.WriteByte(flagLetters[i])
		}
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}

// Changes lists what a router did between in and out, one phrase each.
func Changes(in, out []byte) (changes []string) {
	a, b := decode(in), decode(out)
	if a.eth == nil || b.eth == nil {
		return nil
	}
	add := func(what string, from, to any) {
		if f, t := fmt.Sprint(from), fmt.Sprint(to); f != t {
			changes = append(changes, fmt.Sprintf("%s %s → %s", what, f, t))
		}
	}
	add("destination MAC", a.eth.DstMAC, b.eth.DstMAC)
	add("source MAC", a.eth.SrcMAC, b.eth.SrcMAC)
	add("VLAN tags", tagList(a.tags), tagList(b.tags))
	if a.ip4 != nil && b.ip4 != nil {
		add("source", a.end(a.ip4.SrcIP, true), b.end(b.ip4.SrcIP, true))
		add("destination", a.end(a.ip4.DstIP, false), b.end(b.ip4.DstIP, false))
		add("TOS", fmt.Sprintf("0x%02x", a.ip4.TOS), fmt.Sprintf("0x%02x", b.ip4.TOS))
		add("TTL", a.ip4.TTL, b.ip4.TTL)
		add("header checksum", fmt.Sprintf("%#04x", a.ip4.Checksum), fmt.Sprintf("%#04x", b.ip4.Checksum))
	}
	if a.ip6 != nil && b.ip6 != nil {
		add("source", a.end(a.ip6.SrcIP, true), b.end(b.ip6.SrcIP, true))
		add("destination", a.end(a.ip6.DstIP, false), b.end(b.ip6.DstIP, false))
		add("traffic class", fmt.Sprintf("0x%02x", a.ip6.TrafficClass), fmt.Sprintf("0x%02x", b.ip6.TrafficClass))
		add("hop limit", a.ip6.HopLimit, b.ip6.HopLimit)
	}
	if len(a.tags) == len(b.tags) {
		add("frame length", len(in), len(out))
	}
	return changes
}

func tagList(tags []*layers.Dot1Q) string {
	if len(tags) == 0 {
		return "none"
	}
	var ids []string
	for _, t := range tags {
		ids = append(ids, fmt.Sprint(t.VLANIdentifier))
	}
	return strings.Join(ids, ",")
}

// Tag is one VLAN tag in a frame.
type Tag struct {
	Proto uint16
	ID    uint16
}

// Tags are the tags that are in a frame, outer first.
func Tags(frame []byte) (tags []Tag) {
	for at := 12; at+4 <= len(frame); at += 4 {
		proto := binary.BigEndian.Uint16(frame[at:])
		if proto != uint16(layers.EthernetTypeDot1Q) && proto != uint16(layers.EthernetTypeQinQ) {
			break
		}
		tags = append(tags, Tag{proto, binary.BigEndian.Uint16(frame[at+2:]) & 0xfff})
	}
	return tags
}

// EtherType is the type behind all tags, 0 where the frame ends before it.
func EtherType(frame []byte) uint16 {
	at := 12 + 4*len(Tags(frame))
	if at+2 > len(frame) {
		return 0
	}
	return binary.BigEndian.Uint16(frame[at:])
}
