// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Operations of bpf/skiplist.bpf.c.
const (
	skipGet = iota
	skipSet
	skipDelete
	skipLower
	skipSum
)

// skipNodes is NODES there; node 0 is the head.
const skipNodes = 4096

// errno is a negative error as a program returns it.
func errno(e unix.Errno) uint64 { return uint64(-int64(e)) }

// skipTwin is an ordered slice beside a map.
type skipTwin struct {
	keys   []uint64
	values map[uint64]uint64
	lost   int // nodes that are used up and nowhere
}

func (w *skipTwin) do(s step) (want uint64) {
	at, there := slices.BinarySearch(w.keys, s.A)
	switch s.Op {
	case skipGet:
		if !there {
			return errno(unix.ENOENT)
		}
		return w.values[s.A]
	case skipSet:
		if !there {
			if len(w.keys) == skipNodes-1 {
				return errno(unix.ENOSPC)
			}
			w.keys = slices.Insert(w.keys, at, s.A)
			want = 1
		}
		w.values[s.A] = s.B
		return want
	case skipDelete:
		if !there {
			return errno(unix.ENOENT)
		}
		w.keys = slices.Delete(w.keys, at, at+1)
		delete(w.values, s.A)
		return 0
	case skipLower:
		if at == len(w.keys) {
			return ^uint64(0)
		}
		return w.keys[at]
	default:
		for _, k := range w.keys[:min(64, len(w.keys))] {
			want = want*3 + k
		}
		return want
	}
}

// checkSkip reads a skip list's memory: every level is in order and part of the one below, values are the twin's, each node is
// either in the list or free, lies where nodes of its kind do, and is in no more levels than it has room for.
func checkSkip(raw []byte, w *skipTwin) error {
	u32 := func(at uint64) uint32 { return binary.NativeEndian.Uint32(raw[at:]) }
	u64 := func(at uint64) uint64 { return binary.NativeEndian.Uint64(raw[at:]) }
	node := func(ref uint32) uint64 { return 64 + uint64(ref&^31) }
	used, low, tall := u32(8), u32(12), u32(16)
	if int(used) != len(w.keys) {
		return fmt.Errorf("%d keys, the twin has %d", used, len(w.keys))
	}
	if 64+low+tall > 64*skipNodes {
		return fmt.Errorf("low nodes take %d bytes and tall ones %d: they overlap", low, tall)
	}
	state := map[uint32]string{}
	for level := range uint64(12) {
		n := 0
		for ref := u32(node(0) + 16 + 4*level); ref != 0; ref = u32(node(ref) + 16 + 4*level) {
			key := u64(node(ref))
			switch {
			case level >= 4 && ref&1 == 0:
				return fmt.Errorf("low node %#x in level %d", ref, level)
			case level == 0 && (n >= len(w.keys) || w.keys[n] != key || w.values[key] != u64(node(ref)+8)):
				return fmt.Errorf("entry %d: key %#x, value %#x", n, key, u64(node(ref)+8))
			case level == 0:
				state[ref] = fmt.Sprint("in level ", level)
			case state[ref] != fmt.Sprint("in level ", level-1):
				return fmt.Errorf("node %#x in level %d was %q before", ref, level, state[ref])
			default:
				state[ref] = fmt.Sprint("in level ", level)
			}
			n++
		}
		if level == 0 && n != len(w.keys) {
			return fmt.Errorf("level 0 has %d keys, the twin %d", n, len(w.keys))
		}
		// A quarter of the level below, give or take six standard deviations.
		if mean := float64(len(w.keys)) / float64(uint64(1)<<(2*level)); float64(n) > mean+6*(1+mean/2) {
			return fmt.Errorf("level %d has %d nodes of %d", level, n, len(w.keys))
		}
	}
	for kind, free := range []uint32{u32(20), u32(24)} {
		for ref := free; ref != 0; ref = u32(node(ref) + 16) {
			if state[ref] != "" || int(ref&1) != kind {
				return fmt.Errorf("free node %#x of kind %d was %q", ref, kind, state[ref])
			}
			state[ref] = "free"
		}
	}
	for ref := range state {
		at := ref &^ 31
		if ref&1 == 0 && (at < 64 || at >= 64+low) || ref&1 != 0 && (at%64 != 0 || at < 64*skipNodes-tall || at >= 64*skipNodes) {
			return fmt.Errorf("node %#x is none of %d bytes of low and %d of tall ones", ref, low, tall)
		}
	}
	if len(state)+w.lost != int(low/32+tall/64) {
		return fmt.Errorf("%d nodes are in the list or free, %d were used", len(state)+w.lost, low/32+tall/64)
	}
	return nil
}

