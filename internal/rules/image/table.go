// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"

	"github.com/shuntnet/shunt/internal/rules"
)

// Tables from values to rows. All of them give the offset of a row.
//
//	trie    nodes of 256 entries, the root of 256 or 65536, for values of up to 32 bits: u32 each, a row or another node | inner;
//	        arg is how far the value is shifted for the root
//	search  u32 n, pad; then n pairs of u64, the 128-bit values from which rows begin, upper half first, sorted; n is a power of two,
//	        arg is n; then n u32 rows
//	hash    pairs of u32, a value and its row, without collisions; arg is a factor: the pair is at (value * factor) >> shift, and shift is in
//	        the first u32 of two before the pairs. The second is the row of all other values, 0 for none: of devices of which rules say nothing (plain.go)
const inner = 1 << 31

const wideRoot = 1 << 9 // cuts from which on a root of 16 bits is worth its size

func (w *writer) trie(width int, cuts []rules.Cut) (table int, shift uint32) {
	bits := 8
	for bits < width {
		bits += 8
	}
	if width == 17 {
		bits = 16
	}
	root := 256
	switch {
	case width == 17:
		root = 257
	case bits == 32 && len(cuts) >= wideRoot:
		root = 1 << 16
	}
	s := bits - 8
	if root == 1<<16 {
		s = bits - 16
	}
	return w.node(cuts, 0, s, root, nodes{hashes: maphash.MakeSeed(), at: map[uint64]uint32{}}), uint32(s)
}

// nodes are those of a trie by their contents: there may be ten thousand, of a KiB each.
type nodes struct {
	hashes maphash.Seed
	at     map[uint64]uint32
}

// node writes a node whose entries stand for 1 << shift values each, from first on.
func (w *writer) node(cuts []rules.Cut, first uint64, shift, size int, known nodes) int {
	var few [256]uint32
	slots := few[:]
	if size > len(few) {
		slots = make([]uint32, size)
	}
	c := 0
	for i := range slots {
		from := first + uint64(i)<<shift
		for c+1 < len(cuts) && cuts[c+1].From.Lo <= from {
			c++
		}
		end := c + 1
		for end < len(cuts) && cuts[end].From.Lo < from+1<<shift {
			end++
		}
		if end == c+1 {
			slots[i] = cuts[c].Class
		} else {
			slots[i] = uint32(w.node(cuts[c:end], from, shift-8, 256, known)) | inner
		}
	}
	before := len(w.Bytes)
	at := w.room(4*size, rowAlign)
	node := w.Bytes[at:]
	for i, v := range slots {
		binary.NativeEndian.PutUint32(node[4*i:], v)
	}
	if size > len(few) {
		return at
	}
	for key := maphash.Bytes(known.hashes, node); ; key++ { // others with the same hash have the keys behind it
		same, ok := known.at[key]
		if !ok {
			known.at[key] = uint32(at)
			return at
		}
		if bytes.Equal(w.Bytes[same:int(same)+len(node)], node) {
			w.Bytes = w.Bytes[:before]
			return int(same)
		}
	}
}

func (w *writer) search(cuts []rules.Cut) (table int, n uint32) {
	n = 1
	for int(n) < len(cuts) {
		n *= 2
	}
	at := w.room(20*int(n), rowAlign)
	for i := range int(n) {
		c := cuts[min(i, len(cuts)-1)]
		hi, lo := c.From.Hi, c.From.Lo
		if i >= len(cuts) {
			hi, lo = ^uint64(0), ^uint64(0)
		}
		binary.NativeEndian.PutUint64(w.Bytes[at+16*i:], hi)
		binary.NativeEndian.PutUint64(w.Bytes[at+16*i+8:], lo)
		w.put(at+16*int(n)+4*i, c.Class)
	}
	return at, n
}

// hash writes the rows of devices.
func (w *writer) hash(side Dim, cuts []rules.Cut) (table int, factor uint32) {
	rows := map[uint32]uint32{}
	for _, d := range sideDevices(side, w.devices) {
		row := cuts[0].Class
		for _, c := range cuts {
			if c.From.Lo <= uint64(d.Index) {
				row = c.Class
			}
		}
		rows[uint32(d.Index)] = row
	}
	return w.deviceRows(side, rows)
}

// hashed writes the rows of values, and that of all others. It finds a factor by which no two have the same place; where chance gives none there is more room.
func (w *writer) hashed(rows map[uint32]uint32, others uint32) (table int, factor uint32) {
	bits := 1
	for 1<<bits < 2*len(rows) {
		bits++
	}
	factor = 0x9e3779b1
	for tries := 1; clash(rows, factor, bits); tries++ {
		factor += 0x61c88646 // an odd number stays odd
		if tries%64 == 0 {
			bits++
		}
	}
	at := w.room(8+8<<bits, rowAlign)
	w.put(at, uint32(32-bits))
	w.put(at+4, others)
	for index, row := range rows {
		i := int(index * factor >> (32 - bits))
		w.put(at+8+8*i, index)
		w.put(at+8+8*i+4, row)
	}
	return at, factor
}

func clash(rows map[uint32]uint32, factor uint32, bits int) bool {
	used := make([]bool, 1<<bits)
	for index := range rows {
		i := index * factor >> (32 - bits)
		if used[i] {
			return true
		}
		used[i] = true
	}
	return false
}
