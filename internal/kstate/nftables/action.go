// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Verdict codes (NF_* and NFT_*).
const (
	nfDrop   = 0
	nfAccept = 1
	nfQueue  = 3

	nftContinue = -1
	nftJump     = -3
	nftGoto     = -4
	nftReturn   = -5
)

func verdict(v *VerdictData) (rs.Verdict, error) {
	switch v.Code {
	case nfDrop:
		return rs.Verdict{Code: rs.Drop}, nil
	case nfAccept:
		return rs.Verdict{Code: rs.Accept}, nil
	case nftContinue:
		return rs.Verdict{Code: rs.Continue}, nil
	case nftReturn:
		return rs.Verdict{Code: rs.Return}, nil
	case nftJump:
		return rs.Verdict{Code: rs.Jump, Chain: v.Chain}, nil
	case nftGoto:
		return rs.Verdict{Code: rs.Goto, Chain: v.Chain}, nil
	}
	return rs.Verdict{}, fmt.Errorf("verdict %d is not modelled", v.Code)
}

func verdictText(v rs.Verdict) string {
	switch v.Code {
	case rs.Jump:
		return "jump " + v.Chain
	case rs.Goto:
		return "goto " + v.Chain
	}
	return pick([]string{"continue", "accept", "drop", "return"}, uint32(v.Code))
}

func (m *machine) immediate(e *Immediate) {
	if e.Data.Verdict == nil {
		m.store(e.Dst, &value{name: fmt.Sprintf("0x%x", e.Data.Bytes), size: len(e.Data.Bytes), data: e.Data.Bytes, dep: -1})
		return
	}
	if code := e.Data.Verdict.Code; code >= 0 && code&0xff == nfQueue {
		m.slow("queue", fmt.Sprintf("queue to %d", code>>16))
		return
	}
	v, err := verdict(e.Data.Verdict)
	if err != nil {
		m.unknown("verdict", err.Error())
		return
	}
	m.steps = append(m.steps, v)
	m.words.add(verdictText(v))
}

// action is what remains: expressions that only the kernel can do, or whose answer depends on more than the packet.
func (m *machine) action(e Expr) {
	switch e := e.(type) {
	case *Limit:
		text := fmt.Sprintf("limit rate %s%d/%s", over(e.Flags), e.Rate, limitUnit(e.Unit))
		if e.Type == 1 {
			text = fmt.Sprintf("limit rate %s%d bytes/%s", over(e.Flags), e.Rate, limitUnit(e.Unit))
			if e.Burst != 0 {
				text += fmt.Sprintf(" burst %d bytes", e.Burst)
			}
		} else if e.Burst != 0 && e.Burst != 5 { // five is what nft leaves out
			text += fmt.Sprintf(" burst %d packets", e.Burst)
		}
		m.unknown("limit", text)
	case *Log:
		m.slow("log", logText(e))
	case *Reject:
		m.slow("reject", m.rejectText(e))
	case *NAT:
		text := m.natText(e)
		m.steps = append(m.steps, rs.Slow{Name: e.Kind, Text: text, To: m.mapping(e)})
		m.words.add(text)
	case *ObjRef:
		m.objref(e)
	case *Quota:
		m.unknown("quota", fmt.Sprintf("quota %s%d bytes", over(e.Flags), e.Bytes))
	case *Queue:
		to := fmt.Sprint(e.Num)
		if e.Src != NoReg {
			to = m.valueText(m.get(e.Src, 1))
		} else if e.Total > 1 {
			to = fmt.Sprintf("%d-%d", e.Num, e.Num+e.Total-1)
		}
		m.slow("queue", "queue to "+to)
	case *ConnLimit:
		m.unknown("ct count", fmt.Sprintf("ct count %s%d", over(e.Flags), e.Count))
	case *Last:
		m.slow("last", "last")
	case *FlowOffload:
		m.slow("flow add", "flow add @"+e.Table)
	case *Dynset:
		m.dynset(e)
	default:
		m.unknown(nameOf(e), nameOf(e))
	}
}

// over is a word of limits and quotas that hold beyond them (NFT_LIMIT_F_INV, NFT_QUOTA_F_INV, NFT_CONNLIMIT_F_INV).
func over(flags uint32) string {
	if flags&1 != 0 {
		return "over "
	}
	return ""
}

func limitUnit(seconds uint64) string {
	for _, u := range []struct {
		s    uint64
		name string
	}{{1, "second"}, {60, "minute"}, {3600, "hour"}, {86400, "day"}, {604800, "week"}} {
		if u.s == seconds {
			return u.name
		}
	}
	return fmt.Sprintf("%d seconds", seconds)
}

func logText(e *Log) string {
	out := "log"
	if e.Prefix != "" {
		out += fmt.Sprintf(" prefix %q", e.Prefix)
	}
	if e.Group >= 0 {
		out += fmt.Sprintf(" group %d", e.Group)
	} else if e.Level != 4 {
		out += " level " + pick([]string{"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit"}, e.Level)
	}
	if e.Flags != 0 {
		out += fmt.Sprintf(" flags %#x", e.Flags)
	}
	return out
}

