// SPDX-License-Identifier: Apache-2.0

package specialise

import "slices"

// layout moves a block right behind the only block that goes on to it, where a jump would be needed otherwise. All else keeps the
// compiler's order.
func layout(p *program) {
	for _, f := range p.funcs {
		into := map[*block]int{} // how many blocks go on to this one without a condition taken
		for _, b := range f.blocks {
			if b.next != nil {
				into[b.next]++
			}
		}
		placed := map[*block]bool{}
		var order []*block
		rest := slices.Concat([]*block{f.entry}, f.blocks)
		for i, b := range rest {
			for b != nil && !placed[b] {
				placed[b] = true
				order = append(order, b)
				b = successor(b, rest[i+1:], into, placed)
			}
		}
		f.blocks = order
	}
}

// successor is the block to pull up behind b, or nil to go on in order.
func successor(b *block, rest []*block, into map[*block]int, placed map[*block]bool) *block {
	next := b.next
	if next == nil || placed[next] || into[next] != 1 {
		return nil
	}
	for _, c := range rest {
		if placed[c] {
			continue
		}
		if c == b.jump { // inverting the condition saves the jump as well, if there is an inverse
			if _, ok := inverted(b.branch().ins.OpCode); ok {
				return nil
			}
		}
		break
	}
	return next
}
