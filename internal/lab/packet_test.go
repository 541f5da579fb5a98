// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func flow(src, dst string) Flow {
	return Flow{
		SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), SrcPort: 1000, DstPort: 2000,
	}
}

var (
	v4 = flow("10.0.0.1", "10.1.0.9")
	v6 = flow("fd00::1", "2001:db8::9")
)

// TestDescribe also tests the builder and the edits: the line names whatever is
// wrong with a frame, so one without BAD has right lengths and checksums, and one
// with BAD has been broken in that way only.
func TestDescribe(t *testing.T) {
	tagged, double := v4, v6
	tagged.VLANs, double.VLANs = []uint16{7}, []uint16{100, 5}
	const macs = "02:00:00:00:00:01 > 02:00:00:00:00:02 "
	const ip4, ip6 = "10.0.0.1 > 10.1.0.9 ttl 64 id 0 ", "fd00::1 > 2001:db8::9 hlim 64 "
	udp, udp6 := v4.UDP("hello"), v6.UDP("hello")
	arp := Packet(&layers.Ethernet{SrcMAC: v4.SrcMAC, DstMAC: layers.EthernetBroadcast}, &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, Operation: layers.ARPRequest,
		SourceHwAddress: v4.SrcMAC, SourceProtAddress: []byte{10, 0, 0, 1},
		DstHwAddress: make([]byte, 6), DstProtAddress: []byte{10, 0, 0, 2},
	})
	for _, c := range []struct {
		frame []byte
		want  string
	}{
		{udp, macs + ip4 + "udp 1000 > 2000, 47 bytes"},
		{udp6, macs + ip6 + "udp 1000 > 2000, 67 bytes"},
		{v4.TCP("SA", 7, ""), macs + ip4 + "tcp 1000 > 2000 SA seq 7, 54 bytes"},
		{v6.TCP("FPA", 7, "x"), macs + ip6 + "tcp 1000 > 2000 FPA seq 7, 75 bytes"},
		{v4.Echo(1, 2, "ping"), macs + ip4 + "icmp EchoRequest, 46 bytes"},
		{v6.Echo(1, 2, "ping"), macs + ip6 + "icmp6 EchoRequest, 66 bytes"},
		{tagged.UDP(""), macs + "vlan 7 " + ip4 + "udp 1000 > 2000, 46 bytes"},
		{double.UDP(""), macs + "qinq 100 vlan 5 " + ip6 + "udp 1000 > 2000, 70 bytes"},
		{Edited(tagged.UDP(""), L2(14, 0xb0)), macs + "vlan 7 pcp 5 dei 1 " + ip4 + "udp 1000 > 2000, 46 bytes"},
		{arp, "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff arp op 1, 10.0.0.1 at 02:00:00:00:00:01, for 10.0.0.2, 42 bytes"},
		{v4.Carry(gopacket.Payload("?")), macs + ip4 + "proto 253, 35 bytes"},
		{v6.Carry(&Ext{Type: layers.IPProtocolIPv6HopByHop, Body: []byte{5, 2, 0, 0}},
			&Ext{Type: layers.IPProtocolIPv6Destination, Body: make([]byte, 9)},
			&layers.UDP{SrcPort: 1, DstPort: 2}), macs + ip6 + "ext 0 udp 1 > 2, 86 bytes"},
		{v6.Carry(&Ext{Type: layers.IPProtocolIPv6Fragment, Body: []byte{0, 0, 8 | 1}}, gopacket.Payload("rest")),
			macs + ip6 + "ext 44 fragment proto 253, 66 bytes"},

		{Edited(udp, Pad(60)), macs + ip4 + "udp 1000 > 2000, 60 bytes (13 behind the packet)"},
		{Edited(udp6, Append(1, 2)), macs + ip6 + "udp 1000 > 2000, 69 bytes (2 behind the packet)"},
		{Edited(udp, TTL(1)), macs + "10.0.0.1 > 10.1.0.9 ttl 1 id 0 udp 1000 > 2000, 47 bytes"},
		{Edited(udp6, TTL(0)), macs + "fd00::1 > 2001:db8::9 hlim 0 udp 1000 > 2000, 67 bytes"},
		{Edited(udp, FragmentField(2, 0)), macs + ip4 + "df udp 1000 > 2000, 47 bytes"},
		{Edited(udp, FragmentField(1, 0)), macs + ip4 + "fragment at 0+ udp 1000 > 2000, 47 bytes"},
		{Edited(udp, FragmentField(4, 185)), macs + ip4 + "reserved-flag fragment at 1480 proto 17, 47 bytes"},
		{Edited(udp, IPOptions(7, 3, 4)), macs + ip4 + "options 07 03 04 00 udp 1000 > 2000, 51 bytes"},
		{Edited(udp, L4(6, 0, 0)), macs + ip4 + "udp 1000 > 2000, 47 bytes"},
		{Edited(udp, L4(0, 0, 1), FixTransportChecksum()), macs + ip4 + "udp 1 > 2000, 47 bytes"},

		{Edited(udp, BadIPChecksum()), macs + ip4 + "BAD IP CHECKSUM udp 1000 > 2000, 47 bytes"},
		{Edited(udp, BadTransportChecksum()), macs + ip4 + "udp 1000 > 2000 BAD CHECKSUM, 47 bytes"},
		{Edited(udp6, BadTransportChecksum()), macs + ip6 + "udp 1000 > 2000 BAD CHECKSUM, 67 bytes"},
		{Edited(udp6, L4(6, 0, 0)), macs + ip6 + "udp 1000 > 2000 BAD CHECKSUM, 67 bytes"},
		{Edited(v6.Echo(1, 2, ""), BadTransportChecksum()), macs + ip6 + "icmp6 EchoRequest BAD CHECKSUM, 62 bytes"},
		{Edited(udp, IPVersion(6), FixIPChecksum()), macs + ip4 + "BAD VERSION 6 udp 1000 > 2000, 47 bytes"},
		{Edited(udp, IHL(4)), macs + ip4 + "BAD HEADER LENGTH 16 proto 17, 47 bytes"},
		{Edited(udp, IPLength(99)), macs + ip4 + "BAD LENGTH 99 udp 1000 > 2000, 47 bytes"},
		{Edited(udp, IPLength(28)), macs + ip4 + "udp 1000 > 2000 BAD UDP LENGTH 13 BAD CHECKSUM, 47 bytes (5 behind the packet)"},
		{Edited(udp6, IPLength(99)), macs + ip6 + "BAD LENGTH 99 udp 1000 > 2000, 67 bytes"},
		{Edited(udp, Truncate(40)), macs + ip4 + "BAD LENGTH 33 proto 17, 40 bytes"},
		{udp[:13], "runt of 13 bytes: 02 00 00 00 00 02 02 00 00 00 00 01 08"},
	} {
		if got := Describe(c.frame); got != c.want {
			t.Errorf("described as\n %s\nwant\n %s", got, c.want)
		}
	}
}

