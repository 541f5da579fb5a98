// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"fmt"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
)

// nftRule is a rule on its way to the expressions that nft hands to the kernel.
type nftRule struct {
	*nftFile
	family byte
	table  string
	exprs  []nftables.Expr
	proto  int // 4 or 6 where the packet is known to be of it
	l4     int // its protocol, -1 while not known
	link   bool
}

// opaque is something that is well formed and not understood.
func (r *nftRule) opaque(name, why string) {
	r.exprs = append(r.exprs, &nftables.Opaque{Name: name, Why: why})
}

func (r *nftRule) add(e nftables.Expr) { r.exprs = append(r.exprs, e) }

// selector is what an expression loads: how, and of what type.
type selector struct {
	typed
	load func(dst nftables.Reg) nftables.Expr
	need func() // emits the tests that the load relies on
	mask []byte // of the bits, where they do not fill the bytes
	self nftables.Expr
}

// header is a protocol that has fields: their first bit, their bits, their type.
type header struct {
	base   uint32
	l4     int // what the protocol has to be; -1 for any, 0 for none
	proto  int // 4 or 6: what the packet has to be
	fields map[string]headerField
}

type headerField struct {
	at, bits int
	typ      string
}

var portFields = map[string]headerField{"sport": {0, 16, "inet_service"}, "dport": {16, 16, "inet_service"}}

var headers = map[string]header{
	"ether": {base: 0, fields: map[string]headerField{"daddr": {0, 48, "ether_addr"}, "saddr": {48, 48, "ether_addr"}, "type": {96, 16, "ether_type"}}},
	"ip": {base: 1, proto: 4, fields: map[string]headerField{"version": {0, 4, ""}, "hdrlength": {4, 4, ""}, "dscp": {8, 6, "dscp"}, "ecn": {14, 2, "ecn"}, "length": {16, 16, ""},
		"id": {32, 16, ""}, "frag-off": {48, 16, ""}, "ttl": {64, 8, ""}, "protocol": {72, 8, "inet_proto"}, "checksum": {80, 16, ""}, "saddr": {96, 32, "ipv4_addr"}, "daddr": {128, 32, "ipv4_addr"}}},
	"ip6": {base: 1, proto: 6, fields: map[string]headerField{"version": {0, 4, ""}, "dscp": {4, 6, "dscp"}, "ecn": {10, 2, "ecn"}, "flowlabel": {12, 20, ""}, "length": {32, 16, ""},
		"nexthdr": {48, 8, "inet_proto"}, "hoplimit": {56, 8, ""}, "saddr": {64, 128, "ipv6_addr"}, "daddr": {192, 128, "ipv6_addr"}}},
	"icmp":   {base: 2, l4: 1, proto: 4, fields: map[string]headerField{"type": {0, 8, "icmp_type"}, "code": {8, 8, "icmp_code"}, "checksum": {16, 16, ""}, "id": {32, 16, ""}, "sequence": {48, 16, ""}, "mtu": {48, 16, ""}, "gateway": {32, 32, ""}}},
	"icmpv6": {base: 2, l4: 58, proto: 6, fields: map[string]headerField{"type": {0, 8, "icmpv6_type"}, "code": {8, 8, "icmpv6_code"}, "checksum": {16, 16, ""}, "id": {32, 16, ""}, "sequence": {48, 16, ""}, "mtu": {32, 32, ""}}},
	"tcp": {base: 2, l4: 6, fields: map[string]headerField{"sport": {0, 16, "inet_service"}, "dport": {16, 16, "inet_service"}, "sequence": {32, 32, ""}, "ackseq": {64, 32, ""},
		"doff": {96, 4, ""}, "reserved": {100, 4, ""}, "flags": {104, 8, "tcp_flag"}, "window": {112, 16, ""}, "checksum": {128, 16, ""}, "urgptr": {144, 16, ""}}},
	"udp":     {base: 2, l4: 17, fields: map[string]headerField{"sport": {0, 16, "inet_service"}, "dport": {16, 16, "inet_service"}, "length": {32, 16, ""}, "checksum": {48, 16, ""}}},
	"udplite": {base: 2, l4: 136, fields: portFields}, "sctp": {base: 2, l4: 132, fields: portFields}, "dccp": {base: 2, l4: 33, fields: portFields},
	"th": {base: 2, l4: -1, fields: portFields},
}

// foreignHeaders exist, and only Linux looks into them.
const foreignHeaders = "vlan arp ah esp comp igmp gre grev0 vxlan geneve gretap rt0 srh"

