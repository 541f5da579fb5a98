// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Families (NFPROTO_*).
const (
	familyInet   = 1
	familyIP4    = 2
	familyARP    = 3
	familyNetdev = 5
	familyBridge = 7
	familyIP6    = 10
)

// Dump is everything that nf_tables holds, of one generation. Problems say what of an object could not be decoded: sets by
// their index in Sets.
type Dump struct {
	Tables     []Table
	Chains     []Chain // with their rules
	Sets       []Set
	Objects    []Object
	Flowtables []Flowtable

	ChainProblems map[int][]string
	SetProblems   map[int]string

	places  map[setName]int // of chains
	scratch scratch
}

// Chain finds a chain; nil when there is none.
func (d *Dump) Chain(family byte, table, name string) *Chain {
	if len(d.places) != len(d.Chains) {
		d.places = make(map[setName]int, len(d.Chains))
		for i := range d.Chains {
			c := &d.Chains[i]
			d.places[setName{c.Family, c.Table, c.Name}] = i
		}
	}
	if i, ok := d.places[setName{family, table, name}]; ok {
		return &d.Chains[i]
	}
	return nil
}

type setName struct {
	family      byte
	table, name string
}

// Translation is a rule set made of a Dump, or in the making, and what a later change of the Dump's rules needs (Follow).
type Translation struct {
	out     *rs.Ruleset
	handles map[setName]uint64 // of tables
	sets    map[setName]*set
	objects map[setName]rs.CounterID
	xt      xtables.Context
	chains  []chainAt // by their index in the Dump
}

// chainAt is where a chain is in the rule set, and the rules that it had when it was translated.
type chainAt struct {
	table, chain int // table is negative for a chain that is nowhere
	rules        []*Rule
}

func (t *Translation) counter(at rs.CounterPlace, c *Counter) rs.CounterID {
	at.TableHandle = t.handles[setName{byte(at.Family), at.Table, ""}]
	t.out.Counters = append(t.out.Counters, rs.Counter{At: at, Packets: c.Packets, Bytes: c.Bytes})
	return rs.CounterID(len(t.out.Counters) - 1)
}

// Translate adds what nf_tables holds to a rule set. xt is for the matches and targets of iptables-nft.
func Translate(d *Dump, out *rs.Ruleset, xt xtables.Context) *Translation {
	t := &Translation{out: out, handles: map[setName]uint64{}, sets: map[setName]*set{}, objects: map[setName]rs.CounterID{}, xt: xt}
	for _, in := range d.Tables {
		t.handles[setName{in.Family, in.Name, ""}] = in.Handle
	}
	for i := range d.Sets {
		s := &d.Sets[i]
		t.sets[setName{s.Family, s.Table, s.Name}] = t.translateSet(s, d.SetProblems[i])
	}
	for i := range d.Objects {
		o := &d.Objects[i]
		if c, ok := o.Data.(*Counter); ok && o.Type == objectCounter {
			t.objects[setName{o.Family, o.Table, o.Name}] = t.counter(rs.CounterPlace{Kind: rs.NamedCounter, Family: rs.Family(o.Family), Table: o.Table, Handle: o.Handle, Name: o.Name}, c)
		}
	}
	tables := map[setName]int{}
	of := map[int]int{} // tables of the dump by their place in the rule set
	for i, in := range d.Tables {
		of[len(out.Tables)] = i
		tables[setName{in.Family, in.Name, ""}] = len(out.Tables)
		out.Tables = append(out.Tables, rs.Table{Dialect: rs.NFT, Family: rs.Family(in.Family), Name: in.Name, Dormant: in.Flags&tableDormant != 0})
	}
	for i := range d.Chains {
		in := &d.Chains[i]
		at, ok := tables[setName{in.Family, in.Table, ""}]
		if !ok {
			t.chains = append(t.chains, chainAt{table: -1}) // its table went during the dump; the generation says so
			continue
		}
		table := &out.Tables[at]
		chain := t.chain(in, d.ChainProblems[i])
		if f := d.Tables[of[at]].Flags &^ knownTableFlags; f != 0 && chain.Base != nil {
			chain.Base.Unknown = append(chain.Base.Unknown, fmt.Sprintf("table flags %#x", f))
		}
		t.chains = append(t.chains, chainAt{table: at, chain: len(table.Chains)})
		table.Chains = append(table.Chains, chain)
	}
	for i := range d.Chains {
		if at := &t.chains[i]; at.table >= 0 {
			at.rules = slices.Clone(d.Chains[i].Rules)
			out.Tables[at.table].Chains[at.chain].Rules = t.rules(at.rules, nil, nil)
		}
	}
	t.suspect(d)
	return t
}

