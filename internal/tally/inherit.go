// SPDX-License-Identifier: Apache-2.0

package tally

import "slices"

// inherit takes over what is owed to the entries of a table that this one replaced. Nothing says which rule of it is which of the old ones but its
// chain and its text, so of several rules of one text in a chain that has changed none inherits: Linux has their counts but for those of the last period,
// and these would go to the wrong one.
func (x *table) inherit(old *table) {
	to := map[int]int{} // entries by those of the old table
	for i := range x.chains {
		c := &x.chains[i]
		at := slices.IndexFunc(old.chains, func(o chain) bool { return o.name == c.name })
		if at < 0 {
			continue
		}
		o := &old.chains[at]
		if o.policy >= 0 && c.policy >= 0 && o.accept == c.accept {
			to[o.policy] = c.policy
		}
		c.match(o, to)
	}
	for _, d := range old.owed {
		if entry, ok := to[d.entry]; ok {
			d.entry = entry
			x.owed[entry] = d
		}
	}
	for _, d := range old.doubtful {
		if entry, ok := to[d.entry]; ok {
			d.entry = entry
			x.doubtful = append(x.doubtful, d)
		}
	}
}

// match finds the rules of a chain as it was before in what it is now.
func (c *chain) match(old *chain, to map[int]int) {
	if slices.Equal(c.texts, old.texts) {
		for i, entry := range old.rules {
			to[entry] = c.rules[i]
		}
		return
	}
	now, before := only(c.texts), only(old.texts)
	for text, i := range before {
		if j, ok := now[text]; ok {
			to[old.rules[i]] = c.rules[j]
		}
	}
}

// only gives the places of the texts that occur once.
func only(texts []string) map[string]int {
	at, times := make(map[string]int, len(texts)), make(map[string]int, len(texts))
	for i, t := range texts {
		at[t] = i
		times[t]++
	}
	for t, n := range times {
		if n > 1 {
			delete(at, t)
		}
	}
	return at
}
