// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

//go:embed testdata/structures.bpf.o
var structuresObject []byte

//go:embed testdata/structures_common.bpf.o
var structuresCommonObject []byte

//go:embed testdata/structures_best.bpf.o
var structuresBestObject []byte

// structureObjects are the ways to hold elements.
var structureObjects = map[string][]byte{library: structuresObject, common: structuresCommonObject, best: structuresBestObject}

var structures = suite.Section{
	Name: "structures", Title: "Structures", Budget: budget(15),
	About: "256 operations on random elements per run, by BPF_PROG_TEST_RUN, less an empty loop; each run goes on with other elements, which neither caches nor predictors know yet. A skip list's runs are timed one by one, in calls of their own: before runs that repeat, the kernel sleeps, and the caches would have to be filled again. \"Common\" is the same structure with bits found by branches, fingerprints compared one by one and keys " +
		"hashed by CRC32c byte by byte, or (skip list, filters, heaviest flows) as papers and textbooks have it (bench/lib/bpf/common_structures.h). \"Best plain\" was written from the task alone by someone who had not read the library's " +
		"code for it, for this one program: no checks of handles, no readers beside a writer (bench/lib/bpf/best_structures.h). \"Native\" is the library's headers in user space, clang-19 -O3 -march=native. " +
		"Each structure is filled anew for each variant; what is found is summed up, and has to be the same in all variants, unless chance is part of the structure; of a cuckoo table all keys are looked up besides. " +
		"Skip list: keys of 64 bits. Queue and wheel: what is taken out goes in again, 2,048 of 4,096 handles queued; the best plain queue has a window of 4,096 priorities, which is what its program needs, the library's twice that. Cuckoo table: 4,096 places, keys of 16 bytes, all of them there. " +
		"Set summary: 4,096 places. Filters: 65,536 bits for 4,096 keys, or 4,096 places half full, asked for keys that are there. Heaviest flows: of 2,080 flows, 32 have half of the packets; 31 of them have to be known to a tenth. Lists, trees and buckets: in a map's value.",
	Run: runStructures,
}

// A filled structure is one that holds n elements, and an operation on it.
type filled struct {
	what, fill, run string
	n               int
	ways            []string // besides the library's
	random          bool     // what it finds is a matter of chance
}

func everyStructure() []filled {
	plain, alone := []string{common, best}, []string(nil)
	var all []filled
	for n := 1 << 12; n <= 1<<16; n *= 2 {
		all = append(all,
			filled{fmt.Sprintf("skip list of %d, lookup", n), "skip_fill", "skip_get", n, plain, false},
			filled{fmt.Sprintf("skip list of %d, update", n), "skip_fill", "skip_update", n, plain, false})
	}
	all = append(all,
		filled{"priority queue, push and pop", "queue_fill", "queue_turn", 2048, plain, false},
		filled{"timing wheel, push and pop", "wheel_fill", "wheel_turn", 2048, plain, false})
	for _, percent := range []int{10, 25, 50, 75, 100} {
		all = append(all, filled{fmt.Sprintf("cuckoo table at %d %%, lookup", percent), "table_fill", "table_get", 4096 * percent / 100, plain, false})
	}
	for _, percent := range []int{25, 50, 75} {
		all = append(all, filled{fmt.Sprintf("set summary (htss) at %d %%, lookup", percent), "htss_fill", "htss_get", 4096 * percent / 100, plain, false})
	}
	return append(all,
		filled{"heaviest flows (hkeeper and topk), count", "", "heavy_add", 4096, plain, true},
		filled{"Bloom filter, test", "bloom_fill", "bloom_get", 4096, []string{common}, false},
		filled{"blocked Bloom filter, test", "blocked_fill", "blocked_get", 4096, alone, false},
		filled{"cuckoo filter, lookup", "filter_fill", "filter_get", 2048, []string{common}, false},
		filled{"bucket lists, push and pop", "bucket_fill", "bucket_turn", 2048, alone, false},
		filled{"list, pop and push", "list_fill", "list_turn", 4095, alone, false},
		filled{"tree, pop first and add", "rank_fill", "rank_turn", 2048, alone, false},
		filled{"tree, find", "tree_fill", "tree_get", 4095, alone, false},
		filled{"Maglev, choice", "maglev_fill", "maglev_get", 65537, alone, false})
}

const emptyLoop = "empty loop"

