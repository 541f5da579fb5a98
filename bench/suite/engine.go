// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// Engine is shunt at work in a namespace, inside this process.
type Engine struct {
	*control.Engine
	ns *lab.NS
}

// StartEngine starts shunt in a namespace until the end of the section.
func (b *Bench) StartEngine(ns *lab.NS, policy graph.Policy) (*Engine, error) {
	dir, err := b.TempDir()
	if err != nil {
		return nil, err
	}
	e := &Engine{ns: ns, Engine: control.New(control.Options{
		Namespace: ns.Name, NetnsPath: ns.Path(), PinDir: filepath.Join(dir, "bpf"),
		Tier:   datapath.Both, // as a machine has them that has been at rest for some seconds; none is loaded while something is measured
		Policy: policy, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	select {
	case <-e.Ready():
	case err := <-done:
		cancel()
		return nil, fmt.Errorf("starting shunt in %s: %w", ns.Name, err)
	case <-time.After(time.Minute):
		cancel()
		return nil, fmt.Errorf("starting shunt in %s: not ready after a minute", ns.Name)
	}
	b.Later(func() error {
		defer cancel()
		e.DetachOnStop()
		cancel()
		return <-done
	})
	if f := e.State().Failures; len(f) > 0 {
		return nil, fmt.Errorf("attaching shunt in %s: %w", ns.Name, f[0].Err)
	}
	e.Settle()
	return e, nil
}

// Settle waits until the events of attaching have been taken in, and every interface runs the program that is made for it.
func (e *Engine) Settle() {
	for {
		before := e.State().Generation
		time.Sleep(50 * time.Millisecond)
		if e.State().Generation == before && e.Settled() {
			return
		}
	}
}

// Settled says whether every interface runs the program that is made for it, and the generic programs are there.
func (e *Engine) Settled() (yes bool) {
	err := e.Do(context.Background(), func(d *datapath.Datapath) error { yes = d.Settled(); return nil })
	return yes || err != nil
}

// hooks are those that are attached at an interface.
func (e *Engine) hooks(index int) []graph.Hook {
	for _, p := range e.State().Graph.Ports {
		if p.Index == index {
			return p.Hooks
		}
	}
	return nil
}

// counters are an interface's packets by reason, added up over the hooks.
func (e *Engine) counters(index int) (c [reason.Count]uint64, err error) {
	err = e.Do(context.Background(), func(d *datapath.Datapath) error {
		for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
			got, _, err := d.Counters(index, hook)
			if err != nil {
				return err
			}
			for i := range got {
				c[i] += got[i].Packets
			}
		}
		return nil
	})
	return c, err
}

// Forwarded runs what forwards packets of an interface, and names the reason why one was not.
func (e *Engine) Forwarded(index int, run func() (float64, error)) (float64, error) {
	before, err := e.counters(index)
	if err != nil {
		return 0, err
	}
	ns, err := run()
	var spoiled Spoiled
	if errors.As(err, &spoiled) {
		after, counterErr := e.counters(index)
		if counterErr != nil {
			return 0, counterErr
		}
		for i := range after {
			if n := after[i] - before[i]; n > 0 && reason.Code(i) != reason.Fast {
				spoiled += Spoiled(fmt.Sprintf("; %d by reason %s", n, reason.Code(i)))
			}
		}
		return 0, spoiled
	}
	return ns, err
}

// main is the reason by which most packets left between two readings, with its share.
func mainReason(before, after [reason.Count]uint64) (code reason.Code, share float64) {
	var most, all uint64
	for i := range after {
		if reason.Code(i) == reason.Resting {
			continue // goes to Linux for whatever reason the others do
		}
		n := after[i] - before[i]
		all += n
		if n > most {
			code, most = reason.Code(i), n
		}
	}
	return code, float64(most) / float64(max(all, 1))
}

// Decided says whether the fast path itself ends a packet's way by this reason, instead of leaving it to Linux.
func Decided(code reason.Code) bool { return code == reason.Fast || code == reason.RuleDrop }

// treatmentOf sums up what happened between two readings. Where nothing is attached, nothing is counted, and nothing is fast.
func treatmentOf(before, after [reason.Count]uint64) (t treatment) {
	var decided, all, most uint64
	for i := range after {
		n := after[i] - before[i]
		all += n
		switch {
		case Decided(reason.Code(i)):
			decided += n
		case n > most && reason.Code(i) != reason.Resting:
			t.main, most = reason.Code(i), n
		}
	}
	t.none = all == 0
	t.decided = float64(decided) / float64(max(all, 1))
	return t
}
