// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/shuntnet/shunt/internal/kstate/nla"
)

// headerLen is the size of struct nfgenmsg, with which every message begins.
const headerLen = 4

// Table is a table as the kernel gives it.
type Table struct {
	Family byte // NFPROTO_*
	Name   string
	Flags  uint32 // NFT_TABLE_F_*
	Handle uint64
}

// Owned says whether the table goes when the program does that made it.
func (t Table) Owned() bool { return t.Flags&tableOwner != 0 && t.Flags&tablePersist == 0 }

// Chain is a chain; the fields from Hook on mean something where Base is set.
type Chain struct {
	Family      byte
	Table, Name string
	Handle      uint64
	Base        bool
	Hook        uint32
	Priority    int32
	Devices     []string // with "*" where only a prefix is given
	Policy      uint32   // NF_ACCEPT or NF_DROP
	Type        string   // "filter", "nat", "route"
	Flags       uint32   // NFT_CHAIN_*
	Counter     *Counter // of its policy, where there is one
	Rules       []*Rule  // in their order
}

// Rule is a rule with its expressions. It is not changed after it was decoded.
type Rule struct {
	Family       byte
	Table, Chain string
	Handle       uint64
	Comment      string
	Compat       *Compat
	Exprs        []Expr
	Print        uint64 // tells it from a rule with its handle that it replaced (scratch.print)
	Problem      string // what of it could not be decoded
}

// Compat is what a rule of iptables-nft says of itself to old matches: the protocol, and whether it is negated.
type Compat struct{ Proto, Flags uint32 }

// Set flags (NFT_SET_*).
const (
	SetAnonymous = 0x1
	SetConstant  = 0x2
	SetInterval  = 0x4
	SetMap       = 0x8
	SetTimeout   = 0x10
	SetEval      = 0x20 // filled from the data path
	SetObject    = 0x40
	SetConcat    = 0x80
	SetExpr      = 0x100

	knownSetFlags = 0x1ff
)

// Set is the head of a set or map.
type Set struct {
	Family            byte
	Table, Name       string
	Handle            uint64
	Flags             uint32
	KeyType, DataType uint32 // types of nft, six bits for each part of a concatenation
	KeyLen, DataLen   uint32 // bytes
	ObjType           uint32
	Timeout           uint64 // ms, default of its elements
	Size              uint32 // most elements, 0 for no bound
	Fields            []int  // bytes of each part of a concatenation with intervals
	HostKey, HostData bool   // numbers are in the machine's byte order, as nft remembers it
	Comment           string
	Exprs             []Expr // that each element is given
	Elements          []Element
	UnknownFlags      uint32
	Unread            bool // its elements were not asked for
}

// Element is one element of a set as it lies in the kernel.
type Element struct {
	Key, KeyEnd []byte // KeyEnd: the last key of an interval in a concatenation; nil where none
	End         bool   // the first key behind an interval
	CatchAll    bool
	Data        *Data
	Object      string
	Timeout     uint64 // ms, 0 for none or the set's
	Expires     uint64 // ms left, 0 for never
	Comment     string
	Exprs       []Expr // counter …
}

// Object is a stateful object: a named counter, quota, limit …
type Object struct {
	Family      byte
	Table, Name string
	Type        uint32
	Handle      uint64
	Data        Expr // *Counter, *Quota, *Limit, *ConnLimit, or *Opaque
}

// Flowtable is a flow table.
type Flowtable struct {
	Family      byte
	Table, Name string
	Hook        uint32
	Priority    int32
	Devices     []string
	Flags       uint32
}

// body splits a message into its family and attributes. With an error there may still be some.
func body(b []byte, known uint16) (family byte, a nla.Attrs, err error) {
	if len(b) < headerLen {
		return 0, a, fmt.Errorf("only %d bytes", len(b))
	}
	a, err = nla.Split(b[headerLen:], known)
	return b[0], a, err
}

// check reports what went wrong so far, with what it was.
func check(a *nla.Attrs, what string, err error, need ...int) error {
	if err == nil {
		err = a.Need(need...)
	}
	if err != nil {
		return fmt.Errorf("message of a %s: %w", what, err)
	}
	return nil
}

// decodeTable reads NFT_MSG_NEWTABLE.
func decodeTable(b []byte) (t Table, err error) {
	family, a, err := body(b, 7)
	t = Table{Family: family, Name: a.Text(1), Flags: a.Uint32(2, 0), Handle: a.Uint64(4)}
	return t, check(&a, "table", err, 1)
}

