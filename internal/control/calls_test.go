// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
)

// Calls without a pause (a crowd that scrapes metrics) keep the loop neither from following Linux nor from its signs of life.
func TestCallsWithoutAPause(t *testing.T) {
	r := newRig(t, graph.TC)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 64 {
		wg.Go(func() {
			for ctx.Err() == nil {
				r.engine.Do(ctx, func(*datapath.Datapath) error { time.Sleep(2 * time.Millisecond); return nil })
			}
		})
	}
	for range 3 {
		time.Sleep(100 * time.Millisecond)
		before := r.engine.State().Generation
		for end := time.Now().Add(patience); r.engine.State().Generation == before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no round in %s", patience)
			}
		}
	}
}
