// SPDX-License-Identifier: Apache-2.0

package control

import (
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/graph"
)

// A compilation begins at once where all packets wait for it, soon after the last change or after a rest where some do, and when changes are over for good where none does.
func TestWhenToCompile(t *testing.T) {
	const took = 100 * time.Millisecond
	now := time.Now()
	for _, c := range []struct {
		what          string
		work          graph.Compilation
		changed, done time.Duration // ago
		want          time.Duration
	}{
		{"all packets wait", graph.Compilation{Urgent: true}, 0, 0, 0},
		{"some wait, changed just now", graph.Compilation{Leaves: true}, 0, time.Minute, -time.Minute + compileRest*took},
		{"some wait, compiled and changed just now", graph.Compilation{Leaves: true}, 0, 0, took},
		{"some wait, changes again and again", graph.Compilation{Leaves: true}, 0, 3 * took, took},
		{"some wait, no change any more", graph.Compilation{Leaves: true}, 2 * took, 0, -took},
		{"none waits", graph.Compilation{Changed: 1}, 0, time.Minute, compileCalm},
		{"none waits, no change any more", graph.Compilation{Changed: 1}, compileCalm, 0, 0},
		{"none waits, but much is asked", graph.Compilation{Changed: compileLoad + 1}, 0, compileRest * took, 0},
	} {
		e := &Engine{changedAt: now.Add(-c.changed), compileTook: took, compileAt: now.Add(compileRest*took - c.done)}
		if got := e.compileDue(&c.work, now); got != c.want {
			t.Errorf("%s: in %s, want %s", c.what, got, c.want)
		}
	}
}