// decodeChain reads NFT_MSG_NEWCHAIN.
func decodeChain(b []byte) (c Chain, err error) {
	family, a, err := body(b, 12)
	c = Chain{Family: family, Table: a.Text(1), Handle: a.Uint64(2), Name: a.Text(3), Policy: a.Uint32(5, 1), Type: a.Text(7), Flags: a.Uint32(10, 0)}
	if a.V[8] != nil {
		n, err := nla.Split(a.V[8], 3)
		if err := check(&n, "chain", err, 1, 2); err != nil {
			return c, err
		}
		c.Counter = &Counter{Bytes: n.Uint64(1), Packets: n.Uint64(2)}
	}
	if a.V[4] != nil {
		c.Base = true
		var hookErr error
		if c.Hook, c.Priority, c.Devices, hookErr = decodeHook(a.V[4]); err == nil {
			err = hookErr
		}
	}
	return c, check(&a, "chain", err, 1, 3)
}

// decodeHook reads where a chain or flow table hooks in. NFTA_HOOK_* and NFTA_FLOWTABLE_HOOK_* differ in the list of devices.
func decodeHook(b []byte) (num uint32, prio int32, devices []string, err error) {
	a, err := nla.Split(b, 4)
	if a.V[4] != nil {
		var listErr error
		if devices, listErr = deviceList(a.V[4]); err == nil {
			err = listErr
		}
	} else if d := a.V[3]; d != nil {
		devices = append(devices, nla.String(d))
	}
	slices.Sort(devices) // the kernel's order changes with the devices
	return a.Uint32(1, 0), int32(a.Uint32(2, 0)), devices, check(&a, "hook", err, 1, 2)
}

// deviceList reads NFTA_HOOK_DEVS: names, and prefixes of names.
func deviceList(b []byte) (devices []string, err error) {
	const full, prefix = 1, 2
	err = nla.Each(b, func(typ uint16, v []byte) error {
		switch typ {
		case full:
			devices = append(devices, nla.String(v))
		case prefix:
			devices = append(devices, nla.String(v)+"*")
		default:
			return fmt.Errorf("attribute %d in the list of devices", typ)
		}
		return nil
	})
	return devices, err
}

// decodeRule reads NFT_MSG_NEWRULE.
func decodeRule(b []byte) (r Rule, err error) { return new(scratch).rule(b) }

func (s *scratch) rule(b []byte) (r Rule, err error) {
	family, a, err := body(b, 11)
	r = Rule{Family: family, Table: a.Text(1), Chain: a.Text(2), Handle: a.Uint64(3), Comment: nla.String(nla.UserData(a.V[7], 0))}
	r.Exprs = s.exprs(a.V[4])
	r.Print = s.print(a.V[4])
	if a.V[5] != nil {
		c, err := nla.Split(a.V[5], 2)
		if err := check(&c, "rule", err, 1); err != nil {
			return r, err
		}
		r.Compat = &Compat{c.Uint32(1, 0), c.Uint32(2, 0)}
	}
	return r, check(&a, "rule", err, 1, 2, 4)
}

// decodeSet reads NFT_MSG_NEWSET.
func decodeSet(b []byte) (s Set, err error) {
	const keyByteOrder, dataByteOrder, comment = 0, 1, 7
	family, a, err := body(b, 20)
	s = Set{Family: family, Table: a.Text(1), Name: a.Text(2), Flags: a.Uint32(3, 0), KeyType: a.Uint32(4, 0), KeyLen: a.Uint32(5, 0),
		DataType: a.Uint32(6, 0), DataLen: a.Uint32(7, 0), Timeout: a.Uint64(11), ObjType: a.Uint32(15, 0), Handle: a.Uint64(16)}
	s.UnknownFlags = s.Flags &^ knownSetFlags
	u := a.V[13]
	s.HostKey, s.HostData, s.Comment = hostOrder(nla.UserData(u, keyByteOrder)), hostOrder(nla.UserData(u, dataByteOrder)), nla.String(nla.UserData(u, comment))
	if a.V[9] != nil {
		d, err := nla.Split(a.V[9], 2)
		if err := check(&d, "set", err); err != nil {
			return s, err
		}
		s.Size = d.Uint32(1, 0)
		err = nla.Each(d.V[2], func(_ uint16, v []byte) error {
			f, err := nla.Split(v, 1)
			s.Fields = append(s.Fields, int(f.Uint32(1, 0)))
			return check(&f, "set", err, 1)
		})
		if err != nil {
			return s, err
		}
	}
	if a.V[17] != nil {
		s.Exprs = []Expr{new(scratch).expr(a.V[17])}
	} else if a.V[18] != nil {
		s.Exprs = new(scratch).exprs(a.V[18])
	}
	return s, check(&a, "set", err, 1, 2, 5)
}

func hostOrder(b []byte) bool {
	const host = 1 // BYTEORDER_HOST_ENDIAN of nft
	return len(b) == 4 && binary.NativeEndian.Uint32(b) == host
}

