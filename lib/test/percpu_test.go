// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/shuntnet/shunt/lib/geo"
)

// Operations of bpf/percpu.bpf.c.
const (
	eachCount = iota
	eachCareful
	sharedCount
	eachKeep
	eachSample
)

// putEach writes the value of each CPU in the only entry of a map; those without one are zero.
func putEach[T any](m *machine, name string, values ...T) {
	m.t.Helper()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		m.t.Fatal(err)
	}
	raw := make([][]byte, cpus)
	for cpu := range raw {
		raw[cpu] = make([]byte, m.coll.Maps[name].ValueSize())
		if cpu < len(values) {
			if _, err := binary.Encode(raw[cpu], binary.NativeEndian, values[cpu]); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	if err := m.coll.Maps[name].Update(uint32(0), raw, ebpf.UpdateAny); err != nil {
		m.t.Fatalf("writing %s: %v", name, err)
	}
}

// getEach reads what the first two CPUs have in the only entry of a map.
func getEach[T any](m *machine, name string) (values [2]T) {
	m.t.Helper()
	var raw [][]byte
	if err := m.coll.Maps[name].Lookup(uint32(0), &raw); err != nil {
		m.t.Fatalf("reading %s: %v", name, err)
	}
	for cpu := range values {
		if err := binary.Read(bytes.NewReader(raw[cpu]), binary.NativeEndian, &values[cpu]); err != nil {
			m.t.Fatal(err)
		}
	}
	return values
}

// eachKeeper and eachNitro are struct keeper and struct sampled of bpf/percpu.bpf.c.
type eachKeeper struct {
	State uint64
	Slot  [2 << 10]struct{ Print, Count uint32 }
	Top   heaviest
}

type eachNitro struct {
	State      uint64
	Skip, Step uint32
	Counter    signedSketch
}

// A signedSketch is the count sketch under NitroSketch, in units of 1/256.
type signedSketch [5 << 10]int32

func (k *signedSketch) row(hash uint64, row int) (at *int32, sign int32) {
	return &k[row<<10|int(nth(hash, row)&1023)], 1 - 2*int32(hash>>(63-row)&1)
}

func (k *signedSketch) get(hash uint64) float64 {
	var rows [5]int32
	for row := range rows {
		at, sign := k.row(hash, row)
		rows[row] = *at * sign
	}
	slices.Sort(rows[:])
	return float64(rows[2]) / 256
}

func (k *signedSketch) merge(other *signedSketch) {
	for i, v := range other {
		k[i] += v
	}
}

// onEach has both CPUs run batches of steps that their own next makes up; want says what each has to answer, if anything.
func onEach(t *testing.T, m *machine, batches int, next func(cpu int, r *rand.Rand) (s step, want uint64, exact bool)) {
	t.Helper()
	const half = maxSteps / 2
	err := bothCPUs(func(cpu int) error {
		r := rand.New(rand.NewPCG(*seed, uint64(cpu)))
		mine, want, exact := m.steps[cpu*half:][:half], make([]uint64, half), make([]bool, half)
		for batch := range batches {
			for i := range mine {
				mine[i], want[i], exact[i] = next(cpu, r)
			}
			if err := m.trySpan("percpu", cpu*half, half); err != nil {
				return err
			}
			for i, s := range mine {
				if exact[i] && s.Out != want[i] {
					return fmt.Errorf("CPU %d, batch %d, operation %d: %+v, the twin says %#x", cpu, batch, i, s, want[i])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEachCPU: sketches and tables that each CPU has for itself are the twins of what that CPU saw, whatever the other does meanwhile, and give
// together what the headers say; one count-min sketch that both fill under a lock loses nothing.
func TestEachCPU(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs")
	}
	m := load(t, "percpu", nil)
	m.put("geo", geo.NewTable(1))
	putEach(m, "keeper", eachKeeper{State: 1}, eachKeeper{State: 2})
	putEach(m, "sampled", eachNitro{State: 1, Step: 256}, eachNitro{State: 2, Step: 256})
	type seen struct {
		usual, careful, shared *countMin
		keeper                 *keeper
		sampled                signedSketch
		times                  [5]map[uint64]int // by operation and key
		zipf                   *rand.Zipf
	}
	var twins [2]*seen
	for cpu := range twins {
		twins[cpu] = &seen{usual: newCountMin(4, 10), careful: newCountMin(4, 10), shared: newCountMin(4, 10), keeper: newKeeper(2, 10, uint64(cpu)+1),
			zipf: rand.NewZipf(rand.New(rand.NewPCG(*seed, uint64(cpu)+7)), 1.1, 1, 20000)}
		for op := range twins[cpu].times {
			twins[cpu].times[op] = map[uint64]int{}
		}
	}
	onEach(t, m, 100, func(cpu int, r *rand.Rand) (step, uint64, bool) {
		w := twins[cpu]
		s := step{Op: uint32(r.IntN(5)), A: w.zipf.Uint64(), B: 9, Arg: 1}
		hash := keyHash(s.A, s.B, 11)
		w.times[s.Op][s.A]++
		switch s.Op {
		case eachCount:
			w.usual.add(hash, 1, false)
		case eachCareful:
			return s, uint64(w.careful.add(hash, 1, true)), true
		case sharedCount:
			w.shared.add(hash, 1, false)
		case eachKeep:
			return s, uint64(w.keeper.add(hash)), true
		case eachSample:
			for row := range 5 {
				at, sign := w.sampled.row(hash, row)
				*at += sign * 256
			}
			return s, 1, true
		}
		return s, 0, true
	})

	usual, careful := getEach[[4 << 10]uint32](m, "usual"), getEach[[4 << 10]uint32](m, "careful")
	var shared struct {
		Counter [4 << 10]uint32
		_       uint32
	}
	m.get("shared", &shared)
	sum := newCountMin(4, 10)
	packets := 0.0
	for i := range sum.counter {
		sum.counter[i] = usual[0][i] + usual[1][i]
		if want := twins[0].usual.counter[i] + twins[1].usual.counter[i]; sum.counter[i] != want {
			t.Fatalf("counter %d is %d and %d, together %d are wanted", i, usual[0][i], usual[1][i], want)
		}
		if want := twins[0].shared.counter[i] + twins[1].shared.counter[i]; shared.Counter[i] != want {
			t.Fatalf("counter %d of the shared sketch is %d, want %d", i, shared.Counter[i], want)
		}
		packets += float64(sum.counter[i]) / 4
	}
	both := [2]*countMin{newCountMin(4, 10), newCountMin(4, 10)}
	for cpu := range both {
		both[cpu].counter = careful[cpu][:]
	}
	truth := func(op int, key uint64) int { return twins[0].times[op][key] + twins[1].times[op][key] }
	beyond := 0.0
	for key := range uint64(20001) {
		hash := keyHash(key, 9, 11)
		over := int(sum.get(hash)) - truth(eachCount, key)
		if over < 0 || int(both[0].get(hash)+both[1].get(hash)) < truth(eachCareful, key) {
			t.Fatalf("key %d: an answer is too low", key)
		}
		if float64(over) > math.E*packets/1024 {
			beyond++
		}
	}
	if beyond > 20001*math.Exp(-4) {
		t.Errorf("%v of 20001 answers of the sum are too high by more than the bound", beyond)
	}

	nitro := getEach[eachNitro](m, "sampled")
	nitro[0].Counter.merge(&nitro[1].Counter)
	twins[0].sampled.merge(&twins[1].sampled)
	if nitro[0].Counter != twins[0].sampled {
		t.Error("NitroSketches with a probability of 1 do not add up to the twins' sum")
	}

	counted := map[uint64]int{}
	for _, k := range getEach[eachKeeper](m, "keeper") {
		for i, key := range k.Top.Key {
			counted[key[0]] += int(k.Top.Count[i])
		}
	}
	keys := make([]uint64, 20001)
	for key := range keys {
		keys[key] = uint64(key)
	}
	slices.SortFunc(keys, func(a, b uint64) int { return cmp.Compare(truth(eachKeep, b), truth(eachKeep, a)) })
	for rank, key := range keys[:24] {
		if want := truth(eachKeep, key); counted[key] > want || counted[key] < want*9/10 {
			t.Errorf("the heaviest but %d: %d packets, the tables of both CPUs have %d", rank, want, counted[key])
		}
	}
}

// TestEachCPUSampled: NitroSketches of two CPUs, added up, are as near the truth as one sketch of all is.
func TestEachCPUSampled(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs")
	}
	const p, batches = 0.1, 100
	m := load(t, "percpu", nil)
	m.put("geo", geo.NewTable(p))
	putEach(m, "sampled", eachNitro{State: *seed | 1, Step: 256 / p}, eachNitro{State: *seed ^ 2 | 1, Step: 256 / p})
	var times [2]map[uint64]float64
	var zipf [2]*rand.Zipf
	for cpu := range times {
		times[cpu] = map[uint64]float64{}
		zipf[cpu] = rand.NewZipf(rand.New(rand.NewPCG(*seed, uint64(cpu)+9)), 1.2, 1, 50000)
	}
	onEach(t, m, batches, func(cpu int, r *rand.Rand) (step, uint64, bool) {
		s := step{Op: eachSample, A: zipf[cpu].Uint64()}
		times[cpu][s.A]++
		return s, 0, false
	})
	for key, n := range times[1] {
		times[0][key] += n
	}
	nitro := getEach[eachNitro](m, "sampled")
	nitro[0].Counter.merge(&nitro[1].Counter)
	var f2 float64
	for _, n := range times[0] {
		f2 += n * n
	}
	collisions := (f2 + batches*maxSteps*(1/p-1)) / 1024
	beyond := 0.0
	for key, n := range times[0] {
		off := math.Abs(nitro[0].Counter.get(keyHash(key, 0, 11)) - n)
		if off <= 4*math.Sqrt(n*(1/p-1)+collisions)+1 {
			continue
		}
		beyond++
		if key < 20 { // the heaviest
			t.Errorf("key %d: %v packets, off by %v", key, n, off)
		}
	}
	if limit := float64(len(times[0])) / 400; beyond > limit { // as in TestNitro
		t.Errorf("%v of %d answers are beyond four deviations, at most %v may be", beyond, len(times[0]), limit)
	}
}
