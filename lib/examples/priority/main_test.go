// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/examples/function"
	"github.com/shuntnet/shunt/lib/examples/function/functest"
)

func TestMain(m *testing.M) { os.Exit(functest.Main(m)) }

// A note is a packet as a twin remembers it: its number is the source port.
type note struct{ dscp, number int }

// A twin is the queue as a sorted list.
type twin struct {
	queue          []note
	taken, refused uint64
}

func (w *twin) packet(n note) {
	if free := slots - len(w.queue); free <= (63-n.dscp)*slots/128 {
		w.refused++
		return
	}
	w.taken++
	w.queue = append(w.queue, n)
	slices.SortStableFunc(w.queue, func(a, b note) int { return b.dscp - a.dscp })
}

func frame(n note) []byte {
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 7}, DstMAC: []byte{2, 0, 0, 0, 0, 9}}
	udp := &layers.UDP{SrcPort: layers.UDPPort(n.number), DstPort: 9}
	if n.number%2 == 0 {
		return lab.Packet(eth, &layers.IPv4{TOS: uint8(n.dscp<<2 | n.number>>1&3), SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}}, udp)
	}
	from, to := make([]byte, 16), make([]byte, 16)
	from[0], from[15], to[0] = 0xfd, 1, 0xfd
	return lab.Packet(eth, &layers.IPv6{TrafficClass: uint8(n.dscp << 2), SrcIP: from, DstIP: to}, udp)
}

// TestOrder: rounds of some packets and of floods; records come out as of a sorted list, and the flood takes no slots from what is more
// important.
func TestOrder(t *testing.T) {
	budget := 0
	f := newPriority(&budget)
	budget = 1
	site := functest.Attach(t, f)
	r := rand.New(rand.NewPCG(1, 16))
	w := &twin{}
	number := 0
	for round, packets := range []int{300, 1, 2500, 40, 1500, 700} {
		var frames [][]byte
		for i := range packets {
			number++
			n := note{dscp: []int{0, 0, 0, 0, 8, 10, 26, 34, 46, 48, 63}[r.IntN(11)], number: number}
			if round == 2 && i < 2000 {
				n.dscp = 0 // a flood, and then all sorts
			}
			w.packet(n)
			frames = append(frames, frame(n))
		}
		site.Send(frames...)
		var got report
		budget = 0
		site.Await("every packet seen", func() bool {
			s, err := f.Report(site.Coll)
			if err != nil {
				t.Fatal(err)
			}
			got = s.(report)
			return got.Taken+got.Refused >= w.taken+w.refused
		})
		if got.Taken != w.taken || got.Refused != w.refused {
			t.Fatalf("round %d: %d noted and %d not, want %d and %d", round, got.Taken, got.Refused, w.taken, w.refused)
		}
		budget = []int{100, 200, 1500, 10, 300, 2000}[round]
		s, err := f.Report(site.Coll)
		if err != nil {
			t.Fatal(err)
		}
		got = s.(report)
		if want := min(budget, len(w.queue)); len(got.Records) != want {
			t.Fatalf("round %d: %d records, want %d", round, len(got.Records), want)
		}
		for i, one := range got.Records {
			have := note{one.dscp(), int(one.Flow.FromPort[0])<<8 | int(one.Flow.FromPort[1])}
			if have != w.queue[i] || int(one.Bytes) != len(frame(have)) || one.Time > got.now {
				t.Fatalf("round %d, record %d: %+v (%+v), want %+v", round, i, have, one, w.queue[i])
			}
		}
		w.queue = w.queue[len(got.Records):]
		if round == 0 {
			text, err := json.Marshal(got)
			if err != nil || !strings.Contains(string(text), `"dscp":63,`) || !strings.Contains(got.String(), "udp 192.0.2.1:") {
				t.Errorf("%s (%v)\n%s", text, err, got)
			}
		}
	}
	if w.refused == 0 || len(w.queue) > 0 {
		t.Errorf("%d refused, %d left: the flood was none", w.refused, len(w.queue))
	}
}

// TestJSON: a report of nothing is one too.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(report{Records: []record{{Flow: function.Flow{Family: 4}}}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"noted":0`) {
		t.Error(out.String())
	}
}

// TestErrors: what is wrong is said in words that help.
func TestErrors(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "wrong usage"},
		{"-dev lo -n x", "wrong usage"},
		{"-dev lo -n 0", "want 1 packet"},
		{"-dev nosuchdevice", "`ip link` lists"},
	} {
		var out bytes.Buffer
		err := newPriority(new(int)).Run(context.Background(), strings.Fields(test.args), &out)
		if os.Geteuid() != 0 && strings.Contains(test.args, "nosuch") {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("priority %s: %v, want %q", test.args, err, test.want)
		}
	}
}
