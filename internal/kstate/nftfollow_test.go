// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// wholeFilter is the rule set and the hooks as a reader finds them that has seen no event.
func wholeFilter(t *testing.T) (*ruleset.Ruleset, []model.NFHook) {
	t.Helper()
	r := open(t, Options{})
	n, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	return n.Filter, n.Netfilter
}

// plainFilter is a rule set without the numbers of its counters, where each counts instead; and without the elements of sets that no rule asks (any more), which are
// read or not.
func plainFilter(rs *ruleset.Ruleset) *ruleset.Ruleset {
	if rs == nil {
		return nil
	}
	out := *rs
	out.Counters = nil
	out.Sets, out.Tables = slices.Clone(out.Sets), slices.Clone(out.Tables)
	asked := map[ruleset.SetID]bool{}
	for i := range out.Tables {
		chains := slices.Clone(out.Tables[i].Chains)
		out.Tables[i].Chains = chains
		for j := range chains {
			if b := chains[j].Base; b != nil {
				plain := *b
				plain.Counter = min(plain.Counter, 0)
				chains[j].Base = &plain
			}
			chains[j].Rules = slices.Clone(chains[j].Rules)
			for k := range chains[j].Rules {
				rule := &chains[j].Rules[k]
				rule.Steps = slices.Clone(rule.Steps)
				for n, s := range rule.Steps {
					switch s := s.(type) {
					case ruleset.Lookup:
						asked[s.Set] = true
					case ruleset.Count:
						if s.Counter != ruleset.NoCounter {
							rule.Text += fmt.Sprintf(" counts %+v", rs.Counters[s.Counter])
							rule.Steps[n] = ruleset.Count{}
						}
					}
				}
			}
		}
	}
	for i := range out.Sets {
		if out.Sets[i].Elements = slices.Clone(out.Sets[i].Elements); !asked[ruleset.SetID(i)] {
			out.Sets[i].Elements, out.Sets[i].Unread = nil, false
		}
		// The kernel grows a hash behind the command's return, and lists what is in it in another order then.
		slices.SortFunc(out.Sets[i].Elements, func(a, b ruleset.Element) int { return a.Key[0].Lo.Compare(b.Key[0].Lo) })
	}
	return &out
}

