// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// tableIDs are the tables that routes go to and rules point at; 254 is main.
var tableIDs = []int{254, 254, 254, 254, 100, 101, 102}

// genNexthops makes nexthop objects 1 to 4 and, sometimes, a group 10 of them for each family.
func genNexthops(rng *rand.Rand, c *Config) {
	if !chance(rng, 30) {
		return
	}
	for _, v6 := range []bool{false, true} {
		base := 1
		if v6 {
			base = 21
		}
		var members []string
		for n := range 3 {
			h := c.host(rng, v6)
			if h == nil {
				return
			}
			c.add("ip nexthop add id %d via %s dev %s", base+n, h.Addr, c.dev(h.Port))
			member := fmt.Sprint(base + n)
			if chance(rng, 40) {
				member += fmt.Sprintf(",%d", 1+rng.IntN(8))
			}
			members = append(members, member)
		}
		kind := ""
		if chance(rng, 15) {
			kind = " type resilient buckets 16"
			c.Notes["resilient"] = true
		}
		c.add("ip nexthop add id %d group %s%s", base+9, strings.Join(members[:1+rng.IntN(3)], "/"), kind)
		c.Notes[fmt.Sprintf("nexthops-%v", v6)] = true
	}
	if chance(rng, 30) {
		c.add("ip nexthop add id 50 blackhole")
		c.Notes["nexthop-blackhole"] = true
	}
}

// genRoutes adds routes of every type to several tables.
func genRoutes(rng *rand.Rand, c *Config) {
	for range 3 + rng.IntN(12) {
		c.route(rng, chance(rng, 40))
	}
}

func (c *Config) route(rng *rand.Rand, v6 bool) {
	p := c.target(rng, v6)
	body, excuse := c.routeBody(rng, v6)
	if body == "" {
		return
	}
	c.Targets = append(c.Targets, p)
	if excuse {
		c.Slow.Prefixes = append(c.Slow.Prefixes, p)
	}
	word, body := routeType(body)
	cmd := fmt.Sprintf("ip route %s %s%s %s table %d", pick(rng, []string{"add", "replace", "append"}), word, p, body, pick(rng, tableIDs))
	if chance(rng, 15) {
		cmd += fmt.Sprintf(" metric %d", pick(rng, []int{1, 50, 1024, 2000}))
	}
	if chance(rng, 5) && !v6 {
		cmd += fmt.Sprintf(" tos %#x", pick(rng, []int{0x04, 0x08, 0x10, 0x1c}))
	}
	c.add("%s", cmd)
}

// routeType splits a leading type, which goes before the prefix, from a body.
func routeType(body string) (word, rest string) {
	first, rest, _ := strings.Cut(body, " ")
	switch first {
	case "blackhole", "unreachable", "prohibit", "throw", "local", "broadcast", "multicast", "anycast":
		return first + " ", rest
	}
	return "", body
}

// routeBody is what a route does; excuse says that Linux may be left with its packets.
func (c *Config) routeBody(rng *rand.Rand, v6 bool) (body string, excuse bool) {
	h := c.host(rng, v6)
	if h == nil {
		return "", false
	}
	via := fmt.Sprintf("via %s dev %s", h.Addr, c.dev(h.Port))
	switch n := rng.IntN(110) - 10; {
	case n < 45:
		return via, false
	case n < 50:
		return "blackhole ", false
	case n < 54:
		return "unreachable ", false
	case n < 58:
		return "prohibit ", false
	case n < 60:
		return "throw ", false
	case n < 62:
		return "local dev lo", true
	case n < 63 && !v6:
		return fmt.Sprintf("broadcast dev %s", c.dev(h.Port)), true
	case n < 64:
		return fmt.Sprintf("multicast dev %s", c.dev(h.Port)), true
	case n < 67:
		return fmt.Sprintf("dev %s", c.dev(h.Port)), false
	case n < 70 && !v6:
		return via + " onlink", false
	case n < 75:
		return via + fmt.Sprintf(" mtu %d", pick(rng, []int{600, 1280, 1300, 1400, 1500, 4000})), true
	case n < 79:
		return via + fmt.Sprintf(" mtu lock %d", pick(rng, []int{600, 1280, 1300, 1400})), true
	case n < 81 && !v6:
		return via + " realms 3", true
	case n < 84 && !v6:
		if g := c.host(rng, true); g != nil {
			return fmt.Sprintf("via inet6 %s dev %s", g.Addr, c.dev(g.Port)), false
		}
	case n < 93:
		return c.multipath(rng, v6), c.Notes["hash4"] && !v6 || c.Notes["hash6"] && v6
	case n < 97 && c.Notes[fmt.Sprintf("nexthops-%v", v6)]:
		id := pick(rng, []int{1, 2, 3, 10, 10})
		if v6 {
			id += 20
		}
		return fmt.Sprintf("nhid %d", id), true
	case n < 98 && c.Notes["nexthop-blackhole"] && !v6:
		return "nhid 50", false
	}
	return via, false
}

