// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"fmt"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// The layout, in the order of the bytes; all in the machine's order, offsets in bytes from the image's beginning:
//
//	header   u32 words, sums, entries, ones; then for each dimension u32 table, arg; at treeAt of trees, if there are any in place of rows (tree.go)
//	records  for each entry u32 then, to, count, ops
//	ops      the operations of entries that need more, see op
//	rows     for each class of a dimension: u64 sums of summary, u64 words of bits; ones is a row with every bit
//	tables   from values to the offsets of rows, see table.go
//	names    where rules ask ipsets u32 table, arg: a hash from devices to the offsets of their names, see names; 0 where none is asked for
//	kinds    behind that how each kind of ipset is asked: for SetKinds, struct shunt_set_kind, which the installer writes; one more of zeros
const (
	headerSize = 128
	dimsAt     = 16
	recordSize = 16
	opSize     = 32
	rowAlign   = 8

	counterMask = 1<<24 - 1 // of a count: the slot; above it where the bytes are taken from, see countWay
	noCount     = 1<<32 - 1
	maxEntries  = 1 << 16
	manyEntries = 1 << 10  // from which on room for rows is made in advance
	maxRoom     = 16 << 20 // and how much at most
)

// opKind is what an operation does; enum shunt_op. Asking one goes on at yes or no.
type opKind uint8

const (
	opTest    opKind = iota + 1 // value & mask in lo to hi? Missing: no
	opHas                       // is the value there?
	opCount                     // lo is the count
	opMark                      // mark & lo ^ hi
	opCall                      // yes is the list, lo where it comes back to, hi where the base chain ends
	opDS                        // TOS & lo ^ hi; mask: 1 if a checksum of 0 becomes 0xffff
	opNoTrack                   // the state becomes untracked, unless there is a connection
	opRestore                   // mark & lo ^ hi ^ connection's mark & mask; nothing without a connection
	opSave                      // connection's mark & lo ^ hi ^ mark & mask has to be its mark, or the packet is Linux's; nothing without a connection
	opSet                       // in the ipset? mask is what is asked, see inSet.ask; lo is the table of kinds
	opZone                      // the zone is lo, and the state new, if the state has a bit of mask
	opWord6                     // as opTest, of 32 bits of an IPv6 packet's addresses: value is which, of source and destination, from above
)

// Ends of a record's operations, in place of an offset.
const (
	opFail = 0 // the entry does not hold
	opDone = 1 // it does: do what the record says
)

// Places to come back to that are no entries.
const (
	backOut  = 1<<32 - 1 // to where the caller would have come back to
	backBase = 1<<32 - 2 // to the end of the base chain
)

// writer grows an image.
type writer struct {
	Image
	in      *lowered
	ids     map[ruleset.CounterID]uint32
	devices []rules.Device
	plain   [NumDims]rules.Device // one of those that no table has, by dimension
	bridged bool
	sum     []uint64
}

func layOut(in *lowered, devices []rules.Device, class rules.Class, o Options) (*Image, error) {
	if len(in.entries) > maxEntries {
		return nil, fmt.Errorf("%d entries of rules are more than the data path takes (%d)", len(in.entries), maxEntries)
	}
	w := &writer{in: in, ids: map[ruleset.CounterID]uint32{}, devices: devices, bridged: class.Bridged}
	w.Shape.On, w.Image.Entries, w.Unsaid, w.Left = true, len(in.entries), in.unsaid, in.left
	if in.sender {
		w.Shape.Asks |= AsksSender
	}
	if in.receiver {
		w.Shape.Asks |= AsksReceiver
	}
	w.Bytes = make([]byte, headerSize+recordSize*len(in.entries))
	for i := range in.entries {
		if err := w.record(i, &in.entries[i]); err != nil {
			return nil, err
		}
	}
	words := (len(in.entries) + 63) / 64
	w.put(0, uint32(words))
	w.put(4, uint32((words+63)/64))
	w.put(8, headerSize)
	if !w.trees(class.Family, o.TreeFrom) {
		w.rows(class.Family)
	}
	w.answer(in.asks)
	return &w.Image, nil
}

func (w *writer) rows(family ruleset.Family) {
	ones := make([]uint64, (len(w.in.entries)+63)/64)
	for i := range w.in.entries {
		ones[i>>6] |= 1 << (i & 63)
	}
	w.put(12, w.row(ones))
	for d := range NumDims {
		w.dim(d, family)
	}
}

func (w *writer) put(at int, v uint32) { binary.NativeEndian.PutUint32(w.Bytes[at:], v) }

// room adds n zero bytes at a multiple of align and gives their offset.
func (w *writer) room(n, align int) int {
	at := (len(w.Bytes) + align - 1) / align * align
	more := at + n - len(w.Bytes)
	w.Bytes = rules.Room(w.Bytes, more)[:at+n]
	clear(w.Bytes[at+n-more:])
	return at
}

