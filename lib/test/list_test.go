// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Operations of bpf/list.h; kernel objects have those up to listUsed.
const (
	listPushFront = iota
	listPushBack
	listPopFront
	listPopBack
	listUsed
	listForwards
	listBackwards
	listRemove
	listMoveFront
	listMoveBack
	listThereAndBack
	listWrong
)

// listNodes is NODES there; node 0 is none.
const listNodes = 256

// listTwin is a slice.
type listTwin struct{ values []uint64 }

func (w *listTwin) do(s step) (want uint64) {
	n := len(w.values)
	place := min(int(s.Arg%64), n-1)
	if n == 0 {
		switch s.Op {
		case listPopFront, listPopBack, listRemove, listThereAndBack:
			return errno(unix.ENOENT)
		case listMoveFront, listMoveBack:
			return errno(unix.EINVAL)
		}
	}
	switch s.Op {
	case listPushFront, listPushBack:
		if n == listNodes-1 {
			return errno(unix.ENOSPC)
		}
		w.values = slices.Insert(w.values, n*int(s.Op), s.A)
	case listPopFront:
		want, w.values = w.values[0], w.values[1:]
	case listPopBack:
		want, w.values = w.values[n-1], w.values[:n-1]
	case listUsed:
		want = uint64(n)
	case listForwards:
		for _, v := range w.values {
			want = want*3 + v
		}
	case listBackwards:
		for _, v := range slices.Backward(w.values) {
			want = want*3 + v
		}
	case listRemove, listMoveFront, listMoveBack, listThereAndBack:
		v := w.values[place]
		w.values = slices.Delete(w.values, place, place+1)
		switch s.Op {
		case listRemove:
			want = v
		case listMoveFront:
			w.values = slices.Insert(w.values, 0, v)
		default:
			w.values = append(w.values, v)
		}
	case listWrong:
		want = 1<<11 - 1
	}
	return want
}

// checkList reads the memory: the list forwards is the twin's and backwards the same, the other list is empty, no node is lost.
func checkList(raw []byte, in memory, w *listTwin) error {
	if in.refLen == 0 {
		return nil // the kernel keeps them to itself; that all come out again is checked by popping
	}
	p := pool{raw: raw, refLen: in.refLen, size: listNodes, stride: 16 + 2*in.refLen}
	list := p.node(p.size)
	linked := map[int]int{}
	prev := 0
	for n := p.ref(list); n != 0; prev, n = n, p.next(n) {
		if n < 0 || linked[n] != 0 {
			return fmt.Errorf("node %d after %d: wrong or met before", n, prev)
		}
		if p.ref(p.node(n)+p.link()) != prev {
			return fmt.Errorf("node %d does not point back to %d", n, prev)
		}
		if i := len(linked); i >= len(w.values) || p.u64(p.node(n)+p.stride-8) != w.values[i] {
			return fmt.Errorf("at %d: %#x", i, p.u64(p.node(n)+p.stride-8))
		}
		linked[n] = 2
	}
	if last, n := p.ref(list+in.refLen), p.u32(list+2*in.refLen); last != prev || n != len(w.values) || n != len(linked) {
		return fmt.Errorf("%d nodes of %d, which end at %d: the list says %d and %d", len(linked), len(w.values), prev, n, last)
	}
	if other := list + 2*in.refLen + 8; p.ref(other) != 0 || p.ref(other+in.refLen) != 0 || p.u32(other+2*in.refLen) != 0 {
		return fmt.Errorf("the other list is not empty")
	}
	return p.check(linked)
}

