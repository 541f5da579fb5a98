// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// Rules in every dialect are obeyed by packets that stay fast; those that meet what only Linux can evaluate leave, and no others.
func TestRulesAreFastAndObeyed(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			r := newRig(t, hook)
			shell := func(script string) {
				t.Helper()
				if err := r.net.Node(lab.Dut).Shell(script); err != nil {
					t.Fatal(err)
				}
			}
			all := lab.V4Prefixes(50)
			open, shut, half := all.Host(1, 9).String(), all.Host(2, 9).String(), all.Host(3, 9).String()
			r.leaves("before", shut, reason.Fast, true)
			for _, c := range []struct{ what, add, remove string }{
				{"nft", "nft 'table inet f { set s { type ipv4_addr; elements = { SHUT } }; chain c { type filter hook forward priority 0; ip daddr @s drop; ip daddr HALF limit rate 1/second; }; }'", "nft flush ruleset"},
				{"iptables-nft", "iptables-nft -A FORWARD -d SHUT -j DROP; iptables-nft -A FORWARD -d HALF -m statistic --mode random --probability 0.00001 -j DROP", "nft flush ruleset"},
				{"iptables-legacy", "iptables-legacy -A FORWARD -d SHUT -j DROP; iptables-legacy -t mangle -A POSTROUTING -d HALF -m length --length 0:9 -m recent --name x --rcheck -j DROP; iptables-legacy -A FORWARD -d HALF -m limit --limit 9/s", "iptables-legacy -F"},
			} {
				shell(strings.NewReplacer("SHUT", shut, "HALF", half).Replace(c.add))
				r.leaves(c.what+": dropped", shut, reason.RuleDrop, false)
				r.leaves(c.what+": only Linux can tell", half, reason.NetfilterRule, true)
				r.leaves(c.what+": accepted", open, reason.Fast, true)
				shell(c.remove)
				r.leaves(c.what+" gone", shut, reason.Fast, true)
			}
		})
	}
}

// Beside thousands of rules a change of one is obeyed from the next packet on, be it that Linux obeys while the rules are compiled, and soon by the fast path itself; a
// route that changes while they are compiled is followed in a round that does not wait for them.
func TestManyRulesAreCompiledBehindTheLoop(t *testing.T) {
	r := newRig(t, graph.XDP)
	all := lab.V4Prefixes(50)
	open, shut := all.Host(1, 9).String(), all.Host(2, 9).String()
	script := func(count int) string {
		var b strings.Builder
		b.WriteString("flush ruleset\ntable ip t {\nchain live { }\nchain c { type filter hook forward priority 0; jump live\n")
		for i := range count {
			fmt.Fprintf(&b, "ip saddr 11.%d.%d.1 counter drop\n", i>>8, i&255)
		}
		return b.String() + "}\n}\n"
	}
	load := func(count int) {
		t.Helper()
		path := t.TempDir() + "/rules"
		if err := os.WriteFile(path, []byte(script(count)), 0o600); err != nil {
			t.Fatal(err)
		}
		r.exec("nft -f " + path)
	}
	load(10)
	r.leaves("few rules", open, reason.Fast, true)
	load(10_000)
	was := r.engine.State().Generation
	r.exec("ip addr add 192.0.2.1/32 dev out")
	r.leaves("many rules", open, reason.Fast, true)
	if s := r.engine.State(); s.Generation < was+2 {
		t.Errorf("%d rounds for rules and an address", s.Generation-was)
	}
	for range 3 {
		before := r.engine.State().Reader
		r.exec("nft add rule ip t live ip daddr " + shut + " counter drop")
		if _, arrived := r.send(shut); arrived {
			t.Fatal("a packet passed by rules that were others already")
		}
		if f := r.engine.State().Graph.Filter4; f.Over == nil || f.Front != nil {
			t.Errorf("what the rule concerns is not decided in front of the images: %+v", f.Slow)
		}
		start := time.Now()
		r.leaves("a rule more", shut, reason.RuleDrop, false)
		t.Logf("one rule beside 10,000 is obeyed by the fast path within %s; %+v", time.Since(start), r.engine.State().Stages)
		r.exec("nft flush chain ip t live")
		r.leaves("a rule less", shut, reason.Fast, true)
		if after := r.engine.State().Reader; after.RuleDumps != before.RuleDumps || after.RuleChanges < before.RuleChanges+2 {
			t.Errorf("for one rule all were read: %+v after %+v", after, before)
		}
	}
}

