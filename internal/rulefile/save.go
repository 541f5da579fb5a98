// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"slices"
	"strconv"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// builtin are the chains that a table has by itself, in the order of the hooks.
var builtin = map[string][]rs.Hook{
	"raw":      {rs.Prerouting, rs.Output},
	"mangle":   {rs.Prerouting, rs.Input, rs.Forward, rs.Output, rs.Postrouting},
	"nat":      {rs.Prerouting, rs.Input, rs.Output, rs.Postrouting},
	"filter":   {rs.Input, rs.Forward, rs.Output},
	"security": {rs.Input, rs.Forward, rs.Output},
}

const tableNames = "raw, mangle, nat, filter, security"

// saveFile is a file of iptables-save while it is read.
type saveFile struct {
	name   string
	six    bool
	family rs.Family
	out    rs.Ruleset
	tables []word     // seen so far
	table  *saveTable // the one between * and COMMIT
}

// saveTable is a table while it is read. Its rules come last, since a rule may name a chain that is declared behind it.
type saveTable struct {
	rs.Table
	at    word
	lines []saveRule
}

type saveRule struct {
	chain    string
	counters [2]uint64
	words    *reader
}

func parseSave(name, text string, six bool) (*rs.Ruleset, error) {
	f := &saveFile{name: name, six: six, family: rs.IP4}
	if six {
		f.family = rs.IP6
	}
	last := 0
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, "\r \t")
		last = number + 1
		if trimmed := strings.TrimLeft(line, " \t"); trimmed == "" || trimmed[0] == '#' {
			continue
		}
		r, err := split(name, line, number+1)
		if err == nil {
			err = f.line(r)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case f.table != nil:
		return nil, &Error{name, last, 1, "", "table " + f.table.Name + " (line " + strconv.Itoa(f.table.at.line) + ") has no COMMIT"}
	case len(f.tables) == 0:
		return nil, &Error{name, last, 1, "", "there is no table; one begins with * and its name: " + tableNames}
	}
	return &f.out, nil
}

// line takes in one line.
func (f *saveFile) line(r *reader) error {
	w := r.peek()
	switch {
	case w.text == "COMMIT" && f.table != nil:
		r.next()
		if !r.done() {
			return r.fail(r.peek(), "nothing may follow COMMIT")
		}
		return f.commit()
	case strings.HasPrefix(w.text, "*"):
		r.next()
		return f.begin(r, w)
	case f.table == nil:
		return r.fail(w, "a table begins with * and its name: %s; of nft, the output of `nft -j list ruleset` is taken", tableNames)
	case strings.HasPrefix(w.text, ":"):
		return f.chain(r)
	}
	return f.rule(r)
}

func (f *saveFile) begin(r *reader, w word) error {
	name := strings.TrimPrefix(w.text, "*")
	switch {
	case f.table != nil:
		return r.fail(w, "table %s (line %d) has no COMMIT", f.table.Name, f.table.at.line)
	case !r.done():
		return r.fail(r.peek(), "nothing may follow the name of a table")
	case builtin[name] == nil:
		return r.fail(w, "no such table; there are %s", tableNames)
	}
	if i := slices.IndexFunc(f.tables, func(t word) bool { return t.text == w.text }); i >= 0 {
		return r.fail(w, "the table is in line %d already", f.tables[i].line)
	}
	f.tables = append(f.tables, w)
	f.table = &saveTable{at: w}
	f.table.Table = rs.Table{Dialect: rs.Legacy, Family: f.family, Name: name}
	for _, h := range builtin[name] {
		base, _ := xtables.BaseOf(name, h)
		chain := rs.Chain{Name: strings.ToUpper(h.String()), Base: base}
		base.Counter = f.counter(chain.Name, [2]uint64{})
		f.table.Chains = append(f.table.Chains, chain)
	}
	return nil
}

func (f *saveFile) counter(chain string, n [2]uint64) rs.CounterID {
	f.out.Counters = append(f.out.Counters, rs.Counter{Packets: n[0], Bytes: n[1],
		At: rs.CounterPlace{Kind: rs.LegacyCounter, Family: f.family, Table: f.table.Name, Chain: chain}})
	return rs.CounterID(len(f.out.Counters) - 1)
}

