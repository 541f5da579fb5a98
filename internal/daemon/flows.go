// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/observe"
)

// flowLease is how long packets are sampled after the last question for the heaviest flows: sampling costs something, and who asks may
// go away without a word.
const flowLease = 10 * time.Second

// flowAge is when sketches begin anew, or a flow that was heavy once would keep those out that are heavy now.
const flowAge = time.Minute

// flowWatch says whether a namespace's packets are sampled.
type flowWatch struct {
	mu    sync.Mutex
	since time.Time   // zero: they are not
	until time.Time   // when it ends if nobody asks
	lease *time.Timer // looks then
}

// watchFlows answers with the heaviest flows. The first question begins to sample, and its answer is empty.
func (m *member) watchFlows(ctx context.Context) (out *api.Flows, err error) {
	m.flows.mu.Lock()
	defer m.flows.mu.Unlock()
	if m.flows.since.IsZero() {
		if err := m.do(ctx, func(_ *control.State, data *datapath.Datapath) error { return data.StartFlows() }); err != nil {
			return nil, err
		}
		if err := m.engine.SetPolicy(ctx, func(p *graph.Policy) { p.Flows = true }); err != nil {
			return nil, err
		}
		m.flows.since = time.Now()
		m.flows.lease = time.AfterFunc(flowLease, m.endFlows)
	}
	m.flows.until = time.Now().Add(flowLease)
	m.flows.lease.Reset(flowLease)
	err = m.do(ctx, func(_ *control.State, data *datapath.Datapath) error {
		if out, err = observe.Flows(data, m.flows.since); err != nil || time.Since(m.flows.since) < flowAge {
			return err
		}
		m.flows.since = time.Now() // what has just been read is still of the old ones
		return data.StartFlows()
	})
	return out, err
}

// endFlows ends sampling. Where the namespace's engine ends first there is nothing to end.
func (m *member) endFlows() {
	m.flows.mu.Lock()
	defer m.flows.mu.Unlock()
	if m.flows.since.IsZero() || time.Now().Before(m.flows.until) { // someone asked while this waited for the lock
		return
	}
	m.flows.since = time.Time{}
	ctx, cancel := context.WithTimeout(context.Background(), flowLease)
	defer cancel()
	err := m.engine.SetPolicy(ctx, func(p *graph.Policy) { p.Flows = false })
	if err == nil {
		err = m.engine.Do(ctx, func(data *datapath.Datapath) error { return data.StopFlows() })
	}
	if err != nil {
		m.log.Debug("ending to sample flows", "error", err)
	}
}
