// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
)

var tosNames = map[string]uint64{"minimize-delay": 0x10, "maximize-throughput": 0x08, "maximize-reliability": 0x04, "minimize-cost": 0x02, "normal-service": 0}

// tos reads a TOS value; a name stands for the bits under the mask.
func (p *ruleParser) tos(w word, named uint64) (value, mask uint64, err error) {
	if v, known := tosNames[strings.ToLower(w.text)]; known {
		return v, named, nil
	}
	return p.valueMask(w, 0xff)
}

// bitwise are the options that change a number: given value and mask, and how the old value is kept and changed.
func bitwise(max uint64, store func(b []byte, value, mask uint64), change func(v uint64) (value, mask uint64)) option {
	return option{words: 1, name: "set", what: "a number", set: func(p *ruleParser, b []byte, w []word, _ bool) error {
		v, err := p.number(w[0], max)
		v, m := change(v)
		store(b, v&max, m&max)
		return err
	}}
}

func storeMark(b []byte, value, mask uint64) {
	put32(b, 0, value)
	put32(b, 4, mask)
}

func storeTOS(b []byte, value, mask uint64) { b[0], b[1] = byte(value), byte(mask) }

func andBits(v uint64) (uint64, uint64) { return 0, ^v }
func orBits(v uint64) (uint64, uint64)  { return v, v }
func xorBits(v uint64) (uint64, uint64) { return v, 0 }

// natKind is SNAT or DNAT: struct nf_nat_range2.
func natKind(option1 string) *kind {
	return &kind{rev: 2, size: 44, need: []string{option1}, options: map[string]option{
		option1:          {words: 1, what: "address[-address][:port[-port]]", set: setNATRange},
		"--random":       flag32(0, xtables.NATRandom),
		"--random-fully": flag32(0, xtables.NATFullyRandom),
		"--persistent":   flag32(0, xtables.NATPersistent),
	}}
}

func setNATRange(p *ruleParser, b []byte, w []word, _ bool) error {
	addresses, ports := w[0], word{}
	if p.file.six {
		if strings.HasPrefix(w[0].text, "[") {
			i := strings.IndexByte(w[0].text, ']')
			if i < 0 || i+1 < len(w[0].text) && w[0].text[i+1] != ':' {
				return p.fail(w[0], "write it like [2001:db8::1]:80")
			}
			addresses = w[0].part(1, i)
			if i+2 <= len(w[0].text) {
				ports = w[0].part(i+2, len(w[0].text))
			}
		}
	} else if a, rest, given := w[0].cut(':'); given {
		addresses, ports = a, rest
		if rest.text == "" {
			return p.fail(w[0], "a port follows the colon")
		}
	}
	if addresses.text != "" {
		lo, hi, err := p.addresses(addresses, p.file.six)
		if err != nil {
			return err
		}
		or32(b, 0, xtables.NATAddresses, true)
		copy(b[4:], lo.AsSlice())
		copy(b[20:], hi.AsSlice())
	}
	if ports.text != "" {
		text, _, shifted := ports.cut('/')
		if shifted {
			return p.fail(ports, "shifted port ranges are not understood")
		}
		first, last, isRange := text.cut('-')
		if !isRange {
			last = first
		}
		lo, err := p.number(first, 0xffff)
		if err != nil {
			return err
		}
		hi, err := p.number(last, 0xffff)
		if err != nil {
			return err
		}
		if hi < lo {
			return p.fail(ports, "the range ends before it begins")
		}
		or32(b, 0, xtables.NATPorts, true)
		b[36], b[37], b[38], b[39] = byte(lo>>8), byte(lo), byte(hi>>8), byte(hi)
	}
	return nil
}

