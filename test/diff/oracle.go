// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// filters reads what a twin's packet filters hold.
func (t *twin) filters() (out *ruleset.Ruleset, err error) {
	err = t.dut.Do(func() error {
		read := kstate.ReadRules(nil)
		if len(read.Faults) > 0 {
			return fmt.Errorf("reading rules: %v", read.Faults)
		}
		out = &read.Ruleset
		return nil
	})
	return out, err
}

// rulesAllow says which packets' verdict follows from what they and the rules are, so that the rules do not excuse them from being fast.
func (r *run) rulesAllow() (func(p Packet, out int) bool, error) {
	if !r.c.Slow.Rules {
		return nil, nil
	}
	rs, err := r.linux.filters()
	if err != nil {
		return nil, err
	}
	untold, err := r.linux.untoldTypes(rs)
	if err != nil {
		return nil, err
	}
	in := rules.NewInterpreter(rs)
	ports := asksAny(rs, ruleset.PhysIn, ruleset.PhysOut)
	return func(p Packet, out int) bool {
		if !whole(p) || untold(p) || r.c.Slow.bridges(p.Port) && hooked(rs, p.Port) || r.c.Slow.bridges(out) && hooked(rs, out) {
			return false
		}
		q := rulePacket(p, r.linux.port(p.Port), r.linux.port(out))
		if ports && r.c.Slow.bridges(p.Port) {
			if !r.c.Slow.Shown || r.oneTier() { // then it is not known there whether the packet was shown
				return false
			}
			q.PhysIn = q.IIF
		}
		said, met := in.Trace(q)
		if said.Outcome != rules.Accepted || len(said.Counted) > mostCounters {
			return false
		}
		r.mapped.addMaps(rs, met)
		return true
	}, nil
}

// mostCounters is how many counters a fast packet may move (docs/semantics-rules.md, netfilter-long).
const mostCounters = 8

// rulesAllowBridged says the same of frames between the ports of a bridge that br_netfilter shows to the rules, where the data path asks those: none that
// bridged packets meet otherwise than routed ones.
func (r *run) rulesAllowBridged() (func(p Packet, out int) bool, error) {
	if !r.c.Slow.Rules {
		return func(Packet, int) bool { return true }, nil
	}
	rs, err := r.linux.filters()
	if err != nil {
		return nil, err
	}
	if !r.c.Slow.Shown {
		return func(p Packet, out int) bool { return !hooked(rs, p.Port, out) }, nil
	}
	br0, err := r.linux.dut.Netlink().LinkByName("br0")
	if err != nil || r.oneTier() || metOtherwise(rs) { // nor in the generic tier alone
		return func(Packet, int) bool { return false }, nil
	}
	in, port := rules.NewInterpreter(rs), &lab.Port{Name: "br0", Index: br0.Attrs().Index}
	return func(p Packet, out int) bool {
		if !whole(p) {
			return false
		}
		q, ports := rulePacket(p, port, port), rulePacket(p, r.linux.port(p.Port), r.linux.port(out))
		q.PhysIn, q.PhysOut = ports.IIF, ports.OIF
		return in.Run(q).Outcome == rules.Accepted
	}, nil
}

// metOtherwise says whether rules ask or do what is of another meaning to bridged packets, or belong to devices.
func metOtherwise(rs *ruleset.Ruleset) bool {
	late := slices.ContainsFunc(rs.Tables, func(t ruleset.Table) bool {
		return slices.ContainsFunc(t.Chains, func(c ruleset.Chain) bool { return c.Base != nil && c.Base.Hook == ruleset.Postrouting })
	})
	other := func(f ruleset.Field) bool {
		switch f {
		case ruleset.TTL, ruleset.SrcAddrType, ruleset.DstAddrType, ruleset.RouteBack, ruleset.RouteBackBy:
			return true
		case ruleset.IIFName, ruleset.IIFIndex, ruleset.IIFGroup, ruleset.IIFType:
			return late // which have none there
		}
		return false
	}
	step := func(s ruleset.Step) bool {
		set, ok := s.(ruleset.SetField)
		return ok && set.Field != ruleset.Mark || slices.ContainsFunc(asked(s), other)
	}
	return slices.ContainsFunc(rs.Tables, func(t ruleset.Table) bool {
		return t.Family == ruleset.Netdev || slices.ContainsFunc(t.Chains, func(c ruleset.Chain) bool {
			return slices.ContainsFunc(c.Rules, func(r ruleset.Rule) bool { return slices.ContainsFunc(r.Steps, step) })
		})
	})
}

// idleStages are the sides of the route, by family, where no rule can do anything to a packet: the fast path passes them by, and counts nothing for the policies there
// (docs/deviations.md).
type idleStages map[idleStage]bool

type idleStage struct {
	family string // as in the names of counters
	before bool   // the route
}

