// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// typical is the configuration of a router's port with both families and as many guard words as such a port has.
func typical() bpfobj.Config {
	c := bpfobj.Config{Port: 1, Peek: bpfobj.PeekProbe, Guards: 14, Watchdog: 1, WatchdogJiffies: 100, NeighUse: 1}
	c.In.Ifindex = 1
	for i := range c.Guard {
		c.Guard[i].Slot, c.Guard[i].Addr, c.Guard[i].Width = uint16(i), 0xffff888000000000+uint64(i)*8, 8
	}
	return c
}

func objectsForTest(t testing.TB) *objects {
	t.Helper()
	lab.RequireRoot(t)
	kernel, found, err := typesOf(moduleTypes)
	if err != nil {
		t.Fatal(err)
	}
	o, err := loadObjects(slog.Default(), kernel, found)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.close)
	if err := new(ruleStore).open(o, firstRuleSize, firstCounts); err != nil {
		t.Fatal(err)
	}
	return o
}

// instructions is the length of the program for a configuration, before the kernel's own rewriting.
func instructions(t *testing.T, o *objects, hook graph.Hook, c bpfobj.Config) int {
	t.Helper()
	spec, err := o.specialised(hook, c, maps.Clone(o.maps))
	if err != nil {
		t.Fatal(err)
	}
	return len(spec.Instructions)
}

// A feature that is not configured must not be in the program: each makes it longer, and without it nothing remains.
func TestUnusedFeaturesCostNothing(t *testing.T) {
	o := objectsForTest(t)
	base := typical()
	base.Guards, base.Watchdog, base.NeighUse = 0, 0, 0
	for name, change := range map[string]func(*bpfobj.Config){
		"vlan inputs":      func(c *bpfobj.Config) { c.VlanIn = 1 },
		"vlan outputs":     func(c *bpfobj.Config) { c.VlanOut = 1 },
		"special routes 4": func(c *bpfobj.Config) { c.Special4 = 1 },
		"special routes 6": func(c *bpfobj.Config) { c.Special6 = 1 },
		"port rules":       func(c *bpfobj.Config) { c.Ports = 1 },
		"local sources":    func(c *bpfobj.Config) { c.In.Local4 = 1 },
		"strict rp_filter": func(c *bpfobj.Config) { c.In.Rpf4 = bpfobj.RPFStrict },
		"loose rp_filter":  func(c *bpfobj.Config) { c.In.Rpf4 = bpfobj.RPFLoose },
		"watchdog":         func(c *bpfobj.Config) { c.Watchdog = 1 },
		"one guard word":   func(c *bpfobj.Config) { c.Guards = 1 },
		"neighbour use":    func(c *bpfobj.Config) { c.NeighUse = 1 },
		"frags":            func(c *bpfobj.Config) { c.Frags = 1 },
	} {
		with := base
		change(&with)
		if a, b := instructions(t, o, graph.XDP, base), instructions(t, o, graph.XDP, with); a >= b {
			t.Errorf("%s: %d instructions without, %d with", name, a, b)
		}
	}
	for family, slow := range map[string]func(*bpfobj.Config){
		"ip4": func(c *bpfobj.Config) { c.In.Ip4 = uint8(reason.ForwardingOff) },
		"ip6": func(c *bpfobj.Config) { c.In.Ip6 = uint8(reason.ForwardingOff) },
	} {
		without := base
		slow(&without)
		if a, b := instructions(t, o, graph.XDP, without), instructions(t, o, graph.XDP, base); a+50 > b {
			t.Errorf("%s slow leaves %d of %d instructions", family, a, b)
		}
	}
}

func BenchmarkSpecialise(b *testing.B) {
	o := objectsForTest(b)
	for b.Loop() {
		clear(o.folded) // what a configuration costs that never was
		if _, err := o.specialised(graph.XDP, typical(), maps.Clone(o.maps)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	o := objectsForTest(b)
	stats, err := o.newStats()
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	for b.Loop() {
		prog, err := o.load(graph.XDP, typical(), stats)
		if err != nil {
			b.Fatal(err)
		}
		prog.Close()
	}
}
