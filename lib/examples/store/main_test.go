// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/examples/function/functest"
)

func TestMain(m *testing.M) { os.Exit(functest.Main(m)) }

type request struct {
	op         byte
	key, value uint64
}

func (r request) frame(port int) []byte {
	data := make([]byte, 24)
	data[0] = r.op
	binary.LittleEndian.PutUint64(data[8:], r.key)
	binary.LittleEndian.PutUint64(data[16:], r.value)
	return lab.Packet(&layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}},
		&layers.IPv4{SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}},
		&layers.UDP{SrcPort: 999, DstPort: layers.UDPPort(port)}, gopacket.Payload(data))
}

// A twin is the store in plain Go.
type twin map[uint64]uint64

func (s twin) do(r request) (status byte, key, value uint64) {
	at, there := s[r.key]
	switch r.op {
	case opGet:
		if !there {
			return absent, r.key, r.value
		}
		return done, r.key, at
	case opSet:
		s[r.key] = r.value
		return done, r.key, r.value
	case opDelete:
		delete(s, r.key)
		if !there {
			return absent, r.key, r.value
		}
		return done, r.key, r.value
	case opNext:
		keys := slices.Sorted(maps.Keys(s))
		i, _ := slices.BinarySearch(keys, r.key)
		if i == len(keys) {
			return absent, r.key, r.value
		}
		return done, keys[i], s[keys[i]]
	}
	return unknown, r.key, r.value
}

// TestStore: every request is answered as by a map in Go, to whom it came from; what is no request passes.
func TestStore(t *testing.T) {
	port := uint(7070)
	f := newStore(&port)
	site := functest.Attach(t, f)
	capture, err := site.Far.Capture()
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	r := rand.New(rand.NewPCG(7, 7))
	s := twin{}
	const requests = 2000
	var want []request // status in op
	var frames [][]byte
	for range requests {
		q := request{op: byte(r.IntN(5)), key: r.Uint64N(300) << 40, value: r.Uint64()}
		status, key, value := s.do(q)
		want = append(want, request{status, key, value})
		frames = append(frames, q.frame(int(port)))
		if r.IntN(10) == 0 {
			frames = append(frames, q.frame(int(port)+1)) // nobody's
		}
	}
	for part := range slices.Chunk(frames, 50) { // in order, so that answers are
		if err := site.Far.Send(part...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	got, err := capture.Take(requests, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	var answers []lab.Frame
	for _, g := range got {
		if len(g.Data) >= 66 && g.Data[12] == 8 && g.Data[23] == 17 && binary.BigEndian.Uint16(g.Data[34:]) == uint16(port) {
			answers = append(answers, g)
		}
	}
	if len(answers) != requests {
		t.Fatalf("%d answers to %d requests", len(answers), requests)
	}
	for i, g := range answers {
		p := gopacket.NewPacket(g.Data, layers.LayerTypeEthernet, gopacket.Default)
		ip := p.NetworkLayer().(*layers.IPv4)
		eth := p.LinkLayer().(*layers.Ethernet)
		if ip.SrcIP.String() != "192.0.2.2" || ip.DstIP.String() != "192.0.2.1" || eth.DstMAC[5] != 1 || eth.SrcMAC[5] != 2 {
			t.Fatalf("answer %d goes from %s %s to %s %s", i, eth.SrcMAC, ip.SrcIP, eth.DstMAC, ip.DstIP)
		}
		data := g.Data[42:66]
		answer := request{data[1], binary.LittleEndian.Uint64(data[8:]), binary.LittleEndian.Uint64(data[16:])}
		if answer != want[i] {
			t.Fatalf("answer %d is %+v, want %+v", i, answer, want[i])
		}
	}
	counts, err := f.Report(site.Coll)
	if err != nil {
		t.Fatal(err)
	}
	if r := counts.(report); int(r.Keys) != len(s) {
		t.Errorf("%s; the twin has %d keys", r, len(s))
	}
}
