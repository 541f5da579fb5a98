// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
)

// place is where a generated rule will stand: what may be asked there.
type place struct {
	v6    bool
	hook  string // "ingress", "prerouting", "forward", "postrouting"
	nft   bool   // nft's own words, not those of iptables
	track bool   // connections may be asked for
	user  bool   // in a user chain
}

// filterGen makes rules near a configuration: what they ask for is what its packets have.
type filterGen struct {
	rng *rand.Rand
	c   *Config
	// quiet: nothing that only the kernel can evaluate, more rules that go on, and values of packets that will come (gen_quiet.go).
	quiet   bool
	samples []Packet
	like    sample
	turns   [4]int // of kinds of conditions, of sets, of ipsets, and of lookups in them
}

// matcher makes one condition, "" where the place has no words for it.
type matcher func(g *filterGen, at place) string

// matchers are the conditions that a rule may have; those named twice are drawn twice as often.
var matchers = []matcher{
	matchAddress, matchAddress, matchAddress, matchAddress, matchRange, matchIn, matchIn, matchOut, matchProtocol, matchPorts, matchPorts, matchPorts,
	matchPortList, matchFlags, matchICMP, matchMark, matchDSCP, matchTOS, matchTTL, matchLength, matchMAC, matchAddressType, matchFragment, matchPacketType,
	matchComment, matchGroup, matchConnection, matchRoutingHeader,
}

// slowMatchers are conditions that only the kernel can decide; all of them hold for every packet of the rig, so that the clock has no part in it.
var slowMatchers = []matcher{
	words("-m limit --limit 10000/sec --limit-burst 10000", "limit rate 1000000/second burst 100000 packets"), words("-m statistic --mode random --probability 1.0", "numgen random mod 1 0"),
	words("-m quota --quota 100000000", "quota 100 mbytes"), words("-m hashlimit --hashlimit-upto 10000/sec --hashlimit-burst 10000 --hashlimit-name h", ""),
	words("-m recent --name r --rcheck", ""), words("-m u32 --u32 0>>22&0x3C@0>>16=2000", ""), words("-m string --string 00001 --algo bm", ""), words("-m time --timestart 00:00", "meta hour \"00:00\"-\"23:59\""),
}

func words(iptables, nft string) matcher {
	return func(_ *filterGen, at place) string {
		if at.nft {
			return nft
		}
		if at.v6 && strings.Contains(iptables, "u32") {
			return ""
		}
		return iptables
	}
}

// not is a negation in the words of a place, one time in five.
func (g *filterGen) not(at place) string {
	switch {
	case !chance(g.rng, 20):
		return ""
	case at.nft:
		return "!= "
	}
	return "! "
}

// ip is the word for the place's IP header.
func (at place) ip() string { return map[bool]string{true: "ip6", false: "ip"}[at.v6] }

// address is one that packets have, as an address or as a network around it.
func (g *filterGen) prefix(v6 bool) netip.Prefix {
	if g.quiet {
		return g.like.prefix(g, v6)
	}
	p := g.c.source(g.rng, v6)
	if len(g.c.Targets) > 0 && chance(g.rng, 30) {
		if t := pick(g.rng, g.c.Targets); t.Addr().Is6() == v6 {
			p = t
		}
	}
	if h := g.c.host(g.rng, v6); h != nil && chance(g.rng, 50) {
		p = netip.PrefixFrom(h.Addr, h.Addr.BitLen())
	}
	return p.Masked()
}

func matchAddress(g *filterGen, at place) string {
	p, not := g.prefix(at.v6), g.not(at)
	side := g.rng.IntN(2)
	if p.Bits() == 0 && not != "" {
		not = ""
	}
	if at.nft {
		return fmt.Sprintf("%s %s %s%s", at.ip(), []string{"saddr", "daddr"}[side], not, p)
	}
	return fmt.Sprintf("%s%s %s", not, []string{"-s", "-d"}[side], p)
}

func matchRange(g *filterGen, at place) string {
	p, not, side := g.prefix(at.v6), g.not(at), g.rng.IntN(2)
	from, to := p.Addr(), lastOf(p)
	if next := from.Next(); next.IsValid() && next.Compare(to) < 0 {
		from = next
	}
	if to.Compare(from) <= 0 {
		to = from.Next()
	}
	if !to.IsValid() {
		return ""
	}
	if at.nft {
		return fmt.Sprintf("%s %s %s%s-%s", at.ip(), []string{"saddr", "daddr"}[side], not, from, to)
	}
	return fmt.Sprintf("-m iprange %s%s %s-%s", not, []string{"--src-range", "--dst-range"}[side], from, to)
}

// device is a port's, or a name that some of them begin with.
func (g *filterGen) device() (name string, wild bool) {
	if chance(g.rng, 20+g.more(20)) {
		return "p", true
	}
	return g.c.dev(g.c.port(g.rng)), false
}

