// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"bytes"

	"github.com/shuntnet/shunt/internal/datapath"
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
}

// debt is what one counter is to be raised by.
type debt struct {
	entry int
	chain string
	id    string // of the counter's identity
	ruleset.Amount
	least ruleset.Amount // that the counter stands at, unless it was set to zero since
}

func newTable(rules *ruleset.Ruleset, t *ruleset.Table) *table {
	x := &table{family: t.Family, name: t.Name, owed: map[int]*debt{}, chains: make([]chain, len(t.Chains))}
	for i := range t.Chains {
		x.chains[i] = newChain(rules, &t.Chains[i])
	}
	return x
}

func (x *table) chain(name string) *chain {
	for i := range x.chains {
		if x.chains[i].name == name {
			return &x.chains[i]
		}
	}
	return nil
}

// find gives the entry that a counter lives in.
func (x *table) find(p *ruleset.CounterPlace) (entry int, ok bool) {
	c := x.chain(p.Chain)
	if c == nil {
		return 0, false
	}
	entry = c.find(p)
	return entry, entry >= 0
}

// owe notes that the fast path counted for an entry.
func (x *table) owe(entry int, c *datapath.RuleCount) {
	d := x.owed[entry]
	if d == nil {
		d = &debt{entry: entry, chain: c.Place.Chain, id: c.ID}
		if entry < len(x.counts) {
			d.least = x.counts[entry]
		}
		x.owed[entry] = d
	}
	d.Amount = d.Amount.Add(c.Amount)
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
