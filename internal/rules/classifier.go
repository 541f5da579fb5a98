// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math/bits"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Classifier finds the entries of a program that a packet satisfies without asking each of them, in the form that a data path
// can hold in array maps.
//
// For each field that many entries ask for, a table leads from the field's value to a bit vector with a bit for every entry whose
// condition on it holds (or that has none). The entries that a packet satisfies are the bits that all vectors share. A summary of each
// vector, one bit for every 64, says which words are worth a look. What no vector knows (sets, marks after a change, rare
// fields) is asked of the entries that are left. Lists of few entries are asked one by one.
//
// The cost of a lookup is that of the tables (one to three reads for ports, protocols and IPv4 addresses, a binary search for IPv6
// addresses), and one read for each field and 4096 entries; the memory is one bit for each entry and value class of a field.
type Classifier struct {
	program *Program
	lists   []matcher
}

const (
	fewEntries = 16 // lists that are shorter get no vectors
	fewAsk     = 3  // fields that fewer entries ask for get no vector
	maxVectors = 8  // fields with a vector at most
)

// matcher finds the entries of one list.
type matcher struct {
	entries []Entry
	rest    [][]Cond // of each entry: the conditions that no vector knows
	vectors []vector
	words   int // of 64 bits in a vector of the list
	sums    int // of 64 bits in a summary
}

// vector is what a field says about the entries of a list.
type vector struct {
	field ruleset.Field
	table table
	bits  []uint64 // words for each class of values; class 0 is for packets without the field
	sum   []uint64 // sums for each class
}

// classes are a packet's value classes, one for each vector.
type classes [maxVectors]uint32

// NewClassifier compiles a program.
func NewClassifier(pr *Program) *Classifier { return newClassifier(pr, fewEntries, fewAsk) }

func newClassifier(pr *Program, few, ask int) *Classifier {
	c := &Classifier{program: pr, lists: make([]matcher, len(pr.Lists))}
	for i, entries := range pr.Lists {
		c.lists[i] = newMatcher(entries, few, ask)
	}
	return c
}

// Run evaluates the program with the help of the vectors.
func (c *Classifier) Run(p Packet) Result {
	return (&thread{walk: begin(&p), Program: c.program, classifier: c}).run()
}

// First is the first entry of list 0 from entry from on that a packet satisfies; the length of the list when there is none.
func (c *Classifier) First(p *Packet, from int) int {
	w := begin(p)
	m := &c.lists[0]
	cl := m.classify(&w)
	return m.next(&w, c.program.rules.rs, &cl, from)
}

// Bytes is the memory that the vectors and tables take.
func (c *Classifier) Bytes() (n int) {
	for _, m := range c.lists {
		for _, v := range m.vectors {
			n += 8*(len(v.bits)+len(v.sum)) + v.table.bytes()
		}
	}
	return n
}

// classify looks the packet's fields up.
func (m *matcher) classify(w *walk) (cl classes) {
	for i := range m.vectors {
		v := &m.vectors[i]
		if value, p := w.raw(v.field, true); p == there {
			cl[i] = v.table.class(value)
		}
	}
	return cl
}

// next is the first entry from i on that a packet satisfies.
func (m *matcher) next(w *walk, rs *ruleset.Ruleset, cl *classes, i int) int {
	if len(m.vectors) == 0 {
		for ; i < len(m.entries); i++ {
			if w.all(rs, m.rest[i]) {
				return i
			}
		}
		return len(m.entries)
	}
	first := i >> 6
	for s := i >> 12; s < m.sums; s++ {
		sum := m.shared(cl, s)
		if s == i>>12 {
			sum &= ^uint64(0) << (first & 63)
		}
		for ; sum != 0; sum &= sum - 1 {
			word := s<<6 | bits.TrailingZeros64(sum)
			left := m.word(cl, word)
			if word == first {
				left &= ^uint64(0) << (i & 63)
			}
			for ; left != 0; left &= left - 1 {
				if n := word<<6 | bits.TrailingZeros64(left); w.all(rs, m.rest[n]) {
					return n
				}
			}
		}
	}
	return len(m.entries)
}

// shared are the bits that all summaries have.
func (m *matcher) shared(cl *classes, s int) uint64 {
	all := ^uint64(0)
	for i := range m.vectors {
		all &= m.vectors[i].sum[int(cl[i])*m.sums+s]
	}
	return all
}

// word are the bits that all vectors have.
func (m *matcher) word(cl *classes, word int) uint64 {
	all := ^uint64(0)
	for i := range m.vectors {
		if all &= m.vectors[i].bits[int(cl[i])*m.words+word]; all == 0 {
			return 0
		}
	}
	return all
}

// all evaluates conditions.
func (w *walk) all(rs *ruleset.Ruleset, when []Cond) bool {
	for _, c := range when {
		if !w.holds(rs, c) {
			return false
		}
	}
	return true
}
