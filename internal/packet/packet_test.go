// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var own = net.HardwareAddr{0x02, 0xaa, 0, 0, 0, 9}

func TestFrames(t *testing.T) {
	for text, want := range map[string]string{
		"udp 10.0.0.1:53 > 10.2.0.9:4000":                               "udp 10.0.0.1:53 > 10.2.0.9:4000 ttl 64 len 46, 02:00:00:00:00:01 > 02:aa:00:00:00:09, 60 bytes",
		"udp 10.0.0.1:53>10.2.0.9:4000 ttl=1 tos=0x10":                  "udp 10.0.0.1:53 > 10.2.0.9:4000 ttl 1 tos 0x10 len 46, 02:00:00:00:00:01 > 02:aa:00:00:00:09, 60 bytes",
		"tcp 10.0.0.1:1 > 10.0.0.2:2 flags=sa df":                       "tcp 10.0.0.1:1 > 10.0.0.2:2 ttl 64 df len 58 flags SA, 02:00:00:00:00:01 > 02:aa:00:00:00:09, 72 bytes",
		"icmp 10.0.0.1 > 10.0.0.2 len=1500":                             "icmp 10.0.0.1 > 10.0.0.2 ttl 64 len 1500, 02:00:00:00:00:01 > 02:aa:00:00:00:09, 1514 bytes",
		"icmp6 fd00::1 > fd00:1::2 vlan=100,5":                          "vlan 100 vlan 5 icmp6 fd00::1 > fd00:1::2 hlim 64 len 66, 02:00:00:00:00:01 > 02:aa:00:00:00:09, 88 bytes",
		"udp [fd00::1]:53 > [fd00::2]:54 svlan=7 vlan=8":                "vlan 7 vlan 8 udp [fd00::1]:53 > [fd00::2]:54 hlim 64 len 66, 02:00:00:00:00:01 > 02:aa:00:00:00:09, 88 bytes",
		"arp 10.0.0.1 > 10.0.0.2":                                       "arp 10.0.0.1 > 10.0.0.2, 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, 42 bytes",
		"ip 10.0.0.1 > 10.0.0.2 proto=47 dmac=02:00:00:00:00:07 pad=90": "ip proto 47 10.0.0.1 > 10.0.0.2 ttl 64 len 38, 02:00:00:00:00:01 > 02:00:00:00:00:07, 90 bytes",
	} {
		d, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		frame, err := d.Frame(own)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := Describe(frame); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                         "empty",
		"upd 10.0.0.1:53 > 10.2.0.9:4000":          "these are known: udp, tcp",
		"udp":                                      "two ends",
		"udp 10.0.0.1:53 10.2.0.9:4000":            "source > destination",
		"udp 10.0.0.1:99999 > 10.2.0.9:4000":       "source",
		"udp 10.0.0.1:53 > fd00::1":                "different families",
		"udp [fd00::1]:53 > [fd00::2]:54 id=7":     `option "id" is of IPv4`,
		"02aa000000090200000000010800450":          "this one has 31 digits",
		"icmp 10.0.0.1:5 > 10.0.0.2":               "no ports",
		"icmp fd00::1 > fd00::2":                   "use icmp6",
		"udp 10.0.0.1:53 > 10.2.0.9:4 tll=1":       `unknown option "tll=1"`,
		"udp 10.0.0.1:53 > 10.2.0.9:4 ttl=256":     "0 to 255",
		"udp 10.0.0.1:53 > 10.2.0.9:4 ttl":         "needs a value",
		"udp 10.0.0.1:53 > 10.2.0.9:4 df=1":        "takes no value",
		"udp 10.0.0.1:53 > 10.2.0.9:4 ttl=1 ttl=2": "given twice",
		"udp 10.0.0.1:53 > 10.2.0.9:4 flags=S":     "does not apply to udp",
		"udp 10.0.0.1:53 > 10.2.0.9:4 vlan=1,2,3":  "more than two",
		"udp 10.0.0.1:53 > 10.2.0.9:4 dmac=1":      "not an address",
		"udp [fd00::1]:1 > [fd00::2]:2 df":         "of IPv4",
		"udp [fe80::1%eth0]:1 > [fd00::2]:2":       "zone",
		"0011":                                     "14 (the Ethernet header)",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want a message with %q", text, err, want)
		}
	}
	d, err := Parse("udp 10.0.0.1:53 > 10.2.0.9:4 len=20")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Frame(own); err == nil || !strings.Contains(err.Error(), "headers alone need 28") {
		t.Error(err)
	}
}

func TestChanges(t *testing.T) {
	frame := func(text string) []byte {
		d, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		f, err := d.Frame(own)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		in, out string
		want    []string
	}{
		{"udp 10.0.0.1:53 > 10.2.0.9:4 pad=90", "udp 10.0.0.1:53 > 10.2.0.9:4 ttl=63 dmac=02:00:00:00:00:05",
			[]string{"destination MAC 02:aa:00:00:00:09 → 02:00:00:00:00:05", "TTL 64 → 63", "header checksum", "frame length 90 → 60"}},
		{"udp 10.0.0.1:53 > 10.2.0.9:4", "udp 192.0.2.1:1024 > 10.2.0.7:5 tos=0x10",
			[]string{"source 10.0.0.1:53 → 192.0.2.1:1024", "destination 10.2.0.9:4 → 10.2.0.7:5", "TOS 0x00 → 0x10", "header checksum"}},
		{"icmp 10.0.0.1 > 10.2.0.9", "icmp 192.0.2.1 > 10.2.0.9", []string{"source 10.0.0.1 → 192.0.2.1", "header checksum"}},
		{"tcp [fd00::1]:1 > [fd00::2]:2", "tcp [fd00::3]:1 > [fd00::2]:2 tos=4", []string{"source [fd00::1]:1 → [fd00::3]:1", "traffic class 0x00 → 0x04"}},
	} {
		got := Changes(frame(c.in), frame(c.out))
		if len(got) != len(c.want) {
			t.Errorf("%s, %s: %q, want %q", c.in, c.out, got, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s, %s: %q, want %q at %d", c.in, c.out, got, want, i)
			}
		}
	}
}

// FuzzParse checks that no description panics, that hex comes back as it was, and that everything else that is accepted makes a frame whose
// layers decode, with right checksums.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"udp 10.0.0.1:53 > 10.2.0.9:4000 ttl=1", "tcp [fd00::1]:1 > [fd00::2]:2 flags=S", "arp 1.2.3.4 > 5.6.7.8 reply",
		"icmp 1.2.3.4 > 5.6.7.8 rr frag=8 mf", "ip ::1 > ::2 proto=0 vlan=1,2", "00112233445566778899aabb0800", "icmp6 ::1 > ::2 type=1 code=4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		frame, err := d.Frame(own)
		if err != nil {
			return
		}
		if len(frame) < 14 {
			t.Fatalf("%q gave %d bytes", text, len(frame))
		}
		Describe(frame)
		Changes(frame, frame)
		if d.Raw != nil || d.Proto == "arp" || d.Has("badsum") || d.Src.Addr().Is6() {
			return
		}
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if !ok {
			t.Fatalf("%q has no IPv4 header: % x", text, frame)
		}
		sum := uint32(0)
		for i := 0; i < len(ip.Contents); i += 2 {
			sum += uint32(ip.Contents[i])<<8 | uint32(ip.Contents[i+1])
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		if sum != 0xffff {
			t.Fatalf("%q: header checksum wrong: % x", text, ip.Contents)
		}
	})
}
