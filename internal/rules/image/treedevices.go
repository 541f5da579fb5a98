// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// gatherDevices gives a bit to each kind of device: to those that the same entries ask for the same one.
func (f *forest) gatherDevices() bool {
	for side, d := range [2]Dim{IIF, OIF} {
		f.sides[side], f.bit[side] = map[string]uint32{}, map[int]uint32{}
		lists := f.deviceLists(d)
		if len(lists) == 0 {
			continue
		}
		kinds := map[string]uint32{}
		for _, dev := range sideDevices(d, f.writer.devices) {
			kind := make([]byte, len(lists))
			for i, l := range lists {
				if has(l, dev.Index) {
					kind[i] = 1
				}
			}
			bit, known := kinds[string(kind)]
			if !known {
				if len(kinds) == 32 {
					return false
				}
				bit = 1 << len(kinds)
				kinds[string(kind)] = bit
			}
			f.bit[side][dev.Index] = bit
		}
		for i, l := range lists {
			f.sides[side][rangesKey(l)] = bitsOf(kinds, i)
		}
	}
	return true
}

// deviceLists gives each list of devices that entries ask for once.
func (f *forest) deviceLists(d Dim) (lists [][]ruleset.Range) {
	known := map[string]bool{}
	for i := range f.in.entries {
		a := &f.in.entries[i].dims[d]
		if !a.is {
			continue
		}
		if key := rangesKey(a.values); !known[key] {
			known[key] = true
			lists = append(lists, a.values)
		}
	}
	return lists
}

// device notes what an entry asks of devices.
func (f *forest) device(b *box, e *entry) {
	both := [2]uint32{1<<32 - 1, 1<<32 - 1}
	for side, d := range [2]Dim{IIF, OIF} {
		if e.dims[d].is {
			both[side] = f.sides[side][rangesKey(e.dims[d].values)]
			b.flags |= leafDevices
		}
	}
	pair := uint64(both[0]) | uint64(both[1])<<32
	n := slices.Index(f.devices, pair)
	if n < 0 {
		n = len(f.devices)
		f.devices = append(f.devices, pair)
	}
	b.devices = uint16(n)
}

func has(list []ruleset.Range, index int) bool {
	return slices.ContainsFunc(list, func(r ruleset.Range) bool { return r.Has(ruleset.Num(uint64(index))) })
}

// bitsOf gathers the bits of the kinds whose devices are in a list.
func bitsOf(kinds map[string]uint32, list int) (bits uint32) {
	for kind, bit := range kinds {
		if kind[list] == 1 {
			bits |= bit
		}
	}
	return bits
}

func rangesKey(rs []ruleset.Range) string {
	var key []byte
	for _, r := range rs {
		key = binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(key, r.Lo.Lo), r.Hi.Lo)
	}
	return string(key)
}
