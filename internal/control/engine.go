// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/synth"
	"github.com/shuntnet/shunt/internal/tally"
)

const (
	beatEvery      = 50 * time.Millisecond
	reconcileEvery = time.Second
	// WatchdogLimit is how long the data path trusts a silent daemon unless told otherwise.
	WatchdogLimit = 400 * time.Millisecond
)

// silent are the parts that can change without an event; they are read once a second.
const silent = unheard | kstate.Netfilter | kstate.Sysctl

// unheard are those of them of which each beat says whether they did.
const unheard = kstate.XDP | kstate.Sockets

// Options configure an Engine.
type Options struct {
	Namespace string // name for logs and status, "" for the one the process was started in
	NetnsPath string // namespace to enter, "" for the current one
	PinDir    string
	Counts    string // file for what the fast path counted for rules, so that the next daemon goes on from there; "" for none
	Policy    graph.Policy
	Watchdog  time.Duration // how long the data path trusts a silent daemon, 0: WatchdogLimit
	Tier      datapath.Tier // datapath.Options.Tier, for tests
	NoCast    bool          // datapath.Options.NoCast, for tests
	Once      bool          // apply once, take everything away again and return (for tests of set-up)
	// Round is called on the loop's thread after each round, with its state or, where it failed, its error; it must not block. May be nil.
	Round func(*State, error)
	Log   *slog.Logger

	trackSocket func() (int, error) // opens a socket to connection tracking; tests have it fail or wait
}

// Engine drives one network namespace.
type Engine struct {
	opts   Options
	log    *slog.Logger
	policy atomic.Pointer[graph.Policy]
	state  atomic.Pointer[State]
	calls  chan func()
	ready  chan struct{} // closed after the first round
	ended  chan struct{} // closed when the loop is over or never came to be
	end    func()

	failing atomic.Pointer[string] // why the last round failed

	// Owned by the loop.
	dirty  kstate.Parts // what has changed since it was read
	inARow int          // rounds that failed one behind the other
	reader *kstate.Reader
	data   *datapath.Datapath
	detach atomic.Bool // everything is removed when Run ends; set from any goroutine
	failed map[graph.Attachment]refusal
	// committed is the snapshot in force.
	committed datapath.Snapshot
	memo      graph.Memo

	compiled    chan compiled // from the goroutine that compiles
	compiling   bool
	compileAt   time.Time // not before, if it is not urgent
	changedAt   time.Time // when rules changed last
	compileTook time.Duration
	compilers   sync.WaitGroup

	ns     *os.File // the namespace, for other threads
	tally  *tally.Tally
	teller *teller
	cookie uint64 // of the namespace
}

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

// Stages says where the time of a round went.
type Stages struct{ Snapshot, Read, Decide, Apply time.Duration }

// New prepares an engine; nothing is touched before Run.
func New(o Options) *Engine {
	if o.Watchdog == 0 {
		o.Watchdog = WatchdogLimit
	}
	e := &Engine{opts: o, log: o.Log, calls: make(chan func(), 16), ready: make(chan struct{}), ended: make(chan struct{}), failed: map[graph.Attachment]refusal{}, compiled: make(chan compiled, 1),
		tally: tally.New()}
	e.end = sync.OnceFunc(func() { close(e.ended) })
	p := o.Policy
	e.policy.Store(&p)
	return e
}

// Namespace is the name under which the engine appears.
func (e *Engine) Namespace() string { return e.opts.Namespace }

// State is what the last round decided; nil before the first.
func (e *Engine) State() *State { return e.state.Load() }

