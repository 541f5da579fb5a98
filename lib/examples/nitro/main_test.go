// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/examples/function"
	"github.com/shuntnet/shunt/lib/examples/function/functest"
)

func TestMain(m *testing.M) { os.Exit(functest.Main(m)) }

// TestCounts: with probability 1 a lone flow is counted exactly; with a tenth its answer is within five standard deviations.
func TestCounts(t *testing.T) {
	const sent = 6000
	flow, err := function.ParseFlow("udp 192.0.2.1:7 192.0.2.2:53")
	if err != nil {
		t.Fatal(err)
	}
	frame := lab.Packet(&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: []byte{2, 0, 0, 0, 0, 9}},
		&layers.IPv4{SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}}, &layers.UDP{SrcPort: 7, DstPort: 53})
	frames := make([][]byte, sent)
	for i := range frames {
		frames[i] = frame
	}
	for _, p := range []float64{1, 0.1} {
		f := counter(9, &options{flows: function.Flows{flow}, probability: p})
		site := functest.Attach(t, f)
		site.Send(frames...)
		var got report
		site.Await("every packet seen", func() bool {
			s, err := f.Report(site.Coll)
			if err != nil {
				t.Fatal(err)
			}
			got = s.(report)
			return got.Packets >= sent
		})
		// Far ends talk too (multicast reports), and are counted as packets.
		if off := math.Abs(got.Flows[0].Packets - sent); off > 5*math.Sqrt(sent*(1/p-1)) {
			t.Errorf("p=%v: the answer is %v, %d were sent", p, got.Flows[0].Packets, sent)
		}
	}
}

// TestProbability: one that no table is made for is refused before anything is loaded.
func TestProbability(t *testing.T) {
	for _, p := range []float64{0, -1, 1.5, math.NaN()} {
		if _, err := counter(9, &options{probability: p}).Load(); err == nil {
			t.Errorf("-p %v was taken", p)
		}
	}
}
