// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// chain is a chain's part of a table. It is made with each change of a table that may have very many rules, of which few count between two changes: so a rule is looked for
// when it is asked for, and only of a chain that is asked for many an index is made.
type chain struct {
	name   string
	policy int // entry, -1 for none
	accept bool
	rules  []ruleset.Rule
	of     *ruleset.Ruleset // that the rules' counters belong to
	asked  int
	index  map[string][]int // the places of rules by their texts
}

// manyAsked is how many rules a chain is searched for before it gets an index.
const manyAsked = 8

func newChain(rules *ruleset.Ruleset, from *ruleset.Chain) chain {
	c := chain{name: from.Name, policy: -1, rules: from.Rules, of: rules}
	if b := from.Base; b != nil && b.Counter != ruleset.NoCounter {
		c.policy, c.accept = rules.Counters[b.Counter].At.Index, b.Policy == ruleset.Accept
	}
	return c
}

// entry is that of a rule; -1 for none.
func (c *chain) entry(i int) int {
	for _, s := range c.rules[i].Steps {
		if n, ok := s.(ruleset.Count); ok && n.Counter != ruleset.NoCounter {
			return c.of.Counters[n.Counter].At.Index
		}
	}
	return -1
}

// ruleAt is the rule of an entry, whose numbers grow along a chain; -1 for none.
func (c *chain) ruleAt(entry int) int {
	low, high := 0, len(c.rules)
	for low < high {
		if mid := (low + high) / 2; c.entry(mid) < entry {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < len(c.rules) && c.entry(low) == entry {
		return low
	}
	return -1
}

// find gives the entry of a counter's identity (ruleset.Ruleset.Identities); -1 for none.
func (c *chain) find(p *ruleset.CounterPlace) int {
	if p.Index == 0 {
		return c.policy
	}
	if at := c.places(p.Name, p.Index); len(at) >= p.Index {
		return c.entry(at[p.Index-1])
	}
	return -1
}

// places gives those of the rules of a text, at least the first few if there are so many.
func (c *chain) places(text string, few int) (at []int) {
	if c.asked++; c.asked > manyAsked {
		if c.index == nil {
			c.index = make(map[string][]int, len(c.rules))
			for i := range c.rules {
				c.index[c.rules[i].Text] = append(c.index[c.rules[i].Text], i)
			}
		}
		return c.index[text]
	}
	for i := range c.rules {
		if c.rules[i].Text == text {
			if at = append(at, i); len(at) == few {
				break
			}
		}
	}
	return at
}

// same says whether two chains have the same rules.
func (c *chain) same(old *chain) bool {
	return slices.EqualFunc(c.rules, old.rules, func(a, b ruleset.Rule) bool { return a.Text == b.Text })
}