// TestDescribeTakesAnything: it runs on whatever a test captured.
func TestDescribeTakesAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tagged := v4
	tagged.VLANs = []uint16{1, 2}
	seeds := [][]byte{
		v4.UDP("hello"), v6.TCP("S", 1, "x"), tagged.Echo(1, 2, "x"),
		v6.Carry(&Ext{Type: layers.IPProtocolIPv6Routing, Body: make([]byte, 6)}, &layers.UDP{}),
	}
	for range 20000 {
		frame := Edited(seeds[rng.IntN(len(seeds))])
		for range rng.IntN(4) {
			frame[rng.IntN(len(frame))] = byte(rng.Uint32())
		}
		frame = frame[:rng.IntN(len(frame)+1)]
		if line := Describe(frame); strings.ContainsRune(line, '\n') || line == "" {
			t.Fatalf("% x is described as %q", frame, line)
		}
		Noise(frame)
	}
}

// TestPacketAgreesWithGopacket decodes what Packet made by someone else's rules.
func TestPacketAgreesWithGopacket(t *testing.T) {
	v4, v6 := v4, v6
	v4.DstPort, v6.DstPort = 40000, 40000 // a port that gopacket knows no protocol for
	v4.SrcPort, v6.SrcPort = 40001, 40001
	tagged := v6
	tagged.VLANs = []uint16{9, 10}
	for _, frame := range [][]byte{v4.UDP("hello"), v4.TCP("S", 1, "data"), tagged.UDP("x"), v6.Echo(1, 2, "abc"), v4.Echo(3, 4, "")} {
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		if e := p.ErrorLayer(); e != nil {
			t.Errorf("%s: %v", Describe(frame), e.Error())
		}
		for _, l := range p.Layers() {
			if l, ok := l.(interface {
				SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
			}); ok {
				must(t, l.SetNetworkLayerForChecksum(p.NetworkLayer()))
			}
		}
		err, mismatches := p.VerifyChecksums()
		if err != nil || len(mismatches) > 0 {
			t.Errorf("%s: checksums %v (%v)", Describe(frame), mismatches, err)
		}
	}
}

