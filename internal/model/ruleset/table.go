// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Ruleset is everything that the rules of one network namespace say. SetID and CounterID are indexes into it.
type Ruleset struct {
	Tables   []Table
	Sets     []Set
	Counters []Counter
}

// Dialect says through which interface of the kernel a table came.
type Dialect uint8

// The dialects. iptables-nft is NFT with xt expressions in it.
const (
	NFT    Dialect = iota // nf_tables netlink
	Legacy                // getsockopt IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES
	IPSet                 // ipset netlink, for sets only
)

// Family is the family of a table, numbered as NFPROTO_*.
type Family uint8

// The families.
const (
	Inet   Family = 1 // IPv4 and IPv6
	IP4    Family = 2
	ARP    Family = 3
	Netdev Family = 5
	Bridge Family = 7
	IP6    Family = 10
)

func (f Family) String() string {
	return map[Family]string{Inet: "inet", IP4: "ip", ARP: "arp", Netdev: "netdev", Bridge: "bridge", IP6: "ip6"}[f]
}

// Table is a namespace of chains: a verdict can only name chains of its own table.
type Table struct {
	Dialect Dialect
	Family  Family
	Name    string
	Dormant bool // its base chains are not registered (NFT_TABLE_F_DORMANT)
	Chains  []Chain
}

// Chain is a list of rules: a base chain, which a hook calls, or a user chain, which only verdicts reach. Reaching the end of a
// user chain returns; reaching the end of a base chain is its policy.
type Chain struct {
	Name   string
	Handle uint64 // nf_tables; 0 in legacy tables
	Base   *Base  // nil for a user chain
	Rules  []Rule
}

// Hook is a place in the path of a packet where base chains are called.
type Hook uint8

// The hooks. Input and Output are not met by forwarded packets. Ingress is that of the families netdev and inet, Egress of netdev.
const (
	Ingress Hook = iota + 1
	Prerouting
	Input
	Forward
	Output
	Postrouting
	Egress
)

func (h Hook) String() string {
	return [...]string{"", "ingress", "prerouting", "input", "forward", "output", "postrouting", "egress"}[h]
}

// Base is how a base chain is called.
type Base struct {
	Hook     Hook
	Priority int32
	// Order tells base chains of one hook and priority apart: smaller is called earlier. The kernel puts what is registered later
	// first (nf_hook_entries_grow); nfnetlink_hook lists them in the order of the calls.
	Order int
	// Type is "filter", "nat" or "route"; legacy tables: "nat" for the table nat, else "filter". A nat chain sees only packets that
	// begin a connection (nf_nat_inet_fn).
	Type    string
	Policy  Code      // Accept or Drop
	Counter CounterID // of the policy: packets that reach the end or return; NoCounter if there is none
	Devices []string  // families netdev and inet ingress: only packets of these devices; a trailing * is a wildcard
	Unknown []string  // attributes and flags not understood, hardware offload: the packets that meet the chain are slow
}

// On says whether a base chain of single devices is called for packets of that one.
func (b *Base) On(device string) bool {
	return slices.ContainsFunc(b.Devices, func(name string) bool {
		begin, wild := strings.CutSuffix(name, "*")
		return name == device || wild && strings.HasPrefix(device, begin)
	})
}

// Rule is a list of steps; the first test that fails ends it, and the next rule follows.
type Rule struct {
	Handle uint64 // nf_tables handle, unique in its table; 0 in legacy tables
	Number int    // place in the chain, from 1, as `iptables -L --line-numbers` counts
	Text   string // as its user would write it, as far as that can be said, comment included
	Steps  []Step
}

// CounterID is an index into Ruleset.Counters.
type CounterID int32

// NoCounter stands for no counter.
const NoCounter CounterID = -1

// Counter is a counter of packets and bytes.
type Counter struct {
	At      CounterPlace
	Packets uint64 // as last read
	Bytes   uint64 // as last read
}

// CounterPlace says where in the kernel's interface a counter lives.
type CounterPlace struct {
	Kind   CounterKind
	Family Family
	Table  string
	// TableHandle tells an nf_tables table from one of the same name that was there before: a namespace never gives it again, and its table
	// no other handle.
	TableHandle uint64
	Chain       string // RuleCounter, PolicyCounter
	Handle      uint64 // nf_tables: the rule's, chain's, object's or set's handle
	Index       int    // RuleCounter: which of the rule's counter expressions, from 0. LegacyCounter: the entry's number in the table's blob, from 0
	Name        string // NamedCounter: the object's. ElementCounter: the set's. RuleCounter: what tells the rule from one with its handle that it replaced
	Key         []Range
}

// CounterKind tells the places of counters apart.
type CounterKind uint8

