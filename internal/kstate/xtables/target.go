// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// Target gives the steps of a target that is no verdict, and the words for it.
func Target(c *Context, e Extension) ([]rs.Step, string) {
	text := "-j " + e.Name
	i := &info{b: e.Info}
	if t := targets[e.Name]; t != nil {
		steps, options, ok := t(e.Revision, i)
		if ok && i.err == nil {
			return steps, strings.TrimSpace(text + " " + options)
		}
	} else if describe, known := kernelTargets[e.Name]; known {
		if e.Info == nil && e.Options != "" {
			text += " " + e.Options
		} else if describe != nil {
			if options := describe(c, e.Revision, i); i.err == nil && options != "" {
				text += " " + options
			}
		}
		return []rs.Step{rs.Slow{Name: strings.ToLower(e.Name), Text: text, To: mappingOf(c, e)}}, text
	}
	why := "not modelled"
	if e.Info == nil && e.Options != "" {
		text += " " + e.Options
	}
	if i.err != nil {
		why = i.err.Error()
	}
	return []rs.Step{rs.Unknown{Name: "xt target " + e.Name, Text: fmt.Sprintf("%s (revision %d: %s)", text, e.Revision, why)}}, text
}

// IsTarget says whether a name is that of a target.
func IsTarget(name string) bool {
	_, kernel := kernelTargets[name]
	return kernel || targets[name] != nil
}

// targets that the data path can do itself.
var targets = map[string]func(rev uint8, i *info) (steps []rs.Step, text string, ok bool){
	"MARK": func(rev uint8, i *info) ([]rs.Step, string, bool) {
		mark, mask := i.u32(0), i.u32(4)
		return []rs.Step{rs.SetField{Field: rs.Mark, And: ^mask, Xor: mark}}, fmt.Sprintf("--set-xmark 0x%x/0x%x", mark, mask), rev == 2
	},
	"CLASSIFY": func(rev uint8, i *info) ([]rs.Step, string, bool) {
		class := i.u32(0)
		return []rs.Step{rs.SetField{Field: rs.Priority, Xor: class}}, fmt.Sprintf("--set-class %04x:%04x", class>>16, class&0xffff), rev == 0
	},
	"CONNMARK": func(rev uint8, i *info) ([]rs.Step, string, bool) {
		const set, save, restore = 0, 1, 2
		ctmark, ctmask, nfmask, mode, shift := i.u32(0), i.u32(4), i.u32(8), i.u8(12), uint8(0)
		if rev == 2 {
			shift, mode = i.u8(13), i.u8(14)
		}
		ok := rev == 1 || rev == 2
		switch {
		case shift != 0:
		case mode == set:
			return []rs.Step{rs.SaveMark{And: ^ctmask, Xor: ctmark}}, fmt.Sprintf("--set-xmark 0x%x/0x%x", ctmark, ctmask), ok
		case mode == save:
			return []rs.Step{rs.SaveMark{And: ^ctmask, Mask: nfmask}}, fmt.Sprintf("--save-mark --nfmask 0x%x --ctmask 0x%x", nfmask, ctmask), ok
		case mode == restore:
			return []rs.Step{rs.SetField{Field: rs.Mark, And: ^nfmask, From: rs.CTMark, Mask: ctmask}}, fmt.Sprintf("--restore-mark --nfmask 0x%x --ctmask 0x%x", nfmask, ctmask), ok
		}
		return []rs.Step{rs.Slow{Name: "connmark", Text: "-j CONNMARK (shifted)"}}, "", ok
	},
	"DSCP": func(rev uint8, i *info) ([]rs.Step, string, bool) {
		dscp := uint32(i.u8(0))
		return []rs.Step{rs.SetField{Field: rs.DSField, And: 0x03, Xor: dscp << 2}}, fmt.Sprintf("--set-dscp 0x%02x", dscp), rev == 0 && dscp < 64
	},
	"TOS": func(rev uint8, i *info) ([]rs.Step, string, bool) {
		value, mask := uint32(i.u8(0)), uint32(i.u8(1))
		return []rs.Step{rs.SetField{Field: rs.DSField, And: ^mask & 0xff, Xor: value}}, fmt.Sprintf("--set-tos 0x%02x/0x%02x", value, mask), rev == 1
	},
	"NOTRACK": func(rev uint8, i *info) ([]rs.Step, string, bool) {
		return []rs.Step{rs.NoTrack{}}, "", rev == 0
	},
	"CT": func(rev uint8, i *info) ([]rs.Step, string, bool) {
		const notrack, alias, original, reply = 1, 2, 4, 8
		flags, zone := i.u16(0), i.u16(2)
		if flags&^(original|reply) == 0 && rev <= 2 && plainTemplate(rev, i) {
			set, option := rs.SetZone{Zone: zone, Dir: rs.ZoneBoth}, "--zone"
			switch flags {
			case original:
				set.Dir, option = rs.ZoneOriginal, "--zone-orig"
			case reply:
				set.Dir, option = rs.ZoneReply, "--zone-reply"
			}
			return []rs.Step{set}, fmt.Sprintf("%s %d", option, zone), flags == 0 || rev == 2
		}
		if flags&notrack == 0 {
			return []rs.Step{rs.Slow{Name: "ct", Text: "-j CT (zone of the mark, helper, timeout or events)"}}, fmt.Sprintf("(flags %#x, zone %d)", flags, zone), rev <= 2
		}
		return []rs.Step{rs.NoTrack{}}, "--notrack", rev <= 2 && flags&^(notrack|alias) == 0
	},
}

