// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/synth"
)

// State is what one round decided; immutable.
type State struct {
	Generation uint64
	When       time.Time
	Took       time.Duration // from the first event of the round to the plan in force
	Stages     Stages
	Parts      kstate.Parts
	Policy     graph.Policy // that the round followed
	Network    *model.Network
	Graph      *graph.Graph
	Plan       *synth.Plan
	Failures   []datapath.Failure
	Reader     kstate.Stats
	Features   datapath.Features
}

// Stages says where the time of a round went.
type Stages struct{ Snapshot, Read, Decide, Apply time.Duration }

// refusal is a failed attempt to attach.
type refusal struct {
	message string
	when    time.Time
	life    int // model.Link.Life: another device with this number was not refused
}

// retryRefused is when a refused attachment is tried again: drivers' reasons (channels, MTU, offloads) can go away without an event.
const retryRefused = time.Minute

// refused lists the attachments that were refused lately, of devices that are still there.
func (e *Engine) refused(net *model.Network) map[graph.Attachment]string {
	out := map[graph.Attachment]string{}
	for at, r := range e.failed {
		if l := net.Link(at.Index); l == nil || l.Life != r.life || time.Since(r.when) > retryRefused {
			delete(e.failed, at)
			continue
		}
		out[at] = r.message
	}
	return out
}

// round reads what is dirty and makes the data path follow. It returns what has changed by that very doing.
func (e *Engine) round(dirty kstate.Parts, since time.Time) (again kstate.Parts, err error) {
	clock := time.Now()
	lap := func() (d time.Duration) { d, clock = time.Since(clock), time.Now(); return d }
	var stages Stages
	snapshot, err := e.data.Snapshot(datapath.Devices(unread(dirty)))
	stages.Snapshot = lap()
	if err != nil {
		return 0, err
	}
	if dirty&(kstate.Links|kstate.Sysctl) != 0 { // once a second, and when a switch changes by which Linux learns from ICMP
		learned, parts := e.reader.Learned()
		if dirty |= parts; learned { // the lookups may answer something else now for some destination
			e.data.Forget()
		}
	}
	net, err := e.reader.Read(dirty)
	if err != nil {
		return 0, fmt.Errorf("reading Linux's configuration: %w", err)
	}
	snapshot.Remembered(&net.Routes)
	snapshot.Keep(e.committed, unread(e.reader.HasRead()))
	if err := e.data.Handled(net, &snapshot, dirty&kstate.Links != 0); err != nil {
		return 0, err
	}
	stages.Read = lap()
	var before State
	if s := e.state.Load(); s != nil {
		before = *s
		if switched(before.Network, net) { // Linux's next lookup heeds it; no generation says so to what is remembered of earlier ones
			e.data.Forget()
		}
	}
	if before.Network == nil || before.Network.Filter != net.Filter {
		e.changedAt = time.Now()
	}
	policy := e.followed(net)
	g := graph.Build(net, policy)
	plan := synth.Next(net, g, before.Plan)
	e.compile()
	stages.Decide = lap()
	if dirty&kstate.Netfilter != 0 && e.tally.Legacy() {
		e.collect()
	}
	attached := e.data.Attachments(graph.XDP)
	failures, err := e.data.Apply(plan, &snapshot)
	stages.Apply = lap()
	if err != nil {
		return 0, fmt.Errorf("applying the plan: %w", err)
	}
	e.committed = snapshot
	if dirty&kstate.Netfilter != 0 {
		e.tally.Follow(net.Filter, e.reader.LegacyTables())
	}
	if e.data.Attachments(graph.XDP) > attached {
		again = kstate.Links | kstate.XDP // some drivers send XDP frames only once they run a program
	}
	again |= e.refuse(net, failures)
	e.publish(&State{When: time.Now(), Took: time.Since(since), Stages: stages, Parts: dirty, Policy: policy, Network: net, Graph: g, Plan: plan, Failures: failures,
		Reader: e.reader.Stats(), Features: e.data.Features()})
	return again, nil
}

// needs are the parts of a configuration that not every kernel's programs can read.
func needs(net *model.Network) (n datapath.Needs) {
	n.Conntrack = slices.ContainsFunc(net.Netfilter, func(h model.NFHook) bool { return h.Kind == model.Conntrack })
	n.Sets = net.Filter != nil && len(net.Filter.Sets) > 0
	n.Bridges = slices.ContainsFunc(net.Links, func(l *model.Link) bool { return l.Kind == "bridge" })
	return n
}

