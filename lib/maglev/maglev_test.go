// SPDX-License-Identifier: Apache-2.0

package maglev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func backends(n int) (all []Backend) {
	for i := range n {
		all = append(all, Backend{ID: ID(fmt.Sprintf("backend-%d", i)), Weight: 1})
	}
	return all
}

func filled(t *testing.T, size int, all []Backend) []uint16 {
	t.Helper()
	table := make([]uint16, size)
	if err := Fill(table, all); err != nil {
		t.Fatal(err)
	}
	return table
}

// TestPaper: a twin written from the paper's pseudocode, with whole permutations, fills the same table.
func TestPaper(t *testing.T) {
	for _, n := range []int{1, 2, 7, 100, 251} {
		const size = 251
		all := backends(n)
		slices.SortFunc(all, func(a, b Backend) int {
			if a.ID < b.ID {
				return -1
			}
			return 1
		})
		permutation := make([][]int, n)
		for i, b := range all {
			offset, skip := hash(b.ID, 1)%size, hash(b.ID, 2)%(size-1)+1
			for j := range uint64(size) {
				permutation[i] = append(permutation[i], int((offset+j*skip)%size))
			}
		}
		next, entry, done := make([]int, n), make([]int, size), 0
		for i := range entry {
			entry[i] = -1
		}
		for done < size {
			for i := 0; i < n && done < size; i++ {
				c := permutation[i][next[i]]
				for entry[c] >= 0 {
					next[i]++
					c = permutation[i][next[i]]
				}
				entry[c] = i
				next[i]++
				done++
			}
		}
		for i, got := range filled(t, size, all) {
			if int(got) != entry[i] {
				t.Fatalf("%d backends: entry %d is %d, the paper's %d", n, i, got, entry[i])
			}
		}
	}
}

// shares returns how many entries each backend has.
func shares(table []uint16, n int) []int {
	count := make([]int, n)
	for _, b := range table {
		count[b]++
	}
	return count
}

// TestBalance: equal weights get equal shares to within one entry, weights their part.
func TestBalance(t *testing.T) {
	const size = 65537
	for _, n := range []int{2, 3, 10, 100, 600} {
		count := shares(filled(t, size, backends(n)), n)
		if slices.Max(count)-slices.Min(count) > 1 {
			t.Errorf("%d backends have %d to %d entries", n, slices.Min(count), slices.Max(count))
		}
	}
	all := backends(30)
	sum := 0
	for i := range all {
		all[i].Weight = uint32(i * i)
		sum += i * i
	}
	for i, got := range shares(filled(t, size, all), 30) {
		want := float64(size) * float64(i*i) / float64(sum)
		if off := float64(got) - want; off < -3 || off > 3 {
			t.Errorf("weight %d of %d has %d entries, want %.0f", i*i, sum, got, want)
		}
	}
}

// TestDisruption: when a backend goes, flows of others hardly move: 1/n of all have to, and few more do.
func TestDisruption(t *testing.T) {
	const size, n = 65537, 100
	all := backends(n)
	before := filled(t, size, all)
	r := rand.New(rand.NewPCG(1, 12))
	for range 5 {
		gone := r.IntN(n)
		less := slices.Clone(all)
		less[gone].Weight = 0
		moved := 0
		for i, b := range filled(t, size, less) {
			if b == uint16(gone) {
				t.Fatalf("backend %d is without weight and has entry %d", gone, i)
			}
			if b != before[i] && before[i] != uint16(gone) {
				moved++
			}
		}
		// The paper's figure 12 has 1 to 2 % for tables of this size; hashing modulo n would move 99 %.
		if moved > size/50 {
			t.Errorf("without backend %d, %d of %d entries of others moved", gone, moved, size)
		}
		if moved == 0 {
			t.Error("nothing moved: this is not Maglev's table, or the test does not look")
		}
		// A list without it gives the same, but for the indexes.
		short := slices.Delete(slices.Clone(all), gone, gone+1)
		other := filled(t, size, short)
		for i, b := range filled(t, size, less) {
			if short[other[i]].ID != all[b].ID {
				t.Fatalf("entry %d depends on a backend without weight", i)
			}
		}
	}
}

// TestOrder: the backends' order decides their indexes and nothing else.
func TestOrder(t *testing.T) {
	all := backends(50)
	for i := range all {
		all[i].Weight = uint32(1 + i%3)
	}
	table := filled(t, 4099, all)
	mixed := slices.Clone(all)
	r := rand.New(rand.NewPCG(1, 13))
	r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	for i, b := range filled(t, 4099, mixed) {
		if mixed[b].ID != all[table[i]].ID {
			t.Fatalf("entry %d depends on the order", i)
		}
	}
}

