// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"strings"
)

// ruleTable is a generated table of iptables or ip6tables.
type ruleTable struct {
	tool  string // "iptables-legacy", "ip6tables-nft" …
	name  string // "raw", "mangle", "filter"
	base  []string
	users []string
	track bool
}

func (t *ruleTable) v6() bool { return strings.HasPrefix(t.tool, "ip6") }

// baseChains are those that forwarded packets meet.
var baseChains = map[string][]string{"raw": {"PREROUTING"}, "mangle": {"PREROUTING", "FORWARD", "POSTROUTING"}, "filter": {"FORWARD"}}

// iptablesTable makes a table and the command that loads it.
func (g *filterGen) iptablesTable(tool, name string, track bool) (*ruleTable, string) {
	t := &ruleTable{tool: tool, name: name, base: baseChains[name], track: track}
	for i := range g.rng.IntN(4) {
		t.users = append(t.users, fmt.Sprintf("u%d", i))
	}
	return t, g.restore(t)
}

// restore is a whole table, made anew.
func (g *filterGen) restore(t *ruleTable) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s-restore\n*%s\n", t.tool, t.name)
	for _, chain := range t.base {
		policy := "ACCEPT"
		if chance(g.rng, 15) {
			policy = "DROP"
		}
		fmt.Fprintf(&b, ":%s %s [0:0]\n", chain, policy)
	}
	for _, chain := range t.users {
		fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
	}
	for i, chain := range t.users { // chains lead to those before them only, so that there is no loop
		for range g.rng.IntN(5) {
			fmt.Fprintf(&b, "-A %s %s\n", chain, g.iptablesRule(t, "forward", t.users[:i]))
		}
	}
	for _, chain := range t.base {
		if g.c.Slow.Tunnel && chain == "POSTROUTING" { // the same in tunnels
			fmt.Fprintf(&b, "-A %s -p udp -m multiport --dports %d,%d -m comment --comment %s -j ACCEPT\n", chain, vxlanPort, flannelPort, unasked)
		}
		if t.v6() && chain == "POSTROUTING" {
			fmt.Fprintf(&b, "-A %s -d ff00::/8 -m comment --comment %s -j ACCEPT\n", chain, unasked)
		}
		for range 1 + g.rng.IntN(8) + g.more(3) {
			fmt.Fprintf(&b, "-A %s %s\n", chain, g.iptablesRule(t, strings.ToLower(chain), t.users))
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// iptablesRule is a rule without its chain.
func (g *filterGen) iptablesRule(t *ruleTable, hook string, chains []string) string {
	at := place{v6: t.v6(), hook: hook, track: t.track}
	g.another(at.v6)
	if len(t.users) > len(chains) {
		at.hook = "any"
	}
	words := g.conditions(at, g.rng.IntN(4))
	if g.c.IPSets != nil && chance(g.rng, 25+g.more(25)) {
		if m := g.matchIPSet(at); m != "" {
			words = append(g.alone(words), m)
		}
	}
	if chance(g.rng, 6) && !g.quiet {
		words = append(words, g.rareTraffic(at), pick(g.rng, slowMatchers)(g, at))
	}
	return strings.Join(append(words, g.iptablesTarget(t, hook, chains, len(words))), " ")
}

// rareTraffic is a condition in front of a rule that only the kernel can evaluate: most packets do not reach it.
func (g *filterGen) rareTraffic(at place) string {
	if at.nft {
		return at.ip() + " dscp 7"
	}
	return "-m dscp --dscp 7"
}

// iptablesTarget is what a rule does with its packets; rules that ask for nothing seldom end the way of everything.
func (g *filterGen) iptablesTarget(t *ruleTable, hook string, chains []string, conditions int) string {
	if g.quiet {
		return g.quietTarget(t, chains)
	}
	switch n := g.rng.IntN(100); {
	case n < 15:
		return ""
	case n < 30 && len(chains) > 0:
		return "-j " + pick(g.rng, chains)
	case n < 35 && len(chains) > 0:
		return "-g " + pick(g.rng, chains)
	case n < 45 && t.name == "mangle":
		return pick(g.rng, []string{"-j MARK --set-mark 1", "-j MARK --set-xmark 2/3", "-j MARK --set-mark 0", "-j MARK --or-mark 2", "-j DSCP --set-dscp 4", "-j TOS --set-tos 0x10", "-j TOS --set-tos 8/0x3f"})
	case n < 45 && t.name == "raw" && t.track:
		return "-j CT --notrack"
	case n < 48 && t.name == "filter" && conditions > 0 && !g.quiet:
		return pick(g.rng, []string{"-j LOG", "-j REJECT"})
	case n < 66 && conditions > 0:
		return "-j DROP"
	case n < 74:
		return "-j RETURN"
	case conditions == 0 && n < 90:
		return ""
	}
	return "-j ACCEPT"
}

// nftTable is a generated table of nft.
type nftTable struct {
	family, name string
	base, users  []string // chains
	priorities   []int    // of base
	hooks        map[string]string
	sets         []nftSet
	track        bool
}

// nftTable makes a table and the command that loads it, line by line.
func (g *filterGen) nftTable(family, name string, track bool) (*nftTable, string) {
	t := &nftTable{family: family, name: name, hooks: map[string]string{}, track: track && family != "netdev"}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	b.WriteString("nft -f -\n")
	line("add table %s %s", family, name)
	for i := range g.rng.IntN(3) {
		t.users = append(t.users, fmt.Sprintf("u%d", i))
		line("add chain %s %s u%d", family, name, i)
	}
	for i := range g.rng.IntN(3) + g.more(4) {
		s := g.nftSet(t, i)
		t.sets = append(t.sets, s)
		for _, l := range s.lines(t) {
			line("%s", l)
		}
	}
	if chance(g.rng, 30) {
		line("add counter %s %s named", family, name)
		t.hooks["named counter"] = "yes"
	}
	for i, chain := range t.users {
		for range g.rng.IntN(4) {
			line("add rule %s %s %s %s", family, name, chain, g.nftRule(t, "any", t.users[:i]))
		}
	}
	g.nftBase(t, line)
	for _, chain := range t.base {
		if t.hooks[chain] == "postrouting" && family != "ip" {
			line("add rule %s %s %s ip6 daddr ff00::/8 counter accept comment %q", family, name, chain, unasked)
		}
		if t.hooks[chain] == "postrouting" && g.c.Slow.Tunnel { // the same in tunnels
			line("add rule %s %s %s udp dport { %d, %d } counter accept comment %q", family, name, chain, vxlanPort, flannelPort, unasked)
		}
		for range 1 + g.rng.IntN(8) + g.more(3) {
			line("add rule %s %s %s %s", family, name, chain, g.nftRule(t, t.hooks[chain], t.users))
		}
	}
	return t, b.String()
}

// nftBase makes one to three base chains.
func (g *filterGen) nftBase(t *nftTable, line func(string, ...any)) {
	for i := range 1 + g.rng.IntN(3) {
		chain := fmt.Sprintf("b%d", i)
		hook := pick(g.rng, []string{"forward", "forward", "forward", "prerouting", "postrouting"})
		device := ""
		if t.family == "netdev" || t.family == "inet" && chance(g.rng, 15) {
			hook, device = "ingress", fmt.Sprintf(" devices = { %s }", strings.Join(g.someDevices(), ", "))
		}
		policy := "accept"
		if chance(g.rng, 12) {
			policy = "drop"
		}
		t.base = append(t.base, chain)
		t.hooks[chain] = hook
		t.priorities = append(t.priorities, pick(g.rng, []int{-300, -150, 0, 0, 5, 10}))
		line("add chain %s %s %s { type filter hook %s%s priority %d; policy %s; }", t.family, t.name, chain, hook, device, t.priorities[i], policy)
	}
}

// someDevices are one to three ports.
func (g *filterGen) someDevices() (names []string) {
	for range 1 + g.rng.IntN(3) {
		if name := portName(g.c.port(g.rng)); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// nftRule is a rule without its chain.
func (g *filterGen) nftRule(t *nftTable, hook string, chains []string) string {
	at := place{v6: t.family == "ip6" || t.family != "ip" && chance(g.rng, 40), hook: hook, nft: true, track: t.track, user: hook == "any"}
	if t.family == "netdev" {
		at.hook = "ingress"
	}
	g.another(at.v6)
	words := g.conditions(at, g.rng.IntN(4))
	if len(t.sets) > 0 && chance(g.rng, 40+g.more(10)) {
		lookup, end := g.matchSet(at, t)
		if strings.Contains(strings.Join(lookup, " "), "port") {
			words = slices.DeleteFunc(words, speaksOfProtocol) // nft refuses rules that contradict themselves
		}
		if len(lookup) > 0 {
			words = append(g.alone(words), lookup...)
		}
		if end {
			return strings.Join(words, " ")
		}
	}
	if chance(g.rng, 25) && !g.quiet {
		words = append([]string{"counter"}, words...) // one in front counts all
	}
	if chance(g.rng, 6) && !g.quiet {
		if m := pick(g.rng, slowMatchers)(g, at); m != "" {
			words = append(words, g.rareTraffic(at), m)
		}
	}
	conditions := len(words)
	if chance(g.rng, 60) || g.quiet {
		words = append(words, "counter")
	}
	if t.hooks["named counter"] != "" && chance(g.rng, 15) {
		words = append(words, "counter name named")
	}
	return strings.Join(append(words, g.nftVerdict(t, at, hook, chains, conditions)), " ")
}

func speaksOfProtocol(match string) bool {
	word, _, _ := strings.Cut(match, " ")
	return slices.Contains([]string{"udp", "tcp", "sctp", "icmp", "icmpv6"}, word) || strings.HasPrefix(match, "meta l4proto")
}

func (g *filterGen) nftVerdict(t *nftTable, at place, hook string, chains []string, conditions int) string {
	if g.quiet {
		return g.quietVerdict(at, chains)
	}
	switch n := g.rng.IntN(100); {
	case n < 12:
		return "continue"
	case n < 27 && len(chains) > 0:
		return "jump " + pick(g.rng, chains)
	case n < 32 && len(chains) > 0:
		return "goto " + pick(g.rng, chains)
	case n < 42:
		return pick(g.rng, []string{"meta mark set 1", "meta mark set meta mark | 2", at.ip() + " dscp set 4", "meta mark set 0"})
	case n < 45 && t.track && hook == "prerouting":
		return "notrack"
	case n < 48 && conditions > 0 && t.family != "netdev" && !g.quiet:
		return "log"
	case n < 66 && conditions > 0:
		return "drop"
	case n < 74:
		return "return"
	case conditions == 0 && n < 90:
		return "continue"
	}
	return "accept"
}
