// SPDX-License-Identifier: Apache-2.0

package specialise

// kind orders what is known of a register or stack slot.
type kind uint16

const (
	// unknown is any value except an address in this function's stack frame.
	unknown kind = iota
	// anything may be an address in this function's stack frame, too: a store through it may change any slot.
	anything
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
	}
	return value{}
}

const (
	registers = 11
	frameSize = 512
	cellSize  = 4
	cells     = frameSize / cellSize
)

// cell is the part of the frame that a store of 4 or 8 bytes filled; size is 0 where nothing is known.
type cell struct {
	value
	size uint64
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
			a, b := s.stack[i], t.stack[i]
			var j cell
			if a.size == b.size && a.size != 0 {
				j = cell{a.value.join(b.value), a.size}
			}
			changed = changed || j != a
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

func (s *state) forgetFrame() { s.stack = [cells]cell{} }

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
		s.forgetFrame()
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
	if size < 8 {
		return value{} // too small for an address
	}
	return value{kind: anything}
}
