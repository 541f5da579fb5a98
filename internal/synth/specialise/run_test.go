// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// frozenWords is a read-only map with the words 0, 7, 0xffffffff, 0x80000000 and then a 64-bit value that needs 64 bits.
var frozenWords = map[string][]byte{".rodata": func() []byte {
	var b []byte
	for _, w := range []uint32{0, 7, 0xffffffff, 0x80000000} {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return binary.NativeEndian.AppendUint64(b, 0x1122334455667788)
}()}

func address(dst asm.Register, off uint32) asm.Instruction {
	return asm.LoadMapValue(dst, 0, off).WithReference(".rodata")
}

func load32(dst asm.Register, off uint32) asm.Instructions {
	return asm.Instructions{address(dst, off), asm.LoadMem(dst, dst, 0, asm.Word)}
}

// code joins instructions and lists of them.
func code(parts ...any) asm.Instructions {
	var out asm.Instructions
	for _, p := range parts {
		switch p := p.(type) {
		case asm.Instruction:
			out = append(out, p)
		case asm.Instructions:
			out = append(out, p...)
		}
	}
	return out
}

// listing is what the kernel would get, as text.
func listing(t *testing.T, insns asm.Instructions) string {
	t.Helper()
	var b strings.Builder
	for _, ins := range resolved(t, insns) {
		ins.Metadata = asm.Metadata{}
		fmt.Fprintf(&b, "%v\n", ins)
	}
	return b.String()
}

var (
	exit  = asm.Return()
	pass  = asm.Mov.Imm(asm.R0, 2)
	drop  = asm.Mov.Imm(asm.R0, 1)
	input = asm.LoadMem(asm.R2, asm.R1, 0, asm.Word)
)

// TestRun holds whole runs against what a person would write.
func TestRun(t *testing.T) {
	spill := func(r asm.Register) asm.Instruction { return asm.StoreMem(asm.R10, -8, r, asm.DWord) }
	frameAddress := asm.Instructions{asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -8)}
	for name, c := range map[string]struct{ in, want asm.Instructions }{
		"switch off": {
			code(load32(asm.R2, 0), asm.JEq.Imm(asm.R2, 0, "out"), drop, exit, pass.WithSymbol("out"), exit),
			code(pass, exit),
		},
		"switch on": {
			code(load32(asm.R2, 4), asm.JEq.Imm(asm.R2, 0, "out"), drop, exit, pass.WithSymbol("out"), exit),
			code(drop, exit),
		},
		"feature in the middle": {
			code(asm.Mov.Reg(asm.R6, asm.R1), load32(asm.R2, 0), asm.JEq.Imm(asm.R2, 0, "on"), asm.Mov.Reg(asm.R1, asm.R6), asm.FnGetHashRecalc.Call(),
				asm.LoadMem(asm.R0, asm.R6, 0, asm.Word).WithSymbol("on"), exit),
			code(asm.Mov.Reg(asm.R6, asm.R1), asm.LoadMem(asm.R0, asm.R6, 0, asm.Word), exit),
		},
		"operand becomes an immediate": {
			code(input, load32(asm.R3, 4), pass, asm.JEq.Reg(asm.R2, asm.R3, "out"), drop, exit.WithSymbol("out")),
			code(input, pass, asm.JEq.Imm(asm.R2, 7, "out"), drop, exit.WithSymbol("out")),
		},
		"known operand on the left": {
			code(input, load32(asm.R3, 4), pass, asm.JGT.Reg(asm.R3, asm.R2, "out"), drop, exit.WithSymbol("out")),
			code(input, pass, asm.JLT.Imm(asm.R2, 7, "out"), drop, exit.WithSymbol("out")),
		},
		"64-bit compare with a value that sign extension would change": {
			code(input, load32(asm.R3, 8), pass, asm.JEq.Reg(asm.R2, asm.R3, "out"), drop, exit.WithSymbol("out")),
			code(input, asm.Mov.Imm32(asm.R3, -1), pass, asm.JEq.Reg(asm.R2, asm.R3, "out"), drop, exit.WithSymbol("out")),
		},
		"32-bit compare needs no extension": {
			code(input, load32(asm.R3, 8), pass, asm.JEq.Reg32(asm.R2, asm.R3, "out"), drop, exit.WithSymbol("out")),
			code(input, pass, asm.JEq.Imm32(asm.R2, -1, "out"), drop, exit.WithSymbol("out")),
		},
		"64-bit constant": {
			code(address(asm.R2, 16), asm.LoadMem(asm.R0, asm.R2, 0, asm.DWord), exit),
			code(asm.LoadImm(asm.R0, 0x1122334455667788, asm.DWord), exit),
		},
		"spilled switch": {
			code(load32(asm.R2, 0), spill(asm.R2), input, asm.LoadMem(asm.R3, asm.R10, -8, asm.DWord), pass, asm.JEq.Imm(asm.R3, 0, "out"), drop,
				exit.WithSymbol("out")),
			code(pass, exit),
		},
		"a helper may write to a slot that it is given": {
			code(load32(asm.R3, 0), spill(asm.R3), frameAddress, asm.Mov.Imm(asm.R1, 0), asm.FnGetCurrentComm.Call(),
				asm.LoadMem(asm.R0, asm.R10, -8, asm.DWord), exit),
			code(asm.Mov.Imm(asm.R3, 0), spill(asm.R3), frameAddress, asm.Mov.Imm(asm.R1, 0), asm.FnGetCurrentComm.Call(),
				asm.LoadMem(asm.R0, asm.R10, -8, asm.DWord), exit),
		},
		"a store that a helper reads stays": {
			code(asm.StoreImm(asm.R10, -4, 1, asm.Word), asm.StoreImm(asm.R10, -16, 1, asm.Word), asm.LoadMapPtr(asm.R1, 0).WithReference("m"),
				asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4), asm.FnMapLookupElem.Call(), pass, exit),
			code(asm.StoreImm(asm.R10, -4, 1, asm.Word), asm.LoadMapPtr(asm.R1, 0),
				asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4), asm.FnMapLookupElem.Call(), pass, exit),
		},
		"condition around nothing": {
			code(input, asm.JNE.Imm(asm.R2, 5, "out"), asm.Mov.Imm(asm.R3, 1), asm.Mov.Imm(asm.R0, 2).WithSymbol("out"), exit),
			code(pass, exit),
		},
		"a loop keeps its counter": {
			code(asm.Mov.Imm(asm.R2, 3), pass, asm.Add.Imm(asm.R0, 1).WithSymbol("again"), asm.Sub.Imm(asm.R2, 1), asm.JNE.Imm(asm.R2, 0, "again"), exit),
			code(asm.Mov.Imm(asm.R2, 3), pass, asm.Add.Imm(asm.R0, 1).WithSymbol("again"), asm.Sub.Imm(asm.R2, 1), asm.JNE.Imm(asm.R2, 0, "again"), exit),
		},
		"values that differ per path are not known": {
			code(input, load32(asm.R3, 0), asm.JEq.Imm(asm.R2, 1, "join"), load32(asm.R3, 4), asm.Mov.Reg(asm.R0, asm.R3).WithSymbol("join"), exit),
			code(input, asm.Mov.Imm(asm.R3, 0), asm.JEq.Imm(asm.R2, 1, "join"), asm.Mov.Imm(asm.R3, 7), asm.Mov.Reg(asm.R0, asm.R3).WithSymbol("join"), exit),
		},
		"a map that may change is left alone": {
			code(asm.LoadMapValue(asm.R2, 0, 0).WithReference(".data"), asm.LoadMem(asm.R0, asm.R2, 0, asm.Word), exit),
			code(asm.LoadMapValue(asm.R2, 0, 0), asm.LoadMem(asm.R0, asm.R2, 0, asm.Word), exit),
		},
		"beyond the map": {
			code(address(asm.R2, 22), asm.LoadMem(asm.R0, asm.R2, 0, asm.Word), exit),
			code(address(asm.R2, 22), asm.LoadMem(asm.R0, asm.R2, 0, asm.Word), exit),
		},
		"signed load": {
			code(address(asm.R2, 8), asm.LoadMemSX(asm.R0, asm.R2, 0, asm.Half), exit),
			code(asm.Mov.Imm(asm.R0, -1), exit),
		},
		"nothing is less than zero": {
			code(input, pass, load32(asm.R3, 0), asm.JLT.Reg(asm.R2, asm.R3, "never"), exit, drop.WithSymbol("never"), exit),
			code(pass, exit),
		},
		"mask of zero": {
			code(input, load32(asm.R3, 0), asm.And.Reg(asm.R2, asm.R3), asm.Mov.Reg(asm.R0, asm.R2), exit),
			code(asm.Mov.Imm(asm.R0, 0), exit),
		},
		"division by a switch of zero stays a register": {
			code(asm.LoadMem(asm.R0, asm.R1, 0, asm.Word), load32(asm.R3, 0), asm.Div.Reg(asm.R0, asm.R3), exit),
			code(asm.LoadMem(asm.R0, asm.R1, 0, asm.Word), asm.Mov.Imm(asm.R3, 0), asm.Div.Reg(asm.R0, asm.R3), exit),
		},
		"unreferenced functions go": {
			code(address(asm.R2, 0).WithSymbol("main"), asm.LoadMem(asm.R2, asm.R2, 0, asm.Word), asm.JEq.Imm(asm.R2, 0, "out"), asm.Call.Label("sub"), exit, pass.WithSymbol("out"), exit,
				drop.WithSymbol("sub"), exit),
			code(pass, exit),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, stats, err := Run(c.in, frozenWords)
			if err != nil || stats.Untouched != "" {
				t.Fatal(err, stats.Untouched)
			}
			if g, w := listing(t, got), listing(t, c.want); g != w {
				t.Errorf("got\n%swant\n%s", g, w)
			}
			if stats.After != count(got) || stats.Before != count(c.in) || stats.Removed != stats.Before-stats.After {
				t.Errorf("%+v", stats)
			}
		})
	}
}

