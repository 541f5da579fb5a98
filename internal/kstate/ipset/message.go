// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/shuntnet/shunt/internal/kstate/nla"
)

// Attributes of a message (IPSET_ATTR_*).
const (
	attrName     = 2
	attrType     = 3
	attrRevision = 4
	attrFamily   = 5
	attrData     = 7
	attrElements = 8
	attrIndex    = 11
	attrHighest  = 11

	headerLen = 4 // struct nfgenmsg
)

// Attributes of a set's head and of its elements.
const (
	dataIP      = 1
	dataCIDR    = 3
	dataPort    = 4
	dataTimeout = 6
	dataProto   = 7
	dataFlags   = 8
	dataMark    = 10
	dataMask    = 11 // of marks
	dataBitmask = 12

	headNetmask = 20
	headHighest = 26

	elemEther   = 17
	elemName    = 18
	elemIP2     = 20
	elemCIDR2   = 21
	elemIface   = 23
	elemBytes   = 24
	elemPackets = 25
	elemHighest = 30
)

// Flags of a set (in its head) and of an element (IPSET_FLAG_*).
const (
	flagPhysdev      = 1 << 1
	flagNoMatch      = 1 << 2
	flagCounters     = 1 << 3
	flagComment      = 1 << 4
	flagForceAdd     = 1 << 5
	flagSKBInfo      = 1 << 6
	flagWildcard     = 1 << 7
	flagBefore       = 1 << 0
	knownHeadFlags   = flagCounters | flagComment | flagForceAdd | flagSKBInfo
	knownElementFlag = flagPhysdev | flagNoMatch | flagWildcard | flagBefore
)

// Set is a set as the kernel lists it.
type Set struct {
	Name, Type string
	Revision   uint8
	Family     uint8 // AF_INET, AF_INET6, or 0
	Index      int   // by which rules name it; -1 when the kernel did not say
	Netmask    int   // of hash:ip and bitmap:ip, 0 for none
	Timeout    bool
	Counters   bool
	Head       bool // only this was read, no elements
	Elements   []Element
	Problem    string // what was not understood, "" when all was
}

// Element is one element; which fields it has depends on the set's type.
type Element struct {
	IP, IP2          netip.Addr
	CIDR, CIDR2      int // -1 where not given: the whole address
	Port             uint16
	Proto            uint8
	HasProto, HasMAC bool
	Mark             uint32
	MAC              [6]byte
	Iface            string
	Wildcard         bool // Iface is the beginning of names
	NoMatch          bool
	Member           string // of a list:set
	Seconds          uint32 // to its end, 0 for never
	Packets, Bytes   uint64
}

// Dump is a list of sets in the making.
type Dump struct {
	Heads bool // only heads are listed (IPSET_FLAG_LIST_HEADER), without elements
	Sets  []Set
	names map[string]int
}

// Add takes in one message of a list. The first of a set has its head, all may have elements. The error is of messages whose
// set cannot be told; what else goes wrong becomes the set's Problem.
func (d *Dump) Add(b []byte) error {
	if len(b) < headerLen {
		return fmt.Errorf("message of an ipset: only %d bytes", len(b))
	}
	a, err := nla.Split(b[headerLen:], attrHighest)
	name := a.Text(attrName)
	if name == "" {
		if err == nil {
			err = a.Need(attrName)
		}
		return fmt.Errorf("message of an ipset: %w", err)
	}
	i, known := d.names[name]
	if !known {
		if d.names == nil {
			d.names = map[string]int{}
		}
		i = len(d.Sets)
		d.names[name] = i
		d.Sets = append(d.Sets, Set{Name: name, Index: -1})
		if err == nil {
			err = a.Need(attrType, attrFamily, attrData)
		}
	}
	if err == nil && !d.Heads {
		err = a.Need(attrElements) // empty, but there, in a set without elements
	}
	s := &d.Sets[i]
	s.Head = d.Heads
	if a.V[attrType] != nil {
		if headErr := s.head(&a); err == nil {
			err = headErr
		}
	}
	listErr := nla.Each(a.V[attrElements], func(_ uint16, v []byte) error {
		e, err := element(v)
		s.Elements = append(s.Elements, e)
		return err
	})
	if err == nil {
		err = listErr
	}
	if err == nil {
		err = a.Err
	}
	if err != nil && s.Problem == "" {
		s.Problem = err.Error()
	}
	return nil
}