// row writes a row and gives its offset.
func (w *writer) row(bits []uint64) uint32 {
	sum := rules.Summarise(w.sum, bits)
	w.sum = sum
	at := w.room(8*(len(sum)+len(bits)), rowAlign)
	for i, word := range sum {
		binary.NativeEndian.PutUint64(w.Bytes[at+8*i:], word)
	}
	for i, word := range bits {
		binary.NativeEndian.PutUint64(w.Bytes[at+8*(len(sum)+i):], word)
	}
	return uint32(at)
}

// dim writes the rows and the table of a dimension that entries ask for.
func (w *writer) dim(d Dim, family ruleset.Family) {
	asking := 0
	for i := range w.in.entries {
		if w.in.entries[i].dims[d].is {
			asking++
		}
	}
	if asking == 0 {
		return
	}
	w.Shape.Dims |= 1 << d
	width := 32
	switch d {
	case Src, Dst:
		if family == ruleset.IP6 {
			width = 128
		}
	case SPort, DPort:
		width = 17 // 1 << 16 stands for a packet without ports
	case Proto:
		width = 8
	}
	words := (len(w.in.entries) + 63) / 64
	sums := (words + 63) / 64
	if len(w.in.entries) >= manyEntries {
		w.Bytes = rules.Room(w.Bytes, min(maxRoom, (asking+1)*8*(words+sums))) // most ask for a value of their own
	}
	cuts := rules.Cuts(width, len(w.in.entries), func(i int) ([]ruleset.Range, bool) { // from the value to the row
		a := &w.in.entries[i].dims[d]
		return a.values, a.is
	}, w.row, func(at uint32, bits []uint64) bool {
		row := w.Bytes[int(at)+8*sums:]
		for i, word := range bits {
			if binary.NativeEndian.Uint64(row[8*i:]) != word {
				return false
			}
		}
		return true
	})
	var table int
	var arg uint32
	switch {
	case d >= IIF:
		table, arg = w.hash(d, cuts)
	case width == 128:
		table, arg = w.search(cuts)
	default:
		table, arg = w.trie(width, cuts)
	}
	w.put(dimsAt+8*int(d), uint32(table))
	w.put(dimsAt+8*int(d)+4, arg)
}

// countWay says where the bytes of a count come from; enum shunt_bytes, above the slot.
func countWay(h ruleset.Hook, bridged bool) uint32 {
	switch {
	case h == ruleset.Ingress || bridged:
		return 1 << 24 // with padding
	case h == ruleset.Egress:
		return 2 << 24 // with the Ethernet header
	}
	return 0
}

// count is a count with the number of its counter, and notes the place.
func (w *writer) count(at int, a action) error {
	n, ok := w.ids[a.counter]
	if !ok {
		n = uint32(len(w.Counters))
		if n > counterMask {
			return fmt.Errorf("rules have more than %d counters", counterMask)
		}
		w.ids[a.counter] = n
		w.Counters = append(w.Counters, a.counter)
	}
	w.put(at, n|countWay(a.hook, w.bridged))
	w.Places = append(w.Places, uint32(at))
	return nil
}

// number is the final number of an entry.
func (w *writer) number(t target) (uint32, error) {
	switch t.at {
	case rules.Back:
		return backOut, nil
	case rules.EndBase:
		return backBase, nil
	}
	n, ok := w.in.at[t]
	if !ok {
		return 0, fmt.Errorf("an entry of the rules leads to entry %d of list %d, which is not there", t.at, t.list)
	}
	return uint32(n), nil
}

// record writes an entry's record.
func (w *writer) record(i int, e *entry) (err error) {
	at := headerSize + recordSize*i
	w.put(at, uint32(e.then))
	if e.then == leave {
		w.Slow++
	}
	if e.then == skip {
		to, err := w.number(e.to)
		if err != nil {
			return err
		}
		w.put(at+4, to)
		// The entries at the ends of lists are everyone's: what leads there can do at once what they say.
		if end := &w.in.entries[to]; end.everyone() && (end.then == accept || end.then == back) {
			w.put(at, uint32(end.then))
		}
	}
	w.put(at+8, noCount)
	do := e.do
	for n, a := range do {
		if a.kind == opCount {
			do = append(append([]action{}, do[:n]...), do[n+1:]...)
			if err := w.count(at+8, a); err != nil {
				return err
			}
			break
		}
	}
	if len(e.conds) == 0 && len(do) == 0 && e.then != call {
		return nil
	}
	ops, err := w.operations(e, do)
	if err != nil {
		return err
	}
	w.put(at+12, ops)
	return nil
}
