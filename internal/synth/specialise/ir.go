// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// node is one instruction in a block.
type node struct {
	ins asm.Instruction
	// src is the source line in force here. The input marks only the first instruction of a line; blocks move, so every
	// instruction carries its own.
	src fmt.Stringer
	// callee is the function that a bpf-to-bpf call or a function pointer load refers to, nil if it is not in the program.
	callee *function
	// relocated is set where loading will change a field (CO-RE), so that offset and immediate are not known yet.
	relocated bool
}

// block is a straight line of instructions. Only the last one may be a conditional jump (then jump is where it goes when taken)
// or an exit. Unconditional jumps are not instructions here: next says where control goes on, and emit writes a jump where
// the layout needs one.
type block struct {
	body []node
	jump *block
	next *block
	// link is the source line of the unconditional jump that next stands for, if the input had one.
	link fmt.Stringer
	// number is the position in the function's blocks, for passes that keep facts per block (see number()).
	number int
}

// function is the main program, a bpf-to-bpf subprogram, or a callback.
type function struct {
	symbol string
	info   *btf.Func
	entry  *block
	// blocks is in layout order; entry is first when emitted.
	blocks []*block
}

// program is what the passes work on; funcs[0] is where the kernel enters.
type program struct {
	funcs []*function
}

// branch returns the conditional jump that ends b, or nil.
func (b *block) branch() *node {
	if b.jump == nil {
		return nil
	}
	return &b.body[len(b.body)-1]
}

// successors is where control may go after b; either may be nil.
func (b *block) successors() [2]*block { return [2]*block{b.next, b.jump} }

// number lets passes keep their facts on the blocks of f in slices.
func (f *function) number() int {
	for i, b := range f.blocks {
		b.number = i
	}
	return len(f.blocks)
}

// dropBranch removes the conditional jump that ends b and goes on to target.
func (b *block) dropBranch(target *block) {
	last := b.branch()
	if b.link == nil || target == b.jump {
		b.link = last.src
	}
	b.body = b.body[:len(b.body)-1]
	b.jump, b.next = nil, target
}

// reachable returns the blocks of f that a path from the entry leads to, in layout order.
func (f *function) reachable() []*block {
	seen := make([]bool, f.number())
	seen[f.entry.number] = true
	todo := []*block{f.entry}
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, s := range b.successors() {
			if s != nil && !seen[s.number] {
				seen[s.number] = true
				todo = append(todo, s)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(f.blocks), func(b *block) bool { return !seen[b.number] })
}

// slots is how many kernel instructions ins takes: two for a 64-bit immediate, else one.
func slots(ins *asm.Instruction) int { return int(ins.Width()) }
