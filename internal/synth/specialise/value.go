// SPDX-License-Identifier: Apache-2.0

package specialise

import "math"

// kind orders what is known of a register or stack slot.
type kind uint16

const (
	// unknown is any value except an address in this function's stack frame.
	unknown kind = iota
	// anything may be an address in this function's stack frame, too: a store through it may change any slot.
	anything
	// narrow is a number of at most 32 bits.
	narrow
	// constant is the 64-bit number n.
	constant
	// rodata is the address of byte n of read-only map ref.
	rodata
	// frame is the address n bytes (two's complement) from r10.
	frame
)

// value is an element of the lattice; equal values compare equal with ==.
type value struct {
	kind kind
	_pad uint16 // no holes: states are compared as plain memory
	ref  uint32
	n    uint64
}

func known(n uint64) value { return value{kind: constant, n: n} }

func (v value) isConst() bool   { return v.kind == constant }
func (v value) isPointer() bool { return v.kind == rodata || v.kind == frame }
func (v value) isNarrow() bool  { return v.kind == narrow || v.isConst() && v.n <= math.MaxUint32 }
func (v value) maybeFrame() bool {
	return v.kind == frame || v.kind == anything
}

// join is what is known where two paths meet.
func (v value) join(w value) value {
	switch {
	case v == w:
		return v
	case v.maybeFrame() || w.maybeFrame():
		return value{kind: anything}
	case v.isNarrow() && w.isNarrow():
		return value{kind: narrow}
	}
	return value{}
}

const (
	registers = 11
	frameSize = 512
	cellSize  = 4
	cells     = frameSize / cellSize
)

// cell is the part of the frame that a store of 4 or 8 bytes filled; size is 0 where nothing is known but that no address of the frame lies there:
// the verifier takes for an address only what a store of 8 aligned bytes left.
type cell struct {
	value
	size uint64
}

// mayHoldFrame says whether an address of the frame may have been stored there.
func (c cell) mayHoldFrame() bool { return c.size == 8 && c.maybeFrame() }

// join is what is known of a cell where two paths meet.
func (c cell) join(d cell) cell {
	switch {
	case c == d:
		return c
	case c.size == d.size && c.size != 0:
		return cell{c.value.join(d.value), c.size}
	case c.mayHoldFrame() || d.mayHoldFrame():
		return cell{value{kind: anything}, 8}
	}
	return cell{}
}

// state is what is known before an instruction.
type state struct {
	regs [registers]value
	// stack has cell i for the bytes at r10-512+4i.
	stack [cells]cell
}

// entryState is the start of a function: arguments are from elsewhere, so no address in this frame.
func entryState() (s state) {
	s.regs[10] = value{kind: frame}
	return s
}

// join merges t into s and says whether s changed.
func (s *state) join(t *state) (changed bool) {
	for i := range s.regs {
		if s.regs[i] != t.regs[i] {
			j := s.regs[i].join(t.regs[i])
			changed = changed || j != s.regs[i]
			s.regs[i] = j
		}
	}
	if s.stack == t.stack {
		return changed
	}
	for i := range s.stack {
		if s.stack[i] != t.stack[i] {
			j := s.stack[i].join(t.stack[i])
			changed = changed || j != s.stack[i]
			s.stack[i] = j
		}
	}
	return changed
}

// forget drops what is known of frame bytes [from, to) relative to r10.
func (s *state) forget(from, to int64) {
	from, to = max(from+frameSize, 0), min(to+frameSize, frameSize)
	if from >= to {
		return
	}
	first := int(from / cellSize)
	if first > 0 && s.stack[first-1].size == 8 {
		s.stack[first-1] = cell{}
	}
	for i := first; i*cellSize < int(to); i++ {
		s.stack[i] = cell{}
	}
}

// scatter drops what is known of the frame after v may have been written anywhere in it.
func (s *state) scatter(v value) {
	for i := range s.stack {
		if i%2 == 0 && (v.maybeFrame() || s.stack[i].mayHoldFrame()) {
			s.stack[i] = cell{value{kind: anything}, 8}
		} else {
			s.stack[i] = cell{}
		}
	}
}

// aligned returns the cell of an access to size bytes at off from r10, if it is one that cells can hold.
func aligned(off int64, size int) (int, bool) {
	if off < -frameSize || off+int64(size) > 0 || (size != 4 && size != 8) || off%int64(size) != 0 {
		return 0, false
	}
	return int(off+frameSize) / cellSize, true
}

// store writes v into size bytes at off from r10.
func (s *state) store(off int64, size int, v value) {
	if off < -frameSize || off+int64(size) > 0 {
		s.scatter(v)
		return
	}
	s.forget(off, off+int64(size))
	i, ok := aligned(off, size)
	switch {
	case !ok:
	case size == 8:
		s.stack[i] = cell{v, 8}
	case v.isConst():
		s.stack[i] = cell{known(uint64(uint32(v.n))), 4}
	}
}

// load reads size bytes at off from r10.
func (s *state) load(off int64, size int) value {
	if i, ok := aligned(off, size); ok && int(s.stack[i].size) == size {
		return s.stack[i].value
	}
	return value{}
}