// switched says whether some switch (sysctl), of the namespace or of a device, has another value.
func switched(old, new *model.Network) bool {
	if !maps.Equal(old.Sysctl.Values, new.Sysctl.Values) {
		return true
	}
	for _, l := range new.Links {
		if was := old.Link(l.Index); was != nil && was != l && (was.Conf4 != l.Conf4 || was.Conf6 != l.Conf6) {
			return true
		}
	}
	return false
}

// followed is the policy that a round follows: the user's, with what is known of the kernel and of earlier attempts.
func (e *Engine) followed(net *model.Network) graph.Policy {
	e.followNames(net)
	e.data.Meet(needs(net))
	e.memo.Apart = e.apart()
	policy := *e.policy.Load()
	policy.Failed, policy.Kernel, policy.Memo = e.refused(net), e.data.Features().Kernel(), &e.memo
	return policy
}

// refuse notes where nothing could be attached, and gives what is to be read again for it.
func (e *Engine) refuse(net *model.Network, failures []datapath.Failure) (again kstate.Parts) {
	if slices.ContainsFunc(failures, func(f datapath.Failure) bool { return errors.Is(f.Err, unix.ENOLINK) }) {
		again |= e.unheardOf() // or each round would fail at the same place until the event comes, if ever
	}
	for _, f := range failures {
		life := 0
		l := net.Link(f.Index)
		tellEmpty(e.log, f, l)
		if l != nil {
			life = l.Life
		}
		e.failed[graph.Attachment{Index: f.Index, Hook: f.Hook}] = refusal{f.Err.Error(), time.Now(), life}
		again |= kstate.Links // without it, perhaps by another hook
	}
	return again
}

// unheardOf has devices read anew that have gone without a word: what is attached at their numbers is to be attached again, if another device has that number.
func (e *Engine) unheardOf() (read kstate.Parts) {
	for _, index := range e.data.Severed() {
		e.reader.Gone(index)
		read = kstate.Links
	}
	return read
}

// followNames lets a pause follow an interface that was renamed. One whose interface is gone waits for another of that name.
func (e *Engine) followNames(net *model.Network) {
	s, p := e.state.Load(), *e.policy.Load()
	if s == nil || len(p.PausedIf) == 0 {
		return
	}
	names := slices.Clone(p.PausedIf)
	for i, name := range names {
		if was := s.Network.LinkByName(name); was != nil {
			if l := net.Link(was.Index); l != nil && l.Life == was.Life {
				names[i] = l.Name
			}
		}
	}
	if !slices.Equal(names, p.PausedIf) {
		p.PausedIf = names
		e.policy.Store(&p)
	}
}

// tellEmpty says that nothing could be attached to a hook of a device. One that has vanished, most likely to be no more, or into another namespace, while the round was on
// its way, is no error: its event is yet to come.
func tellEmpty(log *slog.Logger, f datapath.Failure, l *model.Link) {
	level, what, device := slog.LevelError, "a hook of a device stays empty", ""
	if errors.Is(f.Err, unix.ENODEV) || errors.Is(f.Err, unix.ENOLINK) {
		level, what = slog.LevelInfo, "a device has vanished before it could be attached to"
	}
	if l != nil {
		device = l.Name
	}
	log.Log(context.Background(), level, what, "device", device, "ifindex", f.Index, "hook", f.Hook, "err", f.Err)
}

// unread is what the guard watches of the parts that were not read. The count of address changes counts links that come up too, and the event of an address is
// there before it is counted, so that the round that takes it in is the next at the latest.
func unread(read kstate.Parts) (s datapath.Subject) {
	for subject, parts := range map[datapath.Subject]kstate.Parts{
		datapath.OfNetfilter: kstate.Netfilter, datapath.OfRules: kstate.Rules, datapath.OfAddrs: kstate.Addrs | kstate.Links,
		datapath.OfSwitches: kstate.Sysctl, datapath.OfXFRM: kstate.XFRM, datapath.OfSockets: kstate.Sockets,
	} {
		if read&parts == 0 {
			s |= subject
		}
	}
	return s
}

func (e *Engine) publish(s *State) {
	if old := e.state.Load(); old != nil {
		s.Generation = old.Generation + 1
	} else {
		defer close(e.ready)
	}
	e.state.Store(s)
	e.told(s, nil)
}

func (e *Engine) told(s *State, err error) {
	if e.opts.Round != nil {
		e.opts.Round(s, err)
	}
}
