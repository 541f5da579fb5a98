// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// What finds the ports of bridges that routes lead to loads beside everything else, and where no routes do there is nothing of it.
func TestOntoLoads(t *testing.T) {
	o := objectsForTest(t)
	kernel, err := kernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	features, err := probe(o, kernel)
	if err != nil {
		t.Fatal(err)
	}
	features.meet(o, Needs{Bridges: true})
	if !features.Bridge {
		t.Skipf("programs cannot read this kernel's bridges (%s): tried: %s", lab.Since("readable bridges"), features.NoBridge)
	}
	if o.bridges.DevNode == 0 {
		t.Error("devices are not looked for")
	}
	slot := slotForTest(t, o, "shunt_stub_tc")
	base := typical()
	base.NeighUse, base.Peek, base.KernCtx, base.SkipNeigh, base.SetPriority = 0, features.Peek, features.Ctx, flag(features.SkipNeigh), 1
	onto := func(c bpfobj.Config) bpfobj.Config {
		c.Onto, c.Bridges = 1, o.bridges
		return c
	}
	plain := loadShape(t, o, graph.TC, "plain", base, slot)
	with := loadShape(t, o, graph.TC, "onto", onto(base), slot)
	if with.Instructions <= plain.Instructions {
		t.Errorf("%d instructions with it, %d without", with.Instructions, plain.Instructions)
	}
	known := base
	known.Bridges = o.bridges
	if n := loadShape(t, o, graph.TC, "bridges known", known, slot).Instructions; n != plain.Instructions {
		t.Errorf("%d instructions where bridges are known and no route leads to one, %d where they are not", n, plain.Instructions)
	}
	all := onto(base)
	for _, f := range shapeFeatures {
		f.on(&all)
	}
	all.NeighUse, all.SkbBorn, all.Bridge = 0, 0, bpfobj.BridgeHost
	loadShape(t, o, graph.TC, "onto with everything", all, slot)
	askRules(&all, everyValue, 0, 1, 2, 3, 4, 5)
	loadShape(t, o, graph.TC, "onto with every rule", all, slot)
	if missesConntrack(kernel) == nil {
		track(&all)
		loadShape(t, o, graph.TC, "onto with every rule, connections", all, slot)
	}
	generic, err := newGeneric(o, features)
	if err != nil {
		t.Fatal(err)
	}
	defer generic.close()
	generic.fixed.Lines4, generic.fixed.Bridges = minLines4, o.bridges
	genericShapes(generic.fixed, func(name string, c bpfobj.Config) { loadShape(t, o, genericTC, "generic, "+name, c, slot) })
}
