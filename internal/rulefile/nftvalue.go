// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"encoding/binary"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
)

// typed is a data type of nft with the bytes that a value of it has, and the place of its bits in them.
type typed struct {
	name  string
	id    int
	size  int
	host  bool // the bytes lie in the machine's order
	shift int
	bits  int // 0 for all of them
}

const integerType = 4

// bytes of a number in the type's order.
func (t *typed) bytes(n *big.Int) []byte {
	n = new(big.Int).Lsh(n, uint(t.shift))
	out := n.FillBytes(make([]byte, t.size))
	if t.host && binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		slices.Reverse(out)
	}
	return out
}

func (t *typed) width() int {
	if t.bits > 0 {
		return t.bits
	}
	return 8 * t.size
}

// number reads a value as a number.
func (f *nftFile) numberOf(n *node, t *typed) (*big.Int, error) {
	switch n.kind {
	case numeral:
		v, ok := new(big.Int).SetString(n.text, 10)
		if !ok || v.Sign() < 0 || v.BitLen() > t.width() {
			return nil, f.wrong(n, "a number of %d bits is expected", t.width())
		}
		return v, nil
	case boolean:
		if t.width() != 1 && t.name != "boolean" && t.size != 1 {
			return nil, f.wrong(n, "a value of type %s is expected", t.name)
		}
		return big.NewInt(map[string]int64{"true": 1}[n.text]), nil
	case array: // several bits
		out := new(big.Int)
		for _, e := range n.list {
			v, err := f.numberOf(e, t)
			if err != nil {
				return nil, err
			}
			out.Or(out, v)
		}
		return out, nil
	case text:
		return f.wordOf(n, t)
	}
	if list := n.get("|"); list != nil && list.kind == array {
		return f.numberOf(list, t)
	}
	return nil, errNoValue
}

// wordOf reads a value that is written as a text.
func (f *nftFile) wordOf(n *node, t *typed) (*big.Int, error) {
	bytes := func(b []byte) *big.Int { return new(big.Int).SetBytes(b) }
	switch t.name {
	case "ipv4_addr", "ipv6_addr":
		a, err := netip.ParseAddr(n.text)
		if err != nil || a.Is4() != (t.name == "ipv4_addr") || a.Zone() != "" {
			return nil, f.wrong(n, "an %s address is expected", familyName(t.name == "ipv6_addr"))
		}
		return bytes(a.AsSlice()), nil
	case "ether_addr":
		mac, err := net.ParseMAC(n.text)
		if err != nil || len(mac) != 6 {
			return nil, f.wrong(n, "a MAC address is expected")
		}
		return bytes(mac), nil
	case "ifname":
		if len(n.text) > 15 || n.text == "" {
			return nil, f.wrong(n, "the name of an interface has 1 to 15 characters")
		}
		b := make([]byte, 16)
		copy(b, n.text)
		return bytes(b), nil
	case "iface_index":
		if n.text == "lo" {
			return big.NewInt(1), nil
		}
		return nil, errNoValue // known only where the interface is
	}
	if v, ok := nftables.ValueNamed(t.name, n.text); ok {
		return new(big.Int).SetUint64(v), nil
	}
	if v, err := strconv.ParseUint(n.text, 0, 64); err == nil {
		if out := new(big.Int).SetUint64(v); out.BitLen() <= t.width() {
			return out, nil
		}
	}
	if t.name == "inet_service" {
		if v, ok := services[n.text]; ok {
			return new(big.Int).SetUint64(v), nil
		}
	}
	if v, ok := classOf(n.text); ok && t.name == "classid" {
		return new(big.Int).SetUint64(uint64(v)), nil
	}
	if openNames[t.name] {
		return nil, errNoValue
	}
	return nil, f.wrong(n, "no value of type %s has this name", t.name)
}

// classOf is the handle of a class, major:minor in hexadecimal digits, as nft and tc write priorities.
func classOf(text string) (uint32, bool) {
	switch text {
	case "none":
		return 0, true
	case "root":
		return ^uint32(0), true
	}
	major, minor, ok := strings.Cut(text, ":")
	hi, err1 := strconv.ParseUint(major, 16, 16)
	lo, err2 := strconv.ParseUint(minor, 16, 16)
	return uint32(hi<<16 | lo), ok && err1 == nil && err2 == nil
}

// openNames are types whose names are configured on each machine.
var openNames = map[string]bool{"devgroup": true, "realm": true, "mark": true, "uid": true, "gid": true, "classid": true, "inet_service": true, "iface_type": true,
	"inet_proto": true, "icmp_code": true, "icmpv6_code": true, "ether_type": true, "integer": true, "": true}

// errNoValue says that an expression is well formed and no value that is known here.
var errNoValue = &Error{Why: "no value"}

// span is a value or a range of them.
type span struct {
	lo, hi *big.Int
	many   bool
}

// spanOf reads a value, a prefix, a range, or a name with a wildcard.
func (f *nftFile) spanOf(n *node, t *typed) (s span, err error) {
	if p := n.get("prefix"); p != nil {
		if s.lo, err = f.prefixOf(p, t); err != nil {
			return s, err
		}
		length, err := f.prefixLength(p, t)
		if err != nil {
			return s, err
		}
		host := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(t.width()-length)), big.NewInt(1))
		s.hi = new(big.Int).Or(s.lo, host)
		s.lo = new(big.Int).AndNot(s.lo, host)
		s.many = true
		return s, nil
	}
	if r := n.get("range"); r != nil {
		if r.kind != array || len(r.list) != 2 {
			return s, f.wrong(r, "a range has two ends")
		}
		if s.lo, err = f.numberOf(r.list[0], t); err == nil {
			s.hi, err = f.numberOf(r.list[1], t)
		}
		if err == nil && s.lo.Cmp(s.hi) > 0 {
			err = f.wrong(r, "the range ends before it begins")
		}
		s.many = true
		return s, err
	}
	if t.name == "ifname" && n.kind == text && strings.HasSuffix(n.text, "*") {
		b, end := make([]byte, 16), make([]byte, 16)
		for i := copy(b, n.text[:len(n.text)-1]); i < 16; i++ {
			end[i] = 0xff
		}
		s.lo = new(big.Int).SetBytes(b)
		s.hi = new(big.Int).Or(s.lo, new(big.Int).SetBytes(end))
		s.many = true
		return s, nil
	}
	s.lo, err = f.numberOf(n, t)
	s.hi = s.lo
	return s, err
}

func (f *nftFile) prefixOf(p *node, t *typed) (*big.Int, error) {
	addr := p.get("addr")
	if addr == nil {
		return nil, f.wrong(p, "%q is missing", "addr")
	}
	return f.numberOf(addr, t)
}

func (f *nftFile) prefixLength(p *node, t *typed) (int, error) {
	n, err := f.need(p, "len", numeral)
	if err != nil {
		return 0, err
	}
	length, err := f.number(n, 0, int64(t.width()))
	return int(length), err
}

// dataType is a type by its name.
func dataType(name string) (typed, bool) {
	t, ok := nftables.TypeNamed(name)
	return typed{name: name, id: t.ID, size: t.Size, host: t.Host}, ok
}
