// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"errors"

	"github.com/cilium/ebpf/asm"
)

var (
	errOpcode   = errors.New("unknown opcode")
	errIndirect = errors.New("indirect jump")
	errFrame    = errors.New("write to the frame pointer")
)

func isExit(ins *asm.Instruction) bool { return ins.OpCode.JumpOp() == asm.Exit }
func isCall(ins *asm.Instruction) bool { return ins.OpCode.JumpOp() == asm.Call }

// isJump is any jump within a function, conditional or not, may_goto included.
func isJump(ins *asm.Instruction) bool {
	op := ins.OpCode.JumpOp()
	return ins.OpCode.Class().IsJump() && op != asm.InvalidJumpOp && op != asm.Call && op != asm.Exit
}

func isUnconditional(ins *asm.Instruction) bool { return ins.OpCode.JumpOp() == asm.Ja }

// isLongJump is gotol, which keeps its distance in the immediate.
func isLongJump(ins *asm.Instruction) bool {
	return isUnconditional(ins) && ins.OpCode.Class() == asm.Jump32Class
}

// understood accepts the opcodes whose operands and effects the passes know.
func understood(ins *asm.Instruction) error {
	op := ins.OpCode
	if op == asm.InvalidOpCode || ins.Dst > asm.R10 {
		return errOpcode
	}
	if ins.Src > asm.R10 { // pseudo sources are small numbers, too
		return errOpcode
	}
	if ins.Dst == asm.R10 && (op.Class().IsALU() || op.Class().IsLoad()) {
		return errFrame
	}
	switch op.Class() {
	case asm.ALUClass, asm.ALU64Class:
		return understoodALU(ins)
	case asm.JumpClass, asm.Jump32Class:
		switch op.JumpOp() {
		case asm.InvalidJumpOp, asm.JumpOp(0xf0):
			return errOpcode
		case asm.Ja:
			if op.Source() == asm.RegSource {
				return errIndirect
			}
		case asm.JCOND:
			if op.Class() != asm.JumpClass || op.Source() != asm.ImmSource || ins.Dst != asm.R0 {
				return errOpcode
			}
		case asm.Call, asm.Exit:
			if op.Source() == asm.RegSource {
				return errIndirect
			}
		}
		return nil
	case asm.LdClass:
		switch op.Mode() {
		case asm.ImmMode:
			if !op.IsDWordLoad() {
				return errOpcode
			}
			return nil
		case asm.AbsMode, asm.IndMode:
			return nil
		}
	case asm.LdXClass:
		if op.Mode() == asm.MemMode || op.Mode() == asm.MemSXMode && op.Size() != asm.DWord {
			return nil
		}
	case asm.StClass:
		if op.Mode() == asm.MemMode {
			return nil
		}
	case asm.StXClass:
		if op.Mode() == asm.MemMode || op.Mode() == asm.AtomicMode {
			return nil
		}
	}
	return errOpcode
}

func understoodALU(ins *asm.Instruction) error {
	switch op := ins.OpCode.ALUOp(); op {
	case asm.Add, asm.Sub, asm.Mul, asm.Div, asm.SDiv, asm.Or, asm.And, asm.LSh, asm.RSh, asm.Neg, asm.Mod, asm.SMod,
		asm.Xor, asm.Mov, asm.ArSh:
		return nil
	case asm.MovSX8, asm.MovSX16, asm.MovSX32:
		if ins.OpCode.Source() != asm.RegSource {
			return errOpcode
		}
		return nil
	case asm.Swap:
		if c := ins.Constant; c == 16 || c == 32 || c == 64 {
			return nil
		}
	}
	return errOpcode
}