// TestAliases: known slots are forgotten wherever something else may have written to them, so the last load of each program stays.
func TestAliases(t *testing.T) {
	frameAt := func(r asm.Register, off int32) asm.Instructions {
		return asm.Instructions{asm.Mov.Reg(r, asm.R10), asm.Add.Imm(r, off)}
	}
	zero := func(off int16) asm.Instructions {
		return asm.Instructions{asm.Mov.Imm(asm.R3, 0), asm.StoreMem(asm.R10, off, asm.R3, asm.DWord)}
	}
	last := func(off int16) asm.Instruction { return asm.LoadMem(asm.R0, asm.R10, off, asm.DWord) }
	callback := asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R2, Src: asm.PseudoFunc, Constant: -1}.WithReference("cb")
	for name, in := range map[string]asm.Instructions{
		"a store through one of two addresses": code(input, zero(-8), frameAt(asm.R4, -8), asm.JEq.Imm(asm.R2, 0, "join"), frameAt(asm.R4, -16),
			asm.StoreMem(asm.R4, 0, asm.R2, asm.DWord).WithSymbol("join"), last(-8), exit),
		"a helper writes upwards": code(zero(-8), frameAt(asm.R1, -16), asm.Mov.Imm(asm.R2, 16), asm.FnGetCurrentComm.Call(), last(-8), exit),
		"a callback goes anywhere": code(zero(-16), asm.Mov.Imm(asm.R1, 4), callback, frameAt(asm.R3, -8), asm.Mov.Imm(asm.R4, 0), asm.FnLoop.Call(),
			last(-16), exit, asm.StoreMem(asm.R2, -8, asm.R1, asm.DWord).WithSymbol("cb"), asm.Mov.Imm(asm.R0, 0), exit),
		"an atomic operation": code(input, zero(-8), asm.FetchAdd.Mem(asm.R10, asm.R2, asm.DWord, -8), last(-8), exit),
	} {
		out, stats, err := Run(in, nil)
		if err != nil || stats.Untouched != "" || stats.FoldedLoads != 0 || listing(t, out) != listing(t, in) {
			t.Errorf("%s: %+v, %v\n%v", name, stats, err, out)
		}
	}
}

