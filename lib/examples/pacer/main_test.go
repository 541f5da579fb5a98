// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/examples/function"
	"github.com/shuntnet/shunt/lib/examples/function/functest"
)

func TestMain(m *testing.M) { os.Exit(functest.Main(m)) }

// A decision is struct decision of bpf/pacer.bpf.c.
type decision struct {
	Now            uint64
	Bytes, Verdict uint32
	Flow           function.Flow
}

// A twin is the pacer with a sorted list for a wheel.
type twin struct {
	options
	next map[function.Flow]uint64
	held []uint64 // slots in which places become free
	at   uint64   // the first slot that the wheel knows
	report
}

func (w *twin) packet(d decision) uint32 {
	start := max(w.next[d.Flow], d.Now)
	sent := start + uint64(d.Bytes)*w.byteTime()>>16
	for range 8 {
		if len(w.held) == 0 {
			break
		}
		if w.held[0] > d.Now/slot {
			w.at = max(w.at, d.Now/slot)
			break
		}
		w.at = w.held[0]
		w.held = w.held[1:]
	}
	switch {
	case sent-d.Now > uint64(w.queue):
		w.Late++
		return 1
	case len(w.held) == places:
		w.Full++
		return 1
	}
	if len(w.held) == 0 {
		w.at = max(w.at, d.Now/slot)
	}
	due := min((sent+slot-1)/slot, w.at+slots-1)
	at, _ := slices.BinarySearch(w.held, due+1)
	w.held = slices.Insert(w.held, at, due)
	w.next[d.Flow] = sent
	w.Passed++
	w.PassedBytes += uint64(d.Bytes)
	return 2
}

func frame(flow, size int) []byte {
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 7}, DstMAC: []byte{2, 0, 0, 0, 0, 9}}
	return lab.Edited(lab.Packet(eth, &layers.IPv4{SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}},
		&layers.UDP{SrcPort: layers.UDPPort(1000 + flow), DstPort: 9}), lab.Pad(size))
}

// TestPacing: each verdict, at its time, is the one of a pacer in plain Go, and as many packets arrive as were let through; greedy flows
// get their rate and a queue's length, modest ones all they ask for, and many flows together no more places than there are.
func TestPacing(t *testing.T) {
	o := &options{rate: 8, queue: 50 * time.Millisecond, trace: true} // a byte per us
	f := newPacer(o)
	site := functest.Attach(t, f)
	reader, err := ringbuf.NewReader(site.Coll.Maps["decisions"])
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	capture, err := lab.NewCapture(site.Net.Port(lab.Dut, "p0"))
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	r := rand.New(rand.NewPCG(1, 17))
	w := &twin{options: *o, next: map[function.Flow]uint64{}}
	passed := 0
	var first, last uint64
	greedy, modest := uint64(0), uint64(0)
	round := func(frames [][]byte) {
		t.Helper()
		site.Send(frames...)
		for i := range frames {
			reader.SetDeadline(time.Now().Add(5 * time.Second))
			raw, err := reader.Read()
			if err != nil {
				t.Fatalf("decision %d: %v", i, err)
			}
			var d decision
			if _, err := binary.Decode(raw.RawSample, binary.NativeEndian, &d); err != nil {
				t.Fatal(err)
			}
			if first == 0 {
				first = d.Now
			}
			last = d.Now
			if want := w.packet(d); d.Verdict != want {
				t.Fatalf("decision %d: %+v, the twin says %d", i, d, want)
			}
			if d.Verdict == 2 {
				passed++
				switch binary.BigEndian.Uint16(d.Flow.FromPort[:]) {
				case 1000:
					greedy += uint64(d.Bytes)
				case 1001:
					modest++
				}
			}
		}
	}
	settled := func() report {
		t.Helper()
		s, err := f.Report(site.Coll)
		if err != nil {
			t.Fatal(err)
		}
		return s.(report)
	}
	// One flow sends much more than its rate, one 20 packets. Nobody reports meanwhile: a report frees places, of which the twin knows nothing.
	for range 5 {
		var frames [][]byte
		for i := range 200 {
			frames = append(frames, frame(0, 1000))
			if i%50 == 0 {
				frames = append(frames, frame(1, 200))
			}
		}
		round(frames)
		time.Sleep(3 * time.Millisecond)
	}
	if modest != 20 {
		t.Errorf("%d of 20 packets of a modest flow passed", modest)
	}
	if most := (last-first)/1000 + 50_000; greedy > most || greedy < 49_000 {
		t.Errorf("a greedy flow passed %d bytes in %d us, want no more than %d and a queue's length at least", greedy, (last-first)/1000, most)
	}
	// Many flows, each within its queue, together more than there are places.
	var frames [][]byte
	for range 60 {
		for flow := range 120 {
			frames = append(frames, frame(10+flow, 60+r.IntN(800)))
		}
	}
	round(frames)
	got := settled()
	want := w.report
	got.Held, got.HeldBytes = 0, 0
	if got != want {
		t.Errorf("counted %+v, the twin %+v", got, want)
	}
	if want.Late == 0 {
		t.Error("nothing was dropped for being late")
	}
	t.Logf("%s", got)
	// When the last one's time has come, nothing is held.
	time.Sleep(70 * time.Millisecond)
	if got = settled(); got.Held != 0 || got.HeldBytes != 0 {
		t.Errorf("after the queue's length %d packets are still held", got.Held)
	}
	arrived, err := capture.Take(passed, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for _, fr := range arrived {
		if fr.Data[11] == 7 {
			passed--
		}
	}
	if passed != 0 {
		t.Errorf("%d packets that were let through did not arrive", passed)
	}
	text, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(text), `"dropped_late":`) {
		t.Errorf("%s (%v)", text, err)
	}
}

