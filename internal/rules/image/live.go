// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// SetKind is a type of ipset and the family of its elements, 0 for any.
type SetKind struct {
	Type   string
	Family ruleset.Family
}

// SetKinds are those that images have a place for. A set can become one of another kind behind a rule's back (ipset swap), and a list has any.
var SetKinds = setKinds()

func setKinds() (out []SetKind) {
	for _, t := range ruleset.LiveTypes {
		switch t {
		case "bitmap:port", "list:set", "hash:mac":
			out = append(out, SetKind{t, 0})
		case "bitmap:ip", "bitmap:ip,mac":
			out = append(out, SetKind{t, ruleset.IP4})
		default:
			out = append(out, SetKind{t, ruleset.IP4}, SetKind{t, ruleset.IP6})
		}
	}
	return out
}

// SetKindSize is the size of struct shunt_set_kind.
const SetKindSize = 80

// Set is an ipset that rules ask, by the kernel's index.
type Set struct {
	Name  string
	Index uint16
	Kind  SetKind
}

// inSet asks whether a packet is in an ipset.
type inSet struct {
	set  Set
	kind int    // place in SetKinds
	src  []bool // for each direction of the rule
}

// namesSize is the room for where the names of devices stand, in front of the table of kinds: as rows of a hash (table.go), its offset and its argument.
const namesSize = 8

// asksSets is SHUNT_ASKS_SETS.
const asksSets = 1 << 31

// ask is what a program is told: see bpf/node/ipset.h, SET_INDEX and those behind it.
func (s *inSet) ask() uint32 {
	out := uint32(s.set.Index) | uint32(len(s.src))<<20 | uint32(s.kind)<<24
	for i, src := range s.src {
		if src {
			out |= 1 << (16 + i)
		}
	}
	return out
}

// liveSet is the lookup in an ipset that has to be asked of the kernel.
func (l *lowering) liveSet(k ruleset.Lookup) (*inSet, bool) {
	s := &l.pr.Rules().Sets[k.Set]
	kind := slices.Index(SetKinds, SetKind{s.Type, s.Family})
	if !s.Live || s.Unknown != "" || kind < 0 || len(k.Src) == 0 || len(k.Src) > 3 {
		return nil, false
	}
	return &inSet{set: Set{s.Name, s.Index, SetKinds[kind]}, kind: kind, src: k.Src}, true
}

// ask notes that the image asks a set, and gives the offset of the table of kinds.
func (w *writer) ask(s *inSet) uint32 {
	if w.SetsAt == 0 {
		w.SetsAt = uint32(w.room(namesSize+SetKindSize*(len(SetKinds)+1), rowAlign) + namesSize)
	}
	w.Shape.Asks |= asksSets
	kind, list := s.set.Kind.Type, s.set.Kind.Type == "list:set" // of who knows what
	if list || strings.Contains(kind, "port") {
		w.Shape.Asks |= 1<<vSPort | 1<<vDPort | 1<<vICMP
	}
	if list || strings.Contains(kind, "mac") {
		w.Shape.Asks |= 1<<vMACHigh | 1<<vMACLow | 1<<vToHigh | 1<<vToLow
	}
	if list || strings.Contains(kind, "iface") {
		w.names()
	}
	if !slices.Contains(w.Sets, s.set) {
		w.Sets = append(w.Sets, s.set)
	}
	return w.SetsAt
}

// names writes the devices' names, for sets that ask for those: for each device 16 bytes, and as many that say which of them count, up to the one behind the name's end.
func (w *writer) names() {
	at := int(w.SetsAt) - namesSize
	if binary.NativeEndian.Uint32(w.Bytes[at:]) != 0 || len(w.devices) == 0 {
		return
	}
	rows := map[uint32]uint32{}
	for _, d := range w.devices {
		if len(d.Name) == 0 || len(d.Name) > 15 || d.Index <= 0 {
			continue
		}
		row := w.room(32, rowAlign)
		copy(w.Bytes[row:], d.Name)
		for i := range len(d.Name) + 1 {
			w.Bytes[row+16+i] = 0xff
		}
		rows[uint32(d.Index)] = uint32(row)
	}
	table, factor := w.hashed(rows, 0)
	w.named = true
	w.put(at, uint32(table))
	w.put(at+4, factor)
}
