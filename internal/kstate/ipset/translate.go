// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

const familyIPv6 = 10

// Translate adds sets to a rule set. The answer finds them by the kernel's index, by which rules name them.
func Translate(d *Dump, out *rs.Ruleset) map[uint16]rs.SetID {
	first := rs.SetID(len(out.Sets))
	byIndex := map[uint16]rs.SetID{}
	for i := range d.Sets {
		s := &d.Sets[i]
		if s.Index >= 0 {
			byIndex[uint16(s.Index)] = first + rs.SetID(i)
		}
		out.Sets = append(out.Sets, translate(s, out))
	}
	for i := range d.Sets {
		s := &out.Sets[int(first)+i]
		if s.Type != "list:set" || s.Live {
			continue
		}
		for _, e := range d.Sets[i].Elements {
			member, ok := d.names[e.Member]
			if !ok {
				s.Unknown = fmt.Sprintf("its member %q was not listed", e.Member)
				continue
			}
			s.Members = append(s.Members, first+rs.SetID(member))
		}
		if s.Timeout {
			s.Unknown = "members that expire are not modelled"
		}
	}
	return byIndex
}

func translate(in *Set, out *rs.Ruleset) rs.Set {
	s := rs.Set{Dialect: rs.IPSet, Family: rs.Family(in.Family), Name: in.Name, Type: in.Type, Timeout: in.Timeout, Unknown: in.Problem}
	if in.Head {
		s.Live, s.Index = true, uint16(in.Index)
		switch {
		case s.Unknown != "":
		case in.Counters:
			s.Unknown = "ipset with counters" // which only Linux can move
		case in.Index < 0:
			s.Unknown = "the kernel does not say where its ipsets are"
		case !slices.Contains(rs.LiveTypes, in.Type):
			s.Unknown = in.Type + " changes without notice"
		}
	}
	if in.Type == "list:set" {
		return s
	}
	parts, err := partsOf(in)
	if err != nil && s.Unknown == "" {
		s.Unknown = err.Error()
	}
	for _, p := range parts {
		s.Widths = append(s.Widths, p.width)
		s.Interval = s.Interval || p.network
	}
	if err != nil {
		return s
	}
	s.Elements = make([]rs.Element, 0, len(in.Elements))
	keys := make([]rs.Range, 0, len(in.Elements)*len(parts))
	for i := range in.Elements {
		e := &in.Elements[i]
		for _, proto := range protocols(in, e) {
			from := len(keys)
			for _, p := range parts {
				r, err := p.key(e, proto)
				if err != nil && s.Unknown == "" {
					s.Unknown = err.Error()
				}
				keys = append(keys, r)
			}
			element := rs.Element{Key: keys[from:len(keys):len(keys)], NoMatch: e.NoMatch, Expires: 1000 * uint64(e.Seconds), Counter: rs.NoCounter}
			if in.Counters {
				element.Counter = rs.CounterID(len(out.Counters))
				out.Counters = append(out.Counters, rs.Counter{Packets: e.Packets, Bytes: e.Bytes,
					At: rs.CounterPlace{Kind: rs.ElementCounter, Family: s.Family, Name: in.Name, Key: element.Key}})
			}
			s.Elements = append(s.Elements, element)
		}
	}
	return s
}

// protocols are those that an element stands for. A bitmap:port is asked for TCP and UDP only (ip_set_get_ip_port), and has no
// protocol in its elements: each becomes two.
func protocols(in *Set, e *Element) []uint8 {
	const tcp, udp = 6, 17
	if in.Type == "bitmap:port" {
		return []uint8{tcp, udp}
	}
	return []uint8{e.Proto}
}

// part is one part of a key.
type part struct {
	width   int
	network bool
	key     func(e *Element, proto uint8) (rs.Range, error)
}

// partsOf are the parts of a set's key by its type, in the order in which xt_set asks for them.
func partsOf(in *Set) (out []part, err error) {
	method, dims, _ := strings.Cut(in.Type, ":")
	if method != "hash" && method != "bitmap" {
		return nil, fmt.Errorf("sets of type %q are not modelled", in.Type)
	}
	width := 32
	if in.Family == familyIPv6 {
		width = 128
	}
	addresses := 0
	for _, dim := range strings.Split(dims, ",") {
		switch dim {
		case "ip", "net":
			addresses++
			second := addresses == 2
			netmask := 0
			if dim == "ip" && !second {
				netmask = in.Netmask
			}
			out = append(out, part{width, dim == "net" || netmask != 0, func(e *Element, _ uint8) (rs.Range, error) {
				ip, bits := e.IP, e.CIDR
				if second {
					ip, bits = e.IP2, e.CIDR2
				}
				if netmask != 0 {
					bits = netmask
				}
				return network(ip, bits, width)
			}})
		case "port":
			out = append(out, part{8, false, func(_ *Element, proto uint8) (rs.Range, error) { return rs.Nums(uint64(proto), uint64(proto)), nil }},
				part{16, false, func(e *Element, _ uint8) (rs.Range, error) { return rs.Nums(uint64(e.Port), uint64(e.Port)), nil }})
		case "mac":
			out = append(out, part{48, false, func(e *Element, _ uint8) (rs.Range, error) {
				if !e.HasMAC { // the kernel puts in the first one that it sees
					return rs.Range{Hi: rs.Max(48)}, errors.New("an element without MAC address is not modelled")
				}
				return rs.One(rs.Bytes(e.MAC[:])), nil
			}})
		case "mark":
			out = append(out, part{32, false, func(e *Element, _ uint8) (rs.Range, error) { return rs.Nums(uint64(e.Mark), uint64(e.Mark)), nil }})
		case "iface":
			out = append(out, part{128, false, func(e *Element, _ uint8) (rs.Range, error) {
				if e.Wildcard {
					return rs.Names(e.Iface), nil
				}
				return rs.One(rs.Name(e.Iface)), nil
			}})
		default:
			return nil, fmt.Errorf("sets of type %q are not modelled", in.Type)
		}
	}
	return out, nil
}

// network is the range of an address with a prefix length; -1 is the whole address.
func network(ip netip.Addr, bits, width int) (rs.Range, error) {
	if !ip.IsValid() || ip.BitLen() != width || bits > width {
		return rs.Range{}, fmt.Errorf("an element has the address %v with prefix length %d", ip, bits)
	}
	if bits < 0 {
		return rs.One(rs.Addr(ip)), nil
	}
	return rs.Prefix(netip.PrefixFrom(ip, bits)), nil
}
