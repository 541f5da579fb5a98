// SPDX-License-Identifier: Apache-2.0

package rules

import "math/bits"

// The generator of rules and packets, for tests of packages that build on this one.
var (
	SomeRuleset = someRuleset
	SomePacket  = somePacket
	SomeDevices = someDevices
	ChangeSome  = changeSome

	FlattenWithin = flatten
)

// Reads counts the words of vectors and summaries that First reads for a packet, as matcher.next does: a cost that does not depend on
// the machine.
func (c *Classifier) Reads(p *Packet) (n int) {
	w := begin(p)
	m := &c.lists[0]
	cl := m.classify(&w)
	for s := range m.sums {
		n += len(m.vectors)
		for sum := m.shared(&cl, s); sum != 0; sum &= sum - 1 {
			word := s<<6 | bits.TrailingZeros64(sum)
			all := ^uint64(0)
			for i := 0; i < len(m.vectors) && all != 0; i++ {
				all &= m.vectors[i].bits[int(cl[i])*m.words+word]
				n++
			}
			if all != 0 {
				return n
			}
		}
	}
	return n
}
