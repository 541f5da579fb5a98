// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"strings"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// Rules describes what was read of Linux's packet filters, and which parts of it leave a packet to Linux. beyond is what the fast path
// counted and Linux does not show, by ruleset.CounterPlace.ID, and s what the last round decided.
func Rules(read *kstate.RuleReading, beyond map[string]ruleset.Amount, s *control.State) *api.Rules {
	x := &ruleTeller{Ruleset: &read.Ruleset, fast: make([]*api.Fast, len(read.Ruleset.Counters)), paths: paths(s)}
	x.add(beyond)
	out := &api.Rules{Tables: []api.RuleTable{}, IPSets: []api.RuleSet{}}
	for _, f := range read.Faults {
		out.Faults = append(out.Faults, f.Part+": "+f.Err)
	}
	for i := range read.Ruleset.Sets {
		if s := &read.Ruleset.Sets[i]; s.Dialect == ruleset.IPSet {
			n := len(s.Elements)
			if s.Members != nil {
				n = len(s.Members)
			}
			out.IPSets = append(out.IPSets, api.RuleSet{Name: s.Name, Type: s.Type, Elements: n, Trouble: slowSet(s), Understood: s.Unknown == ""})
		}
	}
	for i := range read.Ruleset.Tables {
		t := &read.Ruleset.Tables[i]
		row := api.RuleTable{Dialect: dialects[t.Dialect], Family: t.Family.String(), Name: t.Name, Dormant: t.Dormant, Chains: []api.RuleChain{}, Sets: []api.RuleSet{}}
		for j := range t.Chains {
			row.Chains = append(row.Chains, x.chain(t, &t.Chains[j]))
		}
		for j := range read.Ruleset.Sets {
			s := &read.Ruleset.Sets[j]
			if s.Dialect == t.Dialect && s.Family == t.Family && s.Table == t.Name && !strings.HasPrefix(s.Name, "__") {
				row.Sets = append(row.Sets, api.RuleSet{Name: s.Name, Type: s.Type, Elements: len(s.Elements), Trouble: slowSet(s), Understood: s.Unknown == ""})
			}
		}
		row.Counters = x.named(t)
		out.Tables = append(out.Tables, row)
	}
	return out
}

var dialects = map[ruleset.Dialect]string{ruleset.NFT: "nft", ruleset.Legacy: "legacy", ruleset.IPSet: "ipset"}

// ruleTeller describes rules.
type ruleTeller struct {
	*ruleset.Ruleset
	fast  []*api.Fast // by counter
	paths map[string]string
}

// add puts the fast path's counts to the counters that they belong to.
func (x *ruleTeller) add(beyond map[string]ruleset.Amount) {
	if len(beyond) == 0 {
		return
	}
	for i, place := range x.Identities() {
		if more, ok := beyond[place.ID()]; ok {
			x.fast[i] = &api.Fast{Packets: more.Packets, Bytes: more.Bytes}
			x.Counters[i].Packets += more.Packets
			x.Counters[i].Bytes += more.Bytes
		}
	}
}

// paths tells by their names which rules the fast path asks for forwarded packets, and which leave them to Linux.
func paths(s *control.State) map[string]string {
	out := map[string]string{}
	if s == nil || !s.Policy.Kernel.Rules {
		return out
	}
	for _, f := range []*graph.Filter{s.Graph.Filter4, s.Graph.Filter6, s.Graph.Frames4, s.Graph.Frames6} {
		if f == nil || f.Problem != "" {
			continue
		}
		for _, list := range f.Program.Lists {
			for _, e := range list {
				if key := e.By.String(); e.Then == rules.LeaveSlow || e.Then == rules.DropIt && f.Program.Class.Bridged {
					out[key] = "linux"
				} else if out[key] == "" {
					out[key] = "fast"
				}
			}
		}
	}
	return out
}

func (x *ruleTeller) chain(t *ruleset.Table, c *ruleset.Chain) api.RuleChain {
	row := api.RuleChain{Name: c.Name, Handle: c.Handle, Rules: []api.Rule{}}
	if b := c.Base; b != nil {
		row.Hook, row.Priority, row.Type, row.Devices, row.Trouble = b.Hook.String(), b.Priority, b.Type, b.Devices, b.Unknown
		row.Policy = map[ruleset.Code]string{ruleset.Accept: "accept", ruleset.Drop: "drop"}[b.Policy]
		row.Packets, row.Bytes, row.Fast = x.counted(b.Counter)
	}
	for i := range c.Rules {
		r := x.rule(&c.Rules[i])
		r.Path = x.paths[rules.Ref{Table: t, Chain: c, Rule: &c.Rules[i]}.String()]
		if r.Path == "fast" && len(r.Trouble) > 0 {
			r.Path = "partial"
		}
		row.Rules = append(row.Rules, r)
	}
	return row
}

// named are the counters of a table that have names.
func (x *ruleTeller) named(t *ruleset.Table) (out []api.RuleCounter) {
	for i := range x.Counters {
		if at := &x.Counters[i].At; t.Dialect == ruleset.NFT && at.Kind == ruleset.NamedCounter && at.Family == t.Family && at.Table == t.Name {
			c := api.RuleCounter{Name: at.Name}
			c.Packets, c.Bytes, c.Fast = x.counted(ruleset.CounterID(i))
			out = append(out, c)
		}
	}
	return out
}

func (x *ruleTeller) rule(r *ruleset.Rule) api.Rule {
	all := x.Ruleset
	row := api.Rule{Number: r.Number, Handle: r.Handle, Text: r.Text, Understood: true}
	trouble := func(understood bool, name, text string) {
		row.Trouble = append(row.Trouble, api.RuleTrouble{Understood: understood, Name: name, Text: text})
		row.Understood = row.Understood && understood
	}
	set := func(id ruleset.SetID) {
		if s := &all.Sets[id]; slowSet(s) != "" {
			trouble(s.Unknown == "", "set", s.Name+": "+slowSet(s))
		}
	}
	for _, s := range r.Steps {
		switch s := s.(type) {
		case ruleset.Unknown:
			trouble(false, s.Name, s.Text)
		case ruleset.Slow:
			trouble(true, s.Name, s.Text)
		case ruleset.Lookup:
			set(s.Set)
			for _, member := range s.Of {
				set(member.Set)
			}
		case ruleset.VerdictMap:
			set(s.Set)
		case ruleset.SetByMap:
			set(s.Set)
		case ruleset.Count:
			// The first counter of a rule is the one that its user means; named ones are shared with other rules.
			if p, b, f := x.counted(s.Counter); row.Packets == nil && all.Counters[s.Counter].At.Kind != ruleset.NamedCounter {
				row.Packets, row.Bytes, row.Fast = p, b, f
			}
		}
	}
	return row
}

func (x *ruleTeller) counted(id ruleset.CounterID) (packets, bytes *uint64, fast *api.Fast) {
	if id == ruleset.NoCounter {
		return nil, nil, nil
	}
	c := x.Counters[id]
	return &c.Packets, &c.Bytes, x.fast[id]
}
