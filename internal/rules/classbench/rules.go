// SPDX-License-Identifier: Apache-2.0

package classbench

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Kind is a kind of filter set.
type Kind string

// The kinds.
const (
	ACL Kind = "acl"
	FW  Kind = "fw"
	IPC Kind = "ipc"
)

// Seed is the seed of the published figures.
const Seed = 1

// share is a choice with its weight.
type share[T any] struct {
	weight int
	value  T
}

// lengths is a span of prefix lengths.
type lengths struct{ from, to int }

// ports says which ports a rule asks for.
type ports uint8

const (
	anyPort ports = iota
	onePort
	highPorts // 1024 and above
	somePorts // a range
)

// profile is the structure of a kind of filter set.
type profile struct {
	src, dst     []share[lengths]
	sport, dport []share[ports]
	proto        []share[uint8] // of rules that ask for no port; 0 for any
}

var profiles = map[Kind]profile{
	ACL: {
		src:   []share[lengths]{{25, lengths{0, 0}}, {10, lengths{8, 16}}, {30, lengths{17, 24}}, {10, lengths{25, 31}}, {25, lengths{32, 32}}},
		dst:   []share[lengths]{{5, lengths{0, 0}}, {5, lengths{8, 16}}, {20, lengths{17, 24}}, {20, lengths{25, 31}}, {50, lengths{32, 32}}},
		sport: []share[ports]{{98, anyPort}, {1, onePort}, {1, highPorts}},
		dport: []share[ports]{{25, anyPort}, {60, onePort}, {5, highPorts}, {10, somePorts}},
		proto: []share[uint8]{{50, 6}, {20, 17}, {20, 0}, {10, 1}},
	},
	FW: {
		src:   []share[lengths]{{50, lengths{0, 0}}, {10, lengths{8, 16}}, {15, lengths{17, 24}}, {5, lengths{25, 31}}, {20, lengths{32, 32}}},
		dst:   []share[lengths]{{30, lengths{0, 0}}, {10, lengths{8, 16}}, {20, lengths{17, 24}}, {10, lengths{25, 31}}, {30, lengths{32, 32}}},
		sport: []share[ports]{{75, anyPort}, {10, onePort}, {15, highPorts}},
		dport: []share[ports]{{40, anyPort}, {45, onePort}, {5, highPorts}, {10, somePorts}},
		proto: []share[uint8]{{40, 6}, {25, 17}, {25, 0}, {10, 1}},
	},
	IPC: {
		src:   []share[lengths]{{15, lengths{0, 0}}, {15, lengths{8, 16}}, {25, lengths{17, 24}}, {10, lengths{25, 31}}, {35, lengths{32, 32}}},
		dst:   []share[lengths]{{15, lengths{0, 0}}, {10, lengths{8, 16}}, {25, lengths{17, 24}}, {10, lengths{25, 31}}, {40, lengths{32, 32}}},
		sport: []share[ports]{{75, anyPort}, {15, onePort}, {5, highPorts}, {5, somePorts}},
		dport: []share[ports]{{50, anyPort}, {38, onePort}, {2, highPorts}, {10, somePorts}},
		proto: []share[uint8]{{45, 6}, {25, 17}, {20, 0}, {10, 1}},
	},
}

var wellKnown = []uint64{80, 443, 22, 53, 25, 123, 161, 389, 1433, 3306, 5060, 8080}

func pick[T any](r *rand.Rand, of []share[T]) T {
	sum := 0
	for _, s := range of {
		sum += s.weight
	}
	n := r.IntN(sum)
	for _, s := range of {
		if n -= s.weight; n < 0 {
			return s.value
		}
	}
	return of[0].value
}

// filter is one rule's tests.
type filter struct {
	src, dst     netip.Prefix
	sport, dport ruleset.Range
	proto        uint8
}

