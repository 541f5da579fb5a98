// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// bench is a Tally over a legacy table with one chain, that stands in for Linux.
type bench struct {
	*testing.T
	*Tally
	texts  []string
	counts []ruleset.Amount // the policy's is the last
	busy   bool
	refuse error
	rules  *ruleset.Ruleset
}

func newBench(t *testing.T, texts ...string) *bench {
	b := &bench{T: t, Tally: New()}
	b.linux = linux{
		read: func(ruleset.Family, string) (*kstate.LegacyTable, error) { return b.table(), nil },
		add: func(_ ruleset.Family, _ string, add []ruleset.Amount) error {
			if b.refuse != nil {
				return b.refuse
			}
			if len(add) != len(b.counts) {
				t.Fatalf("%d counters for %d entries", len(add), len(b.counts))
			}
			for i := range add {
				b.counts[i] = b.counts[i].Add(add[i])
			}
			return nil
		},
		busy: func() bool { return b.busy },
	}
	b.replace(make([]uint64, len(texts)+1), texts...)
	b.follow()
	return b
}

func (b *bench) table() *kstate.LegacyTable {
	return &kstate.LegacyTable{Family: ruleset.IP4, Name: "filter", Entries: []byte(strings.Join(b.texts, "\n")), Counts: slices.Clone(b.counts)}
}

// replace is what a tool does: other rules, with what they are to stand at.
func (b *bench) replace(packets []uint64, texts ...string) {
	b.texts, b.counts = texts, nil
	for _, n := range packets {
		b.counts = append(b.counts, ruleset.Amount{Packets: n, Bytes: 100 * n})
	}
}

// follow is a round: the rules are read anew if they differ.
func (b *bench) follow() {
	if b.rules == nil || string(b.table().Entries) != string(b.Tally.tables[0].entries) {
		rs := &ruleset.Ruleset{}
		counter := func(entry int) ruleset.CounterID {
			rs.Counters = append(rs.Counters, ruleset.Counter{At: ruleset.CounterPlace{Kind: ruleset.LegacyCounter, Family: ruleset.IP4, Table: "filter", Chain: "FORWARD", Index: entry}})
			return ruleset.CounterID(entry)
		}
		c := ruleset.Chain{Name: "FORWARD"}
		for i, text := range b.texts {
			c.Rules = append(c.Rules, ruleset.Rule{Number: i + 1, Text: text, Steps: []ruleset.Step{ruleset.Count{Counter: counter(i)}}})
		}
		c.Base = &ruleset.Base{Policy: ruleset.Accept, Counter: counter(len(b.texts))}
		rs.Tables = []ruleset.Table{{Dialect: ruleset.Legacy, Family: ruleset.IP4, Name: "filter", Chains: []ruleset.Chain{c}}}
		b.rules = rs
	}
	b.Follow(b.rules, []kstate.LegacyTable{*b.table()})
}

// counted is the fast path's doing, by entry of the rules that were last followed.
func (b *bench) counted(packets ...uint64) {
	var out []datapath.RuleCount
	for i, place := range b.rules.Identities() {
		if i < len(packets) && packets[i] > 0 {
			out = append(out, datapath.RuleCount{Place: place, ID: place.ID(), Amount: ruleset.Amount{Packets: packets[i], Bytes: 100 * packets[i]}})
		}
	}
	b.Take(out)
}

