// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// keyPart is a part of a set's key: its type, where rules find it, and one of its values.
type keyPart struct {
	nft   string // the type
	asked []string
	value func(g *filterGen, v6, ranges bool) string
}

// nftKeys are the parts that keys of nft's sets are made of.
var nftKeys = map[string]keyPart{
	"address": {"", []string{"saddr", "daddr"}, func(g *filterGen, v6, ranges bool) string { return g.element(v6, ranges) }},
	"port":    {"inet_service", []string{"udp sport", "udp dport", "tcp dport", "th dport"}, func(g *filterGen, _, ranges bool) string { return g.elementPort(ranges) }},
	"protocol": {"inet_proto", []string{"meta l4proto"}, func(g *filterGen, _, _ bool) string {
		if g.like.proto != "" {
			return strings.TrimSuffix(g.like.proto, ":")
		}
		return pick(g.rng, []string{"udp", "tcp", "icmp", "ipv6-icmp"})
	}},
	"device": {"ifname", []string{"iifname"}, func(g *filterGen, _, _ bool) string { return fmt.Sprintf("%q", g.c.dev(g.c.port(g.rng))) }},
	"type": {"fib_addrtype", []string{"fib saddr type"}, func(g *filterGen, _, _ bool) string {
		return pick(g.rng, []string{"local", "unicast", "broadcast", "anycast"})
	}},
	"mark": {"mark", []string{"meta mark"}, func(g *filterGen, _, _ bool) string { return fmt.Sprint(g.rng.IntN(4)) }},
}

// nftShapes are the keys.
var nftShapes = [][]string{{"address"}, {"address"}, {"port"}, {"protocol"}, {"device"}, {"mark"}, {"address", "port"}, {"address", "address"}, {"address", "protocol", "port"}, {"device", "address"}, {"type"}, {"type", "protocol"}}

// nftSet is a set or verdict map of a table.
type nftSet struct {
	name            string
	parts           []string
	v6, ranges      bool
	verdicts        bool
	counters        bool
	elements, taken []string
}

// element is an address or network near the packets; all networks of one length, and addresses alone, are disjoint unless equal.
func (g *filterGen) element(v6, ranges bool) string {
	p := g.prefix(v6)
	if g.quiet {
		p = netip.PrefixFrom(g.like.last, 0)
	}
	if !ranges {
		return p.Addr().String()
	}
	return netip.PrefixFrom(p.Addr(), map[bool]int{true: 64, false: 24}[v6]).Masked().String()
}

func (g *filterGen) elementPort(ranges bool) string {
	p := pick(g.rng, []int{1000, 2000, 53, 80})
	if g.like.port != 0 && g.like.port < 65000 {
		p = g.like.port
	}
	if ranges {
		return fmt.Sprintf("%d-%d", p, p+10)
	}
	return fmt.Sprint(p)
}

func (g *filterGen) nftSet(t *nftTable, i int) nftSet {
	s := nftSet{
		name: fmt.Sprintf("s%d", i), parts: turnOf(g, 1, nftShapes), v6: t.family == "ip6" || t.family != "ip" && chance(g.rng, 40),
		ranges: chance(g.rng, 50), verdicts: chance(g.rng, 30), counters: chance(g.rng, 30) && !g.quiet,
	}
	if g.quiet {
		s.verdicts, s.ranges = g.turns[1]/len(nftShapes)%2 == 0, g.turns[1]/len(nftShapes)/2%2 == 0
	}
	if slices.Contains(s.parts, "device") || slices.Contains(s.parts, "protocol") && len(s.parts) == 1 || s.parts[0] == "mark" || s.parts[0] == "type" {
		s.ranges = false
	}
	for range g.rng.IntN(8) + g.more(6) {
		s.grow(g, t)
	}
	return s
}

// grow adds an element, unless its key is there.
func (s *nftSet) grow(g *filterGen, t *nftTable) (element string) {
	g.another(s.v6)
	var key []string
	for _, p := range s.parts {
		key = append(key, nftKeys[p].value(g, s.v6, s.ranges))
	}
	element = strings.Join(key, " . ")
	if slices.Contains(s.taken, element) {
		return ""
	}
	s.taken = append(s.taken, element)
	if s.verdicts {
		verdicts := []string{"accept", "drop", "drop", "return", "continue"}
		if len(t.users) > 0 {
			verdicts = append(verdicts, "jump "+t.users[0], "goto "+t.users[0])
		}
		element += " : " + pick(g.rng, verdicts)
	}
	s.elements = append(s.elements, element)
	return element
}

