// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"errors"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
)

// statement is one statement of a rule.
func (r *nftRule) statement(n *node) error {
	key, v, ok := n.only()
	if !ok {
		return r.wrong(n, "a statement is an object with one key")
	}
	if verdict, is, err := r.verdict(n); is || err != nil {
		if err == nil && verdict.Chain != "" && r.chainNamed(r.family, r.table, verdict.Chain) < 0 {
			return r.wrong(v.get("target"), "the table has no such chain")
		}
		r.add(&nftables.Immediate{Dst: nftables.Verdict, Data: nftables.Data{Verdict: verdict}})
		return err
	}
	switch key {
	case "match":
		return r.match(v)
	case "counter":
		return r.countStatement(v)
	case "vmap":
		return r.vmap(v)
	case "mangle":
		return r.mangle(v)
	case "notrack":
		r.add(&nftables.NoTrack{})
		return nil
	case "limit":
		return r.limit(v)
	case "quota":
		return r.quota(v)
	case "log":
		return r.log(v)
	case "reject":
		return r.reject(v)
	case "snat", "dnat", "masquerade", "redirect":
		return r.nat(map[string]string{"snat": "snat", "dnat": "dnat", "masquerade": "masquerade", "redirect": "redirect"}[key], v)
	case "queue":
		return r.queue(v)
	case "set":
		return r.update(v)
	case "ct count":
		count, err := r.optional(v, "val", 0, 0, 1<<31)
		r.add(&nftables.ConnLimit{Count: uint32(count), Flags: bit(v.get("inv"))})
		return err
	case "last":
		r.add(&nftables.Last{})
		return nil
	case "flow":
		r.add(&nftables.FlowOffload{Table: strings.TrimPrefix(textOf(v.get("flowtable")), "@")})
		return nil
	case "ct helper", "ct timeout", "ct expectation", "secmark", "synproxy":
		if v.kind == text {
			typ, _ := nftables.ObjectTypeNamed(key)
			r.add(&nftables.ObjRef{Type: typ, Name: v.text, Src: nftables.NoReg})
			return nil
		}
		r.opaque(key, "it is not modelled")
		return nil
	case "xt", "dup", "fwd", "tproxy", "meter", "map", "osf", "nftrace", "exthdr", "reset":
		r.opaque(key, "only Linux does it")
		return nil
	}
	return r.fail(n.at, key, "no statement of this name is known")
}

func textOf(n *node) string {
	if n == nil {
		return ""
	}
	return n.text
}

func bit(n *node) uint32 {
	if n != nil && n.text == "true" {
		return 1
	}
	return 0
}

// countStatement is a counter of the rule, or one with a name.
func (r *nftRule) countStatement(v *node) error {
	if v.kind == text {
		if !slices.ContainsFunc(r.dump.Objects, func(o nftables.Object) bool {
			return o.Family == r.family && o.Table == r.table && o.Name == v.text && o.Type == 1
		}) {
			return r.wrong(v, "the table has no such counter")
		}
		r.add(&nftables.ObjRef{Type: 1, Name: v.text, Src: nftables.NoReg})
		return nil
	}
	c, err := r.counter(v)
	r.add(c)
	return err
}

func (r *nftRule) vmap(v *node) error {
	key, data := v.get("key"), v.get("data")
	if key == nil || data == nil {
		return r.wrong(v, "a verdict map has a key and data")
	}
	parts, types, ok, err := r.key(key)
	if err != nil || !ok {
		return err
	}
	set := data.get("set")
	if set == nil && (data.kind != text || !strings.HasPrefix(data.text, "@")) {
		return r.wrong(data, "a map with its elements, or @ and the name of one, is expected")
	}
	return r.lookup(parts, types, set, data, nftables.Verdict, false)
}

