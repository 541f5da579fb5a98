// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/cilium/ebpf/asm"
)

// littleEndian is the byte order of this machine, hence of the programs that it can load.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// memory is the contents of the read-only maps, by reference number.
type memory struct {
	names []string
	data  map[string][]byte
	pool  *[]state // scratch, used by one analysis at a time
}

// pool keeps the large scratch memory between runs.
var pool = sync.Pool{New: func() any { return new([]state) }}

// states returns n states of unspecified contents.
func (m *memory) states(n int) []state {
	if n > len(*m.pool) {
		*m.pool = make([]state, n)
	}
	return (*m.pool)[:n]
}

func newMemory(data map[string][]byte) *memory {
	m := &memory{data: data, pool: pool.Get().(*[]state)}
	for name := range data {
		m.names = append(m.names, name)
	}
	slices.Sort(m.names)
	return m
}

// release ends the use of m.
func (m *memory) release() {
	pool.Put(m.pool)
	m.pool = nil
}

// address is what a 64-bit immediate load leaves in its register.
func (m *memory) address(n *node) value {
	ins := &n.ins
	switch {
	case n.relocated:
		return value{}
	case ins.IsConstantLoad(asm.DWord) && ins.Reference() == "":
		return known(uint64(ins.Constant))
	case ins.Src == asm.PseudoMapValue && ins.Reference() != "":
		if i, ok := slices.BinarySearch(m.names, ins.Reference()); ok {
			return value{kind: rodata, ref: uint32(i), n: uint64(ins.Constant) >> 32}
		}
	}
	return value{}
}

// read loads size bytes at a rodata address, sign-extended if signed.
func (m *memory) read(at value, size int, signed bool) (uint64, bool) {
	data := m.data[m.names[at.ref]]
	if at.n > uint64(len(data)) || uint64(len(data))-at.n < uint64(size) {
		return 0, false
	}
	b := data[at.n:]
	var v uint64
	switch size {
	case 1:
		v = uint64(b[0])
	case 2:
		v = uint64(binary.NativeEndian.Uint16(b))
	case 4:
		v = uint64(binary.NativeEndian.Uint32(b))
	case 8:
		v = binary.NativeEndian.Uint64(b)
	}
	if shift := 64 - 8*size; signed {
		v = uint64(int64(v<<shift) >> shift)
	}
	return v, true
}

// analysis knows the state at the start of every block that can be executed.
type analysis struct {
	mem *memory
	// callbacks is set where a callee may come back into this frame while a helper runs.
	callbacks bool
	in        []state
	reached   []bool
}

// at is the state at the start of b, nil if b is never executed.
func (a *analysis) at(b *block) *state {
	if !a.reached[b.number] {
		return nil
	}
	return &a.in[b.number]
}

// analyse propagates constants along the edges that known branches leave executable, until nothing changes.
func analyse(f *function, mem *memory) *analysis {
	n := f.number()
	a := &analysis{mem: mem, in: mem.states(n), reached: make([]bool, n)}
	for _, b := range f.blocks {
		for i := range b.body {
			a.callbacks = a.callbacks || b.body[i].ins.IsLoadOfFunctionPointer()
		}
	}
	a.reached[f.entry.number] = true
	a.in[f.entry.number] = entryState()
	// Blocks stand in the compiler's order, most of them behind all that lead to them: the first that waits is most likely the one whose
	// state is final.
	waiting := make([]bool, n)
	waiting[f.entry.number] = true
	var s state
	for at := f.entry.number; at < n; {
		if !waiting[at] {
			at++
			continue
		}
		b := f.blocks[at]
		waiting[at] = false
		s = a.in[b.number]
		for _, t := range a.leave(&s, b) {
			if t == nil {
				continue
			}
			if !a.reached[t.number] {
				a.reached[t.number], a.in[t.number] = true, s
			} else if !a.in[t.number].join(&s) {
				continue
			}
			waiting[t.number] = true
			at = min(at, t.number)
		}
	}
	return a
}

