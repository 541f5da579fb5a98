// SPDX-License-Identifier: Apache-2.0

package rulesets

import (
	"math/rand/v2"
	"net/netip"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/classbench"
)

// class is one kind of traffic: packets of two devices and a family.
type class struct {
	name    string
	packets []rules.Packet
}

// samples is how many packets are asked about in each class and direction.
const samples = 50

// The classes that the page has columns for.
const (
	established = "established"
	newOut      = "new, from inside"
	newIn       = "new, from outside"
	banned      = "banned source"
)

var columns = []string{established, newOut, newIn, banned}

// traffic is what typically passes a fixture's router, from a seed of its own.
func (f *fixture) traffic() []class {
	if f.bench != nil {
		return []class{{newIn, classbench.Headers(classbench.Rules(f.bench.kind, f.bench.rules, classbench.Seed), 4*samples, 7)}}
	}
	r := rand.New(rand.NewPCG(1, 2))
	lan, wan := rules.Device{Name: f.lan.device, Index: 2, Type: 1}, rules.Device{Name: f.wan.device, Index: 3, Type: 1}
	with := map[string][]rules.Packet{}
	add := func(class string, p rules.Packet, state uint8, reply bool) {
		if f.tracked {
			const seenReply, assured, confirmed = 2, 4, 8
			p.CT = &rules.Connection{State: state, Reply: reply}
			if state == ruleset.CTEstablished {
				p.CT.Status = seenReply | assured | confirmed
			}
		}
		with[class] = append(with[class], p)
	}
	for _, six := range []bool{false, true} {
		near, far := f.lan.prefix(six), f.wan.prefix(six)
		if !near.IsValid() {
			continue
		}
		for range samples {
			out := flow(r, lan, wan, address(r, near), address(r, far))
			back := out
			back.IIF, back.OIF, back.Src, back.Dst, back.SPort, back.DPort, back.TCPFlags = wan, lan, out.Dst, out.Src, out.DPort, out.SPort, out.TCPFlags&^2
			add(established, out, ruleset.CTEstablished, false)
			add(established, back, ruleset.CTEstablished, true)
			first := flow(r, lan, wan, address(r, near), address(r, far))
			first.TCPFlags = 2
			add(newOut, first, ruleset.CTNew, false)
			scan := flow(r, wan, lan, address(r, far), address(r, near))
			scan.TCPFlags = 2
			add(newIn, scan, ruleset.CTNew, false)
			scan.Src = netip.MustParseAddr(map[bool]string{true: "2001:db8:bad::7", false: "203.0.113.7"}[six])
			add(banned, scan, ruleset.CTNew, false)
		}
	}
	var out []class
	for _, name := range columns {
		out = append(out, class{name, with[name]})
	}
	return out
}

func (s side) prefix(six bool) netip.Prefix {
	text := s.four
	if six {
		text = s.six
	}
	p, _ := netip.ParsePrefix(text)
	return p
}

// address is one of a network, at random.
func address(r *rand.Rand, p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		if r.IntN(2) == 1 {
			b[bit/8] |= 0x80 >> (bit % 8)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// flow is a packet to a service, mostly of TCP.
func flow(r *rand.Rand, in, out rules.Device, src, dst netip.Addr) rules.Packet {
	p := rules.Packet{
		IIF: in, OIF: out, Back: rules.BackSame, Src: src, Dst: dst, Proto: 6, TCPFlags: 0x10, TTL: 60, Length: 60 + uint16(r.IntN(1400)),
		SPort: 1024 + uint16(r.IntN(60000)), DPort: []uint16{80, 443, 443, 22, 53, 5201, 8080}[r.IntN(7)],
	}
	if r.IntN(3) == 0 {
		p.Proto, p.TCPFlags = 17, 0
	}
	return p
}
