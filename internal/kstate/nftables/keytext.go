// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

func (m *machine) keyText(values []*value) string {
	var out []string
	for _, v := range values {
		out = append(out, m.valueText(v))
	}
	return strings.Join(out, " . ")
}

const shownElements = 20

// setText is a set's name, or the elements of one that has none of its own.
func (m *machine) setText(s *set) string {
	if s.Flags&SetAnonymous == 0 {
		return "@" + s.Name
	}
	var list []string
	elements := slices.Clone(m.t.out.Sets[s.id].Elements)
	slices.SortFunc(elements, func(a, b rs.Element) int {
		for i := range a.Key {
			if c := a.Key[i].Lo.Compare(b.Key[i].Lo); c != 0 {
				return c
			}
		}
		return 0
	})
	for i, e := range elements {
		if i == shownElements {
			list = append(list, fmt.Sprintf("… %d more", len(elements)-i))
			break
		}
		text := keyText(e.Key, s.parts)
		if e.Verdict != nil {
			text += " : " + verdictText(*e.Verdict)
		}
		list = append(list, text)
	}
	return "{ " + strings.Join(list, ", ") + " }"
}

// keyText writes an element's key by the types of its parts.
func keyText(key []rs.Range, parts []part) string {
	var out []string
	for i, r := range key {
		p := parts[i]
		width := 8 * p.size
		lo := partText(p, r.Lo)
		switch n := prefixOf(r, width); {
		case r.Lo == r.Hi:
			out = append(out, lo)
		case p.isAddress() && n >= 0:
			out = append(out, fmt.Sprintf("%s/%d", lo, n))
		default:
			out = append(out, lo+"-"+partText(p, r.Hi))
		}
	}
	return strings.Join(out, " . ")
}

func partText(p part, v rs.Value) string {
	switch keyTypes[p.typ].name {
	case "ipv4_addr":
		return addressText(v, false)
	case "ipv6_addr":
		return addressText(v, true)
	case "ether_addr":
		return oneText(rs.EtherSrc, v)
	case "ether_type":
		return oneText(rs.EtherType, v)
	case "inet_proto":
		return named(protoNames, v.Lo)
	case "icmp_type":
		return named(icmpTypes, v.Lo)
	case "icmpv6_type":
		return named(icmpv6Types, v.Lo)
	case "tcp_flag":
		return bitList(flagNames, v.Lo)
	case "mark":
		return fmt.Sprintf("0x%08x", v.Lo)
	case "ct_state":
		return bitList(stateNames, v.Lo)
	case "ct_status":
		return bitList(statusNames, v.Lo)
	case "pkt_type":
		return pick(packetTypes, uint32(v.Lo))
	case "dscp":
		return dscpName(uint32(v.Lo))
	case "fib_addrtype":
		return pick(addrTypes, uint32(v.Lo))
	case "ifname":
		return fmt.Sprintf("%q", name(v))
	}
	if v.Hi != 0 {
		return fmt.Sprintf("0x%x%016x", v.Hi, v.Lo)
	}
	return fmt.Sprint(v.Lo)
}
