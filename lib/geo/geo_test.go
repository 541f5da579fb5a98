// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// probabilities are those at the ends, those that people take, and some of every size.
func probabilities() []float64 {
	all := []float64{1, math.Nextafter(1, 0), 0.999, 0.5, 0.1, 0.05, 0.02, 0.01, 0.001, 1.0 / 256, 1.0 / 255, 1e-6, 1e-300, math.SmallestNonzeroFloat64}
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		all = append(all, math.Pow(10, -8*r.Float64()))
	}
	return all
}

// TestExact: entry by entry a table's chances sum up to those of the geometric distribution, as exact as draws of 32 bits allow.
func TestExact(t *testing.T) {
	for _, p := range probabilities() {
		var chance [Size]float64
		for i, e := range NewTable(p) {
			if int(e.Self) != i {
				t.Fatalf("p=%v: entry %d says it is %d", p, i, e.Self)
			}
			kept := float64(e.Keep) / (1 << 32)
			chance[e.Self] += kept / Size
			chance[e.Alias] += (1 - kept) / Size
		}
		for i, got := range chance {
			want := math.Pow(1-p, float64(i))
			if i < Size-1 {
				want *= p
			}
			// Each of 256 entries is rounded to 2^-32 of its share, and one that gives may be given by all.
			if math.Abs(got-want) > 1.0/(1<<32) {
				t.Errorf("p=%v: %d has a chance of %v, want %v", p, i, got, want)
			}
		}
	}
}

func TestPanics(t *testing.T) {
	for _, p := range []float64{0, -0.5, math.Nextafter(1, 2), math.NaN(), math.Inf(1)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a table for probability %v", p)
				}
			}()
			NewTable(p)
		}()
	}
}

const cProgram = `
#include <stdio.h>
#include <stdlib.h>
#include <shunt/rand.h>

int main(int argc, char **argv)
{
	static struct shunt_geo geo;

	for (int i = 1; i < argc; i++) {
		shunt_geo_fill(&geo, strtod(argv[i], NULL));
		if (fwrite(&geo, sizeof(geo), 1, stdout) != 1)
			return 1;
	}
	return 0;
}
`

// TestSameAsC: the header's function fills the same tables.
func TestSameAsC(t *testing.T) {
	compilers := []string{"cc", "gcc", "clang", "clang-19"}
	at := slices.IndexFunc(compilers, func(cc string) bool {
		_, err := exec.LookPath(cc)
		return err == nil
	})
	if at < 0 {
		t.Skipf("none of %v here", compilers)
	}
	if _, err := os.Stat("../include"); err != nil {
		t.Skipf("no headers here: %v", err)
	}
	program := filepath.Join(t.TempDir(), "fill")
	if err := os.WriteFile(program+".c", []byte(cProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	// A product and a sum that become one instruction are rounded once: Go does not do it across an assignment, C may.
	if out, err := exec.Command(compilers[at], "-O2", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-I../include", "-o", program, program+".c").CombinedOutput(); err != nil {
		t.Fatalf("compiling the header for user space: %v\n%s", err, out)
	}
	var arguments []string
	var want []byte
	for _, p := range probabilities() {
		arguments = append(arguments, strconv.FormatFloat(p, 'g', -1, 64))
		var err error
		if want, err = binary.Append(want, binary.NativeEndian, NewTable(p)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := exec.Command(program, arguments...).Output()
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d bytes of C's tables, want %d: %v", len(got), len(want), err)
	}
	for i := range want {
		if got[i] != want[i] {
			entry := i / 8 % Size
			t.Fatalf("p=%s: entry %d is %x in C and %x in Go", arguments[i/8/Size], entry, got[i/8*8:][:8], want[i/8*8:][:8])
		}
	}
}