func (b *bench) settles(what string, wantLeft bool, want ...uint64) {
	b.Helper()
	left, err := b.Settle()
	if left != wantLeft || (err != nil) != (b.refuse != nil) {
		b.Errorf("%s: something left: %v, error %v", what, left, err)
	}
	var got []uint64
	for _, c := range b.counts {
		got = append(got, c.Packets)
		if c.Bytes != 100*c.Packets {
			b.Errorf("%s: %v does not belong together", what, c)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.Errorf("%s: Linux shows %v, want %v", what, got, want)
	}
}

// Linux gets everything once, also what it could not be given at first.
func TestSettlesOnce(t *testing.T) {
	b := newBench(t, "a", "b")
	b.counted(3, 0, 5)
	b.busy = true
	b.settles("a tool is at work", true, 0, 0, 0)
	b.busy, b.refuse = false, errors.New("refused")
	b.settles("Linux refuses", true, 0, 0, 0)
	b.refuse = nil
	b.counted(1)
	if got := b.amounts(); len(got) != 2 {
		t.Errorf("beyond Linux's there are %v", got)
	}
	b.settles("at last", false, 4, 0, 5)
	b.settles("again", false, 4, 0, 5)
	if got := b.amounts(); len(got) != 0 {
		t.Errorf("what was given is still counted: %v", got)
	}
}

// A table that was replaced by one with as many entries gets nothing before it is known.
func TestNothingForUnknownRules(t *testing.T) {
	b := newBench(t, "a", "b")
	b.counted(3, 4)
	b.replace([]uint64{0, 0, 0}, "b", "a")
	b.settles("before it is followed", true, 0, 0, 0)
	b.follow()
	b.settles("followed", false, 4, 3, 0)
}

// What was counted before a counter was set to zero is none of its business any more; what is counted afterwards is.
func TestSetToZero(t *testing.T) {
	b := newBench(t, "a", "b")
	b.counted(3, 4)
	b.settles("in use", false, 3, 4, 0)
	b.counted(10, 10)
	b.replace([]uint64{0, 4, 0}, "a", "b") // iptables -Z FORWARD 1
	b.follow()
	b.counted(1)
	b.settles("zeroed", false, 1, 14, 0)
}

// A tool replaces a table and then adds what its counters stood at; in between they are zero, and who looks then must not take them for set to zero.
func TestBetweenAToolsCalls(t *testing.T) {
	b := newBench(t, "a")
	b.counted(3)
	b.settles("in use", false, 3, 0)
	b.counted(10)
	b.replace([]uint64{0, 0, 0}, "new", "a")
	b.busy = true
	b.follow()
	b.settles("in between", true, 0, 0, 0)
	b.busy, b.counts[1] = false, ruleset.Amount{Packets: 3, Bytes: 300}
	b.settles("afterwards", false, 0, 13, 0)
}

// A rule's count stays its own when others come and go; twins in a changed chain get none of the last period's rather than each other's.
func TestCountsStayWithTheirRules(t *testing.T) {
	for _, c := range []struct {
		what          string
		before, after []string
		want          []uint64 // the policy's is the last
	}{
		{"unchanged", []string{"x", "x", "y"}, []string{"x", "x", "y"}, []uint64{1, 2, 3, 4}},
		{"one before", []string{"x", "y", "z"}, []string{"n", "x", "y", "z"}, []uint64{0, 1, 2, 3, 4}},
		{"first of twins gone", []string{"x", "x", "y"}, []string{"x", "y"}, []uint64{0, 3, 4}},
		{"a twin comes", []string{"x", "y", "z"}, []string{"x", "x", "y", "z"}, []uint64{0, 0, 2, 3, 4}},
		{"moved", []string{"x", "y", "z"}, []string{"z", "x", "y"}, []uint64{3, 1, 2, 4}},
	} {
		b := newBench(t, c.before...)
		b.counted(1, 2, 3, 4)
		b.replace(make([]uint64, len(c.after)+1), c.after...)
		b.follow()
		b.settles(c.what, false, c.want...)
	}
}

// Counters of nf_tables are kept as long as their rule is there; one of a table that was made anew is another.
func TestKeepsTheRest(t *testing.T) {
	x := New()
	place := func(table uint64) ruleset.CounterPlace {
		return ruleset.CounterPlace{Kind: ruleset.RuleCounter, Family: ruleset.Inet, Table: "t", TableHandle: table, Chain: "c", Handle: 2}
	}
	first, second := place(1), place(2)
	x.Follow(&ruleset.Ruleset{Counters: []ruleset.Counter{{At: first}}}, nil)
	x.Take([]datapath.RuleCount{{Place: first, ID: first.ID(), Amount: ruleset.Amount{Packets: 1, Bytes: 60}}})
	x.Take([]datapath.RuleCount{{Place: first, ID: first.ID(), Amount: ruleset.Amount{Packets: 2, Bytes: 120}}})
	x.Prune()
	if got := x.amounts()[first.ID()]; got != (ruleset.Amount{Packets: 3, Bytes: 180}) {
		t.Errorf("kept %v", got)
	}
	if _, ok := x.amounts()[second.ID()]; ok {
		t.Error("a new table has the counts of an old one")
	}
	x.Follow(&ruleset.Ruleset{Counters: []ruleset.Counter{{At: second}}}, nil)
	x.Prune()
	if len(x.amounts()) != 0 {
		t.Error("counts of a rule that is gone are kept")
	}
}

// Objects and elements that no rule asks are not read: that they are not seen does not say that they are gone. With their table they are.
func TestKeepsWhatIsNotRead(t *testing.T) {
	place := func(kind ruleset.CounterKind, name string) ruleset.CounterPlace {
		return ruleset.CounterPlace{Kind: kind, Family: ruleset.Inet, Table: "t", TableHandle: 1, Handle: 2, Name: name}
	}
	counter := func(p ruleset.CounterPlace) ruleset.Counter { return ruleset.Counter{At: p} }
	object, element := place(ruleset.NamedCounter, "c"), place(ruleset.ElementCounter, "s")
	rule, other := counter(place(ruleset.RuleCounter, "")), counter(place(ruleset.NamedCounter, "other"))
	tables := []ruleset.Table{{Family: ruleset.Inet, Name: "t"}}
	set := func(unread bool) []ruleset.Set {
		return []ruleset.Set{{Family: ruleset.Inet, Table: "t", Name: "s", Unread: unread}}
	}
	for _, c := range []struct {
		what            string
		rules           ruleset.Ruleset
		object, element bool
	}{
		{"neither objects nor sets are read", ruleset.Ruleset{Tables: tables, Counters: []ruleset.Counter{rule}}, true, true},
		{"the set is not", ruleset.Ruleset{Tables: tables, Sets: set(true), Counters: []ruleset.Counter{rule}}, true, true},
		{"the set is", ruleset.Ruleset{Tables: tables, Sets: set(false), Counters: []ruleset.Counter{rule}}, true, false},
		{"another set is", ruleset.Ruleset{Tables: tables, Sets: []ruleset.Set{{Family: ruleset.Inet, Table: "t", Name: "z"}}, Counters: []ruleset.Counter{rule}}, true, false},
		{"objects are", ruleset.Ruleset{Tables: tables, Counters: []ruleset.Counter{rule, other}}, false, true},
		{"the table is gone", ruleset.Ruleset{Counters: []ruleset.Counter{rule}}, false, false},
	} {
		x := New()
		for _, p := range []ruleset.CounterPlace{object, element} {
			x.Take([]datapath.RuleCount{{Place: p, ID: p.ID(), Amount: ruleset.Amount{Packets: 1, Bytes: 60}}})
		}
		x.Follow(&c.rules, nil)
		x.Prune()
		_, hasObject := x.amounts()[object.ID()]
		_, hasElement := x.amounts()[element.ID()]
		if hasObject != c.object || hasElement != c.element {
			t.Errorf("%s: object kept %v, element kept %v", c.what, hasObject, hasElement)
		}
	}
}

// What Linux cannot be told outlasts the daemon, in the namespace that it was counted in.
func TestSavesTheRest(t *testing.T) {
	path := t.TempDir() + "/counts"
	place := ruleset.CounterPlace{Kind: ruleset.RuleCounter, Family: ruleset.Inet, Table: "t", TableHandle: 1, Chain: "c", Handle: 2}
	x := New()
	x.Take([]datapath.RuleCount{{Place: place, ID: place.ID(), Amount: ruleset.Amount{Packets: 3, Bytes: 180}}})
	if err := x.Save(path, 7); err != nil {
		t.Fatal(err)
	}
	next, elsewhere := New(), New()
	if err := errors.Join(next.Load(path, 7), elsewhere.Load(path, 8)); err != nil {
		t.Fatal(err)
	}
	if got := next.amounts()[place.ID()]; got != (ruleset.Amount{Packets: 3, Bytes: 180}) || len(elsewhere.amounts()) != 0 {
		t.Errorf("%v was left, and %v to another namespace", got, elsewhere.amounts())
	}
	if err := errors.Join(os.WriteFile(path, []byte("{"), 0o600), Remove(path+"x")); err != nil {
		t.Fatal(err)
	}
	if New().Load(path, 7) == nil {
		t.Error("half a file is taken for a whole one")
	}
	if err := errors.Join(Remove(path), New().Load(path, 7)); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// Where very many rules count they are found by an index, and get what is theirs as few do: with twins among them, and with a rule that comes before they were told.
func TestManyRulesCount(t *testing.T) {
	var texts []string
	var counted, want []uint64
	for i := range uint64(5 * manyAsked) {
		texts = append(texts, fmt.Sprint("rule ", i))
		if i%10 == 9 {
			texts[i] = "twin"
		}
		counted, want = append(counted, i+1), append(want, i+1)
	}
	b := newBench(t, texts...)
	b.counted(counted...)
	b.settles("each its own", false, append(slices.Clone(want), 0)...)

	b.counted(counted...)
	texts = slices.Insert(texts, 3, "new")
	want = slices.Insert(want, 3, 0)
	b.replace(append(slices.Clone(want), 0), texts...)
	b.follow()
	for i := range want {
		if texts[i] != "twin" {
			want[i] *= 2
		}
	}
	b.settles("with one more among them", false, append(want, 0)...)
}
