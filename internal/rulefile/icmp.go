// SPDX-License-Identifier: Apache-2.0

package rulefile

import "strings"

// icmpNames are types, or a type and a code, by name; value is type << 8 | code, and any code where all is set.
type icmpName struct {
	value uint16
	all   bool
}

var icmpNames = map[string]icmpName{
	"any": {0xff00, true}, "echo-reply": {0x0000, true}, "pong": {0x0000, true}, "destination-unreachable": {0x0300, true},
	"network-unreachable": {0x0300, false}, "host-unreachable": {0x0301, false}, "protocol-unreachable": {0x0302, false}, "port-unreachable": {0x0303, false},
	"fragmentation-needed": {0x0304, false}, "source-route-failed": {0x0305, false}, "network-unknown": {0x0306, false}, "host-unknown": {0x0307, false},
	"network-prohibited": {0x0309, false}, "host-prohibited": {0x030a, false}, "TOS-network-unreachable": {0x030b, false}, "TOS-host-unreachable": {0x030c, false},
	"communication-prohibited": {0x030d, false}, "host-precedence-violation": {0x030e, false}, "precedence-cutoff": {0x030f, false},
	"source-quench": {0x0400, true}, "redirect": {0x0500, true}, "network-redirect": {0x0500, false}, "host-redirect": {0x0501, false},
	"TOS-network-redirect": {0x0502, false}, "TOS-host-redirect": {0x0503, false}, "echo-request": {0x0800, true}, "ping": {0x0800, true},
	"router-advertisement": {0x0900, true}, "router-solicitation": {0x0a00, true}, "time-exceeded": {0x0b00, true}, "ttl-exceeded": {0x0b00, true},
	"ttl-zero-during-transit": {0x0b00, false}, "ttl-zero-during-reassembly": {0x0b01, false}, "parameter-problem": {0x0c00, true},
	"ip-header-bad": {0x0c00, false}, "required-option-missing": {0x0c01, false}, "timestamp-request": {0x0d00, true}, "timestamp-reply": {0x0e00, true},
	"address-mask-request": {0x1100, true}, "address-mask-reply": {0x1200, true},
}

var icmp6Names = map[string]icmpName{
	"destination-unreachable": {0x0100, true}, "no-route": {0x0100, false}, "communication-prohibited": {0x0101, false}, "beyond-scope": {0x0102, false},
	"address-unreachable": {0x0103, false}, "port-unreachable": {0x0104, false}, "failed-policy": {0x0105, false}, "reject-route": {0x0106, false},
	"packet-too-big": {0x0200, true}, "time-exceeded": {0x0300, true}, "ttl-exceeded": {0x0300, true}, "ttl-zero-during-transit": {0x0300, false},
	"ttl-zero-during-reassembly": {0x0301, false}, "parameter-problem": {0x0400, true}, "bad-header": {0x0400, false}, "unknown-header-type": {0x0401, false},
	"unknown-option": {0x0402, false}, "echo-request": {0x8000, true}, "ping": {0x8000, true}, "echo-reply": {0x8100, true}, "pong": {0x8100, true},
	"router-solicitation": {0x8500, true}, "router-advertisement": {0x8600, true}, "neighbour-solicitation": {0x8700, true}, "neighbor-solicitation": {0x8700, true},
	"neighbour-advertisement": {0x8800, true}, "neighbor-advertisement": {0x8800, true}, "redirect": {0x8900, true},
}

// icmpType reads a type, with a code or for all of them, as type << 8 | code.
func (p *ruleParser) icmpType(w word, six bool) (lo, hi uint16, err error) {
	names := icmpNames
	if six {
		names = icmp6Names
	}
	if n, known := names[strings.ToLower(w.text)]; known {
		if n.all {
			return n.value, n.value | 0xff, nil
		}
		return n.value, n.value, nil
	}
	typ, code, given := w.cut('/')
	n, err := p.number(typ, 255)
	if err != nil {
		return 0, 0, p.fail(w, "a type is a number, with /code, or a name like echo-request")
	}
	lo, hi = uint16(n)<<8, uint16(n)<<8|0xff
	if given {
		c, err := p.number(code, 255)
		if err != nil {
			return 0, 0, err
		}
		lo, hi = lo|uint16(c), lo|uint16(c)
	}
	return lo, hi, nil
}
