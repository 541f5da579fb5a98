// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"errors"
	"fmt"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Matches of fields of the headers of IP and of what it carries.

// ports gives the tests of a range of source and one of destination ports. The match fails for fragments without ports, also
// where any port will do.
func ports(i *info, inv uint8) (steps []rs.Step, words []string) {
	for n, p := range []struct {
		field rs.Field
		name  string
	}{{rs.SPort, "--sport"}, {rs.DPort, "--dport"}} {
		lo, hi, not := i.u16(4*n), i.u16(4*n+2), inv>>n&1 != 0
		if lo == 0 && hi == 0xffff && !not {
			continue
		}
		steps = append(steps, rs.Test{Field: p.field, Ranges: []rs.Range{rs.Nums(uint64(lo), uint64(hi))}, Not: not})
		words = append(words, bang(not)+p.name+" "+portRange(lo, hi))
	}
	if steps == nil {
		steps = []rs.Step{there(rs.DPort)}
	}
	return steps, words
}

func matchTCP(_ *Context, i *info) ([]rs.Step, string, error) {
	option, mask, cmp, inv := i.u8(8), i.u8(9), i.u8(10), i.u8(11)
	steps, words := ports(i, inv)
	if mask != 0 || cmp != 0 || inv&4 != 0 {
		t := rs.Test{Field: rs.TCPFlags, Mask: rs.Num(uint64(mask)), Ranges: []rs.Range{rs.One(rs.Num(uint64(cmp)))}, Not: inv&4 != 0}
		switch {
		case cmp&^mask != 0: // never equal
			t.Mask, t.Ranges = rs.Value{}, nil
		case mask == 0: // always
			t = rs.Test{Field: rs.TCPFlags, Not: inv&4 == 0}
		}
		steps = append(steps, t)
		words = append(words, bang(inv&4 != 0)+"--tcp-flags "+flagList(mask)+" "+flagList(cmp))
	}
	var err error
	if option != 0 {
		words = append(words, fmt.Sprintf("%s--tcp-option %d", bang(inv&8 != 0), option))
		err = errors.New("TCP options are not modelled")
	}
	return steps, strings.Join(words, " "), err
}