func matchIn(g *filterGen, at place) string {
	if at.hook == "postrouting" && !at.nft {
		return ""
	}
	return g.matchDevice(at, "-i", "iifname")
}

func matchOut(g *filterGen, at place) string {
	if at.hook == "prerouting" || at.hook == "ingress" {
		return ""
	}
	return g.matchDevice(at, "-o", "oifname")
}

func (g *filterGen) matchDevice(at place, iptables, nft string) string {
	name, wild := g.device()
	if g.quiet && iptables == "-i" && !wild {
		name = g.c.dev(g.near())
	}
	not := g.not(at)
	switch {
	case at.nft && wild:
		return fmt.Sprintf("%s %s\"%s*\"", nft, not, name)
	case at.nft:
		return fmt.Sprintf("%s %s\"%s\"", nft, not, name)
	case wild:
		name += "+"
	}
	return fmt.Sprintf("%s%s %s", not, iptables, name)
}

func matchProtocol(g *filterGen, at place) string {
	proto := pick(g.rng, []string{"udp", "tcp", "udp", "tcp", "icmp", "sctp", "47", "136"})
	if proto == "icmp" && at.v6 {
		proto = "ipv6-icmp"
	}
	if at.nft {
		return fmt.Sprintf("meta l4proto %s%s", g.not(at), proto)
	}
	return fmt.Sprintf("%s-p %s", g.not(at), proto)
}

// portRange is one that packets have, or several.
func (g *filterGen) portRange(nft bool) string {
	p := pick(g.rng, []int{1000, 2000, 53, 80, 0, g.rng.IntN(65536)})
	if g.like.port != 0 && chance(g.rng, 80) {
		p = g.like.port
	}
	if !chance(g.rng, 40) {
		return fmt.Sprint(p)
	}
	from, to := max(0, p-g.rng.IntN(1000)), min(65535, p+1+g.rng.IntN(1000))
	if nft {
		return fmt.Sprintf("%d-%d", from, to)
	}
	return fmt.Sprintf("%d:%d", from, to)
}

func matchPorts(g *filterGen, at place) string {
	proto, side := pick(g.rng, []string{"udp", "udp", "tcp", "tcp", "sctp"}), pick(g.rng, []string{"sport", "dport", "dport"})
	if g.like.port != 0 && chance(g.rng, 80) {
		proto, side = strings.TrimSuffix(g.like.proto, ":"), "dport"
	}
	if at.nft {
		return fmt.Sprintf("%s %s %s%s", proto, side, g.not(at), g.portRange(true))
	}
	return fmt.Sprintf("-p %s -m %s %s--%s %s", proto, proto, g.not(at), side, g.portRange(false))
}

func matchPortList(g *filterGen, at place) string {
	proto := pick(g.rng, []string{"udp", "tcp"})
	var list []string
	if g.like.port > 3200 {
		proto, list = strings.TrimSuffix(g.like.proto, ":"), append(list, fmt.Sprint(g.like.port))
	}
	for p := g.rng.IntN(500); p < 3000 && len(list) < 6; p += 1 + g.rng.IntN(1500) {
		to := p + g.rng.IntN(3)*100
		switch {
		case to == p:
			list = append(list, fmt.Sprint(p))
		case at.nft:
			list = append(list, fmt.Sprintf("%d-%d", p, to))
		default:
			list = append(list, fmt.Sprintf("%d:%d", p, to))
		}
		p = to
	}
	if at.nft {
		return fmt.Sprintf("%s %s %s{ %s }", proto, pick(g.rng, []string{"sport", "dport"}), g.not(at), strings.Join(list, ", "))
	}
	not, side := g.not(at), pick(g.rng, []string{"sports", "dports", "ports"})
	if g.quiet && chance(g.rng, 40) {
		side = "ports"
	}
	return fmt.Sprintf("-p %s -m multiport %s--%s %s", proto, not, side, strings.Join(list, ","))
}

func matchFlags(g *filterGen, at place) string {
	names := []string{"fin", "syn", "rst", "psh", "ack", "urg"}
	var mask, set []string
	for _, n := range names {
		if chance(g.rng, 50) {
			mask = append(mask, n)
			if chance(g.rng, 50) {
				set = append(set, n)
			}
		}
	}
	if len(mask) == 0 {
		mask, set = []string{"syn"}, []string{"syn"}
	}
	if at.nft {
		value := strings.Join(set, "|")
		if value == "" {
			value = "0x0"
		}
		return fmt.Sprintf("tcp flags & (%s) %s %s", strings.Join(mask, "|"), pick(g.rng, []string{"==", "!="}), value)
	}
	value := strings.ToUpper(strings.Join(set, ","))
	if value == "" {
		value = "NONE"
	}
	return fmt.Sprintf("-p tcp -m tcp %s--tcp-flags %s %s", g.not(at), strings.ToUpper(strings.Join(mask, ",")), value)
}

