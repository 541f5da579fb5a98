// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"testing"

	"github.com/cilium/ebpf"
)

// BenchmarkRun is what a structural change pays before the program is loaded.
func BenchmarkRun(b *testing.B) {
	spec, err := ebpf.LoadCollectionSpec("testdata/switches_bpfel.o")
	if err != nil {
		b.Fatal(err)
	}
	ro, err := ReadOnly(spec)
	if err != nil {
		b.Fatal(err)
	}
	insns := spec.Programs["route"].Instructions
	for b.Loop() {
		if _, stats, err := Run(insns, ro); err != nil || stats.Untouched != "" {
			b.Fatal(err, stats.Untouched)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count(insns)), "ns/insn")
}