func flagList(b uint8) string {
	if b == 0 {
		return "NONE"
	}
	return names([]string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"}, uint32(b))
}

func matchUDP(_ *Context, i *info) ([]rs.Step, string, error) {
	steps, words := ports(i, i.u8(8))
	return steps, strings.Join(words, " "), nil
}

func matchICMP(c *Context, i *info) ([]rs.Step, string, error) {
	typ, lo, hi, not := i.u8(0), i.u8(1), i.u8(2), i.u8(3)&1 != 0
	name := map[bool]string{false: "--icmp-type ", true: "--icmpv6-type "}[c.Six]
	if typ == 0xff && !c.Six { // any type
		if not {
			return []rs.Step{rs.Test{Field: rs.ICMPType}}, "! " + name + "any", nil
		}
		return []rs.Step{there(rs.ICMPType)}, name + "any", nil
	}
	t := rs.Test{Field: rs.ICMPType, Ranges: []rs.Range{rs.Nums(uint64(typ)<<8|uint64(lo), uint64(typ)<<8|uint64(hi))}, Not: not}
	text := bang(not) + name + fmt.Sprint(typ)
	if lo == hi {
		text += fmt.Sprintf("/%d", lo)
	} else if lo != 0 || hi != 0xff {
		text += fmt.Sprintf("/%d-%d", lo, hi)
	}
	return []rs.Step{t}, text, nil
}

func matchMultiport(_ *Context, i *info) ([]rs.Step, string, error) {
	flags, count, not := i.u8(0), int(i.u8(1)), i.u8(47) != 0
	if flags > 2 || count == 0 || count > 15 {
		return nil, "", fmt.Errorf("flags %d, %d ports", flags, count)
	}
	var ranges []rs.Range
	var list []string
	for n := 0; n < count; n++ {
		lo := i.u16(2 + 2*n)
		hi := lo
		if i.u8(32+n) != 0 && n+1 < count {
			n++
			hi = i.u16(2 + 2*n)
		}
		ranges = append(ranges, rs.Nums(uint64(lo), uint64(hi)))
		list = append(list, portRange(lo, hi))
	}
	text := bang(not) + []string{"--sports ", "--dports ", "--ports "}[flags] + strings.Join(list, ",")
	switch flags {
	case 0:
		return []rs.Step{rs.Test{Field: rs.SPort, Ranges: ranges, Not: not}}, text, nil
	case 1:
		return []rs.Step{rs.Test{Field: rs.DPort, Ranges: ranges, Not: not}}, text, nil
	}
	return []rs.Step{there(rs.DPort), rs.AnyTest{Of: []rs.Test{{Field: rs.SPort, Ranges: ranges}, {Field: rs.DPort, Ranges: ranges}}, Not: not}}, text, nil
}

func matchLength(_ *Context, i *info) ([]rs.Step, string, error) {
	lo, hi, not := i.u16(0), i.u16(2), i.u8(4) != 0
	return []rs.Step{rs.Test{Field: rs.Length, Ranges: []rs.Range{rs.Nums(uint64(lo), uint64(hi))}, Not: not}}, bang(not) + "--length " + portRange(lo, hi), nil
}

func matchDSCP(_ *Context, i *info) ([]rs.Step, string, error) {
	dscp, not := i.u8(0), i.u8(1) != 0
	return masked(rs.DSField, uint32(dscp)<<2, 0xfc, not), fmt.Sprintf("%s--dscp 0x%02x", bang(not), dscp), nil
}

// DSCPClass is the code point of a class: CS0 to CS7, AF11 to AF43, BE, EF.
func DSCPClass(name string) (uint8, bool) {
	name = strings.ToUpper(name)
	if name == "BE" || name == "EF" {
		return map[string]uint8{"BE": 0, "EF": 0x2e}[name], true
	}
	digit := func(i int, max byte) (uint8, bool) {
		return name[i] - '0', name[i] >= '0' && name[i] <= '0'+max
	}
	if len(name) == 3 && strings.HasPrefix(name, "CS") {
		n, ok := digit(2, 7)
		return n << 3, ok
	}
	if len(name) == 4 && strings.HasPrefix(name, "AF") {
		class, ok1 := digit(2, 4)
		drop, ok2 := digit(3, 3)
		return class<<3 | drop<<1, ok1 && ok2 && class > 0 && drop > 0
	}
	return 0, false
}

func matchTOS(_ *Context, i *info) ([]rs.Step, string, error) {
	mask, value, not := i.u8(0), i.u8(1), i.u8(2) != 0
	text := fmt.Sprintf("%s--tos 0x%02x", bang(not), value)
	if mask != 0xff {
		text += fmt.Sprintf("/0x%02x", mask)
	}
	return masked(rs.DSField, uint32(value), uint32(mask), not), text, nil
}

func matchTTL(c *Context, i *info) ([]rs.Step, string, error) {
	mode, n := i.u8(0), uint64(i.u8(1))
	name := map[bool]string{false: "--ttl-", true: "--hl-"}[c.Six]
	t := rs.Test{Field: rs.TTL, Ranges: []rs.Range{rs.Nums(n, n)}}
	switch mode {
	case 0:
		name += "eq"
	case 1:
		t.Not = true
		name = "! " + name + "eq"
	case 2:
		t.Ranges = []rs.Range{rs.Nums(0, n-1)}
		if n == 0 {
			t.Ranges = nil
		}
		name += "lt"
	case 3:
		t.Ranges = []rs.Range{rs.Nums(n+1, 255)}
		name += "gt"
	default:
		return nil, "", fmt.Errorf("mode %d", mode)
	}
	return []rs.Step{t}, fmt.Sprintf("%s %d", name, n), nil
}
