// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Results of bpf/ffsqueue.bpf.c: <shunt/ffsqueue.h>.
const (
	ffsPush = iota
	ffsPop
	ffsPeek
	ffsRemove
	ffsCounts

	ffsClamped = 1
	ffsNone    = ^uint64(0)
	ffsQueued  = ^uint64(1)
	ffsHandle  = ^uint64(2)
)

// A ffsTwin is the queue as a sorted list.
type ffsTwin struct {
	buckets      uint64 // of a half
	handles      uint32
	base         uint64
	above, below uint64
	queue        []ffsItem // by priority, then by age
	queued       map[uint32]uint64
}

type ffsItem struct {
	priority uint64 // of its bucket
	handle   uint32
}

func newFFSTwin(levels int, handles uint32) *ffsTwin {
	return &ffsTwin{buckets: 1 << (6 * levels), handles: handles, queued: map[uint32]uint64{}}
}

// found is what bpf/ffsqueue.bpf.c answers with for a handle.
func (i ffsItem) found() uint64 { return uint64(i.handle)<<40 | i.priority&(1<<40-1) }

func (q *ffsTwin) push(handle uint32, priority uint64) (out uint64) {
	if handle >= q.handles {
		return ffsHandle
	}
	if _, ok := q.queued[handle]; ok {
		return ffsQueued
	}
	if outside := priority < q.base || priority-q.base >= 2*q.buckets; outside && len(q.queue) == 0 {
		q.base = priority / q.buckets * q.buckets
	}
	switch {
	case priority < q.base:
		q.below++
		priority, out = q.base, ffsClamped
	case priority-q.base >= 2*q.buckets:
		q.above++
		priority, out = q.base+2*q.buckets-1, ffsClamped
	}
	q.queued[handle] = priority
	at, _ := slices.BinarySearchFunc(q.queue, priority, func(i ffsItem, p uint64) int {
		if i.priority <= p {
			return -1
		}
		return 1
	})
	q.queue = slices.Insert(q.queue, at, ffsItem{priority, handle})
	return out
}

func (q *ffsTwin) pop() uint64 {
	if len(q.queue) == 0 {
		return ffsNone
	}
	first := q.queue[0]
	if first.priority-q.base >= q.buckets {
		q.base += q.buckets
	}
	q.queue = slices.Delete(q.queue, 0, 1)
	delete(q.queued, first.handle)
	return first.found()
}

func (q *ffsTwin) do(s step) uint64 {
	switch s.Op & 7 {
	case ffsPush:
		return q.push(s.Arg, s.A)
	case ffsPop:
		return q.pop()
	case ffsPeek:
		if len(q.queue) == 0 {
			return ffsNone
		}
		return q.queue[0].found()
	case ffsRemove:
		if s.Arg >= q.handles {
			return ffsHandle
		}
		if _, ok := q.queued[s.Arg]; !ok {
			return ffsNone
		}
		delete(q.queued, s.Arg)
		q.queue = slices.DeleteFunc(q.queue, func(i ffsItem) bool { return i.handle == s.Arg })
		return 0
	}
	return q.above<<32 | q.below&(1<<32-1)
}

// priority makes one up that hurts: borders of words, halves and windows, ties, far away, the ends of 64 bits.
func (q *ffsTwin) priority(r *rand.Rand) uint64 {
	edge := []uint64{0, 1, 63, 64, 4095, 4096, q.buckets - 1, q.buckets, q.buckets + 1, 2*q.buckets - 1, 2 * q.buckets, 3 * q.buckets}
	switch n := r.IntN(200); {
	case n == 0:
		return r.Uint64()
	case n == 1:
		return ^uint64(0) - r.Uint64N(3*q.buckets)
	case n < 10:
		return q.base - r.Uint64N(q.buckets) // wraps around, which is far above
	case n < 40:
		return q.base + edge[r.IntN(len(edge))]
	case n < 80:
		return q.base + r.Uint64N(16)
	}
	return q.base + r.Uint64N(2*q.buckets)
}

// script returns random steps, in phases that fill the queue and that drain it.
func (q *ffsTwin) script(r *rand.Rand, done int, fill uint32) step {
	filling := done/2000%3 != 2
	s := step{Op: ffsPop, Arg: r.Uint32N(fill)}
	switch n := r.IntN(20); {
	case n == 0:
		s.Arg = r.Uint32N(2 * q.handles)
		s.Op = uint32(r.IntN(5))
	case n == 1:
		s.Op = ffsPeek
	case n == 2:
		s.Op = ffsRemove
	case n < 14 == filling:
		s.Op = ffsPush
	}
	s.A = q.priority(r)
	return s
}

