// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
)

// attrs walks netlink attributes. know decodes one and says whether it is understood (or known not to matter); the types of
// the others are returned.
func attrs(b []byte, know func(ad *netlink.AttributeDecoder) bool) (unknown []uint16, err error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, err
	}
	for ad.Next() {
		if !know(ad) {
			unknown = append(unknown, ad.Type())
		}
	}
	return unknown, ad.Err()
}

// nested walks the attributes inside the current one and reports unknown types as "NAME attribute N".
func nested(ad *netlink.AttributeDecoder, name string, un *unknowns, know func(ad *netlink.AttributeDecoder) bool) bool {
	ad.Do(func(b []byte) error {
		types, err := attrs(b, know)
		un.attributes(name, types)
		return err
	})
	return true
}

// raw gives the bytes of the current attribute without copying; they are valid until the next message.
func raw(ad *netlink.AttributeDecoder) (out []byte) {
	ad.Do(func(b []byte) error { out = b; return nil })
	return out
}

// set is the usual predicate for a list of attribute types that do not matter.
type set map[uint16]bool

func setOf(types ...uint16) set {
	s := make(set, len(types))
	for _, t := range types {
		s[t] = true
	}
	return s
}

// unknowns collects what was not understood of one object.
type unknowns struct {
	where string
	list  []model.Unknown
}

func (u *unknowns) add(format string, args ...any) {
	u.list = append(u.list, model.Unknown{Where: u.where, What: fmt.Sprintf(format, args...)})
}

func (u *unknowns) attributes(of string, types []uint16) {
	for _, t := range types {
		u.add("%s attribute %d", of, t)
	}
}

// address reads an address of 4 or 16 bytes.
func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Numbers of fixed message headers, in the machine's order.
func put32(b []byte, off int, v uint32) { binary.NativeEndian.PutUint32(b[off:], v) }
func get32(b []byte, off int) uint32    { return binary.NativeEndian.Uint32(b[off:]) }
func get16(b []byte, off int) uint16    { return binary.NativeEndian.Uint16(b[off:]) }

// body makes the body of a request: a fixed header and attributes.
func body(fixed []byte, fill func(ae *netlink.AttributeEncoder)) []byte {
	if fill == nil {
		return fixed
	}
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	b, err := ae.Encode()
	if err != nil {
		panic("kstate: encoding a request: " + err.Error()) // only constants and names are encoded
	}
	return append(fixed, b...)
}

// prefix joins an address and a length; the zero Prefix if they do not fit.
func prefix(a netip.Addr, bits uint8) netip.Prefix {
	if !a.IsValid() || int(bits) > a.BitLen() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, int(bits))
}

// zero is the unspecified address of a family.
func zero(f model.Family) netip.Addr {
	if f == model.IP6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
