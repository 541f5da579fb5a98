// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Operations of bpf/tree.h; kernel objects have those up to treeUsed, with a kernel that searches up to treeFrom.
const (
	treeAdd = iota
	treePopFirst
	treeFirstKey
	treeUsed
	treeInsert
	treeTake
	treeFind
	treeFrom
	treeWalk
	treeWrong
)

// treeNodes is NODES there; node 0 is none.
const treeNodes = 1024

type treeItem struct{ key, value uint64 }

// treeTwin is a slice in order, equal keys in the order they came.
type treeTwin struct{ items []treeItem }

func (w *treeTwin) do(s step) uint64 {
	at, there := slices.BinarySearchFunc(w.items, s.A, func(i treeItem, key uint64) int { return cmp.Compare(i.key, key) })
	out := func(i int) uint64 {
		v := w.items[i].value
		w.items = slices.Delete(w.items, i, i+1)
		return v
	}
	switch s.Op {
	case treeAdd, treeInsert:
		if len(w.items) == treeNodes-1 {
			return errno(unix.ENOSPC)
		}
		if there && s.Op == treeInsert {
			return errno(unix.EEXIST)
		}
		for at < len(w.items) && w.items[at].key == s.A {
			at++
		}
		w.items = slices.Insert(w.items, at, treeItem{s.A, s.B})
		return 0
	case treePopFirst:
		if len(w.items) > 0 {
			return out(0)
		}
	case treeFirstKey:
		if len(w.items) > 0 {
			return w.items[0].key
		}
	case treeUsed:
		return uint64(len(w.items))
	case treeTake:
		if there {
			return out(at)
		}
	case treeFind:
		if there {
			return w.items[at].value
		}
	case treeFrom:
		if at < len(w.items) {
			return w.items[at].key ^ w.items[at].value
		}
	case treeWalk:
		sum := uint64(0)
		for _, i := range w.items[at:min(at+8, len(w.items))] {
			sum = sum*3 + i.value
		}
		return sum
	case treeWrong:
		return 1<<7 - 1
	}
	return errno(unix.ENOENT)
}

// checkTree reads the memory: order, colours, equal blacks on all ways, parents, depth, and that no node is lost.
func checkTree(raw []byte, in memory, w *treeTwin) error {
	if in.refLen == 0 {
		return nil
	}
	p := pool{raw: raw, refLen: in.refLen, size: treeNodes}
	key := p.link() + 2*in.refLen
	p.stride = key + 16
	tree := p.node(p.size)
	linked := map[int]int{}
	place, depth := 0, 0
	var walk func(n, up, deep int) (blacks int, err error)
	walk = func(n, up, deep int) (int, error) {
		if n == 0 {
			return 0, nil
		}
		if n < 0 || linked[n] != 0 {
			return 0, fmt.Errorf("node %d below %d: wrong or met before", n, up)
		}
		linked[n] = 2
		depth = max(depth, deep)
		if p.next(n) != up {
			return 0, fmt.Errorf("node %d points up to %d, not to %d", n, p.next(n), up)
		}
		if p.red(n) && (up == 0 || p.red(up)) {
			return 0, fmt.Errorf("red node %d below %d", n, up)
		}
		left, err := walk(p.ref(p.node(n)+p.link()), n, deep+1)
		if err != nil {
			return 0, err
		}
		here := treeItem{p.u64(p.node(n) + key), p.u64(p.node(n) + key + 8)}
		if place >= len(w.items) || w.items[place] != here {
			return 0, fmt.Errorf("at %d: %+v", place, here)
		}
		place++
		right, err := walk(p.ref(p.node(n)+p.link()+in.refLen), n, deep+1)
		if err != nil {
			return 0, err
		}
		if left != right {
			return 0, fmt.Errorf("node %d has %d black ones on its left and %d on its right", n, left, right)
		}
		if !p.red(n) {
			left++
		}
		return left, nil
	}
	if _, err := walk(p.ref(tree), 0, 1); err != nil {
		return err
	}
	if n := p.u32(tree + in.refLen); place != len(w.items) || n != place {
		return fmt.Errorf("%d nodes, %d counted, the twin has %d", place, n, len(w.items))
	}
	if limit := 2 * bits.Len(uint(place+1)); depth > limit {
		return fmt.Errorf("%d nodes are %d deep", place, depth)
	}
	if p.ref(tree+16) != 0 || p.u32(tree+16+in.refLen) != 0 {
		return fmt.Errorf("the other tree is not empty")
	}
	return p.check(linked)
}

