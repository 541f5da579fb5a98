// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
)

const (
	h0, h1     = "10.0.0.10", "10.1.2.3" // behind p0 and p1 of the common router
	h0v6, h1v6 = "fd00::1:0:0:0:10", "2001:db8:1::9"
)

// packetTraps are about packets alone, in the common configuration.
func packetTraps() []hand {
	v4, v6 := flowOf(0, h0, h1), flowOf(0, h0v6, h1v6)
	out := []hand{
		{name: "plain", why: "every protocol, both families, three ports", steps: []handStep{step(some())}, reasons: []string{"fast"}},
		{name: "ttl", why: "TTL 0, 1, 2, 255", steps: []handStep{step(eachEdit(v4, v6, lab.TTL(0), lab.TTL(1), lab.TTL(2), lab.TTL(3), lab.TTL(255)))}, reasons: []string{"ttl", "fast"}},
		{name: "tos", why: "every TOS value", steps: []handStep{step(everyTOS())}, reasons: []string{"fast"}},
		{name: "checksum", why: "the incremental checksum at its corners", steps: []handStep{step(checksumCorners())}, reasons: []string{"fast", "ip4-checksum"}},
		{name: "martians", why: "traps 1.9: bpf_fib_lookup succeeds for special addresses under a default route",
			steps:   []handStep{step(martians(), "ip route add default via 10.0.1.10", "ip route add default via fd00::2:0:0:0:10")},
			reasons: []string{"martian-source", "martian-destination", "local-source", "ip6-address", "fast"}},
		{name: "martians-route-localnet", why: "route_localnet lets 127/8 in",
			steps: []handStep{step(martians(), "ip route add default via 10.0.1.10", "sysctl net.ipv4.conf.all.route_localnet=1")}},
		{name: "options", why: "IP options: Linux interprets them", steps: []handStep{step(options(v4))}, reasons: []string{"ip4-options"}},
		{name: "options-source-route", why: "loose and strict source routes, accepted",
			steps: []handStep{step(options(v4), "sysctl net.ipv4.conf.all.accept_source_route=1", "sysctl net.ipv4.conf.p0.accept_source_route=1")}, reasons: []string{"ip4-options"}},
		{name: "fragments", why: "fragments of all kinds, the reserved flag, DF", steps: []handStep{step(fragments(v4))}, reasons: []string{"fragment", "fast"}},
		{name: "lengths", why: "lengths that lie, padding, bytes behind the packet", steps: []handStep{step(lengths(v4, v6))}, reasons: []string{"ip4-header", "ip6-header", "fast"}},
		{name: "jumbo", why: "long frames, in several buffers",
			steps: []handStep{step(jumbo(), "ip link set p0 mtu 9000", "ip link set p1 mtu 9000", "ip link set p2 mtu 9000")}, reasons: []string{"fast"}},
		{name: "jumbo-to-small", why: "longer than the egress MTU: ICMP, or fragments without DF",
			steps: []handStep{step(jumbo(), "ip link set p0 mtu 9000")}, reasons: []string{"mtu"}},
		{name: "icmp-types", why: "every ICMP type in transit and to the router", steps: []handStep{step(everyICMP())}, reasons: []string{"icmp-error", "icmp6-control", "fast"}},
		{name: "protocols", why: "every protocol number", steps: []handStep{step(everyProtocol())}, reasons: []string{"protocol", "ip6-extension", "fast"}},
		{name: "extension-headers", why: "hop-by-hop, routing, fragment, destination options, no next header", steps: []handStep{step(extensions(v6))}, reasons: []string{"ip6-extension"}},
		{name: "foreign-macs", why: "broadcast, multicast, other hosts; also promiscuous",
			steps: []handStep{step(foreignMACs()), step(foreignMACs(), "ip link set p0 promisc on"),
				step(foreignMACs(), "sysctl net.ipv4.conf.all.drop_unicast_in_l2_multicast=1")}, slow: Excuse{}},
		{name: "ethertypes", why: "everything that is not IP, and IP under the wrong type", steps: []handStep{step(ethertypes())}, reasons: []string{"ethertype"}},
		{name: "vlan-tags", why: "tags that no VLAN device takes, priority tags, double tags", steps: []handStep{step(tags())}, reasons: []string{"vlan-unknown"}},
		{name: "runts", why: "frames cut at every length", steps: []handStep{step(runts(v4, v6))}, reasons: []string{"too-short"}},
		{name: "short-messages", why: "ICMP and UDP with a few bytes or none", steps: []handStep{step(shortMessages())}, reasons: []string{"too-short", "fast"}},
		{name: "udp-checksums", why: "zero and wrong transport checksums are none of a router's business",
			steps: []handStep{step(join(in(0, lab.Edited(v4.UDP("x"), lab.L4(6, 0, 0)), lab.Edited(v6.UDP("x"), lab.L4(6, 0, 0)),
				lab.Edited(v4.UDP("x"), lab.BadTransportChecksum()), lab.Edited(v6.TCP("S", 1, ""), lab.BadTransportChecksum()))))}, reasons: []string{"fast"}},
		{name: "to-the-router", why: "packets to every address of the router, from every side", steps: []handStep{step(toRouter())}, reasons: []string{"not-forwarded"}},
		{name: "directed-broadcast", why: "subnet broadcasts, forwarded only with bc_forwarding", slow: Excuse{IP4: true},
			steps: []handStep{step(broadcasts()), step(broadcasts(), "sysctl net.ipv4.conf.all.bc_forwarding=1", "sysctl net.ipv4.conf.p1.bc_forwarding=1", "sysctl net.ipv4.conf.p0.bc_forwarding=1")}},
		{name: "anycast", why: "the subnet-router anycast address is the router's", steps: []handStep{step(join(udp(0, h0v6, "fd00::2:0:0:0:0"), udp(0, h0v6, "fd00::1:0:0:0:0"), udp(1, "fd00::2:0:0:0:10", "fd00::1:0:0:0:0")))}},
		{name: "local-offloads", why: "checksum and segmentation still to be done (traps 1.13)", hooks: []string{"tc"},
			steps:   []handStep{step(offloads(), "ip link set p2 mtu 1300"), step(offloads(), "ip route add 10.1.5.0/24 via 10.0.1.10 mtu 1200")},
			reasons: []string{"segment-mtu", "fast"}},
		{name: "streams", why: "TCP segments that GRO merges on the way in, and that have to leave as they came, or in fragments",
			steps: []handStep{step(streams()), step(streams(), "ip link set p1 mtu 1280"), step(streams(), "ip route replace 10.2.0.0/16 via 10.0.2.10 mtu lock 1000", "ip route replace 2001:db8:2::/48 via fd00::3:0:0:0:10 mtu 1280")}, slow: Excuse{}},
		{name: "partial-checksums", why: "a checksum to be filled in by the device is lost by XDP_REDIRECT", hooks: []string{"xdp"},
			steps: []handStep{step(partials())}, reasons: []string{"skb-offload"}},
	}
	for i := range out {
		out[i].exact = true
	}
	return out
}

