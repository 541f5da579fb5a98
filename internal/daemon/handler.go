// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/observe"
)

// handle answers one request.
func (d *Daemon) handle(ctx context.Context, r *api.Request, send func(any) error) (any, error) {
	switch r.Verb {
	case api.VerbStatus:
		return d.status(ctx, r.Netns)
	case api.VerbShow:
		return withArgs(r, func(a api.ShowArgs) (any, error) { return d.show(ctx, r.Netns, a) })
	case api.VerbExplain:
		return withArgs(r, func(a api.ExplainArgs) (any, error) { return d.explain(ctx, r.Netns, a) })
	case api.VerbPause, api.VerbResume:
		return withArgs(r, func(a api.PauseArgs) (any, error) { return d.pause(ctx, r.Netns, a.Interface, r.Verb == api.VerbPause) })
	case api.VerbStop:
		return withArgs(r, func(a api.StopArgs) (any, error) {
			d.shutdown(a.Detach)
			return d.ended(a.Detach)
		})
	case api.VerbMonitor:
		return nil, d.monitor(ctx, r.Netns, send)
	}
	return nil, api.Errorf(api.KindUsage, "this daemon does not know the request %q", r.Verb)
}

// ended answers who asked to stop. Who asked to remove everything may have come while an end was under way that leaves the stubs, or something could not be removed in order: it is removed then,
// or the answer is why not.
func (d *Daemon) ended(detach bool) (any, error) {
	d.clearing.Lock()
	defer d.clearing.Unlock()
	if detach && !d.detach {
		removed, err := Clear(d.RuntimeDir)
		if err != nil {
			return nil, err
		}
		d.detach = true
		d.Log.Info("detached", "removed", removed)
	}
	return api.Stopped{PID: os.Getpid(), Detached: d.detach}, nil
}

// withArgs decodes the arguments of a request; none are the zero value.
func withArgs[A any](r *api.Request, fn func(A) (any, error)) (any, error) {
	var a A
	if len(r.Args) > 0 {
		if err := json.Unmarshal(r.Args, &a); err != nil {
			return nil, api.Errorf(api.KindUsage, "reading the arguments of %s: %v", r.Verb, err)
		}
	}
	return fn(a)
}

