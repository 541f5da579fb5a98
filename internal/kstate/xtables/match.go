// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	mbits "math/bits"
	"net/netip"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Context is what the rule around an extension says.
type Context struct {
	Six bool // ip6tables
	// Set finds an ipset by the kernel's index, and Member one by its id; nil when ipsets were not read.
	Set    func(index uint16) (id rs.SetID, set *rs.Set)
	Member func(id rs.SetID) *rs.Set
}

// Extension is a match or target in a rule: a struct of its own for each name and revision.
type Extension struct {
	Name     string
	Revision uint8
	Info     []byte // as the kernel gives it, with padding at its end
	Options  string // of one from a file that has no Info, as they stand there
}

var errRevision = errors.New("the revision is not known")

// info reads the struct of an extension; reading beyond its end is remembered.
type info struct {
	b   []byte
	rev uint8
	err error
}

func (i *info) bytes(at, n int) []byte {
	if at+n > len(i.b) {
		if i.err == nil {
			i.err = fmt.Errorf("the struct has only %d bytes", len(i.b))
		}
		return make([]byte, n)
	}
	return i.b[at : at+n]
}

func (i *info) u8(at int) uint8   { return i.bytes(at, 1)[0] }
func (i *info) u16(at int) uint16 { return binary.NativeEndian.Uint16(i.bytes(at, 2)) }
func (i *info) u32(at int) uint32 { return binary.NativeEndian.Uint32(i.bytes(at, 4)) }
func (i *info) text(at, n int) string {
	text, _, _ := strings.Cut(string(i.bytes(at, n)), "\x00")
	return text
}

// port reads a port as it stands in headers.
func (i *info) port(at int) uint16 { return binary.BigEndian.Uint16(i.bytes(at, 2)) }

// addr reads union nf_inet_addr.
func (i *info) addr(at int, six bool) netip.Addr {
	if six {
		return netip.AddrFrom16([16]byte(i.bytes(at, 16)))
	}
	return netip.AddrFrom4([4]byte(i.bytes(at, 4)))
}

// match is a match that is understood: its steps and its options as iptables-save prints them, in the revisions from first to last.
type match struct {
	first, last uint8
	decode      func(c *Context, i *info) (steps []rs.Step, options string, err error)
}

// matches by name.
var matches = map[string]match{
	"tcp": {0, 0, matchTCP}, "udp": {0, 0, matchUDP}, "udplite": {0, 0, matchUDP}, "icmp": {0, 0, matchICMP}, "icmp6": {0, 0, matchICMP}, "multiport": {1, 1, matchMultiport},
	"conntrack": {1, 3, matchConntrack}, "state": {0, 0, matchState}, "mark": {1, 1, matchMark(rs.Mark)}, "connmark": {1, 1, matchMark(rs.CTMark)},
	"comment": {0, math.MaxUint8, matchComment}, "addrtype": {1, 1, matchAddrType}, "iprange": {1, 1, matchIPRange}, "mac": {0, 0, matchMAC}, "length": {0, 0, matchLength},
	"pkttype": {0, 0, matchPacketType}, "dscp": {0, 0, matchDSCP}, "tos": {1, 1, matchTOS}, "ttl": {0, 0, matchTTL}, "hl": {0, 0, matchTTL}, "devgroup": {0, 0, matchDevGroup},
	"set": {1, 4, matchSet}, "rt": {0, 0, matchRouting}, "physdev": {0, 0, matchPhysdev}, "rpfilter": {0, 0, matchReverse}, "policy": {0, 0, matchPolicy},
	"ipv6header": {0, 0, matchHeaders}, "frag": {0, 0, matchFragment}, "hbh": {0, 0, matchOptions}, "dst": {0, 0, matchOptions},
}

// read decodes the struct of a match. What is wrong with it is an error, and so is what is not modelled.
func (m match) read(c *Context, i *info) (steps []rs.Step, options string, err error) {
	if i.rev < m.first || i.rev > m.last {
		return nil, "", errRevision
	}
	steps, options, err = m.decode(c, i)
	if i.err != nil {
		err = i.err
	}
	return steps, options, err
}

// Match gives the steps of a match and the words for it.
func Match(c *Context, e Extension) ([]rs.Step, string) {
	text := "-m " + e.Name
	unknown := func(why string) []rs.Step {
		return []rs.Step{rs.Unknown{Name: "xt match " + e.Name, Text: fmt.Sprintf("%s (%s)", text, why)}}
	}
	if e.Info == nil && e.Options != "" {
		text += " " + e.Options
		return unknown("not modelled"), text
	}
	i := &info{b: e.Info, rev: e.Revision}
	m, known := matches[e.Name]
	if !known {
		if describe := described[e.Name]; describe != nil {
			if options := describe(i); i.err == nil && options != "" {
				text += " " + options
			}
		}
		return unknown("not modelled"), text
	}
	steps, options, err := m.read(c, i)
	if strings.HasPrefix(strings.TrimPrefix(options, "! "), "--state") {
		text = "-m state" // the old name, kept for the one who lists the rule
	}
	if options != "" && i.err == nil {
		text += " " + options
	}
	if err != nil {
		steps = unknown(fmt.Sprintf("revision %d: %v", e.Revision, err))
	}
	return steps, text
}

// there is a test for a field's presence.
func there(f rs.Field) rs.Test { return rs.Test{Field: f, Not: true} }

// masked is a test that a field under a mask has a value. A mask of zero leaves nothing to ask for.
func masked(f rs.Field, value, mask uint32, not bool) []rs.Step {
	full := uint32(rs.Max(f.Width()).Lo)
	t := rs.Test{Field: f, Mask: rs.Num(uint64(mask)), Ranges: []rs.Range{rs.One(rs.Num(uint64(value)))}, Not: not}
	switch {
	case value&^mask != 0: // never equal
		t.Mask, t.Ranges = rs.Value{}, nil
	case mask == 0: // always
		t = rs.Test{Field: f, Not: !not}
	case mask&full == full:
		t.Mask = rs.Value{}
	}
	return []rs.Step{t}
}

// anyOf is a test that a field has one of the bits.
func anyOf(f rs.Field, bits uint32, not bool) rs.Test {
	if bits == 0 {
		return rs.Test{Field: f, Not: not} // none of no bits
	}
	return rs.Test{Field: f, Mask: rs.Num(uint64(bits)), Ranges: []rs.Range{rs.One(rs.Value{})}, Not: !not}
}

// oneOf are the numbers of bits.
func oneOf(bits uint32) (out []rs.Range) {
	for ; bits != 0; bits &= bits - 1 {
		out = append(out, rs.One(rs.Num(uint64(mbits.TrailingZeros32(bits)))))
	}
	return out
}
