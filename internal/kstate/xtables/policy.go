// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// matchPolicy asks for the IPsec that a packet came by, or will leave by. Where there was or will be none, `none` holds, and whatever else is asked of it fails (policy_mt() in
// xt_policy.c); where there is any, nothing is fast.
func matchPolicy(c *Context, i *info) ([]rs.Step, string, error) {
	const in, out, none, strict = 1, 2, 4, 8
	flags, n := i.u16(304), int(i.u16(306))
	if flags&^(in|out|none|strict) != 0 || flags&(in|out) == 0 || flags&(in|out) == in|out || n > 4 {
		return nil, "", errors.New("its flags are not modelled")
	}
	t, text := rs.Test{Field: rs.IPsecIn, Ranges: []rs.Range{rs.Nums(1, 1)}}, "--dir in --pol ipsec"
	if flags&out != 0 {
		t.Field, text = rs.IPsecOut, "--dir out --pol ipsec"
	}
	if flags&none != 0 {
		t.Ranges, text = []rs.Range{rs.Nums(0, 0)}, strings.TrimSuffix(text, "ipsec")+"none"
	}
	if flags&strict != 0 {
		text += " --strict"
	}
	for at := range n {
		if at > 0 {
			text += " --next"
		}
		text += policyElement(c, i, 76*at)
	}
	return []rs.Step{t}, text, nil
}

// policyElement is struct xt_policy_elem as iptables-save writes it.
func policyElement(c *Context, i *info, at int) (text string) {
	asked, not := i.u8(at+74), i.u8(at+75)
	for _, o := range []struct {
		bit         int
		name, value string
	}{
		{5, "--reqid", fmt.Sprint(i.u32(at + 68))}, {4, "--spi", fmt.Sprintf("0x%x", i.u32(at+64))}, {2, "--proto", named(map[uint8]string{50: "esp", 51: "ah", 108: "ipcomp"}, i.u8(at+72))},
		{3, "--mode", named(map[uint8]string{0: "transport", 1: "tunnel"}, i.u8(at+73))}, {1, "--tunnel-dst", policyAddr(c, i, at+32)}, {0, "--tunnel-src", policyAddr(c, i, at)},
	} {
		if asked>>o.bit&1 != 0 {
			text += " " + bang(not>>o.bit&1 != 0) + o.name + " " + o.value
		}
	}
	return text
}

func named(names map[uint8]string, n uint8) string {
	if s := names[n]; s != "" {
		return s
	}
	return fmt.Sprint(n)
}

// policyAddr is an address and its mask.
func policyAddr(c *Context, i *info, at int) string {
	mask := i.addr(at+16, c.Six)
	bits := 0
	for _, b := range mask.AsSlice() {
		for ; b&0x80 != 0; b <<= 1 {
			bits++
		}
	}
	if bits == mask.BitLen() {
		return i.addr(at, c.Six).String()
	}
	return netip.PrefixFrom(i.addr(at, c.Six), bits).String()
}
