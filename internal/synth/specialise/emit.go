// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// placed is an instruction with what its distance will be computed from.
type placed struct {
	node
	to *block
}

// emit writes the functions back as instructions. Jumps become distances in slots, as a loaded collection spec holds them; calls and
// function pointers that went by name keep the name.
func emit(p *program) (asm.Instructions, error) {
	total := 0
	for _, f := range p.funcs {
		for _, b := range f.blocks {
			total += len(b.body) + 1
		}
	}
	out := make([]placed, 0, total)
	at := map[*block]int{}
	fat := map[*function]int{}
	pos := 0
	for _, f := range p.funcs {
		fat[f] = pos
		first := len(out)
		for i, b := range f.blocks {
			at[b] = pos
			var follow *block
			if i+1 < len(f.blocks) {
				follow = f.blocks[i+1]
			}
			from := len(out)
			var err error
			if out, err = emitBlock(out, b, follow); err != nil {
				return nil, err
			}
			for i := from; i < len(out); i++ {
				pos += slots(&out[i].ins)
			}
		}
		if first == len(out) {
			return nil, refuse("function %s is empty", f.symbol)
		}
		adopt(&out[first].ins, f)
		lines(out[first:])
	}
	return encode(out, at, fat)
}

// emitBlock appends b to code, with the jump that it needs when follow is what comes after it.
func emitBlock(code []placed, b, follow *block) ([]placed, error) {
	for _, n := range b.body {
		code = append(code, placed{node: n})
	}
	next, link := b.next, b.link
	if b.jump != nil {
		last := &code[len(code)-1]
		last.to = b.jump
		if inverse, ok := inverted(last.ins.OpCode); ok && next != follow && b.jump == follow {
			last.ins.OpCode, last.to, next = inverse, next, b.jump
		}
	}
	if next == nil && (len(b.body) == 0 || !endsFunction(&b.body[len(b.body)-1].ins)) {
		return nil, refuse("control runs off the end of a function")
	}
	if next != nil && next != follow {
		code = append(code, placed{node: node{ins: asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Ja)}, src: link}, to: next})
	}
	return code, nil
}

// endsFunction says whether nothing need follow ins. Calls may be the last instruction when they do not return (bpf_throw).
func endsFunction(ins *asm.Instruction) bool { return isExit(ins) || isCall(ins) }

// adopt gives the first instruction of f what makes it the start of f.
func adopt(ins *asm.Instruction, f *function) {
	if f.symbol != "" && ins.Symbol() != f.symbol {
		*ins = ins.WithSymbol(f.symbol)
	}
	if f.info != nil && btf.FuncMetadata(ins) != f.info {
		*ins = btf.WithFuncMetadata(*ins, f.info)
	}
}

// lines keeps source information only where the line changes. The kernel wants the first instruction of every function to have one.
func lines(code []placed) {
	var current fmt.Stringer
	for i := range code {
		n := &code[i]
		if n.src == current || n.src == nil {
			n.ins = n.ins.WithSource(nil)
			continue
		}
		current = n.src
		n.ins = n.ins.WithSource(n.src)
	}
}

// encode computes every distance.
func encode(code []placed, at map[*block]int, fat map[*function]int) (asm.Instructions, error) {
	out := make(asm.Instructions, 0, len(code))
	pos := 0
	for i := range code {
		n := &code[i]
		if n.to != nil {
			d := at[n.to] - pos - 1
			if d != int(int16(d)) {
				return nil, refuse("jump over %d instructions", d)
			}
			n.ins = n.ins.WithReference("")
			n.ins.Offset = int16(d)
		}
		if n.callee != nil && (n.ins.Reference() == "" || n.ins.Constant != -1) {
			d := fat[n.callee] - pos - 1
			if d > math.MaxInt32 || d < math.MinInt32 {
				return nil, refuse("call over %d instructions", d)
			}
			n.ins.Constant = int64(d)
		}
		pos += slots(&n.ins)
		out = append(out, n.ins)
	}
	return out, nil
}

var inverses = map[asm.JumpOp]asm.JumpOp{
	asm.JEq: asm.JNE, asm.JNE: asm.JEq,
	asm.JGT: asm.JLE, asm.JLE: asm.JGT,
	asm.JGE: asm.JLT, asm.JLT: asm.JGE,
	asm.JSGT: asm.JSLE, asm.JSLE: asm.JSGT,
	asm.JSGE: asm.JSLT, asm.JSLT: asm.JSGE,
}

// inverted is the opposite condition, if there is one (bit tests and may_goto have none).
func inverted(op asm.OpCode) (asm.OpCode, bool) {
	opposite, ok := inverses[op.JumpOp()]
	return op.SetJumpOp(opposite), ok
}
