// SPDX-License-Identifier: Apache-2.0

package specialise

import "github.com/cilium/ebpf/asm"

// dead drops pure instructions whose result no path reads, and those that change nothing. Loads are pure: eBPF has no memory whose
// reading has an effect, and a fault in a load from a kernel type reads as zero.
func dead(p *program) (changed bool) {
	for _, f := range p.funcs {
		out := liveness(f)
		for _, b := range f.blocks {
			live := out[b.number]
			keep := len(b.body) // body[keep:] is what stays, filled from the end
			for i := len(b.body) - 1; i >= 0; i-- {
				e := effectsOf(&b.body[i])
				if e.pure && e.defs&live == 0 || idle(&b.body[i]) {
					changed = true
					continue
				}
				live = live&^e.defs | e.uses
				keep--
				b.body[keep] = b.body[i]
			}
			b.body = b.body[keep:]
		}
	}
	return changed
}

// idle is an instruction that leaves every register as it was. 32-bit operations never are: they clear the upper half.
func idle(n *node) bool {
	ins := &n.ins
	if ins.OpCode.Class() != asm.ALU64Class || ins.Offset != 0 || n.relocated {
		return false
	}
	op := ins.OpCode.ALUOp()
	if ins.OpCode.Source() == asm.RegSource {
		return op == asm.Mov && ins.Dst == ins.Src
	}
	switch op {
	case asm.Add, asm.Sub, asm.Or, asm.Xor, asm.LSh, asm.RSh, asm.ArSh:
		return int32(ins.Constant) == 0
	case asm.And:
		return int32(ins.Constant) == -1
	case asm.Mul, asm.Div:
		return int32(ins.Constant) == 1
	}
	return false
}
