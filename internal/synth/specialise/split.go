// SPDX-License-Identifier: Apache-2.0

package specialise

import (
	"encoding/binary"
	"slices"
)

const (
	longestWay = 64   // instructions that a way around conditions repeats at most
	mostWays   = 4096 // such ways in a function at most
)

// split leads around conditions whose outcome is known to those who come from one place, though not to all who come there. The early ways out of
// nested functions all go through the conditions behind those: is there a reason to leave by? A way around repeats what lies between the
// conditions; those that lead the same way share it. What was kept for the other outcomes is then kept by who needs it alone. No way leads past the beginning of a
// loop: that would take the loop apart, turn by turn.
func split(p *program, mem *memory) (changed bool) {
	for _, f := range p.funcs {
		changed = f.split(mem) || changed
	}
	return changed
}

func (f *function) split(mem *memory) bool {
	a := analyse(f, mem)
	w := &ways{analysis: a, loops: f.loops(), known: map[string]*block{}}
	type turn struct {
		edge **block
		to   *block
	}
	var turns []turn // taken when all are known: until then blocks lead where the analysis saw them lead
	for _, b := range f.blocks {
		start := a.at(b)
		if start == nil {
			continue
		}
		s := *start
		out := a.leave(&s, b)
		for _, edge := range []**block{&b.next, &b.jump} {
			to := *edge
			if to == nil || to != out[0] && to != out[1] {
				continue
			}
			if way := w.around(s, to); way != nil {
				turns = append(turns, turn{edge, way})
			}
		}
	}
	for _, t := range turns {
		*t.edge = t.to
	}
	f.blocks = append(f.blocks, w.made...)
	return len(turns) > 0
}

// loops says which blocks a path from themselves leads back to, by the first such path that is found.
func (f *function) loops() []bool {
	const open, done = 1, 2
	n := f.number()
	heads, seen := make([]bool, n), make([]uint8, n)
	type step struct {
		b    *block
		next int
	}
	way := []step{{b: f.entry}}
	seen[f.entry.number] = open
	heads[f.entry.number] = true // its first instruction has the function's name
	for len(way) > 0 {
		at := &way[len(way)-1]
		if at.next == 2 {
			seen[at.b.number] = done
			way = way[:len(way)-1]
			continue
		}
		to := at.b.successors()[at.next]
		at.next++
		switch {
		case to == nil:
		case seen[to.number] == open:
			heads[to.number] = true
		case seen[to.number] == 0:
			seen[to.number] = open
			way = append(way, step{b: to})
		}
	}
	return heads
}

// ways are those around conditions in one function.
type ways struct {
	*analysis
	loops []bool
	known map[string]*block // by the numbers of the blocks that they repeat, and of that to which they lead
	made  []*block
}

// around is a way from an edge in state s past the conditions that are decided there, nil if the first one is not.
func (w *ways) around(s state, to *block) *block {
	var passed, decided []*block
	var end *block // where the last of those decided goes on
	length := 0
	for at := to; at != nil && !w.loops[at.number] && w.at(at) != nil; {
		last := at.branch()
		if length += len(at.body); length > longestWay {
			break
		}
		for i := range at.body {
			if n := &at.body[i]; n != last {
				w.step(&s, n)
			}
		}
		passed = append(passed, at)
		if last == nil {
			at = at.next
			continue
		}
		taken, ok := w.decide(&s, last)
		if !ok {
			break
		}
		if taken {
			at = at.jump
		} else {
			at = at.next
		}
		decided, end = passed, at
	}
	if len(decided) == 0 || len(w.known) >= mostWays {
		return nil
	}
	var key []byte
	for _, b := range append(slices.Clone(decided), end) {
		key = binary.NativeEndian.AppendUint32(key, uint32(b.number))
	}
	if w.known[string(key)] == nil {
		way := &block{next: end}
		for _, b := range decided {
			body := b.body
			if last := b.branch(); last != nil {
				body, way.link = body[:len(body)-1], last.src
			}
			for _, n := range body {
				if n.ins.Symbol() != "" {
					n.ins = n.ins.WithSymbol("") // there is one place of a name
				}
				way.body = append(way.body, n)
			}
		}
		w.known[string(key)] = way
		w.made = append(w.made, way)
	}
	return w.known[string(key)]
}
