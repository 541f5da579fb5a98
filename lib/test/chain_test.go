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

// list is the one that a handle is in, -1 for none.
func (w *chainTwin) list(handle uint32) int {
	return slices.IndexFunc(w[:], func(list []uint32) bool { return slices.Contains(list, handle) })
}

func (w *chainTwin) do(s step) uint64 {
	list, handle := &w[s.Arg], uint32(s.A)
	in := w.list(handle)
	switch {
	case s.Op == chainHead && len(*list) > 0:
		return uint64((*list)[0])
	case s.Op == chainHead:
		return absent
	case s.Op == chainAppend && in < 0:
		*list = append(*list, handle)
		return 0
	case s.Op == chainAppend:
		return 1
	case in < 0:
		return 0
	}
	list = &w[in]
	at := slices.Index(*list, handle)
	*list = slices.Delete(*list, at, at+1)
	if len(*list) > 0 {
		return 1
	}
	return 2 + uint64(in)
}

// chainOwn is the number of the first list's own node.
const chainOwn = 1 << 15

// check: each list in memory is a ring in both directions, through its own node and the twin's handles in order, and no other link is in a list.
func (w *chainTwin) check(m *machine) error {
	var c struct {
		Filled uint64
		Link   [2 * chainHandles]struct{ Next, Prev uint16 } // the lists' own nodes behind the handles', room for as many
	}
	m.get("chains", &c)
	for list, handles := range w {
		if filled := c.Filled>>list&1 == 1; filled != (len(handles) > 0) {
			return fmt.Errorf("list %d has %d handles, its bit is %v", list, len(handles), filled)
		}
		ring := append([]uint32{chainOwn | uint32(list)}, handles...)
		for i, node := range ring {
			link := &c.Link[node&(chainOwn-1)+node/chainOwn*chainHandles]
			next, prev := uint32(link.Next)^node, uint32(link.Prev)^node
			if wantNext, wantPrev := ring[(i+1)%len(ring)], ring[(i+len(ring)-1)%len(ring)]; next != wantNext || prev != wantPrev {
				return fmt.Errorf("list %d: node %#x, its number %d, lies between %#x and %#x, not %#x and %#x", list, node, i, prev, next, wantPrev, wantNext)
			}
		}
	}
	for node, link := range c.Link {
		if (node >= chainHandles+chainLists || node < chainHandles && w.list(uint32(node)) < 0) && (link.Next != 0 || link.Prev != 0) {
			return fmt.Errorf("node %d is in no list, and says %+v", node, link)
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