// plainTemplate says whether a CT target gives new connections nothing but their zone: no events, no helper, no timeouts (xt_ct_target_info, and _v1 from revision 1 on).
func plainTemplate(rev uint8, i *info) bool {
	size := 24 // two masks of events, the helper's name
	if rev > 0 {
		size += 32 // the name of the timeouts
	}
	return !slices.ContainsFunc(i.bytes(4, size), func(b byte) bool { return b != 0 })
}

// kernelTargets are understood, and only the kernel can do them.
var kernelTargets = map[string]func(c *Context, rev uint8, i *info) string{
	"LOG": func(_ *Context, _ uint8, i *info) string {
		out := ""
		if p := i.text(2, 30); p != "" {
			out = "--log-prefix " + Quote(p)
		}
		if level := i.u8(0); level != 4 {
			out += fmt.Sprintf(" --log-level %d", level)
		}
		for n, name := range []string{"--log-tcp-sequence", "--log-tcp-options", "--log-ip-options", "--log-uid", "", "--log-macdecode"} {
			if i.u8(1)>>n&1 != 0 && name != "" {
				out += " " + name
			}
		}
		return strings.TrimSpace(out)
	},
	"NFLOG": func(_ *Context, _ uint8, i *info) string {
		out := ""
		if p := i.text(16, 64); p != "" {
			out = "--nflog-prefix " + Quote(p)
		}
		if group := i.u16(4); group != 0 {
			out += fmt.Sprintf(" --nflog-group %d", group)
		}
		return strings.TrimSpace(out)
	},
	"REJECT": func(c *Context, _ uint8, i *info) string {
		names := []string{"icmp-net-unreachable", "icmp-host-unreachable", "icmp-proto-unreachable", "icmp-port-unreachable", "echo-reply",
			"icmp-net-prohibited", "icmp-host-prohibited", "tcp-reset", "icmp-admin-prohibited"}
		if c.Six {
			names = []string{"icmp6-no-route", "icmp6-adm-prohibited", "icmp6-not-neighbour", "icmp6-addr-unreachable", "icmp6-port-unreachable",
				"echo-reply", "tcp-reset", "icmp6-policy-fail", "icmp6-reject-route"}
		}
		if with := i.u32(0); int(with) < len(names) {
			return "--reject-with " + names[with]
		}
		return ""
	},
	"DNAT":       func(c *Context, rev uint8, i *info) string { return natRange("--to-destination ", c, rev, i) },
	"SNAT":       func(c *Context, rev uint8, i *info) string { return natRange("--to-source ", c, rev, i) },
	"REDIRECT":   func(c *Context, rev uint8, i *info) string { return portsOnly(c, i) },
	"MASQUERADE": func(c *Context, rev uint8, i *info) string { return portsOnly(c, i) },
	"NFQUEUE": func(_ *Context, rev uint8, i *info) string {
		if rev > 0 && i.u16(2) > 1 {
			return fmt.Sprintf("--queue-balance %d:%d", i.u16(0), i.u16(0)+i.u16(2)-1)
		}
		return fmt.Sprintf("--queue-num %d", i.u16(0))
	},
	"TCPMSS": func(_ *Context, _ uint8, i *info) string {
		if mss := i.u16(0); mss != 0xffff {
			return fmt.Sprintf("--set-mss %d", mss)
		}
		return "--clamp-mss-to-pmtu"
	},
	"TTL": nil, "HL": nil, "NETMAP": nil, "TPROXY": nil, "TRACE": nil, "TEE": nil, "SET": changedSets, "CHECKSUM": nil,
	"AUDIT": nil, "ECN": nil, "SECMARK": nil, "CONNSECMARK": nil, "SYNPROXY": nil, "TCPOPTSTRIP": nil, "RATEEST": nil, "IDLETIMER": nil, "HMARK": nil,
	"CLUSTERIP": nil, "SNPT": nil, "DNPT": nil,
}

// changedSets notes with the sets that a rule adds to them or deletes from them.
func changedSets(c *Context, _ uint8, i *info) string {
	var words []string
	for n, verb := range []string{"--add-set ", "--del-set "} {
		if index := i.u16(4 * n); index != 0xffff && c.Set != nil {
			if _, set := c.Set(index); set != nil {
				set.Dynamic = true
				words = append(words, verb+set.Name)
			}
		}
	}
	return strings.Join(words, " ")
}

