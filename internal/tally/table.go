// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"bytes"

	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// table is a legacy table, and what its counters are still to be raised by.
type table struct {
	family  ruleset.Family
	name    string
	entries []byte           // as kstate.LegacyTable has them
	counts  []ruleset.Amount // by entry, as Linux was last seen to have them
	owed    map[int]*debt
	// doubtful are debts whose counter stood lower than before when it was last read: set to zero by a command that wants none of what was before,
	// or caught between a tool's two calls, the second of which gives counters their values back.
	doubtful []*debt
	chains   []chain
	entryOf  map[ruleset.CounterID]int
}

// debt is what one counter is to be raised by.
type debt struct {
	entry int
	ruleset.Amount
	least ruleset.Amount // that the counter stands at, unless it was set to zero since
}

// chain is a chain's part of a table: its rules by text, and their entries.
type chain struct {
	name   string
	policy int // entry, -1 for none
	accept bool
	texts  []string
	rules  []int
}

func newTable(rules *ruleset.Ruleset, t *ruleset.Table) *table {
	x := &table{family: t.Family, name: t.Name, owed: map[int]*debt{}, entryOf: map[ruleset.CounterID]int{}}
	entry := func(id ruleset.CounterID) int {
		x.entryOf[id] = rules.Counters[id].At.Index
		return x.entryOf[id]
	}
	for i := range t.Chains {
		from := &t.Chains[i]
		c := chain{name: from.Name, policy: -1}
		if b := from.Base; b != nil && b.Counter != ruleset.NoCounter {
			c.policy, c.accept = entry(b.Counter), b.Policy == ruleset.Accept
		}
		for j := range from.Rules {
			for _, s := range from.Rules[j].Steps {
				if n, ok := s.(ruleset.Count); ok && n.Counter != ruleset.NoCounter {
					c.texts, c.rules = append(c.texts, from.Rules[j].Text), append(c.rules, entry(n.Counter))
				}
			}
		}
		x.chains = append(x.chains, c)
	}
	return x
}

// owe notes that the fast path counted for an entry.
func (x *table) owe(entry int, a ruleset.Amount) {
	d := x.owed[entry]
	if d == nil {
		d = &debt{entry: entry}
		if entry < len(x.counts) {
			d.least = x.counts[entry]
		}
		x.owed[entry] = d
	}
	d.Amount = d.Amount.Add(a)
}

// stand takes up what Linux's counters stand at, before the fast path counts on.
func (x *table) stand(now *kstate.LegacyTable) {
	x.entries, x.counts = now.Entries, now.Counts
	for entry, d := range x.owed {
		if entry < len(now.Counts) && !below(now.Counts[entry], d.least) {
			d.least = now.Counts[entry]
			continue
		}
		x.doubtful = append(x.doubtful, d)
		delete(x.owed, entry)
	}
}

func below(a, b ruleset.Amount) bool { return a.Packets < b.Packets || a.Bytes < b.Bytes }

// settle raises Linux's counters by what is owed. left says that it has to be tried again.
func (x *table) settle(k *linux) (left bool, err error) {
	if len(x.owed)+len(x.doubtful) == 0 {
		return false, nil
	}
	if k.busy() {
		return true, nil
	}
	now, err := k.read(x.family, x.name)
	if err != nil {
		return true, err
	}
	// A tool begins with the lock and needs longer from there to its change than it takes from here to the addition.
	if !bytes.Equal(now.Entries, x.entries) || k.busy() {
		return true, nil
	}
	add, any := make([]ruleset.Amount, len(now.Counts)), false
	raise := func(d *debt) {
		if d.entry < len(add) && !below(now.Counts[d.entry], d.least) {
			add[d.entry], any = add[d.entry].Add(d.Amount), true
		}
	}
	for _, d := range x.owed {
		raise(d)
	}
	for _, d := range x.doubtful {
		raise(d)
	}
	if any {
		if err := k.add(x.family, x.name, add); err != nil {
			return true, err
		}
	}
	clear(x.owed)
	x.doubtful, x.counts = nil, now.Counts
	for i := range add {
		x.counts[i] = x.counts[i].Add(add[i])
	}
	return false, nil
}
