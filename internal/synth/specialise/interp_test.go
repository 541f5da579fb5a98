// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// machine interprets the subset of eBPF that generated programs use, straight from the encoded instructions. It shares no code with the
// passes: arithmetic is written once more, with the width handled in a different way.
type machine struct {
	code   []asm.Instruction // by slot; the second slot of a 64-bit immediate is the zero value
	ro     map[string][]byte
	ctx    []byte
	budget int
}

const (
	ctxBase   = uint64(1) << 40
	roBase    = uint64(2) << 40
	frameBase = uint64(3) << 40
)

func newMachine(insns asm.Instructions, ro map[string][]byte, ctx []byte) *machine {
	m := &machine{ro: ro, ctx: ctx, budget: 100000}
	for _, ins := range insns {
		m.code = append(m.code, ins)
		if ins.OpCode.IsDWordLoad() {
			m.code = append(m.code, asm.Instruction{})
		}
	}
	return m
}

// call runs a function from slot pc with its own frame.
func (m *machine) call(pc, depth int, regs [11]uint64) (uint64, error) {
	stack := make([]byte, 512)
	regs[10] = frameBase + 512
	mem := func(addr uint64, size int, write bool) ([]byte, error) {
		var space []byte
		off := addr & (1<<40 - 1)
		switch addr &^ (1<<40 - 1) {
		case ctxBase:
			space = m.ctx
		case roBase:
			space = m.ro[".rodata"]
		case frameBase:
			space, write = stack, false
		default:
			return nil, fmt.Errorf("access to %#x", addr)
		}
		if write { // so that an address can hide nowhere but in the frame, as the verifier sees to it
			return nil, fmt.Errorf("store to %#x", addr)
		}
		if off+uint64(size) > uint64(len(space)) {
			return nil, fmt.Errorf("access to %#x+%d outside", addr, size)
		}
		return space[off : off+uint64(size)], nil
	}
	for ; ; pc++ {
		if m.budget--; m.budget < 0 {
			return 0, fmt.Errorf("too many steps")
		}
		if pc < 0 || pc >= len(m.code) {
			return 0, fmt.Errorf("ran off to slot %d", pc)
		}
		ins := m.code[pc]
		op := ins.OpCode
		if op.Class().IsALU() && ins.Offset != 0 || ins.Src > 10 || ins.Dst > 10 {
			return 0, fmt.Errorf("unexpected %v", ins)
		}
		imm := uint64(int64(int32(ins.Constant)))
		src := imm
		if op.Source() == asm.RegSource {
			src = regs[ins.Src]
		}
		switch op.Class() {
		case asm.ALU64Class:
			r, err := reference(op, regs[ins.Dst], src, 64, ins.Constant)
			if err != nil {
				return 0, err
			}
			regs[ins.Dst] = r
		case asm.ALUClass:
			r, err := reference(op, regs[ins.Dst], src, 32, ins.Constant)
			if err != nil {
				return 0, err
			}
			regs[ins.Dst] = r
		case asm.LdClass:
			if !op.IsDWordLoad() {
				return 0, fmt.Errorf("unexpected %v", ins)
			}
			regs[ins.Dst] = uint64(ins.Constant)
			if ins.Src != 0 && ins.Src != asm.PseudoMapValue {
				return 0, fmt.Errorf("unexpected %v", ins)
			}
			if ins.Src == asm.PseudoMapValue {
				regs[ins.Dst] = roBase + uint64(ins.Constant)>>32
			}
			pc++
		case asm.LdXClass:
			size := op.Size().Sizeof()
			b, err := mem(regs[ins.Src]+uint64(int64(ins.Offset)), size, false)
			if err != nil {
				return 0, err
			}
			v := get(b)
			if op.Mode() == asm.MemSXMode {
				v = uint64(int64(v) << (64 - 8*size) >> (64 - 8*size))
			}
			regs[ins.Dst] = v
		case asm.StClass, asm.StXClass:
			v := imm
			if op.Class() == asm.StXClass {
				v = regs[ins.Src]
			}
			b, err := mem(regs[ins.Dst]+uint64(int64(ins.Offset)), op.Size().Sizeof(), true)
			if err != nil {
				return 0, err
			}
			switch {
			case op.AtomicOp() == asm.AddAtomic:
				v += get(b)
			case op.Mode() == asm.AtomicMode:
				return 0, fmt.Errorf("unexpected %v", ins)
			}
			put(b, v)
		case asm.JumpClass, asm.Jump32Class:
			if isLongJump(&ins) {
				return 0, fmt.Errorf("unexpected %v", ins)
			}
			switch op.JumpOp() {
			case asm.JCOND:
				return 0, fmt.Errorf("unexpected %v", ins)
			case asm.Exit:
				return regs[0], nil
			case asm.Ja:
				pc += int(ins.Offset)
			case asm.Call:
				if ins.Src != asm.PseudoCall || depth > 4 {
					return 0, fmt.Errorf("unexpected %v", ins)
				}
				target := pc + 1 + int(ins.Constant)
				if ins.Constant == -1 && ins.Reference() != "" {
					target = m.symbol(ins.Reference())
				}
				r, err := m.call(target, depth+1, regs)
				if err != nil {
					return 0, err
				}
				regs[0] = r
				for i := 1; i <= 5; i++ {
					regs[i] = 0xdead0000 + uint64(i)
				}
			default:
				if taken(op, regs[ins.Dst], src) {
					pc += int(ins.Offset)
				}
			}
		}
	}
}

