// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/shuntnet/shunt/internal/lab"
)

// QuietFilters makes the case of a seed in which packet filters alone decide: the common router, rules that shunt understands, and packets that are nearly all plain. In other
// generated configurations so much is odd at once that few packets come to a rule on the fast path.
func QuietFilters(seed uint64, packets int, hook string, kinds []string) *Case {
	rng := rand.New(rand.NewPCG(seed, 0x71_75_69_65_74))
	c := &Config{N: 3, Commands: common(), Kinds: kinds, Filtering: rng, Notes: map[string]bool{}}
	for i := range c.MTU {
		c.MTU[i] = 1500
	}
	for i := range c.N {
		for n := range 2 {
			c.Hosts = append(c.Hosts, Host{i, netip.AddrFrom4([4]byte{10, 0, byte(i), byte(10 + n)}), hostMAC(i, n), "static"}, Host{i, addr6(i, 0, byte(0x10+n)), hostMAC(i, n), "static"})
		}
	}
	for i := range 3 {
		c.Targets = append(c.Targets, netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", i+1)), netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::/48", i+1)))
	}
	gen := &packetGen{rng: rng, c: c, hook: hook}
	all := gen.plain(packets)
	g := &filterGen{rng: rng, c: c, quiet: true, samples: all, turns: [4]int{rng.IntN(1000), rng.IntN(1000), rng.IntN(1000)}}
	if seed%5 < 2 {
		c.add("%s", g.ipsets())
		g.loadTable([]string{"legacy", "nft"}[seed%5], false)
	} else {
		g.loadNFT([]string{"ip", "ip6", "inet", "ip", "netdev", "ip"}[seed%6], false)
	}
	out := &Case{Name: fmt.Sprintf("quiet-%d", seed), Seed: seed, Hook: hook}
	for chunk := range slices.Chunk(all, (packets+quietSteps-1)/quietSteps) {
		step := Step{Commands: c.Commands, Packets: chunk}
		if n := len(out.Steps); n > 0 {
			step.Commands, step.Immediate = g.change(), n == quietSteps-1
		}
		out.Steps = append(out.Steps, step)
	}
	out.Slow = c.Slow
	return out
}

// quietSteps are the rules at first, and changes of them.
const quietSteps = 5

// sample is what values of rules and elements of sets are taken from: a packet. The zero value is none.
type sample struct {
	in       int
	src, dst netip.Addr
	port     int // where it goes to, if it is TCP or UDP
	proto    string
	second   bool       // its sender has been asked for
	last     netip.Addr // what was asked for last
}

// quietMatchers are the conditions that take turns.
var quietMatchers = []matcher{
	matchAddress, matchRange, matchIn, matchOut, matchProtocol, matchPorts, matchPortList, matchFlags, matchICMP, matchMark, matchDSCP, matchTOS, matchTTL, matchLength, matchMAC,
	matchAddressType, matchFragment, matchPacketType, matchGroup,
}

func (g *filterGen) matcher() matcher {
	if g.quiet {
		return turnOf(g, 0, quietMatchers)
	}
	if len(g.c.Bridged) > 0 && chance(g.rng, 15) {
		return matchPhys
	}
	return pick(g.rng, matchers)
}

// turnOf is one of a list, for quiet filters the next.
func turnOf[T any](g *filterGen, which int, list []T) T {
	if g.quiet {
		g.turns[which]++
		return list[g.turns[which]%len(list)]
	}
	return pick(g.rng, list)
}

// quietConditions are n that the place has words for; a rule without any would end the way of all.
func (g *filterGen) quietConditions(at place, n int) (out []string) {
	used := map[string]bool{}
	for range 8 {
		if m := g.matcher()(g, at); m != "" && len(out) < n && !clashes(m, used, at.nft) {
			out = append(out, m)
		}
	}
	return out
}

// quietTarget is what a rule of iptables does: half of them let their packets go on.
func (g *filterGen) quietTarget(t *ruleTable, chains []string) string {
	n := g.rng.IntN(12)
	switch {
	case n < 3:
		return []string{"-j ACCEPT", "-j DROP", "-j RETURN"}[n]
	case n < 5 && len(chains) > 0:
		return []string{"-j ", "-g "}[n-3] + pick(g.rng, chains)
	case n < 8 && t.name == "mangle":
		return pick(g.rng, []string{"-j MARK --set-mark 1", "-j MARK --set-xmark 2/3", "-j MARK --or-mark 2", "-j DSCP --set-dscp 4", "-j TOS --set-tos 0x10"})
	}
	return ""
}

// quietVerdict is the same in nft's words.
func (g *filterGen) quietVerdict(at place, chains []string) string {
	n := g.rng.IntN(12)
	switch {
	case n < 3:
		return []string{"accept", "drop", "return"}[n]
	case n < 5 && len(chains) > 0:
		return []string{"jump ", "goto "}[n-3] + pick(g.rng, chains)
	case n < 7:
		return pick(g.rng, []string{"meta mark set 1", "meta mark set meta mark | 2", at.ip() + " dscp set 4"})
	}
	return "continue"
}