func (c *Config) multipath(rng *rand.Rand, v6 bool) string {
	var b strings.Builder
	for range 2 + rng.IntN(3) {
		h := c.host(rng, v6)
		fmt.Fprintf(&b, "nexthop via %s dev %s", h.Addr, c.dev(h.Port))
		if chance(rng, 40) {
			fmt.Fprintf(&b, " weight %d", 1+rng.IntN(10))
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

// genRules adds policy rules, most of them with several selectors.
func genRules(rng *rand.Rand, c *Config) {
	if !chance(rng, 40) {
		return
	}
	for range 1 + rng.IntN(4) {
		c.rule(rng, chance(rng, 35))
	}
}

func (c *Config) rule(rng *rand.Rand, v6 bool) {
	tool := "ip"
	if v6 {
		tool = "ip -6"
	}
	pref := 10 + rng.IntN(200)
	var sel strings.Builder
	if chance(rng, 10) {
		sel.WriteString("not ")
	}
	if chance(rng, 50) {
		fmt.Fprintf(&sel, "from %s ", c.source(rng, v6))
	}
	if chance(rng, 30) {
		fmt.Fprintf(&sel, "to %s ", c.target(rng, v6))
	}
	if chance(rng, 30) {
		fmt.Fprintf(&sel, "iif %s ", c.dev(c.port(rng)))
	}
	if chance(rng, 5) {
		fmt.Fprintf(&sel, "oif %s ", c.dev(c.port(rng)))
	}
	if chance(rng, 10) {
		fmt.Fprintf(&sel, "tos %#x ", pick(rng, []int{0x04, 0x08, 0x10, 0x1c}))
	}
	if chance(rng, 8) {
		sel.WriteString("fwmark 0x1 ")
	}
	if chance(rng, 12) {
		proto := pick(rng, []string{"udp", "tcp"})
		fmt.Fprintf(&sel, "ipproto %s ", proto)
		if chance(rng, 60) {
			fmt.Fprintf(&sel, "%s %d ", pick(rng, []string{"sport", "dport"}), pick(rng, []int{1000, 2000, 53}))
		}
		c.Slow.Ports = true
	}
	action := fmt.Sprintf("lookup %d", pick(rng, []int{100, 101, 102, 254}))
	switch n := rng.IntN(100); {
	case n < 6:
		action = "blackhole"
	case n < 12:
		action = "unreachable"
	case n < 16:
		action = "prohibit"
	case n < 22:
		action = fmt.Sprintf("goto %d", pref+1+rng.IntN(200))
	case n < 25:
		action = "nop"
	case n < 35:
		action += fmt.Sprintf(" suppress_prefixlength %d", pick(rng, []int{0, 8, 24}))
	}
	c.add("%s rule add pref %d %s%s", tool, pref, sel.String(), action)
}

// source makes a prefix of addresses that packets come from.
func (c *Config) source(rng *rand.Rand, v6 bool) netip.Prefix {
	if h := c.host(rng, v6); h != nil {
		bits := pick(rng, []int{8, 16, 24, 28, 31, 32})
		if v6 {
			bits = pick(rng, []int{16, 48, 64, 127, 128})
		}
		return netip.PrefixFrom(h.Addr, bits).Masked()
	}
	return c.target(rng, v6)
}
