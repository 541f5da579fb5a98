// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// hosts are the addresses that answer ARP and neighbour solicitations, by port.
type hosts map[hostKey]net.HardwareAddr

type hostKey struct {
	port int
	addr netip.Addr
}

// set reads "PORT ADDRESS MAC", or "PORT ADDRESS none" for a host that goes away.
func (h hosts) set(line string) error {
	f := strings.Fields(line)
	if len(f) != 3 {
		return fmt.Errorf("host %q: want a port, an address and a MAC address", line)
	}
	port, err := strconv.Atoi(f[0])
	if err != nil {
		return fmt.Errorf("host %q: %w", line, err)
	}
	addr, err := netip.ParseAddr(f[1])
	if err != nil {
		return fmt.Errorf("host %q: %w", line, err)
	}
	if f[2] == "none" {
		delete(h, hostKey{port, addr})
		return nil
	}
	mac, err := net.ParseMAC(f[2])
	if err != nil {
		return fmt.Errorf("host %q: %w", line, err)
	}
	h[hostKey{port, addr}] = mac
	return nil
}

// answer gives what the hosts at a port reply to a frame from the router, with the VLAN tags that it came with; nil if nothing.
func (h hosts) answer(port int, frame []byte) (reply []byte) {
	if inner, at := unwrap(frame); inner != nil {
		return h.answerWithin(port, frame, inner, at)
	}
	tags := tagsOf(frame)
	at := 12 + len(tags)
	if len(frame) < at+2 {
		return nil
	}
	switch binary.BigEndian.Uint16(frame[at:]) {
	case 0x0806:
		reply = h.answerARP(port, frame[at+2:])
	case 0x86dd:
		reply = h.answerND(port, frame[6:12], frame[at+2:])
	}
	if reply != nil {
		reply = slices.Insert(reply, 12, tags...)
	}
	return reply
}

func (h hosts) answerARP(port int, a []byte) []byte {
	if len(a) < 28 || !bytes.Equal(a[:8], []byte{0, 1, 8, 0, 6, 4, 0, 1}) {
		return nil
	}
	mac, ok := h[hostKey{port, netip.AddrFrom4([4]byte(a[24:28]))}]
	if !ok {
		return nil
	}
	return lab.Packet(
		&layers.Ethernet{SrcMAC: mac, DstMAC: a[8:14], EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 2,
			SourceHwAddress: mac, SourceProtAddress: a[24:28], DstHwAddress: a[8:14], DstProtAddress: a[14:18],
		})
}

func (h hosts) answerND(port int, to net.HardwareAddr, ip []byte) []byte {
	if len(ip) < 64 || ip[6] != 58 || ip[40] != 135 {
		return nil
	}
	target := netip.AddrFrom16([16]byte(ip[48:64]))
	mac, ok := h[hostKey{port, target}]
	if !ok {
		return nil
	}
	asker := netip.AddrFrom16([16]byte(ip[8:24]))
	return advertisement(mac, to, target, asker, 0x60)
}

// advertisement is a neighbour advertisement with its target link-layer option. Flags: 0x80 router,
// 0x40 solicited, 0x20 override.
func advertisement(from, to net.HardwareAddr, target, asker netip.Addr, flags byte) []byte {
	return lab.Packet(
		&layers.Ethernet{SrcMAC: from, DstMAC: to},
		&layers.IPv6{SrcIP: target.AsSlice(), DstIP: asker.AsSlice(), HopLimit: 255},
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(136, 0)},
		&layers.ICMPv6NeighborAdvertisement{
			Flags: flags, TargetAddress: target.AsSlice(),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: from}},
		}, gopacket.Payload(nil))
}
