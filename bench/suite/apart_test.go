// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"math"
	"runtime"
	"testing"
)

func TestApart(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs 2 CPUs")
	}
	ns, err := Apart(0, 1)
	if err != nil || ns <= 0 || math.IsInf(ns, 0) {
		t.Errorf("two CPUs are %v ns apart: %v", ns, err)
	}
	t.Logf("%.0f ns there and back", ns)
	if _, err := Apart(0, 1<<12-1); runtime.NumCPU() < 1<<12-1 && err == nil {
		t.Error("a CPU that does not exist is some way off")
	}
}