// metaTypes are the types of what Linux knows of a packet, where they are not plain numbers.
var metaTypes = map[string]string{"mark": "mark", "iif": "iface_index", "oif": "iface_index", "iifname": "ifname", "oifname": "ifname", "iiftype": "iface_type", "oiftype": "iface_type",
	"nfproto": "nf_proto", "l4proto": "inet_proto", "protocol": "ether_type", "pkttype": "pkt_type", "iifgroup": "devgroup", "oifgroup": "devgroup", "priority": "classid",
	"skuid": "uid", "skgid": "gid", "rtclassid": "realm", "ibrname": "ifname", "obrname": "ifname", "ipsec": "boolean"}

var ctTypes = map[string]string{"state": "ct_state", "direction": "ct_dir", "status": "ct_status", "mark": "mark", "protocol": "inet_proto",
	"ip saddr": "ipv4_addr", "ip daddr": "ipv4_addr", "ip6 saddr": "ipv6_addr", "ip6 daddr": "ipv6_addr", "proto-src": "inet_service", "proto-dst": "inet_service"}

// selectorOf understands an expression that takes something from a packet. ok is false for one that is not known.
func (r *nftRule) selectorOf(n *node) (s *selector, ok bool, err error) {
	if n == nil {
		return nil, false, nil
	}
	key, v, one := n.only()
	if !one {
		return nil, false, nil
	}
	switch key {
	case "payload":
		return r.payload(v)
	case "meta", "ct":
		return r.meta(key, v)
	case "fib":
		return r.fib(v)
	case "map":
		// What it gives is not known, but what its key relies on is tested.
		inner, _, err := r.selectorOf(v.get("key"))
		if err != nil || v.get("key") == nil {
			return nil, false, err
		}
		out := &selector{typed: typed{size: 4}, self: &nftables.Opaque{Name: "map", Why: "it is taken from a map"}, need: func() {}}
		if inner != nil && inner.self == nil {
			out.need = inner.need
		}
		return out, true, nil
	case "rt", "socket", "numgen", "jhash", "symhash", "osf", "exthdr", "tcp option", "ip option", "sctp chunk", "ipsec", "dccp option":
		return &selector{typed: typed{size: 4}, self: &nftables.Opaque{Name: key, Why: "it is not modelled"}}, true, nil
	}
	return nil, false, nil
}

func (r *nftRule) payload(n *node) (*selector, bool, error) {
	if n.get("base") != nil {
		return r.rawPayload(n)
	}
	protocol, err := r.needText(n, "protocol")
	if err != nil {
		return nil, false, err
	}
	h, known := headers[protocol]
	if !known {
		if strings.Contains(" "+foreignHeaders+" ", " "+protocol+" ") {
			return &selector{typed: typed{size: 4}, self: &nftables.Opaque{Name: protocol, Why: "the header is not modelled"}}, true, nil
		}
		return nil, false, r.wrong(n.get("protocol"), "no header of this name is known")
	}
	name, err := r.needText(n, "field")
	if err != nil {
		return nil, false, err
	}
	field, known := h.fields[name]
	if !known {
		return nil, false, r.wrong(n.get("field"), "the header %s has no field of this name", protocol)
	}
	s := r.bitsOf(h.base, field.at, field.bits)
	if t, ok := dataType(field.typ); ok {
		s.name, s.id = t.name, t.id
	}
	s.need = func() { r.depend(h) }
	return s, true, nil
}

// bitsOf loads the bytes that have the bits.
func (r *nftRule) bitsOf(base uint32, at, bits int) *selector {
	first, behind := at/8, (at+bits+7)/8
	s := &selector{typed: typed{name: "integer", id: integerType, size: behind - first}, need: func() {}}
	if bits != 8*s.size {
		s.shift, s.bits = 8*behind-at-bits, bits
		s.mask = make([]byte, s.size)
		for i := at - 8*first; i < at-8*first+bits; i++ {
			s.mask[i/8] |= 0x80 >> (i % 8)
		}
	}
	p := nftables.Payload{Base: base, Offset: uint32(first), Len: uint32(s.size)}
	s.load = func(dst nftables.Reg) nftables.Expr { e := p; e.Dst = dst; return &e }
	return s
}

func (r *nftRule) rawPayload(n *node) (*selector, bool, error) {
	name, err := r.needText(n, "base")
	if err != nil {
		return nil, false, err
	}
	base, known := map[string]uint32{"ll": 0, "nh": 1, "th": 2, "ih": 3}[name]
	if !known {
		return nil, false, r.wrong(n.get("base"), "there are ll, nh, th and ih")
	}
	at, err := r.optional(n, "offset", 0, 0, 8*255)
	if err != nil {
		return nil, false, err
	}
	bits, err := r.optional(n, "len", 0, 1, 128)
	if err != nil {
		return nil, false, err
	}
	return r.bitsOf(base, int(at), int(bits)), true, nil
}