func TestDiff(t *testing.T) {
	a := v4.UDP("hello")
	if d := Diff(a, Edited(a)); d != "" {
		t.Errorf("equal frames differ:\n%s", d)
	}
	d := Diff(a, Edited(a, L3(8, 63), Append(9)))
	for _, want := range []string{"byte  22: want 40, got 3f", "byte  47: want none, got 09"} {
		if !strings.Contains(d, want) {
			t.Errorf("%q is not in\n%s", want, d)
		}
	}
}

func TestPrefixes(t *testing.T) {
	p := func(s string, count, step int) Prefixes {
		return Prefixes{First: netip.MustParsePrefix(s), Count: count, Step: step}
	}
	for _, c := range []struct {
		p          Prefixes
		i, host    int
		at, hostIs string
	}{
		{V4Prefixes(50), 0, 1, "16.0.0.0/24", "16.0.0.1"},
		{V4Prefixes(1 << 20), 1<<20 - 1, 255, "31.255.255.0/24", "31.255.255.255"},
		{V6Prefixes(50), 49, 1, "2001:db8:0:31::/64", "2001:db8:0:31::1"},
		{p("10.0.0.0/8", 3, 2), 2, 5, "14.0.0.0/8", "14.0.0.5"},
		{p("10.0.0.4/32", 9, 3), 2, 0, "10.0.0.10/32", "10.0.0.10"},
		{p("fd00::/120", 300, 0), 256, 7, "fd00::1:0/120", "fd00::1:7"},
		{p("fd00::/32", 9, 1), 1, 0, "fd00:1::/32", "fd00:1::"},
	} {
		if at, host := c.p.At(c.i).String(), c.p.Host(c.i, c.host).String(); at != c.at || host != c.hostIs {
			t.Errorf("%v: prefix %d is %s with host %s, want %s with %s", c.p, c.i, at, host, c.at, c.hostIs)
		}
	}
}

// TestFragments: each is in order, none is too long, the parts make up the whole.
func TestFragments(t *testing.T) {
	for _, frame := range [][]byte{
		v4.UDP(strings.Repeat("abcdefg", 100)), v6.UDP(strings.Repeat("abcdefg", 100)),
		Edited(v4.UDP(strings.Repeat("x", 600)), IPOptions(1, 1, 1, 0), Pad(700)),
	} {
		whole := parse(frame)
		header := whole.l3 + 40
		if whole.version == 4 {
			header = whole.l4
		}
		var parts []byte
		fragments := Fragments(frame, 300)
		for i, f := range fragments {
			line := Describe(f)
			if len(f)-14 > 300 || !strings.Contains(line, "fragment") || strings.Contains(line, "BAD") {
				t.Errorf("fragment %d: %s", i, line)
			}
			p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
			offset, more := 0, false
			if ip, ok := p.NetworkLayer().(*layers.IPv4); ok {
				offset, more = int(ip.FragOffset)*8, ip.Flags&layers.IPv4MoreFragments != 0
				parts = append(parts, ip.Payload...)
			} else {
				frag := p.Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment)
				offset, more = int(frag.FragmentOffset)*8, frag.MoreFragments
				parts = append(parts, frag.Payload...)
			}
			if before := len(parts) - len(f) + header + map[byte]int{6: 8}[whole.version]; offset != before || more != (i < len(fragments)-1) {
				t.Errorf("fragment %d at %d, more %v; before it there are %d bytes", i, offset, more, before)
			}
		}
		if string(parts) != string(frame[header:whole.end]) || len(fragments) < 3 {
			t.Errorf("%d fragments do not make up %s", len(fragments), Describe(frame))
		}
	}
	small := v4.UDP("x")
	if f := Fragments(small, 300); len(f) != 1 || Diff(small, f[0]) != "" {
		t.Error("a packet that fits was changed")
	}
}
