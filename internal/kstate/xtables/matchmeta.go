// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"errors"
	"fmt"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Matches of what Linux knows of a packet beside its headers: marks, devices, ports of bridges, the way back.

func matchMark(f rs.Field) func(*Context, *info) ([]rs.Step, string, error) {
	return func(_ *Context, i *info) ([]rs.Step, string, error) {
		mark, mask, not := i.u32(0), i.u32(4), i.u8(8) != 0
		return masked(f, mark, mask, not), bang(not) + "--mark " + maskText(mark, mask), nil
	}
}

func matchComment(_ *Context, i *info) ([]rs.Step, string, error) {
	return nil, "--comment " + Quote(i.text(0, 256)), nil
}

func matchPacketType(_ *Context, i *info) ([]rs.Step, string, error) {
	typ, not := i.u32(0), i.u32(4) != 0
	name := names([]string{"unicast", "broadcast", "multicast"}, 1<<typ)
	if typ > 2 {
		return nil, "--pkt-type " + fmt.Sprint(typ), errors.New("the packet type is not modelled")
	}
	return masked(rs.PacketType, typ, 7, not), bang(not) + "--pkt-type " + name, nil
}

// matchDevGroup: xt_devgroup takes the difference under the mask, so that bits of the group beyond it do not count.
func matchDevGroup(_ *Context, i *info) (steps []rs.Step, text string, err error) {
	const matchSrc, invertSrc, matchDst, invertDst = 1, 2, 4, 8
	flags := i.u32(0)
	group := func(f rs.Field, at int, not bool) []rs.Step {
		return masked(f, i.u32(at)&i.u32(at+4), i.u32(at+4), not)
	}
	var words []string
	if flags&matchSrc != 0 {
		steps = append(steps, group(rs.IIFGroup, 4, flags&invertSrc != 0)...)
		words = append(words, bang(flags&invertSrc != 0)+"--src-group "+maskText(i.u32(4), i.u32(8)))
	}
	if flags&matchDst != 0 {
		steps = append(steps, group(rs.OIFGroup, 12, flags&invertDst != 0)...)
		words = append(words, bang(flags&invertDst != 0)+"--dst-group "+maskText(i.u32(12), i.u32(16)))
	}
	return steps, strings.Join(words, " "), nil
}

// matchPhysdev asks for the ports by which br_netfilter has shown the packet. What it has not shown satisfies what is negated; a port that what it has shown lacks
// satisfies no name, nor the negation of one, but is no port (physdev_mt in xt_physdev.c).
func matchPhysdev(_ *Context, i *info) (steps []rs.Step, text string, err error) {
	const in, out, bridged, isIn, isOut = 1, 2, 4, 8, 16
	invert, asked := i.u8(64), i.u8(65)
	if asked == 0 || asked&^(in|out|bridged|isIn|isOut) != 0 {
		return nil, "", fmt.Errorf("options %#x are not modelled", asked)
	}
	var words []string
	for _, o := range []struct {
		bit   uint8
		name  string
		field rs.Field
	}{{isIn, "--physdev-is-in", rs.PhysIn}, {in, "--physdev-in", rs.PhysIn}, {isOut, "--physdev-is-out", rs.PhysOut}, {out, "--physdev-out", rs.PhysOut}, {bridged, "--physdev-is-bridged", rs.PhysOut}} {
		not := invert&o.bit != 0
		some := rs.Test{Field: o.field, Ranges: []rs.Range{rs.One(rs.Value{})}, Not: true}
		switch {
		case asked&o.bit == 0:
			continue
		case o.bit&(in|out) == 0 && not:
			steps = append(steps, rs.AnyTest{Of: []rs.Test{some}, Not: true})
		case o.bit&(in|out) == 0:
			steps = append(steps, some)
		default:
			at := map[uint8]int{in: 0, out: 32}[o.bit]
			step, name := device(o.field, i.bytes(at, 16), i.bytes(at+16, 16), not)
			if t, ok := step.(rs.Test); ok && name != "" && len(t.Ranges) == 1 && t.Ranges[0].Lo == (rs.Value{}) || name == "" || name == "+" {
				return nil, "", errors.New("a name without a letter is not modelled")
			}
			steps = append(steps, step)
			words = append(words, bang(not)+o.name+" "+name)
			continue
		}
		words = append(words, bang(not)+o.name)
	}
	return steps, strings.Join(words, " "), nil
}

// matchReverse reads rpfilter. --accept-local is about a sender that is an address of the host, which no packet has that comes to rules.
func matchReverse(_ *Context, i *info) (steps []rs.Step, text string, err error) {
	const loose, validMark, acceptLocal, invert = 1, 2, 4, 8
	flags := i.u8(0)
	var words []string
	for _, f := range []struct {
		bit  uint8
		name string
	}{{loose, "--loose"}, {validMark, "--validmark"}, {acceptLocal, "--accept-local"}, {invert, "--invert"}} {
		if flags&f.bit != 0 {
			words = append(words, f.name)
		}
	}
	t := rs.Test{Field: rs.RouteBack, Ranges: []rs.Range{rs.One(rs.Num(1))}, Not: flags&invert != 0}
	if flags&loose != 0 {
		t.Field = rs.RouteBackBy
	}
	if flags >= 2*invert {
		err = fmt.Errorf("flags %#x are not modelled", flags)
	}
	return []rs.Step{t}, strings.Join(words, " "), err
}
