// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Program is what a class of traffic meets: lists of entries. List 0 is where every packet begins; at its end the packet is
// accepted. The others are chains that were left apart since writing them out wherever they are called would take too much room.
type Program struct {
	Class Class
	Lists [][]Entry
	rules *index

	untracks bool // see Untracks
}

// Class is the traffic that a Program is for.
type Class struct {
	Family   ruleset.Family // IP4 or IP6
	IIF, OIF *Device        // nil for any
	// Established: where connection tracking has seen a packet it belongs to an established connection, translated or not, or has been
	// kept out of tracking by a rule; others do not come to rules.
	Established bool
	// LocalFirst: the way out was found after the table of local addresses had been asked for the receiver, with nothing else asked before and for its
	// address alone, not its TOS. A receiver with a way out is then one of type unicast, to rules that ask for its type in that table
	// (net/ipv4/fib_frontend.c, inet_addr_type). So is a sender, if a lookup of the route to it shows that (bpf/node/sender.h).
	// Of IPv6 it says that rules which ask for an address's type are told of the route that a lookup for programs finds (net/ipv6/netfilter/nft_fib_ipv6.c, xt_addrtype.c).
	LocalFirst bool
	// RouteBack: the route to the sender that bpf_fib_lookup finds is the one that Linux finds, if it leads out of the interface that the packet came by.
	RouteBack bool
	// Bridged: frames from one port of a bridge to another, which meet the chains of family bridge and no others. Their devices are the ports.
	Bridged bool
	// LiveSets: whoever runs the program can ask the kernel's ipsets (ruleset.Set.Live); without it their rules are slow.
	LiveSets bool
	// Zones: connections can be looked up in the zone that rules give (ruleset.SetZone); without it such rules are slow.
	Zones bool
}

// Entry is one step: packets that satisfy all of When have Do done to them and go on where Then says; others go on with the
// next entry. All ways lead forward.
type Entry struct {
	When []Cond
	Do   []ruleset.Step // Count, SetField, SaveMark, NoTrack, SetZone; and Lookup, which counts the element that the packet is in
	Then Then
	To   int // Skip, Call, Map: the entry to go on with
	// For Call and Map: List is the called list, and To is where it comes back to. For Map also where a verdict leads.
	List     int
	Map      *Map
	End      int    // for Call and Map: the entry behind the base chain, where an accept in the called list leads
	By       Ref    // the rule
	Why      string // for LeaveSlow
	place    place
	boundary bool // the routing decision comes after this entry
}

// Then is what an entry does with the packets that satisfy it.
type Then uint8

// What an entry does.
const (
	Next      Then = iota
	Skip           // go on with entry To
	DropIt         // the end
	LeaveSlow      // the kernel shall do it all, from the beginning
	Call           // do a list, then go on with entry To
	ByMap          // as the element of a verdict map says
	Decided        // the end, unlike the end of the list (Over)
)

// Hook is the hook that the entry's rule is at.
func (e *Entry) Hook() ruleset.Hook { return e.place.hook }

// Asks are the fields that decide whether packets satisfy the entry, or where a map leads them.
func (e *Entry) Asks() (out []ruleset.Field) {
	var lookup func(l ruleset.Lookup)
	lookup = func(l ruleset.Lookup) {
		out = append(append(out, l.Key...), inMembers(l)...)
		for _, member := range l.Of {
			lookup(member)
		}
	}
	for _, c := range e.When {
		switch s := c.Of.(type) {
		case ruleset.Test:
			out = append(out, s.Field)
		case ruleset.AnyTest:
			for _, t := range s.Of {
				out = append(out, t.Field)
			}
		case ruleset.Lookup:
			lookup(s)
		}
	}
	if e.Map != nil {
		lookup(e.Map.Of)
	}
	return out
}

// BeforeRoute says whether the entry comes before the routing decision.
func (e *Entry) BeforeRoute() bool { return !routed(e.place.hook) }

// Tracked says whether connection tracking has seen the packets that meet the entry.
func (e *Entry) Tracked() bool { return e.place.tracked }

// Rules is the rule set that the program was made of.
func (pr *Program) Rules() *ruleset.Ruleset { return pr.rules.rs }

func (t Then) String() string {
	return [...]string{"next", "skip", "drop", "slow", "call", "map", "decided"}[t]
}

// Entries that are no entries: where lists other than the first lead out.
const (
	Back    = -1 // to where the list was called
	EndBase = -2 // to the caller's End
)

// Map is a verdict map of an entry. A key without element, and Continue, lead to the entry's To.
type Map struct {
	Of     ruleset.Lookup
	Return int            // the entry that a return leads to, and a goto at the end of its chain
	Lists  map[string]int // the lists of the chains that jumps and gotos lead to
}

// frame is a call that is under way.
type frame struct{ list, to int }

// thread is a packet in a program.
type thread struct {
	walk
	*Program
	res   Result
	list  int
	at    int // the entry
	end   int // where an accept in a called list leads
	stack []frame
	done  bool

	decided bool // by an Over

	classifier *Classifier // nil to ask entry by entry
	classes    classes     // of the list at hand
	classified int         // the list that classes belong to, -1 for none
}

// Run evaluates the program entry by entry, for tests and explanations.
func (pr *Program) Run(p Packet) Result {
	return (&thread{walk: begin(&p), Program: pr}).run()
}

func (t *thread) run() Result {
	if t.p.TTL <= 1 {
		return Result{Outcome: IsSlow, Why: "ttl"}
	}
	t.res.RouteMark = t.p.Mark
	t.classified = -1
	for !t.done {
		t.step()
	}
	return t.res
}

