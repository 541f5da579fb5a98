// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Trees take the place of rows where an image of IPv4 has many entries: a row has a bit for each of them, and a packet would read through more memory than caches hold
// (P. Gupta, N. McKeown: "Packet classification using hierarchical intelligent cuttings", 1999; that rules which name addresses closely are kept apart from those that do not is of
// B. Vamanan et al.: "EffiCuts", 2010). bpf/node/rule_tree.h reads them. In the header, from treeAt on:
//
//	u32 trees, nexts, devices, 0; for each tree u32 root: a node | inner, or a leaf
//
//	node     u32 from, u8 shift, u8 value, u16 parts; then parts + 1 u32, nodes | inner or leaves: the packet's is number (value - from) >> shift, or if there are
//	         not so many the last
//	leaf     records of the entries that its packets may satisfy, in their order: u32 from, u32 span of the source, the same of the destination; u16 from, span of the source port and of the
//	         destination port; u8 from, span of the protocol; u16 flags, u16 devices, u16 entry. The last is entry noEntry
//	nexts    u32 for each entry: the first one from there on that every packet satisfies, as far as fields go that trees know
//	devices  for each set of devices that entries ask for u32 bits of the way in, u32 bits of the way out. The tables of these dimensions lead to a device's bit in place of a row
const (
	treeAt      = 96
	maxTrees    = 4
	maxLevels   = 12
	leafSize    = 32
	noEntry     = 1<<16 - 1
	manyForTree = 512 // entries from which on trees are tried
	fewInLeaf   = 8   // records that are not worth another node: forest.few
	maxBoxes    = 64  // how many records one entry may need, since it asks for several ranges
	maxParts    = 256
	closely     = 1 << 16 // an entry with fewer addresses names them closely

	leafPorts   = 1
	leafDevices = 2
)

// The fields that nodes can cut, and where programs have their values.
const (
	ofSrc = iota
	ofDst
	ofSPort
	ofDPort
	ofProto
	numCuts
)

var (
	cutDims   = [numCuts]Dim{Src, Dst, SPort, DPort, Proto}
	cutValues = [numCuts]value{vSrc, vDst, vSPort, vDPort, vProto}
	cutLast   = [numCuts]uint32{1<<32 - 1, 1<<32 - 1, 1 << 16, 1 << 16, 1<<8 - 1} // 1 << 16 is the port of packets without ports
)

// span is a range of values, its ends included.
type span struct{ lo, hi uint32 }

func (s span) has(t span) bool { return s.lo <= t.lo && t.hi <= s.hi }

// and is what two spans that meet have in common.
func (s span) and(t span) span { return span{max(s.lo, t.lo), min(s.hi, t.hi)} }

// box is what one record asks.
type box struct {
	at      [numCuts]span
	entry   uint16
	flags   uint16
	devices uint16
	hides   uint16 // up to which entry no packet gets that is in the box; 0: the entry does not decide, or asks for more
}

// forest grows the trees of an image. Its boxes are in the order of their entries, and so are all lists of them.
type forest struct {
	*writer
	few     int // records that are not worth another node
	most    int // and so many in a leaf that rows are better
	boxes   []box
	sides   [2]map[string]uint32 // of IIF and OIF: the bits of a list of devices, by what the list says
	bit     [2]map[int]uint32    // and of a device
	devices []uint64
	records int
	leaves  map[string]uint32
	failed  bool
}

// trees writes trees in place of rows; false, with nothing written, where the entries are not such that a packet is led to a few.
func (w *writer) trees(family ruleset.Family, from int) bool {
	entries := w.in.entries
	if from == 0 {
		from = manyForTree
	}
	if from < 0 || family != ruleset.IP4 || len(entries) < from || len(entries) >= noEntry {
		return false
	}
	f := &forest{writer: w, few: min(fewInLeaf, from), most: max(64, len(entries)/16), leaves: map[string]uint32{}, devices: []uint64{1<<64 - 1}}
	if !f.gather() || len(f.boxes) == 0 {
		return false
	}
	before := len(w.Bytes)
	var roots []uint32
	for _, t := range f.sorted() {
		roots = append(roots, f.grow(t, whole(), 0))
	}
	if f.failed {
		w.Bytes = w.Bytes[:before]
		return false
	}
	f.finish(roots)
	return true
}

func whole() (r [numCuts]span) {
	for i, last := range cutLast {
		r[i].hi = last
	}
	return r
}