// checked has the whole structure looked at after each of compare's batches: it makes the first step of a batch the moment for it.
func checked(t *testing.T, check func() error, next func(r *rand.Rand) (step, uint64, bool)) func(r *rand.Rand) (step, uint64, bool) {
	n := 0
	return func(r *rand.Rand) (step, uint64, bool) {
		if n > 0 && n%maxSteps == 0 {
			if err := check(); err != nil {
				t.Fatalf("after %d operations (seed %d): %v", n, *seed, err)
			}
		}
		n++
		return next(r)
	}
}

// value is the only value of a map.
func (m *machine) value(name string) []byte {
	m.t.Helper()
	raw, err := m.coll.Maps[name].LookupBytes(uint32(0))
	if err != nil {
		m.t.Fatal(err)
	}
	return raw
}

// TestSkipList: whatever the order in which keys come and go, among few keys and many, sparse and dense, empty and full.
func TestSkipList(t *testing.T) {
	m := load(t, "skiplist", nil, "skip_alone")
	w := &skipTwin{values: map[uint64]uint64{}}
	phase, left, next := 0, 0, uint64(0)
	m.compare("skip_alone", checked(t, func() error { return checkSkip(m.value("table"), w) }, func(r *rand.Rand) (step, uint64, bool) {
		if left--; left < 0 {
			phase, left = r.IntN(7), 1+r.IntN(20000)
		}
		s := step{Op: uint32(r.IntN(4)), B: r.Uint64()}
		if r.IntN(500) == 0 {
			s.Op = skipSum
		}
		switch phase {
		case 0: // few keys
			s.A = r.Uint64N(64)
		case 1: // more than fit
			s.A = r.Uint64N(8000)
		case 2: // insertions until it is full, in ascending order
			next++
			s.A, s.Op = next, skipSet
		case 3: // in descending order, from the top
			next++
			s.A, s.Op = -next, skipSet
		case 4: // the smallest goes, as from a queue
			s.Op = skipDelete
			if len(w.keys) > 0 {
				s.A = w.keys[0]
			}
		case 5: // neighbours of what is there, and the ends
			s.A = []uint64{0, ^uint64(0), 1, ^uint64(0) - 1}[r.IntN(4)]
			if len(w.keys) > 0 && r.IntN(8) != 0 {
				s.A = w.keys[r.IntN(len(w.keys))] + r.Uint64N(3) - 1
			}
		case 6:
			s.A = r.Uint64()
		}
		return s, w.do(s), true
	}))
	if err := checkSkip(m.value("table"), w); err != nil {
		t.Fatal(err)
	}
}

