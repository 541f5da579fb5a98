// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// commonConfig is the common router as a configuration, for generators.
func commonConfig(seed uint64) *Config {
	c := &Config{N: 3, Notes: map[string]bool{}, Filtering: rand.New(rand.NewPCG(seed, 1)), Stacking: rand.New(rand.NewPCG(seed, 2))}
	for i := range c.MTU {
		c.MTU[i] = 1500
	}
	for i := range 3 {
		for n := range 2 {
			c.Hosts = append(c.Hosts, Host{i, netip.AddrFrom4([4]byte{10, 0, byte(i), byte(10 + n)}), hostMAC(i, n), "static"}, Host{i, addr6(i, 0, byte(0x10+n)), hostMAC(i, n), "static"})
		}
	}
	for _, p := range []string{"10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "2001:db8:1::/48", "2001:db8:2::/48", "2001:db8:3::/48"} {
		c.Targets = append(c.Targets, netip.MustParsePrefix(p))
	}
	return c
}

// TestInterpreter compares what internal/rules says about a rule set, as it was read from the kernel, with what the kernel does: for plain packets whose way out is known, the verdict,
// the TOS byte and every counter.
func TestInterpreter(t *testing.T) {
	lab.RequireRoot(t)
	var wire *lab.Wire
	twin, err := newTwin("rules", &wire)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := twin.close(); err != nil {
			t.Error(err)
		}
		wire.Close()
	}()
	if said, err := twin.apply(common()); err != nil || said != "" {
		t.Fatal(err, said)
	}
	first := firstSeed()
	t.Logf("seeds from %d on; -seed %d repeats this", first, first)
	o := &oracle{T: t, twin: twin, kinds: kinds(t)}
	sets := max(1, *configsFlag/4)
	for i := range sets {
		o.compare(first + uint64(i))
	}
	t.Logf("%d rule sets, %d packets: %d accepted, %d dropped, %d left to Linux", sets, o.packets, o.outcomes[rules.Accepted], o.outcomes[rules.Dropped], o.outcomes[rules.IsSlow])
	if o.packets == 0 || o.outcomes[rules.Dropped]*20 < o.packets {
		t.Error("too few packets met a rule that drops them")
	}
}

type oracle struct {
	*testing.T
	twin     *twin
	kinds    []string
	packets  int
	outcomes [3]int
}

// send sends packets and returns those that left by each port, with the TOS byte that they left with. It is patient with a busy machine while fewer than least have.
func (o *oracle) send(packets []Packet, least int) []map[string]byte {
	var out output
	if err := o.twin.inject(packets); err != nil {
		o.Fatal(err)
	}
	for tries, left := 0, -1; tries < 20 && left < least; tries++ {
		if err := o.twin.collect(&out, 3*quiet); err != nil {
			o.Fatal(err)
		}
		left = 0
		for i := range Ports {
			left += len(out[i])
		}
	}
	seen := make([]map[string]byte, Ports)
	for i := range Ports {
		seen[i] = map[string]byte{}
		for _, f := range out[i] {
			if h, ok := readIP(f); ok {
				seen[i][withoutTOS(f[h.l3:])] = tos(f)
			}
		}
	}
	return seen
}

// tos is the TOS byte or traffic class.
func tos(f []byte) byte {
	if f[14]>>4 == 4 {
		return f[15]
	}
	return f[14]<<4 | f[15]>>4
}

// withoutTOS is a packet but for what setting the TOS byte changes, its TTL and checksum.
func withoutTOS(p []byte) string {
	q := append([]byte{}, p...)
	if q[0]>>4 == 4 {
		q[1], q[8], q[10], q[11] = 0, 0, 0, 0
	} else {
		q[0], q[1], q[7] = q[0]&0xf0, q[1]&0x0f, 0
	}
	return string(q)
}

// routed says whether the common router has a route to an IPv6 packet's sender. The type of an address without one is what such a lookup finds (net/ipv6/netfilter/nft_fib_ipv6.c),
// which the interpreter is to be told, while of IPv4 it is unicast (net/ipv4/fib_frontend.c, inet_addr_type).
func (c *Config) routed(p Packet) bool {
	h, _ := readIP(p.Frame)
	return h.version == 4 || slices.ContainsFunc(c.Hosts, func(x Host) bool { return netip.PrefixFrom(x.Addr, 64).Masked().Contains(h.src) }) ||
		slices.ContainsFunc(c.Targets, func(n netip.Prefix) bool { return n.Contains(h.src) })
}