// eachEdit applies each edit to a packet of each family.
func eachEdit(v4, v6 lab.Flow, edits ...lab.Edit) []Packet {
	var out []Packet
	for _, e := range edits {
		out = append(out, in(0, lab.Edited(v4.UDP("x"), e), lab.Edited(v6.UDP("x"), e), lab.Edited(v4.TCP("A", 1, "x"), e))...)
	}
	return out
}

func everyTOS() []Packet {
	var out []Packet
	for tos := 0; tos < 256; tos += 3 {
		for _, f := range []lab.Flow{flowOf(0, h0, h1), flowOf(0, h0v6, h1v6)} {
			f.TOS = uint8(tos)
			out = append(out, Packet{Port: 0, How: WireFrame, Frame: f.UDP("tos")})
		}
	}
	return out
}

// checksumCorners chooses identifications that give each checksum around the places where carries happen.
func checksumCorners() []Packet {
	var out []Packet
	rng := rand.New(rand.NewPCG(1, 2))
	g := &packetGen{rng: rng, c: &Config{N: 2}}
	for i := range 60 {
		f := flowOf(0, h0, h1)
		f.ID, f.TTL = uint16(i), uint8(2+i*4)
		out = append(out, in(0, mutateChecksumFFFF(g, f.UDP("sum"), 0))...)
	}
	for i := range 40 {
		f := flowOf(0, h0, fmt.Sprintf("10.1.%d.%d", rng.IntN(256), rng.IntN(256)))
		f.ID = uint16(rng.IntN(65536))
		frame := f.UDP("sum")
		out = append(out, in(0, frame, lab.Edited(frame, lab.BadIPChecksum()), lab.Edited(frame, lab.L3(10, byte(i), byte(i))))...)
	}
	return out
}

