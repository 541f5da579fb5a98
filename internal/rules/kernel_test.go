// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Short words for rule sets in tests.

func is(f Field, n uint64) Test       { return Test{Field: f, Ranges: []Range{One(Num(n))}} }
func isNot(f Field, n uint64) Test    { return Test{Field: f, Ranges: []Range{One(Num(n))}, Not: true} }
func named(f Field, name string) Test { return Test{Field: f, Ranges: []Range{One(Name(name))}} }

func in(f Field, prefix string) Test {
	return Test{Field: f, Ranges: []Range{Prefix(netip.MustParsePrefix(prefix))}}
}

func not(t Test) Test {
	t.Not = !t.Not
	return t
}

var (
	accept = Verdict{Code: Accept}
	drop   = Verdict{Code: Drop}
	back   = Verdict{Code: Return}
)

func jump(to string) Verdict                   { return Verdict{Code: Jump, Chain: to} }
func change(f Field, and, xor uint32) SetField { return SetField{Field: f, And: and, Xor: xor} }
func goTo(to string) Verdict                   { return Verdict{Code: Goto, Chain: to} }
func c(n int) Count                            { return Count{Counter: CounterID(n)} }

// chain makes a user chain; each rule is a list of steps.
func chain(name string, rules ...[]Step) Chain {
	ch := Chain{Name: name}
	for i, steps := range rules {
		ch.Rules = append(ch.Rules, Rule{Number: i + 1, Steps: steps})
	}
	return ch
}

func at(h Hook, priority int32, ch Chain) Chain {
	ch.Base = &Base{Hook: h, Priority: priority, Type: "filter", Policy: Accept, Counter: NoCounter}
	return ch
}

// forward makes a base chain at the usual place.
func forward(rules ...[]Step) Chain { return at(Forward, 0, chain("FORWARD", rules...)) }

func denying(ch Chain, counter CounterID) Chain {
	ch.Base.Policy, ch.Base.Counter = Drop, counter
	return ch
}

func nat(ch Chain) Chain {
	ch.Base.Type = "nat"
	return ch
}

func on(ch Chain, devices ...string) Chain {
	ch.Base.Devices = devices
	return ch
}

func ip(chains ...Chain) []Table { return []Table{{Family: IP4, Name: "filter", Chains: chains}} }

type steps = []Step

// typical is a TCP segment of an established connection from eth0 to eth1.
func typical() Packet {
	return Packet{
		IIF: someDevices[0], OIF: someDevices[1], Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("192.0.2.7"), Proto: protoTCP,
		SPort: 40000, DPort: 80, TCPFlags: 0x10, TTL: 64, Length: 100, CT: &Connection{State: CTEstablished, Status: 0x8},
	}
}

// text writes a result: outcome, who decided, counters, what changed.
func (r Result) text(p Packet) string {
	out := r.Outcome.String()
	if r.Outcome == Dropped {
		out += fmt.Sprint(" by ", strings.TrimPrefix(r.By.String(), "ip filter "))
	}
	if r.Outcome == IsSlow {
		out += ": " + r.Why
	}
	for _, n := range r.Counted {
		out += fmt.Sprintf(" c%d", n.Counter)
		if n.Bytes != int(p.Length) {
			out += fmt.Sprintf("+%d", n.Bytes-int(p.Length))
		}
	}
	if r.Outcome == Accepted {
		if r.RouteMark != p.Mark {
			out += fmt.Sprint(" route mark ", r.RouteMark)
		}
		if r.Mark != p.Mark {
			out += fmt.Sprint(" mark ", r.Mark)
		}
		if r.DSField != p.DSField {
			out += fmt.Sprint(" ds ", r.DSField)
		}
		if r.Untracked {
			out += " untracked"
		}
		if r.Zone.Dir != 0 {
			out += fmt.Sprintf(" zone %s%d", r.Zone.Dir, r.Zone.Zone)
		}
	}
	return out
}

var udp = func(p *Packet) { p.Proto = protoUDP }