// TestFFSQueue: queues of one to three levels answer as a sorted list does.
func TestFFSQueue(t *testing.T) {
	m := load(t, "ffsqueue", nil)
	twins := []*ffsTwin{newFFSTwin(1, 64), newFFSTwin(2, 1024), newFFSTwin(3, 4096)}
	done, moved := 0, 0
	m.compare("ffsqueue", func(r *rand.Rand) (step, uint64, bool) {
		level := r.IntN(3)
		q := twins[level]
		s := q.script(r, done, min(q.handles, 600))
		done++
		base := q.base
		want := q.do(s)
		if q.base != base && s.Op == ffsPop {
			moved++
		}
		s.Op |= uint32(level+1) << 3
		return s, want, true
	})
	for i, q := range twins {
		if q.above == 0 || q.below == 0 {
			t.Errorf("the queue of %d levels never had a priority above (%d) or below (%d) its window", i+1, q.above, q.below)
		}
	}
	if moved < *operations/2000 {
		t.Errorf("halves changed places only %d times", moved)
	}
}

// TestFFSQueueLargest: 2^24 buckets per half.
func TestFFSQueueLargest(t *testing.T) {
	m := load(t, "ffsqueue4", nil)
	q := newFFSTwin(4, 1024)
	done := 0
	m.compare("ffsqueue4", func(r *rand.Rand) (step, uint64, bool) {
		done++
		s := q.script(r, done, 600)
		return s, q.do(s), true
	})
}

// TestFFSQueueInOrder: what is pushed in any order within the window is popped in order; a full queue holds every handle.
func TestFFSQueueInOrder(t *testing.T) {
	m := load(t, "ffsqueue", nil)
	var steps []step
	r := rand.New(rand.NewPCG(*seed, 9))
	for handle := range uint32(4096) {
		steps = append(steps, step{Op: 3<<3 | ffsPush, Arg: handle, A: 1<<30 + r.Uint64N(1<<18)})
	}
	for range 4097 {
		steps = append(steps, step{Op: 3<<3 | ffsPop})
	}
	var last uint64
	for i, s := range m.run("ffsqueue", steps) {
		priority := s.Out & (1<<40 - 1)
		switch {
		case i < 4096 && s.Out != 0:
			t.Fatalf("push %d gave %#x", i, s.Out)
		case i == 2*4096 && s.Out != ffsNone:
			t.Fatalf("pop of an empty queue gave %#x", s.Out)
		case i >= 4096 && i < 2*4096:
			if h := s.Out >> 40; h >= 4096 || steps[h].A != priority || priority < last {
				t.Fatalf("pop %d gave handle %d with %d after %d", i-4096, h, priority, last)
			}
			last = priority
		}
	}
}

// TestFFSQueueBothCPUs: under a lock, two CPUs lose no handle and pop none twice.
func TestFFSQueueBothCPUs(t *testing.T) {
	m := load(t, "ffsqueue", nil)
	var pushed, popped [2][1024]int
	err := bothCPUs(func(cpu int) error {
		first := cpu * maxSteps / 2
		mine := m.steps[first : first+maxSteps/2]
		r := rand.New(rand.NewPCG(*seed, uint64(cpu)))
		for range 60 {
			for i := range mine {
				mine[i] = step{Op: uint32(r.IntN(2)), Arg: r.Uint32N(1024), A: r.Uint64N(5000)}
				if r.IntN(8) == 0 {
					mine[i].Op = ffsRemove
				}
			}
			if err := m.trySpan("locked", first, len(mine)); err != nil {
				return err
			}
			for _, s := range mine {
				switch {
				case s.Op == ffsPush && s.Out <= 1:
					pushed[cpu][s.Arg]++
				case s.Op == ffsPop && s.Out < 1024:
					popped[cpu][s.Out]++
				case s.Op == ffsRemove && s.Out == 0:
					popped[cpu][s.Arg]++
				case s.Out != ffsNone && s.Out != ffsQueued:
					t.Errorf("%+v", s)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	left := map[uint64]bool{}
	steps := m.run("locked", slices.Repeat([]step{{Op: ffsPop}}, 1025))
	for i, s := range steps {
		if s.Out < 1024 {
			if left[s.Out] {
				t.Errorf("handle %d came twice", s.Out)
			}
			left[s.Out] = true
			if i > 0 && s.B < steps[i-1].B {
				t.Errorf("priority %d after %d", s.B, steps[i-1].B)
			}
		}
	}
	for h := range 1024 {
		in, out := pushed[0][h]+pushed[1][h], popped[0][h]+popped[1][h]
		if left[uint64(h)] {
			out++
		}
		if in != out || in == 0 {
			t.Errorf("handle %d went in %d times and came out %d times", h, in, out)
		}
	}
}
