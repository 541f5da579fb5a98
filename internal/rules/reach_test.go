// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/shuntnet/shunt/internal/model/ruleset"
)

var log = Slow{Name: "log"}

func TestWhoIsSlow(t *testing.T) {
	eth0, eth1 := Device{Name: "eth0", Index: 2}, Device{Name: "eth1", Index: 3}
	for _, k := range []struct {
		name   string
		class  Class
		tables []Table
		want   string // region: why, for each
	}{
		{name: "behind an unconditional accept", tables: ip(forward(steps{accept}, steps{log}))},
		{name: "behind a return of all", tables: ip(chain("user", steps{c(0), back}, steps{log}), forward(steps{is(DSField, 4), jump("user")}))},
		{name: "behind a goto of all", tables: ip(chain("user", steps{c(0)}), forward(steps{goTo("user")}, steps{log}))},
		{name: "what a rule before has decided", tables: ip(forward(steps{in(IP4Src, "10.0.0.0/8"), accept}, steps{in(IP4Src, "10.1.0.0/16"), is(L4Proto, 6), log}))},
		{name: "what a rule before the route has decided of receivers, which translation changes", want: "ip daddr 10.1.0.0/16: log",
			tables: ip(at(Prerouting, -150, chain("PRE", steps{in(IP4Dst, "10.0.0.0/8"), drop})), forward(steps{in(IP4Dst, "10.1.0.0/16"), log}))},
		{name: "what it has decided of senders", tables: ip(at(Prerouting, -150, chain("PRE", steps{in(IP4Src, "10.0.0.0/8"), drop})), forward(steps{in(IP4Src, "10.1.0.0/16"), log}))},
		{name: "only a part was decided", want: "l4proto tcp ip saddr 10.0.0.0/8: log",
			tables: ip(forward(steps{in(IP4Src, "10.1.0.0/16"), accept}, steps{is(L4Proto, 6), in(IP4Src, "10.0.0.0/8"), log}))},
		{name: "decided, but not for those that were led around it", want: "l4proto tcp: log",
			tables: ip(chain("user", steps{in(IP4Src, "10.0.0.0/8"), back}, steps{is(L4Proto, 6), accept}), forward(steps{jump("user")}, steps{is(L4Proto, 6), log}))},
		{name: "disjoint on the way", tables: ip(chain("user", steps{in(IP4Src, "10.0.0.0/8"), log}), forward(steps{in(IP4Src, "192.0.2.0/24"), jump("user")}))},
		{name: "conditions on the way", want: "ip saddr 10.0.0.0/8 ip daddr 192.0.2.0/24: log",
			tables: ip(chain("user", steps{in(IP4Dst, "192.0.2.0/24"), log}), forward(steps{in(IP4Src, "10.0.0.0/8"), jump("user")}))},
		{name: "another ingress interface", class: Class{IIF: &eth0}, tables: ip(forward(steps{named(IIFName, "eth1"), log}))},
		{name: "this ingress interface", class: Class{IIF: &eth1}, want: ": log", tables: ip(forward(steps{named(IIFName, "eth1"), log}))},
		{name: "any ingress interface", want: `iifname "eth1": log`, tables: ip(forward(steps{named(IIFName, "eth1"), log}))},
		{name: "another egress interface", class: Class{OIF: &eth0}, tables: ip(at(Postrouting, 0, chain("POST", steps{named(OIFName, "eth1"), log})))},
		{name: "another family", tables: []Table{{Family: Inet, Chains: []Chain{forward(steps{is(NFProto, 10), log})}}}},
		{name: "unknown behind a test", want: "l4proto { 0-5, 7-16, 18-32, 34-131, 133-135, 137-255 }: ports of another protocol | l4proto { tcp, udp, 33, sctp, udplite } dport 22: limit",
			tables: ip(forward(steps{is(DPort, 22), Unknown{Name: "limit"}, accept}))},
		{name: "a mark that was changed is not the mark that was asked for", want: "mark 0x0'1: log",
			tables: ip(forward(steps{is(Mark, 0), change(Mark, 0, 1)}, steps{is(Mark, 0), log}))},
		{name: "a set and its negation", tables: ip(forward(steps{Lookup{Key: []Field{IP4Src}}, Lookup{Key: []Field{IP4Src}, Not: true}, log}))},
	} {
		t.Run(k.name, func(t *testing.T) {
			k.class.Family = IP4
			rs := &Ruleset{Tables: k.tables, Sets: []Set{{Widths: []int{32}}}}
			var got []string
			for _, s := range Flatten(rs, k.class).Slow() {
				var region []string
				for _, c := range s.Region {
					region = append(region, c.Text(rs))
				}
				got = append(got, strings.Join(region, " ")+": "+s.Why)
			}
			if got := strings.Join(got, " | "); got != k.want {
				t.Errorf("slow: %s\nwant: %s", got, k.want)
			}
		})
	}
}

