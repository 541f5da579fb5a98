// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/tally"
)

const (
	beatEvery      = 50 * time.Millisecond
	reconcileEvery = time.Second
	// recheckEvery is how often hooks of devices are read though no beat has told of a change, which takes 8 ms beside 250 containers: whatever a beat could miss.
	recheckEvery = 10 * time.Second
	// WatchdogLimit is how long the data path trusts a silent daemon unless told otherwise.
	WatchdogLimit = 400 * time.Millisecond
)

// silent are the parts that can change without an event. They are read once a second, but for hooks of devices where beats look at all of those.
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

	beat func(*datapath.Datapath) (bool, error) // stamps; tests have it fail

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
	left    error                  // see Left

	// Owned by the loop.
	dirty  kstate.Parts // what has changed since it was read
	inARow int          // rounds and beats that failed, without a good beat between them
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
func (e *Engine) Run(ctx context.Context) (err error) {
	defer e.end()
	defer func() { // when the data path is closed
		if v := recover(); v != nil {
			err = e.fault(v)
		}
		if err != nil {
			text := err.Error()
			e.failing.Store(&text)
		}
	}()
	runtime.LockOSThread()
	if e.opts.NetnsPath != "" {
		if err = enter(e.opts.NetnsPath); err != nil {
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
		e.left = errStubs
		return
	}
	if e.left = errors.Join(tally.Remove(e.opts.Counts), e.data.Detach()); e.left != nil {
		e.log.Error("detaching", "err", e.left)
	}
}

// errStubs is what an engine leaves that nobody told to remove anything before it ended.
var errStubs = errors.New("the stubs stay attached")

// Left says that something of the engine may be left in the kernel or the file system, and why; valid after Run.
func (e *Engine) Left() error { return e.left }

// loop is the life of the engine: rounds, and what happens between them.
func (e *Engine) loop(ctx context.Context, refresher *refresher) error {
	stopWake := context.AfterFunc(ctx, e.reader.Wake)
	defer stopWake()
	since := time.Now()
	e.dirty = kstate.All
	var beat, reconcile, recheck time.Time
	for ctx.Err() == nil {
		var worked time.Duration // in the round; a long one is no hold-up, and what happens meanwhile is drained below
		if e.dirty != 0 {
			started := time.Now()
			if err := e.catchUp(since); err != nil {
				if err := e.rest(ctx, err); err != nil {
					return err
				}
				beat = time.Now() // all is read anew before the next
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
			attached, err := e.stamp()
			if err != nil { // what would be fast without it would not be for long
				if err := e.rest(ctx, err); err != nil {
					return err
				}
				beat = time.Now()
				continue
			}
			e.inARow = 0
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
			if e.dirty |= silent &^ kstate.XDP; since.Sub(recheck) >= recheckEvery || len(e.state.Load().Network.Links) > datapath.BeatDevices {
				recheck = since
				e.dirty |= kstate.XDP
			}
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
	e.dirty = again
	e.failing.Store(nil)
	return nil
}

// The pause after a round that failed; after each further one it is twice as long.
const (
	firstRest = 10 * time.Millisecond
	lastRest  = time.Second
)

// stamp says to the data path that the loop is alive.
func (e *Engine) stamp() (attached bool, err error) {
	if e.opts.beat != nil {
		return e.opts.beat(e.data)
	}
	return e.data.Beat()
}

// rest sends everything to Linux after a round or a beat that failed, and lets some time pass before the next one, in which events are drained and calls are answered.
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

// own tells our programs from foreign ones.
func (e *Engine) own(id uint32, _ string) bool { return e.data.Own(ebpf.ProgramID(id)) }
