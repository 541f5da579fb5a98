// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/shuntnet/shunt/internal/bpfobj"
)

// restAfter is how long no program must have been folded for memory to be given back. Changes come in bursts, and each collection takes some ten milliseconds of CPU time.
// Longer than generic programs wait (repose), which are folded as well.
const restAfter = repose + 3*time.Second

var rest struct {
	mu    sync.Mutex
	timer *time.Timer
	types func() // releases the kernel's types, which the next program may ask for
}

// restSoon gives memory back when no further program is folded. Folding leaves up to thirty megabytes: the scratch that package specialise keeps between runs, copies
// of instructions, the kernel's types where they were read anew. A daemon that waits allocates next to nothing, so the runtime would come to collect them after minutes only.
func restSoon() {
	rest.mu.Lock()
	defer rest.mu.Unlock()
	if rest.types == nil {
		rest.types = bpfobj.KeepKernelTypes()
	}
	if rest.timer == nil {
		rest.timer = time.AfterFunc(restAfter, giveBack)
		return
	}
	rest.timer.Reset(restAfter)
}

func giveBack() {
	rest.mu.Lock()
	if rest.types != nil { // a fold that met the timer's end set it again
		rest.types()
		rest.types = nil
	}
	rest.mu.Unlock()
	runtime.GC() // what pools hold goes with the second collection that finds it unused
	debug.FreeOSMemory()
}
