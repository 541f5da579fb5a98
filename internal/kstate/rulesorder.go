// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

const noOrder = "this kernel does not tell which of the chains of this priority is called first"

// orderChains tells base chains of one hook and priority apart by the order in which the kernel calls them. Where it does not list its
// hooks (before 5.14, or built without) only a chain that is alone with its priority in its table's dialect has a known place; chains of
// one table are called in the opposite order of their making, and of those of several nobody knows.
func orderChains(rules *ruleset.Ruleset, hooks []rawHook) {
	order := callOrder(named(rules, hooks))
	type turn struct {
		six      bool
		hook     ruleset.Hook
		priority int32
	}
	type meeting struct {
		tables map[*ruleset.Table]bool
		guess  []*ruleset.Base
	}
	meetings := map[turn]*meeting{}
	made := 0
	for i := range rules.Tables {
		t := &rules.Tables[i]
		for j := range t.Chains {
			b := t.Chains[j].Base
			if b == nil {
				continue
			}
			made++
			n, listed := order[registered(t, &t.Chains[j])]
			if b.Order = n; !listed {
				b.Order = -made // what was made later is called earlier
			}
			if t.Dormant || b.Type == "nat" || len(b.Devices) > 0 {
				continue
			}
			for _, six := range []bool{false, true} {
				if t.Family != ruleset.Inet && (t.Family == ruleset.IP6) != six {
					continue
				}
				at := turn{six, b.Hook, b.Priority}
				if meetings[at] == nil {
					meetings[at] = &meeting{tables: map[*ruleset.Table]bool{}}
				}
				meetings[at].tables[t] = true
				if !listed {
					meetings[at].guess = append(meetings[at].guess, b)
				}
			}
		}
	}
	for _, m := range meetings {
		if len(m.tables) < 2 {
			continue
		}
		for _, b := range m.guess {
			if !slices.Contains(b.Unknown, noOrder) {
				b.Unknown = append(slices.Clone(b.Unknown), noOrder)
			}
		}
	}
}

// named gives hooks of which a walk told only the priority the name of the chain, where one chain alone can be meant.
func named(rules *ruleset.Ruleset, hooks []rawHook) []rawHook {
	type place struct {
		family   model.Family
		hook     string
		priority int
	}
	chains := map[place][]hookID{}
	for i := range rules.Tables {
		t := &rules.Tables[i]
		for j := range t.Chains {
			b := t.Chains[j].Base
			if b == nil || t.Dialect != ruleset.NFT || t.Dormant || b.Type == "nat" {
				continue
			}
			for _, f := range []model.Family{model.IP4, model.IP6} {
				if family, _ := nfFamily(byte(t.Family)); family == f || t.Family == ruleset.Inet {
					at := place{f, b.Hook.String(), int(b.Priority)}
					chains[at] = append(chains[at], registered(t, &t.Chains[j]))
				}
			}
		}
	}
	out := slices.Clone(hooks)
	for i := range out {
		h := &out[i]
		if c := chains[place{h.Family, h.Hook, h.Priority}]; h.Kind == model.NFTables && h.Chain == "" && len(c) == 1 {
			h.table, h.Table, h.Chain = c[0].family, c[0].table, c[0].name
		}
	}
	return out
}

// hookID is how a chain is found among the registered hooks: a chain of nf_tables by its name, a legacy table by its priority.
type hookID struct {
	family      byte // of the table
	hook        string
	legacy      bool
	priority    int32
	table, name string
}

func registered(t *ruleset.Table, c *ruleset.Chain) hookID {
	if t.Dialect == ruleset.Legacy {
		return hookID{family: byte(t.Family), hook: c.Base.Hook.String(), legacy: true, priority: c.Base.Priority}
	}
	return hookID{family: byte(t.Family), hook: c.Base.Hook.String(), table: t.Name, name: c.Name}
}

func (h *rawHook) id() hookID {
	switch {
	case h.Kind == model.Legacy && h.Family == model.IP6:
		return hookID{family: nfIP6, hook: h.Hook, legacy: true, priority: int32(h.Priority)}
	case h.Kind == model.Legacy:
		return hookID{family: nfIP4, hook: h.Hook, legacy: true, priority: int32(h.Priority)}
	}
	return hookID{family: h.table, hook: h.Hook, table: h.Table, name: h.Chain}
}

// callOrder numbers chains in an order that agrees with both families' lists.
func callOrder(hooks []rawHook) map[hookID]int {
	lists := map[model.Family][]hookID{}
	for i := range hooks {
		if h := &hooks[i]; h.Chain != "" || h.Kind == model.Legacy {
			lists[h.Family] = append(lists[h.Family], h.id())
		}
	}
	order := map[hookID]int{}
	take := func(id hookID) {
		if order[id] == 0 {
			order[id] = len(order) + 1
		}
	}
	six := lists[model.IP6]
	for _, id := range lists[model.IP4] {
		if id.family == nfInet { // what IPv6 calls before it comes before it
			if at := slices.Index(six, id); at >= 0 {
				for _, before := range six[:at] {
					take(before)
				}
				six = six[at+1:]
			}
		}
		take(id)
	}
	for _, id := range slices.Concat(six, lists[model.Netdev]) {
		take(id)
	}
	return order
}
