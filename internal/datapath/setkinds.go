// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// kind is how sets of a type and family are asked.
func (t *setTypes) kind(k image.SetKind) bpfobj.SetKind {
	out := bpfobj.SetKind{Family: uint8(k.Family), Dims: uint8(1 + strings.Count(k.Type, ","))}
	switch k.Type {
	case "bitmap:ip":
		const in = "bitmap_ip"
		out.Method, out.Table, out.First, out.Last = bpfobj.SetBitmapIP, t.at(in, "members", 8), t.at(in, "first_ip", 4), t.at(in, "last_ip", 4)
		out.Hosts, out.Mask, out.Extensions = t.at(in, "hosts", 4), t.at(in, "netmask", 1), t.at(in, "extensions", 0)
	case "bitmap:port":
		const in = "bitmap_port"
		out.Method, out.Table, out.First, out.Last = bpfobj.SetBitmapPort, t.at(in, "members", 8), t.at(in, "first_port", 2), t.at(in, "last_port", 2)
		out.Extensions = t.at(in, "extensions", 0)
	case "bitmap:ip,mac":
		const in = "bitmap_ipmac"
		out.Method, out.Table, out.First, out.Last = bpfobj.SetBitmapMAC, t.at(in, "members", 8), t.at(in, "first_ip", 4), t.at(in, "last_ip", 4)
		out.Extensions = t.at(in, "extensions", 0)
		t.are(in+"_elem", map[string]btf.Bits{"ether": 0, "filled": 48})
		t.at(in+"_elem", "ether", 6)
		t.at(in+"_elem", "filled", 1)
	case "list:set":
		out.Method, out.Table = bpfobj.SetList, t.at("list_set", "members", 16)
	default:
		t.hash(k, &out)
	}
	return out
}

// hash is for the types that are hashes of an address, of one with a prefix length, or either with protocol and port, those with a second address, which may
// both have one, and those with a mark, an interface or an address of frames, which may be alone (ip_set_hash_*.c).
func (t *setTypes) hash(k image.SetKind, out *bpfobj.SetKind) {
	net, port, pairs := strings.Contains(k.Type, "net"), strings.Contains(k.Type, "port"), strings.Count(k.Type, "net") == 2
	two := pairs || strings.Count(k.Type, ",") == 2
	iface, mac := strings.HasSuffix(k.Type, "iface"), strings.HasSuffix(k.Type, "mac")
	name, address, lengths := structOf(k), btf.Bits(32), uint32(32)
	if k.Family == ruleset.IP6 {
		address, lengths = 128, 128
	}
	out.Method, out.Table, out.First = bpfobj.SetHash, t.at(name, "table", 8), t.at(name, "initval", 4)
	elem := map[string]btf.Bits{"ip": 0}
	last := address // where the last word begins
	out.Addresses = 1
	if two {
		out.Addresses = 2
		elem["ip2"] = address
		last *= 2
	}
	if pairs {
		delete(elem, "ip2") // ip has two
		if t.at(name+"_elem", "ip", int(last/8)); k.Family == ruleset.IP4 {
			elem["ipcmp"] = 0
		}
		elem["cidr"], elem["ccmp"] = last+16, last+16
		out.Shift, out.Pairs = 24, 1
		t.at(name+"_elem", "cidr", 2)
		out.Words = t.size(name+"_elem") / 4
	}
	switch {
	case pairs && port:
		elem["port"], elem["padding"], elem["nomatch"], elem["proto"] = last, last+32, last+48, last+56
		out.Nomatch, out.Tail = 0xff<<16, bpfobj.TailPort
	case pairs:
		elem["nomatch"], elem["padding"] = last, last+8
		out.Nomatch = 0xff
	case two && net:
		elem["port"], elem["cidr"], elem["nomatch"], elem["proto"] = last, last+16, last+23, last+24
		out.Nomatch, out.Bias, out.Tail, out.Shift = 1<<23, 1, bpfobj.TailPort, 16
	case net && port:
		elem["port"], elem["proto"], elem["cidr"], elem["nomatch"] = last, last+16, last+24, last+31
		out.Nomatch, out.Bias, out.Tail, out.Shift = 1<<31, 1, bpfobj.TailPort, 24
	case iface:
		elem["physdev"], elem["cidr"], elem["nomatch"], elem["elem"], elem["wildcard"], elem["iface"] = last, last+8, last+16, last+24, last+32, last+40
		out.Nomatch, out.Tail, out.Shift = 0xff<<16|0xff, bpfobj.TailIface, 8 // physdev is compared apart
		t.at(name+"_elem", "iface", 16)
		lengths++ // prefixes of length 0, too
	case net:
		elem["padding0"], elem["nomatch"], elem["cidr"] = last, last+16, last+24
		out.Nomatch, out.Shift = 0xff<<16, 24
	case port:
		elem["port"], elem["proto"], elem["padding"] = last, last+16, last+24
		out.Tail = bpfobj.TailPort
	case strings.HasSuffix(k.Type, "mark"):
		elem["mark"] = last
		out.Tail, out.Last = bpfobj.TailMark, t.at(name, "markmask", 4)
	case mac:
		if k.Type == "hash:mac" {
			elem, last, out.Addresses = map[string]btf.Bits{}, 0, 0
		}
		elem["ether"], elem["foo"] = last, last
		out.Tail = bpfobj.TailMAC
		t.at(name+"_elem", "foo", 8)
	}
	t.are(name+"_elem", elem)
	if net {
		out.Nets, out.NetSize, out.Lengths = t.prefixes(name, 1+int(out.Pairs))
		if out.Lengths != lengths && (!pairs || out.Lengths != lengths+1) && t.err == nil { // hash:net,port,net has room for length 0 since Linux 6.6
			t.err = fmt.Errorf("struct %s: %d prefix lengths", name, out.Lengths)
		}
		if !pairs {
			return
		}
	}
	// Addresses can be cut to a network: hash:ip by a length, from Linux 6.3 on either by a mask, and hash:net,net too.
	if t.has(name, "bitmask") {
		out.Mask = t.at(name, "bitmask", 16)
	} else if t.has(name, "netmask") {
		out.Mask, out.MaskBits = t.at(name, "netmask", 1), 1
	}
}

