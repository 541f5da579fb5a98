// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
)

// keyed are the types of a key's parts.
type keyed []typed

// id is the number of a type that is made of several.
func (k keyed) id() (id uint32) {
	for _, t := range k {
		id = id<<6 | uint32(t.id)
	}
	return id
}

func (k keyed) size() (n int) {
	if len(k) == 1 {
		return k[0].size
	}
	for _, t := range k {
		n += nftables.Padded(t.size)
	}
	return n
}

// typesOf reads the type of a set's key or data; nil for one that is not known.
func (f *nftFile) typesOf(n *node) (keyed, error) {
	names, err := f.texts(n)
	if err != nil || n.kind == object {
		return nil, nil // typeof: newer nft
	}
	var out keyed
	for _, name := range names {
		for _, part := range strings.Split(name, " . ") {
			t, known := dataType(part)
			if !known || t.size == 0 {
				return nil, nil
			}
			out = append(out, t)
		}
	}
	return out, nil
}

// setObject is a set or map with a name.
func (f *nftFile) setObject(n *node, isMap bool) error {
	family, _, table, err := f.at(n, "table")
	if err != nil {
		return err
	}
	s := nftables.Set{Family: family, Table: table}
	if s.Name, err = f.needText(n, "name"); err != nil {
		return err
	}
	at := setKey(family, table, s.Name)
	if _, there := f.sets[at]; there {
		return f.wrong(n.get("name"), "the set is there already")
	}
	index := len(f.dump.Sets)
	f.sets[at] = index
	f.dump.Sets = append(f.dump.Sets, s)
	set := &f.dump.Sets[index]
	if k := n.unknown("family table name handle type map flags elem size timeout gc-interval policy auto-merge comment stmt"); k != "" {
		f.setProblem(index, "%s is not understood", k)
	}
	flags, err := f.texts(n.get("flags"))
	if err != nil {
		return err
	}
	for _, w := range flags {
		bit, known := map[string]uint32{"constant": nftables.SetConstant, "interval": nftables.SetInterval, "timeout": nftables.SetTimeout, "dynamic": nftables.SetEval}[w]
		if !known {
			f.setProblem(index, "the flag %s is not understood", w)
		}
		set.Flags |= bit
	}
	typ := n.get("type")
	if typ == nil {
		return f.wrong(n, "%q is missing", "type")
	}
	key, err := f.typesOf(typ)
	if err != nil {
		return err
	}
	if key == nil {
		f.setProblem(index, "the type of its key is not known")
		return nil
	}
	data, err := f.mapData(n, set, index, isMap)
	if err != nil {
		return err
	}
	f.shape(set, key)
	if elem := n.get("elem"); elem != nil {
		return f.elements(index, key, data, elem)
	}
	return nil
}

// mapData reads the type of a map's data; nil for verdicts.
func (f *nftFile) mapData(n *node, set *nftables.Set, index int, isMap bool) (keyed, error) {
	if !isMap {
		return nil, nil
	}
	typ := n.get("map")
	switch {
	case typ == nil:
		return nil, f.wrong(n, "%q is missing", "map")
	case typ.is("verdict"):
		set.Flags |= nftables.SetMap
		set.DataType, set.DataLen = nftables.TypeVerdict, 16
		return nil, nil
	case typ.kind == text:
		if id, known := nftables.ObjectTypeNamed(typ.text); known {
			set.Flags |= nftables.SetObject
			set.ObjType = id
			return nil, nil
		}
	}
	set.Flags |= nftables.SetMap
	data, err := f.typesOf(typ)
	if err == nil && data == nil {
		f.setProblem(index, "the type of its data is not known")
	}
	if data != nil {
		set.DataType, set.DataLen = data.id(), uint32(data.size())
		set.HostData = len(data) == 1 && data[0].host
	}
	return data, err
}

// shape says how the keys of a set lie in the kernel.
func (f *nftFile) shape(set *nftables.Set, key keyed) {
	set.KeyType, set.KeyLen = key.id(), uint32(key.size())
	set.HostKey = len(key) == 1 && key[0].host
	if len(key) > 1 {
		for _, t := range key {
			set.Fields = append(set.Fields, t.size)
		}
		if set.Flags&nftables.SetInterval != 0 {
			set.Flags |= nftables.SetConcat
		}
	}
}

func (f *nftFile) setProblem(index int, format string, args ...any) {
	if f.dump.SetProblems == nil {
		f.dump.SetProblems = map[int]string{}
	}
	if f.dump.SetProblems[index] == "" {
		f.dump.SetProblems[index] = fmt.Sprintf(format, args...)
	}
}

// elementObject adds elements to a set that is there.
func (f *nftFile) elementObject(n *node) error {
	family, familyName, table, err := f.at(n, "table")
	if err != nil {
		return err
	}
	name, err := f.needText(n, "name")
	if err != nil {
		return err
	}
	index, there := f.sets[setKey(family, table, name)]
	if !there {
		return f.wrong(n.get("name"), "there is no set %s %s %s in the file", familyName, table, name)
	}
	f.setProblem(index, "its elements are written apart from it")
	return nil
}

// elements reads the elements of a set into the form that the kernel has them in.
func (f *nftFile) elements(index int, key, data keyed, list *node) error {
	if list.kind != array {
		return f.wrong(list, "a list of elements is expected")
	}
	for _, n := range list.list {
		if err := f.element(index, key, data, n); err != nil {
			if errors.Is(err, errNoValue) {
				f.setProblem(index, "an element is not understood")
				continue
			}
			return err
		}
	}
	return nil
}

