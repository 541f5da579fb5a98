// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"time"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/kstate"
)

// errStopped is what calls get after the loop has ended.
var errStopped = errors.New("the daemon is stopping")

// Do runs a function on the loop's thread, between rounds, where the data path may be used. A panic in it is its error.
func (e *Engine) Do(ctx context.Context, fn func(*datapath.Datapath) error) error {
	return e.call(ctx, func(*datapath.Datapath) error { return e.attempt(fn) })
}

// call is Do for what changes something: a panic in it is the loop's.
func (e *Engine) call(ctx context.Context, fn func(*datapath.Datapath) error) error {
	done := make(chan error, 1)
	select {
	case <-e.ready:
	case <-e.ended:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case e.calls <- func() { done <- fn(e.data) }:
		e.reader.Wake()
	case <-e.ended:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-e.ended:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serveFor is how long calls are answered before the loop looks after everything else: those who ask without a pause must not keep it from a sign of life.
const serveFor = beatEvery / 5

// serve runs what Do has queued, for a while.
func (e *Engine) serve() {
	for end := time.Now().Add(serveFor); time.Now().Before(end); {
		select {
		case fn := <-e.calls:
			fn()
		default:
			return
		}
	}
	e.reader.Wake() // there may be more
}

// SetPolicy replaces what the user asked for, and makes a round of it.
func (e *Engine) SetPolicy(ctx context.Context, change func(*graph.Policy)) error {
	return e.call(ctx, func(*datapath.Datapath) error {
		p := *e.policy.Load()
		change(&p)
		e.policy.Store(&p)
		e.dirty |= kstate.Links // beside what is still to be read: a round that leaves that out would end a pause that waits for it
		return e.catchUp(time.Now())
	})
}

// DetachOnStop makes the end of Run remove everything from the kernel, also one that comes before the first round is over: what an
// earlier daemon left is adopted before it begins.
func (e *Engine) DetachOnStop() { e.detach.Store(true) }
