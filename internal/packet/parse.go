// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Description is a packet as a person describes it.
type Description struct {
	Raw      []byte // the frame itself, where it was given in hex; then nothing else is set
	Proto    string // udp, tcp, icmp, icmp6, arp, ip
	Src, Dst netip.AddrPort
	options  map[string]value
}

// value is an option's value, as far as its form needs it.
type value struct {
	n    uint64
	list []uint16
	mac  net.HardwareAddr
	text string
}

// form is how an option's value is written.
type form int

const (
	number form = iota
	mac
	tags
	flags
	bare
)

// Option describes one option of the grammar.
type Option struct {
	Name string
	Doc  string
	form form
	max  uint64
	only string // protocols that it applies to, "" for all that have an IP header
}

// Options are all options, in the order of the documentation.
var Options = []Option{
	{"ttl", "time to live or hop limit (64)", number, 255, ""},
	{"tos", "type of service or traffic class, 0-255 or 0x00-0xff (0)", number, 255, ""},
	{"len", "bytes of the whole IP packet (as many as the headers need, and 18 of payload)", number, 65535, ""},
	{"id", "IPv4 identification; identifier of an ICMP echo (1)", number, 65535, ""},
	{"df", "don't fragment", bare, 0, ""},
	{"mf", "more fragments follow", bare, 0, ""},
	{"frag", "fragment offset in bytes, a multiple of 8 (0)", number, 65528, ""},
	{"rr", "an IPv4 record route option", bare, 0, ""},
	{"badsum", "a wrong IPv4 header checksum", bare, 0, ""},
	{"proto", "IP protocol number", number, 255, "ip"},
	{"flags", "TCP flags out of FSRPAUEC (A)", flags, 0, "tcp"},
	{"type", "ICMP type (echo request)", number, 255, "icmp icmp6"},
	{"code", "ICMP code (0)", number, 255, "icmp icmp6"},
	{"seq", "ICMP echo or TCP sequence number (1)", number, 0xffffffff, "icmp icmp6 tcp"},
	{"reply", "an ARP reply, not a request", bare, 0, "arp"},
	{"vlan", "802.1Q tag, or two from outer to inner: vlan=5 or vlan=100,5", tags, 4094, "all"},
	{"svlan", "802.1ad outer tag, put before those of vlan", tags, 4094, "all"},
	{"smac", "source MAC (at a port of a bridge that of the sender, as far as Linux knows it; else 02:00:00:00:00:01)", mac, 0, "all"},
	{"dmac", "destination MAC (the interface's own; of an ARP request broadcast; at a port of a bridge that of the station behind it, as far as Linux knows it; else the bridge's)", mac, 0, "all"},
	{"pad", "length to which the frame is filled up with zeros", number, 65535, "all"},
}

var protocols = []string{"udp", "tcp", "icmp", "icmp6", "arp", "ip"}

// Example is what error messages show.
const Example = `"udp 10.0.0.1:53 > 10.2.0.9:4000 ttl=1"`

// Parse reads a description.
func Parse(text string) (*Description, error) {
	words := strings.Fields(strings.ReplaceAll(text, ">", " > "))
	if len(words) == 0 {
		return nil, fmt.Errorf("the packet is empty; describe it like %s, or give it in hex", Example)
	}
	if !known(protocols, strings.ToLower(words[0])) {
		return parseHex(text, words[0])
	}
	d := &Description{Proto: strings.ToLower(words[0]), options: map[string]value{}}
	rest := words[1:]
	if len(rest) < 3 || rest[1] != ">" {
		return nil, fmt.Errorf("a packet needs its two ends behind %q, source > destination, as in %s", words[0], Example)
	}
	var err error
	if d.Src, err = d.end(rest[0]); err != nil {
		return nil, fmt.Errorf("source %q: %w", rest[0], err)
	}
	if d.Dst, err = d.end(rest[2]); err != nil {
		return nil, fmt.Errorf("destination %q: %w", rest[2], err)
	}
	for _, word := range rest[3:] {
		if err := d.option(word); err != nil {
			return nil, err
		}
	}
	return d, d.check()
}

func known(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func parseHex(text, first string) (*Description, error) {
	clean := strings.NewReplacer(" ", "", ":", "", "\n", "", "\t", "").Replace(strings.TrimPrefix(text, "0x"))
	raw, err := hex.DecodeString(clean)
	if errors.Is(err, hex.ErrLength) {
		return nil, fmt.Errorf("a frame in hex has two digits for each byte, this one has %d digits", len(clean))
	}
	if err != nil {
		return nil, fmt.Errorf("%q is neither hex nor a protocol; these are known: %s. An example: %s", first, strings.Join(protocols, ", "), Example)
	}
	if len(raw) < 14 || len(raw) > 65535 {
		return nil, fmt.Errorf("a frame in hex has 14 (the Ethernet header) to 65535 bytes, this one has %d", len(raw))
	}
	return &Description{Raw: raw}, nil
}

func (d *Description) hasPorts() bool { return d.Proto == "udp" || d.Proto == "tcp" }

// end reads one end: an address, with a port where the protocol has ports.
func (d *Description) end(s string) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		if !d.hasPorts() {
			return ap, fmt.Errorf("%s has no ports; leave out %q", d.Proto, fmt.Sprintf(":%d", ap.Port()))
		}
		return ap, noZone(ap.Addr())
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		want := "an IPv4 or IPv6 address"
		if d.hasPorts() {
			want += " with a port, like 10.0.0.1:53 or [fd00::1]:53"
		}
		return netip.AddrPort{}, fmt.Errorf("not %s", want)
	}
	var port uint16
	if d.hasPorts() {
		port = 9 // discard
	}
	return netip.AddrPortFrom(a, port), noZone(a)
}