// targetKinds are the targets whose options are understood; the others are left to Linux with theirs as they stand.
var targetKinds = map[string]*kind{
	"CLASSIFY": {size: 4, need: []string{"--set-class"}, options: map[string]option{
		"--set-class": {words: 1, what: "major:minor", set: func(p *ruleParser, b []byte, w []word, _ bool) error {
			class, ok := classOf(w[0].text)
			if !ok || !strings.Contains(w[0].text, ":") {
				return p.fail(w[0], "a class is written major:minor, in hexadecimal digits")
			}
			put32(b, 0, uint64(class))
			return nil
		}},
	}},
	"MARK": {rev: 2, size: 8, need: []string{"--set-xmark", "--set-mark", "--and-mark", "--or-mark", "--xor-mark"}, options: map[string]option{
		"--set-xmark": {words: 1, name: "set", what: "value or value/mask", set: func(p *ruleParser, b []byte, w []word, _ bool) error {
			v, m, err := p.valueMask(w[0], 0xffffffff)
			storeMark(b, v, m)
			return err
		}},
		"--set-mark": {words: 1, name: "set", what: "value or value/mask", set: func(p *ruleParser, b []byte, w []word, _ bool) error {
			v, m, err := p.valueMask(w[0], 0xffffffff)
			storeMark(b, v, m|v)
			return err
		}},
		"--and-mark": bitwise(0xffffffff, storeMark, andBits),
		"--or-mark":  bitwise(0xffffffff, storeMark, orBits),
		"--xor-mark": bitwise(0xffffffff, storeMark, xorBits),
	}},
	"DSCP": {size: 1, need: []string{"--set-dscp", "--set-dscp-class"}, options: map[string]option{
		"--set-dscp":       {words: 1, name: "dscp", what: "a number", set: setDSCP},
		"--set-dscp-class": {words: 1, name: "dscp", what: "a class", set: setDSCPClass}}},
	"TOS": {rev: 1, size: 2, need: []string{"--set-tos", "--and-tos", "--or-tos", "--xor-tos"}, options: map[string]option{
		"--set-tos": {words: 1, name: "set", what: "value or value/mask", set: func(p *ruleParser, b []byte, w []word, _ bool) error {
			v, m, err := p.tos(w[0], 0x3f)
			storeTOS(b, v, m)
			return err
		}},
		"--and-tos": bitwise(0xff, storeTOS, andBits), "--or-tos": bitwise(0xff, storeTOS, orBits), "--xor-tos": bitwise(0xff, storeTOS, xorBits),
	}},
	"NOTRACK": {rev: 2, size: 16, kernel: "CT", begin: func(b []byte) { put16(b, 0, 3) }}, // with the flag that it was called so
	"CT": {rev: 2, size: 60, options: map[string]option{
		"--notrack": {set: func(_ *ruleParser, b []byte, _ []word, _ bool) error { or16(b, 0, 1, true); return nil }},
		"--helper":  ctOther, "--ctevents": ctOther, "--expevents": ctOther, "--timeout": ctOther,
		"--zone": ctZone(0), "--zone-orig": ctZone(4), "--zone-reply": ctZone(8)}},
	"DNAT": natKind("--to-destination"),
	"SNAT": natKind("--to-source"),
}

// ctOther is what only Linux does: what it says is not read, but that there is something, in the place of the events.
var ctOther = option{words: 1, set: func(_ *ruleParser, b []byte, _ []word, _ bool) error { put32(b, 4, 1); return nil }}

// ctZone gives a zone, for the directions that its flag says.
func ctZone(flag uint16) option {
	return option{words: 1, name: "zone", what: "a number or \"mark\"", set: func(p *ruleParser, b []byte, w []word, _ bool) error {
		or16(b, 0, flag, true)
		if w[0].text == "mark" {
			or16(b, 0, 16, true)
			return nil
		}
		n, err := p.number(w[0], 0xffff)
		put16(b, 2, n)
		return err
	}}
}

// foreignTargets exist and are not known to the kernel's sources.
var foreignTargets = map[string]bool{"LED": true, "ULOG": true, "TARPIT": true, "CHAOS": true, "DELUDE": true, "ECHO": true, "IPMARK": true, "LOGMARK": true,
	"SYSRQ": true, "ACCOUNT": true, "RAWDNAT": true, "RAWSNAT": true, "DNETMAP": true, "PROTO": true, "NFACCT": true}
