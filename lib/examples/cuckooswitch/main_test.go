// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/examples/function/functest"
)

func TestMain(m *testing.M) { os.Exit(functest.Main(m)) }

const ports = 3

// A twin is the switch in plain Go: where a station was seen last.
type twin map[[8]byte]int

type frame struct {
	in       int
	to, from byte
	vlan     uint16
	number   uint32
}

func (f frame) bytes() []byte {
	mac := func(n byte) net.HardwareAddr {
		if n == 0 {
			return net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		}
		return net.HardwareAddr{2, 0, 0, 0, 1, n}
	}
	eth := &layers.Ethernet{SrcMAC: mac(f.from), DstMAC: mac(f.to)}
	ip := &layers.IPv4{SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}, Id: uint16(f.number)}
	udp := &layers.UDP{SrcPort: 7, DstPort: 9}
	if f.vlan > 0 {
		return lab.Packet(eth, &layers.Dot1Q{VLANIdentifier: f.vlan}, ip, udp)
	}
	return lab.Packet(eth, ip, udp)
}

// ways returns the ports that the frame has to leave by, and learns.
func (w twin) ways(f frame) (out []int) {
	at := func(mac byte) (key [8]byte) {
		key[0] = mac
		binary.NativeEndian.PutUint16(key[6:], f.vlan)
		return key
	}
	w[at(f.from)] = f.in
	if known, ok := w[at(f.to)]; ok && f.to != 0 {
		if known == f.in {
			return nil
		}
		return []int{known}
	}
	for port := range ports {
		if port != f.in {
			out = append(out, port)
		}
	}
	return out
}

// TestSwitching: every frame leaves by the ports by which a switch in plain Go sends it, unchanged, and by no other.
func TestSwitching(t *testing.T) {
	f := newSwitch(3)
	site := functest.AttachAll(t, f, ports)
	capture, err := lab.NewCapture(site.Net.Port("wire", "w0"), site.Net.Port("wire", "w1"), site.Net.Port("wire", "w2"))
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	r := rand.New(rand.NewPCG(4, 4))
	w := twin{}
	type seen struct {
		port  int
		frame string
	}
	want := map[seen]int{}
	total := 0
	for n := range uint32(600) {
		fr := frame{in: r.IntN(ports), to: byte(r.IntN(12)), from: byte(1 + r.IntN(11)), vlan: uint16(10 * r.IntN(3)), number: n}
		for _, out := range w.ways(fr) {
			want[seen{out, string(fr.bytes())}]++
			total++
		}
		if err := site.Net.Port("wire", []string{"w0", "w1", "w2"}[fr.in]).Send(fr.bytes()); err != nil {
			t.Fatal(err)
		}
		if n%20 == 19 { // devices are polled one by one: a frame of one port may overtake another's
			time.Sleep(time.Millisecond)
		}
	}
	frames, err := capture.Take(total, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for _, fr := range frames {
		if lab.Noise(fr.Data) {
			continue
		}
		got++
		key := seen{int(fr.Port.Name[1] - '0'), string(fr.Data)}
		if want[key]--; want[key] < 0 {
			t.Errorf("%s should not have left by %s", lab.Describe(fr.Data), fr.Port.Name)
		}
	}
	if got != total {
		t.Errorf("%d frames came out, want %d", got, total)
	}
	report, err := f.Report(site.Coll)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
}
