// SPDX-License-Identifier: Apache-2.0

package rules

import "github.com/shuntnet/shunt/internal/model/ruleset"

// Cut is where a class of values begins; it ends before the next cut.
type Cut struct {
	From  ruleset.Value
	Class uint32
}

// table leads from a field's value to its class: for few classes and for wide fields a search among the cuts, for fields of up to 16
// bits an array, for those of up to 32 bits a trie that takes 16, 8 and 8 bits.
type table struct {
	cuts  []Cut
	array []uint32 // class for each value, or of the upper 16 bits: class, or node | inner
	nodes [][256]uint32
	trie  bool
}

const (
	inner   = 1 << 31 // the rest is the number of a node
	fewCuts = 4
)

func newTable(width int, cuts []Cut) table {
	t := table{cuts: cuts}
	switch {
	case len(cuts) <= fewCuts || width > 32:
	case width <= 16:
		t.array = make([]uint32, 1<<width)
		spread(t.array, cuts, 0, 0)
	default:
		t.trie = true
		t.array = make([]uint32, 1<<16)
		t.grow(t.array, cuts, 16)
	}
	return t
}

// spread fills an array whose values begin at first, each of shift bits less, with the class that is in force at each.
func spread(array []uint32, cuts []Cut, first uint64, shift int) {
	c := 0
	for i := range array {
		for c+1 < len(cuts) && cuts[c+1].From.Lo <= first+uint64(i)<<shift {
			c++
		}
		array[i] = cuts[c].Class
	}
}

// grow fills the root, and makes nodes where cuts lie inside of what one value of it stands for.
func (t *table) grow(root []uint32, cuts []Cut, shift int) {
	spread(root, cuts, 0, shift)
	for i := 1; i < len(cuts); {
		slot := cuts[i].From.Lo >> shift
		from := i
		inside := false
		for ; i < len(cuts) && cuts[i].From.Lo>>shift == slot; i++ {
			inside = inside || cuts[i].From.Lo&(1<<shift-1) != 0
		}
		if inside {
			root[slot] = t.node(cuts[from-1:i], slot<<shift, shift-8) | inner
		}
	}
}

// node makes a node for the values from first on; the first of its cuts is in force there.
func (t *table) node(cuts []Cut, first uint64, shift int) uint32 {
	var node [256]uint32
	spread(node[:], cuts, first, shift)
	if shift > 0 {
		for i := 1; i < len(cuts); {
			slot := (cuts[i].From.Lo - first) >> shift
			from := i
			inside := false
			for ; i < len(cuts) && (cuts[i].From.Lo-first)>>shift == slot; i++ {
				inside = inside || cuts[i].From.Lo&(1<<shift-1) != 0
			}
			if inside {
				node[slot] = t.node(cuts[from-1:i], first+slot<<shift, shift-8) | inner
			}
		}
	}
	t.nodes = append(t.nodes, node)
	return uint32(len(t.nodes) - 1)
}

// class is the class of a value.
func (t *table) class(v ruleset.Value) uint32 {
	switch {
	case t.trie:
		n := t.array[v.Lo>>16]
		if n&inner != 0 {
			n = t.nodes[n&^inner][v.Lo>>8&255]
		}
		if n&inner != 0 {
			n = t.nodes[n&^inner][v.Lo&255]
		}
		return n
	case t.array != nil:
		return t.array[v.Lo]
	}
	low, high := 0, len(t.cuts) // the class begins in [low, high)
	for high-low > 1 {
		if mid := (low + high) / 2; t.cuts[mid].From.Compare(v) <= 0 {
			low = mid
		} else {
			high = mid
		}
	}
	return t.cuts[low].Class
}

func (t *table) bytes() int {
	if t.array == nil {
		return 20 * len(t.cuts)
	}
	return 4*len(t.array) + 1024*len(t.nodes)
}
