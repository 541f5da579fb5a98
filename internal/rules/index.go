// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// jumpDepth is how deep nf_tables lets chains nest (NFT_JUMP_STACK_SIZE); it refuses rule sets that go deeper.
const jumpDepth = 16

// trackPriority is the priority of the conntrack hook in prerouting (NF_IP_PRI_CONNTRACK, the same for IPv6).
const trackPriority = -200

// Ref names a rule, or with Rule nil a base chain's policy, to its user.
type Ref struct {
	Table *ruleset.Table
	Chain *ruleset.Chain
	Rule  *ruleset.Rule
}

// index finds chains and puts base chains in the order of their calls.
type index struct {
	rs      *ruleset.Ruleset
	chains  map[*ruleset.Table]map[string]*ruleset.Chain
	counts  []bool                 // of each set: its elements have counters
	all     []bool                 // of each set: it has an element for everything
	live    bool                   // sets can be asked whose elements were not read
	refills map[ruleset.SetID]bool // see refillable
}

func newIndex(rs *ruleset.Ruleset) *index {
	ix := &index{rs: rs, chains: map[*ruleset.Table]map[string]*ruleset.Chain{}}
	for i := range rs.Tables {
		t := &rs.Tables[i]
		m := make(map[string]*ruleset.Chain, len(t.Chains))
		for j := range t.Chains {
			m[t.Chains[j].Name] = &t.Chains[j]
		}
		ix.chains[t] = m
	}
	for i := range rs.Sets {
		ix.counts = append(ix.counts, counts(&rs.Sets[i]))
		ix.all = append(ix.all, catchAll(&rs.Sets[i]))
	}
	return ix
}

// called is a base chain that a hook calls.
type called struct {
	table *ruleset.Table
	chain *ruleset.Chain
	place place
	slow  string // why nothing that meets it can be decided here, "" if it can
}

// path is what a forwarded or a bridged packet of a family meets, hook by hook in the order of the calls, without input and output. Chains of
// single devices are all in it; whether the packet meets them is asked by Base.On.
func (ix *index) path(family ruleset.Family, bridged bool) []called {
	var out []called
	for _, h := range []ruleset.Hook{ruleset.Ingress, ruleset.Prerouting, ruleset.Forward, ruleset.Postrouting, ruleset.Egress} {
		at := len(out)
		for i := range ix.rs.Tables {
			t := &ix.rs.Tables[i]
			if t.Dormant || bridged != (t.Family == ruleset.Bridge) || !bridged && !meets(t.Family, family, h) {
				continue
			}
			for j := range t.Chains {
				if c := &t.Chains[j]; c.Base != nil && c.Base.Hook == h {
					out = append(out, ix.call(t, c))
				}
			}
		}
		slices.SortStableFunc(out[at:], func(a, b called) int {
			return cmp.Or(cmp.Compare(a.chain.Base.Priority, b.chain.Base.Priority), cmp.Compare(a.chain.Base.Order, b.chain.Base.Order))
		})
	}
	return out
}

// meets says whether a table's chains are called for forwarded packets of a family at a hook.
func meets(table, packet ruleset.Family, h ruleset.Hook) bool {
	if h == ruleset.Ingress || h == ruleset.Egress {
		return table == ruleset.Netdev || table == ruleset.Inet && h == ruleset.Ingress
	}
	return table == packet || table == ruleset.Inet
}

func (ix *index) call(t *ruleset.Table, c *ruleset.Chain) called {
	b := c.Base
	ours := t.Family != ruleset.Bridge // connection tracking of IP, which frames of a bridge do not meet
	hook := called{table: t, chain: c, place: place{b.Hook, ours && (routed(b.Hook) || b.Hook == ruleset.Prerouting && b.Priority > trackPriority)}}
	deep, cyclic := ix.nesting(t, c)
	switch {
	case len(b.Unknown) > 0:
		hook.slow = "chain " + c.Name + ": " + strings.Join(b.Unknown, ", ")
	case b.Policy != ruleset.Accept && b.Policy != ruleset.Drop:
		hook.slow = "chain " + c.Name + ": policy"
	case ours && b.Hook == ruleset.Prerouting && b.Priority == trackPriority && len(c.Rules) > 0:
		hook.slow = "chain " + c.Name + ": same priority as connection tracking"
	case cyclic, t.Dialect == ruleset.NFT && deep > jumpDepth:
		hook.slow = "chain " + c.Name + ": jumps nest too deep"
	}
	return hook
}