// gather makes the records of all entries that ask for something.
func (f *forest) gather() bool {
	landing, ok := f.landings()
	if !ok || !f.gatherDevices() {
		return false
	}
	for i := range f.in.entries {
		e := &f.in.entries[i]
		if e.dims[PhysIn].is || e.dims[PhysOut].is {
			return false
		}
		if !asksDims(e) {
			continue
		}
		one := box{at: whole(), entry: uint16(i)}
		if e.dims[SPort].is || e.dims[DPort].is {
			one.flags |= leafPorts
		}
		f.device(&one, e)
		if len(e.conds) == 0 && one.flags&leafDevices == 0 && e.then != goOn && e.then != call {
			one.hides = uint16(landing[i+1])
		}
		boxes := []box{one}
		for c, d := range cutDims {
			if !e.dims[d].is {
				continue
			}
			var more []box
			for _, b := range boxes {
				for _, r := range e.dims[d].values {
					b.at[c] = span{uint32(r.Lo.Lo), uint32(min(r.Hi.Lo, uint64(cutLast[c])))}
					more = append(more, b)
				}
			}
			if boxes = more; len(boxes) > maxBoxes {
				return false
			}
		}
		f.boxes = append(f.boxes, boxes...)
	}
	return true
}

// landings gives for each entry the first from there on that others lead to past what lies between: list beginnings, and where skips and calls go on.
func (f *forest) landings() (next []int, ok bool) {
	n := len(f.in.entries)
	next = make([]int, n+1)
	is := make([]bool, n+1)
	for t, at := range f.in.at {
		if t.list != 0 && t.at == 0 {
			is[at] = true
		}
	}
	for i := range f.in.entries {
		e := &f.in.entries[i]
		var to []target
		switch e.then {
		case skip:
			to = []target{e.to}
		case call:
			to = []target{e.back, e.end}
		}
		for _, t := range to {
			at, err := f.number(t)
			if err != nil {
				return nil, false
			}
			if int(at) <= n { // backOut and backBase are elsewhere
				is[at] = true
			}
		}
	}
	next[n] = n
	for i := n - 1; i >= 0; i-- {
		if next[i] = next[i+1]; is[i] {
			next[i] = i
		}
	}
	return next, true
}

// reached leaves out what no packet of a region gets to, since one before takes all of them elsewhere.
func (f *forest) reached(of []int32, region *[numCuts]span) []int32 {
	until, out := uint16(0), of[:0:0]
	for n, i := range of {
		b := &f.boxes[i]
		if b.entry < until {
			continue
		}
		out = append(out, i)
		if b.hides > b.entry+1 && n+1 < len(of) && b.covers(region) {
			until = b.hides
		}
	}
	return out
}

// covers says whether all packets of a region are in the box.
func (b *box) covers(region *[numCuts]span) bool {
	for c := range region {
		r := region[c]
		if b.flags&leafPorts != 0 && r.hi == 1<<16 && (c == ofSPort || c == ofDPort) { // some have no ports
			return false
		}
		if !b.at[c].has(r) {
			return false
		}
	}
	return true
}

func asksDims(e *entry) bool {
	return slices.ContainsFunc(e.dims[:], func(a asked) bool { return a.is })
}