// TestUntouched: what is not understood comes back as it was.
func TestUntouched(t *testing.T) {
	gotox := asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Ja).SetSource(asm.RegSource), Dst: asm.R1}
	for reason, in := range map[string]asm.Instructions{
		"indirect jump":      code(load32(asm.R2, 0), gotox, exit),
		"runs off the end":   code(load32(asm.R2, 0), pass),
		"not an instruction": code(asm.Instruction{OpCode: asm.JEq.Op(asm.ImmSource), Offset: 1}, asm.LoadImm(asm.R0, 1, asm.DWord), exit),
		"not in the program": code(asm.JEq.Imm(asm.R1, 0, "elsewhere"), pass, exit),
		"defined twice":      code(pass.WithSymbol("a"), exit.WithSymbol("a")),
		"another function":   code(asm.Call.Label("f"), asm.JEq.Imm(asm.R0, 0, "mid"), exit, pass.WithSymbol("f"), exit.WithSymbol("mid")),
		"unknown opcode":     code(asm.Instruction{OpCode: asm.OpCode(asm.ALU64Class) | 0xe0}, exit),
		"the frame pointer":  code(asm.Mov.Imm(asm.R10, 0), exit),
	} {
		out, stats, err := Run(in, frozenWords)
		if err != nil || !strings.Contains(stats.Untouched, reason) || len(out) != len(in) || stats.Removed != 0 {
			t.Errorf("%s: %+v, %v", reason, stats, err)
		}
	}
	if _, _, err := Run(nil, nil); err == nil {
		t.Error("no error for a program without instructions")
	}
}

