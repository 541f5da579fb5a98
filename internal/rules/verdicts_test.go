// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// keyed are the values that bpf/node/verdicts.h remembers verdicts by, by the numbers of enum shunt_value: all but TTL, length, identification, fragment, flow label and the
// addresses of frames.
const keyed = uint32(1<<0 | 1<<1 | 1<<2 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<14 | 1<<15 | 1<<16 | 1<<17 | 1<<18 | 1<<23 | 1<<24)

func rememberedShapes() (out [stages]image.Shape) {
	for i := range out {
		out[i] = wholeShape
		out[i].Asks = keyed | image.AsksSender | image.AsksReceiver
	}
	return out
}

// TestNodeRemembers: packets that are alike but for little, again and again, meet what the rules mean, whether the node walks or remembers: with as many places as it needs, and with
// one, for which all of them fight.
func TestNodeRemembers(t *testing.T) {
	for _, places := range []uint32{1, 256} {
		n := loadRemembering(t, 1<<22, rememberedShapes(), places)
		total, slow, left := 0, 0, 0
		rapid.Check(t, func(rt *rapid.T) {
			rs := rules.SomeRuleset(rt)
			ct := rapid.Bool().Draw(rt, "ct")
			programs, images := imagesOf(t, rs, rules.SomeDevices, ct, 0, rapid.SampledFrom([]int{-1, 1}).Draw(rt, "trees from"))
			for _, im := range images {
				if im != nil && im.Shape.Asks&image.AllValues&^keyed != 0 {
					left++
					return // the data path does not remember what this one says
				}
			}
			n.number++
			n.install(t, images)
			n.rested(t)
			family := rapid.SampledFrom([]ruleset.Family{ruleset.IP4, ruleset.IP6}).Draw(rt, "family")
			pool := someAlike(rt, family, ct)
			for range 40 {
				p := rapid.SampledFrom(pool).Draw(rt, "packet")
				if p.CT != nil {
					conn := *p.CT
					p.CT = &conn
				}
				got := n.run(t, &p)
				want := programs[map[ruleset.Family]int{ruleset.IP6: 1}[family]].Run(p)
				total++
				if got.outcome == rules.IsSlow {
					slow++
					continue
				}
				if got.outcome != want.Outcome || !sameCounts(got.counted, want.Counted) {
					rt.Fatalf("%+v: the node says %v and counts %v, the rules %v and %v by %v\n%s", p, got.outcome, got.counted, want.Outcome, want.Counted, want.By, programs[0])
				}
				if got.outcome == rules.Accepted && (got.mark != want.Mark || got.ds != want.DSField || got.untracked != want.Untracked || got.zone != zoneWord(want.Zone)) {
					rt.Fatalf("%+v: the node leaves mark %d, DS %d, untracked %v, zone %#x, the rules %d, %d, %v and %#x", p, got.mark, got.ds, got.untracked, got.zone, want.Mark, want.DSField, want.Untracked, zoneWord(want.Zone))
				}
			}
		})
		t.Logf("%d places: %d packets, %d left to Linux; %d rule sets ask for more than is remembered", places, total, slow, left)
		if total == 0 || total-slow < total/4 {
			t.Errorf("only %d of %d packets were decided", total-slow, total)
		}
	}
}

// rested has the node look for verdicts again, if it has found too many places taken.
func (n *node) rested(t testing.TB) {
	t.Helper()
	walks := n.coll.Maps["rule_walks"]
	empty := make([][]byte, ebpf.MustPossibleCPU())
	for i := range empty {
		empty[i] = make([]byte, walks.ValueSize())
	}
	if err := walks.Put(uint32(0), empty); err != nil {
		t.Fatal(err)
	}
}