// decodeElements reads NFT_MSG_NEWSETELEM: some of the elements of a set.
func decodeElements(b []byte) (out []Element, err error) {
	_, a, err := body(b, 4)
	if err != nil {
		return nil, err
	}
	err = nla.Each(a.V[3], func(_ uint16, v []byte) error {
		e, err := decodeElement(v)
		out = append(out, e)
		return err
	})
	return out, check(&a, "set element", err, 1, 2, 3)
}

// DecodeElementsOf gives the set that NFT_MSG_NEWSETELEM or NFT_MSG_DELSETELEM speaks of.
func DecodeElementsOf(b []byte) (family byte, table, set string, err error) {
	family, a, err := body(b, 4)
	return family, a.Text(1), a.Text(2), check(&a, "set element", err, 1, 2)
}

func decodeElement(b []byte) (e Element, err error) {
	const intervalEnd, catchAll = 1, 2
	a, err := nla.Split(b, 11)
	if err != nil {
		return e, err
	}
	flags := a.Uint32(3, 0)
	e = Element{Key: optConstant(&a, 1), KeyEnd: optConstant(&a, 10), End: flags&intervalEnd != 0, CatchAll: flags&catchAll != 0,
		Object: a.Text(9), Timeout: a.Uint64(4), Expires: expires(&a), Comment: nla.String(nla.UserData(a.V[6], 0))}
	if flags&^(intervalEnd|catchAll) != 0 {
		return e, fmt.Errorf("flags %#x are not known", flags)
	}
	if a.V[2] != nil {
		d, err := decodeData(a.V[2])
		if err != nil {
			return e, err
		}
		e.Data = &d
	}
	if a.V[7] != nil {
		e.Exprs = []Expr{new(scratch).expr(a.V[7])}
	} else if a.V[11] != nil {
		e.Exprs = new(scratch).exprs(a.V[11])
	}
	if e.Key == nil && !e.CatchAll && a.Err == nil {
		return e, a.Need(1)
	}
	return e, a.Err
}

// objectExprs are the objects that have an expression of the same shape.
var objectExprs = map[uint32]string{1: "counter", 2: "quota", 4: "limit", 5: "connlimit"}

// decodeObject reads NFT_MSG_NEWOBJ.
func decodeObject(b []byte) (o Object, err error) {
	family, a, err := body(b, 8)
	o = Object{Family: family, Table: a.Text(1), Name: a.Text(2), Type: a.Uint32(3, 0), Handle: a.Uint64(6)}
	name, known := objectExprs[o.Type]
	if !known {
		o.Data = &Opaque{objectName(o.Type), "the kind of object is not modelled"}
		return o, check(&a, "object", err, 1, 2, 3)
	}
	d := decoders[name]
	n, dataErr := nla.Split(a.V[4], d.highest)
	if dataErr == nil {
		o.Data, dataErr = d.decode(&n)
	}
	if dataErr != nil {
		o.Data = &Opaque{name, dataErr.Error()}
	}
	return o, check(&a, "object", err, 1, 2, 3)
}

// objectName is what nft calls a kind of object (NFT_OBJECT_*).
func objectName(typ uint32) string {
	names := []string{"", "counter", "quota", "ct helper", "limit", "connlimit", "tunnel", "ct timeout", "secmark", "ct expectation", "synproxy"}
	if typ > 0 && int(typ) < len(names) {
		return names[typ]
	}
	return fmt.Sprintf("object %d", typ)
}

// decodeFlowtable reads NFT_MSG_NEWFLOWTABLE.
func decodeFlowtable(b []byte) (f Flowtable, err error) {
	family, a, err := body(b, 7)
	f = Flowtable{Family: family, Table: a.Text(1), Name: a.Text(2), Flags: a.Uint32(7, 0)}
	if a.V[3] != nil {
		n, err := nla.Split(a.V[3], 3)
		if err == nil {
			f.Devices, err = deviceList(n.V[3])
		}
		if err := check(&n, "flowtable", err, 1, 2); err != nil {
			return f, err
		}
		f.Hook, f.Priority = n.Uint32(1, 0), int32(n.Uint32(2, 0))
	}
	return f, check(&a, "flowtable", err, 1, 2)
}

// DecodeGeneration reads NFT_MSG_NEWGEN.
func DecodeGeneration(b []byte) (uint32, error) {
	_, a, err := body(b, 3)
	if err != nil {
		return 0, err
	}
	return a.Uint32(1, 0), check(&a, "generation", nil, 1)
}

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

// expires is when an element does, never 0 for one that does: it may have no millisecond left.
func expires(a *nla.Attrs) uint64 {
	const expiration = 5
	if a.V[expiration] == nil {
		return 0
	}
	return max(a.Uint64(expiration), 1)
}
