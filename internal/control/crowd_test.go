// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/synth"
)

// On a host of very many devices shunt is ready before each has a program of its own, and at tcx before each hook is taken; in the end every device has both, also where
// all configurations change at once.
func TestVeryManyDevices(t *testing.T) {
	const devices = 40
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), Receive: lab.ReceiveGRO})
			var s strings.Builder
			for i := range devices / 2 {
				fmt.Fprintf(&s, "link add c%d type veth peer name d%d\nlink set c%d up\nlink set d%d up\n", i, i, i, i)
			}
			if err := n.Node(lab.Dut).Feed(s.String(), "ip -batch -"); err != nil {
				t.Fatal(err)
			}
			r := newRigOn(t, n, hook)
			dst := lab.V4Prefixes(1).Host(3, 9).String()
			if tiers := r.tiers(); tiers[datapath.Specialised] > devices/2 {
				t.Errorf("ready with %v: it waited for the programs", tiers)
			}
			r.settle()
			r.leaves("at the end of the start", dst, reason.Fast, true)
			r.exec("nft add table ip t { chain f { type filter hook forward priority 0; ip daddr 203.0.113.7 drop; }; }")
			r.settle()
			r.leaves("with a rule", dst, reason.Fast, true)
			before := r.engine.State()
			if err := n.Node(lab.Dut).Shell("echo 0 >/proc/sys/net/ipv4/conf/c3/forwarding"); err != nil {
				t.Fatal(err)
			}
			r.leaves("beside a device that changed", dst, reason.Fast, true)
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				after := r.engine.State()
				if !after.Network.LinkByName("c3").Conf4.Forwarding {
					if others := otherPorts(before.Plan, after.Plan); len(others) != 1 || others[0] != "c3" {
						t.Errorf("one device changed, and these ports were planned anew: %v", others)
					}
					break
				}
				if time.Now().After(end) {
					t.Fatal("the change is not seen")
				}
			}
		})
	}
}

// otherPorts are those that were planned anew.
func otherPorts(before, after *synth.Plan) (names []string) {
	for _, p := range after.Ports {
		if before.Port(p.Index) != p {
			names = append(names, p.Name)
		}
	}
	return names
}

// tiers counts the hooks that shunt holds by what runs there.
func (r *rig) tiers() map[datapath.Tier]int {
	r.Helper()
	tiers := map[datapath.Tier]int{}
	state := r.engine.State()
	err := r.engine.Do(context.Background(), func(d *datapath.Datapath) error {
		for _, p := range state.Plan.Ports {
			for i := range p.Programs {
				tiers[d.Tier(p.Index, p.Programs[i].Hook)]++
			}
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return tiers
}

// settle waits until each hook runs a program of its own.
func (r *rig) settle() {
	r.Helper()
	tiers := map[datapath.Tier]int{}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		tiers = r.tiers()
		if len(tiers) == 1 && tiers[datapath.Specialised] > 0 {
			return
		}
	}
	r.Fatalf("after a minute there are still %v", tiers)
}