// suspect takes sets for changed by rules if a rule of their table is not understood: it may be the one that does it. One that says itself that it does, or not even what it is,
// may do it to any set but a constant one, whatever else its flags say (nft_dynset_init()), others to those that say so. Of the rest dynset() knows; the flag alone means
// nothing, since elements can be added by commands too.
func (t *Translation) suspect(d *Dump) {
	strange, filler := map[setName]bool{}, map[setName]bool{}
	for i := range d.Chains {
		c := &d.Chains[i]
		table := setName{c.Family, c.Table, ""}
		for _, r := range c.Rules {
			strange[table] = strange[table] || r.Problem != "" || slices.ContainsFunc(r.Exprs, opaque)
			filler[table] = filler[table] || r.Problem != "" || slices.ContainsFunc(r.Exprs, mayFill)
		}
	}
	for name, s := range t.sets {
		table := setName{name.family, name.table, ""}
		if filler[table] && s.Flags&SetConstant == 0 || strange[table] && s.Flags&SetEval != 0 {
			t.out.Sets[s.id].Dynamic = true
		}
	}
}

// mayFill says whether an expression that is not understood is one that fills a set, or of no known kind at all.
func mayFill(e Expr) bool {
	o, is := e.(*Opaque)
	return is && (o.Name == "dynset" || o.Name == "malformed")
}

func opaque(e Expr) bool { _, is := e.(*Opaque); return is }

// rules translates the rules of a chain, but for those at its beginning and at its end that were there before.
func (t *Translation) rules(in, before []*Rule, translated []rs.Rule) []rs.Rule {
	if len(in) == 0 {
		return nil
	}
	first, last := 0, 0 // so many are the same
	for first < min(len(in), len(before)) && in[first] == before[first] {
		first++
	}
	for last < min(len(in), len(before))-first && in[len(in)-1-last] == before[len(before)-1-last] {
		last++
	}
	out := make([]rs.Rule, len(in))
	copy(out, translated[:first])
	next := first // of those before; what stays keeps its order
	for i := first; i < len(in)-last; i++ {
		if was := slices.Index(before[next:], in[i]); was >= 0 {
			next += was + 1
			out[i] = translated[next-1]
		} else {
			out[i] = t.rule(in[i])
		}
	}
	copy(out[len(in)-last:], translated[len(before)-last:])
	for i := range out {
		out[i].Number = i + 1
	}
	return out
}

const (
	tableDormant     = 0x1
	tableOwner       = 0x2 // who may change it
	tablePersist     = 0x4
	knownTableFlags  = tableDormant | tableOwner | tablePersist
	chainBase        = 0x1
	chainHardware    = 0x2
	chainBinding     = 0x4
	knownChainFlags  = chainBase | chainBinding
	hookInetIngress  = 5
	hookNetdevEgress = 1
)

func (t *Translation) chain(in *Chain, problems []string) rs.Chain {
	out := rs.Chain{Name: in.Name, Handle: in.Handle}
	if !in.Base {
		return out
	}
	b := &rs.Base{Priority: in.Priority, Type: in.Type, Policy: rs.Accept, Counter: rs.NoCounter, Devices: in.Devices, Unknown: problems}
	if in.Policy == nfDrop {
		b.Policy = rs.Drop
	}
	if in.Counter != nil {
		b.Counter = t.counter(rs.CounterPlace{Kind: rs.PolicyCounter, Family: rs.Family(in.Family), Table: in.Table, Chain: in.Name, Handle: in.Handle}, in.Counter)
	}
	var known bool
	if b.Hook, known = hook(in.Family, in.Hook); !known {
		b.Unknown = append(b.Unknown, fmt.Sprintf("hook %d", in.Hook))
	}
	if in.Flags&chainHardware != 0 {
		b.Unknown = append(b.Unknown, "hardware offload")
	}
	if f := in.Flags &^ (knownChainFlags | chainHardware); f != 0 {
		b.Unknown = append(b.Unknown, fmt.Sprintf("flags %#x", f))
	}
	switch in.Type {
	case "filter", "nat", "route":
	case "":
		b.Type = "filter"
	default:
		b.Unknown = append(b.Unknown, fmt.Sprintf("chain type %q", in.Type))
	}
	out.Base = b
	return out
}

