// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"sort"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// trafficCases are small cases that between them use every branch of the
// generator's program.
func trafficCases(p *Port) map[string]Traffic {
	v4, v6 := p.Traffic("10.0.0.2", V4Prefixes(50)), p.Traffic("fd00:0:0:1::2", V6Prefixes(50))
	with := func(t Traffic, edit func(*Traffic)) Traffic { edit(&t); return t }
	return map[string]Traffic{
		"v4":          v4,
		"v4 one flow": with(v4, func(t *Traffic) { t.Flows = 1 }),
		"v4 flows":    with(v4, func(t *Traffic) { t.Flows = 2000; t.Size = 1514 }),
		"v4 1M":       with(v4, func(t *Traffic) { t.Dst = V4Prefixes(1 << 20); t.Host = 77 }),
		"v4 stride": with(v4, func(t *Traffic) {
			t.Dst = Prefixes{First: netip.MustParsePrefix("198.18.0.0/28"), Count: 7, Step: 3}
		}),
		"v4 sources": with(v4, func(t *Traffic) { t.Src, t.Sources = netip.MustParseAddr("20.255.254.3"), 100_000 }),
		"v6":         v6,
		"v6 flows":   with(v6, func(t *Traffic) { t.Flows = 2000; t.Size = 1514 }),
		"v6 hosts": with(v6, func(t *Traffic) {
			t.Dst = Prefixes{First: netip.MustParsePrefix("2001:db8:ffff:ffff::/112"), Count: 9, Step: 2}
		}),
		"v4 zero sum": zeroSum(v4, func(o offsets, frame []byte) uint32 { return sum(0, Edited(frame, L3(10, 0, 0))[14:34]) }),
		"v6 zero sum": zeroSum(v6, func(o offsets, frame []byte) uint32 { return o.transportSum(Edited(frame, L4(6, 0, 0))) }),
	}
}

// zeroSum looks for a source address that makes the only packet's checksum, taken
// over the packet without it, come out as zero. There are two ways to write that.
func zeroSum(t Traffic, over func(offsets, []byte) uint32) Traffic {
	t.Dst.Count = 1
	for ; ; t.Src = t.Src.Next() {
		if m, err := t.template(); err != nil || over(parse(m.frame), m.frame) == 0xffff {
			return t
		}
	}
}

// TestGeneratorMakesWhatItIsAskedFor captures a slow stream of each case and
// checks each packet byte by byte against the flows that the traffic may hold,
// and that it holds many of them.
func TestGeneratorMakesWhatItIsAskedFor(t *testing.T) {
	t.Parallel()
	a, b := pair(t, ReceiveXDP)
	for name, traffic := range trafficCases(a) {
		traffic.Rate = 20000
		c := captureT(t, b)
		g, err := a.Generator(traffic, 0)
		must(t, err)
		before, err := a.refused()
		must(t, err)
		must(t, g.Start())
		_, err = c.Wait(500, 5*time.Second)
		must(t, err)
		must(t, g.Stop())
		sent, err := g.Sent()
		must(t, err)
		must(t, g.Close())
		after, err := a.refused()
		must(t, err)
		refused := after - before
		got := take(t, c, int(sent-refused))
		if uint64(len(got))+refused != sent || len(got) < 100 {
			t.Errorf("%s: %d packets sent, %d arrived, %d refused", name, sent, len(got), refused)
		}
		seen := map[string]bool{}
		for _, frame := range got {
			flow := checkGenerated(t, name, traffic, frame)
			if t.Failed() {
				return
			}
			seen[flow] = true
		}
		flows, draws := float64(traffic.flows()), float64(len(got))
		want := flows * -math.Expm1(-draws/flows) // of uniform independent draws
		if ratio := float64(len(seen)) / want; ratio < 0.9 || ratio > 1.1 {
			t.Errorf("%s: %d different flows in %d packets, expected about %.0f", name, len(seen), len(got), want)
		}
	}
}

// checkGenerated rebuilds the packet from the two fields that may vary.
func checkGenerated(t *testing.T, name string, traffic Traffic, frame []byte) string {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	udp, ok := p.TransportLayer().(*layers.UDP)
	if !ok {
		t.Fatalf("%s: not UDP: %s", name, Describe(frame))
	}
	dst, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Dst().Raw())
	index, found := sort.Find(traffic.Dst.Count, func(i int) int { return dst.Compare(traffic.Dst.Host(i, traffic.Host)) })
	port := int(udp.SrcPort) - int(traffic.SrcPort)
	if flow := port*traffic.Dst.Count + index; !found || port < 0 || flow >= traffic.flows() {
		t.Fatalf("%s: a flow out of range: %s", name, Describe(frame))
	}
	m, err := traffic.template()
	must(t, err)
	src := traffic.Src
	if traffic.Sources > 1 {
		src, _ = netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
		first, here := traffic.Src.As4(), src.As4()
		if n := binary.BigEndian.Uint32(here[:]) - binary.BigEndian.Uint32(first[:]); n >= uint32(traffic.Sources) {
			t.Fatalf("%s: a source out of range: %s", name, Describe(frame))
		}
	}
	want := Flow{
		SrcMAC: traffic.SrcMAC, DstMAC: traffic.DstMAC, Src: src, Dst: dst,
		SrcPort: uint16(udp.SrcPort), DstPort: traffic.DstPort,
	}.UDP(string(make([]byte, traffic.Size-m.header)))
	if dst.Is4() {
		want = Edited(want, L4(6, 0, 0))
	}
	if d := Diff(want, frame); d != "" {
		t.Fatalf("%s: %s", name, d)
	}
	return fmt.Sprint(dst, udp.SrcPort)
}