func (o *oracle) compare(seed uint64) {
	c := commonConfig(seed)
	c.Kinds = o.kinds
	if err := o.twin.clearFilters(); err != nil {
		o.Fatal(err)
	}
	g := &packetGen{rng: rand.New(rand.NewPCG(seed, 3)), c: c, hook: "tc"}
	var packets []Packet
	seen := map[string]bool{}
	for len(packets) < 60 {
		p := Packet{Port: g.c.port(g.rng), How: WireFrame}
		p.Frame = g.near(p.Port, chance(g.rng, 35))
		if !plain(p) || !whole(p) || !c.routed(p) || seen[withoutTOS([]byte(packetOf(p.Frame)))] {
			continue
		}
		seen[withoutTOS([]byte(packetOf(p.Frame)))] = true
		packets = append(packets, p)
	}
	free := o.send(packets, len(packets)*9/10)
	filters := &filterGen{rng: c.Filtering, c: c}
	for range 1 + c.Filtering.IntN(2) {
		filters.load(false)
	}
	said, err := o.twin.apply(c.Commands)
	if err != nil || said != "" {
		o.Fatalf("seed %d: %v %s", seed, err, said)
	}
	// A router may say by itself what rules see too, that a neighbour of an earlier packet does not answer for example, and a busy one be late: neither comes
	// three times running, while rules say the same of the same packets each time.
	var wrong []string
	for try := 0; try == 0 || try < 3 && len(wrong) > 0; try++ {
		if wrong = o.check(c, packets, free); len(wrong) > 0 {
			o.Logf("seed %d, try %d: %s", seed, try+1, strings.Join(wrong, "\n"))
		}
	}
	if len(wrong) > 0 {
		o.Errorf("seed %d: the interpreter and the kernel differ each time:\n%s\n%s", seed, strings.Join(wrong, "\n"), (&Case{Steps: []Step{{Commands: c.Commands}}}).Script())
	}
}

// check predicts, sends and compares; it returns what differed.
func (o *oracle) check(c *Config, packets []Packet, free []map[string]byte) (wrong []string) {
	before, err := o.twin.filters()
	if err != nil {
		o.Fatal(err)
	}
	in := rules.NewInterpreter(before)
	want := map[ruleset.CounterID]ruleset.Counter{}
	type prediction struct {
		Packet
		out int
		res rules.Result
	}
	var all []prediction
	var chosen []Packet
	for _, p := range packets {
		for out := range Ports {
			if _, ok := free[out][withoutTOS([]byte(packetOf(p.Frame)))]; !ok || out == p.Port {
				continue
			}
			res := in.Run(rulePacket(p, o.twin.port(p.Port), o.twin.port(out)))
			o.packets++
			o.outcomes[res.Outcome]++
			if res.Outcome == rules.IsSlow {
				continue
			}
			for _, n := range res.Counted {
				w := want[n.Counter]
				want[n.Counter] = ruleset.Counter{Packets: w.Packets + 1, Bytes: w.Bytes + uint64(n.Bytes)}
			}
			all, chosen = append(all, prediction{p, out, res}), append(chosen, p)
		}
	}
	accepted := 0
	for _, p := range all {
		if p.res.Outcome == rules.Accepted {
			accepted++
		}
	}
	got := o.send(chosen, accepted)
	complain := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	for _, p := range all {
		ds, left := got[p.out][withoutTOS([]byte(packetOf(p.Frame)))]
		switch {
		case left != (p.res.Outcome == rules.Accepted):
			complain("%s: the interpreter says %s by %s, but it left: %v", p, p.res.Outcome, p.res.By, left)
		case left && ds != p.res.DSField:
			complain("%s left with TOS %#x, the interpreter says %#x", p, ds, p.res.DSField)
		}
	}
	after, err := o.twin.filters()
	if err != nil || len(after.Counters) != len(before.Counters) {
		o.Fatalf("%d counters, then %d: %v", len(before.Counters), len(after.Counters), err)
	}
	for i, now := range after.Counters {
		if !forwardedAt(now.At.Chain) || o.unasked(after, ruleset.CounterID(i)) {
			continue
		}
		was, w := before.Counters[i], want[ruleset.CounterID(i)]
		packets, bytes := now.Packets-was.Packets, now.Bytes-was.Bytes
		if packets != w.Packets || bytes != w.Bytes {
			complain("counter %+v: the kernel counts %d packets, %d bytes, the interpreter %d, %d", now.At, packets, bytes, w.Packets, w.Bytes)
		}
	}
	return wrong
}

// unasked says whether a counter belongs to the rule that takes what routers say unasked, or to the policy of a chain without it.
func (o *oracle) unasked(rs *ruleset.Ruleset, id ruleset.CounterID) bool {
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			if c.Base != nil && c.Base.Counter == id && c.Base.Hook == ruleset.Postrouting && len(c.Rules) == 0 {
				return true
			}
			for _, r := range c.Rules {
				if strings.Contains(r.Text, unasked) && slices.ContainsFunc(r.Steps, func(s ruleset.Step) bool { n, ok := s.(ruleset.Count); return ok && n.Counter == id }) {
					return true
				}
			}
		}
	}
	return false
}
