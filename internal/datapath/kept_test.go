// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/synth"
)

// A configuration that comes back gets the very program that it had; how many are kept for that is bounded.
func TestConfigurationsComeBack(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) { testComingBack(t, hook) })
	}
}

func testComingBack(t *testing.T, hook graph.Hook) {
	onLine(t, func(n *lab.Net, d *Datapath) {
		in := n.Port(lab.Dut, "in").Index
		// with applies a plan whose program differs by one number, and gives the program that runs then.
		with := func(number uint8) ebpf.ProgramID {
			net, g := handmade(n, hook)
			plan := synth.Build(net, g)
			for i := range plan.Ports {
				if plan.Ports[i].Index == in {
					plan.Ports[i].Programs[0].Config.In.Rpf4 = number & 3
					plan.Ports[i].Programs[0].Config.In.Local6 = number
				}
			}
			s, err := d.Snapshot(false)
			if err != nil {
				t.Fatal(err)
			}
			if failed, err := d.Apply(plan, &s); err != nil || len(failed) > 0 {
				t.Fatal(err, failed)
			}
			info, err := d.ports[hookKey{in, hook}].prog.Info()
			if err != nil {
				t.Fatal(err)
			}
			id, _ := info.ID()
			return id
		}
		first, second := with(0), with(1)
		if first == second {
			t.Fatalf("another configuration, the same program %d", first)
		}
		for range 3 {
			if again := with(0); again != first {
				t.Errorf("the first configuration again: program %d, want %d", again, first)
			}
			if again := with(1); again != second {
				t.Errorf("the second configuration again: program %d, want %d", again, second)
			}
		}
		d.Unkeep()
		if again := with(0); again == first {
			t.Errorf("program %d was not forgotten", first)
		}
		for number := range uint8(2 * maxKept) {
			with(2 + number)
		}
		if kept := len(d.ports[hookKey{in, hook}].kept); kept != maxKept {
			t.Errorf("%d programs are kept, want %d", kept, maxKept)
		}
		if again := with(0); again == first {
			t.Errorf("program %d outlived its turn", first)
		}
	})
}
