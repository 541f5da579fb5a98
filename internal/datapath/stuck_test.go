// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/synth"
)

// stuckHold is a hook at which nothing can be replaced.
type stuckHold struct{ hold }

func (stuckHold) update(*ebpf.Program) error { return unix.EBUSY }

// Where a program can neither be replaced nor taken from its hook nothing is forwarded until that succeeds: it was made for what is no longer so.
func TestProgramThatCannotBeReplaced(t *testing.T) {
	onLine(t, func(n *lab.Net, d *Datapath) {
		if !d.features.TCX {
			t.Skip("this kernel has no tcx (Linux 6.6), whose links are replaced in place: tried")
		}
		in := hookKey{n.Port(lab.Dut, "in").Index, graph.TC}
		apply := func(number uint8) error {
			net, g := handmade(n, graph.TC)
			plan := synth.Build(net, g)
			for i := range plan.Ports {
				if plan.Ports[i].Index == in.index {
					plan.Ports[i].Programs[0].Config.In.Local6 = number
				}
			}
			s, err := d.Snapshot(false)
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.Apply(plan, &s)
			return err
		}
		if err := apply(0); err != nil {
			t.Fatal(err)
		}
		a := d.ports[in]
		works := a.hold
		a.hold = stuckHold{works}
		if err := apply(1); !errors.Is(err, unix.EBUSY) || !d.Stale() {
			t.Errorf("with a program that stays: %v, everything goes to Linux: %t", err, d.Stale())
		}
		a.hold = works
		if err := apply(1); err != nil || d.Stale() || !a.runs() {
			t.Errorf("when it can be replaced: %v, everything goes to Linux: %t, a program runs: %t", err, d.Stale(), a.runs())
		}
	})
}
