// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/kstate/ipset"
	"github.com/shuntnet/shunt/internal/kstate/nftables"
	"github.com/shuntnet/shunt/internal/kstate/xtables"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// RuleReading is all rules and sets of a namespace, as they were at one moment for each of the kernel's rule engines.
type RuleReading struct {
	Ruleset ruleset.Ruleset
	Faults  []model.ReadFault // what could not be read at all
}

// ReadRules reads all rules and sets of the network namespace that the calling thread, which must be locked, is in. It has
// sockets of its own, so that a large rule set does not hold up a Reader. rec writes the questions and answers down; nil
// records nothing. A subsystem or table that is not there is not asked for, since the question would create it.
func ReadRules(rec *Recorder) *RuleReading {
	l := newLive()
	defer l.close()
	var k kernel = l
	if rec != nil {
		k = &recorded{kernel: l, rec: rec}
	}
	return readRules(k)
}

// ReplayRules gives the RuleReading of a recorded file. It needs no privilege.
func ReplayRules(path string) (*RuleReading, error) {
	k, err := openReplay(path)
	if err != nil {
		return nil, err
	}
	return readRules(k), nil
}

func readRules(k kernel) *RuleReading {
	out := &RuleReading{}
	r := newReader(Options{}, k)
	r.whole = true
	nft, err := r.readNFT()
	if err != nil {
		r.fault(Netfilter, "nf_tables", err)
		nft = &nftTables{dump: &nftables.Dump{}}
	}
	legacy, _ := r.readLegacy()
	r.faultNFT(nft)
	sets := r.readIPSets()
	r.translate(&out.Ruleset, nft, legacy, sets)
	if len(out.Ruleset.Tables) > 0 {
		hooks, err := r.readHooks(devicesOf(&out.Ruleset))
		if errors.Is(err, errNoHookList) {
			hooks, _ = r.walkHooks(false) // without it, chains keep what order is known
		} else if err != nil {
			r.fault(Netfilter, "netfilter hooks", err)
		}
		orderChains(&out.Ruleset, hooks)
		orderOnDevices(&out.Ruleset, hooks)
	}
	out.Faults = r.faults[Netfilter]
	return out
}

// readFilter gives the rule set for the Network: the one before, if nothing in it can have changed.
func (r *Reader) readFilter(nft *nftTables, legacy []*legacyTable, changed bool, hooks []rawHook) *ruleset.Ruleset {
	r.faultNFT(nft)
	sets := &ipset.Dump{}
	if nft.sets || slices.ContainsFunc(legacy, func(t *legacyTable) bool { return t.sets }) {
		sets = r.readIPSets()
	}
	same := func(a, b ipset.Set) bool {
		return a.Name == b.Name && a.Index == b.Index && a.Type == b.Type && a.Family == b.Family && a.Counters == b.Counters && a.Problem == b.Problem
	}
	if nft == r.filter.nft && slices.EqualFunc(sets.Sets, r.filter.sets.Sets, same) && sameHooks(hooks, r.filter.hooks) && (!changed || r.filter.followLegacy(legacy)) && r.filter.follow() {
		r.faults[Netfilter] = append(r.faults[Netfilter], r.filter.faults...)
		return r.filter.rules
	}
	r.filter = filter{nft: nft, sets: sets, hooks: hooks, legacy: legacy, memories: map[*legacyTable]*xtables.Memory{}}
	nft.changed, nft.refilled = map[int]bool{}, map[int]bool{}
	if len(nft.dump.Tables) == 0 && len(legacy) == 0 {
		return nil
	}
	out := &ruleset.Ruleset{}
	r.filter.translation = r.translate(out, nft, legacy, sets)
	orderChains(out, hooks)
	orderOnDevices(out, hooks)
	r.filter.rules = out
	r.filter.forget(0)
	r.filter.counters = len(out.Counters)
	return out
}

