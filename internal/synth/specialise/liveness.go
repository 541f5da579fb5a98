// SPDX-License-Identifier: Apache-2.0

package specialise

// liveness returns, by block number, the registers that some path from the end of each block still reads.
func liveness(f *function) []regSet {
	n := f.number()
	in, out := make([]regSet, n), make([]regSet, n)
	uses, keeps := make([]regSet, n), make([]regSet, n) // what a block as a whole reads first, and does not define
	for i, b := range f.blocks {
		keeps[i] = allRegs
		for j := len(b.body) - 1; j >= 0; j-- {
			e := effectsOf(&b.body[j])
			uses[i] = uses[i]&^e.defs | e.uses
			keeps[i] &^= e.defs
		}
	}
	for changed := true; changed; {
		changed = false
		for i := n - 1; i >= 0; i-- {
			var live regSet
			for _, s := range f.blocks[i].successors() {
				if s != nil {
					live |= in[s.number]
				}
			}
			out[i] = live
			if live = live&keeps[i] | uses[i]; live != in[i] {
				in[i], changed = live, true
			}
		}
	}
	return out
}
