// SPDX-License-Identifier: Apache-2.0

package control

import "github.com/shuntnet/shunt/internal/kstate"

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

// compile begins with what the round left out, unless something is being compiled. The loop goes on meanwhile, and the packets that the rules are for go to Linux.
func (e *Engine) compile() {
	c := e.memo.Compilation()
	if c == nil || e.compiling {
		return
	}
	e.compiling = true
	e.compilers.Add(1)
	go func() {
		defer e.compilers.Done()
		c.Run()
		e.compiled <- c
		e.reader.Wake()
	}()
}

// takeCompiled takes in what was compiled, if it is still of use, and says what to read for the round that puts it in force. What is of no use, since the rules changed
// meanwhile, is thrown away, and what they are now is begun with.
func (e *Engine) takeCompiled() kstate.Parts {
	select {
	case c := <-e.compiled:
		e.compiling = false
		if e.memo.Take(c) {
			return kstate.Netfilter
		}
		e.compile()
	default:
	}
	return 0
}