func (f *nftFile) element(index int, key, data keyed, n *node) (err error) {
	set := &f.dump.Sets[index]
	e := nftables.Element{}
	if set.Flags&(nftables.SetMap|nftables.SetObject) != 0 {
		if n.kind != array || len(n.list) != 2 {
			return f.wrong(n, "an element of a map is a list of key and value")
		}
		if set.Flags&nftables.SetObject != 0 {
			return nil // the set as a whole is not understood
		}
		d, err := f.elementData(n.list[1], data)
		if err != nil {
			return err
		}
		e.Data, n = d, n.list[0]
	}
	if inner := n.get("elem"); inner != nil {
		if err := f.elementExtras(inner, index, &e); err != nil {
			return err
		}
		if n = inner.get("val"); n == nil {
			return f.wrong(inner, "%q is missing", "val")
		}
	}
	if n.is("*") {
		e.CatchAll = true
		set.Elements = append(set.Elements, e)
		return nil
	}
	parts := []*node{n}
	if c := n.get("concat"); c != nil {
		parts = c.list
	}
	if len(parts) != len(key) {
		return f.wrong(n, "the key has %d parts", len(key))
	}
	interval := set.Flags&nftables.SetInterval != 0
	var last []byte
	var behind *big.Int
	for i, p := range parts {
		t := key[i]
		t.host = t.host && !interval
		s, err := f.spanOf(p, &t)
		if err != nil {
			return err
		}
		if s.many && !interval {
			return f.wrong(p, "only a set with the flag interval has ranges")
		}
		lo, hi := t.bytes(s.lo), t.bytes(s.hi)
		if len(key) > 1 {
			lo, hi = append(lo, make([]byte, nftables.Padded(t.size)-t.size)...), append(hi, make([]byte, nftables.Padded(t.size)-t.size)...)
		}
		e.Key, last = append(e.Key, lo...), append(last, hi...)
		behind = new(big.Int).Add(new(big.Int).SetBytes(hi), big.NewInt(1))
	}
	if interval && len(key) > 1 {
		e.KeyEnd = last
	}
	set.Elements = append(set.Elements, e)
	if interval && len(key) == 1 && behind.BitLen() <= 8*key[0].size {
		set.Elements = append(set.Elements, nftables.Element{Key: behind.FillBytes(make([]byte, key[0].size)), End: true})
	}
	return nil
}

// elementExtras are the timeout, counter and others of an element.
func (f *nftFile) elementExtras(n *node, index int, e *nftables.Element) error {
	if k := n.unknown("val timeout expires comment counter"); k != "" {
		f.setProblem(index, "an element with %s", k)
	}
	expires, err := f.optional(n, "expires", 0, 0, 1<<40)
	if err != nil {
		return err
	}
	e.Expires = uint64(expires) * 1000
	if c := n.get("counter"); c != nil {
		counter, err := f.counter(c)
		if err != nil {
			return err
		}
		e.Exprs = append(e.Exprs, counter)
	}
	return nil
}

// elementData is the value of a map's element.
func (f *nftFile) elementData(n *node, data keyed) (*nftables.Data, error) {
	if data == nil {
		v, ok, err := f.verdict(n)
		if err == nil && !ok {
			err = f.wrong(n, "a verdict is expected: accept, drop, return, continue, jump or goto")
		}
		return &nftables.Data{Verdict: v}, err
	}
	if len(data) != 1 {
		return nil, errNoValue
	}
	v, err := f.numberOf(n, &data[0])
	if err != nil {
		return nil, err
	}
	return &nftables.Data{Bytes: data[0].bytes(v)}, nil
}

// verdict reads {"drop": null} and the like.
func (f *nftFile) verdict(n *node) (*nftables.VerdictData, bool, error) {
	name, value, ok := n.only()
	code, is := map[string]int32{"accept": nftables.CodeAccept, "drop": nftables.CodeDrop, "continue": nftables.CodeContinue, "return": nftables.CodeReturn,
		"jump": nftables.CodeJump, "goto": nftables.CodeGoto}[name]
	if !ok || !is {
		return nil, false, nil
	}
	v := &nftables.VerdictData{Code: code}
	var err error
	if name == "jump" || name == "goto" {
		v.Chain, err = f.needText(value, "target")
	}
	return v, true, err
}

// anonymous makes the set that belongs to one rule.
func (r *nftRule) anonymous(key, data keyed, isMap bool, list *node) (string, error) {
	f := r.nftFile
	s := nftables.Set{Family: r.family, Table: r.table, Name: fmt.Sprintf("__set%d", f.drawn), Flags: nftables.SetAnonymous | nftables.SetConstant}
	f.drawn++
	if list.kind != array {
		return "", f.wrong(list, "a list of elements is expected")
	}
	for _, n := range list.list {
		if hasRange(n, isMap) {
			s.Flags |= nftables.SetInterval
		}
	}
	if isMap {
		s.Flags |= nftables.SetMap
		s.DataType, s.DataLen = nftables.TypeVerdict, 16
		if data != nil {
			s.DataType, s.DataLen, s.HostData = data.id(), uint32(data.size()), len(data) == 1 && data[0].host
		}
	}
	f.shape(&s, key)
	index := len(f.dump.Sets)
	f.sets[setKey(r.family, r.table, s.Name)] = index
	f.dump.Sets = append(f.dump.Sets, s)
	return s.Name, f.elements(index, key, data, list)
}

// hasRange says whether an element makes its set one of intervals.
func hasRange(n *node, isMap bool) bool {
	if isMap && n.kind == array && len(n.list) > 0 {
		n = n.list[0]
	}
	if e := n.get("elem"); e != nil && e.get("val") != nil {
		n = e.get("val")
	}
	if c := n.get("concat"); c != nil {
		for _, p := range c.list {
			if hasRange(p, false) {
				return true
			}
		}
	}
	return n.get("range") != nil || n.get("prefix") != nil
}
