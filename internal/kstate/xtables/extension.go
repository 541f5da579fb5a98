// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"fmt"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// matchHeaders asks which headers stand between that of IPv6 and the end of their chain (ipv6header_mt6() in ip6t_ipv6header.c). Packets with one are left to Linux before they
// come to rules, so that the chain is a transport header alone, or ESP, which counts as a header here if at least two bytes of it are there.
func matchHeaders(c *Context, i *info) ([]rs.Step, string, error) {
	const proto, esp, protoESP, shortest = 1, 4, 50, 40 + 2
	asked, invert, soft := i.u8(0), i.u8(1), i.u8(2) != 0
	if !c.Six {
		return nil, "", errRevision
	}
	text := fmt.Sprintf("%s--header 0x%x", bang(invert != 0), asked)
	if soft {
		text += " --soft"
	}
	holds := func(found uint8) bool {
		switch {
		case soft:
			return (found^asked^invert)&asked == 0
		case invert != 0:
			return found != asked
		}
		return found == asked
	}
	is := []rs.Range{rs.Nums(protoESP, protoESP)}
	long := rs.Test{Field: rs.Length, Ranges: []rs.Range{rs.Nums(shortest, 0xffff)}}
	switch {
	case holds(proto) && holds(esp):
		return []rs.Step{rs.AnyTest{Of: []rs.Test{{Field: rs.L4Proto, Ranges: is, Not: true}, long}}}, text, nil
	case holds(proto):
		return []rs.Step{rs.Test{Field: rs.L4Proto, Ranges: is, Not: true}}, text, nil
	case holds(esp):
		return []rs.Step{rs.Test{Field: rs.L4Proto, Ranges: is}, long}, text, nil
	}
	return []rs.Step{rs.Test{Field: rs.L4Proto}}, text, nil
}

// matchFragment and matchOptions never hold, whatever they ask of the header and negated or not: they fail for packets without (frag_mt6() in ip6t_frag.c, hbh_mt6() in ip6t_hbh.c).
func matchFragment(c *Context, i *info) ([]rs.Step, string, error) {
	return without(c, i, 14, "frag", 12)
}

func matchOptions(c *Context, i *info) ([]rs.Step, string, error) {
	return without(c, i, 39, "opts", 4)
}

func without(c *Context, i *info, size int, what string, flags int) ([]rs.Step, string, error) {
	i.bytes(0, size)
	if !c.Six {
		return nil, "", errRevision
	}
	return []rs.Step{rs.Test{Field: rs.L4Proto}}, fmt.Sprintf("(%s flags 0x%x, inverted 0x%x)", what, i.u8(flags), i.u8(flags+1)), nil
}

// matchRouting never holds, negated or not: packets with a routing header, as any extension header, are left to Linux before they come to rules, and the match
// fails for those without (rt_mt6 in ip6t_rt.c).
func matchRouting(c *Context, i *info) ([]rs.Step, string, error) {
	const ofType = 1
	if !c.Six {
		return nil, "", errRevision
	}
	if flags := i.u8(16); flags != ofType {
		return nil, "", fmt.Errorf("flags %#x are not modelled", flags)
	}
	return []rs.Step{rs.Test{Field: rs.L4Proto}}, fmt.Sprintf("%s--rt-type %d", bang(i.u8(17)&ofType != 0), i.u32(0)), nil
}
