// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"net"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
)

// ports of struct xt_tcp and xt_udp: two ranges, the flags that negate them at inv.
func transportPorts(inv int) map[string]option {
	port := func(n int) option {
		return option{words: 1, not: true, what: "a port or low:high", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			lo, hi, err := p.ports(w[0])
			put16(b, 4*n, lo)
			put16(b, 4*n+2, hi)
			or8(b, inv, 1<<n, not)
			return err
		}}
	}
	return merge(with(port(0), "--sport", "--source-port"), with(port(1), "--dport", "--destination-port"))
}

func anyPorts(b []byte) {
	put16(b, 2, 0xffff)
	put16(b, 6, 0xffff)
}

var tcpFlags = []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"}

func (p *ruleParser) flags(w word) (uint32, error) {
	switch strings.ToUpper(w.text) {
	case "ALL":
		return 0x3f, nil
	case "NONE":
		return 0, nil
	}
	return p.bits(w, tcpFlags)
}

var udpKind = &kind{size: 10, begin: anyPorts, options: transportPorts(8)}

// masks are options of one number and its mask.
func markOption(name string) *kind {
	return &kind{rev: 1, size: 12, need: []string{name}, options: map[string]option{
		name: {words: 1, not: true, what: "value or value/mask", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			v, m, err := p.valueMask(w[0], 0xffffffff)
			put32(b, 0, v)
			put32(b, 4, m)
			or8(b, 8, 1, not)
			return err
		}},
	}}
}

func icmpKind(options ...string) *kind {
	six := options[0] == "--icmpv6-type"
	k := &kind{size: 4, only: 4, begin: func(b []byte) { b[0], b[2] = 0xff, 0xff }}
	if six {
		k.only, k.need, k.begin = 6, options[:1], nil
	}
	k.options = with(option{words: 1, not: true, what: "type, type/code or a name", set: func(p *ruleParser, b []byte, w []word, not bool) error {
		lo, hi, err := p.icmpType(w[0], six)
		b[0], b[1], b[2] = byte(lo>>8), byte(lo), byte(hi)
		or8(b, 3, 1, not)
		return err
	}}, options...)
	return k
}

// multiport is a list of up to 15 ports; a range counts as two.
func multiport(mode byte) option {
	return option{words: 1, not: true, what: "ports", name: "ports", set: func(p *ruleParser, b []byte, w []word, not bool) error {
		b[0] = mode
		or8(b, 47, 1, not)
		return w[0].each(',', func(part word) error {
			lo, hi, err := p.ports(part)
			if err != nil {
				return err
			}
			_, _, isRange := part.cut(':')
			need := 1
			if isRange {
				need = 2
			}
			n := int(b[1])
			if n+need > 15 {
				return p.fail(part, "15 ports at most; a range counts as two")
			}
			put16(b, 2+2*n, lo)
			if isRange {
				b[32+n] = 1
				put16(b, 4+2*n, hi)
			}
			b[1] += byte(need)
			return nil
		})
	}}
}

var ctStates = []string{"INVALID", "ESTABLISHED", "RELATED", "NEW", "", "", "SNAT", "DNAT", "UNTRACKED"}

func stateKind(name string, states []string, alias uint16) *kind {
	state := option{words: 1, not: true, what: "states", set: func(p *ruleParser, b []byte, w []word, not bool) error {
		bits, err := p.bits(w[0], states)
		or16(b, 146, 1|alias, true)
		or16(b, 148, 1, not)
		put16(b, 150, uint64(bits))
		return err
	}}
	return &kind{rev: 3, size: 168, kernel: "conntrack", options: map[string]option{name: state}}
}