// TestRefused: what cannot be filled is left as it was.
func TestRefused(t *testing.T) {
	twice := append(backends(3), backends(1)...)
	for name, test := range map[string]struct {
		size int
		all  []Backend
		want error
	}{
		"none":      {0, nil, ErrSize},
		"two":       {2, nil, ErrSize},
		"composite": {65535, backends(2), ErrSize},
		"square":    {251 * 251, backends(2), ErrSize},
		"large":     {16777259, nil, ErrSize}, // a prime
		"many":      {11, backends(12), ErrMany},
		"too many":  {65537, backends(65535), ErrMany},
		"twice":     {11, twice, ErrTwice},
		"fits":      {11, backends(11), nil},
	} {
		table := make([]uint16, test.size)
		for i := range table {
			table[i] = 77
		}
		err := Fill(table, test.all)
		if !errors.Is(err, test.want) || err == nil != (test.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if err != nil && slices.ContainsFunc(table, func(b uint16) bool { return b != 77 }) {
			t.Errorf("%s: the table was changed", name)
		}
	}
	for _, all := range [][]Backend{nil, {{ID: 5}}} {
		if table := filled(t, 11, all); slices.ContainsFunc(table, func(b uint16) bool { return b != None }) {
			t.Errorf("without weights the table is %v", table)
		}
	}
}

// cases are filled in C and in Go; sums are FNV-1a of the tables' bytes, so that Go's are held to C's where there is no compiler.
var cases = []struct {
	size, n int
	sum     uint64
}{
	{3, 0, 0x708537aad943f66f}, {3, 1, 0xd7e4fcfa299d713d}, {251, 16, 0x1b35c5fded5aff7d}, {4099, 100, 0x1124b7d9cf12b516},
	{65537, 1000, 0x9ed9850bba2f878f}, {65535, 3, 0}, {11, 12, 0},
}

func caseBackends(n int) (all []Backend) {
	for i := range n {
		all = append(all, Backend{ID: uint64(i+1) * 0x9e3779b97f4a7c15, Weight: uint32(i%5 + n%2)})
	}
	return all
}

const cProgram = `
#include <stdio.h>
#include <shunt/maglev.h>
int main(int argc, char **argv)
{
	__u32 size = atoi(argv[1]), n = atoi(argv[2]);
	__u16 *table = calloc(size, 2);
	struct shunt_maglev_backend *b = calloc(n + 1, sizeof(*b));
	for (__u32 i = 0; i < n; i++)
		b[i] = (struct shunt_maglev_backend){ (i + 1) * 0x9e3779b97f4a7c15ULL, i % 5 + n % 2 };
	int out = shunt_maglev_fill(table, size, b, n);
	if (out)
		return -out;
	return fwrite(table, 2, size, stdout) != size;
}`

// TestSameAsC: the header's function fills the same tables and refuses the same.
func TestSameAsC(t *testing.T) {
	var program string
	for _, cc := range []string{"cc", "gcc", "clang", "clang-19"} {
		if path, err := exec.LookPath(cc); err == nil {
			program = filepath.Join(t.TempDir(), "fill")
			source := program + ".c"
			if err := os.WriteFile(source, []byte(cProgram), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(path, "-O2", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-I../include", "-o", program, source).CombinedOutput(); err != nil {
				t.Fatalf("compiling the header for user space: %v\n%s", err, out)
			}
			break
		}
	}
	for _, c := range cases {
		table := make([]uint16, c.size)
		err := Fill(table, caseBackends(c.n))
		var raw []byte
		for _, b := range table {
			raw = binary.NativeEndian.AppendUint16(raw, b)
		}
		sum := fnv.New64a()
		sum.Write(raw)
		if err == nil && sum.Sum64() != c.sum {
			t.Errorf("%d backends in %d entries: sum %#x, want %#x", c.n, c.size, sum.Sum64(), c.sum)
		}
		if program == "" {
			continue
		}
		out, failed := exec.Command(program, fmt.Sprint(c.size), fmt.Sprint(c.n)).Output()
		if failed != nil {
			var exit *exec.ExitError
			want := map[int]error{1: ErrSize, 2: ErrMany, 3: ErrTwice}
			if !errors.As(failed, &exit) || err == nil || !errors.Is(err, want[exit.ExitCode()]) {
				t.Errorf("%d backends in %d entries: C gives %v, Go %v", c.n, c.size, failed, err)
			}
			continue
		}
		if err != nil || !slices.Equal(out, raw) {
			t.Errorf("%d backends in %d entries: C's table is another one than Go's (%v)", c.n, c.size, err)
		}
	}
	if program == "" {
		t.Log("no C compiler: compared with what one gave before")
	}
}
