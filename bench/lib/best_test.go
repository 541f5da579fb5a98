// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/lab"
)

// The table says what the geometric distribution says: else a sketch that samples with it would be fast and wrong.
func TestBestSampler(t *testing.T) {
	for _, p := range []float64{0.005, 0.02, 0.1, 0.5} {
		raw := bestSampler(p)
		var got [256]float64
		for i := range 256 {
			at := raw[16+8*i:]
			keep := float64(binary.NativeEndian.Uint32(at)) / (1 << 32)
			got[at[5]] += keep / 256
			got[at[4]] += (1 - keep) / 256
		}
		for i, share := range got {
			want := p * math.Pow(1-p, float64(i))
			if i == 255 {
				want /= p // this many or more
			}
			if math.Abs(share-want) > 1e-9 {
				t.Errorf("p = %v: %d comes with a chance of %v, ought to with %v", p, i, share, want)
			}
		}
	}
}

// Every kernel has to take the plain programs, and quickly: they are compared on all of them.
func TestBestLoads(t *testing.T) {
	lab.RequireRoot(t)
	for name, object := range map[string][]byte{"operations": operationsObject, "functions": functionsObject} {
		spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !strings.HasSuffix(name, "_best") })
		if len(spec.Programs) == 0 {
			t.Errorf("%s: no program's name ends in _best", name)
		}
		start := time.Now()
		coll, err := ebpf.NewCollection(spec)
		if err != nil {
			t.Errorf("%s: %+v", name, err)
			continue
		}
		t.Logf("%s: %d programs loaded in %v", name, len(coll.Programs), time.Since(start))
		coll.Close()
	}
}
