// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"testing"

	"github.com/cilium/ebpf/asm"
)

// TestPasses runs one pass at a time.
func TestPasses(t *testing.T) {
	foldOnly := func(p *program) {
		mem := newMemory(frozenWords)
		defer mem.release()
		fold(p, mem, &Stats{})
	}
	storesOnly := func(p *program) {
		mem := newMemory(nil)
		defer mem.release()
		deadStores(p, mem)
	}
	splitOnly := func(p *program) {
		mem := newMemory(nil)
		defer mem.release()
		split(p, mem)
	}
	kernelFunction := asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: 1}
	wide := asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord)
	store := func(off int16, r asm.Register) asm.Instruction { return asm.StoreMem(asm.R10, off, r, asm.DWord) }
	reload := func(r asm.Register, off int16) asm.Instruction { return asm.LoadMem(r, asm.R10, off, asm.DWord) }
	for name, c := range map[string]struct {
		pass     func(*program)
		in, want asm.Instructions
	}{
		"lower and emit change nothing": {
			func(*program) {},
			code(input, asm.LoadImm(asm.R0, 1, asm.DWord), asm.JEq.Imm(asm.R2, 0, "a"), asm.Ja.Label("b"), drop.WithSymbol("a"), exit, pass.WithSymbol("b"), exit),
			code(input, asm.LoadImm(asm.R0, 1, asm.DWord), asm.JEq.Imm(asm.R2, 0, "a"), asm.Ja.Label("b"), drop.WithSymbol("a"), exit, pass.WithSymbol("b"), exit),
		},
		"gotol becomes goto": {
			func(*program) {},
			code(input, asm.JEq.Imm(asm.R2, 0, "a"), asm.LongJump("b"), drop.WithSymbol("a"), exit, pass.WithSymbol("b"), exit),
			code(input, asm.JEq.Imm(asm.R2, 0, "a"), asm.Ja.Label("b"), drop.WithSymbol("a"), exit, pass.WithSymbol("b"), exit),
		},
		"fold: arithmetic": {
			foldOnly,
			code(asm.Mov.Imm(asm.R0, 3), asm.Mul.Imm(asm.R0, 5), asm.Mov.Reg32(asm.R3, asm.R0), asm.Sub.Reg(asm.R0, asm.R3), exit),
			code(asm.Mov.Imm(asm.R0, 3), asm.Mov.Imm(asm.R0, 15), asm.Mov.Imm(asm.R3, 15), asm.Mov.Imm(asm.R0, 0), exit),
		},
		"fold: a value that is there already": {
			foldOnly,
			code(asm.Mov.Imm(asm.R0, 2), asm.Mov.Imm32(asm.R0, 2), exit),
			code(asm.Mov.Imm(asm.R0, 2), exit),
		},
		"fold: shifts are masked before they become immediates": {
			foldOnly,
			code(input, asm.Mov.Imm(asm.R3, 65), asm.Mov.Reg(asm.R0, asm.R2), asm.LSh.Reg(asm.R0, asm.R3), exit),
			code(input, asm.Mov.Imm(asm.R3, 65), asm.Mov.Reg(asm.R0, asm.R2), asm.LSh.Imm(asm.R0, 1), exit),
		},
		"reach: code behind an exit": {
			func(p *program) { reach(p) },
			code(pass, exit, drop, exit),
			code(pass, exit),
		},
		"thread: jump to a jump": {
			func(p *program) { thread(p); reach(p) },
			code(input, pass, asm.JEq.Imm(asm.R2, 0, "a"), drop, exit, asm.Ja.Label("b").WithSymbol("a"), drop, asm.Add.Imm(asm.R0, 1).WithSymbol("b"), exit),
			code(input, pass, asm.JEq.Imm(asm.R2, 0, "b"), drop, exit, asm.Add.Imm(asm.R0, 1).WithSymbol("b"), exit),
		},
		"thread: an endless loop stays": {
			func(p *program) { thread(p) },
			code(pass, asm.Ja.Label("a").WithSymbol("a")),
			code(pass, asm.Ja.Label("a").WithSymbol("a")),
		},
		"dead: unread results, in chains, loads too": {
			func(p *program) { dead(p) },
			code(input, asm.Mov.Reg(asm.R3, asm.R2), asm.Add.Reg(asm.R3, asm.R2), asm.LoadMapPtr(asm.R4, 0), pass, exit),
			code(pass, exit),
		},
		"dead: stores, calls and arguments stay; other argument registers go": {
			func(p *program) { dead(p) },
			code(asm.Mov.Imm(asm.R2, 1), asm.Mov.Imm(asm.R1, 1), asm.Mov.Imm(asm.R3, 1), asm.FnRedirect.Call(), asm.StoreImm(asm.R10, -4, 1, asm.Word), exit),
			code(asm.Mov.Imm(asm.R2, 1), asm.Mov.Imm(asm.R1, 1), asm.FnRedirect.Call(), asm.StoreImm(asm.R10, -4, 1, asm.Word), exit),
		},
		"dead: 32-bit moves to themselves clear the upper half": {
			func(p *program) { dead(p) },
			code(asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord), asm.Mov.Reg32(asm.R0, asm.R0), asm.Mov.Reg(asm.R0, asm.R0), asm.Or.Imm(asm.R0, 0), exit),
			code(asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord), asm.Mov.Reg32(asm.R0, asm.R0), exit),
		},
		"frame: a spill that nobody reloads": {
			storesOnly,
			code(input, store(-16, asm.R2), store(-8, asm.R2), reload(asm.R0, -8), exit),
			code(input, store(-8, asm.R2), reload(asm.R0, -8), exit),
		},
		"frame: a slot that a loop reads stays": {
			storesOnly,
			code(input, store(-8, asm.R2), reload(asm.R0, -8).WithSymbol("again"), asm.Sub.Imm(asm.R0, 1), store(-8, asm.R0), asm.JNE.Imm(asm.R0, 0, "again"), exit),
			code(input, store(-8, asm.R2), reload(asm.R0, -8).WithSymbol("again"), asm.Sub.Imm(asm.R0, 1), store(-8, asm.R0), asm.JNE.Imm(asm.R0, 0, "again"), exit),
		},
		"frame: an address moved by an unknown amount keeps all": {
			storesOnly,
			code(wide, store(-16, asm.R2), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Reg(asm.R3, asm.R2), asm.LoadMem(asm.R0, asm.R3, 0, asm.DWord), exit),
			code(wide, store(-16, asm.R2), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Reg(asm.R3, asm.R2), asm.LoadMem(asm.R0, asm.R3, 0, asm.DWord), exit),
		},
		"frame: an address moved by what a sign-extending load may have made negative keeps all": {
			storesOnly,
			code(input, asm.StoreImm(asm.R10, -8, 1, asm.Word), asm.JEq.Imm(asm.R2, 0, "on"), asm.StoreImm(asm.R10, -8, -16, asm.Word), store(-24, asm.R2).WithSymbol("on"), asm.LoadMemSX(asm.R2, asm.R10, -8, asm.Word), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Reg(asm.R3, asm.R2), asm.LoadMem(asm.R0, asm.R3, 0, asm.DWord), exit),
			code(input, asm.StoreImm(asm.R10, -8, 1, asm.Word), asm.JEq.Imm(asm.R2, 0, "on"), asm.StoreImm(asm.R10, -8, -16, asm.Word), store(-24, asm.R2).WithSymbol("on"), asm.LoadMemSX(asm.R2, asm.R10, -8, asm.Word), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Reg(asm.R3, asm.R2), asm.LoadMem(asm.R0, asm.R3, 0, asm.DWord), exit),
		},
		"frame: a kernel function may give back the address that it gets": {
			storesOnly,
			code(input, store(-16, asm.R2), asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, -8), kernelFunction, asm.Mov.Reg(asm.R3, asm.R0), asm.Add.Reg(asm.R3, asm.R6), asm.LoadMem(asm.R0, asm.R3, 0, asm.DWord), exit),
			code(input, store(-16, asm.R2), asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, -8), kernelFunction, asm.Mov.Reg(asm.R3, asm.R0), asm.Add.Reg(asm.R3, asm.R6), asm.LoadMem(asm.R0, asm.R3, 0, asm.DWord), exit),
		},
		"dead: what a kernel function does not ask for": {
			func(p *program) { dead(p) },
			code(asm.Mov.Imm(asm.R2, 1), asm.Mov.Imm(asm.R1, 1), WithArguments(kernelFunction, 1), exit),
			code(asm.Mov.Imm(asm.R1, 1), WithArguments(kernelFunction, 1), exit),
		},
		"frame: an address moved upwards keeps only what is above": {
			storesOnly,
			code(input, store(-24, asm.R2), store(-8, asm.R2), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -16), asm.Add.Reg(asm.R3, asm.R2), asm.LoadMem(asm.R0, asm.R3, 0, asm.DWord), exit),
			code(input, store(-8, asm.R2), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -16), asm.Add.Reg(asm.R3, asm.R2), asm.LoadMem(asm.R0, asm.R3, 0, asm.DWord), exit),
		},
		"frame: another function may go below the address that it gets": {
			storesOnly,
			code(input, store(-16, asm.R2), asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, -8), asm.Call.Label("f"), exit, asm.LoadMem(asm.R0, asm.R1, -8, asm.DWord).WithSymbol("f"), exit),
			code(input, store(-16, asm.R2), asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, -8), asm.Call.Label("f"), exit, asm.LoadMem(asm.R0, asm.R1, -8, asm.DWord).WithSymbol("f"), exit),
		},
		"fuse: a constant where it is wanted": {
			func(p *program) { fuse(p) },
			code(asm.LoadImm(asm.R3, 1<<40, asm.DWord), asm.Mov.Reg(asm.R0, asm.R3), exit),
			code(asm.LoadImm(asm.R0, 1<<40, asm.DWord), exit),
		},
		"fuse: one that is read again stays": {
			func(p *program) { fuse(p) },
			code(asm.LoadImm(asm.R3, 1<<40, asm.DWord), asm.Mov.Reg(asm.R0, asm.R3), asm.Add.Reg(asm.R0, asm.R3), exit),
			code(asm.LoadImm(asm.R3, 1<<40, asm.DWord), asm.Mov.Reg(asm.R0, asm.R3), asm.Add.Reg(asm.R0, asm.R3), exit),
		},
		"fuse: a place in a map's value": {
			func(p *program) { fuse(p) },
			code(asm.LoadMapValue(asm.R3, 0, 8), asm.Add.Imm(asm.R3, 96), asm.LoadMem(asm.R0, asm.R3, 24, asm.DWord), exit),
			code(asm.LoadMapValue(asm.R3, 0, 104), asm.LoadMem(asm.R0, asm.R3, 24, asm.DWord), exit),
		},
		"fuse: a load from a place behind an address": {
			func(p *program) { fuse(p) },
			code(input, asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, 40), asm.LoadMem(asm.R0, asm.R3, -8, asm.Word), exit),
			code(input, asm.LoadMem(asm.R0, asm.R1, 32, asm.Word), exit),
		},
		"fuse: one that no offset reaches": {
			func(p *program) { fuse(p) },
			code(asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, 40_000), asm.LoadMem(asm.R0, asm.R3, 0, asm.Word), exit),
			code(asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, 40_000), asm.LoadMem(asm.R0, asm.R3, 0, asm.Word), exit),
		},
		"split: who knows the outcome is led around the condition": {
			func(p *program) { splitOnly(p); reach(p); layout(p) },
			code(input, asm.Mov.Imm(asm.R3, 5), asm.JEq.Imm(asm.R2, 0, "end"), asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
				asm.Mov.Imm(asm.R0, 1).WithSymbol("end"), asm.JNE.Imm(asm.R3, 5, "out"), asm.Mov.Imm(asm.R0, 2), exit, asm.Mov.Imm(asm.R0, 3).WithSymbol("out"), exit),
			code(input, asm.Mov.Imm(asm.R3, 5), asm.JEq.Imm(asm.R2, 0, "way"), asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
				asm.Mov.Imm(asm.R0, 1), asm.JNE.Imm(asm.R3, 5, "out"), asm.Mov.Imm(asm.R0, 2).WithSymbol("in"), exit, asm.Mov.Imm(asm.R0, 3).WithSymbol("out"), exit,
				asm.Mov.Imm(asm.R0, 1).WithSymbol("way"), asm.Ja.Label("in")),
		},
		"split: loops stay": {
			func(p *program) { splitOnly(p); reach(p) },
			code(input, asm.Mov.Imm(asm.R0, 3), asm.JEq.Imm(asm.R0, 0, "out").WithSymbol("again"), asm.Sub.Imm(asm.R0, 1), asm.Ja.Label("again"), drop.WithSymbol("out"), exit),
			code(input, asm.Mov.Imm(asm.R0, 3), asm.JEq.Imm(asm.R0, 0, "out").WithSymbol("again"), asm.Sub.Imm(asm.R0, 1), asm.Ja.Label("again"), drop.WithSymbol("out"), exit),
		},
		"layout: the only way in moves up": {
			layout,
			code(input, asm.JEq.Imm(asm.R2, 0, "c"), asm.Ja.Label("b"), drop.WithSymbol("c"), exit, pass.WithSymbol("b"), exit),
			code(input, asm.JEq.Imm(asm.R2, 0, "c"), pass, exit, drop.WithSymbol("c"), exit),
		},
		"layout: a shared block stays, a condition is inverted": {
			func(p *program) { thread(p); reach(p); layout(p) },
			code(input, pass, asm.JEq.Imm(asm.R2, 0, "a"), asm.Ja.Label("b"), drop.WithSymbol("a"), asm.Add.Imm(asm.R0, 1).WithSymbol("b"), exit),
			code(input, pass, asm.JNE.Imm(asm.R2, 0, "b"), drop, asm.Add.Imm(asm.R0, 1).WithSymbol("b"), exit),
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := lower(c.in)
			if err != nil {
				t.Fatal(err)
			}
			c.pass(p)
			got, err := emit(p)
			if err != nil {
				t.Fatal(err)
			}
			if g, w := listing(t, got), listing(t, c.want); g != w {
				t.Errorf("got\n%swant\n%s", g, w)
			}
		})
	}
}

