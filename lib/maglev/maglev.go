// SPDX-License-Identifier: Apache-2.0

// Package maglev fills the tables that <shunt/maglev.h> looks up in.
//
// Problem: a load balancer in XDP has to choose among backends in nanoseconds and without state, each flow always the same one, also on
// another machine and after some other backend has gone.
//
// Mechanism: Maglev's consistent hashing (Eisenbud et al., NSDI 2016): each backend walks over the table on a way of its own, which its
// identifier alone decides; in turns, each takes the next free entry of its way. Weights decide how often it is a backend's turn.
//
// Invariant: the same table as shunt_maglev_fill() in C, byte for byte, whatever the order of the backends (entries are their
// indexes). The package does no I/O.
package maglev

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// None is every entry of a table without backends.
const None = 0xffff

// A Backend is one of those that flows are shared out among.
type Backend struct {
	ID     uint64 // the same for ever, such as [ID] of its name
	Weight uint32 // its share compared with others'; 0 takes nothing
}

// Errors of [Fill].
var (
	ErrSize  = errors.New("the table's size is no prime from 3 to 2^24")
	ErrMany  = errors.New("too many backends for the table")
	ErrTwice = errors.New("two backends have one identifier")
)

type turn struct {
	id, credit          uint64
	weight, skip, place uint32
	index               uint16
}

// Fill fills the table, which after an error is as it was.
func Fill(table []uint16, backends []Backend) error {
	size := uint32(len(table))
	if len(table) > 1<<24 || !prime(size) {
		return fmt.Errorf("filling a table of %d entries: %w", len(table), ErrSize)
	}
	if len(backends) > len(table) || len(backends) >= None {
		return fmt.Errorf("sharing %d entries among %d backends: %w", len(table), len(backends), ErrMany)
	}
	var turns []turn
	var most uint64
	for i, b := range backends {
		turns = append(turns, turn{
			id: b.ID, weight: b.Weight, index: uint16(i),
			place: uint32(hash(b.ID, 1) % uint64(size)),
			skip:  uint32(hash(b.ID, 2)%uint64(size-1)) + 1,
		})
		most = max(most, uint64(b.Weight))
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.id, b.id) })
	for i := 1; i < len(turns); i++ {
		if turns[i].id == turns[i-1].id {
			return fmt.Errorf("backends %d and %d: %w", turns[i-1].index, turns[i].index, ErrTwice)
		}
	}
	for i := range table {
		table[i] = None
	}
	for left := size; most > 0 && left > 0; {
		for i := range turns {
			t := &turns[i]
			t.credit += uint64(t.weight)
			if t.credit < most {
				continue
			}
			t.credit -= most
			for table[t.place] != None {
				t.place = (t.place + t.skip) % size
			}
			table[t.place] = t.index
			if left--; left == 0 {
				break
			}
		}
	}
	return nil
}

// Lookup is shunt_maglev(): the index of the backend for a flow of this hash. The table must not be empty.
func Lookup(table []uint16, hash uint64) uint16 {
	return table[hash>>32*uint64(len(table))>>32]
}

// ID makes an identifier of a name (FNV-1a).
func ID(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return h
}

func prime(n uint32) bool {
	if n < 3 || n%2 == 0 {
		return false
	}
	for i := uint32(3); i*i <= n; i += 2 {
		if n%i == 0 {
			return false
		}
	}
	return true
}

// hash is shunt_hash_u64() of <shunt/hash.h>.
func hash(key, seed uint64) uint64 {
	const m = 0x880355f21e6d1965
	mix := func(h uint64) uint64 {
		h ^= h >> 23
		h *= 0x2127599bf4325c37
		return h ^ h>>47
	}
	m8 := uint64(m)
	m8 *= 8
	return mix((seed ^ m8 ^ mix(key)) * m)
}
