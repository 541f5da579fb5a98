// SPDX-License-Identifier: Apache-2.0

package tally

// inherit takes over what is owed to the entries of a table that this one replaced. Nothing says which rule of it is which of the old ones but its
// chain and its text, so of several rules of one text in a chain that has changed none inherits: Linux has their counts but for those of the last period,
// and these would go to the wrong one.
func (x *table) inherit(old *table) {
	same := map[string]bool{}
	for _, d := range old.owed {
		if entry, ok := x.heir(old, d, same); ok {
			d.entry = entry
			x.owed[entry] = d
		}
	}
	for _, d := range old.doubtful {
		if entry, ok := x.heir(old, d, same); ok {
			d.entry = entry
			x.doubtful = append(x.doubtful, d)
		}
	}
}

// heir is the entry that a debt to an entry of the old table belongs to; same remembers which chains have the rules that they had.
func (x *table) heir(old *table, d *debt, same map[string]bool) (entry int, ok bool) {
	c, o := x.chain(d.chain), old.chain(d.chain)
	if c == nil || o == nil {
		return 0, false
	}
	if d.entry == o.policy {
		return c.policy, c.policy >= 0 && c.accept == o.accept
	}
	at := o.ruleAt(d.entry)
	if at < 0 {
		return 0, false
	}
	equal, known := same[c.name]
	if !known {
		equal = c.same(o)
		same[c.name] = equal
	}
	if !equal {
		text := o.rules[at].Text
		now := c.places(text, 2)
		if len(now) != 1 || len(o.places(text, 2)) != 1 {
			return 0, false
		}
		at = now[0]
	}
	return c.entry(at), true
}
