// SPDX-License-Identifier: Apache-2.0

// Package geo fills the tables from which <shunt/rand.h> draws how many packets to let pass until the next sample.
//
// Problem: sampling with probability p needs a random number for each packet, and floating point, which eBPF does not have, to need fewer.
//
// Mechanism: the number of failures before a success is geometric. User space computes Walker's alias table of that distribution once
// (Vose's construction, 1991), and a draw in eBPF is one look into it; the last entry stands for the rest of the distribution, which has
// no memory and so is drawn by adding the entry and drawing again.
//
// Invariant: an entry is exact to 2^-32. The table is what C's shunt_geo_fill() gives. Pure; a loader calls it and writes the table to
// a map.
package geo

import "fmt"

// Size is SHUNT_GEO_SIZE.
const Size = 256

// An Entry gives Self, its own place, for a draw of 32 bits below Keep, and else Alias.
type Entry struct {
	Keep        uint32
	Alias, Self uint8
	_           uint16
}

// A Table is struct shunt_geo.
type Table [Size]Entry

// NewTable returns the table for probability p; it panics unless 0 < p <= 1.
func NewTable(p float64) *Table {
	if !(p > 0 && p <= 1) {
		panic(fmt.Sprintf("geo: probability %v is not in (0, 1]", p))
	}
	t := new(Table)
	var weight [Size]float64
	var small, large []int
	left := 1.0
	for i := range weight {
		here := left * p
		if i == Size-1 {
			here = left
		}
		left -= here
		weight[i] = here * Size
		if weight[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		t[s] = Entry{Keep: uint32(weight[s] * (1 << 32)), Alias: uint8(l), Self: uint8(s)}
		weight[l] -= 1 - weight[s]
		if weight[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, i := range append(large, small...) { // what is left has weight one, but for rounding
		t[i] = Entry{Keep: ^uint32(0), Alias: uint8(i), Self: uint8(i)}
	}
	return t
}