func conntrackKind() *kind {
	k := stateKind("--ctstate", ctStates, 0)
	k.options["--ctstatus"] = option{words: 1, not: true, what: "a status", set: func(p *ruleParser, b []byte, w []word, not bool) error {
		var bits uint32
		if !strings.EqualFold(w[0].text, "NONE") {
			var err error
			if bits, err = p.bits(w[0], []string{"EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED"}); err != nil {
				return err
			}
		}
		or16(b, 146, 1<<6, true)
		or16(b, 148, 1<<6, not)
		put16(b, 152, uint64(bits))
		return nil
	}}
	k.options["--ctdir"] = option{words: 1, what: "ORIGINAL or REPLY", set: func(p *ruleParser, b []byte, w []word, _ bool) error {
		n, err := p.oneOf(w[0], []string{"ORIGINAL", "REPLY"})
		or16(b, 146, 1<<12, true)
		or16(b, 148, 1<<12, n == 1)
		return err
	}}
	k.options["--ctproto"] = option{words: 1, not: true, what: "a protocol's name or number", set: func(p *ruleParser, b []byte, w []word, not bool) error {
		proto, err := p.protocolOf(w[0])
		put16(b, 136, uint64(proto))
		or16(b, 146, 1<<1, true)
		or16(b, 148, 1<<1, not)
		return err
	}}
	for n, name := range []string{"--ctorigsrc", "--ctorigdst"} {
		k.options[name] = option{words: 1, not: true, what: "an address, with /prefix length or /mask", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			addr, mask, err := p.masked(w[0], p.file.six)
			if err != nil {
				return err
			}
			copy(b[32*n:], addr[:])
			copy(b[32*n+16:], mask[:])
			or16(b, 146, 1<<(2+n), true)
			or16(b, 148, 1<<(2+n), not)
			return nil
		}}
		k.options[name+"port"] = option{words: 1, not: true, what: "ports", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			lo, hi, err := p.ports(w[0])
			put16(b, 138+2*n, lo)
			put16(b, 154+2*n, hi)
			or16(b, 146, 1<<(8+n), true)
			or16(b, 148, 1<<(8+n), not)
			return err
		}}
	}
	k.others = map[string]int{"--ctreplsrc": 1, "--ctrepldst": 1, "--ctreplsrcport": 1, "--ctrepldstport": 1, "--ctexpire": 1}
	return k
}

// addressTypes are the types of addresses by their number.
var addressTypes = []string{"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW", "NAT", "XRESOLVE"}

func addressType(at int, inverted uint32) option {
	return option{words: 1, not: true, what: "types", set: func(p *ruleParser, b []byte, w []word, not bool) error {
		bits, err := p.bits(w[0], addressTypes)
		put16(b, at, uint64(bits))
		or32(b, 4, inverted, not)
		return err
	}}
}

func flag32(at int, bits uint32) option {
	return option{set: func(_ *ruleParser, b []byte, _ []word, _ bool) error {
		or32(b, at, bits, true)
		return nil
	}}
}

func addressRange(n int) option {
	return option{words: 1, not: true, what: "first-last", set: func(p *ruleParser, b []byte, w []word, not bool) error {
		lo, hi, err := p.addresses(w[0], p.file.six)
		if err != nil {
			return err
		}
		copy(b[32*n:], lo.AsSlice())
		copy(b[32*n+16:], hi.AsSlice())
		or8(b, 64, 1<<n, true)
		or8(b, 64, 1<<(4+n), not)
		return nil
	}}
}

func ttlKind(prefix string, only int) *kind {
	one := func(mode byte) option {
		return option{words: 1, not: mode == 0, name: prefix, what: "a number", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			n, err := p.number(w[0], 255)
			b[0], b[1] = mode, byte(n)
			if not {
				b[0] = 1
			}
			return err
		}}
	}
	return &kind{size: 2, only: only, need: []string{prefix + "-eq", prefix + "-lt", prefix + "-gt"},
		options: map[string]option{prefix + "-eq": one(0), prefix + "-lt": one(2), prefix + "-gt": one(3)}}
}

func deviceGroup(at int, match, inverted uint32) option {
	return option{words: 1, not: true, what: "a group's number, with /mask", set: func(p *ruleParser, b []byte, w []word, not bool) error {
		v, m, err := p.valueMask(w[0], 0xffffffff)
		put32(b, at, v)
		put32(b, at+4, m)
		or32(b, 0, match, true)
		or32(b, 0, inverted, not)
		return err
	}}
}