// TestRelocated: a value that loading decides is not known before.
func TestRelocated(t *testing.T) {
	relo := func(ins asm.Instruction) asm.Instruction {
		return btf.WithCORERelocationMetadata(ins, &btf.CORERelocation{})
	}
	in := code(relo(asm.Mov.Imm(asm.R2, 0)), pass, asm.JEq.Imm(asm.R2, 0, "out"), drop, exit.WithSymbol("out"))
	out, stats, err := Run(in, nil)
	if err != nil || stats.Removed != 0 || btf.CORERelocationMetadata(&out[0]) == nil {
		t.Errorf("%+v, %v\n%v", stats, err, out)
	}
	in = code(relo(asm.LoadImm(asm.R2, 0, asm.DWord)), pass, asm.JEq.Imm(asm.R2, 0, "out"), drop, exit.WithSymbol("out"))
	if _, stats, err = Run(in, nil); err != nil || stats.Removed != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	// An address may be in a symbol or kernel variable: the immediate is filled in later.
	in = code(asm.LoadImm(asm.R2, 0, asm.DWord).WithReference("ksym"), pass, asm.JEq.Imm(asm.R2, 0, "out"), drop, exit.WithSymbol("out"))
	if _, stats, err = Run(in, nil); err != nil || stats.Removed != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// TestMetadata: symbol, function and source line of a first instruction that goes move on, and lines stay with their code.
func TestMetadata(t *testing.T) {
	fn := &btf.Func{Name: "main", Type: &btf.FuncProto{Return: &btf.Int{Size: 4}}}
	sub := &btf.Func{Name: "sub", Type: &btf.FuncProto{Return: &btf.Int{Size: 4}}}
	in := code(
		btf.WithFuncMetadata(address(asm.R2, 4).WithSymbol("main"), fn).WithSource(asm.Comment("one")),
		asm.LoadMem(asm.R2, asm.R2, 0, asm.Word),
		asm.JEq.Imm(asm.R2, 0, "off").WithSource(asm.Comment("two")),
		asm.Call.Label("sub"), // still line two
		exit.WithSource(asm.Comment("three")),
		pass.WithSymbol("off"), exit,
		btf.WithFuncMetadata(asm.Mov.Imm(asm.R3, 1).WithSymbol("sub"), sub).WithSource(asm.Comment("four")),
		pass, exit.WithSource(asm.Comment("five")))
	out, _, err := Run(in, frozenWords)
	if err != nil || len(out) != 4 {
		t.Fatalf("%v\n%v", err, out)
	}
	if out[0].Symbol() != "main" || btf.FuncMetadata(&out[0]) != fn || out[2].Symbol() != "sub" || btf.FuncMetadata(&out[2]) != sub {
		t.Errorf("symbols or functions lost:\n%v", out)
	}
	for i, want := range []string{"two", "three", "four", "five"} {
		if s := out[i].Source(); s == nil || s.String() != want {
			t.Errorf("instruction %d: line %v, want %s", i, s, want)
		}
	}
	if out[0].Reference() != "sub" || listing(t, out) == "" {
		t.Errorf("call lost its reference:\n%v", out)
	}
}
