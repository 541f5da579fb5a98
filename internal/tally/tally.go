// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"slices"
	"sync"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Tally is for one network namespace. Its methods may be called from any goroutine; those that speak to Linux, from a thread in the namespace.
type Tally struct {
	linux linux
	// settling is held while Linux's counters change by our doing, or must not. It is taken before mu.
	settling sync.Mutex

	mu     sync.Mutex
	rules  *ruleset.Ruleset
	tables []*table
	kept   map[string]ruleset.Amount // all others, by ruleset.CounterPlace.ID
	pruned *ruleset.Ruleset          // the rules that kept was last compared with
	saved  map[string]ruleset.Amount // what of kept is in the file
}

// linux is what a Tally asks of the kernel, which tests stand in for.
type linux struct {
	read func(ruleset.Family, string) (*kstate.LegacyTable, error)
	add  func(ruleset.Family, string, []ruleset.Amount) error
	busy func() bool
}

// New gives an empty Tally.
func New() *Tally {
	return &Tally{linux: linux{kstate.ReadLegacy, kstate.AddLegacyCounts, kstate.LegacyBusy}, kept: map[string]ruleset.Amount{}}
}

// Take adds what the data path counted. It belongs to the rules that were last followed.
func (t *Tally) Take(counted []datapath.RuleCount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range counted {
		c := &counted[i]
		if c.Place.Kind != ruleset.LegacyCounter {
			t.kept[c.ID] = t.kept[c.ID].Add(c.Amount)
		} else if x := t.table(c.Place.Family, c.Place.Table); x != nil {
			if entry, ok := x.find(&c.Place); ok {
				x.owe(entry, c)
			}
		}
	}
}

// Legacy says whether there are counters that Linux can be told of: what the data path counted has to be taken before a change of their rules.
func (t *Tally) Legacy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.tables) > 0
}

// Follow takes up a reading of Linux's rules, of which legacy are the tables with what they stand at.
func (t *Tally) Follow(rules *ruleset.Ruleset, legacy []kstate.LegacyTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rules != t.rules {
		t.relocate(rules, legacy)
		t.rules = rules
	}
	for i := range legacy {
		if x := t.table(legacy[i].Family, legacy[i].Name); x != nil {
			x.stand(&legacy[i])
		}
	}
}

// relocate brings what is owed to the entries of new tables. Of many rules few have counted since Linux was told last, so only those are looked for.
func (t *Tally) relocate(rules *ruleset.Ruleset, legacy []kstate.LegacyTable) {
	before := t.tables
	t.tables = nil
	if rules == nil || len(legacy) == 0 {
		return
	}
	for i := range rules.Tables {
		if rules.Tables[i].Dialect != ruleset.Legacy {
			continue
		}
		x := newTable(rules, &rules.Tables[i])
		for _, old := range before {
			if old.family == x.family && old.name == x.name {
				x.inherit(old)
			}
		}
		t.tables = append(t.tables, x)
	}
}

func (t *Tally) table(family ruleset.Family, name string) *table {
	for _, x := range t.tables {
		if x.family == family && x.name == name {
			return x
		}
	}
	return nil
}

// Settle gives Linux what it has not been told. It says whether something is left: for the moment, since a tool is at work or a change is yet to be
// followed, or because of the error.
func (t *Tally) Settle() (left bool, err error) {
	t.settling.Lock()
	defer t.settling.Unlock()
	return t.settle()
}

func (t *Tally) settle() (left bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.tables {
		l, e := x.settle(&t.linux)
		left = left || l
		if e != nil {
			err = e
		}
	}
	return left, err
}

// Read has Linux's counters read while nothing is given to Linux, and gives what the fast path counted beyond them, by ruleset.CounterPlace.ID of
// identities. Before and after, take has to Take what the data path counted.
func (t *Tally) Read(take func() error, read func()) (map[string]ruleset.Amount, error) {
	t.settling.Lock()
	defer t.settling.Unlock()
	if err := take(); err != nil {
		return nil, err
	}
	t.settle() // what it cannot give now is in the answer
	read()
	if err := take(); err != nil {
		return nil, err
	}
	return t.amounts(), nil
}

// amounts are what the fast path counted and Linux does not show, by identity.
func (t *Tally) amounts() map[string]ruleset.Amount {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]ruleset.Amount, len(t.kept))
	for id, a := range t.kept {
		out[id] = a
	}
	for _, x := range t.tables {
		for _, d := range x.owed {
			out[d.id] = d.Amount
		}
	}
	return out
}

// Prune forgets counters that are gone. It takes its time with many rules, and does nothing where they are those of the last call.
func (t *Tally) Prune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rules == nil || t.pruned == t.rules || len(t.kept) == 0 {
		return
	}
	t.pruned = t.rules
	there := map[string]bool{}
	objects, sets := false, false // were read
	for i := range t.rules.Counters {
		if at := &t.rules.Counters[i].At; at.Kind != ruleset.LegacyCounter {
			there[at.ID()] = true
			objects = objects || at.Kind == ruleset.NamedCounter
		}
	}
	if len(there) == 0 {
		return // perhaps they could not be read
	}
	for i := range t.rules.Sets {
		sets = sets || t.rules.Sets[i].Dialect == ruleset.NFT
	}
	for id := range t.kept {
		if there[id] || t.unread(id, objects, sets) {
			continue
		}
		delete(t.kept, id)
	}
}

// unread says whether a counter may be there although the rules do not have it: what no rule asks is not read.
func (t *Tally) unread(id string, objects, sets bool) bool {
	p, ok := ruleset.ReadID(id)
	if !ok || t.rules.Table(p.Family, p.Table) == nil {
		return false
	}
	switch p.Kind {
	case ruleset.NamedCounter:
		return !objects
	case ruleset.ElementCounter:
		return !sets || slices.ContainsFunc(t.rules.Sets, func(s ruleset.Set) bool {
			return s.Unread && s.Family == p.Family && s.Table == p.Table && s.Name == p.Name
		})
	}
	return false
}