// hook names a hook number, which means another in each family.
func hook(family byte, num uint32) (rs.Hook, bool) {
	hooks := []rs.Hook{rs.Prerouting, rs.Input, rs.Forward, rs.Output, rs.Postrouting}
	switch family {
	case familyNetdev:
		hooks = []rs.Hook{rs.Ingress, rs.Egress}
	case familyInet:
		hooks = append(hooks, rs.Ingress)
	case familyARP:
		hooks = []rs.Hook{rs.Input, rs.Output, rs.Forward}
	}
	if int(num) < len(hooks) {
		return hooks[num], true
	}
	return rs.Ingress, false
}

// rule runs a rule on symbols.
func (t *Translation) rule(in *Rule) rs.Rule {
	m := &machine{t: t, rule: in, facts: facts{family: in.Family, l4: -1}}
	switch in.Family {
	case familyIP4:
		m.facts.proto = 4
	case familyIP6:
		m.facts.proto = 6
	}
	m.steps = make([]rs.Step, 0, len(in.Exprs))
	if in.Problem != "" {
		m.unknown("malformed", in.Problem)
	}
	for _, e := range in.Exprs {
		m.eval(e)
	}
	m.ends()
	text := m.words.String()
	if in.Comment != "" {
		text += fmt.Sprintf(" comment %q", in.Comment)
	}
	return rs.Rule{Handle: in.Handle, Text: text, Steps: m.steps}
}

// note keeps what was wrong with an object.
func (d *Dump) note(problems *map[int]string, i int, err error) {
	if *problems == nil {
		*problems = map[int]string{}
	}
	(*problems)[i] = err.Error()
}

// The Add functions take in a message each. What of it could not be decoded is kept with its object, where that can be told;
// else it is the error.

// AddTable takes in NFT_MSG_NEWTABLE.
func (d *Dump) AddTable(b []byte) error {
	t, err := decodeTable(b)
	if t.Name != "" {
		d.Tables = append(d.Tables, t)
	}
	return err
}

// AddObject takes in NFT_MSG_NEWOBJ.
func (d *Dump) AddObject(b []byte) error {
	o, err := decodeObject(b)
	if o.Name != "" {
		d.Objects = append(d.Objects, o)
	}
	return err
}

// AddFlowtable takes in NFT_MSG_NEWFLOWTABLE.
func (d *Dump) AddFlowtable(b []byte) error {
	f, err := decodeFlowtable(b)
	if f.Name != "" {
		d.Flowtables = append(d.Flowtables, f)
	}
	return err
}

// AddRule takes in NFT_MSG_NEWRULE of a dump. Its chain was taken in before; a rule of one that was not is left out.
func (d *Dump) AddRule(b []byte) error {
	r, err := d.scratch.rule(b)
	if r.Table == "" || r.Chain == "" {
		return err
	}
	if err != nil {
		r.Problem = err.Error()
	}
	if c := d.Chain(r.Family, r.Table, r.Chain); c != nil {
		c.Rules = append(c.Rules, &r)
	}
	return nil
}

// AddChain takes in NFT_MSG_NEWCHAIN.
func (d *Dump) AddChain(b []byte) error {
	c, err := decodeChain(b)
	if c.Table == "" || c.Name == "" {
		return err
	}
	if err != nil {
		if d.ChainProblems == nil {
			d.ChainProblems = map[int][]string{}
		}
		d.ChainProblems[len(d.Chains)] = []string{err.Error()}
	}
	d.Chains = append(d.Chains, c)
	return nil
}

// AddSet takes in NFT_MSG_NEWSET.
func (d *Dump) AddSet(b []byte) error {
	s, err := decodeSet(b)
	if s.Table == "" || s.Name == "" {
		return err
	}
	if err != nil {
		d.note(&d.SetProblems, len(d.Sets), err)
	}
	d.Sets = append(d.Sets, s)
	return nil
}

// AddElements takes in NFT_MSG_NEWSETELEM of a set by its index.
func (d *Dump) AddElements(set int, b []byte) error {
	elements, err := decodeElements(b)
	if err != nil && d.SetProblems[set] == "" {
		d.note(&d.SetProblems, set, err)
	}
	d.Sets[set].Elements = append(d.Sets[set].Elements, elements...)
	return nil
}