// TestFull: when the flows together fill all places, the next packet is dropped though its flow sent nothing before.
func TestFull(t *testing.T) {
	o := &options{rate: 0.009, queue: 60 * time.Millisecond} // 60 bytes take 53 ms: a packet of each flow fits
	f := newPacer(o)
	site := functest.Attach(t, f)
	deadline := time.Now().Add(5 * time.Second)
	var got report
	most := uint64(0)
	var frames [][]byte
	for i := range 8000 {
		frames = append(frames, frame(i, 60))
	}
	for got.Full == 0 && time.Now().Before(deadline) {
		// Not through site.Send, which waits: all at once, so that places are taken faster than they come free.
		if err := site.Far.Send(frames...); err != nil {
			t.Fatal(err)
		}
		s, err := f.Report(site.Coll)
		if err != nil {
			t.Fatal(err)
		}
		got = s.(report)
		if most = max(most, got.Held); most > places {
			t.Fatalf("%d packets are held, there are %d places", got.Held, places)
		}
	}
	if got.Full == 0 && most < places {
		t.Skipf("this machine sends no more than %d packets while the first of them is held", most)
	}
	if got.Full == 0 {
		t.Errorf("the places never were all taken: %s", got)
	}
	if got.Passed < places {
		t.Errorf("places were taken before all were in use: %s", got)
	}
	t.Log(got)
}

// TestErrors: what is wrong is said in words that help.
func TestErrors(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "wrong usage"},
		{"-dev lo -rate x", "wrong usage"},
		{"-dev lo -rate 0", "want 0.001 to"},
		{"-dev lo -rate NaN", "want 0.001 to"},
		{"-dev lo -queue 1s", "want 1ms to 60ms"},
		{"-dev nosuchdevice", "`ip link` lists"},
	} {
		var out bytes.Buffer
		err := newPacer(new(options)).Run(context.Background(), strings.Fields(test.args), &out)
		if os.Geteuid() != 0 && strings.Contains(test.args, "nosuch") {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("pacer %s: %v, want %q", test.args, err, test.want)
		}
	}
}
