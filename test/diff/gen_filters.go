// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// filterShare is the percentage of configurations that have packet filters.
var filterShare = 75

// genFilters loads packet filters in some configurations: tables of iptables, ip6tables and nft with the sets that they ask, each by one command.
func genFilters(_ *rand.Rand, c *Config) {
	rng := c.Filtering
	if !chance(rng, filterShare) {
		return
	}
	g := &filterGen{rng: rng, c: c}
	track := chance(rng, 25)
	if chance(rng, 35) {
		c.add("%s", g.ipsets())
	}
	for range 1 + rng.IntN(2) {
		g.load(track)
	}
}

// load loads a table of some dialect.
func (g *filterGen) load(track bool) {
	switch g.rng.IntN(10) {
	case 0, 1, 2:
		g.loadTable("legacy", track)
	case 3, 4:
		g.loadTable("nft", track)
	case 5, 6:
		g.loadNFT("ip", track)
	case 7:
		g.loadNFT("ip6", track)
	case 8:
		g.loadNFT("inet", track)
	case 9:
		g.loadNFT("netdev", track)
	}
}

// loadTable loads a table of iptables and, mostly, its twin of ip6tables.
func (g *filterGen) loadTable(kind string, track bool) {
	name := pick(g.rng, []string{"filter", "filter", "filter", "mangle", "raw"})
	if g.quiet && chance(g.rng, 50) {
		name = "mangle"
	}
	for _, tool := range []string{"iptables-", "ip6tables-"} {
		if chance(g.rng, 30) && !g.quiet {
			continue
		}
		t, command := g.iptablesTable(tool+kind, name, track)
		g.c.add("%s", command)
		g.c.Tables = append(g.c.Tables, t)
		g.excuse(!t.v6(), t.v6(), track)
	}
}

func (g *filterGen) loadNFT(family string, track bool) {
	t, command := g.nftTable(family, fmt.Sprintf("t%d", len(g.c.NFT)), track)
	g.c.add("%s", command)
	g.c.NFT = append(g.c.NFT, t)
	g.excuse(family != "ip6", family != "ip", track)
}

// excuse is what a table of these families leaves to Linux: everything where connections are tracked, since those of the rig begin with each packet.
func (g *filterGen) excuse(four, six, track bool) {
	g.c.Slow.Rules = true
	if track || !rulesFast {
		g.c.Slow.IP4, g.c.Slow.IP6 = g.c.Slow.IP4 || four, g.c.Slow.IP6 || six
	}
}

// filtered says whether a configuration has generated packet filters.
func (c *Config) filtered() bool { return len(c.Tables)+len(c.NFT) > 0 }

// changeFilters is one change of what is loaded, in force when its command returns.
func (c *Config) changeFilters() []string {
	return (&filterGen{rng: c.Filtering, c: c}).change()
}

func (g *filterGen) change() []string {
	c := g.c
	all := len(c.Tables) + len(c.NFT) + min(1, len(c.IPSets))
	switch n := g.rng.IntN(all); {
	case n < len(c.Tables):
		return []string{g.changeTable(c.Tables[n])}
	case n < len(c.Tables)+len(c.NFT):
		return []string{g.changeNFT(c.NFT[n-len(c.Tables)])}
	}
	return []string{g.changeIPSet(pick(g.rng, c.IPSets))}
}

func (g *filterGen) changeTable(t *ruleTable) string {
	chain := pick(g.rng, t.base)
	var rule string
	for rule == "" || strings.ContainsAny(rule, "\"&>") { // words of a command, nothing that a shell takes for its own
		rule = g.iptablesRule(t, strings.ToLower(chain), t.users)
	}
	at := fmt.Sprintf("%s -t %s", t.tool, t.name)
	guard := 1 // behind the rules for what routers say unasked
	if t.v6() && chain == "POSTROUTING" {
		guard++
	}
	if g.c.Slow.Tunnel && chain == "POSTROUTING" {
		guard++
	}
	switch g.rng.IntN(7) {
	case 0:
		return fmt.Sprintf("%s -A %s %s", at, chain, rule)
	case 1, 2:
		return fmt.Sprintf("%s -I %s %d %s", at, chain, guard, rule)
	case 3:
		return fmt.Sprintf("%s -D %s %d", at, chain, guard)
	case 4:
		if guard == 1 {
			return fmt.Sprintf("%s -F %s", at, chain)
		}
		return fmt.Sprintf("%s -R %s %d %s", at, chain, guard, strings.TrimSpace(rule))
	case 5:
		return fmt.Sprintf("%s -P %s %s", at, chain, pick(g.rng, []string{"ACCEPT", "DROP"}))
	}
	return g.restore(t)
}

func (g *filterGen) changeNFT(t *nftTable) string {
	chain := pick(g.rng, t.base)
	at := fmt.Sprintf("%s %s", t.family, t.name)
	post := t.hooks[chain] == "postrouting"
	if len(t.sets) > 0 && chance(g.rng, 50) {
		s := &t.sets[g.rng.IntN(len(t.sets))]
		switch {
		case chance(g.rng, 50) || len(s.elements) == 0:
			if e := s.grow(g, t); e != "" {
				return fmt.Sprintf("nft add element %s %s { %s }", at, s.name, e)
			}
		case chance(g.rng, 80):
			i := g.rng.IntN(len(s.elements))
			e := s.elements[i]
			key, _, _ := strings.Cut(e, " : ")
			s.elements = append(s.elements[:i:i], s.elements[i+1:]...)
			s.taken = append(s.taken[:i:i], s.taken[i+1:]...)
			return fmt.Sprintf("nft delete element %s %s { %s }", at, s.name, key)
		default:
			return fmt.Sprintf("nft flush %s %s %s", map[bool]string{true: "map", false: "set"}[s.verdicts], at, s.name)
		}
	}
	rule := g.nftRule(t, t.hooks[chain], t.users)
	switch n := g.rng.IntN(5); {
	case n == 0:
		return fmt.Sprintf("nft add rule %s %s %s", at, chain, rule)
	case n == 1 && !post:
		return fmt.Sprintf("nft insert rule %s %s %s", at, chain, rule)
	case n == 2 && !post:
		return fmt.Sprintf("nft flush chain %s %s", at, chain)
	case n == 3 && t.hooks[chain] == "ingress": // on one device more, or refused
		return fmt.Sprintf("nft add chain %s %s { type filter hook ingress device %s priority %d; }", at, chain, portName(g.c.port(g.rng)), t.priorities[slices.Index(t.base, chain)])
	case n == 3:
		return fmt.Sprintf("nft chain %s %s { policy %s; }", at, chain, pick(g.rng, []string{"accept", "drop"}))
	}
	behind := 0
	if post && g.c.Slow.Tunnel && t.family != "ip" {
		behind = 1
	}
	return fmt.Sprintf("nft add rule %s %s index %d %s", at, chain, behind, rule)
}

func (g *filterGen) changeIPSet(s ipset) string {
	switch n := g.rng.IntN(10); {
	case n < 5:
		return fmt.Sprintf("ipset add %s %s -exist", s.name, g.ipsetElement(s))
	case n < 9:
		e, _, _ := strings.Cut(g.ipsetElement(s), " ")
		return fmt.Sprintf("ipset del %s %s -exist", s.name, e)
	}
	return "ipset flush " + s.name
}
