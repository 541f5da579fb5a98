// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/examples/function/functest"
)

func TestMain(m *testing.M) { os.Exit(functest.Main(m)) }

// TestHeaviestFirst: three flows among two thousand small ones are the first three, in order and with nearly their numbers.
func TestHeaviestFirst(t *testing.T) {
	show := 3
	f := monitorOf(5, &show)
	site := functest.Attach(t, f)
	r := rand.New(rand.NewPCG(2, 2))
	var frames [][]byte
	add := func(port, n int) {
		for range n {
			frames = append(frames, lab.Packet(&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: []byte{2, 0, 0, 0, 0, 9}},
				&layers.IPv4{SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}}, &layers.UDP{SrcPort: layers.UDPPort(port), DstPort: 53}))
		}
	}
	want := map[int]int{1: 900, 2: 600, 3: 300}
	for port, n := range want {
		add(port, n)
	}
	for port := range 2000 {
		add(1000+port, 1)
	}
	r.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
	site.Send(frames...)
	var got report
	site.Await("every packet counted", func() bool {
		s, err := f.Report(site.Coll)
		if err != nil {
			t.Fatal(err)
		}
		got = s.(report)
		return got.Packets >= uint64(len(frames))
	})
	if len(got.Flows) != 3 {
		t.Fatalf("%d flows are shown, want 3:\n%s", len(got.Flows), got)
	}
	for i, w := range got.Flows {
		name, n := fmt.Sprintf("udp 192.0.2.1:%d > 192.0.2.2:53", i+1), want[i+1]
		if w.Flow.String() != name || int(w.Packets) > n || int(w.Packets) < n*9/10 {
			t.Errorf("place %d: %s with %d packets, want %s with %d", i+1, w.Flow, w.Packets, name, n)
		}
	}
}
