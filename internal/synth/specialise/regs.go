// SPDX-License-Identifier: Apache-2.0

package specialise

import "github.com/cilium/ebpf/asm"

// regSet is a set of registers, one bit each.
type regSet uint16

func regs(rs ...asm.Register) regSet {
	var s regSet
	for _, r := range rs {
		s |= 1 << r
	}
	return s
}

func (s regSet) has(r asm.Register) bool { return s&(1<<r) != 0 }

const (
	callerSaved regSet = 1<<6 - 1    // r0-r5
	allRegs     regSet = 1<<11 - 1   // r0-r10
	firstArg    regSet = 1 << asm.R1 // arguments follow upwards
)

// arguments is the first n argument registers.
func arguments(n int) regSet { return (firstArg<<n - firstArg) & (callerSaved &^ 1) }

// effects is what an instruction reads and writes. pure means that writing defs is all it does.
type effects struct {
	uses, defs regSet
	pure       bool
}

// effectsOf describes n. Where in doubt it uses more and defines less.
func effectsOf(n *node) effects {
	ins := &n.ins
	op, dst, src := ins.OpCode, regs(ins.Dst), regs(ins.Src)
	switch op.Class() {
	case asm.ALUClass, asm.ALU64Class:
		e := effects{defs: dst, pure: ins.Offset == 0}
		alu := op.ALUOp()
		if op.Source() == asm.RegSource && alu != asm.Neg {
			e.uses |= src
		}
		if alu != asm.Mov && alu != asm.MovSX8 && alu != asm.MovSX16 && alu != asm.MovSX32 {
			e.uses |= dst
		}
		return e
	case asm.LdClass:
		if op.IsDWordLoad() {
			return effects{defs: dst, pure: true}
		}
		if op.Mode() == asm.AbsMode {
			src = 0
		}
		return effects{uses: regs(asm.R6) | src, defs: callerSaved}
	case asm.LdXClass:
		return effects{uses: src, defs: dst, pure: true}
	case asm.StClass:
		return effects{uses: dst}
	case asm.StXClass:
		if op.Mode() == asm.AtomicMode {
			return atomicEffects(ins)
		}
		return effects{uses: dst | src}
	}
	switch {
	case isCall(ins):
		return effects{uses: arguments(argumentCount(n)), defs: callerSaved}
	case isExit(ins):
		return effects{uses: regs(asm.R0)}
	case op.JumpOp() == asm.JCOND:
		return effects{}
	case op.Source() == asm.RegSource:
		return effects{uses: dst | src}
	}
	return effects{uses: dst}
}

// atomicEffects defines every register that some atomic operation writes; those it does not write are also in uses, so that neither
// liveness nor the constants can go wrong with an operation newer than this list.
func atomicEffects(ins *asm.Instruction) effects {
	both := regs(ins.Dst, ins.Src, asm.R0)
	return effects{uses: both, defs: both &^ regs(asm.R10)}
}
