// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"fmt"
	"math/rand/v2"

	"github.com/cilium/ebpf/asm"
)

// generator makes programs that the verifier accepts for SCHED_CLS: inputs are words of the context's cb area (offset 48, five words), all
// registers are scalars except r6 (context) and r10, the frame is written before it is read, jumps go forward, except for
// counted loops, and everything ends in r0.
type generator struct {
	r      *rand.Rand
	out    asm.Instructions
	labels int
	// written is the frame bytes that hold scalars on every path to here.
	written [generatedFrame]bool
	depth   int
	sub     bool
	hasSub  bool
}

const (
	generatedFrame  = 64
	generatedRodata = 64
	ctxWords        = 48 // struct __sk_buff: cb
)

var scalars = []asm.Register{asm.R0, asm.R1, asm.R2, asm.R3, asm.R4, asm.R5, asm.R7, asm.R8, asm.R9}

func generate(r *rand.Rand) asm.Instructions {
	g := &generator{r: r, hasSub: r.IntN(3) == 0}
	g.emit(asm.Mov.Reg(asm.R6, asm.R1))
	for i, reg := range scalars {
		if i < 5 {
			g.emit(asm.LoadMem(reg, asm.R6, int16(ctxWords+4*i), asm.Word))
		} else {
			g.emit(g.constant(reg))
		}
	}
	g.block(8 + r.IntN(40))
	for _, reg := range scalars[1:] { // make every register matter
		g.emit(asm.Xor.Reg(asm.R0, reg))
		g.emit(asm.Mul.Imm(asm.R0, 31))
	}
	for i := 0; i+8 <= generatedFrame; i += 8 {
		if g.all(i, 8) {
			g.emit(asm.LoadMem(asm.R1, asm.R10, int16(i-generatedFrame), asm.DWord), asm.Add.Reg(asm.R0, asm.R1))
		}
	}
	// the kernel's test run gives back only the lower half
	g.emit(asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, 32), asm.Xor.Reg(asm.R0, asm.R1), asm.Return())
	g.out[0] = g.out[0].WithSymbol("entry")
	if len(g.out.FunctionReferences()) > 0 { // the verifier refuses a function that nobody calls
		s := &generator{r: r, sub: true, labels: 100000}
		for i, reg := range scalars {
			if i < 1 || i > 3 {
				s.emit(g.constant(reg))
			}
		}
		s.emit(asm.Mov.Imm(asm.R6, 0))
		s.block(4 + r.IntN(10))
		s.emit(asm.Add.Reg(asm.R0, asm.R3), asm.Return())
		s.out[0] = s.out[0].WithSymbol("sub")
		g.out = append(g.out, s.out...)
	}
	return g.out
}

func (g *generator) emit(ins ...asm.Instruction) {
	for _, i := range ins {
		// a pending label becomes the symbol of the next instruction
		if n := len(g.out); n > 0 && g.out[n-1].OpCode == asm.InvalidOpCode {
			i = i.WithSymbol(g.out[n-1].Reference())
			g.out = g.out[:n-1]
		}
		g.out = append(g.out, i)
	}
}

func (g *generator) label() string {
	g.labels++
	return fmt.Sprintf("l%d", g.labels)
}

// bind puts name on the next instruction, a harmless one: no instruction can have two.
func (g *generator) bind(name string) {
	g.out = append(g.out, asm.Instruction{OpCode: asm.InvalidOpCode}.WithReference(name))
	g.emit(asm.Mov.Reg(asm.R9, asm.R9))
}

func (g *generator) reg() asm.Register { return scalars[g.r.IntN(len(scalars))] }

func (g *generator) constant(dst asm.Register) asm.Instruction {
	switch g.r.IntN(4) {
	case 0:
		return asm.LoadImm(dst, int64(g.r.Uint64()), asm.DWord)
	case 1:
		return asm.Mov.Imm(dst, int32(g.r.Uint32()))
	case 2:
		return asm.Mov.Imm32(dst, int32(g.r.Uint32()))
	}
	return asm.Mov.Imm(dst, int32(g.r.IntN(5))-1)
}

func (g *generator) all(from, n int) bool {
	for i := from; i < from+n; i++ {
		if !g.written[i] {
			return false
		}
	}
	return true
}

// block emits about n instructions.
func (g *generator) block(n int) {
	for n > 0 {
		n -= g.one(n)
	}
}

