// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var setsSection = suite.Section{
	Name:   "sets",
	Title:  "Large sets",
	Budget: budget(120),
	About: "One rule with one large ipset, `-m set --match-set big src -j ACCEPT`: what it adds to the time of a packet's program, taken as in \"classification\". Half of the headers' sources are in the set. " +
		"hash:ip holds single addresses; hash:net holds networks of /16 to /30 at random, of which the kernel has to try every length.",
	Run: runSets,
}

// Names of the cases.
const (
	largeIP  = "hash:ip"
	largeNet = "hash:net"
)

func runSets(b *suite.Bench) error {
	e := extents[b.Size.Name]
	for i, kind := range []string{largeIP, largeNet} {
		if err := b.Part(setCase(kind, e.sets[i]), func() error { return lookUp(b, kind, e.sets[i], e.headers) }); err != nil {
			return err
		}
	}
	return nil
}

func lookUp(b *suite.Bench, kind string, size, headers int) error {
	r := rand.New(rand.NewPCG(1, uint64(size)))
	set := addressSet{name: "big", kind: kind}
	for n := range size {
		p := single(host(n * 3)) // one in three addresses
		if kind == largeNet {
			p, _ = randomHost(r, 20, 40).Prefix(16 + r.IntN(15))
		}
		set.elements = append(set.elements, p)
	}
	var frames []frameMaker
	for n := range headers {
		src := set.elements[r.IntN(size)].Addr()
		if n%2 == 0 {
			src = randomHost(r, 100, 20)
		}
		frames = append(frames, func(p *lab.Port) []byte {
			f := p.Flow(src.String(), prefixes.Host(n%prefixes.Count, 1).String())
			f.SrcPort = uint16(n)
			return f.UDP("0123456789abcdefgh")
		})
	}
	rs := table{forward: []rule{{set: set.name, does: "ACCEPT"}}, sets: []addressSet{set}}
	b.Say("%s: %d elements", kind, size)
	return compareClassifiers(b, setCase(kind, size), frames, func(ns *lab.NS) error { return byIPSet.replace(ns, rs) })
}

// randomHost is an address whose first byte is one of some.
func randomHost(r *rand.Rand, first, some int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(first + r.IntN(some)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
}

func setCase(kind string, n int) string { return fmt.Sprintf("%s of %d elements", kind, n) }