// faultNFT names what is in nf_tables but so broken that no rule set can hold it. It is a fault of every reading in which it is there, not only of the first.
func (r *Reader) faultNFT(nft *nftTables) {
	for _, err := range nft.bad {
		r.fault(Netfilter, "nf_tables", err)
	}
}

// filter is what the last rule set was made of.
type filter struct {
	nft         *nftTables
	sets        *ipset.Dump
	hooks       []rawHook
	rules       *ruleset.Ruleset
	translation *nftables.Translation
	counters    int               // that it had at first
	faults      []model.ReadFault // tables that are not in it, since they are not understood

	legacy   []*legacyTable
	xt       xtables.Context
	memories map[*legacyTable]*xtables.Memory
}

// followLegacy brings the rule set up to legacy tables in which something else is than at the last time; what is not changed is shared. False where it is better made anew.
func (f *filter) followLegacy(now []*legacyTable) bool {
	if f.rules == nil || len(now) != len(f.legacy) || len(f.rules.Counters) > 2*f.counters+1024 {
		return false
	}
	next := *f.rules
	next.Tables, next.Counters = slices.Clone(next.Tables), slices.Clone(next.Counters)
	for i, t := range now {
		old := f.legacy[i]
		if t == old {
			continue
		}
		family := t.rulesOf()
		at := slices.IndexFunc(next.Tables, func(x ruleset.Table) bool {
			return x.Dialect == ruleset.Legacy && x.Family == family && x.Name == t.name
		})
		memory := f.memories[old]
		if t.name != old.name || t.family != old.family || at < 0 || memory == nil {
			return false
		}
		f.xt.Six = t.family == model.IP6
		before := &next.Tables[at]
		table, err := xtables.FollowTable(t.blob, family, &f.xt, &next, memory, before)
		if err != nil || !inOrderOf(&table, before) {
			return false
		}
		next.Tables[at] = table
		delete(f.memories, old)
		f.memories[t] = memory
	}
	f.rules, f.legacy = &next, now
	f.translation.Continue(f.rules)
	return true
}

// inOrderOf gives the built-in chains of a table the places among others that they had; false if they are others. The hooks are the same, so nothing else tells where they are.
func inOrderOf(t, before *ruleset.Table) bool {
	for i := range t.Chains {
		b := t.Chains[i].Base
		if b == nil {
			continue
		}
		was := before.Chain(t.Chains[i].Name)
		if was == nil || was.Base == nil {
			return false
		}
		b.Order = was.Base.Order
		if slices.Contains(was.Base.Unknown, noOrder) {
			b.Unknown = append(b.Unknown, noOrder)
		}
	}
	return true
}

// rulesOf is the table's family as rules have it.
func (t *legacyTable) rulesOf() ruleset.Family {
	if t.family == model.IP6 {
		return ruleset.IP6
	}
	return ruleset.IP4
}

// follow brings the rule set up to what events of rules said; false where it is better made anew, since too many of its counters are of no use.
func (f *filter) follow() bool {
	if len(f.nft.changed)+len(f.nft.refilled) == 0 {
		return true
	}
	n := len(f.rules.Counters)
	if n > 2*f.counters+1024 {
		return false
	}
	next := f.translation.Follow(f.nft.dump, f.nft.changed, f.nft.refilled)
	if next == nil {
		return false
	}
	f.rules = next
	f.nft.changed, f.nft.refilled = map[int]bool{}, map[int]bool{}
	f.forget(n)
	return true
}

// forget sets counters to zero: what they stood at is none of the Network's business.
func (f *filter) forget(from int) {
	for i := range f.rules.Counters[from:] {
		c := &f.rules.Counters[from+i]
		c.Packets, c.Bytes = 0, 0
	}
}

func sameHooks(a, b []rawHook) bool {
	return slices.EqualFunc(a, b, func(a, b rawHook) bool {
		return a.Family == b.Family && a.Device == b.Device && a.Hook == b.Hook && a.Priority == b.Priority && a.Table == b.Table && a.Chain == b.Chain && a.Kind == b.Kind
	})
}