func matchICMP(g *filterGen, at place) string {
	t := pick(g.rng, []int{8, 8, 0, 3, 13, 5})
	name := "icmp"
	if at.v6 {
		t, name = pick(g.rng, []int{128, 128, 129, 1, 3, 200}), "icmpv6"
	}
	switch {
	case at.nft && chance(g.rng, 30):
		return fmt.Sprintf("%s type %d %s code %s%d", name, t, name, g.not(at), g.rng.IntN(3))
	case at.nft:
		return fmt.Sprintf("%s type %s%d", name, g.not(at), t)
	case at.v6:
		return fmt.Sprintf("-p ipv6-icmp -m icmp6 %s--icmpv6-type %d", g.not(at), t)
	case chance(g.rng, 30):
		return fmt.Sprintf("-p icmp -m icmp %s--icmp-type %d/%d", g.not(at), t, g.rng.IntN(3))
	}
	return fmt.Sprintf("-p icmp -m icmp %s--icmp-type %d", g.not(at), t)
}

func matchMark(g *filterGen, at place) string {
	mask := pick(g.rng, []int{1, 2, 3, 0xff, -1})
	value := g.rng.IntN(4) & mask
	if g.quiet && chance(g.rng, 60) {
		mask, value = -mask%2, 0
	}
	switch {
	case at.nft && mask < 0:
		return fmt.Sprintf("meta mark %s%d", g.not(at), value)
	case at.nft:
		return fmt.Sprintf("meta mark & %d %s %d", mask, pick(g.rng, []string{"==", "!="}), value)
	case mask < 0:
		return fmt.Sprintf("-m mark %s--mark %d", g.not(at), value)
	}
	return fmt.Sprintf("-m mark %s--mark %d/%d", g.not(at), value, mask)
}

func matchDSCP(g *filterGen, at place) string {
	value := pick(g.rng, []int{0, 0, 1, 2, 4, 7, 46})
	if at.nft {
		return fmt.Sprintf("%s dscp %s%d", at.ip(), g.not(at), value)
	}
	return fmt.Sprintf("-m dscp %s--dscp %d", g.not(at), value)
}

func matchTOS(g *filterGen, at place) string {
	if at.nft {
		return ""
	}
	return fmt.Sprintf("-m tos %s--tos %#x/%#x", g.not(at), pick(g.rng, []int{0, 0x10, 0x08}), pick(g.rng, []int{0x3f, 0xff, 0x1c}))
}

func matchTTL(g *filterGen, at place) string {
	n := pick(g.rng, []int{64, 63, 2, 1, 128, 255})
	if at.nft {
		return fmt.Sprintf("%s %s %s %d", at.ip(), map[bool]string{true: "hoplimit", false: "ttl"}[at.v6], pick(g.rng, []string{"==", "!=", "<", ">"}), n)
	}
	name := map[bool]string{true: "hl", false: "ttl"}[at.v6]
	return fmt.Sprintf("-m %s --%s-%s %d", name, name, pick(g.rng, []string{"eq", "lt", "gt"}), n)
}

func matchLength(g *filterGen, at place) string {
	from := pick(g.rng, []int{0, 28, 34, 40, 54, 60, 576, 1280, 1500})
	to := from + pick(g.rng, []int{0, 10, 100, 1000})
	switch {
	case at.nft && at.hook == "ingress":
		return ""
	case at.nft && to == from:
		return fmt.Sprintf("meta length %s%d", g.not(at), from)
	case at.nft:
		return fmt.Sprintf("meta length %s%d-%d", g.not(at), from, to)
	}
	return fmt.Sprintf("-m length %s--length %d:%d", g.not(at), from, to)
}

func matchMAC(g *filterGen, at place) string {
	if at.hook == "postrouting" || at.hook == "any" && !at.nft {
		return ""
	}
	mac := hostMAC(g.c.port(g.rng), g.rng.IntN(2))
	if at.nft {
		return fmt.Sprintf("ether saddr %s%s", g.not(at), mac)
	}
	return fmt.Sprintf("-m mac %s--mac-source %s", g.not(at), mac)
}

func matchAddressType(g *filterGen, at place) string {
	kind := pick(g.rng, []string{"local", "unicast", "broadcast", "multicast"})
	if g.quiet && chance(g.rng, 70) {
		kind = "unicast"
	}
	switch {
	case at.nft && at.hook != "prerouting" && at.hook != "forward":
		return ""
	case at.nft && chance(g.rng, 20):
		return fmt.Sprintf("fib %s type . meta l4proto %s{ %s . %s, anycast . udp }", pick(g.rng, []string{"saddr", "daddr"}), g.not(at), kind, pick(g.rng, []string{"udp", "tcp"}))
	case at.nft:
		return fmt.Sprintf("fib %s type %s%s", pick(g.rng, []string{"saddr", "daddr"}), g.not(at), kind)
	case at.v6 && kind == "broadcast":
		return ""
	}
	return fmt.Sprintf("-m addrtype %s--%s-type %s", g.not(at), pick(g.rng, []string{"src", "dst"}), strings.ToUpper(kind))
}

