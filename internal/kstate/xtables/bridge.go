// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"errors"
	"fmt"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// What of a packet a match of ebtables asks for, a bit each (EBT_IP_… and EBT_IP6_…, include/uapi/linux/netfilter_bridge/ebt_ip.h, ebt_ip6.h).
const (
	ebtSource = 1 << iota
	ebtDest
	ebtTOS
	ebtProto
	ebtSPort
	ebtDPort
	ebtICMP
	ebtIGMP
)

// BridgeMatch gives the steps of a match of family bridge, as ebtables writes it, and the words for it.
func BridgeMatch(e Extension) ([]rs.Step, string) {
	i := &info{b: e.Info}
	var steps []rs.Step
	var words []string
	err := errors.New("not modelled")
	switch {
	case e.Name == "ip" && e.Revision == 0:
		steps, words, err = ebtIP(i, "ip", 4, rs.IP4Src, rs.IP4Dst)
	case e.Name == "ip6" && e.Revision == 0:
		steps, words, err = ebtIP(i, "ip6", 16, rs.IP6Src, rs.IP6Dst)
	}
	if i.err != nil {
		err = i.err
	}
	text := strings.Join(words, " ")
	if err != nil {
		text = strings.TrimSpace("-m " + e.Name + " " + text)
		return []rs.Step{rs.Unknown{Name: "xt match " + e.Name, Text: fmt.Sprintf("%s (revision %d: %v)", text, e.Revision, err)}}, text
	}
	return steps, text
}

// ebtIP reads struct ebt_ip_info, or ebt_ip6_info: two addresses and their masks of size bytes, TOS, protocol, what is asked for and what of it negated, and two ranges of
// ports, of which the first is also that of types, and the second, or what is left of the first, that of codes. Ports and types are asked for behind a protocol alone, as
// the kernel does it (ebt_ip_mt(), ebt_ip6_mt()).
func ebtIP(i *info, name string, size int, src, dst rs.Field) (steps []rs.Step, words []string, err error) {
	at := 4 * size
	tos, proto, asked, inverted := i.u8(at), i.u8(at+1), i.u8(at+2), i.u8(at+3)
	say := func(bit uint8, format string, args ...any) {
		words = append(words, bang(inverted&bit != 0)+fmt.Sprintf("--"+name+"-"+format, args...))
	}
	test := func(bit uint8, f rs.Field, lo, hi uint64) {
		steps = append(steps, rs.Test{Field: f, Ranges: []rs.Range{rs.Nums(lo, hi)}, Not: inverted&bit != 0})
	}
	if asked&ebtTOS != 0 {
		test(ebtTOS, rs.DSField, uint64(tos), uint64(tos))
		say(ebtTOS, "tos 0x%02x", tos)
	}
	for n, a := range []struct {
		bit   uint8
		field rs.Field
		word  string
	}{{ebtSource, src, "src"}, {ebtDest, dst, "dst"}} {
		if asked&a.bit == 0 {
			continue
		}
		addr, mask := i.bytes(n*size, size), i.bytes((2+n)*size, size)
		if size == 16 { // what is beyond the mask does not count there
			addr = under(addr, mask)
		}
		t, text := address(a.field, addr, mask, inverted&a.bit != 0)
		if text == "" { // any address, and the packet has one
			continue
		}
		steps = append(steps, t)
		say(a.bit, "%s %s", a.word, text)
	}
	if asked&ebtProto == 0 {
		if asked&(ebtSPort|ebtDPort|ebtICMP|ebtIGMP) != 0 {
			err = errors.New("ports of no protocol")
		}
		return steps, words, err
	}
	test(ebtProto, rs.L4Proto, uint64(proto), uint64(proto))
	say(ebtProto, "proto %s", protoName(uint16(proto)))
	for n, p := range []struct {
		bit   uint8
		field rs.Field
		word  string
	}{{ebtSPort, rs.SPort, "sport"}, {ebtDPort, rs.DPort, "dport"}} {
		if asked&p.bit != 0 {
			lo, hi := i.u16(at+4+4*n), i.u16(at+6+4*n)
			test(p.bit, p.field, uint64(lo), uint64(hi))
			say(p.bit, "%s %s", p.word, portRange(lo, hi))
		}
	}
	if asked&(ebtICMP|ebtIGMP) != 0 {
		err = errors.New("types of ICMP or IGMP")
	}
	return steps, words, err
}