func TestMetRules(t *testing.T) {
	rs := &Ruleset{Tables: ip(forward(steps{is(L4Proto, 6), c(0), accept}, steps{c(1), accept}, steps{c(2), drop}))}
	met := Flatten(rs, Class{Family: IP4}).Met()
	all := rs.Tables[0].Chains[0].Rules
	if !met[&all[0]] || !met[&all[1]] || met[&all[2]] {
		t.Errorf("met: %v", met)
	}
}

// Chains that jump twice to the next one would double the program with every level.
func TestGrowthIsBounded(t *testing.T) {
	const levels = 24
	chains := []Chain{chain("n0", steps{is(DSField, 4), c(0)}, steps{is(DSField, 8), c(1), accept})}
	for i := 1; i <= levels; i++ {
		next := fmt.Sprint("n", i-1)
		chains = append(chains, chain(fmt.Sprint("n", i), steps{is(L4Proto, 6), jump(next)}, steps{is(TTL, 63), c(2), jump(next)}, steps{c(3)}))
	}
	rs := &Ruleset{Tables: []Table{{Dialect: Legacy, Family: IP4, Chains: append(chains, forward(steps{jump(fmt.Sprint("n", levels))}))}}, Counters: make([]Counter, 4)}
	program := Flatten(rs, Class{Family: IP4})
	total := 0
	for _, list := range program.Lists {
		total += len(list)
	}
	if rules := 3*levels + 3; total > 8*rules+2048 {
		t.Errorf("%d entries for %d rules", total, rules)
	}
	// Depth first, all 2^24 ways: too many for the interpreter to walk, but a packet that fits no test takes only one.
	p := typical()
	p.Proto, p.TTL = protoUDP, 99
	want := NewInterpreter(rs).Run(p)
	if got := program.Run(p); got.text(p) != want.text(p) || len(want.Counted) != 1 {
		t.Errorf("program: %s, interpreter: %s", got.text(p), want.text(p))
	}
	// One that fits them all is given up, before it holds up who asks.
	p.Proto, p.TTL = protoTCP, 64
	frame := Frame{Packet: p, Shown: true}
	frame.TTL = 63 // which bridges leave as it is
	in := NewInterpreter(rs)
	for met, res := range map[string]Result{"run": in.Run(p), "followed": first(in.Follow(p)), "as a frame": first(in.TraceFrame(frame))} {
		if res.Outcome != IsSlow || res.Why != TooFar {
			t.Errorf("%s: %s", met, res.text(p))
		}
	}
	if _, met := in.Follow(p); len(met) > mostMet {
		t.Errorf("%d rules are named", len(met))
	}
}

func first(r Result, _ []Ref) Result { return r }

// Very many rules that come to nothing are seen to do so in one go, not one by one from the last.
func TestManyRulesThatDoNothing(t *testing.T) {
	var rs []Rule
	for i := range 20_000 {
		rs = append(rs, Rule{Number: i + 1, Steps: []Step{Test{Field: IP4Src, Ranges: []Range{One(Num(uint64(i)))}}, Verdict{Code: Accept}}})
	}
	program := Flatten(&Ruleset{Tables: []Table{{Family: IP4, Name: "t", Chains: []Chain{{Name: "c", Rules: rs, Base: &Base{Hook: Forward, Policy: Accept, Counter: NoCounter}}}}}}, Class{Family: IP4})
	if n := len(program.Lists[0]); n > 1 {
		t.Errorf("%d entries", n)
	}
}
