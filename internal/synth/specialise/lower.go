// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// notUnderstood is an input that is left as it was, with the reason.
type notUnderstood string

func (e notUnderstood) Error() string { return string(e) }

func refuse(format string, args ...any) error { return notUnderstood(fmt.Sprintf(format, args...)) }

// lowering holds the positions that jumps and calls are resolved by. Kernel offsets count slots: a 64-bit immediate takes two.
type lowering struct {
	insns   asm.Instructions
	slot    []int          // index → slot
	index   []int          // slot → index, -1 inside an instruction
	symbols map[string]int // symbol → index
	starts  map[int]*function
	targets []int // index of a jump → index of its target, -1 for what is no jump
}

// lower turns instructions, as a loaded collection spec or hand-written assembly holds them, into functions of basic blocks.
func lower(insns asm.Instructions) (*program, error) {
	l := &lowering{
		insns:   insns,
		slot:    make([]int, len(insns)),
		index:   make([]int, 0, 2*len(insns)),
		symbols: map[string]int{},
		starts:  map[int]*function{0: {}},
		targets: make([]int, len(insns)),
	}
	for i := range insns {
		l.slot[i], l.targets[i] = len(l.index), -1
		l.index = append(l.index, i)
		if slots(&insns[i]) == 2 {
			l.index = append(l.index, -1)
		}
		if name := insns[i].Symbol(); name != "" {
			if _, twice := l.symbols[name]; twice {
				return nil, refuse("symbol %s is defined twice", name)
			}
			l.symbols[name] = i
		}
	}
	callees := map[int]int{}
	for i := range insns {
		if err := understood(&insns[i]); err != nil {
			return nil, refuse("instruction %d: %v", i, err)
		}
		if btf.FuncMetadata(&insns[i]) != nil {
			l.start(i)
		}
		if err := l.resolve(i, callees); err != nil {
			return nil, err
		}
	}
	return l.build(callees)
}

func (l *lowering) start(i int) {
	if l.starts[i] == nil {
		l.starts[i] = &function{}
	}
}

// resolve finds what instruction i jumps to or which function it refers to.
func (l *lowering) resolve(i int, callees map[int]int) error {
	ins := &l.insns[i]
	switch {
	case ins.IsFunctionReference():
		to, known, err := l.locate(i, ins.Constant)
		if err != nil || !known {
			return err
		}
		l.start(to)
		callees[i] = to
	case isJump(ins):
		distance := int64(ins.Offset)
		if isLongJump(ins) {
			distance = ins.Constant
		}
		to, known, err := l.locate(i, distance)
		if err != nil {
			return err
		}
		if !known {
			return refuse("instruction %d: jump to %s, which is not in the program", i, ins.Reference())
		}
		l.targets[i] = to
	}
	return nil
}

// locate resolves a distance in slots, or -1 with a reference by name. known is false for a name from outside.
func (l *lowering) locate(i int, distance int64) (to int, known bool, err error) {
	if name := l.insns[i].Reference(); name != "" && distance == -1 {
		to, known = l.symbols[name]
		return to, known, nil
	}
	slot := l.slot[i] + 1 + int(distance)
	if slot < 0 || slot >= len(l.index) || l.index[slot] < 0 {
		return 0, false, refuse("instruction %d: target at distance %d is not an instruction", i, distance)
	}
	return l.index[slot], true, nil
}

// build cuts the instructions into functions and blocks.
func (l *lowering) build(callees map[int]int) (*program, error) {
	leaders := make([]*block, len(l.insns)+1)
	lead := func(i int) {
		if leaders[i] == nil {
			leaders[i] = &block{}
		}
	}
	for i := range l.starts {
		lead(i)
	}
	for from, to := range l.targets {
		if to >= 0 {
			lead(to)
			lead(from + 1)
		}
	}
	p := &program{}
	owner := make([]*function, len(l.insns))
	var f *function
	for i := range l.insns {
		if s := l.starts[i]; s != nil {
			f = s
			f.symbol, f.info, f.entry = l.insns[i].Symbol(), btf.FuncMetadata(&l.insns[i]), leaders[i]
			p.funcs = append(p.funcs, f)
		}
		owner[i] = f
	}
	nodes := make([]node, 0, len(l.insns)) // blocks are windows of this
	var b *block
	var line fmt.Stringer
	for i := range l.insns {
		f := owner[i]
		if i == 0 || f != owner[i-1] {
			b, line = nil, nil
		}
		if leaders[i] != nil || b == nil {
			lead(i) // also after an exit
			if b != nil {
				b.next = leaders[i]
			}
			b = leaders[i]
			f.blocks = append(f.blocks, b)
		}
		ins := l.insns[i]
		if s := ins.Source(); s != nil {
			line = s
		}
		to := l.targets[i]
		jumps := to >= 0
		switch {
		case jumps && owner[to] != f:
			return nil, refuse("instruction %d: jump into another function", i)
		case jumps && isUnconditional(&ins):
			b.next, b.link = leaders[to], line
			b = nil
		default:
			n := node{ins: ins, src: line, relocated: btf.CORERelocationMetadata(&ins) != nil}
			if c, ok := callees[i]; ok {
				n.callee = l.starts[c]
			}
			nodes = append(nodes, n)
			at := len(nodes) - 1 - len(b.body)
			b.body = nodes[at:len(nodes):len(nodes)]
			if jumps {
				b.jump = leaders[to]
			}
			if isExit(&ins) {
				b = nil
			}
		}
	}
	return p, nil
}
