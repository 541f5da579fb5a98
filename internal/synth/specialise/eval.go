// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"math/bits"

	"github.com/cilium/ebpf/asm"
)

// eval computes an ALU operation as the kernel does (Documentation/bpf/standardization/instruction-set.rst): shift counts are
// masked, division by zero gives zero, remainder by zero leaves the dividend, and 32-bit results are zero-extended.
func eval(ins *asm.Instruction, dst, src uint64) (uint64, bool) {
	op := ins.OpCode.ALUOp()
	if op == asm.Swap {
		return swap(ins, dst)
	}
	if ins.OpCode.Class() == asm.ALU64Class {
		return alu[uint64, int64](op, dst, src, 64)
	}
	r, ok := alu[uint32, int32](op, uint32(dst), uint32(src), 32)
	return uint64(r), ok
}

// alu computes on words of one width in bits; S is the signed form of U.
func alu[U uint32 | uint64, S int32 | int64](op asm.ALUOp, dst, src, width U) (U, bool) {
	shift := src & (width - 1)
	switch op {
	case asm.Add:
		return dst + src, true
	case asm.Sub:
		return dst - src, true
	case asm.Mul:
		return dst * src, true
	case asm.Div:
		if src == 0 {
			return 0, true
		}
		return dst / src, true
	case asm.SDiv:
		if src == 0 {
			return 0, true
		}
		return U(S(dst) / S(src)), true
	case asm.Mod:
		if src == 0 {
			return dst, true
		}
		return dst % src, true
	case asm.SMod:
		if src == 0 {
			return dst, true
		}
		return U(S(dst) % S(src)), true
	case asm.Or:
		return dst | src, true
	case asm.And:
		return dst & src, true
	case asm.Xor:
		return dst ^ src, true
	case asm.LSh:
		return dst << shift, true
	case asm.RSh:
		return dst >> shift, true
	case asm.ArSh:
		return U(S(dst) >> shift), true
	case asm.Neg:
		return -dst, true
	case asm.Mov:
		return src, true
	case asm.MovSX8:
		return U(S(int8(src))), true
	case asm.MovSX16:
		return U(S(int16(src))), true
	case asm.MovSX32:
		return U(S(int32(src))), width == 64 // there is no 32-bit form
	}
	return 0, false
}

// swap is a byte order conversion: to a named order (32-bit class) or unconditional (64-bit class). Converting to the machine's own
// order only truncates.
func swap(ins *asm.Instruction, v uint64) (uint64, bool) {
	reverse := true
	if ins.OpCode.Class() == asm.ALUClass {
		reverse = (ins.OpCode.Endianness() == asm.BE) == littleEndian
	}
	switch ins.Constant {
	case 16:
		if reverse {
			return uint64(bits.ReverseBytes16(uint16(v))), true
		}
		return uint64(uint16(v)), true
	case 32:
		if reverse {
			return uint64(bits.ReverseBytes32(uint32(v))), true
		}
		return uint64(uint32(v)), true
	case 64:
		if reverse {
			return bits.ReverseBytes64(v), true
		}
		return v, true
	}
	return 0, false
}

// compare decides a conditional jump on known operands.
func compare(op asm.OpCode, dst, src uint64) (taken, ok bool) {
	sdst, ssrc := int64(dst), int64(src)
	if op.Class() == asm.Jump32Class {
		dst, src = uint64(uint32(dst)), uint64(uint32(src))
		sdst, ssrc = int64(int32(dst)), int64(int32(src))
	}
	switch op.JumpOp() {
	case asm.JEq:
		return dst == src, true
	case asm.JNE:
		return dst != src, true
	case asm.JGT:
		return dst > src, true
	case asm.JGE:
		return dst >= src, true
	case asm.JLT:
		return dst < src, true
	case asm.JLE:
		return dst <= src, true
	case asm.JSet:
		return dst&src != 0, true
	case asm.JSGT:
		return sdst > ssrc, true
	case asm.JSGE:
		return sdst >= ssrc, true
	case asm.JSLT:
		return sdst < ssrc, true
	case asm.JSLE:
		return sdst <= ssrc, true
	}
	return false, false
}

// compareBound decides a conditional jump whose right operand alone is known and whose condition no left operand can change.
func compareBound(op asm.OpCode, src uint64) (taken, ok bool) {
	top := ^uint64(0)
	if op.Class() == asm.Jump32Class {
		src, top = uint64(uint32(src)), uint64(^uint32(0))
	}
	switch op.JumpOp() {
	case asm.JSet, asm.JLT:
		return false, src == 0
	case asm.JGE:
		return true, src == 0
	case asm.JGT:
		return false, src == top
	case asm.JLE:
		return true, src == top
	}
	return false, false
}