// depend adds the tests that nft puts in front of a header's fields.
func (r *nftRule) depend(h header) {
	if h.base == 0 {
		if r.family == families["inet"] || r.family == families["ip"] || r.family == families["ip6"] {
			if !r.link {
				r.test("iiftype", 1)
			}
			r.link = true
		}
		return
	}
	if h.proto != 0 && r.proto != h.proto && (h.base == 1 || r.family != families["ip"] && r.family != families["ip6"]) {
		r.needProto(h.proto)
	}
	if h.base == 2 && h.l4 > 0 && r.l4 != h.l4 {
		r.test("l4proto", uint64(h.l4))
		r.l4 = h.l4
	}
}

func (r *nftRule) needProto(proto int) {
	if r.family == families["inet"] {
		r.test("nfproto", map[int]uint64{4: 2, 6: 10}[proto])
	} else {
		r.test("protocol", map[int]uint64{4: 0x0800, 6: 0x86dd}[proto])
	}
	r.proto = proto
}

// test is a comparison of metadata with a number.
func (r *nftRule) test(meta string, n uint64) {
	key, size, host, _ := nftables.MetaNamed(meta)
	t := typed{size: size, host: host}
	r.add(&nftables.Meta{Key: key, Dst: 0})
	r.add(&nftables.Cmp{Src: 0, Op: nftables.Eq, Data: t.bytes(bigOf(n))})
}

func (r *nftRule) meta(kind string, n *node) (*selector, bool, error) {
	name, err := r.needText(n, "key")
	if err != nil {
		return nil, false, err
	}
	s := &selector{need: func() {}}
	var known bool
	var key uint32
	typeName := metaTypes[name]
	if kind == "meta" {
		key, s.size, s.host, known = nftables.MetaNamed(name)
		s.load = func(dst nftables.Reg) nftables.Expr { return &nftables.Meta{Key: key, Dst: dst} }
	} else {
		dir := -1
		switch d := n.get("dir"); {
		case d.is("original"):
			dir = 0
		case d.is("reply"):
			dir = 1
		case d != nil:
			return nil, false, r.wrong(d, "a direction is original or reply")
		}
		if family := map[byte]string{families["ip"]: "ip ", families["ip6"]: "ip6 "}[r.family]; family != "" && (name == "saddr" || name == "daddr") {
			name = family + name
		}
		typeName = ctTypes[name]
		key, s.size, s.host, known = nftables.CTNamed(name)
		s.load = func(dst nftables.Reg) nftables.Expr { return &nftables.CT{Key: key, Dir: dir, Dst: dst} }
	}
	if !known {
		return &selector{typed: typed{size: 4}, self: &nftables.Opaque{Name: kind + " " + name, Why: "it is not known"}}, true, nil
	}
	s.name, s.id = "integer", integerType
	if t, ok := dataType(typeName); ok {
		s.name, s.id = t.name, t.id
	} else if kind == "ct" && key != 17 {
		s.name = "" // a value of some form that is not looked at
	}
	return s, true, nil
}

func (r *nftRule) fib(n *node) (*selector, bool, error) {
	result, err := r.needText(n, "result")
	if err != nil {
		return nil, false, err
	}
	code, known := map[string]uint32{"oif": 1, "oifname": 2, "type": 3}[result]
	if !known {
		return nil, false, r.wrong(n.get("result"), "there are oif, oifname and type")
	}
	words, err := r.texts(n.get("flags"))
	if err != nil {
		return nil, false, err
	}
	var flags uint32
	for _, w := range words {
		bit, known := map[string]uint32{"saddr": 1, "daddr": 2, "mark": 4, "iif": 8, "oif": 16}[w]
		if !known {
			return nil, false, r.wrong(n.get("flags"), "there are saddr, daddr, mark, iif and oif")
		}
		flags |= bit
	}
	s := &selector{typed: typed{name: "fib_addrtype", id: 38, size: 4, host: true}, need: func() {}}
	if code != 3 {
		s.name, s.id = "", integerType
	}
	s.load = func(dst nftables.Reg) nftables.Expr { return &nftables.FIB{Dst: dst, Result: code, Flags: flags} }
	return s, true, nil
}

// key loads the parts of a key into registers one behind the other. ok is false, and something opaque is in the rule, when a part
// is not understood.
func (r *nftRule) key(n *node) (parts []*selector, types keyed, ok bool, err error) {
	list := []*node{n}
	if c := n.get("concat"); c != nil {
		list = c.list
	}
	for _, p := range list {
		s, known, err := r.selectorOf(p)
		if err != nil {
			return nil, nil, false, err
		}
		if !known {
			name, _, _ := p.only()
			r.opaque(fmt.Sprintf("expression %q", name), "it is not understood")
			return nil, nil, false, nil
		}
		if s.self != nil {
			r.add(s.self)
			return nil, nil, false, nil
		}
		parts, types = append(parts, s), append(types, s.typed)
	}
	for _, s := range parts {
		s.need()
	}
	return parts, types, true, nil
}