// leave moves s through b and returns the ways out that can be executed.
func (a *analysis) leave(s *state, b *block) [2]*block {
	last := b.branch()
	for i := range b.body {
		if n := &b.body[i]; n != last {
			a.step(s, n)
		}
	}
	if last != nil {
		if taken, ok := a.decide(s, last); ok && taken {
			return [2]*block{b.jump}
		} else if ok {
			return [2]*block{b.next}
		}
	}
	return b.successors()
}

// operand is the right operand of an ALU or jump instruction.
func operand(s *state, n *node) value {
	ins := &n.ins
	if ins.OpCode.Source() == asm.RegSource {
		return s.regs[ins.Src]
	}
	if n.relocated {
		return value{}
	}
	return known(immediate(ins))
}

// immediate is the 32-bit immediate of ins as the kernel extends it.
func immediate(ins *asm.Instruction) uint64 { return uint64(int64(int32(ins.Constant))) }

// decide says whether a conditional jump is taken, if that is known.
func (a *analysis) decide(s *state, n *node) (taken, ok bool) {
	ins := &n.ins
	op := ins.OpCode
	if op.JumpOp() == asm.JCOND {
		return false, false
	}
	dst, src := s.regs[ins.Dst], operand(s, n)
	switch {
	case !src.isConst():
		return false, false
	case dst.isConst():
		return compare(op, dst.n, src.n)
	case dst.isPointer() && src.n == 0 && op.Class() == asm.JumpClass && (op.JumpOp() == asm.JEq || op.JumpOp() == asm.JNE):
		return op.JumpOp() == asm.JNE, true // an address is never zero
	}
	return compareBound(op, src.n)
}

// result is what an instruction leaves in its destination register, for the classes that have one.
func (a *analysis) result(s *state, n *node) value {
	switch n.ins.OpCode.Class() {
	case asm.ALUClass, asm.ALU64Class:
		return a.arithmetic(s, n)
	case asm.LdClass:
		return a.mem.address(n)
	}
	return a.loaded(s, n)
}

func (a *analysis) arithmetic(s *state, n *node) value {
	ins := &n.ins
	dst, src := s.regs[ins.Dst], operand(s, n)
	op, wide := ins.OpCode.ALUOp(), ins.OpCode.Class() == asm.ALU64Class
	if op == asm.Swap || op == asm.Neg {
		src = known(0)
	}
	moves := op == asm.Mov || op == asm.MovSX8 || op == asm.MovSX16 || op == asm.MovSX32
	if moves {
		dst = known(0)
	}
	switch {
	case ins.Offset != 0: // address space casts and the like
	case dst.isConst() && src.isConst():
		if r, ok := eval(ins, dst.n, src.n); ok {
			return known(r)
		}
	case op == asm.Mov && wide:
		return src
	case op == asm.Add && wide && dst.isPointer() && src.isConst():
		dst.n += src.n
		return dst
	case op == asm.Add && wide && dst.isConst() && src.isPointer():
		src.n += dst.n
		return src
	case op == asm.Sub && wide && dst.isPointer() && src.isConst():
		dst.n -= src.n
		return dst
	case (op == asm.And || op == asm.Mul) && src == known(0):
		return src
	case op == asm.And || op == asm.Mul:
		if !wide && src.isConst() && uint32(src.n) == 0 {
			return known(0)
		}
	}
	switch {
	case !wide && ins.Offset == 0 && op != asm.Swap:
		return value{kind: narrow} // the upper half is cleared
	case wide && op == asm.RSh && src.isConst() && src.n&63 >= 32:
		return value{kind: narrow}
	case wide && (op == asm.Add || op == asm.Sub || op == asm.Mov || ins.Offset != 0) && (dst.maybeFrame() || src.maybeFrame()):
		return value{kind: anything} // what else is done to it makes it no address: the verifier allows nothing else with one
	}
	return value{}
}