func matchFragment(g *filterGen, at place) string {
	switch {
	case at.v6:
		return ""
	case at.nft:
		return "ip frag-off & 0x1fff " + pick(g.rng, []string{"==", "!="}) + " 0"
	}
	return g.not(at) + "-f"
}

func matchPacketType(g *filterGen, at place) string {
	i := g.rng.IntN(3)
	if at.nft {
		return "meta pkttype " + g.not(at) + []string{"host", "broadcast", "multicast"}[i]
	}
	return "-m pkttype " + g.not(at) + "--pkt-type " + []string{"unicast", "broadcast", "multicast"}[i]
}

func matchComment(g *filterGen, at place) string {
	if at.nft {
		return ""
	}
	return fmt.Sprintf("-m comment --comment \"rule %d\"", g.rng.IntN(1000))
}

func matchGroup(g *filterGen, at place) string {
	switch {
	case at.nft && at.hook != "ingress":
		return fmt.Sprintf("iifgroup %s%d", g.not(at), g.rng.IntN(2))
	case at.nft || at.hook != "prerouting" && at.hook != "forward":
		return ""
	}
	return fmt.Sprintf("-m devgroup %s--src-group %d", g.not(at), g.rng.IntN(2))
}

// matchPhys asks for the ports of a bridge, by whole names or their beginnings; several conditions of one match hold together.
func matchPhys(g *filterGen, at place) string {
	if at.nft {
		return ""
	}
	words := []string{"-m physdev"}
	for _, option := range [][2]string{{"in", "--physdev-in"}, {"out", "--physdev-out"}, {"", "--physdev-is-in"}, {"", "--physdev-is-out"}, {"", "--physdev-is-bridged"}} {
		if !chance(g.rng, 30) {
			continue
		}
		word := g.not(at) + option[1]
		if option[0] != "" {
			word += " " + pick(g.rng, []string{portName(pick(g.rng, g.c.Bridged)), portName(pick(g.rng, g.c.Bridged)), portName(g.c.port(g.rng)), "p+", "br+", "br0"})
		}
		words = append(words, word)
	}
	if len(words) == 1 {
		words = append(words, g.not(at)+"--physdev-in "+portName(pick(g.rng, g.c.Bridged)))
	}
	return strings.Join(words, " ")
}

func matchRoutingHeader(g *filterGen, at place) string {
	if at.nft || !at.v6 {
		return ""
	}
	return "-m rt " + g.not(at) + "--rt-type 0"
}

func matchConnection(g *filterGen, at place) string {
	if !at.track || at.hook == "ingress" {
		return ""
	}
	states := []string{"established", "related", "new", "invalid", "untracked"}
	states = states[g.rng.IntN(len(states)):]
	states = slices.Clone(states[:1+g.rng.IntN(len(states))])
	switch {
	case at.nft:
		return fmt.Sprintf("ct state %s%s", g.not(at), strings.Join(states, ","))
	case chance(g.rng, 30):
		return fmt.Sprintf("-m state %s--state %s", g.not(at), strings.ToUpper(strings.Join(states, ",")))
	}
	return fmt.Sprintf("-m conntrack %s--ctstate %s", g.not(at), strings.ToUpper(strings.Join(states, ",")))
}

// conditions draws conditions that go together. Each module is asked once, since iptables takes the options of one only once.
func (g *filterGen) conditions(at place, n int) []string {
	var out []string
	if g.quiet {
		return g.quietConditions(at, 1+n/3)
	}
	used := map[string]bool{}
	for range n {
		m := g.matcher()(g, at)
		if m == "" || clashes(m, used, at.nft) {
			continue
		}
		out = append(out, m)
	}
	return out
}

// clashes notes what a condition speaks of and says whether another one does already.
func clashes(match string, used map[string]bool, nft bool) bool {
	var words []string
	fields := strings.Fields(strings.TrimPrefix(match, "! "))
	for i, f := range fields {
		switch {
		case nft && i == 0:
			words = append(words, strings.Join(fields[:min(2, len(fields))], " "))
			if speaksOfProtocol(match) {
				words = append(words, "protocol")
			}
		case nft:
		case f == "-m":
			words = append(words, fields[i+1])
		case len(f) == 2 && f[0] == '-':
			words = append(words, f)
		}
	}
	if slices.ContainsFunc(words, func(w string) bool { return used[w] }) {
		return true
	}
	for _, w := range words {
		used[w] = true
	}
	return false
}
