// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Outcome is what becomes of a packet.
type Outcome uint8

// The outcomes. Slow leaves the packet, its counters and its fields to the kernel.
const (
	Accepted Outcome = iota
	Dropped
	IsSlow
)

func (o Outcome) String() string { return [...]string{"accept", "drop", "slow"}[o] }

// Result is what a rule set does to a packet.
type Result struct {
	Outcome Outcome
	By      Ref    // the rule or policy that dropped it or made it slow
	Why     string // for IsSlow: "log", "match limit", "chain …"
	Counted []Counted

	// For Accepted: what the packet carries afterwards, and the mark that its route was looked up with.
	Mark, RouteMark uint32
	DSField         uint8
	Untracked       bool
	Zone            ruleset.SetZone // where its connection was looked up, if rules said so; else Dir is 0
}

// Counted is a counter that moves: one packet and that many bytes.
type Counted struct {
	Counter ruleset.CounterID
	Bytes   int
}

// Interpreter is the reference: it follows the kernel's steps.
type Interpreter struct {
	ix    *index
	paths map[ruleset.Family][]called
}

// NewInterpreter prepares a rule set. The rule set is not copied and must not change.
func NewInterpreter(rs *ruleset.Ruleset) *Interpreter {
	ix := newIndex(rs)
	return &Interpreter{ix, map[ruleset.Family][]called{ruleset.IP4: ix.path(ruleset.IP4, false), ruleset.IP6: ix.path(ruleset.IP6, false)}}
}

// run is one packet's way through the rules.
type run struct {
	walk
	*Interpreter
	res   Result
	table *ruleset.Table
	at    place
	met   *[]Ref // the rules whose tests all held, in order; nil if nobody asks
	goOn  bool   // past chains of NAT of which no rule holds for what begins a connection: the packet is not translated there
	seen  int    // rules so far
}

// TooFar is Result.Why where a packet meets more rules than are followed: chains that are called from many places, which call others, lead it past more than anybody can wait for.
// Linux would take as long.
const TooFar = "a packet that meets more rules than are followed"

const (
	mostSeen = 1 << 18 // rules; some 20 ms
	mostMet  = 1 << 12 // to be named
)

func (r *run) tooFar() bool {
	r.seen++
	return r.seen > mostSeen || r.met != nil && len(*r.met) >= mostMet
}

// Run takes a forwarded packet through every hook. One whose TTL is used up is slow before any rule: it is not forwarded.
func (in *Interpreter) Run(p Packet) Result { return in.way(p, nil, false).res }

// Trace is Run, and names the rules on the way: those whose tests all held, and the policies that were asked, the last to decide last.
func (in *Interpreter) Trace(p Packet) (res Result, met []Ref) {
	res = in.way(p, &met, false).res
	return res, met
}

// Follow is Trace for people: what begins a connection is the kernel's where chains of NAT stand on its way, but unless one of their rules holds for it they leave it
// as it is, and what becomes of it is told by the chains behind them.
func (in *Interpreter) Follow(p Packet) (res Result, met []Ref) {
	res = in.way(p, &met, true).res
	return res, met
}

// Zone is where rules have a packet's connection looked up, as far as it comes without them leaving it to the kernel; Dir is 0 where they say nothing.
func (in *Interpreter) Zone(p Packet) ruleset.SetZone { return in.way(p, nil, false).zone }

// way takes a packet through every hook.
func (in *Interpreter) way(p Packet, met *[]Ref, goOn bool) *run {
	family := ruleset.IP6
	if p.Src.Is4() {
		family = ruleset.IP4
	}
	r := &run{walk: begin(&p), Interpreter: in, met: met, goOn: goOn}
	if p.TTL <= 1 {
		r.slow(Ref{}, "ttl")
		return r
	}
	r.res.RouteMark = p.Mark
	for _, c := range in.paths[family] {
		if d := deviceOf(c.place.hook, &p); d != nil && !c.chain.Base.On(d.Name) {
			continue
		}
		if code := r.base(c); code != ruleset.Accept {
			return r
		}
		if !routed(c.place.hook) {
			r.res.RouteMark = r.mark
		}
	}
	r.res.Mark, r.res.DSField, r.res.Untracked = r.mark, r.ds, r.untracked
	r.res.Zone = r.zone
	return r
}

