// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
	"testing"
)

// pair is one wire with nothing but the lab at both ends.
func pair(t *testing.T, r Receive) (a, b *Port) {
	t.Helper()
	n := BuildT(t, Topology{
		Nodes: []Node{{Name: "a"}, {Name: "b"}},
		Links: []Link{{A: End{Node: "a", Name: "e0", Wire: true}, B: End{Node: "b", Name: "e0", Wire: true, Receive: r}}},
	})
	return n.Port("a", "e0"), n.Port("b", "e0")
}

// TestCapturePutsTagsBack sends frames with VLAN tags, which the kernel takes out
// of the data on receive, and expects the bytes that were sent.
func TestCapturePutsTagsBack(t *testing.T) {
	t.Parallel()
	for how, r := range map[string]Receive{"plain": ReceivePlain, "gro": ReceiveGRO, "xdp": ReceiveXDP} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, r)
			c := captureT(t, b)
			f := a.Flow("10.0.0.1", "10.0.0.2")
			untagged := f.UDP("none")
			f.VLANs = []uint16{7}
			tagged := f.UDP("one")
			f.VLANs = []uint16{100, 4094}
			for _, frame := range [][]byte{untagged, tagged, f.UDP("two"), Edited(tagged, L2(14, 0xe0))} {
				must(t, a.Send(frame))
				got := take(t, c, 1)
				if len(got) != 1 {
					t.Fatalf("%s: %d frames arrived, want 1", Describe(frame), len(got))
				}
				if d := Diff(frame, got[0]); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// TestManyFramesKeepTheirOrder sends more frames than any queue on the way holds
// at once, by each way of sending.
func TestManyFramesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	a, b := pair(t, ReceiveXDP)
	wire, err := a.Wire()
	must(t, err)
	defer wire.Close()
	c := captureT(t, b)
	var frames [][]byte
	for i := range 1000 {
		frames = append(frames, a.Flow("10.0.0.1", "10.0.0.2").UDP(fmt.Sprintf("%0*d", 4+i, i)))
	}
	for how, send := range map[string]func(...[]byte) error{"skb": a.Send, "xdp": wire.Send} {
		must(t, send(frames...))
		got := take(t, c, len(frames))
		if len(got) != len(frames) {
			t.Fatalf("as %s: %d frames arrived, want %d", how, len(got), len(frames))
		}
		for i := range frames {
			if d := Diff(frames[i], got[i]); d != "" {
				t.Fatalf("as %s, frame %d:\n%s", how, i, d)
			}
		}
	}
}

// TestWireRefusesWhatWouldVanish: an XDP frame sent to an end without NAPI is
// lost without a trace in the kernel, so the lab has to say it.
func TestWireRefusesWhatWouldVanish(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, ReceivePlain)
	wire, err := a.Wire()
	if err == nil {
		wire.Close()
		t.Fatal("a wire was opened towards an end that takes no XDP frames")
	}
}

// TestSendGivesUp: a frame that the far end is too small for is an error, not a wait for ever.
func TestSendGivesUp(t *testing.T) {
	t.Parallel()
	a, b := pair(t, ReceivePlain)
	must(t, b.NS.Exec("ip link set %s mtu 1000", b.Name))
	if err := a.Send(v4.UDP(strings.Repeat("x", 1400))); err == nil || !strings.Contains(err.Error(), "MTU") {
		t.Errorf("got %v, want an error about the MTU", err)
	}
}
