// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"strings"
	"sync"
	"time"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
)

const keep = 256 // events

// Recorder keeps the last rounds that changed something, for one namespace.
type Recorder struct {
	netns string
	in    chan round
	done  chan struct{}

	mu       sync.Mutex
	events   []api.Event // oldest first, at most keep
	rounds   uint64
	failures uint64
	missed   uint64 // rounds that came too fast to be compared one by one
	last     *api.Event
	watchers map[chan api.Event]bool
}

type round struct {
	state *control.State
	err   error
}

// NewRecorder starts one; Close ends it.
func NewRecorder(netns string) *Recorder {
	r := &Recorder{netns: netns, in: make(chan round, 64), done: make(chan struct{}), watchers: map[chan api.Event]bool{}}
	go r.run()
	return r
}

// Round is called by the control loop after each round, with the new state or the error of a failed one. It never blocks.
func (r *Recorder) Round(s *control.State, err error) {
	select {
	case r.in <- round{s, err}:
	default:
		r.mu.Lock()
		r.rounds++
		r.missed++
		r.mu.Unlock()
	}
}

// Close ends the recorder; Round must not be called afterwards.
func (r *Recorder) Close() {
	close(r.in)
	<-r.done
}

func (r *Recorder) run() {
	defer close(r.done)
	var old *control.State
	for next := range r.in {
		e := r.event(old, next)
		if next.state != nil {
			old = next.state
		}
		r.add(next, e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watchers {
		close(w)
		delete(r.watchers, w)
	}
}

// event describes a round; nil when nothing worth telling happened.
func (r *Recorder) event(old *control.State, next round) *api.Event {
	e := &api.Event{When: time.Now(), Netns: r.netns, Parts: []string{}, Changes: []string{}}
	if next.err != nil {
		e.Error = next.err.Error()
		return e
	}
	s := next.state
	e.When, e.Generation, e.TookMS = s.When, s.Generation, float64(s.Took.Microseconds())/1000
	e.Parts = strings.Split(s.Parts.String(), "+")
	e.Changes = changes(old, s)
	for _, f := range s.Failures {
		e.Failures = append(e.Failures, name(s, f.Index)+" "+string(f.Hook)+": "+f.Err.Error())
	}
	if len(e.Changes) == 0 && (old == nil || sameFailures(old, s)) {
		return nil
	}
	return e
}

func sameFailures(a, b *control.State) bool {
	if len(a.Failures) != len(b.Failures) {
		return false
	}
	for i := range a.Failures {
		if a.Failures[i].Index != b.Failures[i].Index || a.Failures[i].Err.Error() != b.Failures[i].Err.Error() {
			return false
		}
	}
	return true
}

func (r *Recorder) add(next round, e *api.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds++
	if next.err != nil {
		r.failures++
	}
	if e == nil {
		return
	}
	if e.Error == "" {
		r.last = e
	}
	if len(r.events) == keep {
		r.events = r.events[1:]
	}
	r.events = append(r.events, *e)
	for w := range r.watchers {
		select {
		case w <- *e:
		default: // a watcher that does not keep up misses events, the loop does not wait
		}
	}
}

// Events are the last events, oldest first.
func (r *Recorder) Events() []api.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]api.Event{}, r.events...)
}

// Watch delivers events from now on, until cancel is called or the recorder ends; then the channel is closed.
func (r *Recorder) Watch() (events <-chan api.Event, cancel func()) {
	w := make(chan api.Event, keep)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[w] = true
	return w, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.watchers[w] {
			close(w)
			delete(r.watchers, w)
		}
	}
}

// Sync is how the namespace keeps up; the watchdog's limit is the caller's to add.
func (r *Recorder) Sync(s *control.State) api.Sync {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := api.Sync{Rounds: r.rounds, Failures: r.failures}
	if s != nil {
		out.Events, out.Resyncs = s.Reader.Events, s.Reader.Resyncs
	}
	if r.last != nil {
		when := r.last.When
		out.LastChangeMS, out.LastChange = r.last.TookMS, &when
	}
	return out
}
