// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"
	"reflect"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// SlowTraffic is traffic that meets a rule which only the kernel can evaluate: packets of the class that satisfy Region and that
// no rule before has decided. It may name more packets than there are, never fewer.
type SlowTraffic struct {
	By     Ref
	Why    string
	Region []Cond // empty for all packets
	Hook   ruleset.Hook
	Called bool // in a chain that is called: Region is what is asked there, not what led to it
}

// Slow lists the slow traffic of a program, in the order of the rules.
func (pr *Program) Slow() (out []SlowTraffic) {
	for n, list := range pr.Lists {
		for _, e := range list {
			if e.Then == LeaveSlow {
				out = append(out, SlowTraffic{e.By, e.Why, e.When, e.place.hook, n > 0})
			}
		}
	}
	return out
}

// Met are the rules that packets of the class can reach and that do something to them.
func (pr *Program) Met() map[*ruleset.Rule]bool {
	met := map[*ruleset.Rule]bool{}
	for _, list := range pr.Lists {
		for _, e := range list {
			met[e.By.Rule] = true
		}
	}
	delete(met, nil)
	return met
}

// Comparing every entry with all before it takes too long for thousands; slow ones are compared first.
const coverBudget = 500_000

// uncover leaves out entries whose packets an entry before them has led past or ended.
func uncover(entries []Entry) []Entry {
	fromBefore := skippers(entries)
	budget := coverBudget
	gone := make([]bool, len(entries))
	asks := make([]question, len(entries))
	for i := range entries {
		asks[i] = ask(&entries[i])
	}
	for _, slow := range []bool{true, false} {
		for j := range entries {
			e := &entries[j]
			if (e.Then == LeaveSlow) == slow && len(e.When) > 0 && budget > 0 {
				gone[j] = covered(entries, asks, gone, fromBefore, j, &budget)
			}
		}
	}
	for j := range entries {
		if gone[j] {
			entries[j] = Entry{By: entries[j].By} // does nothing: prune leaves it out
		}
	}
	return entries
}

// skippers gives for each entry the first one that leads to it other than by going on; MaxInt when none does.
func skippers(entries []Entry) []int {
	first := make([]int, len(entries)+1)
	for i := range first {
		first[i] = math.MaxInt
	}
	for i := range entries {
		entries[i].ways(i, func(to *int) {
			if *to > i+1 && first[*to] > i {
				first[*to] = i
			}
		})
	}
	return first
}

// covered looks for an entry before j that every packet on its way to j meets, that leads past j, and that asks for nothing that
// j does not ask for too.
func covered(entries []Entry, asks []question, gone []bool, fromBefore []int, j int, budget *int) bool {
	var spans [ruleset.NumFields]ruleset.Range // what j asks of a field lies in it
	for i := range spans {
		spans[i].Hi = ruleset.Max(128)
	}
	for _, c := range entries[j].When {
		if t, plain := c.plain(); plain && len(t.Ranges) > 0 {
			if s := &spans[t.Field]; s.Hi != ruleset.Max(128) {
				*s = ruleset.Range{Lo: ruleset.Max(128)} // twice, of different values: it may be the one or the other
			} else {
				*s = span(t.Ranges)
			}
		}
	}
	earliest := math.MaxInt // the first entry from which a way leads between i and j
	for i := j - 1; i >= 0 && *budget > 0; i-- {
		earliest = min(earliest, fromBefore[i+1])
		*budget--
		if q := &asks[i]; q.first && (q.span.Lo.Compare(spans[q.field].Lo) > 0 || q.span.Hi.Compare(spans[q.field].Hi) < 0) {
			continue // the first thing that it asks is not so for all of j's
		}
		e := &entries[i]
		if earliest < i || gone[i] || len(e.When) > len(entries[j].When) || !e.passes(j) {
			continue
		}
		if implied(entries[j].When, e.When) {
			return true
		}
	}
	return false
}

// question is the first condition of an entry in short, since most entries that are compared differ there already.
type question struct {
	first bool // there is one
	field ruleset.Field
	span  ruleset.Range
}

func ask(e *Entry) question {
	if len(e.When) > 0 {
		if t, plain := e.When[0].plain(); plain && len(t.Ranges) > 0 {
			return question{true, t.Field, span(t.Ranges)}
		}
	}
	return question{}
}

// span reaches from the first of sorted ranges to the last.
func span(rs []ruleset.Range) ruleset.Range { return ruleset.Range{Lo: rs[0].Lo, Hi: rs[len(rs)-1].Hi} }

// passes says whether an entry leads its packets past entry j.
func (e *Entry) passes(j int) bool {
	return e.Then == DropIt || e.Then == LeaveSlow || e.Then == Decided || e.Then == Skip && (e.To > j || e.To < 0)
}

// implied says whether whatever satisfies a satisfies b.
func implied(a, b []Cond) bool {
	for _, c := range b {
		found := false
		for _, d := range a {
			if found = d.narrows(c); found {
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// narrows says whether whatever satisfies d satisfies c.
func (d Cond) narrows(c Cond) bool {
	t, plain := c.plain()
	if !plain {
		return reflect.DeepEqual(c, d)
	}
	u, ok := d.plain()
	if !ok || u.Field != t.Field || !c.sameValue(d, t.Field) {
		return false
	}
	i := 0
	for _, r := range u.Ranges {
		for i < len(t.Ranges) && t.Ranges[i].Hi.Compare(r.Lo) < 0 {
			i++
		}
		if i == len(t.Ranges) || !t.Ranges[i].Has(r.Lo) || !t.Ranges[i].Has(r.Hi) {
			return false
		}
	}
	return true
}