func (r *run) slow(by Ref, why string) ruleset.Code {
	r.res = Result{Outcome: IsSlow, By: by, Why: why}
	return slowCode
}

// slowCode is a verdict besides the kernel's own: leave the packet to it.
const slowCode ruleset.Code = 255

// base is a hook's call of a base chain: Accept, Drop or slowCode.
func (r *run) base(c called) ruleset.Code {
	by := Ref{Table: c.table, Chain: c.chain}
	r.table, r.at = c.table, c.place
	if c.slow != "" {
		return r.slow(by, c.slow)
	}
	if c.chain.Base.Type == "nat" {
		state, _ := r.connection(c.place.tracked)
		switch begins := state == ruleset.CTNew || state == ruleset.CTRelated; {
		case begins && !r.goOn:
			return r.slow(by, "nat")
		case !begins:
			return ruleset.Accept // the connection's mapping is settled; without a connection there is none (nf_nat_inet_fn)
		}
	}
	code := r.chain(c.chain)
	if code == ruleset.Return {
		r.meets(by)
		r.count(c.chain.Base.Counter)
		code = c.chain.Base.Policy
		if code == ruleset.Drop {
			r.drop(by)
		}
	}
	return code
}

func (r *run) meets(by Ref) {
	if r.met != nil {
		*r.met = append(*r.met, by)
	}
}

func (r *run) drop(by Ref) {
	r.res = Result{Outcome: Dropped, By: by, Counted: r.res.Counted} // nothing leaves, so nothing else counts
}

func (r *run) count(c ruleset.CounterID) {
	if c != ruleset.NoCounter {
		r.res.Counted = append(r.res.Counted, Counted{c, r.p.bytes(r.at.hook)})
	}
}

// chain evaluates a chain's rules: Accept, Drop, slowCode, or Return at its end.
func (r *run) chain(c *ruleset.Chain) ruleset.Code {
	for i := range c.Rules {
		by := Ref{r.table, c, &c.Rules[i]}
		if r.tooFar() {
			return r.slow(by, TooFar)
		}
		verdict := r.rule(by)
		switch verdict.Code {
		case ruleset.Continue:
			continue
		case ruleset.Drop:
			r.drop(by)
			return ruleset.Drop
		case ruleset.Jump, ruleset.Goto:
			next := r.ix.chains[r.table][verdict.Chain]
			if next == nil {
				return r.slow(by, "chain "+verdict.Chain+" is missing")
			}
			code := r.chain(next)
			if verdict.Code == ruleset.Jump && code == ruleset.Return {
				continue
			}
			return code
		}
		return verdict.Code
	}
	return ruleset.Return
}

// rule evaluates one rule's steps.
func (r *run) rule(by Ref) ruleset.Verdict {
	verdict, failed := r.steps(by)
	if !failed {
		r.meets(by)
	}
	return verdict
}