// What the kernel does, case by case: the interpreter's own tests, which it shares with the flattened form.
var kernelCases = []struct {
	name   string
	tables []Table
	sets   []Set
	packet func(*Packet)
	want   string
}{
	{name: "no rules", want: "accept"},
	{name: "the first match decides", want: "accept c0",
		tables: ip(forward(steps{is(DPort, 22), c(1), drop}, steps{is(DPort, 80), c(0), accept}, steps{c(2), drop}))},
	{name: "policy drop counts", want: "drop by FORWARD policy c1 c0",
		tables: ip(denying(forward(steps{is(DPort, 80), c(1)}), 0))},
	{name: "accept ends its chain, not the hook", want: "drop by second rule 1 c0 c1",
		tables: ip(at(Forward, 0, chain("first", steps{c(0), accept}, steps{c(2), drop})), at(Forward, 5, chain("second", steps{c(1), drop})))},
	{name: "drop is final", want: "drop by first rule 1 c0",
		tables: ip(at(Forward, 0, chain("first", steps{c(0), drop})), at(Forward, 5, chain("second", steps{c(1), accept})))},
	{name: "chains of one hook by priority, then order", want: "accept c2 c0 c1",
		tables: ip(at(Forward, 0, chain("b", steps{c(0)})), at(Forward, 1, chain("c", steps{c(1)})), at(Forward, -1, chain("a", steps{c(2)})))},
	{name: "hooks in their order whatever the priority", want: "accept c0 c1 c2",
		tables: ip(at(Postrouting, -300, chain("c", steps{c(2)})), at(Forward, -200, chain("b", steps{c(1)})), at(Prerouting, 300, chain("a", steps{c(0)})))},
	{name: "input and output are not met", want: "accept",
		tables: ip(at(Input, 0, chain("INPUT", steps{c(0), drop})), at(Output, 0, chain("OUTPUT", steps{c(1), drop})))},
	{name: "return in a base chain is its policy", want: "drop by FORWARD policy c0 c9",
		tables: ip(denying(forward(steps{c(0), back}, steps{c(1), accept}), 9))},
	{name: "a jump comes back to the next rule", want: "accept c0 c1 c3",
		tables: ip(chain("user", steps{c(1), back}, steps{c(2), drop}), forward(steps{c(0), jump("user")}, steps{c(3), accept}))},
	{name: "a jump comes back from the end of the chain", want: "accept c0 c1 c3",
		tables: ip(chain("user", steps{c(1)}), forward(steps{c(0), jump("user")}, steps{c(3), accept}))},
	{name: "a goto comes back to where its chain would have returned", want: "accept c0 c1 c4",
		tables: ip(chain("last", steps{c(1), back}), chain("user", steps{goTo("last")}, steps{c(3), drop}),
			forward(steps{c(0), jump("user")}, steps{c(4)}))},
	{name: "a goto from a base chain comes back to the policy", want: "drop by FORWARD policy c1 c9",
		tables: ip(chain("user", steps{c(1)}), denying(forward(steps{goTo("user")}, steps{c(3), accept}), 9))},
	{name: "a counter before the last test", want: "accept c0",
		tables: ip(forward(steps{c(0), is(DPort, 22), c(1), drop}))},
	{name: "a field that the packet lacks fails negated tests too", want: "accept",
		tables: ip(forward(steps{not(in(IP6Src, "::/0")), drop}, steps{isNot(FlowLabel, 5), drop}, steps{is(L4Proto, 6), isNot(ICMPType, 8<<8), drop}))},
	{name: "no ports in later fragments", want: "accept", packet: func(p *Packet) { p.FragOffset = 100 },
		tables: ip(forward(steps{is(DPort, 80), drop}, steps{isNot(DPort, 80), drop}))},
	{name: "-f", want: "drop by FORWARD rule 1", packet: func(p *Packet) { p.FragOffset = 0x2000 | 100 },
		tables: ip(forward(steps{Test{Field: FragOffset, Mask: Num(0x1fff), Ranges: []Range{One(Num(0))}, Not: true}, drop}))},
	{name: "ports of a protocol without ports are not known here", want: "slow: ports of another protocol", packet: func(p *Packet) { p.Proto = 47 },
		tables: ip(forward(steps{c(0)}, steps{is(DPort, 80), drop}))},
	{name: "a test for the protocol protects the ports", want: "accept", packet: func(p *Packet) { p.Proto = 47 },
		tables: ip(forward(steps{is(L4Proto, 6), is(DPort, 80), drop}))},
	{name: "physdev of a bridged packet: the port out is not there at prerouting", want: "accept c0 c2 c3 c4 c6", packet: func(p *Packet) { p.PhysIn, p.PhysOut = someDevices[0], someDevices[1] },
		tables: ip(at(Prerouting, -300, chain("PREROUTING", steps{named(PhysIn, "eth0"), c(0)}, steps{not(named(PhysOut, "wan")), c(1)}, steps{AnyTest{Of: []Test{not(named(PhysOut, ""))}, Not: true}, c(2)})),
			forward(steps{named(PhysOut, "eth1"), c(3)}, steps{not(named(PhysOut, "wan")), c(4)}, steps{AnyTest{Of: []Test{not(named(PhysOut, ""))}, Not: true}, c(5)}, steps{not(named(PhysOut, "")), c(6)}))},
	{name: "physdev of a routed packet: no port out satisfies or fails to satisfy a name", want: "accept c0 c3", packet: func(p *Packet) { p.PhysIn = someDevices[0] },
		tables: ip(forward(steps{named(PhysIn, "eth0"), c(0)}, steps{named(PhysOut, "eth1"), c(1)}, steps{not(named(PhysOut, "eth1")), c(2)}, steps{AnyTest{Of: []Test{not(named(PhysOut, ""))}, Not: true}, c(3)}))},
	{name: "physdev of what no bridge shows: what is negated holds", want: "accept c1 c3",
		tables: ip(at(Prerouting, -300, chain("PREROUTING", steps{named(PhysOut, "eth1"), c(0)}, steps{not(named(PhysOut, "eth1")), c(1)})), forward(steps{named(PhysIn, "eth0"), c(2)}, steps{not(named(PhysIn, "eth0")), c(3)}))},
	{name: "multiport --ports: either", want: "drop by FORWARD rule 2",
		tables: ip(forward(steps{AnyTest{Of: []Test{is(SPort, 80), is(DPort, 22)}}, drop}, steps{AnyTest{Of: []Test{is(SPort, 80), is(DPort, 80)}}, drop}))},
	{name: "tcp flags under a mask", want: "drop by FORWARD rule 2", packet: func(p *Packet) { p.TCPFlags = 2 },
		tables: ip(forward(
			steps{Test{Field: TCPFlags, Mask: Num(0x12), Ranges: []Range{One(Num(0x12))}}, drop},
			steps{Test{Field: TCPFlags, Mask: Num(0x17), Ranges: []Range{One(Num(2))}}, drop}))},
	{name: "the TTL counts down before forward", want: "accept c0 c1",
		tables: ip(at(Prerouting, 0, chain("pre", steps{is(TTL, 64), c(0)})), forward(steps{is(TTL, 63), c(1)}, steps{is(TTL, 64), drop}))},
	{name: "the way out has no name before the route", want: "accept c0 c1",
		tables: ip(at(Prerouting, 0, chain("pre", steps{named(OIFName, "eth1"), drop}, steps{not(named(OIFName, "eth1")), c(0)}, steps{isNot(OIFGroup, 9), drop})),
			forward(steps{named(OIFName, "eth1"), c(1)}))},
	{name: "interface wildcards", want: "drop by FORWARD rule 3",
		tables: ip(forward(steps{Test{Field: IIFName, Ranges: []Range{Names("eth1")}}, drop}, steps{Test{Field: IIFName, Ranges: []Range{Names("e")}, Not: true}, drop},
			steps{Test{Field: IIFName, Ranges: []Range{Names("eth")}}, drop}))},
	{name: "before connection tracking every packet is invalid", want: "accept c0 c1",
		tables: ip(at(Prerouting, -300, chain("raw", steps{is(CTState, CTEstablished), drop}, steps{is(CTState, CTInvalid), c(0)}, steps{isNot(CTMark, 7), drop})),
			forward(steps{is(CTState, CTEstablished), c(1)}))},
	{name: "notrack", want: "accept c0 c1 untracked",
		tables: ip(at(Prerouting, -300, chain("raw", steps{NoTrack{}}, steps{is(CTState, CTUntracked), c(0)})), forward(steps{is(CTState, CTUntracked), c(1)}))},
	{name: "notrack is too late for a packet with a connection", want: "accept c0",
		tables: ip(forward(steps{NoTrack{}}, steps{is(CTState, CTEstablished), c(0)}))},
	{name: "a zone, and none behind it", want: "accept c0 c1 zone 5",
		tables: ip(at(Prerouting, -300, chain("raw", steps{zone(5)}, steps{is(CTState, CTNew), c(0)}, steps{zone(6)}, steps{NoTrack{}}, steps{isNot(CTState, CTNew), drop})), forward(steps{is(CTState, CTEstablished), c(1)}))},
	{name: "a zone of nf_tables takes a packet back", want: "accept zone 5", tables: ip(at(Prerouting, -300, chain("raw", steps{NoTrack{}}, steps{SetZone{Zone: 5, Dir: ZoneBoth, Back: true}})))},
	{name: "one of iptables does not", want: "accept untracked", tables: ip(at(Prerouting, -300, chain("raw", steps{NoTrack{}}, steps{zone(5)})))},
	{name: "a zone for one direction", want: "accept zone original 5", tables: ip(at(Prerouting, -300, chain("raw", steps{SetZone{Zone: 5, Dir: ZoneOriginal}})))},
	{name: "a zone is too late for a packet with a connection", want: "accept c0", tables: ip(forward(steps{zone(5)}, steps{is(CTState, CTEstablished), c(0)}))},
	{name: "a zone for a packet that tracking has found no connection for", want: "slow: ct zone set behind connection tracking", packet: func(p *Packet) { p.CT = nil }, tables: ip(forward(steps{zone(5)}))},
	{name: "a zone has no mark", want: "slow: connection asked for that is but a zone",
		tables: ip(at(Prerouting, -300, chain("raw", steps{zone(5)}, steps{is(CTMark, 0), c(0)})))},
	{name: "a packet without a zone has none either", want: "accept c1",
		tables: ip(at(Prerouting, -300, chain("raw", steps{is(DPort, 22), zone(5)}, steps{is(CTMark, 0), c(0)}, steps{c(1)})))},
	{name: "zones by a map", want: "accept c0 zone 9", sets: []Set{marks(22, 3, 80, 9)},
		tables: ip(at(Prerouting, -300, chain("raw", steps{is(L4Proto, 6), SetByMap{Field: CTZone, Key: []Field{DPort}}, c(0)}, steps{zone(7)})))},
	{name: "a base chain beside connection tracking", want: "slow: chain pre: same priority as connection tracking",
		tables: ip(at(Prerouting, -200, chain("pre", steps{accept})))},
	{name: "--ctstate DNAT", want: "drop by FORWARD rule 2", packet: func(p *Packet) { p.CT.Status |= ipsDstNAT },
		tables: ip(forward(steps{is(CTState, CTEstablished|CTDNAT), accept}, steps{Test{Field: CTStateNAT, Mask: Num(CTDNAT), Ranges: []Range{One(Num(0))}, Not: true}, drop}))},
	{name: "nat chains see what begins", want: "slow: nat", packet: func(p *Packet) { p.CT.State = CTNew },
		tables: ip(nat(at(Postrouting, 100, chain("POSTROUTING"))))},
	{name: "nat chains do not see what is established", want: "accept",
		tables: ip(denying(nat(at(Postrouting, 100, chain("POSTROUTING", steps{c(0), drop}))), 1))},
	{name: "nat chains do not see what is not tracked", want: "accept", packet: func(p *Packet) { p.CT = nil },
		tables: ip(nat(at(Postrouting, 100, chain("POSTROUTING", steps{c(0), drop}))))},
	{name: "marks", want: "accept c0 route mark 5 mark 4",
		tables: ip(at(Prerouting, -150, chain("mangle", steps{change(Mark, 0, 5)})), forward(steps{is(Mark, 5), c(0), change(Mark, ^uint32(1), 0)}))},
	{name: "a rule tests, changes and tests on", want: "drop by FORWARD rule 1 c0",
		tables: ip(forward(steps{is(Mark, 0), change(Mark, 0, 1), c(0), is(Mark, 1), is(DPort, 80), drop}, steps{accept}))},
	{name: "a chain changes what led to it", want: "accept c0 c1 c2 mark 7",
		tables: ip(chain("MARKING", steps{c(0), change(Mark, 0, 7)}, steps{c(1), back}, steps{drop}), forward(steps{is(Mark, 0), jump("MARKING")}, steps{is(Mark, 7), c(2)}, steps{is(Mark, 0), drop}))},
	{name: "a mark is asked for before and after it changes", packet: func(p *Packet) { p.Mark = 1 }, want: "drop by FORWARD rule 3",
		tables: ip(forward(steps{is(Mark, 0), drop}, steps{change(Mark, 0, 0)}, steps{is(Mark, 0), drop}))},
	{name: "and after a chain that changes it", packet: func(p *Packet) { p.Mark = 1 }, want: "drop by FORWARD rule 3",
		tables: ip(chain("MARKING", steps{change(Mark, 0, 0)}), forward(steps{is(Mark, 0), drop}, steps{jump("MARKING")}, steps{is(Mark, 0), drop}))},
	{name: "and after a verdict map that leads there", packet: func(p *Packet) { p.Mark = 1 }, want: "drop by FORWARD rule 3",
		sets: []Set{verdicts(80, jump("MARKING"), 53, accept)},
		tables: ip(chain("MARKING", steps{change(Mark, 0, 0)}), forward(steps{is(Mark, 0), drop}, steps{is(L4Proto, 6), VerdictMap{Key: []Field{DPort}}},
			steps{is(Mark, 0), drop}))},
	{name: "a map gives a mark, and the rule goes on", want: "accept c0 c1 mark 9", packet: func(p *Packet) { p.Mark = 7 },
		sets:   []Set{marks(22, 3, 80, 9)},
		tables: ip(forward(steps{is(L4Proto, 6), is(Mark, 7), c(0), SetByMap{Field: Mark, Key: []Field{DPort}}, isNot(Mark, 7), c(1)}))},
	{name: "a map without the key ends the rule", want: "accept c0 c2", sets: []Set{marks(22, 3, 53, 9)},
		tables: ip(forward(steps{is(L4Proto, 6), c(0), SetByMap{Field: Mark, Key: []Field{DPort}}, c(1), drop}, steps{is(Mark, 0), c(2)}))},
	{name: "and one that the packet has no key for", want: "accept c0", sets: []Set{marks(80, 3, 53, 9)}, packet: func(p *Packet) { p.Proto = 47 },
		tables: ip(forward(steps{is(L4Proto, 6), SetByMap{Field: Mark, Key: []Field{DPort}}, c(1), drop}, steps{c(0)}))},
	{name: "a map of ports for a protocol without", want: "slow: ports of another protocol", sets: []Set{marks(80, 3, 53, 9)}, packet: func(p *Packet) { p.Proto = 47 },
		tables: ip(forward(steps{SetByMap{Field: Mark, Key: []Field{DPort}}}))},
	{name: "a map that rules change", want: "slow: map : rules change it", sets: []Set{func() Set { s := marks(80, 3, 53, 9); s.Dynamic = true; return s }()},
		tables: ip(forward(steps{is(L4Proto, 6), SetByMap{Field: Mark, Key: []Field{DPort}}}))},
	{name: "notrack before a chain", want: "accept c0 untracked",
		tables: ip(chain("user", steps{is(CTState, CTInvalid), drop}, steps{is(CTState, CTUntracked), c(0)}), at(Prerouting, -300, chain("raw", steps{NoTrack{}}, steps{jump("user")})))},
	{name: "dscp", want: "accept c0 ds 184",
		tables: ip(forward(steps{change(DSField, 3, 46<<2)}, steps{Test{Field: DSField, Mask: Num(0xfc), Ranges: []Range{One(Num(46 << 2))}}, c(0)}))},
	{name: "unknown steps where they are reached", want: "slow: limit",
		tables: ip(forward(steps{is(DPort, 80), Unknown{Name: "limit"}, accept}))},
	{name: "unknown steps where they are not reached", want: "accept",
		tables: ip(forward(steps{is(DPort, 22), Unknown{Name: "limit"}, drop}, steps{accept}, steps{Slow{Name: "log"}}))},
	{name: "slow actions move no counter", want: "slow: log",
		tables: ip(forward(steps{c(0), Slow{Name: "log"}}))},
	{name: "a chain that is missing", want: "slow: chain user is missing",
		tables: ip(forward(steps{jump("user")}))},
	{name: "another family", want: "accept",
		tables: []Table{{Family: IP6, Name: "filter", Chains: []Chain{forward(steps{drop})}}, {Family: Bridge, Chains: []Chain{forward(steps{drop})}}}},
	{name: "inet is both", want: "drop by inet fw FORWARD rule 1",
		tables: []Table{{Family: Inet, Name: "fw", Chains: []Chain{forward(steps{is(NFProto, 2), drop})}}}},
	{name: "a dormant table", want: "accept",
		tables: []Table{{Family: IP4, Name: "filter", Dormant: true, Chains: []Chain{forward(steps{drop})}}}},
	{name: "ingress and egress of the packet's devices", want: "accept c0+6 c2+14", packet: func(p *Packet) { p.EtherPadding = 6 },
		tables: []Table{{Family: Netdev, Name: "dev", Chains: []Chain{
			on(at(Ingress, 0, chain("in", steps{named(IIFName, "eth0"), c(0)})), "eth0"), on(at(Ingress, 0, chain("other", steps{c(1), drop})), "eth1", "wan"),
			on(at(Egress, 0, chain("out", steps{named(IIFName, ""), c(2)})), "eth*")}}}},
	{name: "connection tracking at ingress", want: "slow: ct state at ingress",
		tables: []Table{{Family: Inet, Name: "t", Chains: []Chain{on(at(Ingress, 0, chain("in", steps{is(DPort, 22), NoTrack{}}, steps{is(CTState, CTInvalid), drop})), "eth0")}}}},
	{name: "notrack at ingress", want: "slow: notrack at ingress",
		tables: []Table{{Family: Inet, Name: "t", Chains: []Chain{on(at(Ingress, 0, chain("in", steps{NoTrack{}})), "eth0")}}}},
	{name: "address types at ingress", want: "slow: fib daddr type at ingress",
		tables: []Table{{Family: Netdev, Name: "t", Chains: []Chain{on(at(Ingress, 0, chain("in", steps{is(DstAddrType, 1), drop})), "eth0")}}}},
	{name: "the family of an inet chain at ingress is the packet's", want: "drop by inet t in rule 2",
		tables: []Table{{Family: Inet, Name: "t", Chains: []Chain{on(at(Ingress, 0, chain("in", steps{is(NFProto, 10), drop}, steps{is(NFProto, 2), drop})), "eth0")}}}},
	{name: "that of a netdev chain is its own", want: "slow: nfproto at ingress",
		tables: []Table{{Family: Netdev, Name: "t", Chains: []Chain{on(at(Ingress, 0, chain("in", steps{is(NFProto, 2), drop})), "eth0")}}}},
	{name: "the length at ingress, which an inet table may mean with padding", want: "slow: length at ingress",
		tables: []Table{{Family: Inet, Name: "t", Chains: []Chain{on(at(Ingress, 0, chain("in", steps{is(Length, 100), drop})), "eth0")}}}},
	{name: "the type of the way in at egress, where there is none", want: "slow: iiftype at egress",
		tables: []Table{{Family: Netdev, Name: "t", Chains: []Chain{on(at(Egress, 0, chain("out", steps{is(IIFType, 1), drop})), "eth1")}}}},
	{name: "addresses of frames at egress", want: "slow: ether daddr at egress",
		tables: []Table{{Family: Netdev, Name: "t", Chains: []Chain{on(at(Egress, 0, chain("out", steps{is(IIFIndex, 0), is(EtherDst, 1), drop})), "eth1")}}}},
	{name: "the connection at egress", want: "slow: ct mark at egress",
		tables: []Table{{Family: Netdev, Name: "t", Chains: []Chain{on(at(Egress, 0, chain("out", steps{is(CTMark, 1), drop})), "eth1")}}}},
	{name: "the family of a chain at egress is its own", want: "slow: nfproto at egress",
		tables: []Table{{Family: Netdev, Name: "t", Chains: []Chain{on(at(Egress, 0, chain("out", steps{is(NFProto, 2), drop})), "eth1")}}}},
	{name: "ingress comes before raw", want: "drop by netdev t in rule 1 c0",
		tables: []Table{{Family: IP4, Name: "t", Chains: []Chain{at(Prerouting, -400, chain("raw", steps{c(1), drop}))}}, {Family: Netdev, Name: "t", Chains: []Chain{on(at(Ingress, 0, chain("in", steps{c(0), drop})), "eth0")}}}},
	{name: "chain attributes that are not understood", want: "slow: chain FORWARD: offload",
		tables: ip(func() Chain { ch := forward(); ch.Base.Unknown = []string{"offload"}; return ch }())},
	{name: "jumps as deep as nf_tables allows", want: "accept c0", tables: ip(append(nested(16), forward(steps{jump("n16")}, steps{c(0)}))...)},
	{name: "jumps deeper than nf_tables allows", want: "slow: chain FORWARD: jumps nest too deep", tables: ip(append(nested(17), forward(steps{jump("n17")}))...)},
	{name: "legacy tables nest as they like", want: "accept c0",
		tables: []Table{{Dialect: Legacy, Family: IP4, Name: "filter", Chains: append(nested(40), forward(steps{jump("n40")}, steps{c(0)}))}}},
	{name: "a loop", want: "slow: chain FORWARD: jumps nest too deep",
		tables: ip(chain("a", steps{is(DPort, 22), goTo("b")}), chain("b", steps{jump("a")}), forward(steps{jump("b")}))},

	{name: "a set", sets: []Set{set(NFT, []int{32}, addr("192.0.2.7/32"))}, want: "drop by FORWARD rule 2",
		tables: ip(forward(steps{Lookup{Key: []Field{IP4Src}}, drop}, steps{Lookup{Key: []Field{IP4Dst}}, drop}))},
	{name: "a concatenation", sets: []Set{set(NFT, []int{32, 16}, Element{Counter: NoCounter, Key: []Range{Prefix(netip.MustParsePrefix("192.0.2.0/24")), Nums(80, 81)}})}, want: "drop by FORWARD rule 2",
		tables: ip(forward(steps{Lookup{Key: []Field{IP4Src, DPort}}, drop}, steps{Lookup{Key: []Field{IP4Dst, DPort}}, drop}))},
	{name: "nomatch, the most specific counts", sets: []Set{set(IPSet, []int{32}, addr("192.0.0.0/16"), nomatch(addr("192.0.2.0/24")), addr("192.0.2.7/32"))}, want: "drop by FORWARD rule 1",
		tables: ip(forward(steps{Lookup{Key: []Field{IP4Dst}}, drop}))},
	{name: "nomatch", sets: []Set{set(IPSet, []int{32}, addr("192.0.0.0/16"), nomatch(addr("192.0.2.0/24")))}, want: "accept c0",
		tables: ip(forward(steps{Lookup{Key: []Field{IP4Dst}}, drop}, steps{Lookup{Key: []Field{IP4Dst}, Not: true}, c(0)}))},
	{name: "nf_tables: a key that the packet lacks fails either way", sets: []Set{set(NFT, []int{128})}, want: "accept",
		tables: ip(forward(steps{Lookup{Key: []Field{IP6Dst}, Not: true}, drop}))},
	{name: "ipset: a key that the packet lacks is not in the set", sets: []Set{set(IPSet, []int{128})}, want: "drop by FORWARD rule 1",
		tables: ip(forward(steps{Lookup{Key: []Field{IP6Dst}, Not: true}, drop}))},
	{name: "ipset ports of icmp", packet: func(p *Packet) { p.Proto, p.ICMPType = 1, 8<<8 }, want: "drop by FORWARD rule 1",
		sets:   []Set{set(IPSet, []int{8, 16}, Element{Counter: NoCounter, Key: []Range{Nums(1, 1), Nums(8<<8, 8<<8)}})},
		tables: ip(forward(steps{Lookup{Key: []Field{L4Proto, SetDPort}}, drop}))},
	{name: "a set that is not understood", sets: []Set{{Unknown: "type hash:new"}}, want: "slow: set : type hash:new",
		tables: ip(forward(steps{Lookup{Key: []Field{IP4Dst}}, drop}))},
	{name: "a negated set with an element for everything", sets: []Set{set(NFT, []int{32}, addr("0.0.0.0/0"))}, want: "slow: set : negated, with an element for everything",
		tables: ip(forward(steps{Lookup{Key: []Field{IP4Dst}, Not: true}, drop}))},
	{name: "ipset elements count what finds them", sets: []Set{set(IPSet, []int{32}, counted(addr("192.0.2.7/32"), 5))}, want: "accept c5 c5 c6",
		tables: ip(forward(steps{Lookup{Key: []Field{IP4Dst}, Not: true}, drop}, steps{Lookup{Key: []Field{IP4Dst}}, c(6)}))},
	{name: "nf_tables elements count what goes on", sets: []Set{set(NFT, []int{32}, counted(addr("192.0.2.7/32"), 5))}, want: "accept c5 c6",
		tables: ip(forward(steps{Lookup{Key: []Field{IP4Dst}, Not: true}, drop}, steps{Lookup{Key: []Field{IP4Dst}}, c(6)}))},
	{name: "hash:net,iface: a network hides wider ones, whatever interface it is for", want: "accept c1",
		sets:   []Set{byIface(onIface("192.0.0.0/16", One(Name("eth0"))), onIface("192.0.2.0/24", One(Name("eth9")))), byIface(onIface("192.0.2.0/25", Names("eth")), onIface("192.0.0.0/16", One(Name("eth9"))))},
		tables: ip(forward(steps{Lookup{Set: 0, Key: []Field{IP4Dst, IIFName}}, drop}, steps{Lookup{Set: 1, Key: []Field{IP4Dst, IIFName}}, c(1)}))},
	{name: "hash:net,iface: no interface, no element", want: "accept", sets: []Set{byIface(onIface("192.0.2.0/24", Names("")))},
		tables: ip(at(Prerouting, 0, chain("pre", steps{Lookup{Set: 0, Key: []Field{IP4Dst, OIFName}}, drop})))},
	{name: "a list of sets", want: "drop by FORWARD rule 1",
		sets:   []Set{{Dialect: IPSet, Type: "list:set"}, set(IPSet, []int{32}, nomatch(addr("192.0.2.7/32"))), set(IPSet, []int{32}, addr("192.0.2.0/24"))},
		tables: ip(forward(steps{Lookup{Set: 0, Of: []Lookup{{Set: 1, Key: []Field{IP4Dst}}, {Set: 2, Key: []Field{IP4Dst}}}}, drop}))},

	{name: "verdict map", sets: []Set{verdicts(80, jump("web"), 53, accept)}, want: "drop by FORWARD rule 2 c1 c0",
		tables: ip(chain("web", steps{c(1)}), forward(steps{VerdictMap{Key: []Field{DPort}}}, steps{c(0), drop}))},
	{name: "verdict map, key not there", sets: []Set{verdicts(443, jump("web"), 53, accept)}, want: "drop by FORWARD rule 2 c0",
		tables: ip(chain("web", steps{c(1)}), forward(steps{VerdictMap{Key: []Field{DPort}}}, steps{c(0), drop}))},
	{name: "verdict map, goto from a user chain", sets: []Set{verdicts(80, goTo("web"), 53, accept)}, want: "accept c1 c2",
		tables: ip(chain("web", steps{c(1)}), chain("services", steps{VerdictMap{Key: []Field{DPort}}}, steps{c(0), drop}), forward(steps{jump("services")}, steps{c(2)}))},
	{name: "verdict map, accept inside calls", sets: []Set{verdicts(80, jump("web"), 53, accept)}, want: "accept c1 c3",
		tables: ip(chain("web", steps{c(1), accept}), chain("services", steps{VerdictMap{Key: []Field{DPort}}}, steps{c(0), drop}), forward(steps{jump("services")}, steps{c(2), drop}),
			at(Postrouting, 0, chain("post", steps{c(3)})))},
	{name: "verdict map, return", sets: []Set{verdicts(80, back, 53, accept)}, want: "drop by FORWARD policy c9", packet: udp,
		tables: ip(denying(forward(steps{VerdictMap{Key: []Field{DPort}}}, steps{c(0), accept}), 9))},
}

