// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

var updateVerified = flag.Bool("update", false, "write what the verifier walks on this kernel into docs/lib/README.md")

// loadFrom are the kernels (major, minor) from which on a test program has to load, for those that need more than the oldest. An older kernel may
// have what it takes all the same.
var loadFrom = map[string][2]int{
	"list_arena":   {6, 12},
	"tree_arena":   {6, 12},
	"list_objects": {6, 12},
	"tree_objects": {6, 12},
	"tree_search":  {6, 16},
}

// A walk is what the verifier said about a program.
type walk struct {
	program              string
	instructions, states int
}

var processed = regexp.MustCompile(`processed (\d+) insns .* total_states (\d+) `)

func newWalk(program, log string) (walk, error) {
	said := processed.FindStringSubmatch(log)
	if said == nil {
		return walk{}, fmt.Errorf("program %s: the verifier does not say how much it walked: %q", program, log)
	}
	instructions, err := strconv.Atoi(said[1])
	if err != nil {
		return walk{}, err
	}
	states, err := strconv.Atoi(said[2])
	return walk{program, instructions, states}, err
}

// TestLoads: the verifier of this kernel accepts every test program and every example, and the documentation says what it walks for that.
func TestLoads(t *testing.T) {
	walks := map[string][]walk{}
	load := func(prefix, pattern string) {
		for _, object := range objectFiles(t, pattern) {
			name := prefix + strings.TrimSuffix(filepath.Base(object), ".bpf.o")
			t.Run(name, func(t *testing.T) {
				walks[name] = loads(t, object)
				for _, w := range walks[name] {
					t.Logf("%s: %d instructions, %d states", w.program, w.instructions, w.states)
				}
			})
		}
	}
	load("", "testdata/*.bpf.o")
	load("examples/", "../examples/*/testdata/*.bpf.o")
	if os.Getenv("SHUNT_VM") == "" { // in there is no documentation
		documentWalks(t, walks)
	}
}

