// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// setModules are where the types of ipset are that programs read, in a kernel that has it as modules.
var setModules = []string{
	"ip_set", "ip_set_hash_ip", "ip_set_hash_net", "ip_set_hash_ipport", "ip_set_hash_netport", "ip_set_hash_ipportip", "ip_set_hash_ipportnet",
	"ip_set_hash_netiface", "ip_set_hash_netnet", "ip_set_hash_netportnet", "ip_set_hash_ipmark", "ip_set_hash_mac", "ip_set_hash_ipmac", "ip_set_bitmap_ip", "ip_set_bitmap_port", "ip_set_bitmap_ipmac", "ip_set_list_set",
}

// setLayout is how the kernel's ipsets are read live (bpf/node/ipset.h). What is not known stays zero: programs leave such sets to Linux.
type setLayout struct {
	at    bpfobj.Sets
	kinds map[image.SetKind]bpfobj.SetKind
}

// lacks says whether a set is asked whose kind is not known (yet).
func (l *setLayout) lacks(sets []image.Set) bool {
	for _, s := range sets {
		if _, known := l.kinds[s.Kind]; !known {
			return true
		}
	}
	return false
}

// put writes how each kind is asked.
func (l *setLayout) put(b []byte) error {
	for i, k := range image.SetKinds {
		kind := l.kinds[k]
		copyName(&kind.Name, k.Type)
		if _, err := binary.Encode(b[i*image.SetKindSize:], binary.NativeEndian, &kind); err != nil {
			return fmt.Errorf("encoding how sets of type %s are asked: %w", k.Type, err)
		}
	}
	return nil
}

func copyName(to *[2]uint64, name string) {
	var b [16]byte
	copy(b[:], name)
	to[0], to[1] = binary.NativeEndian.Uint64(b[:]), binary.NativeEndian.Uint64(b[8:])
}

// findSets makes the ipsets that a plan's images ask ready to be read. What fails leaves them to Linux.
func (d *Datapath) findSets(images []*image.Image) {
	var asked []image.Set
	for _, im := range images {
		if im != nil {
			asked = append(asked, im.Sets...)
		}
	}
	l := &d.rules.sets
	if len(asked) == 0 || l.at.Inst != 0 && !l.lacks(asked) {
		return
	}
	inst := l.at.Inst
	if found, err := findSetLayout(); err != nil {
		d.objects.log.Warn("rules that ask ipsets are left to Linux", "err", err)
		return
	} else {
		*l = found
	}
	for _, s := range asked {
		if l.at.Inst = inst; inst != 0 {
			return
		}
		var err error
		if inst, err = d.findSet(s); err != nil {
			d.objects.log.Warn("rules that ask ipsets are left to Linux", "err", err)
		}
	}
	l.at.Inst = inst
}

// findSet asks where the namespace of the calling thread has its list of sets, which one of them shows.
func (d *Datapath) findSet(s image.Set) (uint64, error) {
	q := bpfobj.SetsQuery{At: d.rules.sets.at, Index: uint32(s.Index)}
	var name [32]byte
	copy(name[:31], s.Name)
	for i := range q.Name {
		q.Name[i] = binary.NativeEndian.Uint64(name[8*i:])
	}
	b := make([]byte, binary.Size(q))
	if _, err := binary.Encode(b, binary.NativeEndian, &q); err != nil {
		return 0, fmt.Errorf("encoding the query for ipsets: %w", err)
	}
	finder, err := d.objects.setFinder()
	if err != nil {
		return 0, err
	}
	if _, err := finder.Run(&ebpf.RunOptions{Context: b, ContextOut: b}); err != nil {
		return 0, fmt.Errorf("looking for the list of ipsets: %w", err)
	}
	if _, err := binary.Decode(b, binary.NativeEndian, &q); err != nil {
		return 0, fmt.Errorf("decoding the query for ipsets: %w", err)
	}
	if q.At.Inst == 0 {
		return 0, fmt.Errorf("ipset %s is not found in the kernel's memory", s.Name)
	}
	return q.At.Inst, nil
}

// findSetLayout reads the layout of ipset's structures from the kernel's type information.
func findSetLayout() (out setLayout, err error) {
	types, _, err := typesOf(setModules)
	if err != nil {
		return out, err
	}
	t := setTypes{specs: types}
	return t.layout()
}

// setTypes finds structures and where their members are. The first that is not as the data path expects is remembered.
type setTypes struct {
	specs []*btf.Spec
	err   error
}

// at is the offset in bytes of a member that has to have a size in bytes, 0 for any.
func (t *setTypes) at(name, member string, size int) uint32 {
	m := t.member(name, member)
	if t.err != nil {
		return 0
	}
	if n, err := btf.Sizeof(m.Type); err != nil || size != 0 && n != size {
		t.err = fmt.Errorf("struct %s: %s has %d bytes, not %d", name, member, n, size)
	}
	return uint32(m.Offset.Bytes())
}