// TestGeneratorReachesSinkThroughLinux measures a router at full rate. All that
// is asked of the figures is that they agree with each other.
func TestGeneratorReachesSinkThroughLinux(t *testing.T) {
	n := BuildLineT(t, LineOptions{V4: V4Prefixes(50), Threaded: true, Receive: ReceiveGRO})
	must(t, n.Port(Dut, "in").PinNAPI(1))
	sink, err := n.Port(SinkNode, "rx").Sink()
	must(t, err)
	g, err := n.Port(Src, "tx").Generator(n.Port(Src, "tx").Traffic("10.0.0.2", V4Prefixes(50)), 0)
	must(t, err)
	pids, err := n.Port(Dut, "in").NAPIThreads()
	must(t, err)
	if len(pids) != 1 {
		t.Fatalf("%d NAPI threads for one queue", len(pids))
	}

	must(t, g.Start())
	time.Sleep(200 * time.Millisecond)
	sample, err := NewMeter(pids...).Measure(500*time.Millisecond, func() (uint64, error) {
		c, err := sink.Count()
		return c.Packets, err
	})
	must(t, err)
	must(t, g.Stop())
	sent, err := g.Sent()
	must(t, err)
	count := drained(t, sink)
	t.Logf("Linux: %s; sent %d, arrived %d", sample, sent, count.Packets)

	if count.Packets == 0 || count.Packets > sent {
		t.Errorf("%d packets arrived of %d", count.Packets, sent)
	}
	if mean := float64(count.Bytes) / float64(count.Packets); mean < 60 || mean > 60.1 { // the router's own few are larger
		t.Errorf("packets of 60 bytes have %.2f on average", mean)
	}
	if sample.PerPacket() < 20 || sample.PerPacket() > 100e3 || sample.Load() <= 0 || sample.Load() > 1.1 {
		t.Errorf("figures that cannot be: %s", sample)
	}
	must(t, g.Close())
	must(t, sink.Close())

	// A closed sink leaves the port as it was.
	c := captureT(t, n.Port(SinkNode, "rx"))
	must(t, n.Port(Src, "tx").Send(n.Port(Src, "tx").Flow("10.0.0.2", "16.0.0.1").UDP("x")))
	if got := take(t, c, 1); len(got) != 1 {
		t.Errorf("after the sink was closed %d packets arrived, want 1", len(got))
	}
}

// drained returns the sink's counters once nothing more arrives.
func drained(t *testing.T, s *Sink) Count {
	t.Helper()
	for last, err := s.Count(); ; {
		must(t, err)
		time.Sleep(quiet)
		count, err := s.Count()
		must(t, err)
		if count == last {
			return count
		}
		last = count
	}
}

// TestPacedGeneratorKeepsItsRate: it never sends much more, and no less for the
// time that it has its CPU, which other programs may want too.
func TestPacedGeneratorKeepsItsRate(t *testing.T) {
	a, b := pair(t, ReceiveXDP)
	sink, err := b.Sink()
	must(t, err)
	defer sink.Close()
	traffic := a.Traffic("10.0.0.2", V4Prefixes(1))
	traffic.Rate = 50000
	g, err := a.Generator(traffic, 0)
	must(t, err)
	defer g.Close()
	before, err := a.refused()
	must(t, err)
	must(t, g.Start())
	time.Sleep(50 * time.Millisecond)
	s, err := NewMeter(int(g.thread.Load())).Measure(500*time.Millisecond, g.Sent)
	must(t, err)
	must(t, g.Stop())
	perSecond, perRun := s.Rate(), float64(s.Packets)/s.CPU.Seconds()
	t.Logf("%.0f packets per second, %.0f per second of CPU", perSecond, perRun)
	if rate := float64(traffic.Rate); perSecond > 1.1*rate || perRun < 0.8*rate {
		t.Errorf("at a rate of %d: %.0f packets per second, %.0f per second of CPU", traffic.Rate, perSecond, perRun)
	}
	sent, err := g.Sent()
	must(t, err)
	count := drained(t, sink)
	after, err := a.refused()
	must(t, err)
	if arrived := sent - (after - before); count != (Count{Packets: arrived, Bytes: 60 * arrived}) {
		t.Errorf("arrived %+v, sent %d less %d refused", count, sent, after-before)
	}
}

// TestNothingIsLostUnseen floods a receiver: what was sent either arrived or is
// counted as refused, which is what Wire.Send's promise rests on.
func TestNothingIsLostUnseen(t *testing.T) {
	n := BuildT(t, Topology{
		Nodes: []Node{{Name: "a"}, {Name: "b"}},
		Links: []Link{{
			A: End{Node: "a", Name: "e0", Wire: true},
			B: End{Node: "b", Name: "e0", Wire: true, Receive: ReceiveXDP, Threaded: true},
		}},
	})
	a, b := n.Port("a", "e0"), n.Port("b", "e0")
	must(t, b.PinNAPI(0)) // the generator's CPU: it cannot keep up
	sink, err := b.Sink()
	must(t, err)
	defer sink.Close()
	g, err := a.Generator(a.Traffic("10.0.0.2", V4Prefixes(50)), 0)
	must(t, err)
	defer g.Close()
	before, err := a.refused()
	must(t, err)
	must(t, g.Start())
	time.Sleep(200 * time.Millisecond)
	must(t, g.Stop())
	count := drained(t, sink)
	after, err := a.refused()
	must(t, err)
	sent, err := g.Sent()
	must(t, err)
	if refused := after - before; refused == 0 || count.Packets+refused != sent {
		t.Errorf("sent %d = arrived %d + refused %d does not hold, or nothing was refused", sent, count.Packets, refused)
	}
}