var seconds = map[string]uint64{"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}

var sizes = map[string]uint64{"packets": 1, "bytes": 1, "kbytes": 1 << 10, "mbytes": 1 << 20}

// limit and its like are evaluated by Linux alone, so that only their numbers have to be numbers.
func (r *nftRule) limit(v *node) error {
	if v.kind == text {
		r.add(&nftables.ObjRef{Type: 4, Name: v.text, Src: nftables.NoReg})
		return nil
	}
	rate, err := r.optional(v, "rate", 0, 0, 1<<62)
	if err != nil {
		return err
	}
	burst, err := r.optional(v, "burst", 0, 0, 1<<32-1)
	if err != nil {
		return err
	}
	per := textOf(v.get("per"))
	if per == "" {
		per = "second"
	}
	if seconds[per] == 0 {
		return r.wrong(v.get("per"), "there are second, minute, hour, day and week")
	}
	e := &nftables.Limit{Rate: uint64(rate), Unit: seconds[per], Burst: uint32(burst), Flags: bit(v.get("inv"))}
	if unit := textOf(v.get("rate_unit")); unit != "" && unit != "packets" {
		e.Type = 1
		e.Rate *= sizes[unit]
	}
	r.add(e)
	return nil
}

func (r *nftRule) quota(v *node) error {
	if v.kind == text {
		r.add(&nftables.ObjRef{Type: 2, Name: v.text, Src: nftables.NoReg})
		return nil
	}
	n, err := r.optional(v, "val", 0, 0, 1<<62)
	unit := sizes[textOf(v.get("val_unit"))]
	r.add(&nftables.Quota{Bytes: uint64(n) * max(unit, 1), Flags: bit(v.get("inv"))})
	return err
}

var logLevels = []string{"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit"}

func (r *nftRule) log(v *node) error {
	e := &nftables.Log{Prefix: textOf(v.get("prefix")), Group: -1, Level: 4}
	if g := v.get("group"); g != nil {
		n, err := r.number(g, 0, 0xffff)
		if err != nil {
			return err
		}
		e.Group = int(n)
	}
	if l := v.get("level"); l != nil {
		i := slices.Index(logLevels, l.text)
		if i < 0 {
			return r.wrong(l, "there are %s", strings.Join(logLevels, ", "))
		}
		e.Level = uint32(i)
	}
	r.add(e)
	return nil
}

func (r *nftRule) reject(v *node) error {
	e := &nftables.Reject{Type: 2, Code: 1}
	switch kind := v.get("type"); {
	case kind == nil && r.proto == 4:
		e.Type, e.Code = 0, 3
	case kind == nil && r.proto == 6:
		e.Type, e.Code = 0, 4
	case kind == nil || kind.is("icmpx"):
	case kind.is("tcp reset"):
		e.Type, e.Code = 1, 0
		r.depend(header{base: 2, l4: 6})
	case kind.is("icmp"), kind.is("icmpv6"):
		e.Type = 0
		proto := 4
		if kind.is("icmpv6") {
			proto = 6
		}
		if r.proto != proto {
			r.needProto(proto)
		}
	default:
		return r.wrong(kind, "there are icmp, icmpv6, icmpx and tcp reset")
	}
	r.add(e)
	return nil
}

// nat is a mapping of addresses and ports.
func (r *nftRule) nat(kind string, v *node) error {
	e := &nftables.NAT{Kind: kind, AddrMin: nftables.NoReg, AddrMax: nftables.NoReg, ProtoMin: nftables.NoReg, ProtoMax: nftables.NoReg, Family: uint32(r.family)}
	addressType, _ := dataType("ipv4_addr")
	switch f := v.get("family"); {
	case f.is("ip6") || f == nil && r.family == families["ip6"]:
		addressType, _ = dataType("ipv6_addr")
		e.Family = 10
	case f.is("ip") || f == nil:
		e.Family = 2
	default:
		return r.wrong(f, "there are ip and ip6")
	}
	port, _ := dataType("inet_service")
	var err error
	if e.AddrMin, e.AddrMax, err = r.constants(v.get("addr"), &addressType, 0); err != nil {
		return err
	}
	if e.ProtoMin, e.ProtoMax, err = r.constants(v.get("port"), &port, 8); err != nil {
		return err
	}
	flags, err := r.texts(v.get("flags"))
	for _, w := range flags {
		n, known := map[string]uint32{"random": 1 << 2, "persistent": 1 << 3, "fully-random": 1 << 4, "netmap": 1 << 6}[w]
		if !known {
			return r.wrong(v.get("flags"), "there are random, fully-random, persistent and netmap")
		}
		e.Flags |= n
	}
	if k := v.unknown("family addr port flags type"); k != "" || v.get("type") != nil {
		r.opaque(kind, "it has "+k+" that is not understood")
	}
	r.add(e)
	return err
}

// constants puts one or two values into registers.
func (r *nftRule) constants(n *node, t *typed, at nftables.Reg) (lo, hi nftables.Reg, err error) {
	if n == nil {
		return nftables.NoReg, nftables.NoReg, nil
	}
	s, err := r.spanOf(n, t)
	if errors.Is(err, errNoValue) { // from a map, or from the packet
		from, _, err := r.selectorOf(n)
		if from != nil && from.need != nil {
			from.need()
		}
		return at, at, err
	}
	if err != nil {
		return 0, 0, err
	}
	r.add(&nftables.Immediate{Dst: at, Data: nftables.Data{Bytes: t.bytes(s.lo)}})
	if s.many {
		r.add(&nftables.Immediate{Dst: at + 4, Data: nftables.Data{Bytes: t.bytes(s.hi)}})
		return at, at + 4, nil
	}
	return at, at, nil
}

func (r *nftRule) queue(v *node) error {
	e := &nftables.Queue{Src: nftables.NoReg, Total: 1}
	if n := v.get("num"); n != nil && n.kind == numeral {
		num, err := r.number(n, 0, 0xffff)
		if err != nil {
			return err
		}
		e.Num = uint16(num)
	}
	r.add(e)
	return nil
}

// update is a rule that adds to a set, or deletes from it.
func (r *nftRule) update(v *node) error {
	name := v.get("set")
	if name == nil || name.kind != text || !strings.HasPrefix(name.text, "@") {
		return r.wrong(v, "@ and the name of a set is expected")
	}
	index, there := r.sets[setKey(r.family, r.table, name.text[1:])]
	if !there {
		return r.wrong(name, "there is no such set in the table")
	}
	op := slices.Index([]string{"add", "update", "delete"}, textOf(v.get("op")))
	if op < 0 {
		return r.wrong(v, "there are add, update and delete")
	}
	r.dump.Sets[index].Flags |= nftables.SetEval // which nft 1.0.6 does not write
	elem := v.get("elem")
	if e := elem.get("elem"); e != nil {
		elem = e.get("val")
	}
	if elem == nil {
		return r.wrong(v, "%q is missing", "elem")
	}
	parts, _, ok, err := r.key(elem)
	if err != nil || !ok {
		return err
	}
	r.loadKey(parts, false)
	r.add(&nftables.Dynset{Set: name.text[1:], Op: uint32(op), Src: 0, Data: nftables.NoReg})
	return nil
}