// TestArithmetic holds eval and compare against the interpreter's own arithmetic on values around the limits.
func TestArithmetic(t *testing.T) {
	values := []uint64{0, 1, 2, 7, 31, 32, 63, 64, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
		0x7fffffffffffffff, 0x8000000000000000, 0xffffffff80000000, 0xfffffffffffffffe, 0xffffffffffffffff, 0x1122334455667788}
	ops := []asm.ALUOp{asm.Add, asm.Sub, asm.Mul, asm.Div, asm.Mod, asm.Or, asm.And, asm.Xor, asm.LSh, asm.RSh, asm.ArSh, asm.Mov, asm.Neg,
		asm.MovSX8, asm.MovSX16, asm.MovSX32}
	for _, a := range values {
		for _, b := range values {
			for _, op := range ops {
				for width, opcode := range map[uint]asm.OpCode{64: op.Op(asm.RegSource), 32: op.Op32(asm.RegSource)} {
					if width == 32 && op == asm.MovSX32 {
						continue
					}
					want, err := reference(opcode, a, b, width, 0)
					if err != nil {
						t.Fatal(err)
					}
					if got, ok := eval(&asm.Instruction{OpCode: opcode}, a, b); !ok || got != want {
						t.Errorf("%v of %#x, %#x: got %#x %v, want %#x", opcode, a, b, got, ok, want)
					}
				}
			}
			for _, op := range conditions {
				for _, class := range []asm.Class{asm.JumpClass, asm.Jump32Class} {
					opcode := asm.OpCode(class).SetJumpOp(op).SetSource(asm.RegSource)
					want := taken(opcode, a, b)
					if got, ok := compare(opcode, a, b); !ok || got != want {
						t.Errorf("%v of %#x, %#x: got %v", opcode, a, b, got)
					}
					if got, ok := compareBound(opcode, b); ok && got != want {
						t.Errorf("%v of %#x and bound %#x: got %v", opcode, a, b, got)
					}
					if inverse, ok := inverted(opcode); ok && taken(inverse, a, b) == want {
						t.Errorf("%v is not the inverse of %v for %#x, %#x", inverse, opcode, a, b)
					}
					if m, ok := mirrored[op]; ok && taken(opcode.SetJumpOp(m), b, a) != want {
						t.Errorf("%v is not %v mirrored for %#x, %#x", m, op, a, b)
					}
				}
			}
		}
	}
}