// nested makes chains that jump n deep below the last one, counted from it.
func nested(n int) (all []Chain) {
	all = []Chain{chain("n1")}
	for i := 2; i <= n; i++ {
		all = append(all, chain(fmt.Sprint("n", i), steps{jump(fmt.Sprint("n", i-1))}))
	}
	return all
}

func set(d Dialect, widths []int, elements ...Element) Set {
	return Set{Dialect: d, Widths: widths, Elements: elements}
}

func addr(prefix string) Element {
	return Element{Key: []Range{Prefix(netip.MustParsePrefix(prefix))}, Counter: NoCounter}
}

func byIface(elements ...Element) Set {
	return Set{Dialect: IPSet, Type: "hash:net,iface", Widths: []int{32, 128}, Elements: elements}
}

func onIface(prefix string, names Range) Element {
	return Element{Key: []Range{Prefix(netip.MustParsePrefix(prefix)), names}, Counter: NoCounter}
}

func nomatch(e Element) Element {
	e.NoMatch = true
	return e
}

func counted(e Element, n CounterID) Element {
	e.Counter = n
	return e
}

func verdicts(port1 uint64, v1 Verdict, port2 uint64, v2 Verdict) Set {
	return Set{Verdicts: true, Widths: []int{16}, Elements: []Element{
		{Key: []Range{One(Num(port1))}, Verdict: &v1, Counter: NoCounter}, {Key: []Range{One(Num(port2))}, Verdict: &v2, Counter: NoCounter},
	}}
}

