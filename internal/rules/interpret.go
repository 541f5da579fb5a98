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

	before uint32 // the mark before the route
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

// RouteMark is the mark that a packet's route is looked up with, as far as it comes without rules leaving it to the kernel; what begins a connection is taken for not translated.
func (in *Interpreter) RouteMark(p Packet) uint32 { return in.way(p, nil, true).before }

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
	r.before = p.Mark
	for _, c := range in.paths[family] {
		if d := deviceOf(c.place.hook, &p); d != nil && !c.chain.Base.On(d.Name) {
			continue
		}
		if code := r.base(c); code != ruleset.Accept {
			return r
		}
		if !routed(c.place.hook) {
			r.before = r.mark
		}
	}
	r.res.Mark, r.res.RouteMark, r.res.DSField, r.res.Untracked = r.mark, r.before, r.ds, r.untracked
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
	last := len(by.Rule.Steps) - 1
	for i, s := range by.Rule.Steps {
		if why := r.misplaced(s); why != "" {
			return r.leave(by, why), false
		}
		holds, why := true, "" // why nobody but the kernel can tell
		switch s := s.(type) {
		case ruleset.Test:
			holds, why = r.test(s)
		case ruleset.AnyTest:
			holds, why = r.anyTest(s)
		case ruleset.Lookup:
			holds, why = r.lookupStep(s)
		case ruleset.Count:
			r.count(s.Counter)
		case ruleset.SetField:
			r.apply(s, r.at)
		case ruleset.SaveMark:
			if !r.saved(s, r.at) {
				why = newMark
			}
		case ruleset.SetByMap:
			holds, why = r.setByMap(s)
		case ruleset.NoTrack:
			r.notrack(r.at.tracked)
		case ruleset.SetZone:
			why = r.zoned(s)
		case ruleset.Verdict:
			if s.Code != ruleset.Continue {
				return s, false
			}
		case ruleset.VerdictMap:
			if i != last {
				return r.leave(by, "steps behind a verdict map"), false
			}
			return r.verdictMap(by, s)
		case ruleset.Unknown: // which need not have a name
			return r.leave(by, s.Name), false
		case ruleset.Slow:
			return r.leave(by, s.Name), false
		default:
			return r.leave(by, "unknown step"), false
		}
		switch {
		case why != "":
			return r.leave(by, why), false
		case !holds:
			return v, true
		}
	}
	return v, false
}

// leave is the verdict of a rule that only the kernel can evaluate.
func (r *run) leave(by Ref, why string) ruleset.Verdict {
	return ruleset.Verdict{Code: r.slow(by, why)}
}

// misplaced says why a step is the kernel's where the packet meets it, "" if it is not.
func (r *run) misplaced(s ruleset.Step) string {
	if why := atDevice(s, r.at, r.table); why != "" {
		return why
	}
	if why := r.onFrame(s); why != "" {
		return why
	}
	if state, _ := r.connection(r.at.tracked); state == ruleset.CTNew && !r.at.tracked && ofTemplate(s) {
		return zoneAlone
	}
	return ""
}

// zoned is a SetZone step. Behind tracking packets without a connection are the kernel's: they are given the zone, where nobody looks any more.
func (r *run) zoned(s ruleset.SetZone) (why string) {
	if !r.at.tracked {
		r.setZone(s)
	} else if _, c := r.connection(true); c == nil {
		return zoneLate
	}
	return ""
}

// setByMap sets a field to what a map gives; it does not hold where that is nothing.
func (r *run) setByMap(s ruleset.SetByMap) (holds bool, why string) {
	if why := r.ix.unmapped(s); why != "" {
		return false, why
	}
	l := ruleset.Lookup{Set: s.Set, Key: s.Key}
	if r.unseen(l) {
		return false, otherPorts
	}
	_, e, _ := r.lookup(r.ix.rs, l, r.ask)
	switch {
	case e == nil:
		return false, ""
	case s.Field == ruleset.CTZone:
		return true, r.zoned(zoneOfMap(e))
	}
	r.apply(ruleset.SetField{Field: s.Field, Xor: uint32(e.Data.Lo)}, r.at)
	return true, ""
}

func (r *run) ask(f ruleset.Field) (ruleset.Value, presence) { return r.field(f, r.at) }

// test is a test: whether it holds, or why it cannot be decided.
func (r *run) test(t ruleset.Test) (bool, string) {
	v, p := r.ask(t.Field)
	if p == unseen {
		return false, otherPorts
	}
	return p == there && satisfied(t, v), ""
}

func (r *run) anyTest(s ruleset.AnyTest) (bool, string) {
	some := false
	for _, t := range s.Of { // all of them: what one asks for may not be known where another holds
		ok, why := r.test(t)
		if why != "" {
			return false, why
		}
		some = some || ok
	}
	return some != s.Not, ""
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
		return false, otherPorts
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
		return r.leave(by, why), false
	}
	if r.unseen(l) {
		return r.leave(by, otherPorts), false
	}
	_, e, _ := r.lookup(r.ix.rs, l, r.ask)
	switch {
	case e == nil:
		return v, true
	case e.Verdict == nil:
		return r.leave(by, "element without a verdict"), false
	}
	r.count(e.Counter)
	return *e.Verdict, false
}