// someAlike are packets each of which differs from one before it in one thing that rules ask for.
func someAlike(rt *rapid.T, family ruleset.Family, ct bool) (pool []rules.Packet) {
	fresh := func() rules.Packet {
		p := rules.SomePacket(rt, family)
		first := firstOf(&p)
		p.Mark, p.CT, p.TTL, p.FragOffset = 0, nil, max(p.TTL, 2), p.FragOffset&0x4000
		if ct {
			p.CT = &rules.Connection{State: ruleset.CTEstablished, Reply: rapid.Bool().Draw(rt, "reply"), Status: rapid.SampledFrom([]uint32{0xe, 0x1e, 0x2e, 0x3e}).Draw(rt, "status"),
				Mark: rapid.Uint32Range(0, 3).Draw(rt, "ct mark"), Zone: rapid.Uint16Range(0, 3).Draw(rt, "ct zone"), First: first}
		}
		return p
	}
	pool = append(pool, fresh())
	for len(pool) < 8 {
		p, other := rapid.SampledFrom(pool).Draw(rt, "like"), fresh()
		if p.CT != nil {
			conn := *p.CT
			p.CT = &conn
		}
		switch rapid.IntRange(0, 14).Draw(rt, "but for") {
		case 0:
			p.Src = other.Src
		case 1:
			p.Dst = other.Dst
		case 2:
			p.Proto = other.Proto
		case 3:
			p.SPort = other.SPort
		case 4:
			p.DPort = other.DPort
		case 5:
			p.IIF = other.IIF
		case 6:
			p.OIF = other.OIF
		case 7:
			p.PhysIn, p.PhysOut = other.PhysIn, other.PhysOut
		case 8:
			p.TCPFlags = other.TCPFlags
		case 9:
			p.ICMPType = other.ICMPType
		case 10:
			p.DSField = other.DSField
		case 11:
			p.EtherPadding = other.EtherPadding
		case 12:
			p = other
		default:
			if ct {
				switch rapid.IntRange(0, 3).Draw(rt, "of the connection") {
				case 0:
					p.CT.Reply = other.CT.Reply
				case 1:
					p.CT.Status = other.CT.Status
				case 2:
					p.CT.Mark = other.CT.Mark
				case 3:
					p.CT.Zone = other.CT.Zone
				}
			}
		}
		pool = append(pool, p)
	}
	return pool
}

// TestVerdictsEndWithTheirImage: what is remembered is not asked again, as long as the image has its number, and never with another one.
func TestVerdictsEndWithTheirImage(t *testing.T) {
	n := loadRemembering(t, 1<<22, rememberedShapes(), 256)
	of := func(code ruleset.Code, counter int) [stages]*image.Image {
		chain := ruleset.Chain{Name: "f", Base: &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter},
			Rules: []ruleset.Rule{{Number: 1, Steps: []ruleset.Step{ruleset.Count{Counter: ruleset.CounterID(counter)}, ruleset.Verdict{Code: code}}}}}
		_, images := imagesOf(t, &ruleset.Ruleset{Counters: make([]ruleset.Counter, 2), Tables: []ruleset.Table{{Family: ruleset.IP4, Name: "t", Chains: []ruleset.Chain{chain}}}}, rules.SomeDevices, false, 0, -1)
		return images
	}
	accepts, drops := of(ruleset.Accept, 0), of(ruleset.Drop, 1)
	for i, c := range []struct {
		number uint32
		images [stages]*image.Image
		want   rules.Outcome
		count  ruleset.CounterID
	}{
		{0, accepts, rules.Accepted, 0}, {0, drops, rules.Dropped, 1}, // not remembered at all
		{1, accepts, rules.Accepted, 0}, {1, drops, rules.Accepted, 0}, // under the number of another: this shows that it is
		{2, drops, rules.Dropped, 1}, {2, accepts, rules.Dropped, 1}, {3, accepts, rules.Accepted, 0},
	} {
		n.number = c.number
		n.install(t, c.images)
		for range 3 {
			p := rules.Packet{IIF: rules.SomeDevices[0], OIF: rules.SomeDevices[1], Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: 17, TTL: 64, Length: 60}
			if got := n.run(t, &p); got.outcome != c.want || len(got.counted) != 1 || got.counted[0].Counter != c.count {
				t.Errorf("%d: the node says %v and counts %v, want %v and %v", i, got.outcome, got.counted, c.want, c.count)
			}
		}
	}
}

