// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// end is an address with a port of a protocol. Without a protocol it is every packet of the address.
type end struct {
	addr  netip.Addr
	port  uint16
	proto uint8
}

// mappings are static translations: of destinations as packets come, of sources as they go.
type mappings struct {
	destinations, sources map[end]end
	of                    map[*ruleset.Rule]string // what became of each rule of a nat chain
}

// conntrackOnly is the error for NAT that remembers connections.
type conntrackOnly struct {
	table *ruleset.Table
	chain string
	rule  *ruleset.Rule
	why   string
}

func (e *conntrackOnly) Error() string {
	at := fmt.Sprintf("table %s %s, chain %s", e.table.Family, e.table.Name, e.chain)
	if e.rule != nil {
		at += fmt.Sprintf(", rule %d (%s)", e.rule.Number, e.rule.Text)
	}
	return at + ": only Linux's connection tracking can do this: " + e.why +
		"; what can be compiled is -d ADDRESS [-p tcp|udp --dport PORT] -j DNAT --to-destination ADDRESS[:PORT], and the same of -s, --sport and SNAT"
}

// staticNAT takes the static mappings out of the nat chains that forwarded packets meet. Anything else there is an error.
func staticNAT(rs *ruleset.Ruleset, iface string) (*mappings, error) {
	m := &mappings{map[end]end{}, map[end]end{}, map[*ruleset.Rule]string{}}
	for i := range rs.Tables {
		t := &rs.Tables[i]
		if t.Dormant || t.Family == ruleset.Bridge || t.Family == ruleset.ARP {
			continue
		}
		for j := range t.Chains {
			c := &t.Chains[j]
			if c.Base == nil || c.Base.Type != "nat" || c.Base.Hook != ruleset.Prerouting && c.Base.Hook != ruleset.Postrouting {
				continue
			}
			if c.Base.Policy != ruleset.Accept || len(c.Base.Unknown) > 0 {
				return nil, &conntrackOnly{t, c.Name, nil, "the chain has a policy or a property of its own"}
			}
			for k := range c.Rules {
				if err := m.rule(t, c, &c.Rules[k], iface); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(m.destinations)+len(m.sources) == 0 {
		return m, nil
	}
	return m, orders(rs)
}

// orders makes sure that rules see addresses as Linux shows them: before the destination's mapping, or behind the source's, there is none.
func orders(rs *ruleset.Ruleset) error {
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			b := c.Base
			if b == nil || b.Type == "nat" || len(c.Rules) == 0 || t.Dormant {
				continue
			}
			if b.Hook == ruleset.Prerouting && b.Priority >= -100 || b.Hook == ruleset.Postrouting && b.Priority >= 100 {
				return fmt.Errorf("table %s %s, chain %s: static mappings and a chain at %s with priority %d, which Linux calls behind them, cannot be compiled together",
					t.Family, t.Name, c.Name, b.Hook, b.Priority)
			}
		}
	}
	return nil
}

// rule takes in one rule of a nat chain.
func (m *mappings) rule(t *ruleset.Table, c *ruleset.Chain, r *ruleset.Rule, iface string) error {
	destination := c.Base.Hook == ruleset.Prerouting
	address, port, name := ruleset.IP4Dst, ruleset.DPort, "dnat"
	if !destination {
		address, port, name = ruleset.IP4Src, ruleset.SPort, "snat"
	}
	fail := func(why string) error { return &conntrackOnly{t, c.Name, r, why} }
	var from end
	var to *ruleset.Mapping
	here := true // the rule is for packets of this interface
	for _, s := range r.Steps {
		switch s := s.(type) {
		case ruleset.Count:
			continue
		case ruleset.Test:
			v, one := single(s)
			switch {
			case s.Field == ruleset.NFProto && one && v.Lo == uint64(ruleset.IP4), s.Field == ruleset.EtherType && one && v.Lo == 0x0800:
				continue
			case s.Field == ruleset.IIFName && destination && iface == "":
				return fail("the rule is for one interface; say with --interface which one the object is for")
			case s.Field == ruleset.IIFName && destination && s.Mask == (ruleset.Value{}):
				in := false
				for _, x := range s.Ranges {
					in = in || x.Has(ruleset.Name(iface))
				}
				here = here && in != s.Not
				continue
			case s.Field == port && !one && s.Not && s.Ranges == nil: // "-m tcp" alone
				continue
			case !one:
				return fail(fmt.Sprintf("%s is not one value", s.Field))
			case s.Field == address:
				from.addr = v.Is4()
				continue
			case s.Field == ruleset.L4Proto && (v.Lo == 6 || v.Lo == 17):
				from.proto = uint8(v.Lo)
				continue
			case s.Field == port:
				from.port = uint16(v.Lo)
				continue
			}
			return fail(fmt.Sprintf("it asks for %s", s.Field))
		case ruleset.Slow:
			if s.Name == name && to == nil {
				to = &s.To
				continue
			}
			return fail(s.Text)
		case ruleset.Unknown:
			return fail(s.Text)
		}
		return fail("it does something else")
	}
	switch {
	case to == nil:
		return fail("it maps nothing")
	case !to.Addr.Is4() || to.LastAddr != to.Addr || to.Port != to.LastPort || to.More:
		return fail("it does not map to one IPv4 address and port")
	case !from.addr.IsValid():
		return fail("it is not for one address")
	case (from.port != 0) != (from.proto != 0):
		return fail("it is for a protocol without its port")
	case to.Port != 0 && from.port == 0:
		return fail("many ports become one")
	}
	target := end{to.Addr, to.Port, from.proto}
	if target.port == 0 {
		target.port = from.port
	}
	there, back := m.destinations, m.sources
	if !destination {
		there, back = m.sources, m.destinations
	}
	m.of[r] = "static mapping, and back"
	if old, taken := back[target]; taken && old != from {
		return fail("another rule maps to the same address and port, and no answer could be told from the other's")
	}
	back[target] = from
	if !here {
		m.of[r] = "of another interface; answers are mapped back"
		return nil
	}
	_, all := there[end{addr: from.addr}]
	if _, taken := there[from]; taken || all {
		m.of[r] = "never reached: a rule before it takes these packets"
		return nil
	}
	there[from] = target
	return nil
}

// single is the one value that a test allows.
func single(t ruleset.Test) (ruleset.Value, bool) {
	if t.Not || t.Mask != (ruleset.Value{}) || len(t.Ranges) != 1 || t.Ranges[0].Lo != t.Ranges[0].Hi {
		return ruleset.Value{}, false
	}
	return t.Ranges[0].Lo, true
}
