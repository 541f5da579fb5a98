// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/graph"
)

// Beside shunt segments outside of the window belong to a marked connection, as docs/deviations.md says, and leave unchanged; that is all that differs. Told to be strict it differs in nothing.
func TestSegmentsOutsideOfTheWindow(t *testing.T) {
	const gw = "nft add table ip t { chain p { type nat hook postrouting priority srcnat; }; chain f { type filter hook forward priority filter; ct state invalid drop; }; }"
	segments := []struct {
		name     string
		seq, ack uint32
		inside   bool
	}{
		{"inside", 101, 501, true},
		{"far ahead", 101 + 1<<20, 501, false},
		{"of the past", 4294767397, 501, true}, // said again: Linux lets it pass
		{"about what was not said", 101, 501 + 1<<20, false},
		{"inside again", 102, 501, true},
	}
	passes := func(t *testing.T, hook graph.Hook, strict bool) (passed []string, entry entry, fast uint64) {
		w := newTwin(t, 2, gw)
		if hook != "" {
			w.start(hook)
			if err := w.engine.SetPolicy(context.Background(), func(p *graph.Policy) { p.Strict = strict }); err != nil {
				t.Fatal(err)
			}
		}
		r := &tracker{twin: w}
		say := func(server bool, tcp layers.TCP, payload string, expect int) int {
			port, f := "w0", w.flow("w0", "10.0.0.2", "10.0.1.2")
			tcp.SrcPort, tcp.DstPort, tcp.Window = 4020, 80, 60000
			if server {
				port, f = "w1", w.flow("w1", "10.0.1.2", "10.0.0.2")
				tcp.SrcPort, tcp.DstPort = 80, 4020
			}
			return len(w.send(shot{name: fmt.Sprintf("%+v", tcp), port: port, frame: f.Carry(&tcp, gopacket.Payload(payload))}, expect))
		}
		say(false, layers.TCP{SYN: true, Seq: 100}, "", 1)
		say(true, layers.TCP{SYN: true, ACK: true, Seq: 500, Ack: 101}, "", 1)
		for range 10 {
			for range 2 {
				say(false, layers.TCP{ACK: true, Seq: 101, Ack: 501}, "", 1)
			}
			say(true, layers.TCP{ACK: true, Seq: 501, Ack: 101}, "", 1)
		}
		time.Sleep(100 * time.Millisecond) // for the mark
		say(false, layers.TCP{ACK: true, Seq: 101, Ack: 501}, "", 1)
		before := r.fast()
		for _, s := range segments {
			if say(false, layers.TCP{ACK: true, PSH: true, Seq: s.seq, Ack: s.ack}, "x", 0) > 0 {
				passed = append(passed, s.name)
			}
		}
		fast = r.fast() - before
		entry, _ = r.entry(4020)
		return passed, entry, fast
	}
	var inside, all []string
	for _, s := range segments {
		if all = append(all, s.name); s.inside {
			inside = append(inside, s.name)
		}
	}
	linux, kept, _ := passes(t, "", false)
	if !slices.Equal(linux, inside) {
		t.Fatalf("Linux alone lets pass %q", linux)
	}
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, strict %v", hook, strict), func(t *testing.T) {
				t.Parallel()
				want, wantFast := all, uint64(len(all))
				if strict {
					want, wantFast = inside, 0
				}
				passed, entry, fast := passes(t, hook, strict)
				if !slices.Equal(passed, want) || fast != wantFast {
					t.Errorf("%q pass, %d of them fast; expected %q, %d", passed, fast, want, wantFast)
				}
				if entry.rest != kept.rest {
					t.Errorf("the connection is %q, in Linux %q", entry.rest, kept.rest)
				}
			})
		}
	}
}
