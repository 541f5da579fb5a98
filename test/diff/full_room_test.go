// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/shuntnet/shunt/internal/lab"
)

// TestFullTableMakesRoom has tables full of connections that nobody answered. Whom Linux throws out for a new one hangs on where it looks, which each namespace draws, so that the twins cannot be
// compared with each other. Each by itself: who comes through has an entry or had one, the others are counted; who was thrown out is sent nothing; a connection that was answered goes on, and fast.
func TestFullTableMakesRoom(t *testing.T) {
	requireShunt(t)
	smallTables(t)
	for _, hook := range append([]string{""}, fullHooks()...) {
		t.Run(map[bool]string{true: "linux", false: hook}[hook == ""], func(t *testing.T) {
			full := fullTwin(t, hook)
			before, out := full.counters(t), full.send(t, calls(3000, 100))
			now, through := full.counters(t), 0
			for _, f := range out[1] {
				if h, ok := readIP(f); ok && h.dst != netip.MustParseAddr("10.0.1.10") {
					through++
				}
			}
			dropped, thrown := now["Conntrack:drop"]-before["Conntrack:drop"], now["Conntrack:early_drop"]-before["Conntrack:early_drop"]
			t.Logf("of 600 calls %d came through, %d were dropped; %d connections had to go for them", through, dropped, thrown)
			if through+int(dropped) != 600 || thrown == 0 || dropped == 0 {
				t.Errorf("of 600 calls %d came through and %d were counted as dropped; %d connections were thrown out", through, dropped, thrown)
			}
			there, err := full.connections()
			if err != nil {
				t.Fatal(err)
			}
			known := map[uint16]bool{}
			for key := range there {
				var port uint16
				if n, _ := fmt.Sscanf(key, "udp src=10.0.0.11 dst=10.1.2.3 sport=%d ", &port); n == 1 {
					known[port] = true
				}
			}
			var answers []Packet
			for port := uint16(3000); port < 3100; port++ {
				f := flowOf(1, "10.1.2.3", "10.0.1.1")
				f.SrcPort, f.DstPort = 80, port
				answers = append(answers, Packet{Port: 1, How: WireFrame, Frame: f.UDP("yes")})
			}
			heard := 0
			for _, f := range full.send(t, answers)[0] {
				h, ok := readIP(f)
				if !ok || h.dst != netip.MustParseAddr("10.0.0.11") {
					continue
				}
				heard++
				if port := binary.BigEndian.Uint16(f[14+h.headerLen+2:]); !known[port] {
					t.Errorf("an answer to port %d came through, whose connection had been thrown out", port)
				}
			}
			t.Logf("%d of 100 connections are there, %d have heard an answer", len(known), heard)
			if heard == 0 {
				t.Error("nobody heard an answer")
			}
			full.stillFast(t)
		})
	}
}

// filledTwin is a router whose table is full, but for the connection masqueraded4 of such as nobody answered.
type filledTwin struct{ *twin }

func fullTwin(t *testing.T, hook string) filledTwin {
	t.Helper()
	var wire *lab.Wire
	tw, err := newTwin("full", &wire)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(tw.close(), wire.Close()); err != nil {
			t.Error(err)
		}
	})
	full := filledTwin{tw}
	full.do(t, common()...)
	if hook != "" {
		if tw.daemon, err = startDaemon(*shuntFlag, tw.dut, &Case{Hook: hook}, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range masqueraded4.begins(trackTable, gatekeeper()) {
		full.do(t, s.do...)
		full.send(t, s.packets)
	}
	full.do(t, fill(1, fullAt-1, "SEEN_REPLY"))
	return full
}

// do has the router told something, and waits for shunt.
func (f filledTwin) do(t *testing.T, commands ...string) {
	t.Helper()
	if len(commands) == 0 {
		return
	}
	said, err := f.apply(commands)
	if err == nil && said != "" {
		err = errors.New(said)
	}
	if err == nil && f.daemon != nil {
		_, err = f.daemon.settle(*boundFlag)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// send is what leaves when these packets have come.
func (f filledTwin) send(t *testing.T, packets []Packet) (out output) {
	t.Helper()
	for chunk := range slices.Chunk(packets, chunkSize) {
		if err := errors.Join(f.inject(chunk), f.collect(&out, 10*quiet)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func (f filledTwin) counters(t *testing.T) map[string]uint64 {
	t.Helper()
	c, err := f.twin.counters()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stillFast sends on in the connection that was there before.
func (f filledTwin) stillFast(t *testing.T) {
	t.Helper()
	const n = 40
	before := f.fast(t)
	if out := f.send(t, masqueraded4.data(n, 141, 501)); len(out[1]) != n {
		t.Errorf("%d of %d packets of the connection that was there before came through", len(out[1]), n)
	}
	if fast := f.fast(t) - before; f.daemon != nil && fast < n/2 {
		t.Errorf("%d of them were fast", fast)
	}
}

func (f filledTwin) fast(t *testing.T) (n uint64) {
	t.Helper()
	if f.daemon == nil {
		return 0
	}
	s, err := f.daemon.status()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range s.Interfaces {
		n += i.Packets.Fast
	}
	return n
}