func runStructures(b *suite.Bench) error {
	repeat := 400 // of native functions
	if b.Size.Name != "full" {
		repeat = 20
	}
	inUserSpace, err := buildNative(b, "structures")
	if err != nil {
		b.Skip("native figures", err.Error())
	}
	var turns []measure.Turn
	sums := map[string]uint64{}
	agree := func(s filled, variant string, sum uint64) error {
		want, known := sums[s.what]
		switch {
		case s.random || s.fill == "":
		case !known:
			sums[s.what] = sum
		case sum != want && !s.full(): // of a full table other keys are left out by another hash
			return fmt.Errorf("%s: %s found %d, others %d", s.what, variant, sum, want)
		}
		return nil
	}
	all := append([]filled{{what: emptyLoop, run: "loop_empty", n: 1, ways: []string{common, best}}}, some(b, everyStructure())...)
	for _, s := range all {
		for _, v := range append([]string{library}, s.ways...) {
			turns = append(turns, measure.Turn{Name: s.what + ", " + v, Run: func(set *measure.Set) error {
				ns, sum, err := s.measure(b, structureObjects[v])
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.what, v, err)
				}
				set.Add(s.what, v, "time", "ns", ns)
				return agree(s, v, sum)
			}})
		}
	}
	if inUserSpace != "" {
		turns = append(turns, measure.Turn{Name: native, Run: func(set *measure.Set) error {
			got, err := runNative(inUserSpace, repeat)
			if err != nil {
				return err
			}
			for _, s := range all {
				r, ok := got[fmt.Sprintf("%s/%d", s.run, s.n)]
				if !ok {
					return fmt.Errorf("no native figure for %s", s.what)
				}
				set.Add(s.what, native, "time", "ns", r.ns)
				if err := agree(s, native, r.sum); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	return b.Turns("structures", b.Size.Rounds, turns)
}

// full says whether not every key that is offered has to find a place.
func (s filled) full() bool { return s.fill == "table_fill" && s.n == 4096 }

// large says whether a structure does not fit into a core's own caches.
func (s filled) large() bool { return s.fill == "skip_fill" }

// load loads what the structure needs of an object: a good part of them is long to verify, and large.
func (s filled) load(object []byte, more ...string) (*ebpf.Collection, error) {
	return loadOnce(object, func(spec *ebpf.CollectionSpec) error {
		needed := append([]string{s.fill, s.run, "table_check", "heavy_check"}, more...)
		for name := range spec.Programs {
			// A check belongs to the structure that its name begins with.
			kind, _, _ := strings.Cut(name, "_")
			if !slices.Contains(needed, name) || strings.HasSuffix(name, "_check") && !strings.Contains(s.run, kind) {
				delete(spec.Programs, name)
			}
		}
		used := map[string]bool{}
		for _, p := range spec.Programs {
			for _, i := range p.Instructions {
				used[i.Reference()] = true
			}
		}
		maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return !used[name] && !strings.HasPrefix(name, ".") })
		return nil
	})
}

// measure fills the structure of a new instance, checks that it holds what it should, and times the operation.
func (s filled) measure(b *suite.Bench, object []byte) (ns float64, sum uint64, err error) {
	coll, err := s.load(object)
	if err != nil {
		return 0, 0, err
	}
	defer coll.Close()
	if err := s.put(coll); err != nil {
		return 0, 0, err
	}
	frame := frame(s.n)
	first, err := coll.Programs[s.run].Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		return 0, 0, fmt.Errorf("running: %w", err)
	}
	clock := timed
	if s.large() {
		clock = timedWarm
	}
	if ns, err = clock(b, coll.Programs[s.run], frame); err != nil {
		return 0, 0, err
	}
	return ns / turnsPerRun, uint64(first), nil
}

// frame tells a program a number, of elements as a rule.
func frame(n int) []byte {
	frame := make([]byte, 64)
	binary.NativeEndian.PutUint32(frame, uint32(n))
	return frame
}

// put fills the structure, and checks that it holds all of it.
func (s filled) put(coll *ebpf.Collection) error {
	if s.fill == "" {
		return nil
	}
	got, err := coll.Programs[s.fill].Run(&ebpf.RunOptions{Data: frame(s.n)})
	if err != nil {
		return fmt.Errorf("filling: %w", err)
	}
	// Of a cuckoo table the last places are not to be had.
	if int(got) != s.n && !(s.full() && int(got) > s.n*98/100) {
		return fmt.Errorf("holds %d elements after being filled with %d", int32(got), s.n)
	}
	check := coll.Programs["table_check"]
	if check == nil {
		return nil
	}
	right, err := check.Run(&ebpf.RunOptions{Data: frame(s.n)})
	if err == nil && right != got {
		err = fmt.Errorf("took in %d keys, of which %d have their value", got, right)
	}
	return err
}