// has says whether a counter is that of a policy in such a stage.
func (s idleStages) has(key string) bool {
	words := strings.Fields(key) // dialect, family, table, chain, "policy"
	return len(words) == 5 && words[4] == "policy" && s[idleStage{words[1], words[3] == "PREROUTING"}]
}

func (r *run) idleStages() (idleStages, error) {
	rs, err := r.linux.filters()
	if err != nil {
		return nil, err
	}
	out := idleStages{}
	for _, family := range []ruleset.Family{ruleset.IP4, ruleset.IP6} {
		for _, established := range []bool{false, true} { // whether connections are tracked is shunt's to know
			acts := map[bool]bool{}
			program := rules.Flatten(rs, rules.Class{Family: family, Established: established})
			for _, list := range program.Lists {
				for i := range list {
					e := &list[i]
					if routed := e.Hook() != ruleset.Ingress && e.Hook() != ruleset.Egress; routed && (e.By.Rule != nil || e.Then != rules.Next) {
						acts[e.BeforeRoute()] = true
					}
				}
			}
			for _, before := range []bool{false, true} {
				at := idleStage{family.String(), before}
				out[at] = out[at] || !acts[before]
			}
		}
	}
	return out, nil
}

// untoldTypes says of which packets rules ask what only Linux can say: the type of the receiver's address before the route, that of a sender
// to whom there is no route. In IPv6 also that of the first address of a prefix, and of any where the route to it is not the only one that could be meant. (Routing rules that
// come before the local ones make it so in all of IPv4 too: cases by hand alone.)
func (t *twin) untoldTypes(rs *ruleset.Ruleset) (func(Packet) bool, error) {
	asks := func(but ruleset.Family, fields ...ruleset.Field) bool {
		some := *rs
		some.Tables = slices.DeleteFunc(slices.Clone(rs.Tables), func(t ruleset.Table) bool { return t.Family == but })
		return asksAny(&some, fields...)
	}
	early := slices.ContainsFunc(rs.Tables, func(t ruleset.Table) bool {
		return slices.ContainsFunc(t.Chains, func(c ruleset.Chain) bool { return c.Base != nil && c.Base.Hook == ruleset.Prerouting })
	})
	other := map[int]ruleset.Family{4: ruleset.IP6, 6: ruleset.IP4}
	receiver, sender := map[int]bool{}, map[int]bool{}
	for version, but := range other {
		receiver[version], sender[version] = asks(but, ruleset.DstAddrType), asks(but, ruleset.SrcAddrType)
	}
	only, longest := true, 64
	if receiver[6] || sender[6] {
		var err error
		if only, longest, err = t.routes6(); err != nil {
			return nil, err
		}
	}
	untold := func(addr netip.Addr) bool {
		routes, err := t.dut.Netlink().RouteGet(addr.AsSlice())
		if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
			return true
		}
		return addr.Is6() && routes[0].Gw == nil && netip.PrefixFrom(addr, longest).Masked().Addr() == addr
	}
	return func(p Packet) bool {
		switch h, _ := readIP(p.Frame); {
		case h.version == 6 && (receiver[6] || sender[6]) && !only || receiver[h.version] && early:
			return true
		case sender[h.version] && untold(h.src):
			return true
		case h.version == 6 && receiver[6]:
			return untold(h.dst)
		}
		return false
	}, nil
}

// routes6 says whether each IPv6 prefix has one route, for whatever packet it is, and how long the longest prefix on a link is, between 64 and 126 bits.
func (t *twin) routes6() (only bool, longest int, err error) {
	var text [3]string
	for i, do := range []string{"ip -6 rule", "ip -6 route show table local", "ip -6 route show table main"} {
		if text[i], err = t.dut.Output("%s", do); err != nil {
			return false, 0, err
		}
	}
	only, longest = strings.Count(strings.TrimSpace(text[0]), "\n") == 1, 64 // a VRF brings a rule as well
	for _, line := range strings.Split(text[1], "\n") {
		f := strings.Fields(line)
		only = only && (len(f) == 0 || slices.Contains([]string{"local", "anycast", "multicast"}, f[0]))
	}
	seen := map[string]bool{}
	for _, line := range strings.Split(text[2], "\n") {
		f := strings.Fields(line)
		if len(f) > 0 && slices.Contains([]string{"unicast", "blackhole", "unreachable", "prohibit", "local", "throw"}, f[0]) {
			f = f[1:]
		}
		if len(f) == 0 || strings.HasPrefix(f[0], "fe80:") || strings.HasPrefix(f[0], "ff00:") || strings.HasPrefix(f[0], "multicast") {
			continue
		}
		only = only && !seen[f[0]] && !slices.ContainsFunc(f, func(w string) bool { return w == "from" || w == "expires" || w == "nexthop" })
		seen[f[0]] = true
		if p, err := netip.ParsePrefix(f[0]); err == nil && !slices.Contains(f, "via") && p.Bits() < 127 {
			longest = max(longest, p.Bits())
		}
	}
	return only, longest, nil
}

