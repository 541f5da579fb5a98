// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/synth"
)

// Words of devices that went leave their slots to others, and no two words share one.
func TestSlotsAreGivenAgain(t *testing.T) {
	d := &Datapath{slots: map[synth.Word]uint16{}, watched: map[int]int{}}
	global := synth.Word{Word: bpfobj.WordRouteGenID4}
	d.occupy(global)
	for index := 1; index <= 3*guardSlots; index++ {
		if !d.vacant() {
			t.Fatalf("device %d finds no slot", index)
		}
		d.occupy(synth.Word{Word: bpfobj.WordNetCount, Index: index})
		if index%100 == 0 {
			d.unwatch(&synth.Plan{Ports: []*synth.Port{{Index: index - 1}, {Index: index}}}, &Snapshot{})
			if len(d.slots) != 3 || d.watched[index] == 0 || d.watched[index-2] > 0 {
				t.Fatalf("after device %d: %v, %v", index, d.slots, d.watched)
			}
		}
		if slot, ok := d.slots[global]; !ok || slot != 0 {
			t.Fatalf("after device %d the namespace's own word is gone: %v", index, d.slots)
		}
		users := map[uint16]synth.Word{}
		for w, slot := range d.slots {
			if other, taken := users[slot]; taken || slot >= guardSlots {
				t.Fatalf("after device %d %v and %v share slot %d", index, w, other, slot)
			}
			users[slot] = w
		}
	}
}

// Names are compared as the kernel has them; what `shunt compile` makes is a program of the user's.
func TestOwnName(t *testing.T) {
	for name, want := range map[string]bool{"shunt_stub_xdp": true, "shunt_stub_xdp_": true, "shunt_stub_tc": true, "shunt_tc": true, "shunt_pass": true,
		"shunt_rules": false, "shunt_": false, "": false, "xdp": false} {
		if got := OwnName(name); got != want {
			t.Errorf("%q is own: %t, want %t", name, got, want)
		}
	}
}
