// SPDX-License-Identifier: Apache-2.0

package specialise

import "github.com/cilium/ebpf/asm"

// thread lets jumps go where they end up at last, and drops conditions whose two ways are the same.
func thread(p *program) (changed bool) {
	for _, f := range p.funcs {
		move := func(to **block) {
			if t := through(*to, len(f.blocks)); t != *to {
				*to, changed = t, true
			}
		}
		move(&f.entry)
		for _, b := range f.blocks {
			move(&b.next)
			move(&b.jump)
			if br := b.branch(); br != nil && b.jump == b.next && br.ins.OpCode.JumpOp() != asm.JCOND {
				b.dropBranch(b.next)
				changed = true
			}
		}
	}
	return changed
}

// through follows blocks that only lead on. A ring of empty blocks (an endless loop) is left alone.
func through(b *block, limit int) *block {
	t := b
	for ; t != nil && len(t.body) == 0 && t.next != nil; t = t.next {
		if limit--; limit < 0 {
			return b
		}
	}
	return t
}