// treeMemories: kernels that have objects may still not be able to search them.
var treeMemories = append(slices.Clone(memories), memory{"_search", func() string {
	if lack := lacksObjects(); lack != "" {
		return lack
	}
	return lacksKfunc("bpf_rbtree_root", "bpf_rbtree_left", "bpf_rbtree_right")
}, 0})

// TestTree: keys in every order, few and many, equal ones, empty and full, and what must be refused.
func TestTree(t *testing.T) {
	inMemories(t, "tree", treeMemories, func(t *testing.T, m *machine, in memory) {
		w := &treeTwin{}
		ops := treeWrong + 1
		switch in.name {
		case "_objects":
			ops = treeUsed + 1
		case "_search":
			ops = treeFrom + 1
		}
		phase, left, next := 0, 0, uint64(0)
		check := func() error { return checkTree(m.image("table"), in, w) }
		m.compare("tree_alone", checked(t, check, func(r *rand.Rand) (step, uint64, bool) {
			if left--; left < 0 {
				phase, left = r.IntN(7), 1+r.IntN(3000)
			}
			s := step{Op: uint32(r.IntN(ops)), B: r.Uint64(), A: r.Uint64()}
			next++
			switch phase {
			case 0: // few keys, most of them equal to others
				s.A %= 32
			case 1: // more than there is room for
				s.A %= 4096
			case 2: // ascending
				s.Op, s.A = treeAdd, next
			case 3: // descending
				s.Op, s.A = treeAdd, -next
			case 4: // a queue of deadlines
				s.Op, s.A = []uint32{treeAdd, treePopFirst}[r.IntN(2)], next+r.Uint64N(1000)
			case 5: // empties
				s.Op = treePopFirst
				if ops > treeTake && len(w.items) > 0 && r.IntN(2) == 0 {
					s.Op, s.A = treeTake, w.items[r.IntN(len(w.items))].key
				}
			case 6: // neighbours of what is there, and the ends
				s.A = []uint64{0, ^uint64(0), 1 << 63, 1<<63 - 1}[r.IntN(4)]
				if len(w.items) > 0 && r.IntN(8) != 0 {
					s.A = w.items[r.IntN(len(w.items))].key + r.Uint64N(3) - 1
				}
			}
			return s, w.do(s), true
		}))
		if err := check(); err != nil {
			t.Fatal(err)
		}
		rest := make([]step, len(w.items)+1)
		for i := range rest {
			rest[i].Op = treePopFirst
		}
		rest = append(rest, step{Op: treeUsed})
		for i, s := range m.run("tree_alone", rest) {
			if want := w.do(step{Op: s.Op}); s.Out != want {
				t.Fatalf("emptying, %d: %#x, the twin %#x", i, s.Out, want)
			}
		}
	})
}

// TestTreeShared: two CPUs, each with keys of its own, in one tree: of nodes in a map's value under one lock, of kernel objects under the lock
// that each operation takes.
func TestTreeShared(t *testing.T) {
	t.Run("memory", func(t *testing.T) { treeShared(t, load(t, "tree", nil, "tree_shared"), "tree_shared", memories[0]) })
	inMemories(t, "tree", treeMemories[2:3], func(t *testing.T, m *machine, _ memory) { treeQueueShared(t, m) })
	inMemories(t, "tree", treeMemories[3:], func(t *testing.T, m *machine, in memory) { treeShared(t, m, "tree_alone", in) })
}