// An element of a set is decided over in front of the images of thousands of rules as a rule is: nothing is dumped but the set, and no packet but those of the element waits.
func TestElementsBesideManyRules(t *testing.T) {
	r := newRig(t, graph.XDP)
	all := lab.V4Prefixes(50)
	open, shut, wide := all.Host(1, 9).String(), all.Host(2, 9).String(), all.Host(3, 9)
	var b strings.Builder
	b.WriteString("table ip t {\nset s { type ipv4_addr; }\nset w { type ipv4_addr; flags interval; auto-merge; elements = { 172.16.0.0/12 } }\n" +
		"chain c { type filter hook forward priority 0\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "ip daddr 11.%d.%d.1 counter drop\n", i>>8, i&255)
	}
	b.WriteString("ip daddr @s counter drop\nip daddr != @w accept\ncounter drop\n}\n}\n")
	path := t.TempDir() + "/rules"
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r.exec("nft -f " + path)
	for _, dst := range []string{open, shut, wide.String()} {
		r.leaves("many rules", dst, reason.Fast, true)
	}
	change := func(do, dst string, want reason.Code, passes, over bool) {
		t.Helper()
		before := r.engine.State().Reader
		r.exec(do)
		if _, arrived := r.send(dst); arrived != passes {
			t.Fatalf("%s: the next packet arrived: %v", do, arrived)
		}
		if f := r.engine.State().Graph.Filter4; (f.Over != nil) != over || f.Front != nil {
			t.Errorf("%s: what it concerns is not decided in front of the images: %+v", do, f.Slow)
		}
		if _, arrived := r.send(open); !arrived {
			t.Fatalf("%s: a packet of nobody's element is gone", do)
		}
		start := time.Now()
		r.leaves(do, dst, want, passes)
		r.leaves(do, open, reason.Fast, true)
		t.Logf("%s: obeyed by the fast path within %s; %+v", do, time.Since(start), r.engine.State().Stages)
		if s := r.engine.State(); s.Reader.RuleDumps != before.RuleDumps || s.Reader.SetDumps == before.SetDumps {
			t.Errorf("%s: %+v after %+v", do, s.Reader, before)
		}
	}
	for range 3 {
		change("nft add element ip t s { "+shut+" }", shut, reason.RuleDrop, false, true)
		change("nft add element ip t w { "+wide.Prev().String()+"-"+wide.Next().String()+" }", wide.String(), reason.RuleDrop, false, true)
		change("nft flush set ip t s", shut, reason.Fast, true, true)
		change("nft delete element ip t w { "+wide.Prev().String()+"-"+wide.Next().String()+" }", wide.String(), reason.Fast, true, false) // as the images have it
	}
}

// A rule is obeyed from the next packet on also where a round that reads links, and no rules, falls between the rule and its event.
func TestRoundsBetweenARuleAndItsEvent(t *testing.T) {
	r := newRig(t, graph.XDP)
	shut := lab.V4Prefixes(50).Host(2, 9).String()
	r.exec("nft add table ip t")
	r.exec("nft add chain ip t c { type filter hook forward priority 0; }")
	defer r.churn()()
	for range 20 {
		r.leaves("no rule", shut, reason.Fast, true)
		r.exec("nft add rule ip t c ip daddr " + shut + " drop")
		if _, arrived := r.send(shut); arrived {
			t.Fatal("a packet passed by rules that were others already")
		}
		r.exec("nft flush chain ip t c")
	}
}

// churn changes a link that has nothing to do with anything, some thousand times a second, until the function that it returns is called.
func (r *rig) churn() (stop func()) {
	dut := r.net.Node(lab.Dut)
	r.exec("ip link add churned type veth peer name churner")
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- dut.Do(func() error {
			link, err := netlink.LinkByName("churned")
			for i := 0; err == nil; i++ {
				select {
				case <-done:
					return nil
				case <-time.After(100 * time.Microsecond):
					err = netlink.LinkSetAlias(link, fmt.Sprint(i))
				}
			}
			return err
		})
	}()
	return func() {
		close(done)
		if err := <-ended; err != nil {
			r.Error(err)
		}
	}
}
