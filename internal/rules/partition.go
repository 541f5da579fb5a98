// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// partition cuts the values of a field into classes: values of one class satisfy the conditions of the same entries.
type partition struct {
	Cuts    []Cut    // sorted; the first is at 0
	Bits    []uint64 // Words for each class: a bit for each entry whose condition holds, or that has none
	Words   int
	Classes int // class 0 is for packets without the field, which satisfies those that do not ask
}

// Row is the bit vector of a class.
func (p *partition) Row(class int) []uint64 { return p.Bits[class*p.Words:][:p.Words] }

// summary has a bit for each word of a row that is not zero.
func summary(row []uint64) []uint64 { return Summarise(nil, row) }

// Summarise is summary into a slice that may be used again.
func Summarise(into, row []uint64) []uint64 {
	out := slices.Grow(into[:0], (len(row)+63)/64)[:(len(row)+63)/64]
	clear(out)
	for i, w := range row {
		if w != 0 {
			out[i>>6] |= 1 << (i & 63)
		}
	}
	return out
}

// Room gives a slice that n more fit into, at least twice as large if it has to be another: append grows large slices by a quarter, and copies them often.
func Room[T any](s []T, n int) []T {
	if cap(s)-len(s) >= n {
		return s
	}
	return append(make([]T, 0, 2*cap(s)+n), s...)
}

// edge is where a condition begins or ends to hold.
type edge struct {
	at    ruleset.Value
	entry int
	begin bool
}

// newPartition makes the classes of a field of that width. ranges gives the values that entry i asks for, normal (sorted, apart), and whether
// it asks at all.
func newPartition(width, entries int, ranges func(i int) ([]ruleset.Range, bool)) partition {
	p := partition{Words: (entries + 63) / 64}
	p.Cuts = Cuts(width, entries, ranges, func(row []uint64) uint32 {
		p.Bits = append(Room(p.Bits, len(row)), row...)
		p.Classes++
		return uint32(p.Classes - 1)
	}, func(class uint32, row []uint64) bool { return slices.Equal(p.Row(int(class)), row) })
	return p
}

// Cuts are where the classes of a partition begin, for those who keep the vectors themselves: add takes one in, which it must not keep, and names its class; same says whether a
// class has that vector. The first that is added is that of packets without the field.
func Cuts(width, entries int, ranges func(i int) ([]ruleset.Range, bool), add func(row []uint64) uint32, same func(class uint32, row []uint64) bool) []Cut {
	edges := make([]edge, 0, 2*entries)
	now := make([]uint64, (entries+63)/64)
	last := ruleset.Max(width)
	for i := range entries {
		rs, asks := ranges(i)
		for _, r := range rs {
			edges = append(edges, edge{r.Lo, i, true})
			if r.Hi != last {
				edges = append(edges, edge{r.Hi.Next(), i, false})
			}
		}
		if !asks {
			now[i>>6] |= 1 << (i & 63)
		}
	}
	if width <= 64 {
		slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at.Lo, b.at.Lo) })
	} else {
		slices.SortFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	}
	// A vector's hash is the sum of a number for each of its bits, so that it is known after each change without reading the vector.
	seen, numbers, hash := make(map[uint64][]uint32, len(edges)/2), make([]uint64, entries), uint64(0)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range numbers {
		numbers[i] = random.Uint64()
	}
	class := func() uint32 {
		for _, n := range seen[hash] {
			if same(n, now) {
				return n
			}
		}
		n := add(now)
		seen[hash] = append(seen[hash], n)
		return n
	}
	cuts := make([]Cut, 1, len(edges)+1)
	cuts[0].Class = class()
	for i := 0; i < len(edges); {
		at := edges[i].at
		for ; i < len(edges) && edges[i].at == at; i++ {
			e := edges[i]
			if bit := uint64(1) << (e.entry & 63); e.begin {
				now[e.entry>>6] |= bit
				hash += numbers[e.entry]
			} else {
				now[e.entry>>6] &^= bit
				hash -= numbers[e.entry]
			}
		}
		n := class()
		switch top := &cuts[len(cuts)-1]; {
		case top.From == at:
			top.Class = n
		case top.Class != n:
			cuts = append(cuts, Cut{at, n})
		}
	}
	return cuts
}