// TestSkipListShared: two CPUs with keys of their own, under one lock.
func TestSkipListShared(t *testing.T) {
	m := load(t, "skiplist", nil, "skip_shared")
	twins := [2]*skipTwin{{values: map[uint64]uint64{}}, {values: map[uint64]uint64{}}}
	const half = maxSteps / 2
	var overlaps atomic.Int64
	for batch := range 40 {
		var want [maxSteps]uint64
		r := rand.New(rand.NewPCG(*seed, uint64(batch)))
		for i := range m.steps {
			s := step{Op: uint32(r.IntN(3)), A: r.Uint64N(1500)<<1 | uint64(i/half), B: r.Uint64()}
			m.steps[i], want[i] = s, twins[i/half].do(s)
		}
		var running atomic.Int32
		if err := bothCPUs(func(cpu int) error {
			if running.Add(1) == 2 {
				overlaps.Add(1)
			}
			defer running.Add(-1)
			return m.trySpan("skip_shared", cpu*half, half)
		}); err != nil {
			t.Fatal(err)
		}
		for i, s := range m.steps {
			if s.Out != want[i] {
				t.Fatalf("batch %d, operation %d: %+v, the twin %#x", batch, i, s, want[i])
			}
		}
		both := &skipTwin{values: map[uint64]uint64{}}
		for _, w := range twins {
			for k, v := range w.values {
				both.do(step{Op: skipSet, A: k, B: v})
			}
		}
		if err := checkSkip(m.value("shared"), both); err != nil {
			t.Fatalf("batch %d: %v", batch, err)
		}
	}
	if overlaps.Load() == 0 {
		t.Error("the two never ran at the same time")
	}
}

// TestSkipListEndless: a search that does not end within so many hops says so and changes nothing.
func TestSkipListEndless(t *testing.T) {
	m := load(t, "skiplist", nil, "skip_alone")
	var steps []step
	for i := range uint64(2000) {
		steps = append(steps, step{Op: skipSet, A: i})
	}
	m.run("skip_alone", steps)
	raw := m.value("table")
	clear(raw[64+16+4 : 64+64]) // only the lowest level, as if each node's height had been 1
	if err := m.coll.Maps["table"].Put(uint32(0), raw); err != nil {
		t.Fatal(err)
	}
	out := m.run("skip_alone", []step{{Op: skipGet, A: 1000}, {Op: skipSet, A: 1000, B: 7}, {Op: skipDelete, A: 1000}, {Op: skipLower, A: 1000}, {Op: skipGet, A: 50}})
	for i, want := range []uint64{errno(unix.ELOOP), errno(unix.ELOOP), errno(unix.ELOOP), ^uint64(0), 0} {
		if out[i].Out != want {
			t.Errorf("%+v, wanted %#x", out[i], want)
		}
	}
}

// TestSkipListTall: where no room is left for tall nodes there are low ones, for as many keys as ever, and no two nodes in one place.
func TestSkipListTall(t *testing.T) {
	const most = (skipNodes - 1) / 2
	m := load(t, "skiplist", nil, "skip_alone")
	for _, room := range []int{0, 1, 5} {
		w := &skipTwin{values: map[uint64]uint64{}, lost: most - room}
		raw := make([]byte, len(m.value("table")))
		binary.NativeEndian.PutUint32(raw[16:], uint32(64*w.lost))
		if err := m.coll.Maps["table"].Put(uint32(0), raw); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(*seed, uint64(room)))
		for round := range 4 { // full, empty, full, empty
			var steps []step
			var want []uint64
			for range skipNodes {
				s := step{Op: skipSet, A: r.Uint64(), B: r.Uint64()}
				if round%2 == 1 {
					s = step{Op: skipDelete}
					if len(w.keys) > 0 {
						s.A = w.keys[r.IntN(len(w.keys))]
					}
				}
				steps, want = append(steps, s), append(want, w.do(s))
			}
			for i, got := range m.run("skip_alone", steps) {
				if got.Out != want[i] {
					t.Fatalf("room for %d, round %d, operation %d: %+v, the twin %#x", room, round, i, got, want[i])
				}
			}
			if err := checkSkip(m.value("table"), w); err != nil {
				t.Fatalf("room for %d, round %d: %v", room, round, err)
			}
		}
		if tall := binary.NativeEndian.Uint32(m.value("table")[16:]); tall != 64*most {
			t.Errorf("tall nodes take %d bytes, ought to take all of their %d", tall, 64*most)
		}
	}
}
