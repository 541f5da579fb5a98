// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Operations, LISTS and HANDLES of bpf/chain.bpf.c.
const (
	chainAppend = iota
	chainRemove
	chainHead

	chainLists   = 8
	chainHandles = 256
)

// A chainTwin is a slice per list.
type chainTwin [chainLists][]uint32

// where is what a handle's link says: 0 for no list, or else the list's number plus 1.
func (w *chainTwin) where(handle uint32) uint64 {
	return uint64(slices.IndexFunc(w[:], func(list []uint32) bool { return slices.Contains(list, handle) }) + 1)
}

func (w *chainTwin) do(s step) uint64 {
	list, handle := &w[s.Arg], uint32(s.A)
	where := w.where(handle)
	switch {
	case s.Op == chainAppend && where == 0:
		*list = append(*list, handle)
	case s.Op == chainRemove && where > 0:
		list = &w[where-1]
		at := slices.Index(*list, handle)
		*list = slices.Delete(*list, at, at+1)
	case s.Op == chainHead && len(*list) > 0:
		return uint64((*list)[0])
	case s.Op == chainHead:
		return absent
	}
	return where
}

// check: the lists in memory are rings in both directions with the twin's handles in order, and no other link is in a list.
func (w *chainTwin) check(m *machine) error {
	var c struct {
		Filled uint64
		Head   [chainLists]uint32
		Link   [chainHandles]struct{ Next, Prev, Where uint32 }
	}
	m.get("chains", &c)
	for list, want := range w {
		if filled := c.Filled>>list&1 == 1; filled != (len(want) > 0) {
			return fmt.Errorf("list %d has %d handles, its bit is %v", list, len(want), filled)
		}
		for i, handle := range want {
			next, prev := want[(i+1)%len(want)], want[(i+len(want)-1)%len(want)]
			if link := c.Link[handle]; i == 0 && c.Head[list] != handle || link.Next != next || link.Prev != prev || int(link.Where) != list+1 {
				return fmt.Errorf("list %d, which begins at %d: place %d is handle %d with %+v, wanted are %d and %d", list, c.Head[list], i, handle, link, next, prev)
			}
		}
	}
	for handle, link := range c.Link {
		if uint64(link.Where) != w.where(uint32(handle)) {
			return fmt.Errorf("handle %d says %d", handle, link.Where)
		}
	}
	return nil
}

// TestChain: handles come into lists at their ends and go from anywhere; lists are empty, of one handle, and of all.
func TestChain(t *testing.T) {
	m := load(t, "chain", nil)
	w := new(chainTwin)
	lists, fill := 1, 1
	check := func() error { return w.check(m) }
	m.compare("chain", checked(t, check, func(r *rand.Rand) (step, uint64, bool) {
		if r.IntN(2000) == 0 { // few lists are long ones; filling and emptying take turns
			lists, fill = 1+r.IntN(chainLists), r.IntN(5)
		}
		s := step{Op: chainRemove, Arg: r.Uint32N(uint32(lists)), A: r.Uint64N(chainHandles)}
		switch n := r.IntN(6); {
		case n == 5:
			s.Op = chainHead
		case n <= fill:
			s.Op = chainAppend
		default:
			if list := w[s.Arg]; len(list) > 0 && r.IntN(2) == 0 { // the ends
				s.A = uint64(list[r.IntN(2)*(len(list)-1)])
			}
		}
		return s, w.do(s), true
	}))
	if err := check(); err != nil {
		t.Fatal(err)
	}
}