// matchKinds are the matches that are understood.
var matchKinds = map[string]*kind{
	"tcp": {size: 12, begin: anyPorts, others: map[string]int{"--tcp-option": 1}, options: merge(transportPorts(11), map[string]option{
		"--tcp-flags": {words: 2, not: true, name: "flags", what: "the flags to look at, and those that are set", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			mask, err := p.flags(w[0])
			if err != nil {
				return err
			}
			cmp, err := p.flags(w[1])
			b[9], b[10] = byte(mask), byte(cmp)
			or8(b, 11, 4, not)
			return err
		}},
		"--syn": {not: true, name: "flags", set: func(_ *ruleParser, b []byte, _ []word, not bool) error {
			b[9], b[10] = 0x17, 0x02
			or8(b, 11, 4, not)
			return nil
		}},
	})},
	"udp": udpKind, "udplite": udpKind,
	"icmp": icmpKind("--icmp-type"), "icmp6": icmpKind("--icmpv6-type", "--icmp6-type"),
	"multiport": {rev: 1, size: 48, need: []string{"--sports", "--dports", "--ports"}, options: map[string]option{
		"--sports": multiport(0), "--source-ports": multiport(0), "--dports": multiport(1), "--destination-ports": multiport(1), "--ports": multiport(2)}},
	"conntrack": conntrackKind(),
	"state":     stateKind("--state", []string{"INVALID", "ESTABLISHED", "RELATED", "NEW", "", "", "", "", "UNTRACKED"}, 1<<13),
	"mark":      markOption("--mark"), "connmark": markOption("--mark"),
	"comment": {size: 256, need: []string{"--comment"}, options: map[string]option{
		"--comment": {words: 1, what: "a text", set: func(p *ruleParser, b []byte, w []word, _ bool) error {
			if copy(b, w[0].text) >= 256 {
				return p.fail(w[0], "a comment has 255 bytes at most")
			}
			return nil
		}}}},
	"addrtype": {rev: 1, size: 8, options: map[string]option{"--src-type": addressType(0, 1), "--dst-type": addressType(2, 2),
		"--limit-iface-in": flag32(4, 4), "--limit-iface-out": flag32(4, 8)}},
	"iprange": {rev: 1, size: 68, need: []string{"--src-range", "--dst-range"}, options: map[string]option{"--src-range": addressRange(0), "--dst-range": addressRange(1)}},
	"mac": {size: 12, need: []string{"--mac-source"}, options: map[string]option{
		"--mac-source": {words: 1, not: true, what: "a MAC address", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			mac, err := net.ParseMAC(w[0].text)
			if err != nil || len(mac) != 6 || strings.Count(w[0].text, ":") != 5 {
				return p.fail(w[0], "a MAC address is written 00:11:22:33:44:55")
			}
			copy(b, mac)
			or32(b, 8, 1, not)
			return nil
		}}}},
	"length": {size: 6, need: []string{"--length"}, options: map[string]option{
		"--length": {words: 1, not: true, what: "a length or low:high", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			lo, hi, err := p.numbers(w[0], 0xffff)
			put16(b, 0, lo)
			put16(b, 2, hi)
			or8(b, 4, 1, not)
			return err
		}}}},
	"pkttype": {size: 8, need: []string{"--pkt-type"}, options: map[string]option{
		"--pkt-type": {words: 1, not: true, what: "a type", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			n, err := p.oneOf(w[0], []string{"unicast", "broadcast", "multicast"})
			put32(b, 0, uint64(n))
			or32(b, 4, 1, not)
			return err
		}}}},
	"dscp": {size: 2, need: []string{"--dscp", "--dscp-class"}, options: map[string]option{
		"--dscp":       {words: 1, not: true, name: "dscp", what: "a number", set: setDSCP},
		"--dscp-class": {words: 1, not: true, name: "dscp", what: "a class", set: setDSCPClass}}},
	"tos": {rev: 1, size: 3, need: []string{"--tos"}, options: map[string]option{
		"--tos": {words: 1, not: true, what: "value or value/mask", set: func(p *ruleParser, b []byte, w []word, not bool) error {
			v, m, err := p.tos(w[0], 0x3f)
			b[0], b[1] = byte(m), byte(v)
			or8(b, 2, 1, not)
			return err
		}}}},
	"ttl": ttlKind("--ttl", 4), "hl": ttlKind("--hl", 6),
	"devgroup": {size: 20, need: []string{"--src-group", "--dst-group"}, options: map[string]option{"--src-group": deviceGroup(4, 1, 2), "--dst-group": deviceGroup(12, 4, 8)}},
}

func setDSCP(p *ruleParser, b []byte, w []word, not bool) error {
	n, err := p.number(w[0], 63)
	b[0] = byte(n)
	or8(b, 1, 1, not && len(b) > 1)
	return err
}

func setDSCPClass(p *ruleParser, b []byte, w []word, not bool) error {
	n, known := xtables.DSCPClass(w[0].text)
	if !known {
		return p.fail(w[0], "there are CS0 to CS7, AF11 to AF43, BE and EF")
	}
	b[0] = n
	or8(b, 1, 1, not && len(b) > 1)
	return nil
}

// foreignMatches are matches that exist and that only Linux evaluates: their options are not looked at.
var foreignMatches = map[string]bool{}

func init() {
	for _, n := range strings.Fields(`ah bpf cgroup cluster connbytes connlabel connlimit cpu dccp dst ecn esp eui64 frag hashlimit hbh helper ipcomp ipv6header ipvs
		limit mh nfacct osf owner physdev policy quota realm recent rpfilter rt sctp set socket srh statistic string tcpmss time u32
		condition fuzzy geoip iface ipp2p ipv4options length2 lscan ndpi pknock psd quota2 gradm`) {
		foreignMatches[n] = true
	}
}