func martians() []Packet {
	var out []Packet
	v4 := []string{"0.0.0.0", "0.1.2.3", "0.255.255.255", "1.0.0.0", "126.255.255.255", "127.0.0.1", "127.255.255.255", "128.0.0.0", "169.254.1.1",
		"223.255.255.255", "224.0.0.1", "224.0.0.251", "239.1.2.3", "240.0.0.0", "250.1.1.1", "255.255.255.254", "255.255.255.255",
		"10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.0.255", "10.0.0.0", "10.0.1.255", "10.0.1.0", "192.0.2.1"}
	v6 := []string{"::", "::1", "::2", "::ffff:10.0.0.10", "::10.0.0.10", "fe80::1", "fe80::ff:fe00:101", "febf::1", "fec0::1", "feff::1", "ff01::1", "ff02::1", "ff02::2",
		"ff05::2", "ff0e::1", "fdff::1", "fd00::1:0:0:0:1", "fd00::2:0:0:0:1", "fd00::1:0:0:0:0", "0:0:0:1::1", "64:ff9b::1", "2002:a00:1::1", "1::1"}
	for i, list := range [][]string{v4, v6} {
		src, dst := []string{h0, h0v6}[i], []string{h1, h1v6}[i]
		for _, a := range list {
			out = append(out, udp(0, a, dst)...)
			out = append(out, udp(0, src, a)...)
		}
	}
	return out
}

func options(f lab.Flow) []Packet {
	var out []Packet
	base := f.UDP("options")
	for _, o := range [][]byte{
		{1, 1, 1, 1}, {0, 0, 0, 0}, {0x94, 4, 0, 0}, {0x94, 4, 0, 1}, {7, 7, 4, 0, 0, 0, 0}, {7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0}, {7, 3, 4}, {7, 7, 8, 9, 9, 9, 9},
		{0x83, 7, 4, 10, 0, 1, 11}, {0x89, 7, 4, 10, 0, 1, 11}, {0x83, 7, 8, 10, 0, 1, 11}, {0x83, 11, 4, 10, 0, 0, 1, 10, 0, 1, 11}, {0x44, 8, 9, 0, 0, 0, 0, 0}, {0x44, 8, 9, 0xf0, 0, 0, 0, 0},
		{0x88, 4, 0, 1}, {99, 4, 1, 2}, {7, 1}, {7, 40}, {0x86, 6, 0, 0, 0, 1}, {1}, {7},
	} {
		out = append(out, in(0, lab.Edited(base, lab.IPOptions(o...)))...)
		router := flowOf(0, h0, "10.0.0.1")
		out = append(out, in(0, lab.Edited(router.UDP("options"), lab.IPOptions(o...)))...)
	}
	return out
}

func fragments(f lab.Flow) []Packet {
	var out []Packet
	base := f.UDP("a fragment of some bytes")
	for _, flags := range []byte{0, 1, 2, 3, 4, 5, 6, 7} {
		for _, offset := range []uint16{0, 1, 2, 185, 8190, 8191} {
			out = append(out, Packet{Port: 0, How: WireFrame, Frame: lab.Edited(base, lab.FragmentField(flags, offset))})
		}
	}
	// A packet to the router in two parts is put together and answered.
	echo := flowOf(0, h0, "10.0.0.1").Echo(3, 4, "0123456789abcdef0123456789abcdef")
	a := lab.Edited(echo, lab.Truncate(14+20+24), lab.IPLength(44), lab.FragmentField(1, 0))
	b := lab.Edited(append(append([]byte{}, echo[:34]...), echo[34+24:]...), lab.IPLength(len(echo)-14-24), lab.FragmentField(0, 3))
	return append(out, in(0, a, b)...)
}

