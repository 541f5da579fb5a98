// SPDX-License-Identifier: Apache-2.0

package specialise

import "github.com/cilium/ebpf/asm"

// deadStores drops stores to frame bytes that nobody reads: the spills of what folding has removed. Only bytes below every address of the
// frame that is in a register somewhere count: a helper that is given r10-16 reads upwards from there. A function whose frame
// could be reached in any other way is left alone.
func deadStores(p *program, mem *memory) (changed bool) {
	for _, f := range p.funcs {
		if limit, ok := privateBytes(f, analyse(f, mem)); ok && limit > -frameSize {
			changed = f.dropStores(limit) || changed
		}
	}
	return changed
}

// access is a load or store at a fixed offset from r10.
func access(n *node) (base asm.Register, store, ok bool) {
	ins := &n.ins
	if n.relocated {
		return 0, false, false
	}
	switch op := ins.OpCode; {
	case op.Class() == asm.LdXClass:
		return ins.Src, false, true
	case op.Class() == asm.StClass, op.Class() == asm.StXClass && op.Mode() == asm.MemMode:
		return ins.Dst, true, true
	}
	return 0, false, false
}

// privateBytes is the offset from r10 below which only loads and stores with base r10 touch the frame.
func privateBytes(f *function, a *analysis) (limit int64, ok bool) {
	if a.callbacks {
		return 0, false
	}
	for _, b := range f.blocks {
		start := a.at(b)
		if start == nil {
			return 0, false
		}
		s := *start
		for i := range b.body {
			n := &b.body[i]
			low, ok := lowest(&s, n)
			if !ok {
				return 0, false
			}
			a.step(&s, n)
			for r := range asm.R10 {
				if v := s.regs[r]; v.kind == frame {
					low = min(low, int64(v.n))
				}
			}
			if v := s.regs[n.ins.Dst]; v.kind == anything && computes(n) && !upwards(&s, n) {
				return 0, false // an address moved by an amount that is not known
			}
			limit = min(limit, low)
		}
	}
	return limit, true
}

// computes is arithmetic other than a plain copy or a step upwards.
func computes(n *node) bool {
	ins := &n.ins
	if !n.relocated && ins.OpCode.Class() == asm.ALU64Class && ins.OpCode.ALUOp() == asm.Add && ins.OpCode.Source() == asm.ImmSource && int32(ins.Constant) >= 0 && ins.Offset == 0 {
		return false
	}
	return ins.OpCode.Class().IsALU() && ins.OpCode.ALUOp() != asm.Mov || ins.OpCode.Class().IsALU() && ins.Offset != 0
}

// upwards is the addition of a number of 32 bits, which is not negative.
func upwards(s *state, n *node) bool {
	op := n.ins.OpCode
	return op.Class() == asm.ALU64Class && op.ALUOp() == asm.Add && op.Source() == asm.RegSource && n.ins.Offset == 0 && n.ins.Src != n.ins.Dst && s.regs[n.ins.Src].kind == narrow
}

// lowest is how far down n itself reaches into the frame other than by a plain access with base r10. Addresses in registers are
// never below the limit already, so only negative offsets from them matter.
func lowest(s *state, n *node) (low int64, ok bool) {
	ins := &n.ins
	if base, _, fixed := access(n); fixed {
		if base == asm.R10 {
			return 0, true
		}
		return reaches(s.regs[base], ins)
	}
	switch class := ins.OpCode.Class(); {
	case class == asm.LdXClass, class == asm.StClass, class == asm.StXClass && ins.OpCode.Mode() == asm.MemMode: // relocated
		return 0, !s.regs[ins.Dst].maybeFrame() && !s.regs[ins.Src].maybeFrame()
	case class == asm.StXClass:
		dst, ok1 := reaches(s.regs[ins.Dst], ins)
		src, ok2 := reaches(s.regs[ins.Src], ins)
		return min(dst, src), ok1 && ok2
	case ins.OpCode.JumpOp() == asm.Call && ins.Src == asm.PseudoCall:
		for r := asm.R1; r <= asm.R5; r++ {
			if s.regs[r].maybeFrame() {
				return 0, false // the other function may go down from there
			}
		}
	}
	return 0, true
}

func reaches(base value, ins *asm.Instruction) (low int64, ok bool) {
	switch base.kind {
	case frame:
		return int64(base.n) + int64(ins.Offset), true
	case anything:
		return 0, ins.Offset >= 0
	}
	return 0, true
}

// byteSet is a set of frame bytes.
type byteSet [frameSize / 64]uint64

func (s *byteSet) set(off int64, size int, on bool) {
	for i := off + frameSize; i < off+frameSize+int64(size); i++ {
		if i < 0 || i >= frameSize {
			continue
		}
		if on {
			s[i/64] |= 1 << (i % 64)
		} else {
			s[i/64] &^= 1 << (i % 64)
		}
	}
}

func (s *byteSet) any(off int64, size int) bool {
	for i := off + frameSize; i < off+frameSize+int64(size); i++ {
		if i < 0 || i >= frameSize || s[i/64]&(1<<(i%64)) != 0 {
			return true
		}
	}
	return false
}

// step moves live, the bytes below limit that are read later, backwards over n and says whether n is a dead store.
func (s *byteSet) step(n *node, limit int64) (useless bool) {
	base, store, ok := access(n)
	if !ok || base != asm.R10 {
		return false
	}
	off, size := int64(n.ins.Offset), n.ins.OpCode.Size().Sizeof()
	if !store {
		s.set(off, size, true)
		return false
	}
	if off+int64(size) <= limit && off >= -frameSize && !s.any(off, size) {
		return true
	}
	s.set(off, size, false)
	return false
}

// dropStores removes stores to bytes below limit that no path loads.
func (f *function) dropStores(limit int64) (changed bool) {
	in := make([]byteSet, f.number())
	after := func(b *block) (live byteSet) {
		for _, s := range b.successors() {
			if s == nil {
				continue
			}
			for i, bits := range in[s.number] {
				live[i] |= bits
			}
		}
		return live
	}
	for again := true; again; {
		again = false
		for i := len(f.blocks) - 1; i >= 0; i-- {
			b := f.blocks[i]
			live := after(b)
			for j := len(b.body) - 1; j >= 0; j-- {
				live.step(&b.body[j], limit)
			}
			if live != in[i] {
				in[i], again = live, true
			}
		}
	}
	for _, b := range f.blocks {
		live := after(b)
		keep := len(b.body)
		for j := len(b.body) - 1; j >= 0; j-- {
			if live.step(&b.body[j], limit) {
				changed = true
				continue
			}
			keep--
			b.body[keep] = b.body[j]
		}
		b.body = b.body[keep:]
	}
	return changed
}