// steps gives a rule's verdict, and whether a test failed.
func (r *run) steps(by Ref) (v ruleset.Verdict, failed bool) {
	for i, s := range by.Rule.Steps {
		if why := atDevice(s, r.at, r.table); why != "" {
			return ruleset.Verdict{Code: r.slow(by, why)}, false
		}
		if why := r.onFrame(s); why != "" {
			return ruleset.Verdict{Code: r.slow(by, why)}, false
		}
		if state, _ := r.connection(r.at.tracked); state == ruleset.CTNew && !r.at.tracked && ofTemplate(s) {
			return ruleset.Verdict{Code: r.slow(by, zoneAlone)}, false
		}
		switch s := s.(type) {
		case ruleset.Test:
			if ok, p := r.test(s); p == unseen {
				return ruleset.Verdict{Code: r.slow(by, "ports of another protocol")}, false
			} else if !ok {
				return v, true
			}
		case ruleset.AnyTest:
			any := false
			for _, t := range s.Of {
				ok, p := r.test(t)
				if p == unseen {
					return ruleset.Verdict{Code: r.slow(by, "ports of another protocol")}, false
				}
				any = any || ok
			}
			if any == s.Not {
				return v, true
			}
		case ruleset.Lookup:
			ok, why := r.lookupStep(s)
			if why != "" {
				return ruleset.Verdict{Code: r.slow(by, why)}, false
			} else if !ok {
				return v, true
			}
		case ruleset.Count:
			r.count(s.Counter)
		case ruleset.SetField:
			r.apply(s, r.at)
		case ruleset.SaveMark:
			if !r.saved(s, r.at) {
				return ruleset.Verdict{Code: r.slow(by, newMark)}, false
			}
		case ruleset.SetByMap:
			l := ruleset.Lookup{Set: s.Set, Key: s.Key}
			if why := r.ix.unmapped(s); why != "" {
				return ruleset.Verdict{Code: r.slow(by, why)}, false
			} else if r.unseen(l) {
				return ruleset.Verdict{Code: r.slow(by, "ports of another protocol")}, false
			}
			_, e, _ := r.lookup(r.ix.rs, l, r.ask)
			if e == nil {
				return v, true
			}
			if s.Field != ruleset.CTZone {
				r.apply(ruleset.SetField{Field: s.Field, Xor: uint32(e.Data.Lo)}, r.at)
			} else if !r.zoned(by, zoneOfMap(e)) {
				return ruleset.Verdict{Code: slowCode}, false
			}
		case ruleset.NoTrack:
			r.notrack(r.at.tracked)
		case ruleset.SetZone:
			if !r.zoned(by, s) {
				return ruleset.Verdict{Code: slowCode}, false
			}
		case ruleset.Verdict:
			if s.Code != ruleset.Continue {
				return s, false
			}
		case ruleset.VerdictMap:
			if i != len(by.Rule.Steps)-1 {
				return ruleset.Verdict{Code: r.slow(by, "steps behind a verdict map")}, false
			}
			return r.verdictMap(by, s)
		case ruleset.Unknown:
			return ruleset.Verdict{Code: r.slow(by, s.Name)}, false
		case ruleset.Slow:
			return ruleset.Verdict{Code: r.slow(by, s.Name)}, false
		default:
			return ruleset.Verdict{Code: r.slow(by, "unknown step")}, false
		}
	}
	return v, false
}

// zoned is a SetZone step. False where the packet is the kernel's: behind tracking it is given to packets that have no connection, and says where nobody looks any more.
func (r *run) zoned(by Ref, s ruleset.SetZone) bool {
	if !r.at.tracked {
		r.setZone(s)
		return true
	}
	_, c := r.connection(true)
	if c == nil {
		r.slow(by, zoneLate)
	}
	return c != nil
}

func (r *run) ask(f ruleset.Field) (ruleset.Value, presence) { return r.field(f, r.at) }

func (r *run) test(t ruleset.Test) (bool, presence) {
	v, p := r.ask(t.Field)
	return p == there && satisfied(t, v), p
}

// satisfied is a test of a value that is there.
func satisfied(t ruleset.Test, v ruleset.Value) bool {
	if t.Mask != (ruleset.Value{}) {
		v = v.And(t.Mask)
	}
	return contains(t.Ranges, v) != t.Not
}

// lookupStep is a set match: whether it holds, or why it cannot be decided.
func (r *run) lookupStep(l ruleset.Lookup) (bool, string) {
	if why := r.ix.unsure(l); why != "" {
		return false, why
	}
	if r.unseen(l) {
		return false, "ports of another protocol"
	}
	in, e, p := r.lookup(r.ix.rs, l, r.ask)
	nft := r.ix.rs.Sets[l.Set].Dialect == ruleset.NFT
	if p == absent && nft {
		return false, ""
	}
	if e != nil && (!nft || !l.Not) {
		r.count(e.Counter)
	}
	return in != l.Not, ""
}

// unseen says whether the kernel would look up bytes that are not known here.
func (r *run) unseen(l ruleset.Lookup) bool {
	return slices.ContainsFunc(fieldsOf(l), func(f ruleset.Field) bool { _, p := r.ask(f); return p == unseen })
}

func (r *run) verdictMap(by Ref, m ruleset.VerdictMap) (v ruleset.Verdict, failed bool) {
	l := m.Lookup()
	if why := r.ix.unsure(l); why != "" {
		return ruleset.Verdict{Code: r.slow(by, why)}, false
	}
	if r.unseen(l) {
		return ruleset.Verdict{Code: r.slow(by, "ports of another protocol")}, false
	}
	_, e, _ := r.lookup(r.ix.rs, l, r.ask)
	switch {
	case e == nil:
		return v, true
	case e.Verdict == nil:
		return ruleset.Verdict{Code: r.slow(by, "element without a verdict")}, false
	}
	r.count(e.Counter)
	return *e.Verdict, false
}
