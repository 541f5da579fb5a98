// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"errors"
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
	n, err := readNATRule(r, c.Base.Hook == ruleset.Prerouting, iface)
	if err == nil {
		m.of[r], err = m.enter(n)
	}
	if err != nil {
		return &conntrackOnly{t, c.Name, r, err.Error()}
	}
	return nil
}

// enter adds the mapping of a rule, and gives what becomes of the rule.
func (m *mappings) enter(n *natRule) (fate string, err error) {
	there, back := m.sources, m.destinations
	if n.destination {
		there, back = m.destinations, m.sources
	}
	from, target := n.from, n.target()
	if old, taken := back[target]; taken && old != from {
		return "", errors.New("another rule maps to the same address and port, and no answer could be told from the other's")
	}
	back[target] = from
	if !n.here {
		return "of another interface; answers are mapped back", nil
	}
	_, all := there[end{addr: from.addr}]
	if _, taken := there[from]; taken || all {
		return "never reached: a rule before it takes these packets", nil
	}
	there[from] = target
	return "static mapping, and back", nil
}