func (m *machine) rejectText(e *Reject) string {
	switch {
	case e.Type == 1:
		return "reject with tcp reset"
	case e.Type == 2 && e.Code == 1, e.Type == 0 && m.facts.proto == 4 && e.Code == 3, e.Type == 0 && m.facts.proto == 6 && e.Code == 4:
		return "reject" // the default: port unreachable
	case e.Type == 2:
		return "reject with icmpx " + pick([]string{"no-route", "port-unreachable", "host-unreachable", "admin-prohibited"}, uint32(e.Code))
	case m.facts.proto == 6:
		return "reject with icmpv6 " + pick([]string{"no-route", "admin-prohibited", "2", "addr-unreachable", "port-unreachable", "policy-fail", "reject-route"}, uint32(e.Code))
	case m.facts.proto == 4:
		names := map[uint8]string{0: "net-unreachable", 1: "host-unreachable", 2: "prot-unreachable", 3: "port-unreachable", 9: "net-prohibited", 10: "host-prohibited", 13: "admin-prohibited"}
		if n := names[e.Code]; n != "" {
			return "reject with icmp " + n
		}
	}
	return fmt.Sprintf("reject with type %d code %d", e.Type, e.Code)
}

// mapping is what snat and dnat map to, where that is constant.
func (m *machine) mapping(e *NAT) (out rs.Mapping) {
	const addressesGiven, portsGiven = 1 << 0, 1 << 1
	if e.Kind != "snat" && e.Kind != "dnat" {
		return rs.Mapping{}
	}
	ok := true
	constant := func(r Reg, sizes ...int) []byte {
		if r == NoReg {
			return nil
		}
		data := m.get(r, 1).data
		ok = ok && slices.Contains(sizes, len(data))
		return data
	}
	address := func(min, max Reg) (lo, hi netip.Addr) {
		lo, _ = netip.AddrFromSlice(constant(min, 4, 16))
		if hi = lo; max != NoReg {
			hi, _ = netip.AddrFromSlice(constant(max, 4, 16))
		}
		return lo, hi
	}
	port := func(r Reg) uint16 {
		if b := constant(r, 2, 4); len(b) >= 2 {
			return uint16(b[0])<<8 | uint16(b[1])
		}
		return 0
	}
	out.Addr, out.LastAddr = address(e.AddrMin, e.AddrMax)
	out.Port = port(e.ProtoMin)
	if out.LastPort = out.Port; e.ProtoMax != NoReg {
		out.LastPort = port(e.ProtoMax)
	}
	out.More = e.Flags&^(addressesGiven|portsGiven) != 0
	if !ok {
		return rs.Mapping{}
	}
	return out
}

func (m *machine) natText(e *NAT) string {
	out := e.Kind
	addr := m.rangeText(e.AddrMin, e.AddrMax, true)
	port := m.rangeText(e.ProtoMin, e.ProtoMax, false)
	family := map[uint32]string{familyIP4: " ip", familyIP6: " ip6"}[e.Family]
	if m.facts.family != familyInet {
		family = ""
	}
	if addr != "" || port != "" {
		if e.Kind != "masquerade" && e.Kind != "redirect" {
			out += family
		}
		out += " to "
	}
	if e.Family == familyIP6 && port != "" && addr != "" {
		addr = "[" + addr + "]"
	}
	out += addr
	if port != "" {
		out += ":" + port
	}
	for _, f := range []struct {
		bit  uint32
		name string
	}{{1 << 2, "random"}, {1 << 4, "fully-random"}, {1 << 3, "persistent"}, {1 << 6, "netmap"}} {
		if e.Flags&f.bit != 0 {
			out += " " + f.name
		}
	}
	return out
}

// rangeText writes what two registers hold, which may be the same.
func (m *machine) rangeText(from, to Reg, address bool) string {
	if from == NoReg {
		return ""
	}
	one := func(r Reg) string {
		v := m.get(r, 1)
		if v.data == nil {
			return m.valueText(v)
		}
		if address {
			return addressText(num(v.data, false), len(v.data) > 4)
		}
		if len(v.data) < 2 {
			return v.name
		}
		return fmt.Sprint(uint32(v.data[0])<<8 | uint32(v.data[1]))
	}
	out := one(from)
	if to != NoReg && to != from {
		if second := one(to); second != out {
			out += "-" + second
		}
	}
	return out
}

// objref uses a named object: a counter counts, the others depend on more than the packet.
func (m *machine) objref(e *ObjRef) {
	if e.Set != "" {
		m.unknown("map of objects", m.valueText(m.get(e.Src, 1))+" map @"+e.Set)
		return
	}
	name := objectName(e.Type)
	text := fmt.Sprintf("%s name %q", name, e.Name)
	if id, ok := m.t.objects[setName{m.rule.Family, m.rule.Table, e.Name}]; ok && e.Type == objectCounter {
		m.steps = append(m.steps, rs.Count{Counter: id})
		m.words.add(text)
		return
	}
	m.unknown(name, text)
}

const objectCounter = 1

func (m *machine) dynset(e *Dynset) {
	op := pick([]string{"add", "update", "delete"}, e.Op)
	if s := m.t.sets[setName{m.rule.Family, m.rule.Table, e.Set}]; s != nil {
		m.t.out.Sets[s.id].Dynamic = true // its flags need not say so
	}
	text := fmt.Sprintf("%s @%s { %s", op, e.Set, m.valueText(m.get(e.Src, 1)))
	if e.Timeout != 0 {
		text += fmt.Sprintf(" timeout %ds", e.Timeout/1000)
	}
	for _, x := range e.Exprs {
		text += " " + nameOf(x)
	}
	m.slow("set "+op, text+" }")
}

// nameOf is what an expression is called.
func nameOf(e Expr) string {
	if o, ok := e.(*Opaque); ok {
		return o.Name
	}
	if x, ok := e.(*XT); ok {
		return "xt " + kindOfXT(x) + " " + x.Name
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "*nftables."))
}
