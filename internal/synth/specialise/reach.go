// SPDX-License-Identifier: Apache-2.0

package specialise

import "slices"

// reach drops blocks that no path from their function's entry leads to, then functions that no remaining block refers to.
func reach(p *program) (changed bool) {
	for _, f := range p.funcs {
		kept := f.reachable()
		changed = changed || len(kept) != len(f.blocks)
		f.blocks = kept
	}
	used := map[*function]bool{p.funcs[0]: true}
	todo := []*function{p.funcs[0]}
	for len(todo) > 0 {
		f := todo[0]
		todo = todo[1:]
		for _, b := range f.blocks {
			for i := range b.body {
				if c := b.body[i].callee; c != nil && !used[c] {
					used[c] = true
					todo = append(todo, c)
				}
			}
		}
	}
	before := len(p.funcs)
	p.funcs = slices.DeleteFunc(p.funcs, func(f *function) bool { return !used[f] })
	return changed || len(p.funcs) != before
}
