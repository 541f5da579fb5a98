// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"math"

	"github.com/cilium/ebpf/asm"
)

// fold replaces loads, arithmetic and branches whose result is known, and known register operands by immediates; it drops what sets a
// register to the value that it has.
func fold(p *program, mem *memory, stats *Stats) (changed bool) {
	for _, f := range p.funcs {
		a := analyse(f, mem)
		for _, b := range f.blocks {
			start := a.at(b)
			if start == nil {
				continue // reach drops it once the branches towards it are gone
			}
			s := *start
			last := b.branch()
			kept := b.body[:0]
			for i := range b.body {
				n := &b.body[i]
				if n == last {
					kept = append(kept, *n)
					break
				}
				if a.settled(&s, n) {
					changed = true
					continue
				}
				changed = a.foldResult(&s, n, stats) || foldOperand(&s, n) || changed
				a.step(&s, n)
				kept = append(kept, *n)
			}
			b.body = kept
			if last != nil {
				changed = a.foldBranch(&s, b, stats) || changed
			}
		}
	}
	return changed
}

// settled is a pure instruction whose destination already holds the constant or read-only address that it would leave there.
func (a *analysis) settled(s *state, n *node) bool {
	if !n.ins.OpCode.Class().IsALU() && !n.ins.OpCode.IsDWordLoad() || n.relocated {
		return false
	}
	r := a.result(s, n)
	return (r.kind == constant || r.kind == rodata) && r == s.regs[n.ins.Dst]
}

// foldBranch drops the conditional jump that ends b if its outcome is known.
func (a *analysis) foldBranch(s *state, b *block, stats *Stats) bool {
	n := b.branch()
	taken, ok := a.decide(s, n)
	if !ok {
		swapped := swapOperands(s, &n.ins)
		return foldOperand(s, n) || swapped
	}
	target := b.next
	if taken {
		target = b.jump
	}
	b.dropBranch(target)
	stats.FoldedBranches++
	return true
}

// foldResult replaces a pure instruction by a constant move where that takes no more slots, and a load always: it costs more than its slot.
func (a *analysis) foldResult(s *state, n *node, stats *Stats) bool {
	ins := &n.ins
	class := ins.OpCode.Class()
	load := class == asm.LdXClass
	if !load && !class.IsALU() && !ins.OpCode.IsDWordLoad() {
		return false
	}
	if class.IsALU() && ins.OpCode.ALUOp() == asm.Mov && ins.OpCode.Source() == asm.ImmSource {
		return false
	}
	r := a.result(s, n)
	if !r.isConst() || n.relocated {
		return false
	}
	mov := constantInto(ins.Dst, r.n)
	if !load && (slots(&mov) > slots(ins) || mov.OpCode == ins.OpCode) {
		return false
	}
	if load {
		stats.FoldedLoads++
	}
	n.ins = mov.WithMetadata(ins.Metadata)
	return true
}

// constantInto sets dst to c in as few slots as possible.
func constantInto(dst asm.Register, c uint64) asm.Instruction {
	switch {
	case int64(c) == int64(int32(c)):
		return asm.Mov.Imm(dst, int32(c))
	case c <= math.MaxUint32:
		return asm.Mov.Imm32(dst, int32(uint32(c)))
	}
	return asm.LoadImm(dst, int64(c), asm.DWord)
}

// foldOperand turns a known register operand into an immediate, so that the register need not be loaded.
func foldOperand(s *state, n *node) bool {
	ins := &n.ins
	op := ins.OpCode
	class := op.Class()
	alu := class.IsALU()
	if !alu && (!isJump(ins) || op.JumpOp() == asm.JCOND) || op.Source() != asm.RegSource || ins.Offset != 0 && alu {
		return false
	}
	v := s.regs[ins.Src]
	if !v.isConst() || n.relocated {
		return false
	}
	wide := class == asm.ALU64Class || class == asm.JumpClass
	imm := int32(uint32(v.n))
	switch op.ALUOp() {
	case asm.LSh, asm.RSh, asm.ArSh: // the verifier refuses an immediate count that would be masked
		imm &= 31
		if wide {
			imm = int32(v.n & 63)
		}
	case asm.Div, asm.SDiv, asm.Mod, asm.SMod: // and an immediate divisor of zero
		if imm == 0 {
			return false
		}
		fallthrough
	default:
		if wide && int64(imm) != int64(v.n) {
			return false
		}
	case asm.Neg, asm.Swap, asm.MovSX8, asm.MovSX16, asm.MovSX32:
		return false
	}
	ins.OpCode, ins.Src, ins.Constant = op.SetSource(asm.ImmSource), asm.R0, int64(imm)
	return true
}

var mirrored = map[asm.JumpOp]asm.JumpOp{
	asm.JEq: asm.JEq, asm.JNE: asm.JNE, asm.JSet: asm.JSet,
	asm.JGT: asm.JLT, asm.JLT: asm.JGT, asm.JGE: asm.JLE, asm.JLE: asm.JGE,
	asm.JSGT: asm.JSLT, asm.JSLT: asm.JSGT, asm.JSGE: asm.JSLE, asm.JSLE: asm.JSGE,
}

// swapOperands puts a known left operand of a comparison on the right, where it can become an immediate.
func swapOperands(s *state, ins *asm.Instruction) bool {
	op, ok := mirrored[ins.OpCode.JumpOp()]
	if !ok || ins.OpCode.Source() != asm.RegSource || !s.regs[ins.Dst].isConst() || s.regs[ins.Src].isConst() {
		return false
	}
	ins.OpCode = ins.OpCode.SetJumpOp(op)
	ins.Dst, ins.Src = ins.Src, ins.Dst
	return true
}
