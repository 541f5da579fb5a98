// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/lib/capability"
)

// hash8Seeds are the first round constants of SHA-256, by which the eight seeds differ.
var hash8Seeds = []uint32{0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5}

// accelTwin says what bpf/accel.bpf.c has to answer.
func accelTwin(s step) uint64 {
	key := keyOf(s)
	switch s.Op {
	case 5:
		return lanesEqual([]uint64{s.A, s.B, s.A ^ s.B, ^s.A}, 16, uint64(s.Arg))
	case 6, 7, 8, 9:
		var all uint64
		for _, k := range hash8Seeds {
			all = (all ^ uint64(xxh32(key[:[]int{4, 13, 16, 31}[s.Op-6]], s.Arg^k))) * 0x9e3779b97f4a7c15
		}
		return all
	}
	return uint64(crc32.Update(s.Arg, castagnoli, key[:[]int{4, 8, 13, 16, 32}[s.Op]]))
}

func accelStep(r *rand.Rand) (step, uint64, bool) {
	s := step{Op: uint32(r.IntN(10)), A: word(r), B: word(r), Arg: uint32(word(r))}
	if s.Op == 5 && r.IntN(2) == 0 {
		s.Arg = uint32(s.A >> (16 * r.IntN(4)))
	}
	return s, accelTwin(s), true
}

// withWord loads the test program for these capabilities.
func withWord(t *testing.T, w capability.Word) *machine {
	return load(t, "accel", func(spec *ebpf.CollectionSpec) {
		if err := capability.Set(spec, w); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAccel: without the module the word is 0 and the plain functions answer, from XDP and from TC.
func TestAccel(t *testing.T) {
	m := withWord(t, 0)
	m.compare("accel", accelStep)
	m.compare("accel_tc", accelStep)
}

// TestAccelClaims: a word that claims what the kernel does not have makes the load fail; nothing is called that is not there.
func TestAccelClaims(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading programs needs root")
	}
	if w, _ := capability.Detect(); w != 0 {
		t.Skipf("the module is loaded (%v)", w)
	}
	for _, w := range []capability.Word{capability.CRC32c, capability.Match16x16, capability.Hash8} {
		spec, err := ebpf.LoadCollectionSpec("testdata/accel.bpf.o")
		if err != nil {
			t.Fatal(err)
		}
		if err := capability.Set(spec, w); err != nil {
			t.Fatal(err)
		}
		coll, err := ebpf.NewCollection(spec)
		if err == nil {
			coll.Close()
			t.Errorf("the program loads with %v, which is not there", w)
		} else if !strings.Contains(err.Error(), "unknown kfunc") {
			t.Errorf("with %v it fails for another reason: %v", w, err)
		}
	}
}

// TestModule: with the module, the same answers for every word that it allows, and for each function alone, from XDP and from TC. It runs
// where `make test-vm-lib` has put a module; the other tests of the package run before and after without it.
func TestModule(t *testing.T) {
	insert(t, "shunt_lib.ko")
	all, reasons := capability.Detect()
	t.Logf("capabilities with the module: %v; %s", all, strings.Join(reasons, "; "))
	if want := capability.CRC32c | capability.Match16x16 | capability.Hash8; all != want {
		t.Fatalf("the emulated processor has all that is needed, and yet: %v, want %v", all, want)
	}
	for w := capability.Word(0); w <= all; w++ {
		t.Run(w.String(), func(t *testing.T) {
			m := withWord(t, w)
			m.compare("accel", accelStep)
			m.compare("accel_tc", accelStep)
			if w != 0 {
				// A program that calls the module keeps it.
				if err := unix.DeleteModule("shunt_lib", unix.O_NONBLOCK); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EBUSY) {
					t.Errorf("removing a module in use: %v", err)
				}
			}
		})
	}
}