// structOf is the name of the structure that a set of the kind has its own data in.
func structOf(k image.SetKind) string {
	name := strings.NewReplacer(":", "_", ",", "").Replace(k.Type)
	switch {
	case !strings.HasPrefix(k.Type, "hash"):
		return name
	case k.Family == ruleset.IP6:
		return name + "6"
	}
	return name + "4"
}

// prefixes is the list of prefix lengths of a set, of one address or two: where it begins, how large an entry is and how many there are. Every module has a
// struct net_prefixes of its own, so it is found by what has it.
func (t *setTypes) prefixes(name string, of int) (at, size, n uint32) {
	m := t.member(name, "nets")
	list, _ := m.Type.(*btf.Array)
	if list == nil {
		return 0, 0, 0 // and said
	}
	entry, _ := btf.UnderlyingType(list.Type).(*btf.Struct)
	if entry == nil {
		t.err = fmt.Errorf("struct %s: nets is a list of %v", name, list.Type)
		return 0, 0, 0
	}
	for _, in := range entry.Members {
		if bytes, err := btf.Sizeof(in.Type); in.Name == "cidr" && err == nil && bytes == of {
			return uint32(m.Offset.Bytes() + in.Offset.Bytes()), entry.Size, list.Nelems
		}
	}
	t.err = fmt.Errorf("struct %s: nets has no prefix lengths of %d addresses", name, of)
	return 0, 0, 0
}

// size is that of a structure.
func (t *setTypes) size(name string) uint32 {
	if st := t.find(name); st != nil {
		return st.Size
	}
	return 0 // and said, by whoever looks for a member of it
}

// has says whether a structure has a member.
func (t *setTypes) has(name, member string) bool {
	probe := setTypes{specs: t.specs}
	probe.at(name, member, 0)
	return probe.err == nil
}
