// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/lib/geo"
)

var operations = suite.Section{
	Name: "operations", Title: "Single operations", Budget: budget(10),
	About: "256 operations on random words per run, other ones in each run, by BPF_PROG_TEST_RUN, less an empty loop: operations do not wait for one another, unless the name says that each does. \"Common\" is what authors carry over from C, \"best plain\" what one " +
		"writes for a single program without a library who knows eBPF and the processor well (bench/lib/bpf/best.h), \"builtin\" what clang makes of its own functions, \"native\" the processor's instruction (tzcnt, popcnt, AVX2, crc32) or the same header in user space, compiled with clang-19 -O3 -march=native. \"Instruction\" stands in the loop, unrolled with it, where the compiler " +
		"keeps what does not change; \"called\" is the same behind a call, as a kfunc that offered it would be. What variants computed, and what rows of counters hold, is read back and has to agree; samples and gaps have to have their mean. Each figure of a round is the fastest of 20 batches.",
	Run: runOperations,
}

// An operation is compared in these variants: what the page calls it, and the program or native function.
type operation struct {
	name     string
	exact    bool // all variants compute the same
	variants []variant
	module   bool // the kernel module has it too
}

type variant struct{ name, program string }

// program is the one that does an operation in the named variant; "" if there is none.
func (op operation) program(variant string) string {
	for _, v := range op.variants {
		if v.name == variant {
			return v.program
		}
	}
	return ""
}

// Names of variants on the page.
const (
	common      = "common"
	builtin     = "clang's builtin"
	best        = "best plain"
	library     = "library"
	native      = "native"
	called      = "native, called"
	instruction = "native, instruction"
)

var compared = []operation{
	{"lowest bit (ctz)", true, []variant{{common, "ctz_common"}, {builtin, "ctz_builtin"}, {best, "ctz_best"}, {library, "ctz_shunt"}, {called, "!ctz_called"}, {instruction, "!ctz_builtin"}}, false},
	{"lowest bit, each waits for the last", true, []variant{{builtin, "chain_ctz_builtin"}, {best, "chain_ctz_best"}, {library, "chain_ctz_shunt"}, {called, "!chain_ctz_called"}, {instruction, "!chain_ctz_builtin"}}, false},
	{"highest bit (clz)", true, []variant{{common, "clz_common"}, {builtin, "clz_builtin"}, {library, "clz_shunt"}, {instruction, "!clz_builtin"}}, false},
	{"popcount", true, []variant{{common, "popcount_common"}, {builtin, "popcount_builtin"}, {library, "popcount_shunt"}, {instruction, "!popcount_builtin"}}, false},
	{"rotation", true, []variant{{common, "rotate_common"}, {library, "rotate_shunt"}, {instruction, "!rotate_shunt"}}, false},
	{"random number", false, []variant{{common, "random_common"}, {best, "random_best"}, {library, "random_shunt"}, {native, "!random_shunt"}}, false},
	{"sample 2 %", false, []variant{{common, "sample_common"}, {best, "sample_best"}, {library, "sample_shunt"}, {native, "!sample_shunt"}}, false},
	{"geometric draw", false, []variant{{common, "draw_common"}, {best, "draw_best"}, {library, "draw_shunt"}, {native, "!draw_shunt"}}, false},
	{"match 16 of 16 bits", true, []variant{{common, "match_common"}, {best, "match_best"}, {library, "match_shunt"}, {native, "!match_shunt"}, {called, "!match_called"}, {instruction, "!match_native"}}, true},
	{"match 16 of 15 bits", true, []variant{{common, "match_common"}, {library, "match15_shunt"}, {native, "!match15_shunt"}, {called, "!match_called"}, {instruction, "!match_native"}}, false},
	{"hash of 16 bytes", true, []variant{{common, "hash_common"}, {best, "hash_best"}, {library, "hash_shunt"}, {native, "!hash_shunt"}, {instruction, "!hash_crc32"}}, false},
	{"eight independent hashes", true, []variant{{common, "hash8_common"}, {library, "hash8_shunt"}, {native, "!hash8_shunt"}}, true},
	{"CRC32c of 16 bytes", true, []variant{{common, "crc32c_common"}, {library, "crc32c_shunt"}, {native, "!crc32c_shunt"}, {instruction, "!crc32c_native"}}, true},
	{"count-min, 4 rows", true, []variant{{common, "cms4_common"}, {best, "cms4_best"}, {library, "cms4_shunt"}, {native, "!cms4_shunt"}}, false},
	{"count-min, 8 rows", true, []variant{{common, "cms8_common"}, {best, "cms8_best"}, {library, "cms8_shunt"}, {native, "!cms8_shunt"}}, false},
}

