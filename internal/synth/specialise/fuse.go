// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// fuse makes one instruction of neighbours of which the later only moves on what the earlier made: a constant or an address copied to where it is
// wanted, an address of a map's value with a number added, a load from a copy of an address with a number added. Folding leaves many of these: a constant
// index was a variable to the compiler.
func fuse(p *program) (changed bool) {
	for _, f := range p.funcs {
		f.merge()
		out := liveness(f)
		for _, b := range f.blocks {
			live := out[b.number]
			for i := len(b.body) - 1; i > 0; i-- {
				for n := fuseEnd(b.body[:i+1], live); n > 0; n-- { // body[i] stands for n instructions more
					b.body = append(b.body[:i-1], b.body[i:]...)
					i--
					changed = true
				}
				e := effectsOf(&b.body[i])
				live = live&^e.defs | e.uses
			}
		}
	}
	return changed
}

// merge makes one block of two of which the first goes on to the second, to which nothing else leads.
func (f *function) merge() {
	into := make([]int, f.number())
	into[f.entry.number]++
	for _, b := range f.blocks {
		for _, s := range b.successors() {
			if s != nil {
				into[s.number]++
			}
		}
	}
	gone := make([]bool, len(into))
	for _, b := range f.blocks {
		for !gone[b.number] && b.jump == nil && b.next != nil && into[b.next.number] == 1 && b.next != b {
			next := b.next
			b.body = slices.Concat(b.body, next.body)
			b.jump, b.next, b.link = next.jump, next.next, next.link
			gone[next.number] = true
		}
	}
	f.blocks = slices.DeleteFunc(f.blocks, func(b *block) bool { return gone[b.number] })
}

// fuseEnd writes into the last instruction what some before it do as well, and says how many; live are the registers that are read behind it.
func fuseEnd(body []node, live regSet) int {
	last := &body[len(body)-1]
	before := &body[len(body)-2]
	switch {
	case last.relocated || before.relocated:
	case copies(last) && before.ins.Dst == last.ins.Src && before.ins.Dst != last.ins.Dst && !live.has(before.ins.Dst) && setsPlainly(&before.ins):
		ins := before.ins
		ins.Dst = last.ins.Dst
		last.ins, last.callee, last.src = ins, before.callee, before.src
		return 1
	case addsNumber(last) && before.ins.Dst == last.ins.Dst && before.ins.Src == asm.PseudoMapValue && before.ins.OpCode.IsDWordLoad() && last.ins.Constant > 0:
		ins := before.ins
		ins.Constant += last.ins.Constant << 32
		last.ins, last.src = ins, before.src
		return 1
	case len(body) > 2 && loads(last) && addsNumber(before) && before.ins.Dst == last.ins.Src && (before.ins.Dst == last.ins.Dst || !live.has(before.ins.Dst)):
		first := &body[len(body)-3]
		off := int64(last.ins.Offset) + before.ins.Constant
		if first.relocated || !copies(first) || first.ins.Dst != last.ins.Src || off != int64(int16(off)) {
			break
		}
		last.ins.Src, last.ins.Offset = first.ins.Src, int16(off)
		return 2
	}
	return 0
}

// copies is a move of all of a register to another.
func copies(n *node) bool {
	op := n.ins.OpCode
	return op.Class() == asm.ALU64Class && op.ALUOp() == asm.Mov && op.Source() == asm.RegSource && n.ins.Offset == 0
}

// setsPlainly says whether an instruction sets its register to what no register takes part in.
func setsPlainly(ins *asm.Instruction) bool {
	op := ins.OpCode
	return op.IsDWordLoad() || op.Class().IsALU() && op.ALUOp() == asm.Mov && op.Source() == asm.ImmSource && ins.Offset == 0
}

func addsNumber(n *node) bool {
	op := n.ins.OpCode
	return op.Class() == asm.ALU64Class && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && n.ins.Offset == 0 && n.ins.Constant == int64(int32(n.ins.Constant)) && n.ins.Constant < math.MaxInt32
}

// loads is a plain load.
func loads(n *node) bool {
	return n.ins.OpCode.Class() == asm.LdXClass && n.ins.OpCode.Mode() == asm.MemMode
}
