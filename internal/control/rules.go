// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"runtime"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// Rules reads the rules of the namespace, on a thread of its own: a set can have a million elements, and the loop must not
// be held up by a question. beyond is what the fast path counted that is not in Linux's counters, by ruleset.CounterPlace.ID of the reading's identities.
func (e *Engine) Rules(ctx context.Context) (read *kstate.RuleReading, beyond map[string]ruleset.Amount, err error) {
	type answer struct {
		read   *kstate.RuleReading
		beyond map[string]ruleset.Amount
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, whatever namespace it is in
		var a answer
		defer func() {
			if v := recover(); v != nil {
				a.err = e.fault(v)
			}
			done <- a
		}()
		if e.opts.NetnsPath != "" {
			a.err = enter(e.opts.NetnsPath)
		}
		if a.err == nil {
			take := func() error { return e.Do(ctx, func(*datapath.Datapath) error { return e.take() }) }
			a.beyond, a.err = e.tally.Read(take, func() { a.read = kstate.ReadRules(nil) })
		}
	}()
	select {
	case a := <-done:
		return a.read, a.beyond, a.err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}