// TestArithmeticSigned has the cases of signed division that the interpreter does not know.
func TestArithmeticSigned(t *testing.T) {
	minus := func(n int64) uint64 { return uint64(-n) }
	for _, c := range []struct {
		op      asm.OpCode
		a, b, r uint64
	}{
		{asm.SDiv.Op(asm.RegSource), minus(7), 2, minus(3)},
		{asm.SDiv.Op(asm.RegSource), 7, 0, 0},
		{asm.SDiv.Op(asm.RegSource), 1 << 63, minus(1), 1 << 63},
		{asm.SMod.Op(asm.RegSource), minus(7), 2, minus(1)},
		{asm.SMod.Op(asm.RegSource), 1 << 63, minus(1), 0},
		{asm.SMod.Op(asm.RegSource), minus(7), 0, minus(7)},
		{asm.SDiv.Op32(asm.RegSource), minus(7), 2, 0xfffffffd},
		{asm.SDiv.Op32(asm.RegSource), 0x80000000, minus(1), 0x80000000},
		{asm.SMod.Op32(asm.RegSource), minus(7), 1 << 32, 0xfffffff9},
	} {
		if got, ok := eval(&asm.Instruction{OpCode: c.op}, c.a, c.b); !ok || got != c.r {
			t.Errorf("%v of %#x, %#x: got %#x, want %#x", c.op, c.a, c.b, got, c.r)
		}
	}
}

// TestSwap: to big endian, to little endian, and unconditional, on this machine.
func TestSwap(t *testing.T) {
	const v = 0x1122334455667788
	for size, c := range map[asm.Size][2]uint64{
		asm.Half: {0x8877, 0x7788}, asm.Word: {0x88776655, 0x55667788}, asm.DWord: {0x8877665544332211, v},
	} {
		be, le := asm.HostTo(asm.BE, asm.R1, size), asm.HostTo(asm.LE, asm.R1, size)
		if !littleEndian {
			be, le = le, be
		}
		for _, x := range []struct {
			ins  asm.Instruction
			want uint64
		}{{be, c[0]}, {le, c[1]}, {asm.BSwap(asm.R1, size), c[0]}} {
			if got, ok := eval(&x.ins, v, 0); !ok || got != x.want {
				t.Errorf("%v: got %#x, want %#x", x.ins, got, x.want)
			}
		}
	}
}