func (m *machine) symbol(name string) int {
	for i, ins := range m.code {
		if ins.Symbol() == name {
			return i
		}
	}
	return -1
}

func get(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func put(b []byte, v uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		binary.NativeEndian.PutUint64(b, v)
	}
}

// reference computes at 64 bits on operands cut to width, and cuts the result.
func reference(op asm.OpCode, dst, src uint64, width uint, imm int64) (uint64, error) {
	mask := ^uint64(0) >> (64 - width)
	sign := func(v uint64, bits uint) int64 { return int64(v<<(64-bits)) >> (64 - bits) }
	dst, src = dst&mask, src&mask
	count := src & uint64(width-1)
	var r uint64
	switch op.ALUOp() {
	case asm.Add:
		r = dst + src
	case asm.Sub:
		r = dst - src
	case asm.Mul:
		r = dst * src
	case asm.Or:
		r = dst | src
	case asm.And:
		r = dst & src
	case asm.Xor:
		r = dst ^ src
	case asm.Mov:
		r = src
	case asm.Neg:
		r = -dst
	case asm.LSh:
		r = dst << count
	case asm.RSh:
		r = dst >> count
	case asm.ArSh:
		r = uint64(sign(dst, width) >> count)
	case asm.Div:
		if src != 0 {
			r = dst / src
		}
	case asm.Mod:
		if r = dst; src != 0 {
			r = dst % src
		}
	case asm.MovSX8:
		r = uint64(sign(src, 8))
	case asm.MovSX16:
		r = uint64(sign(src, 16))
	case asm.MovSX32:
		r = uint64(sign(src, 32))
	case asm.Swap:
		b := binary.NativeEndian.AppendUint64(nil, dst)
		if width == 32 { // the 32-bit class converts all of the register
			return 0, fmt.Errorf("conversions are checked by tables")
		}
		n := int(imm / 8)
		part := b[:n]
		for i := range n / 2 {
			part[i], part[n-1-i] = part[n-1-i], part[i]
		}
		return get(append([]byte(nil), part...)), nil
	default:
		return 0, fmt.Errorf("unexpected %v", op)
	}
	return r & mask, nil
}

// taken compares as big numbers: signed operands are moved up by half the range.
func taken(op asm.OpCode, dst, src uint64) bool {
	half := uint64(1) << 63
	if op.Class() == asm.Jump32Class {
		dst, src, half = dst&0xffffffff, src&0xffffffff, 1<<31
	}
	switch op.JumpOp() {
	case asm.JEq:
		return dst == src
	case asm.JNE:
		return dst != src
	case asm.JSet:
		return dst&src != 0
	case asm.JGT:
		return dst > src
	case asm.JGE:
		return dst >= src
	case asm.JLT:
		return dst < src
	case asm.JLE:
		return dst <= src
	case asm.JSGT:
		return dst^half > src^half
	case asm.JSGE:
		return dst^half >= src^half
	case asm.JSLT:
		return dst^half < src^half
	}
	return dst^half <= src^half
}