// member finds a member of a structure.
func (t *setTypes) member(name, member string) btf.Member {
	if t.err != nil {
		return btf.Member{}
	}
	st := t.find(name)
	if st == nil {
		t.err = fmt.Errorf("no struct %s", name)
		return btf.Member{}
	}
	all := members(st)
	at := slices.IndexFunc(all, func(m btf.Member) bool { return m.Name == member })
	if at < 0 {
		t.err = fmt.Errorf("struct %s has no %s", name, member)
		return btf.Member{}
	}
	return all[at]
}

// find is a structure of the first that has it, the kernel or a module; nil if none has.
func (t *setTypes) find(name string) *btf.Struct {
	for _, s := range t.specs {
		var st *btf.Struct
		if s.TypeByName(name, &st) == nil {
			return st
		}
	}
	return nil
}

// members are those of a structure, and what a union in it that has no name offers.
func members(st *btf.Struct) (out []btf.Member) {
	for _, m := range st.Members {
		union, _ := m.Type.(*btf.Union)
		if m.Name != "" || union == nil {
			out = append(out, m)
			continue
		}
		for _, in := range union.Members {
			in.Offset += m.Offset
			out = append(out, in)
		}
	}
	return out
}

// are checks where members of an element lie, in bits.
func (t *setTypes) are(name string, want map[string]btf.Bits) {
	if t.err != nil {
		return
	}
	st := t.find(name)
	if st == nil {
		t.err = fmt.Errorf("no struct %s", name)
		return
	}
	all := members(st)
	for _, m := range all {
		if at, ok := want[m.Name]; !ok || at != m.Offset {
			t.err = fmt.Errorf("struct %s: %s is not where it is expected", name, m.Name)
		}
	}
	if len(all) != len(want) {
		t.err = fmt.Errorf("struct %s has other members", name)
	}
}

// enum checks a number that programs have as a constant.
func (t *setTypes) enum(name, value string, want uint64) {
	for _, s := range t.specs {
		var e *btf.Enum
		if t.err != nil || s.TypeByName(name, &e) != nil {
			continue
		}
		for _, v := range e.Values {
			if v.Name == value && v.Value == want {
				return
			}
		}
	}
	if t.err == nil {
		t.err = fmt.Errorf("%s is not %d", value, want)
	}
}

// layout puts together what the kernel has; kinds of sets that it has not, or keeps in another way, are left out.
func (t *setTypes) layout() (out setLayout, err error) {
	short := func(name, member string, size int) uint16 { return uint16(t.at(name, member, size)) }
	const pointer, word = 8, 8
	out.kinds = map[image.SetKind]bpfobj.SetKind{}
	out.at = bpfobj.Sets{
		List: short("ip_set_net", "ip_set_list", pointer),
		Name: short("ip_set", "name", 32), Type: short("ip_set", "type", pointer), Family: short("ip_set", "family", 1), Extensions: short("ip_set", "extensions", 1),
		Dsize: short("ip_set", "dsize", word), Timeout: short("ip_set", "offset", 4*word) + word*extensionTimeout, Data: short("ip_set", "data", pointer),
		TypeName: short("ip_set_type", "name", 32),
	}
	if n := out.at.Extensions - out.at.Family; t.err == nil && (n < 1 || n > 3) { // programs read both in one word
		t.err = fmt.Errorf("struct ip_set: extensions are %d bytes behind family", int16(n))
	}
	t.enum("ip_set_ext_id", "IPSET_EXT_ID_TIMEOUT", extensionTimeout)
	t.enum("ip_set_extension", "IPSET_EXT_TIMEOUT", 1) // SET_TIMEOUT and SET_COUNTER in bpf/node/ipset.h
	t.enum("ip_set_extension", "IPSET_EXT_COUNTER", 2)
	if t.err != nil {
		return out, t.err
	}
	out.at.Bits, out.at.Bucket = short("htable", "htable_bits", 1), short("htable", "bucket", 0)
	out.at.Used, out.at.Value = short("hbucket", "used", word), short("hbucket", "value", 0)
	if t.err != nil { // no hash is known
		t.err, out.at.Bucket = nil, 0
	}
	for _, k := range image.SetKinds {
		kind := t.kind(k)
		if t.err == nil && kind.Method == bpfobj.SetList {
			out.at.Member, out.at.MemberId = short("set_elem", "list", 2*pointer), short("set_elem", "id", 2)
		}
		if t.err == nil && (kind.Method != bpfobj.SetHash || out.at.Bucket != 0) {
			out.kinds[k] = kind
		}
		t.err = nil
	}
	if len(out.kinds) == 0 {
		return out, errors.New("the kernel's type information does not describe its ipsets as expected")
	}
	return out, nil
}

// extensionTimeout is IPSET_EXT_ID_TIMEOUT, the place of an element's end among its extensions (include/linux/netfilter/ipset/ip_set.h).
const extensionTimeout = 1