// head reads what a set was created with.
func (s *Set) head(a *nla.Attrs) error {
	s.Type, s.Revision, s.Family = a.Text(attrType), a.Uint8(attrRevision), a.Uint8(attrFamily)
	if a.V[attrIndex] != nil {
		s.Index = int(a.Uint16(attrIndex))
	}
	h, err := nla.Split(a.V[attrData], headHighest)
	if err != nil {
		return err
	}
	s.Netmask, s.Timeout = int(h.Uint8(headNetmask)), h.V[dataTimeout] != nil
	flags := h.Uint32(dataFlags, 0)
	s.Counters = flags&flagCounters != 0
	switch {
	case h.Err != nil:
		return h.Err
	case flags&^knownHeadFlags != 0:
		return fmt.Errorf("flags %#x", flags)
	case !s.Head && h.V[dataMask] != nil && h.Uint32(dataMask, 0) != ^uint32(0): // programs read it where it is
		return errors.New("a mask of marks is not modelled")
	case h.V[dataBitmask] != nil:
		return errors.New("a bit mask of addresses is not modelled")
	}
	return nil
}

func element(b []byte) (e Element, err error) {
	a, err := nla.Split(b, elemHighest)
	if err != nil {
		return e, err
	}
	e = Element{CIDR: -1, CIDR2: -1, Port: a.Uint16(dataPort), Proto: a.Uint8(dataProto), HasProto: a.V[dataProto] != nil, Mark: a.Uint32(dataMark, 0),
		Iface: a.Text(elemIface), Member: a.Text(elemName), Seconds: a.Uint32(dataTimeout, 0), Packets: a.Uint64(elemPackets), Bytes: a.Uint64(elemBytes)}
	if a.V[dataCIDR] != nil {
		e.CIDR = int(a.Uint8(dataCIDR))
	}
	if a.V[elemCIDR2] != nil {
		e.CIDR2 = int(a.Uint8(elemCIDR2))
	}
	if mac := a.V[elemEther]; len(mac) == 6 {
		e.MAC, e.HasMAC = [6]byte(mac), true
	}
	if e.IP, err = address(a.V[dataIP]); err != nil {
		return e, err
	}
	if e.IP2, err = address(a.V[elemIP2]); err != nil {
		return e, err
	}
	flags := a.Uint32(dataFlags, 0)
	e.NoMatch, e.Wildcard = flags&flagNoMatch != 0, flags&flagWildcard != 0
	switch {
	case a.Err != nil:
		return e, a.Err
	case flags&flagPhysdev != 0:
		return e, errors.New("elements with physdev are not modelled")
	case flags&^knownElementFlag != 0:
		return e, fmt.Errorf("an element has the flags %#x", flags)
	}
	return e, nil
}

// address reads a nested IPSET_ATTR_IPADDR_IPV4 or _IPV6; none is no error.
func address(b []byte) (netip.Addr, error) {
	if b == nil {
		return netip.Addr{}, nil
	}
	a, err := nla.Split(b, 2)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, v := range a.V[1:3] {
		if ip, ok := netip.AddrFromSlice(v); ok {
			return ip, nil
		}
	}
	return netip.Addr{}, errors.New("an address of neither 4 nor 16 bytes")
}

// DecodeIndex reads the answer to IPSET_CMD_GET_BYNAME.
func DecodeIndex(b []byte) (int, error) {
	if len(b) < headerLen {
		return -1, fmt.Errorf("message of an ipset: only %d bytes", len(b))
	}
	a, err := nla.Split(b[headerLen:], attrHighest)
	if err == nil {
		err = a.Need(attrIndex)
	}
	return int(a.Uint16(attrIndex)), err
}