// zone is a zone of iptables.
func zone(n uint16) SetZone { return SetZone{Zone: n, Dir: ZoneBoth} }

func marks(port1, mark1, port2, mark2 uint64) Set {
	return Set{Data: true, Widths: []int{16}, Elements: []Element{
		{Key: []Range{One(Num(port1))}, Data: Num(mark1), Counter: NoCounter}, {Key: []Range{One(Num(port2))}, Data: Num(mark2), Counter: NoCounter},
	}}
}

func TestWhatTheKernelDoes(t *testing.T) {
	for _, k := range kernelCases {
		t.Run(k.name, func(t *testing.T) {
			p := typical()
			if k.packet != nil {
				k.packet(&p)
			}
			rs := &Ruleset{Tables: k.tables, Sets: k.sets, Counters: make([]Counter, 10)}
			for i := range rs.Tables {
				for j := range rs.Tables[i].Chains {
					if b := rs.Tables[i].Chains[j].Base; b != nil {
						b.Order = j
					}
				}
			}
			want := NewInterpreter(rs).Run(p)
			if got := want.text(p); got != k.want {
				t.Errorf("interpreter: %s\nwant:        %s", got, k.want)
			}
			for _, class := range []Class{{Family: IP4, Zones: true}, {Family: IP4, IIF: &p.IIF, OIF: &p.OIF, Zones: true}} {
				for _, limit := range []int{0, 1} {
					program := flatten(rs, class, limit)
					if diff := cmp.Diff(want, program.Run(p), refs); diff != "" {
						t.Errorf("interpreter (-) and program (+), limit %d:\n%s%s", limit, diff, program)
					}
					if diff := cmp.Diff(want, newClassifier(program, 0, 1).Run(p), refs); diff != "" {
						t.Errorf("interpreter (-) and classifier (+), limit %d:\n%s%s", limit, diff, program)
					}
				}
			}
		})
	}
}
