// SPDX-License-Identifier: Apache-2.0

package control

import (
	"time"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/kstate"
)

// manyRules is the number of rules from which on a rule set is compiled behind the loop: with fewer, that takes no longer than the rest of a round.
const manyRules = 1000

// apart is the number of rules from which on the next round leaves a rule set to be compiled behind the loop. The first one does all itself: nothing is
// fast before it.
func (e *Engine) apart() int {
	if e.state.Load() == nil {
		return 0
	}
	return manyRules
}

// compileRest is how often as long as it took compiling rests where only the packets of changed rules wait for it: rules that change all the time must not keep a CPU busy.
const compileRest = 4

// How long rules have to stay what they are for a compilation to begin. Where what changed is left to Linux the end of a burst is enough, or as long as compiling took, and then it does not wait for the
// rest; where it is decided in front of the images there is no haste, as long as it is little that every packet is asked in addition.
const (
	compileQuiet = 20 * time.Millisecond
	compileCalm  = 500 * time.Millisecond
	compileLoad  = 16 // changed rules
)

// compileDue says how long until a compilation is to begin.
func (e *Engine) compileDue(c *graph.Compilation, now time.Time) time.Duration {
	rested, quiet := e.compileAt.Sub(now), e.changedAt.Add(max(compileQuiet, e.compileTook)).Sub(now)
	switch {
	case c.Urgent:
		return 0
	case c.Leaves || c.Changed > compileLoad:
		return min(rested, quiet)
	}
	return e.changedAt.Add(compileCalm).Sub(now)
}

// compiled is a compilation that is done.
type compiled struct {
	*graph.Compilation
	took  time.Duration
	panic *relayed
}

// compile begins with what the round left out, unless something is being compiled. The loop goes on meanwhile, and the packets that the rules are for go to Linux, or are decided in front of the images. It
// says how long the loop may wait until it is asked again.
func (e *Engine) compile() (due time.Duration) {
	due = beatEvery
	if e.compiling {
		return due
	}
	c := e.memo.Compilation()
	if c == nil {
		return due
	}
	if wait := e.compileDue(c, time.Now()); wait > 0 {
		return min(due, wait)
	}
	e.compiling = true
	e.compilers.Add(1)
	go func() {
		defer e.compilers.Done()
		began := time.Now()
		defer func() {
			done := compiled{Compilation: c, took: time.Since(began)}
			if v := recover(); v != nil {
				done.panic = relay(v)
			}
			e.compiled <- done
			e.reader.Wake()
		}()
		c.Run()
	}()
	return due
}

// takeCompiled takes in what was compiled, if it is still of use, and says what to read for the round that puts it in force.
func (e *Engine) takeCompiled() kstate.Parts {
	select {
	case c := <-e.compiled:
		if c.panic != nil {
			panic(c.panic)
		}
		e.compiling, e.compileTook, e.compileAt = false, c.took, time.Now().Add(compileRest*c.took)
		if e.memo.Take(c.Compilation) {
			return kstate.Netfilter
		}
	default:
	}
	return 0
}
