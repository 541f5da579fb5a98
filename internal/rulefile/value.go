// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"net/netip"
	"strconv"
	"strings"
)

// number reads a number, decimal or with 0x, up to max.
func (r *reader) number(w word, max uint64) (uint64, error) {
	n, err := strconv.ParseUint(w.text, 0, 64)
	if err != nil || n > max || strings.ContainsAny(w.text, "_oObB") && !strings.HasPrefix(strings.ToLower(w.text), "0x") {
		return 0, r.fail(w, "a number from 0 to %d is expected", max)
	}
	return n, nil
}

// numbers reads "n" or "low:high"; either end may be missing.
func (r *reader) numbers(w word, max uint64) (lo, hi uint64, err error) {
	low, high, isRange := w.cut(':')
	if !isRange {
		lo, err = r.number(w, max)
		return lo, lo, err
	}
	hi = max
	if low.text != "" {
		if lo, err = r.number(low, max); err != nil {
			return 0, 0, err
		}
	}
	if high.text != "" {
		if hi, err = r.number(high, max); err != nil {
			return 0, 0, err
		}
	}
	if lo > hi {
		return 0, 0, r.fail(w, "the range ends before it begins")
	}
	return lo, hi, nil
}

// valueMask reads "value" or "value/mask".
func (r *reader) valueMask(w word, max uint64) (value, mask uint64, err error) {
	mask = max
	v, m, masked := w.cut('/')
	if value, err = r.number(v, max); err == nil && masked {
		mask, err = r.number(m, max)
	}
	return value, mask, err
}

// addr reads one address of the family.
func (r *reader) addr(w word, six bool) (netip.Addr, error) {
	a, err := netip.ParseAddr(w.text)
	switch {
	case err != nil && looksLikeName(w.text):
		return a, r.fail(w, "names are not looked up; write the address")
	case err != nil || a.Zone() != "":
		return a, r.fail(w, "an %s address is expected", familyName(six))
	case a.Is4() == six:
		if six {
			return a, r.fail(w, "an IPv4 address in a file of ip6tables")
		}
		return a, r.fail(w, "an IPv6 address in a file of iptables; for ip6tables say so with --family ip6")
	}
	return a, nil
}

// addresses reads "address" or "first-last".
func (r *reader) addresses(w word, six bool) (lo, hi netip.Addr, err error) {
	first, last, isRange := w.cut('-')
	if !isRange {
		last = first
	}
	if lo, err = r.addr(first, six); err == nil {
		hi, err = r.addr(last, six)
	}
	if err == nil && hi.Less(lo) {
		err = r.fail(w, "the range ends before it begins")
	}
	return lo, hi, err
}

func familyName(six bool) string {
	if six {
		return "IPv6"
	}
	return "IPv4"
}

func looksLikeName(s string) bool {
	return s != "" && !strings.ContainsAny(s, ":/") && strings.ContainsFunc(s, func(c rune) bool { return c >= 'g' && c <= 'z' || c >= 'G' && c <= 'Z' })
}

// masked reads an address with a prefix length or a mask, as bytes; what the mask leaves out is zero.
func (r *reader) masked(w word, six bool) (addr, mask []byte, err error) {
	text, m, given := w.cut('/')
	a, err := r.addr(text, six)
	if err != nil {
		return nil, nil, err
	}
	addr = a.AsSlice()
	mask = make([]byte, len(addr))
	switch n, numErr := strconv.Atoi(m.text); {
	case !given:
		fill(mask, 8*len(mask))
	case numErr == nil && n >= 0 && n <= 8*len(mask):
		fill(mask, n)
	case numErr == nil:
		return nil, nil, r.fail(m, "a prefix length from 0 to %d is expected", 8*len(mask))
	default:
		b, err := netip.ParseAddr(m.text)
		if err != nil || b.Is4() == six || b.Zone() != "" {
			return nil, nil, r.fail(m, "a prefix length or a mask is expected")
		}
		mask = b.AsSlice()
	}
	for i := range addr {
		addr[i] &= mask[i]
	}
	return addr, mask, nil
}

func fill(mask []byte, bits int) {
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
}

// oneOf reads a word out of a list, by its place in it.
func (r *reader) oneOf(w word, names []string) (int, error) {
	for i, n := range names {
		if n != "" && strings.EqualFold(n, w.text) {
			return i, nil
		}
	}
	var known []string
	for _, n := range names {
		if n != "" {
			known = append(known, n)
		}
	}
	return 0, r.fail(w, "there are %s", strings.Join(known, ", "))
}

// bits reads a list of words, each a bit.
func (r *reader) bits(w word, names []string) (bits uint32, err error) {
	err = w.each(',', func(part word) error {
		n, err := r.oneOf(part, names)
		bits |= 1 << n
		return err
	})
	return bits, err
}

// protocols that can be named. A number does for every one.
var protocols = map[string]uint16{
	"all": 0, "ip": 0, "icmp": 1, "igmp": 2, "ggp": 3, "ipencap": 4, "ipv4": 4, "ipip": 94, "tcp": 6, "egp": 8, "udp": 17, "dccp": 33, "ipv6": 41,
	"rsvp": 46, "gre": 47, "esp": 50, "ipv6-crypt": 50, "ah": 51, "ipv6-auth": 51, "ipv6-icmp": 58, "icmpv6": 58, "ospf": 89, "ospfigp": 89,
	"pim": 103, "vrrp": 112, "l2tp": 115, "sctp": 132, "mobility-header": 135, "ipv6-mh": 135, "mh": 135, "udplite": 136,
}

// services that can be named as ports.
var services = map[string]uint64{
	"ftp-data": 20, "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "bootps": 67, "bootpc": 68, "tftp": 69, "http": 80,
	"pop3": 110, "sunrpc": 111, "ntp": 123, "imap2": 143, "imap": 143, "snmp": 161, "bgp": 179, "ldap": 389, "https": 443, "syslog": 514,
	"ldaps": 636, "imaps": 993, "pop3s": 995, "openvpn": 1194, "mysql": 3306, "postgresql": 5432,
}

func (r *reader) port(w word) (uint64, error) {
	if n, known := services[w.text]; known {
		return n, nil
	}
	n, err := r.number(w, 0xffff)
	if err != nil && looksLikeName(w.text) {
		return 0, r.fail(w, "no port is known by this name; write its number")
	}
	return n, err
}

// ports reads "port" or "low:high".
func (r *reader) ports(w word) (lo, hi uint64, err error) {
	low, high, isRange := w.cut(':')
	if !isRange {
		lo, err = r.port(w)
		return lo, lo, err
	}
	hi = 0xffff
	if low.text != "" {
		if lo, err = r.port(low); err != nil {
			return 0, 0, err
		}
	}
	if high.text != "" {
		if hi, err = r.port(high); err != nil {
			return 0, 0, err
		}
	}
	if lo > hi {
		return 0, 0, r.fail(w, "the range ends before it begins")
	}
	return lo, hi, nil
}