// chain is a line like ":FORWARD DROP [12:3456]".
func (f *saveFile) chain(r *reader) error {
	w := r.next()
	name := strings.TrimPrefix(w.text, ":")
	if name == "" || len(name) > 28 || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "!") {
		return r.fail(w, "the name of a chain has 1 to 28 characters, and neither - nor ! in front")
	}
	policy, err := r.value(w, "a policy: ACCEPT, DROP, or - for a chain that rules call")
	if err != nil {
		return err
	}
	var counters [2]uint64
	if !r.done() {
		if counters, err = r.counters(r.next()); err != nil {
			return err
		}
	}
	if !r.done() {
		return r.fail(r.peek(), "nothing may follow the counters of a chain")
	}
	c := f.table.Chain(name)
	switch {
	case c != nil && c.Base != nil:
		switch policy.text {
		case "ACCEPT":
			c.Base.Policy = rs.Accept
		case "DROP":
			c.Base.Policy = rs.Drop
		case "-": // iptables-nft writes so of one that it leaves as it is
		default:
			return r.fail(policy, "the policy of %s is ACCEPT or DROP", name)
		}
		f.out.Counters[c.Base.Counter].Packets, f.out.Counters[c.Base.Counter].Bytes = counters[0], counters[1]
		return nil
	case c != nil:
		return r.fail(w, "the chain is declared already")
	case policy.text != "-":
		return r.fail(policy, "only %s have a policy in table %s; for other chains write -", baseNames(f.table.Name), f.table.Name)
	case isVerdict(name) || xtables.IsTarget(name):
		return r.fail(w, "that is the name of a target")
	}
	f.table.Chains = append(f.table.Chains, rs.Chain{Name: name})
	return nil
}

func baseNames(table string) string {
	var names []string
	for _, h := range builtin[table] {
		names = append(names, strings.ToUpper(h.String()))
	}
	return strings.Join(names, ", ")
}

// counters reads "[packets:bytes]".
func (r *reader) counters(w word) (n [2]uint64, err error) {
	inner, ok := strings.CutPrefix(w.text, "[")
	inner, ok2 := strings.CutSuffix(inner, "]")
	a, b, ok3 := strings.Cut(inner, ":")
	if ok && ok2 && ok3 {
		var err1, err2 error
		n[0], err1 = strconv.ParseUint(a, 10, 64)
		n[1], err2 = strconv.ParseUint(b, 10, 64)
		if err1 == nil && err2 == nil {
			return n, nil
		}
	}
	return n, r.fail(w, "counters are written [packets:bytes]")
}

// rule keeps a line like "[12:3456] -A FORWARD …" until the table is complete.
func (f *saveFile) rule(r *reader) (err error) {
	in := saveRule{words: r}
	if strings.HasPrefix(r.peek().text, "[") {
		if in.counters, err = r.counters(r.next()); err != nil {
			return err
		}
	}
	switch w := r.next(); w.text {
	case "-A", "--append":
		name, err := r.value(w, "the name of a chain")
		if err != nil {
			return err
		}
		in.chain = name.text
		if f.table.Chain(name.text) == nil {
			return r.fail(name, "table %s has no such chain; one is declared as :%s - [0:0]", f.table.Name, name.text)
		}
	default:
		return r.fail(w, "a line is -A CHAIN and a rule, :CHAIN and its policy, *TABLE, or COMMIT")
	}
	f.table.lines = append(f.table.lines, in)
	return nil
}

// commit makes the rules of a table, whose chains are all known now.
func (f *saveFile) commit() error {
	for _, in := range f.table.lines {
		chain := f.table.Chain(in.chain)
		p := &ruleParser{reader: in.words, file: f, chain: in.chain, counters: in.counters}
		rule, err := p.parse()
		if err != nil {
			return err
		}
		rule.Number = len(chain.Rules) + 1
		chain.Rules = append(chain.Rules, rule)
	}
	f.out.Tables = append(f.out.Tables, f.table.Table)
	f.table = nil
	return nil
}