// turnsPerRun is how many operations a run of a program does.
const turnsPerRun = 256

func runOperations(b *suite.Bench) error {
	coll, err := load(b, operationsObject, nil)
	if err != nil {
		return err
	}
	if err := prepare(coll); err != nil {
		return err
	}
	inUserSpace, err := buildNative(b, "native")
	if err != nil {
		b.Skip("native figures", err.Error())
	}
	if err := agree(coll, inUserSpace); err != nil {
		return err
	}
	repeat := 20_000 // of native functions
	if b.Size.Name != "full" {
		repeat = 500
	}
	all := []measure.Turn{}
	timedOnce := map[string]bool{} // some are compared with two operations
	for _, op := range append(compared, operation{variants: []variant{{"", "empty"}}}) {
		for _, v := range op.variants {
			if strings.HasPrefix(v.program, "!") || timedOnce[v.program] {
				continue
			}
			timedOnce[v.program] = true
			prog := coll.Programs[v.program]
			all = append(all, measure.Turn{Name: v.program, Run: func(set *measure.Set) error {
				ns, err := timed(b, prog, make([]byte, 64))
				set.Add(v.program, "bpf", "time", "ns", ns/turnsPerRun)
				return err
			}})
		}
	}
	if inUserSpace != "" {
		all = append(all, measure.Turn{Name: "native", Run: func(set *measure.Set) error {
			got, err := runNative(inUserSpace, repeat)
			for name, r := range got {
				set.Add("!"+name, "native", "time", "ns", r.ns)
			}
			return err
		}})
	}
	return b.Turns("operations", b.Size.Rounds, all)
}

// Where the counters of bpf/operations.h lie in its memory, which ends with them and the best plain way's sampler.
const benchCounters = 4 * 8 << 12

// prepare fills the memory as native.c does.
func prepare(coll *ebpf.Collection) error {
	size := coll.Maps["memory"].ValueSize()
	raw := make([]byte, size)
	const state = 88172645463325252
	binary.NativeEndian.PutUint64(raw[8:], state)
	binary.NativeEndian.PutUint64(raw[16:], state)
	at := 32
	for _, e := range geo.NewTable(operationsSampled) {
		binary.NativeEndian.PutUint32(raw[at:], e.Keep)
		raw[at+4], raw[at+5] = e.Alias, e.Self
		at += 8
	}
	for i := range uint32(256 * 16) {
		binary.NativeEndian.PutUint16(raw[at:], uint16(i*0x9e3779b1>>24))
		at += 2
	}
	copy(raw[len(raw)-bestSize:], bestSampler(operationsSampled))
	if err := coll.Maps["memory"].Update(uint32(0), raw, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("filling the programs' memory: %w", err)
	}
	return nil
}

// operationsSampled is the share that single operations sample.
const operationsSampled = 0.02

// agree runs every variant and compares what those of one operation computed.
func agree(coll *ebpf.Collection, inUserSpace string) error {
	var sums map[string]outcome
	if inUserSpace != "" {
		var err error
		if sums, err = runNative(inUserSpace, 1); err != nil {
			return err
		}
	}
	for _, op := range compared {
		if !op.exact {
			if err := op.plausible(coll); err != nil {
				return err
			}
			continue
		}
		var want uint64
		for i, v := range op.variants {
			var sum uint64
			if name, ok := strings.CutPrefix(v.program, "!"); !ok {
				var err error
				if sum, err = computed(coll, v.program); err != nil {
					return fmt.Errorf("%s: %w", v.program, err)
				}
			} else if sums == nil {
				continue
			} else {
				sum = sums[name].sum
			}
			if i == 0 {
				want = sum
			} else if sum != want {
				return fmt.Errorf("%s: %s computed %d and %s %d", op.name, op.variants[0].name, want, v.name, sum)
			}
		}
	}
	return nil
}