func lengths(v4, v6 lab.Flow) []Packet {
	var out []Packet
	for i, base := range [][]byte{v4.UDP("lengths"), v6.UDP("lengths")} {
		have := len(base) - 14 - 40*i
		for _, n := range []int{0, 1, 7, 8, 19, 20, 21, 27, 28, have - 1, have, have + 1, have + 40, 1500, 40000, 65535} {
			out = append(out, in(0, lab.Edited(base, lab.IPLength(n)))...)
		}
		for _, n := range []int{55, 60, 61, 64, 100, 1514} {
			out = append(out, in(0, lab.Edited(base, lab.Pad(n)))...)
		}
		out = append(out, in(0, lab.Edited(base, lab.Append(1, 2, 3)), lab.Edited(base, lab.Append(1, 2, 3), lab.IPLength(have+2)))...)
		for _, v := range []byte{0, 3, 4, 5, 6, 7, 15} {
			out = append(out, in(0, lab.Edited(base, lab.IPVersion(v), lab.FixIPChecksum()))...)
		}
	}
	for words := byte(0); words < 16; words++ {
		frame := v4.UDP("header length, with enough bytes behind it for any that the field can claim")
		out = append(out, in(0, lab.Edited(frame, lab.IHL(words)))...)
	}
	return out
}

func jumbo() []Packet {
	var out []Packet
	for _, n := range []int{1400, 1499, 1500, 1501, 1600, 2000, 3000, 3300, 3500, 4000, 4096, 6000, 8000, 8999, 9000} {
		out = append(out, sized(0, h0, h1, n)...)
		out = append(out, sized(0, h0, h1, n, lab.FragmentField(2, 0))...)
		out = append(out, sized(0, h0v6, h1v6, n)...)
		out = append(out, sized(0, h0, h1, n, lab.Append(1, 2, 3, 4, 5))...)
	}
	return out
}

func everyICMP() []Packet {
	var out []Packet
	for _, dst := range []string{h1, "10.0.0.1"} {
		f := flowOf(0, h0, dst)
		inner := flowOf(1, dst, h0).UDP("inner")[14:]
		for t := range 46 {
			out = append(out, Packet{Port: 0, How: WireFrame, Frame: f.Carry(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(uint8(t), 0), Id: 5}, gopacket.Payload(inner))})
		}
	}
	for _, dst := range []string{h1v6, "fd00::1:0:0:0:1"} {
		f := flowOf(0, h0v6, dst)
		inner := flowOf(1, dst, h0v6).UDP("inner")[14:]
		for _, t := range []uint8{0, 1, 2, 3, 4, 5, 100, 101, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 148, 151, 152, 153, 155, 200, 255} {
			out = append(out, Packet{Port: 0, How: WireFrame, Frame: f.Carry(&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(t, 0)}, gopacket.Payload([]byte{0, 0, 5, 0}), gopacket.Payload(inner))})
		}
	}
	return out
}

func everyProtocol() []Packet {
	var out []Packet
	for p := range 256 {
		v4, v6 := flowOf(0, h0, h1).UDP("protocol"), flowOf(0, h0v6, h1v6).UDP("protocol")
		out = append(out,
			Packet{Port: 0, How: WireFrame, Frame: lab.Edited(v4, lab.L3(9, byte(p)), lab.FixIPChecksum())},
			Packet{Port: 0, How: WireFrame, Frame: lab.Edited(v6, lab.L3(6, byte(p)))})
	}
	return out
}