// TestList: both ends and the middle, empty and full, and what must be refused.
func TestList(t *testing.T) {
	inMemories(t, "list", memories, func(t *testing.T, m *machine, in memory) {
		w := &listTwin{}
		ops := listWrong + 1
		if in.refLen == 0 {
			ops = listUsed + 1
		}
		phase, left := 0, 0
		check := func() error { return checkList(m.image("table"), in, w) }
		m.compare("list_alone", checked(t, check, func(r *rand.Rand) (step, uint64, bool) {
			if left--; left < 0 {
				phase, left = r.IntN(4), 1+r.IntN(1000)
			}
			s := step{Op: uint32(r.IntN(ops)), Arg: r.Uint32(), A: r.Uint64()}
			switch {
			case s.Op == listForwards || s.Op == listBackwards || s.Op == listWrong:
				if r.IntN(8) > 0 { // walks take long
					s.Op = listUsed
				}
			case phase == 1: // fills
				s.Op = uint32(r.IntN(2))
			case phase == 2: // empties
				s.Op = 2 + uint32(r.IntN(2))
			case phase == 3: // a queue
				s.Op = []uint32{listPushBack, listPopFront}[r.IntN(2)]
			}
			return s, w.do(s), true
		}))
		if err := check(); err != nil {
			t.Fatal(err)
		}
		var rest []step
		for range len(w.values) + 1 {
			rest = append(rest, step{Op: listPopFront})
		}
		rest = append(rest, step{Op: listUsed})
		for i, s := range m.run("list_alone", rest) {
			if want := w.do(step{Op: s.Op}); s.Out != want {
				t.Fatalf("emptying, %d: %#x, the twin %#x", i, s.Out, want)
			}
		}
	})
}

// TestListShared: what two CPUs put in comes out again, once, and each one's values in order: of nodes in a map's value under one lock, of
// kernel objects under the lock that each operation takes.
func TestListShared(t *testing.T) {
	t.Run("memory", func(t *testing.T) { listShared(t, load(t, "list", nil, "list_shared"), "list_shared", memories[0]) })
	inMemories(t, "list", memories[2:], func(t *testing.T, m *machine, in memory) { listShared(t, m, "list_alone", in) })
}

func listShared(t *testing.T, m *machine, program string, in memory) {
	const half = maxSteps / 2
	var put, got [2]uint64 // how many of each CPU's values, which count up from 0 with the CPU as their lowest bit
	for batch := range 60 {
		r := rand.New(rand.NewPCG(*seed, uint64(batch)))
		next := put
		for i := range m.steps {
			cpu := uint64(i / half)
			m.steps[i] = step{Op: listPopFront}
			// No more than fit, whoever comes first: half of the nodes each, counted as if nobody took any.
			if r.IntN(3) > 0 && next[cpu]-got[cpu] < listNodes/2-1 {
				m.steps[i] = step{Op: listPushBack, A: next[cpu]<<1 | cpu}
				next[cpu]++
			}
		}
		if err := bothCPUs(func(cpu int) error { return m.trySpan(program, cpu*half, half) }); err != nil {
			t.Fatal(err)
		}
		var seen [2][2][]uint64 // by whom, of whom
		for i, s := range m.steps {
			switch {
			case s.Op == listPushBack && s.Out == 0:
				put[i/half]++
			case s.Op == listPopFront && s.Out>>1 < 1<<40:
				by, of := i/half, s.Out&1
				if mine := seen[by][of]; len(mine) > 0 && mine[len(mine)-1] >= s.Out {
					t.Fatalf("batch %d: CPU %d took %#x after %#x", batch, by, s.Out, mine[len(mine)-1])
				}
				seen[by][of] = append(seen[by][of], s.Out)
			case s.Op != listPopFront || s.Out != errno(unix.ENOENT):
				t.Fatalf("batch %d: %+v", batch, s)
			}
		}
		for of := range got { // together they took the oldest ones, none twice and none left out
			all := slices.Sorted(slices.Values(append(seen[0][of], seen[1][of]...)))
			for i, v := range all {
				if want := (got[of]+uint64(i))<<1 | uint64(of); v != want {
					t.Fatalf("batch %d: %#x was taken, not %#x", batch, v, want)
				}
			}
			got[of] += uint64(len(all))
		}
		left := step{Op: listUsed}
		if n := m.run(program, []step{left})[0].Out; n != put[0]+put[1]-got[0]-got[1] {
			t.Fatalf("batch %d: %d nodes are in use, %d should be", batch, n, put[0]+put[1]-got[0]-got[1])
		}
		if in.refLen == 0 {
			continue
		}
		p := pool{raw: m.value("shared"), refLen: 4, size: listNodes, stride: 24}
		w := &listTwin{}
		for n := p.ref(p.node(p.size)); n > 0 && len(w.values) < listNodes; n = p.next(n) {
			w.values = append(w.values, p.u64(p.node(n)+16))
		}
		if err := checkList(p.raw, in, w); err != nil {
			t.Fatalf("batch %d: %v", batch, err)
		}
	}
}