// computed is what one run of a program finds: what it returns, or what its rows of counters hold.
func computed(coll *ebpf.Collection, name string) (uint64, error) {
	if err := prepare(coll); err != nil {
		return 0, err
	}
	ret, err := coll.Programs[name].Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	if err != nil {
		return 0, fmt.Errorf("running: %w", err)
	}
	var rows int
	if n, _ := fmt.Sscanf(name, "cms%d_", &rows); n == 0 {
		return uint64(ret), nil
	}
	raw, err := coll.Maps["memory"].LookupBytes(uint32(0))
	if err != nil {
		return 0, fmt.Errorf("reading the counters: %w", err)
	}
	counters := raw[len(raw)-bestSize-benchCounters:]
	for row := range rows {
		var sum uint64
		for col := range 1 << 12 {
			sum += uint64(binary.NativeEndian.Uint32(counters[4*(row<<12+col):]))
		}
		if sum != turnsPerRun {
			return 0, fmt.Errorf("row %d counted %d of %d", row, sum, turnsPerRun)
		}
	}
	return uint64(rows) * turnsPerRun, nil
}

// plausible looks at what is a matter of chance: samples and gaps have the mean that they ought to have. A random number has nothing that
// could be compared.
func (op operation) plausible(coll *ebpf.Collection) error {
	const runs, p = 400, operationsSampled
	const n = runs * turnsPerRun
	var mean, deviation float64
	switch op.name {
	case "sample 2 %":
		mean, deviation = p, math.Sqrt(p*(1-p)/n)
	case "geometric draw":
		mean, deviation = (1-p)/p, math.Sqrt((1-p)/p/p/n)
	default:
		return nil
	}
	if err := prepare(coll); err != nil {
		return err
	}
	for _, v := range op.variants {
		if strings.HasPrefix(v.program, "!") {
			continue
		}
		var sum float64
		for range runs {
			got, err := coll.Programs[v.program].Run(&ebpf.RunOptions{Data: make([]byte, 64)})
			if err != nil {
				return fmt.Errorf("running %s: %w", v.program, err)
			}
			sum += float64(got)
		}
		if off := sum/n - mean; math.Abs(off) > 6*deviation {
			return fmt.Errorf("%s, %s: a mean of %v, ought to be %v", op.name, v.name, sum/n, mean)
		}
	}
	return nil
}

type outcome struct {
	ns  float64
	sum uint64
}

// buildNative compiles native/NAME.c and returns the program's path.
func buildNative(b *suite.Bench, name string) (string, error) {
	clang, err := exec.LookPath("clang-19")
	if err != nil {
		return "", errors.New("no clang-19 here to compile them")
	}
	if _, err := os.Stat("bench/lib/native/" + name + ".c"); err != nil {
		return "", fmt.Errorf("not run from the repository's root: %w", err)
	}
	dir, err := b.TempDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if out, err := exec.Command(clang, "-O3", "-march=native", "-Ilib/include", "bench/lib/native/"+name+".c", "-o", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling them: %w: %s", err, out)
	}
	return path, nil
}

// runNative measures every native function once.
func runNative(path string, turns int) (map[string]outcome, error) {
	out, err := exec.Command(path, fmt.Sprint(turns)).Output()
	if err != nil {
		return nil, fmt.Errorf("running the native operations: %w", err)
	}
	all := map[string]outcome{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var name string
		var o outcome
		if _, err := fmt.Sscan(lines.Text(), &name, &o.ns, &o.sum); err != nil {
			return nil, fmt.Errorf("reading %q of the native operations: %w", lines.Text(), err)
		}
		all[name] = o
	}
	return all, nil
}