func (g *generator) one(n int) int {
	size := []asm.Size{asm.Byte, asm.Half, asm.Word, asm.DWord}[g.r.IntN(4)]
	bytes := size.Sizeof()
	off := g.r.IntN(generatedFrame/bytes) * bytes
	switch k := g.r.IntN(20); {
	case k < 5:
		g.emit(g.alu())
	case k < 8: // a frozen constant
		dst := g.reg()
		at := g.r.IntN(generatedRodata/bytes) * bytes
		g.emit(asm.LoadMapValue(dst, 0, uint32(at)).WithReference(".rodata"), asm.LoadMem(dst, dst, 0, size))
	case k < 9:
		dst := g.reg()
		g.emit(asm.LoadMapValue(dst, 0, 0).WithReference(".rodata"), asm.Add.Imm(dst, 8), asm.LoadMem(dst, dst, int16(bytes), size))
	case k < 11: // spill
		if g.r.IntN(4) == 0 && size != asm.DWord {
			g.emit(asm.StoreImm(asm.R10, int16(off-generatedFrame), int64(g.r.IntN(100)), size))
		} else {
			g.emit(asm.StoreMem(asm.R10, int16(off-generatedFrame), g.reg(), size))
		}
		for i := range bytes {
			g.written[off+i] = true
		}
	case k < 13: // reload
		if g.all(off, bytes) {
			g.emit(asm.LoadMem(g.reg(), asm.R10, int16(off-generatedFrame), size))
		}
	case k < 14: // through an address in a register
		if g.all(off, bytes) {
			dst := g.reg()
			g.emit(asm.Mov.Reg(dst, asm.R10), asm.Add.Imm(dst, int32(off-generatedFrame)))
			if g.r.IntN(2) == 0 {
				g.emit(asm.StoreImm(dst, 0, 7, asm.Byte))
			}
			g.emit(asm.LoadMem(dst, dst, 0, size))
		}
	case k < 15:
		g.emit(g.constant(g.reg()))
	case k < 16 && g.hasSub:
		g.emit(asm.Call.Label("sub"))
		for i := 1; i <= 5; i++ {
			g.emit(g.constant(asm.Register(i)))
		}
	case k < 17 && g.depth < 2:
		g.loop()
	case g.depth < 4:
		g.branch(n / 2)
	}
	return 1 + g.r.IntN(2)
}

func (g *generator) alu() asm.Instruction {
	ops := []asm.ALUOp{asm.Add, asm.Sub, asm.Mul, asm.Div, asm.Or, asm.And, asm.LSh, asm.RSh, asm.Mod, asm.Xor, asm.Mov, asm.ArSh, asm.Neg}
	op := ops[g.r.IntN(len(ops))]
	dst, src := g.reg(), g.reg()
	imm := int32(g.r.Uint32())
	if g.r.IntN(3) == 0 {
		imm = int32(g.r.IntN(3)) - 1
	}
	switch op {
	case asm.Neg:
		if g.r.IntN(2) == 0 {
			return asm.Instruction{OpCode: asm.OpCode(asm.ALU64Class).SetALUOp(asm.Neg), Dst: dst}
		}
		return asm.Instruction{OpCode: asm.OpCode(asm.ALUClass).SetALUOp(asm.Neg), Dst: dst}
	case asm.LSh, asm.RSh, asm.ArSh:
		imm &= 31
	case asm.Div, asm.Mod:
		if imm == 0 {
			imm = 3
		}
	}
	switch g.r.IntN(4) {
	case 0:
		return op.Imm(dst, imm)
	case 1:
		return op.Imm32(dst, imm)
	case 2:
		return op.Reg32(dst, src)
	}
	return op.Reg(dst, src)
}

var conditions = []asm.JumpOp{asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE, asm.JSet}

func (g *generator) condition(to string) asm.Instruction {
	op := conditions[g.r.IntN(len(conditions))]
	a, b := g.reg(), g.reg()
	switch g.r.IntN(4) {
	case 0:
		return op.Reg(a, b, to)
	case 1:
		return op.Reg32(a, b, to)
	case 2:
		return op.Imm32(a, int32(g.r.IntN(4))-1, to)
	}
	return op.Imm(a, int32(g.r.IntN(4))-1, to)
}

// branch emits an if, with or without an else.
func (g *generator) branch(n int) {
	g.depth++
	before := g.written
	other, end := g.label(), g.label()
	g.emit(g.condition(other))
	g.block(n)
	one := g.written
	g.written = before
	if g.r.IntN(2) == 0 {
		g.emit(asm.Ja.Label(end))
		g.bind(other)
		g.block(n)
		g.bind(end)
	} else {
		g.bind(other)
	}
	for i := range g.written {
		g.written[i] = g.written[i] && one[i]
	}
	g.depth--
}

// loop counts down in the frame, so that no generated instruction disturbs it.
func (g *generator) loop() {
	g.depth++
	head := g.label()
	slot := int16(-generatedFrame - 8*g.depth)
	g.emit(asm.StoreImm(asm.R10, slot, int64(1+g.r.IntN(3)), asm.Word))
	g.bind(head)
	before := g.written
	g.block(1 + g.r.IntN(3))
	g.written = before
	g.emit(asm.LoadMem(asm.R9, asm.R10, slot, asm.Word), asm.Sub.Imm(asm.R9, 1), asm.StoreMem(asm.R10, slot, asm.R9, asm.Word))
	g.emit(asm.JNE.Imm(asm.R9, 0, head))
	g.depth--
}