func (t *thread) step() {
	switch {
	case t.at == EndBase:
		t.list, t.at, t.stack = 0, t.end, nil
	case t.at == Back || t.at == len(t.Lists[t.list]) && t.list != 0:
		top := t.stack[len(t.stack)-1]
		t.list, t.at, t.stack = top.list, top.to, t.stack[:len(t.stack)-1]
	case t.list == 0 && t.at == len(t.Lists[0]):
		t.end0()
	default:
		t.entry()
	}
}

// end0 is the end of the way, of a packet that leaves.
func (t *thread) end0() {
	t.res.Mark, t.res.DSField, t.res.Untracked, t.res.Zone, t.done = t.mark, t.ds, t.untracked, t.zone, true
}

// entry goes on to the next entry whose conditions hold, and does what it says.
func (t *thread) entry() {
	entries := t.Lists[t.list]
	at := t.next(entries)
	t.at = at + 1
	if at == len(entries) {
		t.at = at
		return
	}
	e := &entries[at]
	for _, s := range e.Do {
		if save, is := s.(ruleset.SaveMark); is && !t.saved(save, e.place) {
			t.slow(e.By, newMark)
			return
		}
		t.do(s, e.place)
	}
	t.then(e)
	if e.boundary {
		t.res.RouteMark = t.mark
	}
}

// next is the first entry from here on whose conditions hold.
func (t *thread) next(entries []Entry) int {
	if t.classifier != nil {
		m := &t.classifier.lists[t.list]
		if t.classified != t.list {
			t.classes, t.classified = m.classify(&t.walk), t.list
		}
		return m.next(&t.walk, t.rules.rs, &t.classes, t.at)
	}
	at := t.at
	for at < len(entries) && !t.all(t.rules.rs, entries[at].When) {
		at++
	}
	return at
}

// then follows an entry whose conditions hold.
func (t *thread) then(e *Entry) {
	switch e.Then {
	case Skip:
		t.at = e.To
	case DropIt:
		t.res = Result{Outcome: Dropped, By: e.By, Counted: t.res.Counted}
		t.done = true
	case LeaveSlow:
		t.slow(e.By, e.Why)
	case Call:
		t.call(e, e.List, e.To)
	case ByMap:
		t.byMap(e)
	case Decided:
		t.end0()
		t.decided = true
	}
}

func (t *thread) slow(by Ref, why string) {
	t.res, t.done = Result{Outcome: IsSlow, By: by, Why: why}, true
}

func (t *thread) call(e *Entry, list, back int) {
	if t.list == 0 {
		t.end = e.End
	}
	t.stack = append(t.stack, frame{t.list, back})
	t.list, t.at = list, 0
}

func (t *thread) byMap(e *Entry) {
	_, hit, _ := t.lookup(t.rules.rs, e.Map.Of, func(f ruleset.Field) (ruleset.Value, presence) { return t.field(f, e.place) })
	t.at = e.To
	if hit == nil {
		return
	}
	if hit.Verdict == nil {
		t.slow(e.By, "element without a verdict")
		return
	}
	t.count(hit.Counter, e.place.hook)
	switch v := hit.Verdict; v.Code {
	case ruleset.Accept:
		t.at = e.End
	case ruleset.Drop:
		t.res, t.done = Result{Outcome: Dropped, By: e.By, Counted: t.res.Counted}, true
	case ruleset.Return:
		t.at = e.Map.Return
	case ruleset.Jump, ruleset.Goto:
		list, ok := e.Map.Lists[v.Chain]
		back := e.To
		if v.Code == ruleset.Goto {
			back = e.Map.Return
		}
		if !ok {
			t.slow(e.By, "chain "+v.Chain+" is missing")
			return
		}
		t.call(e, list, back)
	}
}

// do is an effect.
func (t *thread) do(s ruleset.Step, at place) {
	switch s := s.(type) {
	case ruleset.Count:
		t.count(s.Counter, at.hook)
	case ruleset.SetField:
		t.apply(s, at)
	case ruleset.NoTrack:
		t.notrack(at.tracked)
	case ruleset.SetZone:
		t.setZone(s)
	case ruleset.Lookup:
		if _, hit, _ := t.lookup(t.rules.rs, s, func(f ruleset.Field) (ruleset.Value, presence) { return t.field(f, at) }); hit != nil {
			t.count(hit.Counter, at.hook)
		}
	}
}

func (t *thread) count(c ruleset.CounterID, h ruleset.Hook) {
	if c != ruleset.NoCounter {
		t.res.Counted = append(t.res.Counted, Counted{c, t.p.bytes(h)})
	}
}

// holds evaluates a condition.
func (w *walk) holds(rs *ruleset.Ruleset, c Cond) bool {
	ask := func(f ruleset.Field) (ruleset.Value, presence) { return w.field(f, c.place) }
	switch s := c.Of.(type) {
	case ruleset.Test:
		if _, plain := c.plain(); plain {
			restore := w.behind(c.place)
			v, p := w.raw(s.Field, c.place.tracked)
			restore()
			return p == there && contains(s.Ranges, v)
		}
		v, p := ask(s.Field)
		return p == there && satisfied(s, v)
	case ruleset.AnyTest:
		any := false
		for _, t := range s.Of {
			v, p := ask(t.Field)
			any = any || p == there && satisfied(t, v)
		}
		return any != s.Not
	case ruleset.Lookup:
		in, _, p := w.lookup(rs, s, ask)
		if p == absent && rs.Sets[s.Set].Dialect == ruleset.NFT {
			return false
		}
		return in != s.Not
	}
	return false
}
