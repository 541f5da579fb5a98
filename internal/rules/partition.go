// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math/rand/v2"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Partition cuts the values of a field into classes: values of one class satisfy the conditions of the same entries.
type Partition struct {
	Cuts    []Cut    // sorted; the first is at 0
	Bits    []uint64 // Words for each class: a bit for each entry whose condition holds, or that has none
	Words   int
	Classes int // class 0 is for packets without the field, which satisfies those that do not ask
}

// Row is the bit vector of a class.
func (p *Partition) Row(class int) []uint64 { return p.Bits[class*p.Words:][:p.Words] }

// Summary has a bit for each word of a row that is not zero.
func Summary(row []uint64) []uint64 {
	out := make([]uint64, (len(row)+63)/64)
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

// NewPartition makes the classes of a field of that width. ranges gives the values that entry i asks for, normal (sorted, apart), and whether
// it asks at all.
func NewPartition(width, entries int, ranges func(i int) ([]ruleset.Range, bool)) Partition {
	p := Partition{Words: (entries + 63) / 64}
	var edges []edge
	now := make([]uint64, p.Words)
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
	slices.SortFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	// A vector's hash is the sum of a number for each of its bits, so that it is known after each change without reading the vector.
	seen, numbers, hash := map[uint64][]uint32{}, make([]uint64, entries), uint64(0)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range numbers {
		numbers[i] = random.Uint64()
	}
	p.class(now, seen, hash)
	p.Cuts = []Cut{{ruleset.Value{}, 0}}
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
		n := p.class(now, seen, hash)
		switch top := &p.Cuts[len(p.Cuts)-1]; {
		case top.From == at:
			top.Class = n
		case top.Class != n:
			p.Cuts = append(p.Cuts, Cut{at, n})
		}
	}
	return p
}

// class gives equal vectors the same number.
func (p *Partition) class(now []uint64, seen map[uint64][]uint32, hash uint64) uint32 {
	for _, n := range seen[hash] {
		if slices.Equal(p.Row(int(n)), now) {
			return n
		}
	}
	p.Bits = append(Room(p.Bits, len(now)), now...)
	seen[hash] = append(seen[hash], uint32(p.Classes))
	p.Classes++
	return uint32(p.Classes - 1)
}
