// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/lab"
)

// All ways to hold elements take in the same ones and find the same, turn for turn; else their times could not be compared.
func TestStructuresAgree(t *testing.T) {
	lab.RequireRoot(t)
	for _, s := range everyStructure() {
		if s.run == "skip_get" && s.n > 1<<13 || s.run == "skip_update" && s.n != 1<<13 {
			continue // more of the same
		}
		var want []uint32
		for _, way := range append([]string{library}, s.ways...) {
			coll, err := s.load(structureObjects[way])
			if err != nil {
				t.Fatalf("%s, %s: %+v", s.what, way, err)
			}
			if err := s.put(coll); err != nil {
				t.Errorf("%s, %s: %v", s.what, way, err)
			}
			runs := 4
			if s.random {
				runs = 400
			}
			for i := range runs {
				got, err := coll.Programs[s.run].Run(&ebpf.RunOptions{Data: frame(s.n)})
				switch {
				case err != nil:
					t.Fatalf("%s, %s: %v", s.what, way, err)
				case way == library:
					want = append(want, got)
				case got != want[i] && !s.full():
					t.Errorf("%s, %s, run %d: found %d, the library %d", s.what, way, i, got, want[i])
				}
			}
			if check := coll.Programs["heavy_check"]; check != nil {
				if found, err := check.Run(&ebpf.RunOptions{Data: frame(runs * turnsPerRun)}); err != nil || found < enoughHeavy {
					t.Errorf("%s, %s: knows %d of the 32 heaviest (%v)", s.what, way, found, err)
				}
			}
			coll.Close()
		}
	}
}
