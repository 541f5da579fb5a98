// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"errors"
	"fmt"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// matchSet looks packets up in an ipset, each dimension of it by source or by destination.
func matchSet(c *Context, i *info) ([]rs.Step, string, error) {
	const inverted, returnNoMatch, knownFlags, matchCounters = 1, 1 << 7, 0x0f, 1 << 5
	index, dim, flags := i.u16(0), int(i.u8(2)), i.u8(3)
	var problem error
	switch {
	case dim < 1 || dim > 3:
		problem = fmt.Errorf("%d dimensions", dim)
	case flags&returnNoMatch != 0:
		problem = errors.New("--return-nomatch is not modelled")
	case flags&^knownFlags != 0:
		problem = fmt.Errorf("flags %#x", flags)
	case i.rev == 3 && (i.u8(8) != 0 || i.u8(24) != 0) || i.rev == 4 && (i.u8(16) != 0 || i.u8(32) != 0):
		problem = errors.New("conditions on counters are not modelled")
	case i.rev >= 3 && i.u32(40)&^matchCounters != 0:
		problem = errors.New("counters that are not updated are not modelled")
	}
	var directions []string
	for n := range min(dim, 3) {
		directions = append(directions, map[bool]string{true: "src", false: "dst"}[flags>>(n+1)&1 != 0])
	}
	not := flags&inverted != 0
	name := fmt.Sprintf("#%d", index)
	var id rs.SetID
	var set *rs.Set
	if c.Set != nil {
		id, set = c.Set(index)
	}
	if set != nil {
		name = set.Name
	}
	text := fmt.Sprintf("%s--match-set %s %s", bang(not), name, strings.Join(directions, ","))
	switch {
	case problem != nil:
		return nil, text, problem
	case set == nil:
		return nil, text, errors.New("the ipset was not read")
	}
	lookup, err := c.lookup(id, set, directions)
	lookup.Not = not
	return []rs.Step{lookup}, text, err
}

// lookup asks a set, or the members of a list that fit the rule: the others never match (ip_set_test).
func (c *Context) lookup(id rs.SetID, set *rs.Set, directions []string) (out rs.Lookup, err error) {
	out = rs.Lookup{Set: id}
	switch {
	case set.Unknown != "" && set.Live:
		return out, nil // the lookup is slow by what is unknown of the set
	case set.Unknown != "":
		return out, errors.New(set.Unknown)
	case set.Live:
		for _, d := range directions {
			out.Src = append(out.Src, d == "src")
		}
	}
	if set.Type != "list:set" {
		out.Key, err = setKey(set, directions, c.Six)
		return out, err
	}
	for _, m := range set.Members {
		member := c.Member(m)
		if member.Unknown == "" && !fits(member, len(directions), c.Six) {
			continue
		}
		l, err := c.lookup(m, member, directions)
		if err != nil {
			return out, fmt.Errorf("member %s: %w", member.Name, err)
		}
		out.Of = append(out.Of, l)
	}
	return out, nil
}

// fits says whether a rule with so many directions can ask a set.
func fits(set *rs.Set, directions int, six bool) bool {
	return strings.Count(set.Type, ",") < directions && (set.Family == 0 || (set.Family == rs.IP6) == six)
}

// setKey are the fields that make the key of a set of a type, "hash:ip,port" for instance, with a direction for each dimension.
func setKey(set *rs.Set, directions []string, six bool) (key []rs.Field, err error) {
	if !fits(set, len(directions), six) {
		return nil, errors.New("the set is of another family, or has more dimensions")
	}
	_, dims, _ := strings.Cut(set.Type, ":")
	parts := strings.Split(dims, ",")
	pick := func(n int, src, dst rs.Field) rs.Field {
		if directions[n] == "src" {
			return src
		}
		return dst
	}
	for n, p := range parts {
		switch {
		case (p == "ip" || p == "net") && six:
			key = append(key, pick(n, rs.IP6Src, rs.IP6Dst))
		case p == "ip" || p == "net":
			key = append(key, pick(n, rs.IP4Src, rs.IP4Dst))
		case p == "port":
			key = append(key, rs.L4Proto, pick(n, rs.SetSPort, rs.SetDPort))
		case p == "mac":
			key = append(key, pick(n, rs.EtherSrc, rs.EtherDst))
		case p == "iface":
			key = append(key, pick(n, rs.IIFName, rs.OIFName))
		case p == "mark":
			key = append(key, rs.Mark)
		default:
			return nil, fmt.Errorf("sets of %s are not modelled", p)
		}
	}
	if len(key) != len(set.Widths) {
		return nil, fmt.Errorf("the set's key has %d parts, not %d", len(set.Widths), len(key))
	}
	return key, nil
}