// Flags of struct nf_nat_range (NF_NAT_RANGE_*).
const (
	NATAddresses   = 1 << 0
	NATPorts       = 1 << 1
	NATRandom      = 1 << 2
	NATPersistent  = 1 << 3
	NATFullyRandom = 1 << 4
)

// mappingOf is what SNAT and DNAT map to.
func mappingOf(c *Context, e Extension) (m rs.Mapping) {
	i := &info{b: e.Info}
	if e.Name != "SNAT" && e.Name != "DNAT" || e.Info == nil {
		return m
	}
	flags, lo, hi, min, max := natFields(c, e.Revision, i)
	if i.err != nil {
		return rs.Mapping{}
	}
	if flags&NATAddresses != 0 {
		m.Addr, m.LastAddr = lo, hi
	}
	if flags&NATPorts != 0 {
		m.Port, m.LastPort = min, max
	}
	m.More = flags&^(NATAddresses|NATPorts) != 0
	return m
}

// natFields reads struct nf_nat_ipv4_multi_range_compat (revision 0) or nf_nat_range and nf_nat_range2 (1 and 2).
func natFields(c *Context, rev uint8, i *info) (flags uint32, lo, hi netip.Addr, min, max uint16) {
	if rev == 0 {
		return i.u32(4), i.addr(8, false), i.addr(12, false), i.port(16), i.port(18)
	}
	return i.u32(0), i.addr(4, c.Six), i.addr(20, c.Six), i.port(36), i.port(38)
}

// natRange describes what SNAT and DNAT map to.
func natRange(option string, c *Context, rev uint8, i *info) string {
	flags, first, last, min, max := natFields(c, rev, i)
	lo, hi := first.String(), last.String()
	out := option
	if flags&NATAddresses != 0 {
		if hi != lo {
			lo += "-" + hi
		}
		if c.Six && flags&NATPorts != 0 {
			lo = "[" + lo + "]"
		}
		out += lo
	}
	if flags&NATPorts != 0 {
		out += ":" + dashed(min, max)
	}
	return out + natFlags(flags)
}

func dashed(min, max uint16) string {
	if min == max {
		return fmt.Sprint(min)
	}
	return fmt.Sprintf("%d-%d", min, max)
}

func natFlags(flags uint32) (out string) {
	for _, f := range []struct {
		bit  uint32
		name string
	}{{NATRandom, " --random"}, {NATFullyRandom, " --random-fully"}, {NATPersistent, " --persistent"}} {
		if flags&f.bit != 0 {
			out += f.name
		}
	}
	return out
}

// portsOnly describes REDIRECT and MASQUERADE, which have no address of their own.
func portsOnly(c *Context, i *info) string {
	flags, min, max := i.u32(4), uint16(0), uint16(0)
	if c.Six {
		flags, min, max = i.u32(0), i.port(36), i.port(38)
	} else {
		min, max = i.port(16), i.port(18)
	}
	out := ""
	if flags&NATPorts != 0 {
		out = "--to-ports " + dashed(min, max)
	}
	return strings.TrimSpace(out + natFlags(flags))
}

// described are matches that depend on more than the packet, with the options that are worth showing.
var described = map[string]func(i *info) string{
	"limit": func(i *info) string {
		avg, burst := i.u32(0), i.u32(4)
		if avg == 0 {
			return ""
		}
		units := []struct {
			ticks uint32
			name  string
		}{{10000, "sec"}, {60 * 10000, "min"}, {60 * 60 * 10000, "hour"}, {24 * 60 * 60 * 10000, "day"}}
		unit := units[0]
		for _, u := range units {
			unit = u
			if avg <= u.ticks && u.ticks%avg == 0 {
				break
			}
		}
		out := fmt.Sprintf("--limit %d/%s", unit.ticks/avg, unit.name)
		if burst != 5 {
			out += fmt.Sprintf(" --limit-burst %d", burst)
		}
		return out
	},
	"statistic": func(i *info) string {
		not := i.u16(2)&1 != 0
		if i.u16(0) == 0 {
			return fmt.Sprintf("--mode random %s--probability %.11f", bang(not), float64(i.u32(4))/0x80000000)
		}
		return fmt.Sprintf("--mode nth %s--every %d --packet %d", bang(not), i.u32(4)+1, i.u32(8))
	},
	"recent": func(i *info) string {
		return fmt.Sprintf("--name %s", i.text(10, 200))
	},
	"nfacct": func(i *info) string { return "--nfacct-name  " + i.text(0, 32) },
	"connlimit": func(i *info) string {
		return fmt.Sprintf("--connlimit-above %d", i.u32(16))
	},
}