// Ready is closed after the first round.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Run works until the context ends. It must have a goroutine of its own; the OS thread is given up afterwards if it changed namespace.
func (e *Engine) Run(ctx context.Context) error {
	defer e.end()
	runtime.LockOSThread()
	if e.opts.NetnsPath != "" {
		if err := enter(e.opts.NetnsPath); err != nil {
			return err // the thread stays locked and ends with the goroutine
		}
	} else {
		defer runtime.UnlockOSThread()
	}
	release, err := claim()
	if err != nil {
		return err
	}
	defer release()
	if e.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return fmt.Errorf("opening the network namespace: %w", err)
	}
	defer e.ns.Close()

	if e.reader, err = kstate.Open(kstate.Options{IsOwn: e.own}); err != nil {
		return fmt.Errorf("watching Linux: %w", err)
	}
	defer e.reader.Close()
	defer e.compilers.Wait() // they wake the reader
	if e.data, err = datapath.Open(datapath.Options{PinDir: e.opts.PinDir, Watchdog: e.opts.Watchdog, Tier: e.opts.Tier, NoCast: e.opts.NoCast, Wake: e.reader.Wake, Log: e.log}); err != nil {
		return fmt.Errorf("preparing the data path: %w", err)
	}
	defer e.close() // before the reader goes: nothing is forwarded that nobody watches
	refresher, err := newRefresher(e.data, e.log)
	if err != nil {
		return err
	}
	defer refresher.close()
	marker, err := newMarker(e.data, e.opts, e.ns, e.log)
	if err != nil {
		return err
	}
	defer marker.close()
	if e.opts.Counts != "" {
		if e.cookie, err = tally.Cookie(); err == nil {
			err = e.tally.Load(e.opts.Counts, e.cookie)
		}
		if err != nil {
			e.log.Warn("counters of rules begin anew", "err", err)
		}
	}
	e.teller = newTeller(e)
	defer e.teller.stop()
	defer e.end() // before the reader goes, so that nobody wakes it any more
	return e.loop(ctx, refresher)
}

func (e *Engine) close() {
	e.last()
	if !e.detach.Load() {
		e.data.Close()
		return
	}
	if err := tally.Remove(e.opts.Counts); err != nil {
		e.log.Error("detaching", "err", err)
	}
	if err := e.data.Detach(); err != nil {
		e.log.Error("detaching", "err", err)
	}
}

// loop is the life of the engine: rounds, and what happens between them.
func (e *Engine) loop(ctx context.Context, refresher *refresher) error {
	stopWake := context.AfterFunc(ctx, e.reader.Wake)
	defer stopWake()
	since := time.Now()
	e.dirty = kstate.All
	var beat, reconcile time.Time
	for ctx.Err() == nil {
		var worked time.Duration // in the round; a long one is no hold-up, and what happens meanwhile is drained below
		if e.dirty != 0 {
			started := time.Now()
			if err := e.catchUp(since); err != nil {
				if err := e.rest(ctx, err); err != nil {
					return err
				}
				continue
			}
			worked = time.Since(started)
			if e.opts.Once {
				e.detach.Store(true)
				return nil
			}
		}
		now := time.Now()
		if gap := now.Sub(beat); !beat.IsZero() && gap-worked > e.opts.Watchdog/2 {
			// The data path may already have turned itself off. It may go on only after what happened meanwhile is taken in.
			e.log.Warn("the daemon was held up", "for", gap)
			e.data.Pause()
			e.dirty |= silent
		} else if gap >= beatEvery {
			attached, err := e.data.Beat()
			if err != nil {
				return err
			}
			if attached {
				e.dirty |= unheard
			}
			refresher.tick(now)
		}
		if now.Sub(beat) >= beatEvery {
			beat = now
		}
		patience := max(0, min(time.Until(beat.Add(beatEvery)), e.data.Tend(), e.compile()))
		if e.dirty&unheard != 0 {
			patience = 0
		}
		parts, err := e.reader.Wait(patience)
		if err != nil {
			return fmt.Errorf("waiting for events: %w", err)
		}
		if parts&kstate.Lost != 0 { // what is mirrored may be wrong already: nothing is forwarded by it until the round that reads it anew
			e.log.Warn("events were lost; everything goes to Linux until its configuration is read anew", "parts", parts)
			e.data.Pause()
			e.dirty |= e.unheardOf()
		}
		e.dirty, since = e.dirty|parts|e.takeCompiled(), time.Now()
		e.compile()
		e.serve()
		if since.Sub(reconcile) >= reconcileEvery {
			reconcile = since
			e.dirty |= silent
			e.collect()
			e.teller.tick()
		}
		if e.dirty == 0 && e.data.Stale() {
			// A guard word changed and no event explains it, yet or ever. Routes have no guard word.
			e.dirty = kstate.All &^ kstate.Routes
		}
	}
	return nil
}

