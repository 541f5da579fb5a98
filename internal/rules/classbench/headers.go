// SPDX-License-Identifier: Apache-2.0

package classbench

import (
	"math/rand/v2"
	"net/netip"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// header tells packets apart.
type header struct {
	src, dst     uint64
	sport, dport uint64
	proto        uint64
}

// Headers makes n different packets, each at a random point of a random rule of the first chain; what the rule does not ask for is
// random.
func Headers(rs *ruleset.Ruleset, n int, seed uint64) []rules.Packet {
	r := rand.New(rand.NewPCG(seed, 2))
	of := rs.Tables[0].Chains[0].Rules
	seen := make(map[header]bool, n)
	out := make([]rules.Packet, 0, n)
	for len(out) < n {
		h := point(r, of[r.IntN(len(of))])
		if !seen[h] {
			seen[h] = true
			out = append(out, h.packet())
		}
	}
	return out
}

func point(r *rand.Rand, rule ruleset.Rule) header {
	h := header{src: uint64(r.Uint32()), dst: uint64(r.Uint32()), sport: r.Uint64N(65536), dport: r.Uint64N(65536), proto: 6 + 11*r.Uint64N(2)}
	at := map[ruleset.Field]*uint64{
		ruleset.IP4Src: &h.src, ruleset.IP4Dst: &h.dst, ruleset.SPort: &h.sport, ruleset.DPort: &h.dport, ruleset.L4Proto: &h.proto,
	}
	for _, s := range rule.Steps {
		if t, ok := s.(ruleset.Test); ok {
			one := t.Ranges[r.IntN(len(t.Ranges))]
			*at[t.Field] = one.Lo.Lo + r.Uint64N(one.Hi.Lo-one.Lo.Lo+1)
		}
	}
	return h
}

func (h header) packet() rules.Packet {
	addr := func(n uint64) netip.Addr { return ruleset.Num(n).Is4() }
	return rules.Packet{
		IIF: rules.Device{Name: "eth0", Index: 2, Type: 1}, OIF: rules.Device{Name: "eth1", Index: 3, Type: 1},
		Src: addr(h.src), Dst: addr(h.dst), Proto: uint8(h.proto), SPort: uint16(h.sport), DPort: uint16(h.dport), TTL: 64, Length: 60,
	}
}