// lines are the commands that make it.
func (s *nftSet) lines(t *nftTable) []string {
	var types, options []string
	for _, p := range s.parts {
		kind := nftKeys[p].nft
		if p == "address" {
			kind = map[bool]string{true: "ipv6_addr", false: "ipv4_addr"}[s.v6]
		}
		types = append(types, kind)
	}
	word, kind := "set", strings.Join(types, " . ")
	if s.verdicts {
		word, kind = "map", kind+" : verdict"
	}
	if s.ranges {
		options = append(options, " flags interval;")
	}
	if s.counters {
		options = append(options, " counter;")
	}
	out := []string{fmt.Sprintf("add %s %s %s %s { type %s;%s }", word, t.family, t.name, s.name, kind, strings.Join(options, ""))}
	if len(s.elements) > 0 {
		out = append(out, fmt.Sprintf("add element %s %s %s { %s }", t.family, t.name, s.name, strings.Join(s.elements, ", ")))
	}
	return out
}

// asked is the key as a rule writes it.
func (s *nftSet) asked(g *filterGen) string {
	var key []string
	side := g.rng.IntN(2)
	if g.quiet && chance(g.rng, 70) {
		side = 0
	}
	for _, p := range s.parts {
		word := pick(g.rng, nftKeys[p].asked)
		if g.quiet && p == "port" && chance(g.rng, 70) {
			word = "th dport"
		}
		if p == "address" {
			word = map[bool]string{true: "ip6 ", false: "ip "}[s.v6] + nftKeys[p].asked[side%2]
			side++
		}
		key = append(key, word)
	}
	return strings.Join(key, " . ")
}

// matchSet is a lookup in one of the table's sets, or in one without a name. A verdict map ends a rule; it may lead to user chains, so that those ask none.
func (g *filterGen) matchSet(at place, t *nftTable) (words []string, end bool) {
	s := turnOf(g, 3, t.sets)
	if slices.Contains(s.parts, "address") && s.v6 != at.v6 || s.verdicts && at.user || s.parts[0] == "type" && at.hook != "prerouting" && at.hook != "forward" {
		return nil, false
	}
	key := s.asked(g)
	if slices.Contains(s.parts, "port") && strings.Contains(key, "th dport") {
		words = append(words, "meta l4proto { tcp, udp }")
	}
	switch {
	case s.verdicts && chance(g.rng, 40) && len(s.elements) > 0:
		return append(words, fmt.Sprintf("%s vmap { %s }", key, strings.Join(s.elements, ", "))), true
	case s.verdicts:
		return append(words, fmt.Sprintf("%s vmap @%s", key, s.name)), true
	case chance(g.rng, 20) && len(s.elements) > 0:
		return append(words, fmt.Sprintf("%s %s{ %s }", key, g.not(at), strings.Join(s.elements, ", "))), false
	}
	return append(words, fmt.Sprintf("%s %s@%s", key, g.not(at), s.name)), false
}

// ipset is a generated set of ipset.
type ipset struct {
	name, kind string
	v6         bool
}

// ipsetKinds are the types with the directions that rules ask them by and what elements are made of.
var ipsetKinds = []struct {
	kind, create, directions string
	v6                       bool
}{
	{"bitmap:ip", "range 10.0.0.0/16", "src", false}, {"bitmap:port", "range 0-65535", "dst", true}, {"bitmap:ip,mac", "range 10.0.0.0/16", "src,src", false},
	{"hash:ip", "", "src", true}, {"hash:net", "", "dst", true}, {"hash:ip,port", "", "src,dst", true}, {"hash:net,port", "", "dst,dst", true},
	{"hash:ip,port,ip", "", "src,dst,dst", true}, {"hash:ip,port,net", "", "src,dst,dst", true}, {"hash:net,iface", "", "src,src", true},
	{"hash:mac", "", "src", true}, {"hash:ip,mac", "", "src,src", true}, {"hash:net,net", "", "src,dst", true}, {"hash:ip,mark", "", "src,src", true}, {"hash:net,port,net", "", "src,dst,dst", true},
}

