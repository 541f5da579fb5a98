// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/binary"
	"errors"
)

// The tables of bpf/node/mapping.h: entries of a key and a value, found within probes steps from where the key's hash points.
const (
	probes    = 8
	entrySize = 16
	maxTable  = 1 << 20 // entries
)

// word is an end as the table has it: address and port in network order, protocol, and a bit that tells it from nothing.
func (e end) word() uint64 {
	b := e.addr.As4()
	port := uint64(e.port>>8 | e.port<<8)
	return uint64(binary.LittleEndian.Uint32(b[:])) | port<<32 | uint64(e.proto)<<48 | 1<<63
}

// layTable puts entries where a search finds them; false where the table is too small.
func layTable(entries map[end]end, size int) ([]byte, bool) {
	out := make([]byte, size*entrySize)
	for from, to := range ordered(entries) {
		slot := int(from.word() * 0x9e3779b97f4a7c15 >> 32)
		placed := false
		for i := range probes {
			at := (slot + i) % size * entrySize
			if binary.LittleEndian.Uint64(out[at:]) == 0 {
				binary.LittleEndian.PutUint64(out[at:], from.word())
				binary.LittleEndian.PutUint64(out[at+8:], to.word())
				placed = true
				break
			}
		}
		if !placed {
			return nil, false
		}
	}
	return out, true
}

// tables are both tables, of one size, and that size.
func (m *mappings) tables() (data []byte, size int, err error) {
	for size = 1; size <= maxTable; size *= 2 {
		if size < len(m.destinations) || size < len(m.sources) {
			continue
		}
		a, ok1 := layTable(m.destinations, size)
		b, ok2 := layTable(m.sources, size)
		if ok1 && ok2 {
			return append(a, b...), size, nil
		}
	}
	return nil, 0, errors.New("the static mappings do not fit into a table")
}
