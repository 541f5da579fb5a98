// SPDX-License-Identifier: Apache-2.0

package image

import (
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Dim is a field, or several that one value stands for, with a table from its values to rows. The numbers are those of enum shunt_dim in
// bpf/types.h.
type Dim uint8

// The dimensions. Interfaces are asked for by their index; name, group and type follow from it.
const (
	Src Dim = iota
	Dst
	DPort
	SPort
	Proto
	IIF
	OIF
	PhysIn  // the bridge's ports: 0 for none,
	PhysOut // noPort for one that the packet lacks
	NumDims
)

// value is a number of the packet that conditions ask for one by one; enum shunt_value.
type value uint8

const (
	vTCPFlags value = iota
	vICMP
	vDS
	vTTL
	vLength
	vMark
	vProto
	vSPort
	vDPort
	vSrc
	vDst
	vID
	vFrag
	vFlow
	vCTState
	vCTStatus
	vCTMark
	vCTDir
	vCTZone
	vMACHigh // of the source: two bytes, and four
	vMACLow
	vToHigh // and of the destination
	vToLow
	vBack
	vBackBy
	vOrigSrc
	vOrigDst
	vOrigPorts // that of the source above 16 bits
	numValues

	vPriority value = 31 // is set, and never asked for
)

// AllValues is Shape.Asks of an image that asks for everything.
const AllValues = 1<<numValues - 1

// then is what an entry does with the packets that satisfy it; enum shunt_then.
type then uint8

const (
	goOn then = iota
	skip
	drop
	leave // to Linux
	call
	back // to where the list was called
	accept
	endBase // to where the outermost call said that the base chain ends
	settled // the packet is accepted, and no image asked any more (Over)
)

// target is an entry of the program, before entries have their final numbers.
type target struct{ list, at int }

// entry is one entry of an image before it has a number.
type entry struct {
	dims  [NumDims]asked
	conds []cond
	do    []action
	then  then
	to    target // skip, call
	back  target // call: where the list comes back to
	end   target // call: where the base chain ends
}

// everyone says whether an entry asks nothing, and does nothing but lead on.
func (e *entry) everyone() bool {
	for _, a := range e.dims {
		if a.is {
			return false
		}
	}
	return len(e.conds) == 0 && len(e.do) == 0
}

// asked are the values of a dimension that satisfy an entry; all of them unless is.
type asked struct {
	is     bool
	values []ruleset.Range
}

// cond is a condition that is asked one by one: one of its tests holds, or with not none does. Or the packet is in an ipset.
type cond struct {
	of  []test
	set *inSet
	not bool
}

// test holds when the packet has the value and (value & mask is in one of the ranges) is not not.
type test struct {
	of     value
	word6  bool // of is no value but which 32 bits of an IPv6 packet's addresses: see opWord6
	mask   uint32
	ranges []ruleset.Range
	not    bool
}

// action is something that an entry does.
type action struct {
	kind     opKind
	of       value // opMark: what is set
	counter  ruleset.CounterID
	hook     ruleset.Hook
	and, xor uint32
	mask     uint32 // as the operation has it
}
