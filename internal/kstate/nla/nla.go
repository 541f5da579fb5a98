// SPDX-License-Identifier: Apache-2.0

// Package nla splits netlink attributes of nfnetlink subsystems by type, without allocating.
//
// Problem: a rule of nf_tables has about thirty nested levels of attributes. The decoders at hand allocate several times for
// Each, which at ten thousand rules costs more than the dump itself; and they skip in silence what they were not asked for.
//
// Mechanism: Split puts the attributes of one level into an array by type; the readers of numbers remember the first
// attribute of a wrong size. Invariant: an attribute that the caller does not know is an error with its number, and whatever
// the bytes are, nothing panics. Slices point into the message. Any goroutine may use it; there is no state.
package nla

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

const (
	// Max is the number of attribute types that fit: more than any level here has.
	Max = 32

	typeMask = 0x3fff // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
)

// Attrs are the attributes of one level by type; nil where absent. Err is the first one of a wrong size.
type Attrs struct {
	V   [Max][]byte
	Err error
}

// Split sorts the attributes in b, in place of those that were there. Types above known, which a newer kernel may send, are an
// error that names them, since what they mean cannot be guessed; the others are there all the same.
func (a *Attrs) Split(b []byte, known uint16) error {
	*a = Attrs{}
	var unknown error
	err := Each(b, func(typ uint16, v []byte) error {
		if typ <= known && typ < Max {
			a.V[typ] = v
		} else if unknown == nil {
			unknown = fmt.Errorf("attribute %d is not known", typ)
		}
		return nil
	})
	if err == nil {
		err = unknown
	}
	return err
}

// Split sorts the attributes in b.
func Split(b []byte, known uint16) (a Attrs, err error) {
	err = a.Split(b, known)
	return a, err
}

// Each calls f for every attribute in b.
func Each(b []byte, f func(typ uint16, v []byte) error) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return fmt.Errorf("%d bytes are left of an attribute", len(b))
		}
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			return fmt.Errorf("an attribute of %d bytes in %d", n, len(b))
		}
		if err := f(binary.NativeEndian.Uint16(b[2:])&typeMask, b[4:n:n]); err != nil {
			return err
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
}

// sized gives an attribute of n bytes, or nil if it is absent.
func (a *Attrs) sized(typ, n int) []byte {
	v := a.V[typ]
	if v != nil && len(v) != n {
		if a.Err == nil {
			a.Err = fmt.Errorf("attribute %d has %d bytes, not %d", typ, len(v), n)
		}
		return nil
	}
	return v
}

// Numbers come in network order; an absent one is the default, or 0.
func (a *Attrs) Uint32(typ int, absent uint32) uint32 {
	if v := a.sized(typ, 4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return absent
}

func (a *Attrs) Uint64(typ int) uint64 {
	if v := a.sized(typ, 8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (a *Attrs) Uint16(typ int) uint16 {
	if v := a.sized(typ, 2); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

func (a *Attrs) Uint8(typ int) uint8 {
	if v := a.sized(typ, 1); v != nil {
		return v[0]
	}
	return 0
}

func (a *Attrs) Text(typ int) string { return String(a.V[typ]) }

// String is text up to its end or the first zero byte.
func String(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// Need says which of the attributes are missing or malformed: without them the rest has no meaning.
func (a *Attrs) Need(types ...int) error {
	for _, t := range types {
		if a.V[t] == nil {
			return fmt.Errorf("attribute %d is missing", t)
		}
	}
	return a.Err
}

// UserData finds an entry in the type-length-value list that nft keeps with its objects.
func UserData(b []byte, typ byte) []byte {
	for len(b) >= 2 {
		n := 2 + int(b[1])
		if n > len(b) {
			return nil
		}
		if b[0] == typ {
			return b[2:n]
		}
		b = b[n:]
	}
	return nil
}