// member finds a served namespace by name.
func (d *Daemon) member(name string) (*member, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.members[name]; m != nil {
		return m, nil
	}
	var names []string
	for n := range d.members {
		if n != "" {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, api.Errorf(api.KindUsage, "this daemon serves no other network namespace than its own; start it with --netns to serve %q", name)
	}
	return nil, api.Errorf(api.KindUsage, "this daemon does not serve network namespace %q; it serves %s", name, strings.Join(names, ", "))
}

// status describes one namespace; before its first round, only that it is not ready.
func (d *Daemon) status(ctx context.Context, netns string) (*api.Status, error) {
	m, err := d.member(netns)
	if err != nil {
		return nil, err
	}
	out := &api.Status{Version: d.Version, Schema: api.Schema, PID: os.Getpid(), Netns: netns, Hook: d.Policy.Hook,
		PausedIf: []string{}, Interfaces: []api.Interface{}, Rules: []api.Reason{}, Sets: []api.SlowSet{}, Namespaces: d.namespaces()}
	out.Failing = m.engine.Failing()
	out.Sync = m.recorder.Sync(m.engine.State())
	out.Sync.WatchdogMS = d.Watchdog.Milliseconds()
	if m.engine.State() == nil {
		return out, nil
	}
	return out, m.do(ctx, func(s *control.State, data *datapath.Datapath) error {
		var err error
		out.Ready, out.Generation, out.Features, out.Paused = true, s.Generation, s.Features, s.Policy.Paused
		for _, name := range s.Policy.PausedIf {
			out.PausedIf = append(out.PausedIf, model.PrintableName(name))
		}
		out.NoGeneric = data.NoGeneric()
		for _, f := range s.Network.Faults {
			out.Faults = append(out.Faults, f.Part+": "+f.Err)
		}
		out.Sync = m.recorder.Sync(s)
		out.Sync.WatchdogMS, out.Sync.Awaited = d.Watchdog.Milliseconds(), data.Awaited()
		out.Rules, out.Sets = observe.SlowRules(s), observe.SlowSets(s)
		out.Interfaces, err = observe.Interfaces(s, data)
		return err
	})
}

func (d *Daemon) namespaces() (out []api.Namespace) {
	for _, m := range d.served() {
		n := api.Namespace{Name: m.name, Ready: m.engine.State() != nil}
		select {
		case <-m.done:
			n.Ready = false
			if m.err != nil {
				n.Error = m.err.Error()
			}
		default:
		}
		out = append(out, n)
	}
	return out
}

// show gives one of the subjects of `shunt show`.
func (d *Daemon) show(ctx context.Context, netns string, a api.ShowArgs) (out any, err error) {
	m, err := d.member(netns)
	if err != nil {
		return nil, err
	}
	switch a.What {
	case api.ShowEvents:
		return m.recorder.Events(), nil
	case api.ShowFlows:
		return m.watchFlows(ctx)
	case api.ShowRules:
		read, beyond, err := m.engine.Rules(ctx)
		if err != nil {
			return nil, err
		}
		return observe.Rules(read, beyond, m.engine.State()), nil
	}
	subjects := map[string]func(*control.State, *datapath.Datapath) (any, error){
		api.ShowGraph:      func(s *control.State, _ *datapath.Datapath) (any, error) { return picture(s.Graph, a.Format) },
		api.ShowReasons:    func(s *control.State, data *datapath.Datapath) (any, error) { return observe.Reasons(s, data) },
		api.ShowPrograms:   func(s *control.State, data *datapath.Datapath) (any, error) { return observe.Programs(s, data) },
		api.ShowNeighbours: func(s *control.State, data *datapath.Datapath) (any, error) { return observe.Neighbours(s, data) },
	}
	subject := subjects[a.What]
	if subject == nil {
		return nil, api.Errorf(api.KindUsage, "this daemon cannot show %q", a.What)
	}
	err = m.do(ctx, func(s *control.State, data *datapath.Datapath) error {
		out, err = subject(s, data)
		return err
	})
	return out, err
}

func (d *Daemon) explain(ctx context.Context, netns string, a api.ExplainArgs) (out *api.Explanation, err error) {
	m, err := d.member(netns)
	if err != nil {
		return nil, err
	}
	err = m.do(ctx, func(s *control.State, data *datapath.Datapath) error {
		out, err = observe.Explain(s, data, a.Interface, a.Packet)
		return err
	})
	return out, err
}

// pause takes all or one interface out of the fast path, or back into it.
func (d *Daemon) pause(ctx context.Context, netns, iface string, on bool) (*api.Status, error) {
	m, err := d.member(netns)
	if err != nil {
		return nil, err
	}
	if err := m.do(ctx, func(s *control.State, _ *datapath.Datapath) (err error) {
		iface, err = pausable(s, iface, on)
		return err
	}); err != nil {
		return nil, err
	}
	err = m.engine.SetPolicy(ctx, func(p *graph.Policy) {
		if iface == "" {
			p.Paused = on
			if !on {
				p.PausedIf = nil
			}
			return
		}
		p.PausedIf = slices.DeleteFunc(slices.Clone(p.PausedIf), func(n string) bool { return n == iface })
		if on {
			p.PausedIf = append(p.PausedIf, iface)
		}
	})
	if err != nil {
		return nil, err
	}
	return d.status(ctx, netns)
}

// pausable gives the name by which an interface can be paused, or resumed: that of one that is there, or whose pause has outlived it. "" is all.
func pausable(s *control.State, iface string, on bool) (name string, err error) {
	if iface == "" {
		return "", nil
	}
	if !on && s.Policy.Paused {
		return "", api.Errorf(api.KindFailed, "making %s fast again: everything is paused; `shunt resume` ends it", iface)
	}
	if l := s.Network.LinkCalled(iface); l != nil {
		return l.Name, nil
	}
	for _, name := range s.Policy.PausedIf {
		if !on && (name == iface || model.PrintableName(name) == iface) {
			return name, nil
		}
	}
	return "", observe.UnknownInterface(s, iface)
}

// monitor streams events, of one namespace or, where none is named, of all that are served now.
func (d *Daemon) monitor(ctx context.Context, netns string, send func(any) error) error {
	members := d.served()
	if netns != "" {
		m, err := d.member(netns)
		if err != nil {
			return err
		}
		members = []*member{m}
	}
	all := make(chan api.Event)
	for _, m := range members {
		events, cancel := m.recorder.Watch()
		defer cancel()
		go func() {
			for e := range events {
				select {
				case all <- e:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	for {
		select {
		case e := <-all:
			if err := send(e); err != nil {
				return err
			}
		case <-d.ctx.Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// picture gives a graph in the wanted form.
func picture(g *graph.Graph, format string) (any, error) {
	switch format {
	case "":
		return g, nil
	case "text":
		return g.Text(), nil
	case "dot":
		return g.DOT(), nil
	case "svg":
		return g.SVG(), nil
	}
	return nil, api.Errorf(api.KindUsage, "a graph can be drawn as text, dot or svg, not %q", format)
}