func extensions(f lab.Flow) []Packet {
	var out []Packet
	rng := rand.New(rand.NewPCG(3, 4))
	g := &packetGen{rng: rng, c: &Config{N: 2}}
	for range 120 {
		frame := mutateExtension(g, f.UDP("behind a header"), 0)
		if rng.IntN(4) == 0 {
			frame = mutateExtension(g, frame, 0)
		}
		out = append(out, Packet{Port: 0, How: WireFrame, Frame: frame})
	}
	return out
}

func foreignMACs() []Packet {
	var out []Packet
	g := &packetGen{rng: rand.New(rand.NewPCG(5, 6)), c: &Config{N: 2}}
	for _, f := range []lab.Flow{flowOf(0, h0, h1), flowOf(0, h0v6, h1v6), flowOf(0, h0, "10.0.0.1"), flowOf(0, h0, "255.255.255.255")} {
		for range 24 {
			frame := f.UDP("mac")
			copy(frame, g.mac(0))
			out = append(out, in(0, frame)...)
		}
		own := f.UDP("from the router's own MAC address")
		copy(own[6:], portMAC(0))
		group := f.UDP("from a group address")
		copy(group[6:], []byte{1, 0, 0x5e, 1, 1, 1})
		out = append(out, in(0, own, group)...)
	}
	for i := range 6 {
		frame := flowOf(0, h0, h1).UDP("one bit off")
		frame[i] ^= 1 << i
		out = append(out, in(0, frame)...)
	}
	return out
}

func ethertypes() []Packet {
	var out []Packet
	for _, t := range []uint16{0, 1, 0x0026, 0x05dc, 0x05ff, 0x0600, 0x0800, 0x0801, 0x0806, 0x22f3, 0x8035, 0x8100, 0x8137, 0x86dc, 0x86dd, 0x8808, 0x8809, 0x8847, 0x8863, 0x8864,
		0x888e, 0x88a8, 0x88cc, 0x88e5, 0x88f7, 0x8906, 0x9000, 0x9100, 0xffff} {
		for _, f := range []lab.Flow{flowOf(0, h0, h1), flowOf(0, h0v6, h1v6)} {
			frame := f.UDP("a type of its own, with enough bytes for a tag and more behind it")
			frame[12], frame[13] = byte(t>>8), byte(t)
			out = append(out, in(0, frame)...)
		}
	}
	return out
}

func tags() []Packet {
	var out []Packet
	for _, outer := range []uint16{0x8100, 0x88a8} {
		for _, tci := range []uint16{0, 1, 5, 0x1000, 0x2000, 0xe000, 0xe005, 4094, 4095} {
			for _, f := range []lab.Flow{flowOf(0, h0, h1), flowOf(0, h0v6, h1v6)} {
				base := f.UDP("tagged")
				tag := []byte{byte(outer >> 8), byte(outer), byte(tci >> 8), byte(tci)}
				one := append(append(append([]byte{}, base[:12]...), tag...), base[12:]...)
				two := append(append(append([]byte{}, base[:12]...), 0x81, 0, 0, 0), one[12:]...)
				three := append(append(append([]byte{}, base[:12]...), 0x88, 0xa8, 0, 7), two[12:]...)
				out = append(out, in(0, one, two, three, lab.Edited(one, lab.Truncate(16)), lab.Edited(one, lab.Truncate(18)))...)
			}
		}
	}
	return out
}

// shortMessages have so few bytes behind the IP header, and its length says so.
func shortMessages() []Packet {
	var out []Packet
	for _, pair := range [][2]string{{h0, h1}, {h0v6, h1v6}} {
		f := flowOf(0, pair[0], pair[1])
		for _, base := range [][]byte{f.UDP("short"), f.Echo(1, 1, "short"), f.TCP("S", 1, "")} {
			for n := range 12 {
				length, head := 20+n, 34
				if f.Dst.Is6() {
					length, head = n, 54
				}
				out = append(out, in(0, lab.Edited(base, lab.IPLength(length), lab.Truncate(head+n)))...)
			}
		}
	}
	return out
}