// ipsets makes sets and the command that loads them.
func (g *filterGen) ipsets() string {
	var b strings.Builder
	b.WriteString("ipset restore\n")
	for i := range 1 + g.rng.IntN(4) + g.more(3) {
		k := turnOf(g, 2, ipsetKinds)
		if !slices.Contains(g.c.Kinds, "ipset "+k.kind) {
			continue
		}
		s := ipset{fmt.Sprintf("i%d", i), k.kind, k.v6 && chance(g.rng, 35)}
		fmt.Fprintf(&b, "create %s %s %s", s.name, s.kind, k.create)
		if s.v6 && k.kind != "bitmap:port" && k.kind != "hash:mac" {
			b.WriteString(" family inet6")
		}
		switch n := g.rng.IntN(100); { // what elements have beside their key lies behind it
		case n < 40 && !g.quiet:
			b.WriteString(" counters")
		case n < 60:
			b.WriteString(pick(g.rng, []string{" comment", " skbinfo", " timeout 0", " timeout 0 comment"}))
		}
		b.WriteString("\n")
		for range g.rng.IntN(10) + g.more(6) {
			fmt.Fprintf(&b, "add %s %s -exist\n", s.name, g.ipsetElement(s))
		}
		g.c.IPSets = append(g.c.IPSets, s)
	}
	return b.String()
}

// ipsetElement is an element near the packets.
func (g *filterGen) ipsetElement(s ipset) string {
	var parts []string
	g.another(s.v6)
	kind := s.kind[strings.Index(s.kind, ":")+1:]
	for _, p := range strings.Split(kind, ",") {
		switch p {
		case "ip":
			parts = append(parts, g.ipsetAddress(s).String())
		case "net":
			p := g.prefix(s.v6)
			if p.Bits() == 0 {
				p = netip.PrefixFrom(p.Addr(), 8)
			}
			parts = append(parts, p.Masked().String())
		case "port":
			port := pick(g.rng, []int{1000, 2000, 53, 80})
			proto := pick(g.rng, []string{"tcp:", "udp:"})
			if g.like.port != 0 {
				port, proto = g.like.port, g.like.proto
			}
			if strings.HasPrefix(s.kind, "bitmap") {
				proto = ""
			}
			parts = append(parts, fmt.Sprintf("%s%d", proto, port))
		case "iface":
			parts = append(parts, g.c.dev(g.near()))
		case "mac":
			parts = append(parts, hostMAC(g.near(), g.rng.IntN(2)).String())
		case "mark":
			parts = append(parts, fmt.Sprint(g.rng.IntN(4-g.more(3))))
		}
	}
	out := strings.Join(parts, ",")
	if s.kind == "hash:net,iface" && chance(g.rng, 20) {
		out += " wildcard"
	}
	if strings.Contains(s.kind, "hash:net") && chance(g.rng, 15) {
		out += " nomatch"
	}
	return out
}

// ipsetAddress is an address that fits the set.
func (g *filterGen) ipsetAddress(s ipset) netip.Addr {
	if strings.HasPrefix(s.kind, "bitmap") {
		return netip.AddrFrom4([4]byte{10, 0, byte(g.near()), byte(10 + g.rng.IntN(2))})
	}
	a := g.prefix(s.v6).Addr()
	if g.quiet {
		a = g.like.last
	}
	if a.IsUnspecified() {
		a = a.Next()
	}
	return a
}

// matchIPSet asks for one of the sets that fit.
func (g *filterGen) matchIPSet(at place) string {
	s := turnOf(g, 3, g.c.IPSets)
	free := s.kind == "bitmap:port" || s.kind == "hash:mac"
	if s.v6 != at.v6 && !free || strings.Contains(s.kind, "mac") && at.hook != "forward" && at.hook != "prerouting" {
		return ""
	}
	for _, k := range ipsetKinds {
		if k.kind == s.kind {
			directions := k.directions
			switch {
			case !chance(g.rng, 30):
			case s.kind == "hash:net,iface" && chance(g.rng, 50):
				directions = pick(g.rng, []string{"src,dst", "dst,src"})
			case !strings.Contains(s.kind, "mac") || chance(g.rng, 50):
				directions = strings.NewReplacer("src", "dst", "dst", "src").Replace(directions)
			}
			return fmt.Sprintf("-m set %s--match-set %s %s", g.not(at), s.name, directions)
		}
	}
	return ""
}