// sorted parts the records into trees, by whether they name the source and the destination closely: what names one of them not at all would be in every part of a node that cuts it.
func (f *forest) sorted() (out [][]int32) {
	var trees [maxTrees][]int32
	for i := range f.boxes {
		t := 0
		for c, is := range [2]int{ofSrc: 1, ofDst: 2} {
			if s := f.boxes[i].at[c]; s.hi-s.lo >= closely {
				t |= is
			}
		}
		trees[t] = append(trees[t], int32(i))
	}
	last := maxTrees - 1
	for t := range trees[:last] {
		if len(trees[t]) <= 2*f.few { // not worth a way of their own
			trees[last] = append(trees[last], trees[t]...)
			trees[t] = nil
		}
	}
	slices.Sort(trees[last])
	for _, t := range trees {
		if len(t) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// grow writes the tree of these records, all of which meet the region.
func (f *forest) grow(of []int32, region [numCuts]span, level int) uint32 {
	if f.failed {
		return 0
	}
	if len(of) > f.few && level < maxLevels {
		if c, ok := f.choose(of, &region); ok {
			return f.node(of, region, level, c)
		}
	}
	return f.leaf(of)
}

func (f *forest) node(of []int32, region [numCuts]span, level int, c cut) uint32 {
	parts := make([][]int32, c.parts+1)
	within := region[c.field]
	for _, i := range of {
		s := f.boxes[i].at[c.field]
		if s.has(within) {
			parts[c.parts] = append(parts[c.parts], i)
		}
		lo, hi := max(s.lo, within.lo, c.from), min(s.hi, within.hi, c.end())
		for p := c.part(lo); p <= c.part(hi) && lo <= hi; p++ {
			parts[p] = append(parts[p], i)
		}
	}
	words := make([]uint32, c.parts+1)
	for p := range parts {
		if region[c.field] = within; p < c.parts { // what is in no part may be on either side of them
			lo := c.from + uint32(p)<<c.shift
			region[c.field] = span{max(lo, within.lo), min(lo+1<<c.shift-1, within.hi)}
		}
		if parts[p] = f.reached(parts[p], &region); p > 0 && len(parts[p]) <= f.few && slices.Equal(parts[p], parts[p-1]) {
			words[p] = words[p-1]
			continue
		}
		words[p] = f.grow(parts[p], region, level+1)
	}
	f.records += len(words) / 8 // as much room
	at := f.room(8+4*len(words), rowAlign)
	f.put(at, c.from)
	f.put(at+4, uint32(c.shift)|uint32(cutValues[c.field])<<8|uint32(c.parts)<<16)
	for p, word := range words {
		f.put(at+8+4*p, word)
	}
	return uint32(at) | inner
}

// leaf writes the records of a leaf, or finds where the same are.
func (f *forest) leaf(of []int32) uint32 {
	bytes := make([]byte, leafSize*(len(of)+1))
	for n, i := range of {
		b, r := &f.boxes[i], bytes[leafSize*n:]
		for c, at := range [...]int{ofSrc: 0, ofDst: 8} {
			binary.NativeEndian.PutUint32(r[at:], b.at[c].lo)
			binary.NativeEndian.PutUint32(r[at+4:], b.at[c].hi-b.at[c].lo)
		}
		for c, at := range [...]int{ofSPort: 16, ofDPort: 20} {
			if at == 0 {
				continue
			}
			s := b.at[c]
			s.hi = min(s.hi, 1<<16-1)
			binary.NativeEndian.PutUint16(r[at:], uint16(s.lo))
			binary.NativeEndian.PutUint16(r[at+2:], uint16(s.hi-s.lo))
		}
		r[24], r[25] = byte(b.at[ofProto].lo), byte(b.at[ofProto].hi-b.at[ofProto].lo)
		binary.NativeEndian.PutUint16(r[26:], b.flags)
		binary.NativeEndian.PutUint16(r[28:], b.devices)
		binary.NativeEndian.PutUint16(r[30:], b.entry)
	}
	binary.NativeEndian.PutUint16(bytes[leafSize*len(of)+30:], noEntry)
	if at, known := f.leaves[string(bytes)]; known {
		return at
	}
	if f.records += len(of) + 1; len(of) > f.most || f.records > 16*len(f.boxes)+maxParts {
		f.failed = true
		return 0
	}
	at := f.room(len(bytes), rowAlign)
	copy(f.Bytes[at:], bytes)
	f.leaves[string(bytes)] = uint32(at)
	return uint32(at)
}

// finish writes what is not trees.
func (f *forest) finish(roots []uint32) {
	w := f.writer
	w.Shape.Tree = true
	w.put(treeAt, uint32(len(roots)))
	for i, r := range roots {
		w.put(treeAt+16+4*i, r)
	}
	entries := w.in.entries
	at := w.room(4*len(entries), rowAlign)
	next := uint32(noEntry)
	for i := len(entries) - 1; i >= 0; i-- {
		if !asksDims(&entries[i]) {
			next = uint32(i)
		}
		w.put(at+4*i, next)
	}
	w.put(treeAt+4, uint32(at))
	at = w.room(8*len(f.devices), rowAlign)
	for i, d := range f.devices {
		binary.NativeEndian.PutUint64(w.Bytes[at+8*i:], d)
	}
	w.put(treeAt+8, uint32(at))
	w.put(12, 1<<32-1)
	for d := range NumDims {
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.dims[d].is }) {
			continue
		}
		w.Shape.Dims |= 1 << d
		if d != IIF && d != OIF {
			continue
		}
		rows := map[uint32]uint32{}
		for index, bit := range f.bit[d-IIF] {
			rows[uint32(index)] = bit
		}
		table, factor := w.deviceRows(d, rows)
		w.put(dimsAt+8*int(d), uint32(table))
		w.put(dimsAt+8*int(d)+4, factor)
	}
}