func runts(v4, v6 lab.Flow) []Packet {
	var out []Packet
	for _, base := range [][]byte{v4.UDP("runt"), v6.UDP("runt"), v4.TCP("S", 1, ""), v4.Echo(1, 1, ""), v6.Echo(1, 1, "")} {
		for n := 14; n <= len(base); n++ {
			out = append(out, Packet{Port: 0, How: WireFrame, Frame: lab.Edited(base, lab.Truncate(n))})
		}
		// The same with lengths that agree.
		for n := 35; n < len(base); n++ {
			if h, _ := readIP(base); h.version == 4 {
				out = append(out, Packet{Port: 0, How: WireFrame, Frame: lab.Edited(base, lab.Truncate(n), lab.IPLength(n-14))})
			} else if n >= 54 {
				out = append(out, Packet{Port: 0, How: WireFrame, Frame: lab.Edited(base, lab.Truncate(n), lab.IPLength(n-54))})
			}
		}
	}
	return out
}

func toRouter() []Packet {
	var out []Packet
	for port := range 3 {
		for _, dst := range []string{"10.0.0.1", "10.0.1.1", "10.0.2.1"} {
			f := flowOf(port, fmt.Sprintf("10.0.%d.10", port), dst)
			out = append(out, in(port, f.UDP("to you"), f.TCP("S", 7, ""), f.TCP("A", 7, "x"), f.Echo(9, 9, "ping"))...)
		}
		for i := range 3 {
			f := flowOf(port, addr6(port, 0, 0x10).String(), addr6(i, 0, 1).String())
			out = append(out, in(port, f.UDP("to you"), f.TCP("S", 7, ""), f.Echo(9, 9, "ping"))...)
		}
	}
	return out
}

func broadcasts() []Packet {
	var out []Packet
	for _, dst := range []string{"10.0.0.255", "10.0.0.0", "10.0.1.255", "10.0.1.0", "10.0.2.255", "10.1.255.255", "255.255.255.255"} {
		f := flowOf(0, h0, dst)
		out = append(out, in(0, f.UDP("all"), f.Echo(1, 1, "all"))...)
		b := f.UDP("all")
		copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		out = append(out, in(0, b)...)
	}
	return append(out, udp(0, "10.0.0.255", h1)...)
}

func offloads() []Packet {
	var out []Packet
	for _, dst := range []string{h1, "10.2.3.4", "10.1.5.5"} {
		for _, size := range []int{500, 1100, 1200, 1240, 1259, 1260, 1261, 1400, 1460} {
			f := flowOf(0, h0, dst)
			p := Packet{Port: 0, How: Offload, GSO: uint16(size), Frame: f.TCP("A", uint32(size), string(make([]byte, 2*size+50)))}
			out = append(out, partial(p))
			p.Frame = lab.Edited(f.TCP("PA", uint32(size), string(make([]byte, 3*size))), lab.FragmentField(2, 0))
			out = append(out, partial(p))
		}
	}
	for _, dst := range []string{h1v6, "2001:db8:2::7"} {
		for _, size := range []int{1200, 1240, 1241, 1440} {
			out = append(out, partial(Packet{Port: 0, How: Offload, GSO: uint16(size), Frame: flowOf(0, h0v6, dst).TCP("A", uint32(size), string(make([]byte, 2*size+50)))}))
		}
	}
	return append(out, partials()...)
}

func partials() []Packet {
	var out []Packet
	for _, f := range []lab.Flow{flowOf(0, h0, h1), flowOf(0, h0v6, h1v6), flowOf(0, h0, "10.0.0.1")} {
		out = append(out, partial(Packet{Port: 0, How: Offload, Frame: f.UDP("partial")}), partial(Packet{Port: 0, How: Offload, Frame: f.TCP("S", 1, "partial")}))
	}
	return out
}

func streams() []Packet {
	var out []Packet
	for i, pair := range [][2]string{{h0, h1}, {h0, "10.2.3.4"}, {h0v6, h1v6}, {h0v6, "2001:db8:2::7"}} {
		for _, size := range []int{536, 1000, 1240, 1400} {
			f := flowOf(0, pair[0], pair[1])
			f.SrcPort = uint16(5000 + i*100 + size)
			out = append(out, segments(0, f, size, 6)...)
		}
	}
	return out
}
