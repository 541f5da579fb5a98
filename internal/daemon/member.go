// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/observe"
)

// member is one served network namespace.
type member struct {
	name     string
	path     string   // of a namespace that is not the process's
	identity identity // of the namespace, to notice a new one of the same name
	engine   *control.Engine
	log      *slog.Logger
	recorder *observe.Recorder
	cancel   context.CancelFunc
	done     chan struct{} // closed when the engine has ended
	err      error         // why it ended; valid after done
	ending   sync.Once
	flows    flowWatch
}

var errEnding = errors.New("the daemon is stopping")

// start serves a namespace. Errors of the engine itself come later, see member.err.
func (d *Daemon) start(name, path string, id *identity) (*member, error) {
	m := &member{name: name, path: path, recorder: observe.NewRecorder(name), done: make(chan struct{}), log: d.Log}
	if name != "" {
		m.log = m.log.With("netns", name)
	}
	if id != nil {
		m.identity = *id
	}
	m.engine = control.New(control.Options{
		Namespace: name, NetnsPath: path, PinDir: pinsOf(d.RuntimeDir, name), Counts: countsOf(d.RuntimeDir, name), Policy: d.Policy, Watchdog: d.Watchdog, Tier: d.Tier, Log: m.log, Round: m.recorder.Round,
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending {
		m.recorder.Close()
		return nil, errEnding
	}
	d.members[name] = m
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(d.ctx)) // ended by end, in order
	go func() {
		defer close(m.done)
		defer m.recorder.Close()
		defer m.cancel()
		m.err = m.engine.Run(ctx)
	}()
	return m, nil
}

// untilReady waits for the first round.
func (m *member) untilReady(ctx context.Context) error {
	select {
	case <-m.engine.Ready():
		return nil
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end stops the engine and waits for it; detach removes what it would leave in the kernel.
func (m *member) end(detach bool) {
	m.ending.Do(func() {
		if detach {
			m.engine.DetachOnStop()
		}
		m.cancel()
	})
	<-m.done
}

// do runs a function between rounds, with the state of the last one.
func (m *member) do(ctx context.Context, fn func(*control.State, *datapath.Datapath) error) error {
	select {
	case <-m.done:
		if m.err != nil {
			return api.Errorf(api.KindFailed, "this network namespace is left to Linux, and tried again before long: %v", m.err)
		}
	default:
	}
	select {
	case <-m.engine.Ready():
	default:
		return api.Errorf(api.KindFailed, "shunt is still reading Linux's configuration; try again in a moment")
	}
	return m.engine.Do(ctx, func(d *datapath.Datapath) error { return fn(m.engine.State(), d) })
}
