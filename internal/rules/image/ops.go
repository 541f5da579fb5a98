// SPDX-License-Identifier: Apache-2.0

package image

import "github.com/shuntnet/shunt/internal/model/ruleset"

// An operation is u32 kind | value << 8, yes, no, mask, lo, hi; two words are free. Operations lead forward to others by their offset, or to the end.

// op is an operation on its way into the image.
type op struct {
	kind    opKind
	of      value
	yes, no int // operation, or ^opFail, ^opDone
	mask    uint32
	lo, hi  uint32
	counted action // opCount
}

const (
	toFail = ^opFail
	toDone = ^opDone
)

// operations writes what an entry asks one by one and does besides counting once, and gives the offset of the first operation.
func (w *writer) operations(e *entry, do []action) (uint32, error) {
	var ops []op
	// Written from the end, so that what an operation leads to has its number; turned around below.
	next := toDone
	add := func(o op) int {
		ops = append(ops, o)
		return len(ops) - 1
	}
	if e.then == call {
		to, err := w.number(e.to)
		if err != nil {
			return 0, err
		}
		behind, err := w.number(e.back)
		if err != nil {
			return 0, err
		}
		end, err := w.number(e.end)
		if err != nil {
			return 0, err
		}
		next = add(op{kind: opCall, yes: toDone, no: toDone, mask: to, lo: behind, hi: end})
	}
	for i := len(do) - 1; i >= 0; i-- {
		a := do[i]
		o := op{kind: a.kind, yes: next, no: next, mask: a.mask, lo: a.and, hi: a.xor}
		switch a.kind {
		case opCount:
			o.counted = a
		case opMark, opRestore:
			w.Shape.Sets |= SetsMark
		case opNoTrack:
			w.Shape.Sets |= SetsTrack
		case opZone:
			w.Shape.Sets |= SetsZone
		case opDS:
			w.Shape.Sets |= SetsDS
		}
		next = add(o)
	}
	for i := len(e.conds) - 1; i >= 0; i-- {
		c := e.conds[i]
		hold, fail := next, toFail
		if c.not {
			hold, fail = toFail, next
		}
		if c.set != nil {
			next = add(op{kind: opSet, yes: hold, no: fail, mask: c.set.ask(), lo: w.ask(c.set)})
			continue
		}
		for j := len(c.of) - 1; j >= 0; j-- {
			fail = w.test(c.of[j], hold, fail, add)
		}
		next = fail
	}
	if next == toFail { // at once: the offset of that would say that there is nothing to ask
		next = add(op{kind: opHas, of: vProto, yes: toFail, no: toFail})
	}
	at := w.room(opSize*len(ops), rowAlign)
	offset := func(n int) uint32 {
		switch n {
		case toFail:
			return opFail
		case toDone:
			return opDone
		}
		return uint32(at + opSize*(len(ops)-1-n))
	}
	for n, o := range ops {
		to := int(offset(n))
		w.put(to, uint32(o.kind)|uint32(o.of)<<8)
		w.put(to+4, offset(o.yes))
		w.put(to+8, offset(o.no))
		w.put(to+12, o.mask)
		w.put(to+16, o.lo)
		w.put(to+20, o.hi)
		if o.kind == opCount {
			if err := w.count(to+16, o.counted); err != nil {
				return 0, err
			}
		}
	}
	return offset(next), nil
}

// test writes the operations of one test, which lead to hold or to fail, and gives the first.
func (w *writer) test(t test, hold, fail int, add func(op) int) int {
	kind := opTest
	if t.word6 { // programs have the addresses of each packet
		kind = opWord6
	} else {
		w.Shape.Asks |= 1 << t.of
	}
	in, out := hold, fail
	if t.not {
		in, out = fail, hold
	}
	next := out
	for i := len(t.ranges) - 1; i >= 0; i-- {
		r := t.ranges[i]
		if r.Lo.Compare(ruleset.Max(32)) > 0 {
			continue
		}
		hi := uint32(r.Hi.Lo)
		if r.Hi.Compare(ruleset.Max(32)) > 0 {
			hi = ^uint32(0)
		}
		next = add(op{kind: kind, of: t.of, yes: in, no: next, mask: t.mask, lo: uint32(r.Lo.Lo), hi: hi})
	}
	if t.not && !t.word6 {
		next = add(op{kind: opHas, of: t.of, yes: next, no: fail}) // what is missing fails the test, turned around or not
	}
	return next
}