// translate brings all dialects into one rule set.
func (r *Reader) translate(out *ruleset.Ruleset, nft *nftTables, legacy []*legacyTable, sets *ipset.Dump) *nftables.Translation {
	byIndex := ipset.Translate(sets, out)
	xt := xtables.Context{
		Set: func(index uint16) (ruleset.SetID, *ruleset.Set) {
			if id, ok := byIndex[index]; ok {
				return id, &out.Sets[id]
			}
			return 0, nil
		},
		Member: func(id ruleset.SetID) *ruleset.Set { return &out.Sets[id] },
	}
	translation := nftables.Translate(nft.dump, out, xt)
	for _, t := range legacy {
		xt.Six = t.family == model.IP6
		memory := xtables.NewMemory()
		table, err := xtables.FollowTable(t.blob, t.rulesOf(), &xt, out, memory, nil)
		if err != nil {
			f := model.ReadFault{Part: fmt.Sprintf("legacy table %s of %s", t.name, t.family), Err: err.Error()}
			r.faults[Netfilter] = append(r.faults[Netfilter], f)
			r.filter.faults = append(r.filter.faults, f)
			continue
		}
		out.Tables = append(out.Tables, table)
		if r.filter.memories != nil {
			r.filter.memories[t] = memory
		}
	}
	r.filter.xt = xt
	return translation
}

// ipset's part of nfnetlink.
const (
	nfnlIPSet       = 6
	ipsetList       = 7
	ipsetGetByName  = 13
	ipsetProtocol   = 7
	ipsetAttrProto  = 1
	ipsetAttrName   = 2
	ipsetAttrFlags  = 6
	ipsetListHeader = 4 // IPSET_FLAG_LIST_HEADER: without elements
)

// readIPSets reads all sets: whole, or for the Network, which asks none of them by a copy, their heads.
func (r *Reader) readIPSets() *ipset.Dump {
	d := &ipset.Dump{Heads: !r.whole}
	if !r.loaded("ip_set") {
		return d
	}
	question := func(name string) []byte {
		return body(nil, func(ae *netlink.AttributeEncoder) {
			ae.Uint8(ipsetAttrProto, ipsetProtocol)
			switch {
			case name != "":
				ae.String(ipsetAttrName, name)
			case !r.whole:
				ae.Bytes(ipsetAttrFlags, []byte{0, 0, 0, ipsetListHeader})
			}
		})
	}
	err := r.ask("ipsets", func() error {
		*d = ipset.Dump{Heads: !r.whole}
		return r.k.netlink(asked(nfnlIPSet, ipsetList, unix.AF_INET, true, question("")), func(_ uint16, b []byte) error { return d.Add(b) })
	})
	if err != nil {
		r.fault(Netfilter, "ipsets", err)
		return &ipset.Dump{}
	}
	for i := range d.Sets {
		s := &d.Sets[i]
		if s.Index >= 0 {
			continue
		}
		err := r.k.netlink(asked(nfnlIPSet, ipsetGetByName, unix.AF_INET, false, question(s.Name)), func(_ uint16, b []byte) (err error) {
			s.Index, err = ipset.DecodeIndex(b)
			return err
		})
		if err != nil {
			r.fault(Netfilter, "index of ipset "+s.Name, err) // rules that name it say so, too
		}
	}
	return d
}

// devicesOf are the devices that chains name; what a pattern means is not known here, and its chains keep no order.
func devicesOf(rules *ruleset.Ruleset) (out []string) {
	seen := map[string]bool{}
	for i := range rules.Tables {
		for j := range rules.Tables[i].Chains {
			b := rules.Tables[i].Chains[j].Base
			if b == nil {
				continue
			}
			for _, d := range b.Devices {
				if !seen[d] && d[max(len(d)-1, 0):] != "*" {
					seen[d] = true
					out = append(out, d)
				}
			}
		}
	}
	return out
}