func treeShared(t *testing.T, m *machine, program string, in memory) {
	twins := [2]*treeTwin{{}, {}}
	const half = maxSteps / 2
	for batch := range 60 {
		var want [maxSteps]uint64
		r := rand.New(rand.NewPCG(*seed, uint64(batch)))
		for i := range m.steps {
			cpu := i / half
			s := step{Op: []uint32{treeAdd, treeInsert, treeTake, treeFind}[r.IntN(4)], A: r.Uint64N(600)<<1 | uint64(cpu), B: r.Uint64()}
			if s.Op <= treeInsert && len(twins[cpu].items) >= treeNodes/2-2 { // room does not depend on who comes first
				s.Op = treeTake
			}
			m.steps[i], want[i] = s, twins[cpu].do(s)
		}
		if err := bothCPUs(func(cpu int) error { return m.trySpan(program, cpu*half, half) }); err != nil {
			t.Fatal(err)
		}
		for i, s := range m.steps {
			if s.Out != want[i] {
				t.Fatalf("batch %d, operation %d: %+v, the twin %#x", batch, i, s, want[i])
			}
		}
		both := &treeTwin{}
		for _, w := range twins {
			both.items = append(both.items, w.items...)
		}
		slices.SortStableFunc(both.items, func(a, b treeItem) int { return cmp.Compare(a.key, b.key) })
		if in.refLen == 0 { // nobody but the kernel sees the nodes
			if n := m.run(program, []step{{Op: treeUsed}})[0].Out; n != uint64(len(both.items)) {
				t.Fatalf("batch %d: %d nodes are in use, %d should be", batch, n, len(both.items))
			}
		} else if err := checkTree(m.value("shared"), in, both); err != nil {
			t.Fatalf("batch %d: %v", batch, err)
		}
	}
}

// treeQueueShared: kernel objects as kernels have them that do not search. What two CPUs put in comes out once, by whichever of them; and what
// is left, in order.
func treeQueueShared(t *testing.T, m *machine) {
	const half = maxSteps / 2
	left := map[uint64]uint64{} // keys, none twice, and their values
	for batch := range 60 {
		r := rand.New(rand.NewPCG(*seed, uint64(batch)))
		room := [2]int{(treeNodes - 1 - len(left)) / 2, (treeNodes - 1 - len(left)) / 2}
		for i := range m.steps {
			cpu := i / half
			m.steps[i] = step{Op: []uint32{treePopFirst, treePopFirst, treeFirstKey}[r.IntN(3)]}
			if r.IntN(2) == 0 && room[cpu] > 0 {
				room[cpu]--
				m.steps[i] = step{Op: treeAdd, A: r.Uint64()<<14 | uint64(i), B: r.Uint64() >> 1}
				left[m.steps[i].A] = m.steps[i].B
			}
		}
		if err := bothCPUs(func(cpu int) error { return m.trySpan("tree_alone", cpu*half, half) }); err != nil {
			t.Fatal(err)
		}
		took := func(s step) {
			value, there := left[s.B]
			if !there || value != s.Out {
				t.Fatalf("batch %d: %+v came out, in is %v with %#x", batch, s, there, value)
			}
			delete(left, s.B)
		}
		for _, s := range m.steps {
			switch {
			case s.Op == treeAdd && s.Out != 0:
				t.Fatalf("batch %d: %+v", batch, s)
			case s.Op == treePopFirst && s.Out != errno(unix.ENOENT):
				took(s)
			}
		}
		if n := m.run("tree_alone", []step{{Op: treeUsed}})[0].Out; n != uint64(len(left)) {
			t.Fatalf("batch %d: %d nodes are in use, %d should be", batch, n, len(left))
		}
		if batch%4 > 0 {
			continue
		}
		rest := make([]step, len(left))
		for i := range rest {
			rest[i].Op = treePopFirst
		}
		last := uint64(0)
		for _, s := range m.run("tree_alone", rest) {
			took(s)
			if s.B <= last {
				t.Fatalf("batch %d: %#x came after %#x", batch, s.B, last)
			}
			last = s.B
		}
	}
}
