// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"net"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

// lldp is what a switch says about itself.
func lldp(port int) []Packet {
	to := net.HardwareAddr{0x01, 0x80, 0xc2, 0, 0, 0x0e}
	return in(port, lab.Packet(&layers.Ethernet{SrcMAC: hostMAC(port, 0), DstMAC: to, EthernetType: layers.EthernetTypeLinkLayerDiscovery}, gopacket.Payload("\x02\x07\x04\x02\x00\x00\x01\x00\x03\x04\x02\x05p0\x06\x02\x00\x78\x00\x00")))
}

// dhcp are a client's call to everybody, and a server's answer to the router.
func dhcp(port int) []Packet {
	call := flowOf(port, "0.0.0.0", "255.255.255.255")
	call.DstMAC, call.SrcPort, call.DstPort = layers.EthernetBroadcast, 68, 67
	answer := flowOf(port, h0, "10.0.0.1")
	answer.SrcPort, answer.DstPort = 67, 68
	return in(port, call.UDP("\x01\x01\x06\x00"), answer.UDP("\x02\x01\x06\x00"))
}

// listenerTraps are about packet sockets: what one of them sees is the same with shunt and without (traps 1.20), and one that can see only what goes to
// Linux anyway changes nothing. What every listener heard is compared, and one that heard nothing fails its case.
func listenerTraps() []hand {
	traffic := join(some(), back(), arps(), lldp(0), dhcp(0))
	of0, of1 := Excuse{In: []int{0}, Out: []int{0}}, Excuse{In: []int{1}, Out: []int{1}}
	listeners := func(name, why string, hooks []string, slow Excuse, reasons []string, do ...string) hand {
		return hand{name: name, why: why, hooks: hooks, slow: slow, reasons: reasons, loads: true, steps: []handStep{step(traffic, append(to5(gw1, gw1v6), do...)...)}}
	}
	xdp, tc := []string{"xdp"}, []string{"tc"}
	out := []hand{
		listeners("listener xdp", "what sees everything closes its interface to XDP", xdp, of0, []string{"packet-socket", "fast"}, "listen p0 all"),
		listeners("listener tc", "at tc everything is fast, and seen before and after", tc, Excuse{}, []string{"fast"}, "listen p0 all", "listen p1 all"),
		listeners("listener any xdp", "on every interface", xdp, Excuse{IP4: true, IP6: true}, []string{"packet-socket"}, "listen any all"),
		listeners("listener any tc", "at tc on every interface", tc, Excuse{}, []string{"fast"}, "listen any all"),
		listeners("listener of ip", "one protocol's packets are seen behind tc only", nil, of0, []string{"packet-socket", "fast"}, "listen p0 0800", "listen p0 86dd"),
		listeners("listener lldp", "by protocol: no packet that is forwarded", nil, Excuse{}, []string{"fast"}, "listen p0 88cc"),
		listeners("listener filters", "by filter: none either", nil, Excuse{}, []string{"fast"}, "listen p0 all arp", "listen any all ether proto 0x88cc", "listen p0 all udp and (port 67 or port 68)", "listen p0 0800 udp dst port 68", "listen p0 all ether multicast"),
		listeners("listener of some", "by filter: some of what is forwarded", xdp, of1, []string{"packet-socket", "fast"}, "listen p1 all udp port 2000", "listen p1 all outbound and ip6"),
		listeners("listener of some tc", "the same at tc", tc, Excuse{}, []string{"fast"}, "listen p1 all udp port 2000", "listen p1 all outbound and ip6", "listen p0 all host 10.0.0.10"),
	}
	evil := listeners("listener of a reserved bit", "by filter: what nobody sends, which is forwarded all the same (RFC 791, bit 0 of the flags)", xdp, of0, []string{"packet-socket", "fast"}, "listen p0 all ip[6] & 0x80 != 0")
	evil.steps[0].packets = join(traffic, sized(0, h0, "10.5.1.1", 100, lab.FragmentField(4, 0)))
	out = append(out, evil)
	few := join(some(), back(), arps())
	comes := hand{name: "listener at once", why: "from the next packet on, and while shunt's process is stopped: where packets come in, the guard sees it", slow: Excuse{IP4: true, IP6: true}, reasons: []string{"fast", "stale"}, steps: []handStep{step(few, to5(gw1, gw1v6)...),
		atOnce(few, "listen p0 all", "listen p1 all inbound", "listen p2 all inbound"), step(few), atOnce(few, "unlisten"), step(few, "unlisten"), frozen(few, "listen p0 all icmp or icmp6", "listen p2 all inbound"), step(few, "unlisten"), frozen(few, "listen any all")}}
	return append(out, comes)
}