// The kinds of counters.
const (
	RuleCounter    CounterKind = iota // nf_tables: counter expression of a rule
	NamedCounter                      // nf_tables: counter object, shared by rules
	PolicyCounter                     // nf_tables: NFTA_CHAIN_COUNTERS of a base chain
	LegacyCounter                     // legacy tables: struct xt_counters of an entry, policies included
	ElementCounter                    // element of a set
)

// Table finds a table; nil when there is none.
func (r *Ruleset) Table(family Family, name string) *Table {
	for i := range r.Tables {
		if t := &r.Tables[i]; t.Family == family && t.Name == name {
			return t
		}
	}
	return nil
}

// Chain finds a chain; nil when there is none.
func (t *Table) Chain(name string) *Chain {
	for i := range t.Chains {
		if t.Chains[i].Name == name {
			return &t.Chains[i]
		}
	}
	return nil
}

// Identities are the places of all counters as they stay the same while other rules come and go: one of nf_tables is known by handles; a rule of a
// legacy table, which the kernel knows by its place in the table alone, by its chain, its text and how many of that text come before it there.
func (r *Ruleset) Identities() []CounterPlace {
	out := make([]CounterPlace, len(r.Counters))
	for i := range r.Counters {
		out[i] = r.Counters[i].At
	}
	for i := range r.Tables {
		t := &r.Tables[i]
		if t.Dialect != Legacy {
			continue
		}
		for j := range t.Chains {
			c := &t.Chains[j]
			if c.Base != nil && c.Base.Counter != NoCounter {
				out[c.Base.Counter].Index = 0
			}
			seen := map[string]int{}
			for k := range c.Rules {
				rule := &c.Rules[k]
				seen[rule.Text]++
				for _, s := range rule.Steps {
					if n, ok := s.(Count); ok && n.Counter != NoCounter {
						out[n.Counter].Name, out[n.Counter].Index = rule.Text, seen[rule.Text]
					}
				}
			}
		}
	}
	return out
}

// IdentitiesOf are those of some counters.
func (r *Ruleset) IdentitiesOf(ids []CounterID) []CounterPlace {
	out := make([]CounterPlace, len(ids))
	asked := map[CounterID]int{} // those of legacy tables
	for i, id := range ids {
		if out[i] = r.Counters[id].At; out[i].Kind == LegacyCounter {
			asked[id] = i
		}
	}
	for i := range r.Tables {
		if r.Tables[i].Dialect != Legacy || len(asked) == 0 {
			continue
		}
		for j := range r.Tables[i].Chains {
			r.Tables[i].Chains[j].identify(asked, out)
		}
	}
	return out
}

// identify gives the identities of the counters of a legacy table's chain that are asked for.
func (c *Chain) identify(asked map[CounterID]int, out []CounterPlace) {
	if c.Base != nil && c.Base.Counter != NoCounter {
		if at, ok := asked[c.Base.Counter]; ok {
			out[at].Index = 0
		}
	}
	seen := map[string]int{} // how often texts that are asked for were met
	each := func(take func(r *Rule, id CounterID)) {
		for i := range c.Rules {
			for _, s := range c.Rules[i].Steps {
				if n, ok := s.(Count); ok && n.Counter != NoCounter {
					take(&c.Rules[i], n.Counter)
				}
			}
		}
	}
	each(func(r *Rule, id CounterID) {
		if _, ok := asked[id]; ok {
			seen[r.Text] = 0
		}
	})
	if len(seen) == 0 {
		return
	}
	each(func(r *Rule, id CounterID) {
		if n, ok := seen[r.Text]; ok {
			seen[r.Text] = n + 1
			if at, ok := asked[id]; ok {
				out[at].Name, out[at].Index = r.Text, n+1
			}
		}
	})
}

// ID is a name of a place, equal for equal places and for no others.
func (p *CounterPlace) ID() string {
	b := append(make([]byte, 0, 96), byte(p.Kind), byte(p.Family))
	for _, s := range []string{p.Table, p.Chain, p.Name} {
		b = append(append(b, s...), 0)
	}
	for _, n := range []uint64{p.TableHandle, p.Handle, uint64(p.Index)} {
		b = append(strconv.AppendUint(b, n, 36), ' ')
	}
	for _, r := range p.Key {
		b = fmt.Append(b, r)
	}
	return string(b)
}

// ReadID gives from an ID what tells where its counter is. False for what is none.
func ReadID(id string) (p CounterPlace, ok bool) {
	if len(id) < 2 {
		return p, false
	}
	words := strings.SplitN(id[2:], "\x00", 4)
	if len(words) < 4 {
		return p, false
	}
	return CounterPlace{Kind: CounterKind(id[0]), Family: Family(id[1]), Table: words[0], Chain: words[1], Name: words[2]}, true
}

// Amount is a number of packets and their bytes.
type Amount struct{ Packets, Bytes uint64 }

// Add gives the sum.
func (a Amount) Add(b Amount) Amount { return Amount{a.Packets + b.Packets, a.Bytes + b.Bytes} }