// catchUp makes a round of all that is to be read. What that very doing changes is for the next one.
func (e *Engine) catchUp(since time.Time) error {
	again, err := e.round(e.dirty, since)
	if err != nil {
		return err
	}
	e.dirty, e.inARow = again, 0
	e.failing.Store(nil)
	return nil
}

// The pause after a round that failed; after each further one it is twice as long.
const (
	firstRest = 10 * time.Millisecond
	lastRest  = time.Second
)

// rest sends everything to Linux after a round that failed, and lets some time pass before the next one, in which events are drained and calls are answered.
func (e *Engine) rest(ctx context.Context, cause error) error {
	e.log.Error("a round failed; everything goes to Linux until one succeeds", "err", cause)
	e.data.Pause()
	text := cause.Error()
	e.failing.Store(&text)
	e.told(nil, cause)
	e.dirty = kstate.All
	end := time.Now().Add(min(lastRest, firstRest<<min(e.inARow, 10)))
	e.inARow++
	for left := time.Until(end); left > 0 && ctx.Err() == nil; left = time.Until(end) {
		if _, err := e.reader.Wait(left); err != nil {
			return fmt.Errorf("waiting for events: %w", err)
		}
		e.serve()
		if e.failing.Load() == nil { // a call made a round, and that succeeded
			return nil
		}
	}
	return nil
}

// Failing says why the last round failed, after which everything goes to Linux; "" if it did not. It may be called from any goroutine.
func (e *Engine) Failing() string {
	if text := e.failing.Load(); text != nil {
		return *text
	}
	return ""
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
	if s := e.state.Load(); s == nil || s.Network.Filter != net.Filter {
		e.changedAt = time.Now()
	}
	if s := e.state.Load(); s != nil && switched(s.Network, net) { // Linux's next lookup heeds it; no generation says so to what is remembered of earlier ones
		e.data.Forget()
	}
	e.followNames(net)
	policy := *e.policy.Load()
	policy.Failed = e.refused(net)
	e.data.Meet(needs(net))
	policy.Kernel = e.data.Features().Kernel()
	policy.Memo = &e.memo
	e.memo.Apart = e.apart()
	g := graph.Build(net, policy)
	var before *synth.Plan
	if s := e.state.Load(); s != nil {
		before = s.Plan
	}
	plan := synth.Next(net, g, before)
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
	e.publish(&State{When: time.Now(), Took: time.Since(since), Stages: stages, Parts: dirty, Policy: policy, Network: net, Graph: g, Plan: plan, Failures: failures,
		Reader: e.reader.Stats(), Features: e.data.Features()})
	return again, nil
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

// own tells our programs from foreign ones.
func (e *Engine) own(id uint32, _ string) bool { return e.data.Own(ebpf.ProgramID(id)) }

// errStopped is what calls get after the loop has ended.
var errStopped = errors.New("the daemon is stopping")

// Do runs a function on the loop's thread, between rounds, where the data path may be used.
func (e *Engine) Do(ctx context.Context, fn func(*datapath.Datapath) error) error {
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

// serve runs what Do has queued.
func (e *Engine) serve() {
	for {
		select {
		case fn := <-e.calls:
			fn()
		default:
			return
		}
	}
}

// SetPolicy replaces what the user asked for, and makes a round of it.
func (e *Engine) SetPolicy(ctx context.Context, change func(*graph.Policy)) error {
	return e.Do(ctx, func(*datapath.Datapath) error {
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