func noZone(a netip.Addr) error {
	if a.Zone() != "" {
		return fmt.Errorf("the zone %q means nothing in a packet; leave it out", "%"+a.Zone())
	}
	return nil
}

func (d *Description) option(word string) error {
	name, text, given := strings.Cut(word, "=")
	name = strings.ToLower(name)
	for _, o := range Options {
		if o.Name != name {
			continue
		}
		if !o.applies(d.Proto) {
			return fmt.Errorf("option %q does not apply to %s", name, d.Proto)
		}
		if _, twice := d.options[name]; twice {
			return fmt.Errorf("option %q is given twice", name)
		}
		if given == (o.form == bare) {
			if given {
				return fmt.Errorf("option %q takes no value", name)
			}
			return fmt.Errorf("option %q needs a value: %s=…, %s", name, name, o.Doc)
		}
		v, err := o.read(text)
		if err != nil {
			return fmt.Errorf("option %s: %w (%s)", word, err, o.Doc)
		}
		d.options[name] = v
		return nil
	}
	var names []string
	for _, o := range Options {
		if o.applies(d.Proto) {
			names = append(names, o.Name)
		}
	}
	return fmt.Errorf("unknown option %q; for %s these are known: %s", word, d.Proto, strings.Join(names, ", "))
}

func (o Option) applies(proto string) bool {
	if o.only == "" {
		return proto != "arp"
	}
	return o.only == "all" || known(strings.Fields(o.only), proto)
}

func (o Option) read(text string) (v value, err error) {
	v.text = text
	switch o.form {
	case number:
		if v.n, err = strconv.ParseUint(text, 0, 64); err != nil || v.n > o.max {
			return v, fmt.Errorf("not a number from 0 to %d", o.max)
		}
	case mac:
		if v.mac, err = net.ParseMAC(text); err != nil || len(v.mac) != 6 {
			return v, fmt.Errorf("not an address like 02:00:00:00:00:01")
		}
	case tags:
		for _, t := range strings.Split(text, ",") {
			n, err := strconv.ParseUint(t, 10, 16)
			if err != nil || n > o.max {
				return v, fmt.Errorf("%q is not a VLAN from 0 to %d", t, o.max)
			}
			v.list = append(v.list, uint16(n))
		}
		if len(v.list) > 2 {
			return v, fmt.Errorf("more than two tags")
		}
	case flags:
		if strings.Trim(strings.ToUpper(text), flagLetters) != "" {
			return v, fmt.Errorf("flags are out of %s", flagLetters)
		}
		v.text = strings.ToUpper(text)
	}
	return v, nil
}

// check finds what does not go together.
func (d *Description) check() error {
	src, dst := d.Src.Addr(), d.Dst.Addr()
	if src.Is4() != dst.Is4() {
		return fmt.Errorf("%s and %s are of different families", src, dst)
	}
	v6 := !src.Is4()
	switch {
	case v6 && (d.Proto == "icmp" || d.Proto == "arp"):
		return fmt.Errorf("%s goes between IPv4 addresses; for IPv6 use icmp6", d.Proto)
	case !v6 && d.Proto == "icmp6":
		return fmt.Errorf("icmp6 goes between IPv6 addresses; for IPv4 use icmp")
	}
	if v6 {
		if d.Has("id") && d.Proto != "icmp6" {
			return fmt.Errorf("option %q is of IPv4 or of an ICMP echo; an IPv6 header has no such field", "id")
		}
		for _, name := range []string{"df", "mf", "frag", "rr", "badsum"} {
			if d.Has(name) {
				return fmt.Errorf("option %q is of IPv4; an IPv6 header has no such field", name)
			}
		}
	}
	if d.number("frag", 0)%8 != 0 {
		return fmt.Errorf("option frag: an offset is a multiple of 8 bytes")
	}
	return nil
}

// Has says whether an option is given.
func (d *Description) Has(name string) bool { _, ok := d.options[name]; return ok }

// From has the packet sent by another station than the usual one.
func (d *Description) From(mac net.HardwareAddr) { d.options["smac"] = value{mac: mac} }

func (d *Description) number(name string, otherwise uint64) uint64 {
	if v, ok := d.options[name]; ok {
		return v.n
	}
	return otherwise
}
