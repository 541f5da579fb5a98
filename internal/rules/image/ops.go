// SPDX-License-Identifier: Apache-2.0

package image

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

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

// operations are those of one entry, written from the last to the first: what one leads to has its number then.
type operations struct {
	*writer
	list []op
}

// operations writes what an entry asks one by one and does besides counting once, and gives the offset of the first operation.
func (w *writer) operations(e *entry, do []action) (uint32, error) {
	ops := operations{writer: w}
	next := toDone
	if e.then == call {
		var err error
		if next, err = ops.call(e); err != nil {
			return 0, err
		}
	}
	for _, a := range slices.Backward(do) {
		next = ops.action(a, next)
	}
	for _, c := range slices.Backward(e.conds) {
		next = ops.cond(&c, next)
	}
	if next == toFail { // at once: the offset of that would say that there is nothing to ask
		next = ops.add(op{kind: opHas, of: vProto, yes: toFail, no: toFail})
	}
	return ops.write(next)
}

func (ops *operations) add(o op) int {
	ops.list = append(ops.list, o)
	return len(ops.list) - 1
}

// call is what an entry ends in that calls a list.
func (ops *operations) call(e *entry) (int, error) {
	to, err := ops.number(e.to)
	if err != nil {
		return 0, err
	}
	behind, err := ops.number(e.back)
	if err != nil {
		return 0, err
	}
	end, err := ops.number(e.end)
	if err != nil {
		return 0, err
	}
	return ops.add(op{kind: opCall, yes: toDone, no: toDone, mask: to, lo: behind, hi: end}), nil
}

// action does something, and goes on at next.
func (ops *operations) action(a action, next int) int {
	o := op{kind: a.kind, of: a.of, yes: next, no: next, mask: a.mask, lo: a.and, hi: a.xor}
	switch a.kind {
	case opCount:
		o.counted = a
	case opMark, opRestore:
		if a.of == vPriority {
			ops.Shape.Sets |= SetsPriority
			break
		}
		ops.Shape.Sets |= SetsMark
	case opNoTrack:
		ops.Shape.Sets |= SetsTrack
	case opZone:
		ops.Shape.Sets |= SetsZone
	case opDS:
		ops.Shape.Sets |= SetsDS
	}
	return ops.add(o)
}

// cond asks for a condition, and goes on at next where it holds.
func (ops *operations) cond(c *cond, next int) int {
	hold, fail := next, toFail
	if c.not {
		hold, fail = toFail, next
	}
	if c.set != nil {
		return ops.add(op{kind: opSet, yes: hold, no: fail, mask: c.set.ask(), lo: ops.ask(c.set)})
	}
	for _, t := range slices.Backward(c.of) { // one of them has to hold
		fail = ops.test(t, hold, fail)
	}
	return fail
}

// test writes the operations of one test, which lead to hold or to fail, and gives the first.
func (ops *operations) test(t test, hold, fail int) int {
	kind := opTest
	if t.word6 { // programs have the addresses of each packet
		kind = opWord6
	} else {
		ops.Shape.Asks |= 1 << t.of
	}
	in, out := hold, fail
	if t.not {
		in, out = fail, hold
	}
	next := out
	for _, r := range slices.Backward(t.ranges) {
		if r.Lo.Compare(ruleset.Max(32)) > 0 {
			continue
		}
		hi := uint32(r.Hi.Lo)
		if r.Hi.Compare(ruleset.Max(32)) > 0 {
			hi = ^uint32(0)
		}
		next = ops.add(op{kind: kind, of: t.of, yes: in, no: next, mask: t.mask, lo: uint32(r.Lo.Lo), hi: hi})
	}
	if t.not && !t.word6 {
		next = ops.add(op{kind: opHas, of: t.of, yes: next, no: fail}) // what is missing fails the test, turned around or not
	}
	return next
}

// write puts the operations into the image in the order in which they are met, and gives the offset of the first.
func (ops *operations) write(first int) (uint32, error) {
	last := len(ops.list) - 1
	at := ops.room(opSize*len(ops.list), rowAlign)
	offset := func(n int) uint32 {
		switch n {
		case toFail:
			return opFail
		case toDone:
			return opDone
		}
		return uint32(at + opSize*(last-n))
	}
	for n, o := range ops.list {
		to := int(offset(n))
		ops.put(to, uint32(o.kind)|uint32(o.of)<<8)
		ops.put(to+4, offset(o.yes))
		ops.put(to+8, offset(o.no))
		ops.put(to+12, o.mask)
		ops.put(to+16, o.lo)
		ops.put(to+20, o.hi)
		if o.kind == opCount {
			if err := ops.count(to+16, o.counted); err != nil {
				return 0, err
			}
		}
	}
	return offset(first), nil
}