// nesting is how deep jumps below a chain go (a goto takes no room), and whether they ever come back to it.
func (ix *index) nesting(t *ruleset.Table, c *ruleset.Chain) (deep int, cyclic bool) {
	depth := map[*ruleset.Chain]int{}
	open := map[*ruleset.Chain]bool{}
	var visit func(c *ruleset.Chain) int
	visit = func(c *ruleset.Chain) int {
		if open[c] {
			cyclic = true
		}
		if d, done := depth[c]; done || cyclic {
			return d
		}
		open[c] = true
		deepest := 0
		ix.eachVerdict(c, func(v ruleset.Verdict) {
			if v.Code != ruleset.Jump && v.Code != ruleset.Goto || cyclic {
				return
			}
			next := ix.chains[t][v.Chain]
			if next == nil {
				return
			}
			d := visit(next)
			if v.Code == ruleset.Jump {
				d++
			}
			deepest = max(deepest, d)
		})
		open[c] = false
		depth[c] = deepest
		return deepest
	}
	return visit(c), cyclic
}

// eachVerdict calls take for every verdict that a rule of the chain can end in, those of verdict maps included.
func (ix *index) eachVerdict(c *ruleset.Chain, take func(ruleset.Verdict)) {
	for i := range c.Rules {
		for _, s := range c.Rules[i].Steps {
			switch s := s.(type) {
			case ruleset.Verdict:
				take(s)
			case ruleset.VerdictMap:
				if s.Set >= 0 && int(s.Set) < len(ix.rs.Sets) {
					for _, e := range ix.rs.Sets[s.Set].Elements {
						if e.Verdict != nil {
							take(*e.Verdict)
						}
					}
				}
			}
		}
	}
}

// atDevice says why a step at a device's ingress or egress is the kernel's: connection tracking and routing have not seen the packet at ingress, and chains at egress
// cannot ask for what they know; `meta length` has the frame's padding (of an inet table's length it is not known whether it is that or the header's), and `meta nfproto`
// of the family netdev is that family. At egress the frame has its new addresses, which nobody has looked up where rules are asked, and
// `meta iiftype` is the type of the device that the packet leaves by, though there is no way in.
func atDevice(s ruleset.Step, at place, t *ruleset.Table) string {
	if at.hook != ruleset.Ingress && at.hook != ruleset.Egress {
		return ""
	}
	where := " at " + at.hook.String()
	switch s := s.(type) {
	case ruleset.SaveMark:
		return "ct mark set" + where
	case ruleset.NoTrack:
		return "notrack" + where
	case ruleset.SetZone:
		return "ct zone set" + where
	case ruleset.SetByMap:
		if s.Field == ruleset.CTZone {
			return "ct zone set" + where
		}
	}
	for _, f := range AskedFor(s) {
		if f.OfConnection() {
			return f.String() + where
		}
		switch f {
		case ruleset.CTState, ruleset.CTStateNAT, ruleset.SrcAddrType, ruleset.DstAddrType, ruleset.RouteBack, ruleset.RouteBackBy:
			return f.String() + where
		case ruleset.EtherSrc, ruleset.EtherDst, ruleset.IIFType:
			if at.hook == ruleset.Egress {
				return f.String() + where
			}
		case ruleset.Length, ruleset.NFProto:
			if (t.Family == ruleset.Netdev) == (f == ruleset.NFProto) {
				return f.String() + where
			}
		}
	}
	return ""
}

// ofTemplate says whether a step asks for, or changes, what only a connection has. Before tracking a packet has none, or one that stands for its zone and is not modelled: rules may
// have given it a mark that stays.
func ofTemplate(s ruleset.Step) bool {
	if _, is := s.(ruleset.SaveMark); is {
		return true
	}
	return slices.ContainsFunc(AskedFor(s), ruleset.Field.OfConnection)
}

// Why packets are the kernel's that have a zone and no connection yet, or get a zone when tracking is past.
const (
	zoneAlone   = "connection asked for that is but a zone"
	zoneLate    = "ct zone set behind connection tracking"
	zoneUnknown = "ct zone set" // the kernel's lookup knows no zones
)

// AskedFor are the fields that a step asks for.
func AskedFor(s ruleset.Step) []ruleset.Field {
	switch s := s.(type) {
	case ruleset.VerdictMap:
		return s.Key
	case ruleset.SetByMap:
		return s.Key
	case ruleset.SetField:
		return []ruleset.Field{s.From}
	}
	return fieldsOf(s)
}

// deviceOf is the device whose chains a hook calls, nil where chains belong to none.
func deviceOf(h ruleset.Hook, p *Packet) *Device {
	switch h {
	case ruleset.Ingress:
		return &p.IIF
	case ruleset.Egress:
		return &p.OIF
	}
	return nil
}