// alone leaves out the other conditions of a rule that asks a set.
func (g *filterGen) alone(words []string) []string {
	if g.quiet {
		return nil
	}
	return words
}

// another takes another packet of a family for what is made next.
func (g *filterGen) another(v6 bool) {
	for range 8 {
		if !g.quiet {
			return
		}
		p := pick(g.rng, g.samples)
		h, ok := readIP(p.Frame)
		if !ok || (h.version == 6) != v6 || !h.src.IsValid() {
			continue
		}
		g.like = sample{in: p.Port, src: h.src, dst: h.dst}
		if proto := map[byte]string{6: "tcp:", 17: "udp:"}[h.proto]; proto != "" && len(p.Frame) >= h.l4+4 {
			g.like.port, g.like.proto = int(binary.BigEndian.Uint16(p.Frame[h.l4+2:])), proto
		}
		return
	}
}

// prefix is the packet's sender the first time, then its receiver, or a network around it.
func (l *sample) prefix(g *filterGen, v6 bool) netip.Prefix {
	a := l.src
	if l.second {
		a = l.dst
	}
	l.second = !l.second
	if !a.IsValid() || a.Is6() != v6 {
		a = g.c.host(g.rng, v6).Addr
	}
	l.last = a
	bits := a.BitLen()
	if chance(g.rng, 40) {
		bits = pick(g.rng, []int{bits * 3 / 4, bits / 2, bits - 1})
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// near is a port, that of the packet where there is one.
func (g *filterGen) near() int {
	if g.quiet {
		return g.like.in
	}
	return g.c.port(g.rng)
}

// more is n for quiet filters alone.
func (g *filterGen) more(n int) int {
	if g.quiet {
		return n
	}
	return 0
}

// plain makes n packets, of which nineteen in twenty have nothing odd but what rules ask for.
func (g *packetGen) plain(n int) (out []Packet) {
	for len(out) < n {
		p, v6 := Packet{Port: g.c.port(g.rng), How: pick(g.rng, []How{WireFrame, WireFrame, WireFrame, SKB})}, chance(g.rng, 45)
		if chance(g.rng, 5) {
			p.Frame = g.near(p.Port, v6)
		} else {
			p.Frame = g.forwardable(p.Port, v6)
		}
		if len(p.Frame) > lab.MaxWireFrame {
			p.How = SKB
		}
		out = append(out, p)
	}
	return out
}

// forwardable is a plain packet to another port.
func (g *packetGen) forwardable(port int, v6 bool) []byte {
	g.serial++
	from, to := g.rng.IntN(2), (port+1+g.rng.IntN(g.c.N-1))%g.c.N
	f := lab.Flow{
		SrcMAC: hostMAC(port, from), DstMAC: portMAC(port), ID: uint16(g.serial),
		SrcPort: pick(g.rng, []uint16{1000, 1000, 53, 80, uint16(g.rng.IntN(65536))}), DstPort: pick(g.rng, []uint16{2000, 2000, 53, 80, uint16(g.rng.IntN(65536))}),
		TTL: pick(g.rng, []uint8{64, 64, 64, 65, 3, 128, 255}), TOS: pick(g.rng, []uint8{0, 0, 0, 0x04, 0x08, 0x10, 0xb8}),
	}
	host := func(port, n int) netip.Addr {
		if v6 {
			return addr6(port, 0, byte(0x10+n))
		}
		return netip.AddrFrom4([4]byte{10, 0, byte(port), byte(10 + n)})
	}
	f.Src, f.Dst = host(port, from), host(to, g.rng.IntN(2))
	if beyond := g.beyond(to, v6); chance(g.rng, 40) {
		f.Dst = beyond
	}
	size := pick(g.rng, []int{0, 6, 6, 6, 20, 60, 540, 1240})
	body := fmt.Sprintf("%06x", g.serial)[:min(6, size)]
	for len(body) < size {
		body += string(rune('a' + len(body)%26))
	}
	switch n := g.rng.IntN(100); {
	case n < 45:
		return f.UDP(body)
	case n < 75:
		return f.TCP(pick(g.rng, []string{"S", "A", "PA", "FA", "R", "SA", "UA"}), uint32(g.serial), body)
	case n < 88:
		return f.Echo(uint16(g.serial), 1, body)
	}
	at := 9
	if v6 {
		at = 6
	}
	return lab.Edited(f.UDP(body), lab.L3(at, pick(g.rng, []byte{132, 132, 47, 136, 50})), lab.FixIPChecksum())
}

// beyond is an address behind a host of a port.
func (g *packetGen) beyond(port int, v6 bool) netip.Addr {
	behind := []byte{3, 1, 2}[port]
	i := slices.IndexFunc(g.c.Targets, func(p netip.Prefix) bool {
		return p.Addr().Is6() == v6 && (!v6 && p.Addr().As4()[1] == behind || v6 && p.Addr().As16()[5] == behind)
	})
	return inside(g.rng, g.c.Targets[i])
}
