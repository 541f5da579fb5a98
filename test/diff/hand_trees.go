// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// The rules of this file are so many that entries are found by trees (internal/rules/image/tree.go); fewer have rows of bits.

// within gives an address below 10.n, for one of the n.
func within(r *rand.Rand, n ...byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, n[r.IntN(len(n))], byte(r.IntN(8)), byte(r.IntN(256))})
}

// prefixOf is a prefix of an address, of one of the lengths, as iptables writes it.
func prefixOf(r *rand.Rand, a netip.Addr, lengths ...int) string {
	p, err := a.Prefix(lengths[r.IntN(len(lengths))])
	if err != nil {
		panic(err)
	}
	return p.String()
}

var treePorts = []int{0, 53, 80, 2000, 65535}

// treeRule asks for one or both addresses, the more closely the less it asks for besides, since a packet may move eight counters only; for ports and ranges of them, for devices, and for
// what it does not want.
func treeRule(r *rand.Rand, src, dst netip.Addr) string {
	var asks []string
	add := func(chance int, format string, args ...any) bool {
		yes := r.IntN(100) < chance
		if yes {
			asks = append(asks, fmt.Sprintf(format, args...))
		}
		return yes
	}
	switch r.IntN(4) {
	case 0:
		add(100, "-s %s", prefixOf(r, src, 30, 31, 32))
	case 1:
		add(100, "-d %s", prefixOf(r, dst, 30, 31, 32))
	default:
		add(100, "-s %s -d %s", prefixOf(r, src, 20, 24, 28, 31, 32), prefixOf(r, dst, 24, 27, 30, 32))
	}
	_ = add(15, "-i p%d", r.IntN(2)) || add(10, "! -i p%d", r.IntN(2))
	add(15, "-o p%d", r.IntN(3))
	if proto := []string{"tcp", "udp", "icmp"}[r.IntN(3)]; add(60, "-p %s", proto) && proto != "icmp" {
		add(100, "-m %s", proto)
		_ = add(50, "--dport %d", treePorts[r.IntN(5)]) || add(30, "! --dport %d", treePorts[r.IntN(5)]) || add(50, "--dport %d:%d", r.IntN(1000), 1000+r.IntN(3000))
		add(15, "--sport %d:%d", r.IntN(1000), 1000+r.IntN(3000))
	}
	return strings.Join(asks, " ")
}

// treeRules has hundreds of such rules, most of which count and go on, and packets near what they ask for.
func treeRules() hand {
	r := rand.New(rand.NewPCG(20261127, 7))
	var rules []string
	var packets []Packet
	for i := range 800 {
		src, dst := within(r, 0, 3), within(r, 1, 2, 5)
		rule := treeRule(r, src, dst)
		switch {
		case i%6 == 0:
			rule += " -j DROP"
		case i%12 == 1:
			rule += " -j ACCEPT"
		case i%12 == 2:
			rule += " -j u"
		}
		rules = append(rules, "-A FORWARD "+rule)
		if i%12 == 2 {
			rules = append(rules, "-A u "+treeRule(r, src, dst)+" -j "+[]string{"DROP", "RETURN", "ACCEPT"}[i/12%3])
		}
		if i%3 != 0 {
			continue
		}
		f := flowOf(0, src.String(), dst.String())
		f.SrcPort, f.DstPort = uint16(r.IntN(3000)), uint16(treePorts[r.IntN(5)])
		packets = append(packets, in(0, [][]byte{f.UDP("x"), f.TCP("S", 1, ""), f.Echo(1, 1, "")}[r.IntN(3)])...)
	}
	rules = append(rules, "-A FORWARD")
	all := join(some(), services(), packets)
	load := func(rules []string) string {
		return restore("iptables-legacy", "filter", ":FORWARD ACCEPT [0:0]; :u - [0:0]", rules...)
	}
	h := hand{name: "rules in trees", loads: true, why: "so many rules that they are found by trees, changes among them, and the way there and back", slow: Excuse{IP4: true, IP6: true}, reasons: []string{drop, "fast"},
		steps: []handStep{step(all, append(to5(gw1, gw1v6), load(rules[:50]))...), atOnce(all, load(rules)), step(all)}}
	for _, do := range []string{"iptables-legacy -I FORWARD 300 -p udp --dport 2000 -j DROP", "iptables-legacy -D FORWARD 1", "iptables-legacy -F u", "iptables-legacy -A FORWARD -p tcp -j DROP", "iptables-legacy -P FORWARD DROP"} {
		h.steps = append(h.steps, atOnce(all, do), step(all))
	}
	h.steps = append(h.steps, atOnce(all, load(rules[:50])), step(all))
	return h
}
