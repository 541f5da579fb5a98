// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/lib/capability"
	"github.com/shuntnet/shunt/lib/test/vectors"
)

// testRun is the part of union bpf_attr that BPF_PROG_TEST_RUN reads.
type testRun struct {
	fd, result, sizeIn, sizeOut uint32
	in, out                     uint64
	repeat, duration            uint32
}

// frame is what the program is run on; a variable of the package, since it must not move.
var frame [64]byte

// TestModuleKeepsVectors: a task whose system call runs the module's functions finds its vector registers as they were.
func TestModuleKeepsVectors(t *testing.T) {
	insert(t, "shunt_lib.ko")
	if !cpu.X86.HasAVX2 {
		t.Skip("the processor has no AVX2")
	}
	m := withWord(t, capability.Match16x16|capability.Hash8)
	r := rand.New(rand.NewPCG(*seed, 2))
	frame[4] = 8 // steps
	attr := testRun{fd: uint32(m.coll.Programs["accel"].FD()), sizeIn: uint32(len(frame)), in: uint64(uintptr(unsafe.Pointer(&frame))), repeat: 1}
	for turn := range 2000 {
		for i := range 8 {
			m.steps[i], _, _ = accelStep(r)
			m.steps[i].Op = uint32(5 + (turn+i)%5) // the functions that use vector registers
		}
		var in, out vectors.Registers
		for i := range in {
			for j := range in[i] {
				in[i][j] = byte(r.Uint32())
			}
		}
		got := vectors.Across(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), &in, &out)
		if got < 0 || attr.result != 2 {
			t.Fatalf("turn %d: running the program: %d, result %d", turn, got, attr.result)
		}
		for i := range 8 {
			if want := accelTwin(m.steps[i]); m.steps[i].Out != want {
				t.Fatalf("turn %d: %+v, the twin %#x", turn, m.steps[i], want)
			}
		}
		if in != out {
			for i := range in {
				if in[i] != out[i] {
					t.Errorf("turn %d: register %d was %x and is %x", turn, i, in[i], out[i])
				}
			}
			t.FailNow()
		}
	}
}
