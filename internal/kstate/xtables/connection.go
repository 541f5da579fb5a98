// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Flags of struct xt_conntrack_mtinfo3 (XT_CONNTRACK_*).
const (
	ctState      = 1 << 0
	ctProto      = 1 << 1
	ctOrigSrc    = 1 << 2
	ctOrigDst    = 1 << 3
	ctStatus     = 1 << 6
	ctOrigSPort  = 1 << 8
	ctOrigDPort  = 1 << 9
	ctDirection  = 1 << 12
	ctStateAlias = 1 << 13
)

// stateBits translates the state bits of xt_conntrack (XT_CONNTRACK_STATE_*), which are not those of nf_tables from bit 6 on.
func stateBits(xt uint16) uint32 {
	out := uint32(xt & 0x0f)
	for from, to := range map[int]uint32{6: rs.CTSNAT, 7: rs.CTDNAT, 8: rs.CTUntracked} {
		if xt>>from&1 != 0 {
			out |= to
		}
	}
	return out
}

func stateList(bits uint32) string {
	var out []string
	for _, s := range []struct {
		bit  uint32
		name string
	}{{rs.CTInvalid, "INVALID"}, {rs.CTNew, "NEW"}, {rs.CTRelated, "RELATED"}, {rs.CTEstablished, "ESTABLISHED"}, {rs.CTUntracked, "UNTRACKED"},
		{rs.CTSNAT, "SNAT"}, {rs.CTDNAT, "DNAT"}} {
		if bits&s.bit != 0 {
			out = append(out, s.name)
		}
	}
	return strings.Join(out, ",")
}

// matchConntrack: xt_conntrack asks for the state first. A packet without connection that has one of the states matches then,
// whatever else is asked for (conntrack_mt, "if (ct == NULL)").
func matchConntrack(c *Context, i *info) (steps []rs.Step, text string, err error) {
	flags, invert := i.u16(146), i.u16(148)
	states, status := i.u16(150), uint32(i.u16(152))
	if i.rev == 1 {
		states, status = uint16(i.u8(150)), uint32(i.u8(151))
	}
	rest := flags &^ (ctState | ctStateAlias)
	var words []string
	if flags&ctState != 0 {
		not := invert&ctState != 0
		bits := stateBits(states)
		name := "--ctstate "
		if flags&ctStateAlias != 0 {
			name = "--state "
		}
		words = append(words, bang(not)+name+stateList(bits))
		field := rs.CTState
		if bits&(rs.CTSNAT|rs.CTDNAT) != 0 {
			field = rs.CTStateNAT
		}
		steps = append(steps, anyOf(field, bits, not))
		if states&^0x1cf != 0 {
			err = errors.New("a state is not known")
		}
		if lone := bits & (rs.CTInvalid | rs.CTUntracked); rest != 0 && (not && lone != rs.CTInvalid|rs.CTUntracked || !not && lone != 0) {
			err = errors.New("a packet without connection matches by its state alone")
		}
	}
	if flags&ctProto != 0 {
		proto, not := i.u16(136), invert&ctProto != 0
		words = append(words, bang(not)+"--ctproto "+fmt.Sprint(proto))
		t := rs.Test{Field: rs.CTProto, Ranges: []rs.Range{rs.Nums(uint64(proto), uint64(proto))}, Not: not}
		if proto > 0xff { // no connection's
			t.Ranges = nil
		}
		steps = append(steps, t)
	}
	for n, f := range []struct {
		bit   uint16
		field rs.Field
		name  string
	}{{ctOrigSrc, rs.CTOrigSrc4, "--ctorigsrc "}, {ctOrigDst, rs.CTOrigDst4, "--ctorigdst "}} {
		if flags&f.bit != 0 {
			if c.Six {
				f.field += rs.CTOrigSrc6 - rs.CTOrigSrc4
			}
			step, text := ofFirst(f.field, i, 32*n, invert&f.bit != 0)
			steps, words = append(steps, step), append(words, bang(invert&f.bit != 0)+f.name+text)
		}
	}
	for n, f := range []struct {
		bit   uint16
		field rs.Field
		name  string
	}{{ctOrigSPort, rs.CTOrigSPort, "--ctorigsrcport "}, {ctOrigDPort, rs.CTOrigDPort, "--ctorigdstport "}} {
		if flags&f.bit != 0 {
			lo, hi, not := i.port(138+2*n), uint16(0), invert&f.bit != 0
			if hi = lo; i.rev == 3 { // which has ranges, of numbers
				lo, hi = i.u16(138+2*n), i.u16(154+2*n)
			}
			words = append(words, bang(not)+f.name+portRange(lo, hi))
			steps = append(steps, rs.Test{Field: f.field, Ranges: []rs.Range{rs.Nums(uint64(lo), uint64(hi))}, Not: not})
		}
	}
	if flags&ctStatus != 0 {
		not := invert&ctStatus != 0
		words = append(words, bang(not)+"--ctstatus "+names([]string{"EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED"}, status))
		steps = append(steps, anyOf(rs.CTStatus, status, not))
	}
	if flags&ctDirection != 0 {
		direction, name := uint64(0), "ORIGINAL"
		if invert&ctDirection != 0 {
			direction, name = 1, "REPLY"
		}
		words = append(words, "--ctdir "+name)
		steps = append(steps, rs.Test{Field: rs.CTDirection, Ranges: []rs.Range{rs.Nums(direction, direction)}})
	}
	if rest&^(ctStatus|ctDirection|ctProto|ctOrigSrc|ctOrigDst|ctOrigSPort|ctOrigDPort) != 0 {
		err = errors.New("what connections expect in return, and their expiry, are not modelled")
	}
	return steps, strings.Join(words, " "), err
}

// ofFirst is the test of an address of the connection's first packet, whose bits beyond the mask do not count (conntrack_addrcmp()). Address and mask stand one behind the other.
func ofFirst(f rs.Field, i *info, at int, not bool) (rs.Test, string) {
	n := f.Width() / 8
	addr, mask := rs.Bytes(i.bytes(at, n)), i.bytes(at+16, n)
	under := rs.Bytes(mask)
	a, _ := netip.AddrFromSlice(i.bytes(at, n))
	v := addr.And(under)
	switch bits := ones(mask); {
	case bits == 0:
		return rs.Test{Field: f, Not: !not}, a.String() + "/0" // any, of who has one
	case bits == 32 && n == 4:
		return rs.Test{Field: f, Ranges: []rs.Range{rs.One(v)}, Not: not}, a.String()
	case bits > 0:
		return rs.Test{Field: f, Ranges: []rs.Range{{Lo: v, Hi: v.Or(rs.Max(8*n - bits))}}, Not: not}, fmt.Sprintf("%s/%d", a, bits)
	}
	return rs.Test{Field: f, Mask: under, Ranges: []rs.Range{rs.One(v)}, Not: not}, fmt.Sprintf("%s/%s", a, maskOf(mask))
}

// matchState is the old match of its own name, which newer iptables writes as conntrack.
func matchState(_ *Context, i *info) ([]rs.Step, string, error) {
	mask := i.u32(0)
	bits := mask & 0x0f
	if mask&(1<<6) != 0 {
		bits |= rs.CTUntracked
	}
	var err error
	if mask&^0x4f != 0 {
		err = errors.New("a state is not known")
	}
	return []rs.Step{anyOf(rs.CTState, bits, false)}, "--state " + stateList(bits), err
}
