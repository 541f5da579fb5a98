// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// Operations of bpf/bucket.bpf.c.
const (
	bucketPush = iota
	bucketPop
	bucketPeek
	bucketEmpty
	bucketSplice
)

// LISTS and NODES there; node 0 is none.
const (
	bucketLists = 64
	bucketNodes = 1024
)

// bucketTwin is a slice per list.
type bucketTwin struct {
	lists [bucketLists][]uint64
	used  int
}

func (w *bucketTwin) do(s step) uint64 {
	list := &w.lists[s.Arg%bucketLists]
	switch s.Op {
	case bucketPush:
		if w.used == bucketNodes-1 {
			return errno(unix.ENOSPC)
		}
		*list = append(*list, s.A)
		w.used++
	case bucketPop, bucketPeek:
		if len(*list) == 0 {
			return errno(unix.ENOENT)
		}
		value := (*list)[0]
		if s.Op == bucketPop {
			*list = (*list)[1:]
			w.used--
		}
		return value
	case bucketEmpty:
		if len(*list) == 0 {
			return 1
		}
	case bucketSplice:
		if onto := &w.lists[s.A%bucketLists]; onto != list {
			*onto = append(*onto, *list...)
			*list = nil
		}
	}
	return 0
}

// checkBuckets reads the memory: each list has the twin's values, and each node is in one list or free.
func checkBuckets(raw []byte, w *bucketTwin) error {
	u32 := func(at int) int { return int(binary.NativeEndian.Uint32(raw[at:])) }
	node := func(ref int) int { return 16 + 8*bucketLists + 16*ref }
	seen := map[int]string{}
	see := func(ref int, where string) error {
		if seen[ref] != "" || ref >= bucketNodes {
			return fmt.Errorf("node %d is in %s and in %s", ref, where, seen[ref])
		}
		seen[ref] = where
		return nil
	}
	used := 0
	for list := range w.lists {
		n, ref, last := 0, u32(16+8*list), 0
		for ; ref != 0; ref = u32(node(ref) + 8) {
			if err := see(ref, fmt.Sprint("list ", list)); err != nil {
				return err
			}
			if v := binary.NativeEndian.Uint64(raw[node(ref):]); n >= len(w.lists[list]) || v != w.lists[list][n] {
				return fmt.Errorf("list %d has %#x at %d, the twin %#x", list, v, n, w.lists[list])
			}
			last = ref
			n++
		}
		if n != len(w.lists[list]) || n > 0 && last != u32(16+8*list+4) {
			return fmt.Errorf("list %d has %d values and ends at %d, the twin has %d", list, n, last, len(w.lists[list]))
		}
		used += n
	}
	if used != u32(0) {
		return fmt.Errorf("%d values, %d counted", used, u32(0))
	}
	for ref := u32(8); ref != 0; ref = u32(node(ref) + 8) {
		if err := see(ref, "the free ones"); err != nil {
			return err
		}
	}
	if len(seen) != u32(4) {
		return fmt.Errorf("%d nodes are in lists or free, %d were used", len(seen), u32(4))
	}
	return nil
}

// TestBuckets: lists fill and empty in turn, one takes all, and all nodes are in use again and again.
func TestBuckets(t *testing.T) {
	m := load(t, "bucket", nil)
	w := &bucketTwin{}
	phase, left, hot := 0, 0, uint32(0)
	m.compare("bucket_alone", checked(t, func() error { return checkBuckets(m.value("wheel"), w) }, func(r *rand.Rand) (step, uint64, bool) {
		if left--; left < 0 {
			phase, left, hot = r.IntN(5), 1+r.IntN(3000), r.Uint32()
		}
		s := step{Op: bucketPush, Arg: r.Uint32(), A: r.Uint64()}
		switch phase {
		case 0: // more pushes than pops
			s.Op = []uint32{bucketPush, bucketPush, bucketPop, bucketPeek}[r.IntN(4)]
		case 1: // more pops
			s.Op = []uint32{bucketPop, bucketPop, bucketPush, bucketEmpty}[r.IntN(4)]
		case 2: // one list takes all
			s.Op, s.Arg = uint32(r.IntN(4)), hot
		case 3: // lists move
			s.Op = []uint32{bucketPush, bucketPop, bucketSplice, bucketSplice}[r.IntN(4)]
		case 4: // few lists, which meet themselves
			s.Op, s.Arg, s.A = uint32(r.IntN(5)), s.Arg%3, s.A%3
		}
		return s, w.do(s), true
	}))
	if err := checkBuckets(m.value("wheel"), w); err != nil {
		t.Fatal(err)
	}
}

// TestBucketsShared: two CPUs, each with half of the lists, take from one supply of nodes under one lock.
func TestBucketsShared(t *testing.T) {
	m := load(t, "bucket", nil)
	w := &bucketTwin{}
	const half = maxSteps / 2
	for batch := range 200 {
		var want [maxSteps]uint64
		r := rand.New(rand.NewPCG(*seed, uint64(batch)))
		for i := range m.steps {
			cpu := uint32(i / half)
			s := step{Op: uint32(r.IntN(4)), Arg: r.Uint32()&^1 | cpu, A: r.Uint64()}
			mine := 0
			for list := cpu; list < bucketLists; list += 2 {
				mine += len(w.lists[list])
			}
			if s.Op == bucketPush && mine >= bucketNodes/2-1 { // whether there is room does not depend on who comes first
				s.Op = bucketPop
			}
			m.steps[i], want[i] = s, w.do(s)
		}
		if err := bothCPUs(func(cpu int) error { return m.trySpan("bucket_shared", cpu*half, half) }); err != nil {
			t.Fatal(err)
		}
		for i, s := range m.steps {
			if s.Out != want[i] {
				t.Fatalf("batch %d, operation %d: %+v, the twin %#x", batch, i, s, want[i])
			}
		}
		if err := checkBuckets(m.value("shared"), w); err != nil {
			t.Fatalf("batch %d: %v", batch, err)
		}
	}
}
