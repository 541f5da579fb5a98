// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// Jumbo frames: at XDP those beyond a page come in several buffers. All are forwarded whole, fast where the way out can send them, and
// what exceeds its MTU is answered by Linux.
func TestJumbo(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), V6: lab.V6Prefixes(50), MTU: 9000, Receive: lab.ReceiveGRO})
			r := newRigOn(t, n, hook)
			tx, out := n.Port(lab.Src, "tx"), n.Port(lab.Dut, "out")
			v4 := tx.Flow("10.0.0.2", lab.V4Prefixes(1).Host(3, 9).String())
			v6 := tx.Flow("fd00:0:0:1::2", lab.V6Prefixes(1).Host(3, 9).String())
			r.leaves("a small packet", v4.Dst.String(), reason.Fast, true)
			for _, size := range []int{1500, 3300, 4100, 7000, 9000} {
				for name, frame := range map[string][]byte{"ip4": v4.UDP(fill(size - 28)), "ip6": v6.UDP(fill(size - 48))} {
					before := r.counters()
					if err := tx.Send(frame); err != nil {
						t.Fatal(err)
					}
					got := r.arrival()
					if got == nil {
						t.Fatalf("%s of %d bytes: nothing arrived; %s", name, size, took(before, r.counters()))
					}
					want := lab.Edited(frame, lab.L2(0, out.Peer.MAC...), lab.L2(6, out.MAC...), lab.TTL(63))
					if diff := lab.Diff(want, got); diff != "" {
						t.Errorf("%s of %d bytes:\n%s", name, size, diff)
					}
					// Before 6.3 nothing tells which device sends frames in several buffers.
					blind := hook == graph.XDP && !r.engine.State().Features.XDPFeatures && size > 4000
					if after := r.counters(); after[reason.Fast] != before[reason.Fast]+1 && !(blind && after[reason.EgressFrags] == before[reason.EgressFrags]+1) {
						t.Errorf("%s of %d bytes left by %s", name, size, took(before, after))
					}
				}
			}
			r.exec("ip link set out mtu 8000")
			end := time.Now().Add(patience + 5*time.Second)
			before := r.counters()
			for r.counters()[reason.MTU] == before[reason.MTU] && time.Now().Before(end) {
				if err := tx.Send(lab.Edited(v4.UDP(fill(8001-28)), lab.FragmentField(2, 0))); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
			if after := r.counters(); after[reason.MTU] == before[reason.MTU] {
				t.Errorf("packets beyond the MTU left by %s", took(before, after))
			}
		})
	}
}

// arrival is the next frame at the sink that no host sent by itself; nil when none comes.
func (r *rig) arrival() []byte {
	r.Helper()
	for {
		got, err := r.sink.Take(1, 2*time.Second)
		if err != nil || len(got) == 0 {
			return nil
		}
		if !lab.Noise(got[0].Data) {
			return got[0].Data
		}
	}
}

// took names the reasons that were counted in between.
func took(before, after [reason.Count]uint64) (out string) {
	for i := range after {
		if n := after[i] - before[i]; n > 0 {
			out += fmt.Sprintf("%s %d ", reason.Code(i), n)
		}
	}
	return out
}
