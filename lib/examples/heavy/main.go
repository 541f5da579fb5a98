// SPDX-License-Identifier: Apache-2.0

// Heavy shows the heaviest flows of a device, whatever number of flows there is: a top-k monitor in XDP.
//
// Problem: who fills the line? A table of all flows is too large to keep and too slow to sort.
//
// Mechanism: bpf/heavy.bpf.c counts in HeavyKeeper's slots, which large flows hold and small ones lose (<shunt/hkeeper.h>), and keeps
// the 64 heaviest keys (<shunt/topk.h>), on each CPU for itself. User space adds up and sorts.
//
// Invariant: 20 KiB per CPU. Nothing is pinned; a crash leaves nothing.
package main

import (
	"cmp"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/lib/examples/function"
)

//go:generate ../../build.sh

//go:embed testdata/heavy.bpf.o
var object []byte

// As in bpf/heavy.bpf.c.
const k = 64

type monitor struct {
	State, Packets uint64
	Slot           [2 << 10][2]uint32
	Print          [k]uint16
	Count          [k]uint32
	Least, LeastAt uint32
	Key            [k]function.Flow
}

type weighed struct {
	Flow    function.Flow `json:"flow"`
	Packets uint32        `json:"packets"`
}

type report struct {
	Packets uint64    `json:"packets"`
	Flows   []weighed `json:"flows"`
}

func (r report) String() string {
	lines := []string{fmt.Sprintf("%d packets", r.Packets)}
	for _, w := range r.Flows {
		lines = append(lines, fmt.Sprintf("%10d %5.1f %%  %s", w.Packets, 100*float64(w.Packets)/float64(r.Packets), w.Flow))
	}
	return strings.Join(lines, "\n")
}

func monitorOf(seed uint64, show *int) *function.Function {
	return &function.Function{
		Name: "heavy", About: "show the heaviest flows", Object: object, Program: "heavy",
		Flags: func(fs *flag.FlagSet) { fs.IntVar(show, "n", *show, "how many flows to show, up to 64") },
		Before: func(spec *ebpf.CollectionSpec) error {
			if *show < 1 || *show > k {
				return fmt.Errorf("-n %d: between 1 and %d", *show, k)
			}
			return spec.Variables["seed"].Set(seed)
		},
		After: func(coll *ebpf.Collection) error {
			return function.Fill(coll, "monitor", monitor{}, func(cpu int, m *monitor) { m.State = seed ^ uint64(cpu+1) | 1 })
		},
		Report: func(coll *ebpf.Collection) (fmt.Stringer, error) {
			cpus, err := function.PerCPU[monitor](coll, "monitor")
			if err != nil {
				return nil, err
			}
			r := report{}
			sum := map[function.Flow]uint32{}
			for _, m := range cpus {
				r.Packets += m.Packets
				for i, n := range m.Count {
					if n > 0 {
						sum[m.Key[i]] += n
					}
				}
			}
			for flow, n := range sum {
				r.Flows = append(r.Flows, weighed{flow, n})
			}
			slices.SortFunc(r.Flows, func(a, b weighed) int {
				return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Flow.String(), b.Flow.String()))
			})
			r.Flows = r.Flows[:min(len(r.Flows), *show)]
			return r, nil
		},
	}
}

func main() {
	var secret [8]byte
	rand.Read(secret[:]) // never fails
	show := 10
	monitorOf(binary.NativeEndian.Uint64(secret[:]), &show).Main()
}
