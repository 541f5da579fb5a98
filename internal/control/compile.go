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

// compiled is a compilation that is done.
type compiled struct {
	*graph.Compilation
	took time.Duration
}

// compile begins with what the round left out, unless something is being compiled. The loop goes on meanwhile, and the packets that the rules are for go to Linux.
func (e *Engine) compile() {
	if e.compiling {
		return
	}
	c := e.memo.Compilation()
	if c == nil || !c.Urgent && time.Now().Before(e.compileAt) {
		return
	}
	e.compiling = true
	e.compilers.Add(1)
	go func() {
		defer e.compilers.Done()
		began := time.Now()
		c.Run()
		e.compiled <- compiled{c, time.Since(began)}
		e.reader.Wake()
	}()
}

// takeCompiled takes in what was compiled, if it is still of use, and says what to read for the round that puts it in force.
func (e *Engine) takeCompiled() kstate.Parts {
	select {
	case c := <-e.compiled:
		e.compiling, e.compileAt = false, time.Now().Add(compileRest*c.took)
		if e.memo.Take(c.Compilation) {
			return kstate.Netfilter
		}
	default:
	}
	return 0
}