// Rules makes a table of IPv4 rules in the chain FORWARD, all different, each with a counter, and the policy drop. More
// specific rules come first, so that few are hidden by others.
func Rules(kind Kind, n int, seed uint64) *ruleset.Ruleset {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	p := profiles[kind]
	networks := nested(r, max(n/8, 4))
	seen := map[filter]bool{}
	var filters []filter
	for len(filters) < n {
		f := p.filter(r, networks)
		if !seen[f] {
			seen[f] = true
			filters = append(filters, f)
		}
	}
	slices.SortStableFunc(filters, func(a, b filter) int { return cmp.Compare(b.weight(), a.weight()) })
	rs := &ruleset.Ruleset{}
	chain := ruleset.Chain{Name: "FORWARD", Base: &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Drop, Counter: ruleset.NoCounter}}
	for i, f := range filters {
		steps := append(f.tests(), ruleset.Count{Counter: ruleset.CounterID(i)}, ruleset.Verdict{Code: ruleset.Accept})
		if r.IntN(3) == 0 {
			steps[len(steps)-1] = ruleset.Verdict{Code: ruleset.Drop}
		}
		chain.Rules = append(chain.Rules, ruleset.Rule{Number: i + 1, Text: fmt.Sprint(kind, " ", i+1), Steps: steps})
		rs.Counters = append(rs.Counters, ruleset.Counter{})
	}
	rs.Tables = []ruleset.Table{{Dialect: ruleset.Legacy, Family: ruleset.IP4, Name: "filter", Chains: []ruleset.Chain{chain}}}
	return rs
}

// nested makes networks that lie in one another, from /8 to /28.
func nested(r *rand.Rand, n int) []netip.Addr {
	out := []netip.Addr{v4(r.Uint32())}
	for len(out) < n {
		keep := 8 + r.IntN(21) // bits in common with one that is there
		parent := ruleset.Addr(out[r.IntN(len(out))]).Lo
		host := uint64(1)<<(32-keep) - 1
		out = append(out, v4(uint32(parent&^host|r.Uint64()&host)))
	}
	return out
}

func v4(n uint32) netip.Addr { return ruleset.Num(uint64(n)).Is4() }

func (p profile) filter(r *rand.Rand, networks []netip.Addr) filter {
	prefix := func(of []share[lengths]) netip.Prefix {
		l := pick(r, of)
		base := ruleset.Addr(networks[r.IntN(len(networks))]).Lo &^ 15
		out, _ := v4(uint32(base + r.Uint64N(16))).Prefix(l.from + r.IntN(l.to-l.from+1))
		return out
	}
	f := filter{src: prefix(p.src), dst: prefix(p.dst), sport: someRange(r, pick(r, p.sport)), dport: someRange(r, pick(r, p.dport))}
	f.proto = pick(r, p.proto)
	if f.sport != allPorts || f.dport != allPorts {
		f.proto = pick(r, []share[uint8]{{75, 6}, {25, 17}})
	}
	return f
}

var allPorts = ruleset.Nums(0, 65535)

func someRange(r *rand.Rand, p ports) ruleset.Range {
	switch p {
	case onePort:
		port := wellKnown[r.IntN(len(wellKnown))]
		if r.IntN(2) == 0 {
			port = uint64(r.IntN(65536))
		}
		return ruleset.Nums(port, port)
	case highPorts:
		return ruleset.Nums(1024, 65535)
	case somePorts:
		lo := uint64(r.IntN(60000))
		return ruleset.Nums(lo, lo+1+uint64(r.IntN(4000)))
	}
	return allPorts
}

// weight is large for filters that few packets satisfy.
func (f filter) weight() int {
	w := 2*f.src.Bits() + 2*f.dst.Bits()
	for _, r := range []ruleset.Range{f.sport, f.dport} {
		if r != allPorts {
			w += 16
		}
	}
	return w
}

func (f filter) tests() (steps []ruleset.Step) {
	test := func(field ruleset.Field, r ruleset.Range, all bool) {
		if !all {
			steps = append(steps, ruleset.Test{Field: field, Ranges: []ruleset.Range{r}})
		}
	}
	test(ruleset.IP4Src, ruleset.Prefix(f.src), f.src.Bits() == 0)
	test(ruleset.IP4Dst, ruleset.Prefix(f.dst), f.dst.Bits() == 0)
	test(ruleset.L4Proto, ruleset.Nums(uint64(f.proto), uint64(f.proto)), f.proto == 0)
	test(ruleset.SPort, f.sport, f.sport == allPorts)
	test(ruleset.DPort, f.dport, f.dport == allPorts)
	return steps
}