// TestBenchLoads: the verifier of this kernel accepts what the benchmark measures. Here bench/lib's own tests run it. What is written the common way, without
// the library, need not load on other kernels than the benchmark's, if it is too long for their verifiers (6.1: fingerprints compared one by one; 7.3: these, and
// bits found by branches and by loops, eight times over); how many are is told.
func TestBenchLoads(t *testing.T) {
	if os.Getenv("SHUNT_VM") == "" {
		t.Skip("only in the virtual machines, where the benchmark is not run")
	}
	for _, object := range objectFiles(t, "../../bench/lib/testdata/*.bpf.o") {
		t.Run(strings.TrimSuffix(filepath.Base(object), ".bpf.o"), func(t *testing.T) {
			var long []string
			_, err := loadsPlain(object, func(program string) bool { return slices.Contains(long, program) })
			for err != nil && errors.Is(err, unix.E2BIG) && (olderThan(t, 6, 18) || !olderThan(t, 7, 0)) {
				refused := tooLong.FindStringSubmatch(err.Error())
				if refused == nil || slices.Contains(long, refused[1]) {
					break
				}
				t.Logf("too long for this verifier: %s", refused[1])
				long = append(long, refused[1])
				_, err = loadsPlain(object, func(program string) bool { return slices.Contains(long, program) })
			}
			if err != nil && strings.HasSuffix(object, "structures_best.bpf.o") && olderThan(t, 6, 12) {
				t.Skipf("Linux before 6.12 (6.1.192 at least) forgets the bounds of a 32-bit OR, and these have no masks that the compiler could not remove: %v", err)
			}
			var said *ebpf.VerifierError
			if errors.As(err, &said) {
				err = fmt.Errorf("%w\n%+v", err, said)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// tooLong is how cilium/ebpf names a program that was refused, of those that may be too long.
var tooLong = regexp.MustCompile(`^program (\w+_common): `)

func objectFiles(t *testing.T, pattern string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading programs needs root")
	}
	objects, err := filepath.Glob(pattern)
	if err != nil || len(objects) == 0 {
		t.Fatalf("no objects in %s: %v", pattern, err)
	}
	return objects
}

// loads has the verifier look at every program of an object, and returns what it walked for each. One with a version of its own in loadFrom is of
// those that cilium/ebpf does not load by itself (memories_test.go).
func loads(t *testing.T, object string) []walk {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(object), ".bpf.o")
	from, special := loadFrom[name]
	if strings.HasSuffix(name, "_arena") {
		if lack := lacksArena(); lack != "" { // old kernels, and new ones on a processor without cmpxchg16b
			skipLacking(t, name, lack)
		}
	}
	var walks []walk
	var err error
	if special {
		var w *whole
		if w, err = loadTypes(t, object); err == nil {
			walks = w.walks
		}
	} else {
		walks, err = loadsPlain(object, func(string) bool { return false })
	}
	if err != nil && special && olderThan(t, from[0], from[1]) {
		t.Skipf("this program is for Linux %d.%d on: %v", from[0], from[1], err)
	}
	if err == nil {
		slices.SortFunc(walks, func(a, b walk) int { return cmp.Compare(b.instructions, a.instructions) })
		return walks
	}
	// The last lines tell what the verifier disliked; all of them are many thousand.
	if refused := (*ebpf.VerifierError)(nil); errors.As(err, &refused) {
		t.Log(strings.Join(refused.Log[max(0, len(refused.Log)-20):], "\n"))
	}
	t.Error(err)
	return nil
}

func loadsPlain(object string, without func(program string) bool) ([]walk, error) {
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(spec.Programs, func(program string, _ *ebpf.ProgramSpec) bool { return without(program) })
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	var walks []walk
	for name, p := range coll.Programs {
		w, err := newWalk(name, p.VerifierLog)
		if err != nil {
			return nil, err
		}
		walks = append(walks, w)
	}
	return walks, nil
}

const libraryPage = "../../docs/lib/README.md"

var walkTable = regexp.MustCompile(`(?s)(\| program \| headers \| instructions \| states \|\n\| --- \| --- \| ---: \| ---: \|\n)(.*?)\n\n`)

var included = regexp.MustCompile(`(?m)^#include <shunt/(\w+\.h)>`)

// documentWalks wants every object in the table of the library's page, or writes the table.
func documentWalks(t *testing.T, walks map[string][]walk) {
	t.Helper()
	page, err := os.ReadFile(libraryPage)
	if err != nil {
		t.Fatal(err)
	}
	at := walkTable.FindSubmatchIndex(page)
	if at == nil {
		t.Fatalf("%s has no table of what the verifier walks", libraryPage)
	}
	if !*updateVerified {
		for name := range walks {
			if !bytes.Contains(page[at[4]:at[5]], []byte("| `"+name+"` |")) {
				t.Errorf("%s is not in the table of %s: go test ./lib/test -run TestLoads -update", name, libraryPage)
			}
		}
		return
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for name, all := range walks {
		if len(all) == 0 {
			t.Fatalf("%s was not loaded, so the table would not have it", name)
		}
		source := "bpf/" + name + ".bpf.c"
		example, kind := strings.CutPrefix(name, "examples/")
		if kind {
			source = "../examples/" + example + "/bpf/" + example + ".bpf.c"
		}
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		var headers []string
		for _, h := range included.FindAllStringSubmatch(string(text), -1) {
			headers = append(headers, "`"+h[1]+"`")
		}
		rows = append(rows, fmt.Sprintf("%t%s\x00| `%s` | %s | %d | %d |", kind, name, name, strings.Join(headers, " "), all[0].instructions, all[0].states))
	}
	slices.Sort(rows)
	for i, row := range rows {
		_, rows[i], _ = strings.Cut(row, "\x00")
	}
	out := slices.Concat(page[:at[4]], []byte(strings.Join(rows, "\n")), page[at[5]:])
	version := regexp.MustCompile(`walks on Linux [0-9.]+`)
	release := regexp.MustCompile(`^\d+\.\d+`).FindString(unix.ByteSliceToString(kernel.Release[:]))
	out = version.ReplaceAll(out, []byte("walks on Linux "+release))
	if err := os.WriteFile(libraryPage, out, 0o644); err != nil {
		t.Fatal(err)
	}
}