// followed reads what Wait says and compares it with a fresh reading.
func followed(t *testing.T, r *Reader, what string) {
	t.Helper()
	for {
		p, err := r.Wait(20 * time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if p == 0 {
			break
		}
		if _, err := r.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	n := r.last
	want, hooks := wholeFilter(t)
	if d := cmp.Diff(plainFilter(want), plainFilter(n.Filter)); d != "" {
		t.Fatalf("%s: a fresh reading (-) differs from what events made (+):\n%s", what, d)
	}
	if d := cmp.Diff(hooks, n.Netfilter); d != "" {
		t.Fatalf("%s: hooks of a fresh reading (-) differ from what events made (+):\n%s", what, d)
	}
}

const followedTable = `table inet t {
 set named { type ipv4_addr; elements = { 10.9.9.1 } }
 set other { type ipv4_addr; }
 set wide { type ipv4_addr; flags interval; auto-merge; elements = { 10.8.0.0/24 } }
 set counted { type ipv4_addr; counter; }
 counter total { }
 chain a { ip saddr @named counter drop; counter name total; }
 chain b { tcp dport 1 counter; }
 chain c { ip saddr @wide counter; ip daddr @counted drop; }
 chain forward { type filter hook forward priority 0; jump a; }
}
table ip6 u {
 chain forward { type filter hook forward priority 10; }
}
`

// TestRulesFollowEvents makes random transactions of every kind of change, and compares what events of them made with a fresh reading, also where
// events are lost. Most single rules must have been followed, or this would prove nothing.
func TestRulesFollowEvents(t *testing.T) {
	for buffer, rounds := range map[int]int{0: 60, 2048: 40} {
		t.Run(fmt.Sprintf("buffer-%d", buffer), func(t *testing.T) {
			ns := namespace(t)
			ns.batchNFT(t, followedTable)
			r := open(t, Options{ReceiveBuffer: buffer})
			if _, err := r.Read(All); err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(7, uint64(buffer)))
			before := r.Stats()
			if testing.Short() {
				rounds /= 3
			}
			for i := range rounds {
				var script string
				for n := 1 + rng.IntN(2)*rng.IntN(2); n > 0; n-- { // transactions between two readings
					if s := randomTransaction(t, ns, rng); s != "" {
						if ns.tryNFT(t, s) {
							script += s + "---\n"
						}
					}
				}
				followed(t, r, fmt.Sprintf("round %d:\n%s", i, script))
			}
			s := r.Stats()
			t.Logf("%d rules by events, %d times all of them, %d times events were lost", s.RuleChanges-before.RuleChanges, s.RuleDumps-before.RuleDumps, s.Resyncs-before.Resyncs)
			if buffer == 0 && (s.RuleChanges-before.RuleChanges < uint64(rounds)/2 || s.RuleDumps-before.RuleDumps > uint64(rounds)*3/4) {
				t.Error("hardly any change was followed by its events")
			}
			if buffer != 0 && s.Resyncs == before.Resyncs {
				t.Error("no event was lost")
			}
		})
	}
}

func (ns netns) tryNFT(t *testing.T, script string) bool {
	t.Helper()
	path := t.TempDir() + "/script"
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.Command("nsenter", "--net=/run/netns/"+string(ns), "nft", "-f", path).Run() == nil
}

// randomTransaction is a script of changes that are made all at once.
func randomTransaction(t *testing.T, ns netns, rng *rand.Rand) string {
	t.Helper()
	type place struct{ chain, handle string }
	var rules []place
	rs := readAll(t).Ruleset
	for _, c := range rs.Table(ruleset.Inet, "t").Chains {
		for _, rule := range c.Rules {
			rules = append(rules, place{"inet t " + c.Name, fmt.Sprint(rule.Handle)})
		}
	}
	chains := []string{"a", "b", "c", "forward"}
	steps := []string{"counter", "ip saddr 10.0.0.%d counter drop", "tcp dport %d accept", "ip saddr @named counter drop", "counter name total",
		"ct state established accept", "jump c", "limit rate 5/second", "ip saddr { 10.1.0.%d, 10.2.0.0/16 } drop", "ip saddr @other drop"}
	var b strings.Builder
	n := 1
	if rng.IntN(3) == 0 {
		n += rng.IntN(4)
	}
	if rng.IntN(12) == 0 {
		n = 90 // more than is followed
	}
	for ; n > 0; n-- {
		chain := "inet t " + chains[rng.IntN(len(chains))]
		step := steps[min(rng.IntN(len(steps)), rng.IntN(len(steps)))]
		if strings.Contains(step, "%d") {
			step = fmt.Sprintf(step, 1+rng.IntN(200))
		}
		if step == "jump c" && strings.HasSuffix(chain, " c") {
			step = "return"
		}
		at := place{chain, ""}
		if len(rules) > 0 {
			at = rules[rng.IntN(len(rules))]
		}
		switch k := rng.IntN(42); {
		case k < 10:
			fmt.Fprintf(&b, "add rule %s %s\n", chain, step)
		case k < 16:
			fmt.Fprintf(&b, "insert rule %s %s\n", chain, step)
		case at.handle == "":
		case k < 20:
			fmt.Fprintf(&b, "add rule %s position %s counter\n", at.chain, at.handle)
		case k < 24:
			fmt.Fprintf(&b, "insert rule %s position %s counter\n", at.chain, at.handle)
		case k < 28:
			fmt.Fprintf(&b, "replace rule %s handle %s tcp dport 7 counter\n", at.chain, at.handle)
		case k < 34:
			fmt.Fprintf(&b, "delete rule %s handle %s\n", at.chain, at.handle)
		case k < 35:
			fmt.Fprintf(&b, "flush chain %s\n", chain)
		case k < 36:
			fmt.Fprintf(&b, "add element inet t named { 10.9.9.%d }\n", 1+rng.IntN(200))
		case k < 37:
			fmt.Fprintf(&b, "add element inet t wide { 10.8.%d.0-10.8.%d.7 }\n", rng.IntN(200), 200+rng.IntN(50))
		case k < 38:
			fmt.Fprintf(&b, "flush set inet t named\nadd element inet t named { 10.9.9.1, 10.9.9.%d }\nadd element inet t counted { 10.9.9.%d }\n", 2+rng.IntN(200), rng.IntN(200))
		case k < 39:
			fmt.Fprintf(&b, "add chain inet t x%d { type filter hook forward priority %d; }\n", rng.IntN(1000), rng.IntN(20))
		case k < 40:
			fmt.Fprintf(&b, "add chain inet t b { comment \"x\"; }\nadd table ip v\nadd chain ip v c\nadd rule ip v c counter\ndelete table ip v\n")
		default:
			fmt.Fprintf(&b, "add rule %s %s\nadd rule %s %s\n", chain, step, chain, step)
		}
	}
	return b.String()
}

// besideManyRules makes the table t with what is named before its chain forward, which begins with a rule and has a thousand more, and reads it.
func besideManyRules(t *testing.T, ns netns, before, rule string) (*Reader, *model.Network) {
	t.Helper()
	var script strings.Builder
	fmt.Fprintf(&script, "table ip t {\n%s\nchain forward { type filter hook forward priority 0; %s\n", before, rule)
	for i := range 1000 {
		fmt.Fprintf(&script, "ip saddr 10.0.%d.%d counter drop\n", i>>8, i&255)
	}
	ns.batchNFT(t, script.String()+"}\n}\n")
	r := open(t, Options{})
	first, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	return r, first
}

// readAfter runs a command and reads what its events say is other than before.
func readAfter(t *testing.T, ns netns, r *Reader, command string) *model.Network {
	t.Helper()
	ns.run(t, command)
	p, err := r.Wait(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Beside a thousand rules a changed element of a set is the elements of that set read again; all rules are the same values.
func TestOneElementIsOneSet(t *testing.T) {
	ns := namespace(t)
	r, first := besideManyRules(t, ns, "set s { type ipv4_addr; elements = { 192.0.2.1 } }\nset unasked { type ipv4_addr; }", "ip saddr @s drop")
	was := r.Stats()
	for i, c := range []struct {
		do           string
		there, dumps int
	}{
		{"nft add element ip t s '{ 192.0.2.2 }'", 2, 1},
		{"nft add element ip t unasked '{ 192.0.2.2 }'", 2, 1},
		{"nft add element ip t s '{ 192.0.2.3, 192.0.2.4 }'", 4, 2},
		{"nft flush set ip t s", 0, 3},
	} {
		n := readAfter(t, ns, r, c.do)
		at := slices.IndexFunc(n.Filter.Sets, func(s ruleset.Set) bool { return s.Name == "s" })
		if got := len(n.Filter.Sets[at].Elements); got != c.there {
			t.Fatalf("%s: %d elements", c.do, got)
		}
		if s := r.Stats(); s.RuleDumps != was.RuleDumps || s.SetDumps != was.SetDumps+uint64(c.dumps) {
			t.Errorf("%d, %s: %+v after %+v", i, c.do, s, was)
		}
		if &n.Filter.Table(ruleset.IP4, "t").Chains[0].Rules[0] != &first.Filter.Table(ruleset.IP4, "t").Chains[0].Rules[0] {
			t.Errorf("%s: the rules were made anew", c.do)
		}
	}
}

// TestOneRuleIsOneRule: beside a thousand rules, what a changed one costs is one rule read and translated, and nothing is dumped.
func TestOneRuleIsOneRule(t *testing.T) {
	ns := namespace(t)
	r, first := besideManyRules(t, ns, "chain live { }", "jump live")
	was := r.Stats()
	for i, c := range []struct {
		do   string
		live int
	}{{"nft add rule ip t live ip saddr 192.0.2.1 counter drop", 1}, {"nft insert rule ip t live ip saddr 192.0.2.2 drop", 2}, {"nft flush chain ip t live", 0}} {
		n := readAfter(t, ns, r, c.do)
		table := n.Filter.Table(ruleset.IP4, "t")
		if got := len(table.Chain("live").Rules); got != c.live {
			t.Fatalf("%s: %d rules", c.do, got)
		}
		if s := r.Stats(); s.RuleDumps != was.RuleDumps || s.RuleChanges != was.RuleChanges+[]uint64{1, 2, 4}[i] {
			t.Errorf("%s: %+v after %+v", c.do, s, was)
		}
		many := first.Filter.Table(ruleset.IP4, "t").Chain("forward").Rules
		if &table.Chain("forward").Rules[0] != &many[0] {
			t.Errorf("%s: the other chain was made anew", c.do)
		}
	}
}