// address is the base register's value moved by the instruction's offset.
func (a *analysis) address(s *state, n *node, base asm.Register) value {
	v := s.regs[base]
	switch {
	case n.relocated && v.maybeFrame():
		return value{kind: anything}
	case n.relocated:
		return value{}
	case v.isPointer():
		v.n += uint64(int64(n.ins.Offset))
	}
	return v
}

func (a *analysis) loaded(s *state, n *node) value {
	ins := &n.ins
	at, size := a.address(s, n, ins.Src), ins.OpCode.Size().Sizeof()
	signed := ins.OpCode.Mode() == asm.MemSXMode
	switch at.kind {
	case rodata:
		if v, ok := a.mem.read(at, size, signed); ok {
			return known(v)
		}
	case frame:
		v := s.load(int64(at.n), size)
		switch {
		case signed && v.isConst():
			v.n = uint64(int64(int32(v.n))) // size is 4: there is no sign-extending load of 8 bytes
		case signed && v.kind == narrow:
			return value{} // it may be negative now
		}
		return v
	case anything:
		if size == 8 {
			return at
		}
	}
	if size < 8 && !signed {
		return value{kind: narrow}
	}
	return value{}
}

// step applies n to s.
func (a *analysis) step(s *state, n *node) {
	ins := &n.ins
	switch op := ins.OpCode; op.Class() {
	case asm.ALUClass, asm.ALU64Class, asm.LdXClass:
		s.regs[ins.Dst] = a.result(s, n)
	case asm.LdClass:
		if op.IsDWordLoad() {
			s.regs[ins.Dst] = a.result(s, n)
			return
		}
		clear(s.regs[:6]) // packet access: like a call
	case asm.StClass:
		a.write(s, n, known(immediate(ins)))
	case asm.StXClass:
		if op.Mode() == asm.AtomicMode {
			a.atomic(s, n)
			return
		}
		a.write(s, n, s.regs[ins.Src])
	case asm.JumpClass:
		if isCall(ins) {
			a.call(s, n)
		}
	}
}

func (a *analysis) write(s *state, n *node, v value) {
	switch at := a.address(s, n, n.ins.Dst); at.kind {
	case frame:
		s.store(int64(at.n), n.ins.OpCode.Size().Sizeof(), v)
	case anything:
		s.scatter(v)
	}
}

// atomic forgets whatever an atomic operation, a load-acquire or a store-release may have written.
func (a *analysis) atomic(s *state, n *node) {
	e := effectsOf(n)
	if n.ins.OpCode.AtomicOp() == asm.CmpXchg && !s.regs[n.ins.Dst].maybeFrame() {
		s.regs[asm.R0] = value{} // what was there
		return
	}
	if s.regs[n.ins.Dst].maybeFrame() || s.regs[n.ins.Src].maybeFrame() {
		s.scatter(value{kind: anything})
	}
	for r := range registers - 1 {
		if e.defs.has(asm.Register(r)) {
			s.regs[r] = value{kind: anything}
		}
	}
}

// call applies what any callee may do: clobber r0-r5, and write through the addresses that it was given. A helper, and a kernel function, writes upwards from
// an address, and no addresses, though a kernel function may give back one that it was given (bpf_dynptr_slice()); another function may go anywhere in the frame, and keep there or give back an address that it was given.
func (a *analysis) call(s *state, n *node) {
	helper := n.ins.IsBuiltinCall()
	var given value
	for r := 1; r <= argumentCount(n); r++ {
		v := s.regs[r]
		if v.maybeFrame() {
			given = value{kind: anything}
		}
		switch {
		case v.maybeFrame() && (!helper && !n.ins.IsKfuncCall() || a.callbacks):
			s.scatter(given)
		case v.kind == anything:
			s.scatter(value{})
		case v.kind == frame:
			s.forget(int64(v.n), 0)
		}
	}
	clear(s.regs[:6])
	if !helper {
		s.regs[0] = given
	}
}