// TestVerdictsAreByAllThatRulesAsk: two packets that differ in one thing have one place, and the rules want that thing of the second.
func TestVerdictsAreByAllThatRulesAsk(t *testing.T) {
	n := loadRemembering(t, 1<<22, rememberedShapes(), 1)
	type packet = rules.Packet
	addr := netip.MustParseAddr
	name := func(f ruleset.Field, d rules.Device) ruleset.Test {
		return ruleset.Test{Field: f, Ranges: []ruleset.Range{ruleset.One(ruleset.Name(d.Name))}}
	}
	is := func(f ruleset.Field, v uint64) ruleset.Test {
		return ruleset.Test{Field: f, Ranges: []ruleset.Range{ruleset.Nums(v, v)}}
	}
	from := func(f ruleset.Field, p string) ruleset.Test {
		return ruleset.Test{Field: f, Ranges: []ruleset.Range{ruleset.Prefix(netip.MustParsePrefix(p))}}
	}
	devices := rules.SomeDevices
	proto := func(p uint8) func(*packet) { return func(q *packet) { q.Proto = p } }
	bridged := func(p *packet) { p.PhysIn, p.PhysOut = devices[0], devices[1] }
	tracked := func(p *packet) { p.CT = &rules.Connection{State: ruleset.CTEstablished, Status: 0xe} }
	for _, c := range []struct {
		name   string
		six    bool
		first  func(*packet) // what both have
		second func(*packet)
		asks   ruleset.Test
	}{
		{"source", false, nil, func(p *packet) { p.Src = addr("10.0.0.9") }, from(ruleset.IP4Src, "10.0.0.9/32")},
		{"destination", false, nil, func(p *packet) { p.Dst = addr("10.0.0.9") }, from(ruleset.IP4Dst, "10.0.0.9/32")},
		{"source of IPv6", true, nil, func(p *packet) { p.Src = addr("fd00::9") }, from(ruleset.IP6Src, "fd00::9/128")},
		{"its network", true, nil, func(p *packet) { p.Src = addr("fd01::1") }, from(ruleset.IP6Src, "fd01::/64")},
		{"destination of IPv6", true, nil, func(p *packet) { p.Dst = addr("fd00::9") }, from(ruleset.IP6Dst, "fd00::9/128")},
		{"its network, too", true, nil, func(p *packet) { p.Dst = addr("fd01::2") }, from(ruleset.IP6Dst, "fd01::/64")},
		{"source port", false, nil, func(p *packet) { p.SPort = 7 }, is(ruleset.SPort, 7)},
		{"destination port", false, nil, func(p *packet) { p.DPort = 7 }, is(ruleset.DPort, 7)},
		{"protocol", false, nil, proto(6), is(ruleset.L4Proto, 6)},
		{"way in", false, nil, func(p *packet) { p.IIF = devices[2] }, name(ruleset.IIFName, devices[2])},
		{"way out", false, nil, func(p *packet) { p.OIF = devices[2] }, name(ruleset.OIFName, devices[2])},
		{"port of a bridge", false, bridged, func(p *packet) { p.PhysIn = devices[2] }, name(ruleset.PhysIn, devices[2])},
		{"port out of a bridge", false, bridged, func(p *packet) { p.PhysOut = devices[2] }, name(ruleset.PhysOut, devices[2])},
		{"DS field", false, nil, func(p *packet) { p.DSField = 0x48 }, is(ruleset.DSField, 0x48)},
		{"TCP flags", false, proto(6), func(p *packet) { p.TCPFlags = 2 }, is(ruleset.TCPFlags, 2)},
		{"type of ICMP", false, proto(1), func(p *packet) { p.ICMPType = 13 << 8 }, is(ruleset.ICMPType, 13<<8)},
		{"status", false, tracked, func(p *packet) { p.CT.Status = 0x1e }, is(ruleset.CTStatus, 0x1e)},
		{"direction", false, tracked, func(p *packet) { p.CT.Reply = true }, is(ruleset.CTDirection, 1)},
		{"mark of the connection", false, tracked, func(p *packet) { p.CT.Mark = 3 }, is(ruleset.CTMark, 3)},
		{"zone", false, tracked, func(p *packet) { p.CT.Zone = 3 }, is(ruleset.CTZone, 3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			some := func(change func(*packet)) *packet {
				p := &packet{IIF: devices[0], OIF: devices[1], Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), Proto: 17, SPort: 1000, DPort: 2000, TTL: 64, TCPFlags: 0x10, ICMPType: 8 << 8}
				if c.six {
					p.Src, p.Dst = addr("fd00::1"), addr("fd00::2")
				}
				for _, do := range []func(*packet){c.first, change} {
					if do != nil {
						do(p)
					}
				}
				return p
			}
			steps := []ruleset.Step{c.asks, ruleset.Count{Counter: 0}, ruleset.Verdict{Code: ruleset.Drop}}
			if p := some(nil).Proto; c.asks.Field == ruleset.TCPFlags || c.asks.Field == ruleset.ICMPType {
				steps = append([]ruleset.Step{is(ruleset.L4Proto, uint64(p))}, steps...)
			}
			chain := ruleset.Chain{Name: "f", Base: &ruleset.Base{Hook: ruleset.Forward, Type: "filter", Policy: ruleset.Accept, Counter: ruleset.NoCounter}, Rules: []ruleset.Rule{{Number: 1, Steps: steps}}}
			family := map[bool]ruleset.Family{false: ruleset.IP4, true: ruleset.IP6}[c.six]
			_, images := imagesOf(t, &ruleset.Ruleset{Counters: make([]ruleset.Counter, 1), Tables: []ruleset.Table{{Family: family, Name: "t", Chains: []ruleset.Chain{chain}}}}, devices, some(c.second).CT != nil, 0, -1)
			n.number++
			n.install(t, images)
			for i, second := range []bool{false, false, true, false, true, true} {
				p, want := some(nil), rules.Accepted
				if second {
					p, want = some(c.second), rules.Dropped
				}
				if got := n.run(t, p); got.outcome != want || (len(got.counted) == 1) != second {
					t.Errorf("packet %d: the node says %v and counts %v, want %v", i, got.outcome, got.counted, want)
				}
			}
		})
	}
}