// hooked says whether a device has chains of its own: those of a bridge's port are not asked, since its packets are the bridge's.
func hooked(rs *ruleset.Ruleset, ports ...int) bool {
	return slices.ContainsFunc(rs.Tables, func(t ruleset.Table) bool {
		return slices.ContainsFunc(t.Chains, func(c ruleset.Chain) bool {
			return c.Base != nil && slices.ContainsFunc(ports, func(p int) bool { return c.Base.On(portName(p)) })
		})
	})
}

// asksAny says whether a rule asks for one of some fields.
func asksAny(rs *ruleset.Ruleset, fields ...ruleset.Field) bool {
	of := func(f ruleset.Field) bool { return slices.Contains(fields, f) }
	return slices.ContainsFunc(rs.Tables, func(t ruleset.Table) bool {
		return slices.ContainsFunc(t.Chains, func(c ruleset.Chain) bool {
			return slices.ContainsFunc(c.Rules, func(r ruleset.Rule) bool {
				return slices.ContainsFunc(r.Steps, func(s ruleset.Step) bool { return slices.ContainsFunc(asked(s), of) })
			})
		})
	})
}

// asked are the fields that a step looks at.
func asked(s ruleset.Step) (out []ruleset.Field) {
	switch s := s.(type) {
	case ruleset.Test:
		return []ruleset.Field{s.Field}
	case ruleset.AnyTest:
		for _, t := range s.Of {
			out = append(out, t.Field)
		}
	case ruleset.Lookup:
		return s.Key
	case ruleset.VerdictMap:
		return s.Key
	case ruleset.SetByMap:
		return s.Key
	}
	return out
}

// clearFilters takes all packet filters away.
func (t *twin) clearFilters() error {
	var errs []error
	for _, tool := range []string{"iptables-legacy", "ip6tables-legacy"} {
		for table, chains := range baseChains {
			if !t.hasLegacy(tool, table) {
				continue
			}
			empty := tool + "-restore\n*" + table + "\n"
			for _, c := range chains {
				empty += ":" + c + " ACCEPT [0:0]\n"
			}
			_, err := t.apply([]string{empty + "COMMIT\n"})
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, t.dut.Exec("nft flush ruleset"), t.dut.Exec("ipset destroy"))...)
}

// hasLegacy says whether a table exists; loading an empty one would make it.
func (t *twin) hasLegacy(tool, table string) bool {
	name := map[string]string{"iptables-legacy": "ip_tables_names", "ip6tables-legacy": "ip6_tables_names"}[tool]
	text, err := t.dut.Output("cat /proc/net/%s", name)
	return err == nil && slices.Contains(strings.Fields(text), table)
}

// rulePacket is a plain packet as rules see it that leaves by a port.
func rulePacket(p Packet, in, out *lab.Port) rules.Packet {
	f := p.Frame
	h, _ := readIP(f)
	device := func(port *lab.Port) rules.Device { return rules.Device{Name: port.Name, Index: port.Index, Type: 1} }
	q := rules.Packet{IIF: device(in), OIF: device(out), EtherSrc: ruleset.Bytes(f[6:12]).Lo, EtherDst: ruleset.Bytes(f[:6]).Lo, Src: h.src, Dst: h.dst, Proto: h.proto}
	if h.version == 4 {
		q.DSField, q.TTL, q.Length = f[15], f[22], binary.BigEndian.Uint16(f[16:])
		q.ID, q.FragOffset = binary.BigEndian.Uint16(f[18:]), binary.BigEndian.Uint16(f[20:])
	} else {
		first := binary.BigEndian.Uint32(f[14:])
		q.DSField, q.FlowLabel, q.TTL, q.Length = uint8(first>>20), first&0xfffff, f[21], binary.BigEndian.Uint16(f[18:])+40
	}
	q.EtherPadding = len(f) - 14 - int(q.Length)
	l4 := f[h.l4 : 14+int(q.Length)]
	switch h.proto {
	case 6, 17, 33, 132, 136:
		if len(l4) >= 4 {
			q.SPort, q.DPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		}
		if h.proto == 6 && len(l4) >= 14 {
			q.TCPFlags = l4[13]
		}
	case 1, 58:
		if len(l4) >= 2 {
			q.ICMPType = binary.BigEndian.Uint16(l4)
		}
	}
	return q
}

// whole says whether the transport header that a packet announces is there; rules look into it, and what they do without is for cases by hand.
func whole(p Packet) bool {
	h, ok := readIP(p.Frame)
	if !ok {
		return false
	}
	var room int
	if h.version == 4 {
		room = 14 + int(binary.BigEndian.Uint16(p.Frame[16:])) - h.l4
	} else {
		room = int(binary.BigEndian.Uint16(p.Frame[18:]))
	}
	switch h.proto {
	case 6:
		return room >= 20 && p.Frame[h.l4+12]>>4 >= 5
	case 1, 58, 17, 33, 132, 136:
		return room >= 8
	}
	return true
}
