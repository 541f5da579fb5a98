// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"runtime/debug"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/kstate"
)

// A panic is a fault of shunt. What a namespace's configuration brings about must not end what other namespaces have: the engine that it is in pauses, empties its slots and ends, as by any other error,
// and all that it had in memory is dropped with it. The log has the place.

// fault makes an error of what recover gave.
func (e *Engine) fault(v any) error {
	e.log.Error("a fault of shunt", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return fmt.Errorf("a fault of shunt: %v", v)
}

// relayed is a panic of a goroutine that works for the loop, which ends the loop as one of its own.
type relayed struct{ what, stack string }

func (r relayed) String() string { return r.what + " in\n" + r.stack }

func relay(v any) *relayed { return &relayed{fmt.Sprint(v), string(debug.Stack())} }

// attempt runs a call. One that only asks has changed nothing that counts, so a panic in it is an answer; all the same nothing is fast before everything has been read anew.
func (e *Engine) attempt(fn func(*datapath.Datapath) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = e.fault(v)
			e.data.Pause()
			e.dirty = kstate.All
		}
	}()
	return fn(e.data)
}
