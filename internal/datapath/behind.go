// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/synth"
)

// behind is the work that no change waits for: loading the generic programs, specialising for ports that run in the generic tier or are new and cannot, and
// waiting for packets to be through. One goroutine does it at a time, on a thread of low priority; what it found is taken in by Tend, on the
// data path's own thread.
type behind struct {
	wake  func() // makes the loop call Tend
	turns atomic.Uint64
	wg    sync.WaitGroup

	mu    sync.Mutex
	busy  bool
	tid   int // of the thread that works
	found []func()
}

const (
	// settled is how long nothing may have changed before programs are specialised: changes come in crowds, and each would make the work for the
	// one before it useless.
	settled = 40 * time.Millisecond
	// calm is the same for new devices, which are those that came within a time of their youth: what they are for, such as a container, is most likely being started, and needs the CPU more.
	calm  = 500 * time.Millisecond
	youth = 5 * time.Second
	// repose is how long no port may have wanted another program before generic ones are loaded, which takes half a second of a CPU, thirty times what a specialised one takes: while a machine
	// starts, or a rule set grows command by command, each shape of the configuration would have its own.
	repose = 5 * time.Second
	// longest is how long generic programs wait for that at most.
	longest = 30 * time.Second
	// patience is how long a port waits for either of the first two at most: where containers come and go all the time there is no such moment.
	patience = time.Second
	// aside is the nice value of work behind the loop. Not the lowest: the Go runtime stops the world now and then, and has to wait for this thread too.
	aside = 10
)

// never is the answer of Tend when it waits for nothing.
const never = time.Duration(math.MaxInt64)

// start runs work on a thread of its own, which ends with it.
func (b *behind) start(work func()) {
	b.mu.Lock()
	b.busy = true
	b.mu.Unlock()
	b.wg.Add(1)
	go func() {
		defer b.wg.Done()
		runtime.LockOSThread()
		unix.Setpriority(unix.PRIO_PROCESS, 0, aside)
		b.mu.Lock()
		b.tid = unix.Gettid()
		b.mu.Unlock()
		defer func() {
			v := recover() // it is the loop's, which knows what to do then
			b.mu.Lock()
			if b.busy, b.tid = false, 0; v != nil {
				again := fmt.Sprintf("%v in\n%s", v, debug.Stack())
				b.found = append(b.found, func() { panic(again) })
			}
			b.mu.Unlock()
			b.wake()
		}()
		work()
	}()
}

// tell hands a result to Tend.
func (b *behind) tell(f func()) {
	b.mu.Lock()
	b.found = append(b.found, f)
	b.mu.Unlock()
	b.wake()
}

// results are what was told since the last call.
func (b *behind) results() (found []func(), busy bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, b.found = b.found, nil
	return found, b.busy
}

// end waits for the work under way, and takes in what it found. From then on that is as urgent as whoever waits, or a busy machine would leave the loop without a sign of life.
func (b *behind) end() {
	b.turns.Add(1)
	b.mu.Lock()
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && b.tid != 0 {
		unix.Setpriority(unix.PRIO_PROCESS, b.tid, 20-raw) // the system call gives 20 less the nice value
	}
	b.mu.Unlock()
	b.wg.Wait()
	found, _ := b.results()
	for _, f := range found {
		f()
	}
}

// Tend takes in what was done behind the loop and starts what is next. It returns after which time it wants to be called again.
func (d *Datapath) Tend() time.Duration {
	found, busy := d.behind.results()
	for _, f := range found {
		f()
	}
	if busy || d.tier == Specialised {
		return never
	}
	variant, lacks, yet := d.lacks()
	if lacks && d.eager {
		d.loadGeneric(variant)
		return never
	}
	if e := d.errand(); e != nil {
		d.behind.start(func() {
			err := e.run(d.generic.objects)
			d.behind.tell(func() { d.done(e, err) })
		})
		return never
	}
	keys, untaken := d.untaken()
	if len(keys) != 0 {
		d.takeHooks(keys)
		return never
	}
	jobs, wait := d.lasting()
	switch {
	case len(jobs) > 0:
	case lacks && yet <= 0:
		d.loadGeneric(variant)
		return never
	default:
		return min(wait, untaken, yet)
	}
	turn := d.behind.turns.Load()
	d.behind.start(func() {
		for _, j := range jobs {
			if d.behind.turns.Load() == turn {
				j.prog, j.err = d.objects.load(j.variant(), j.want.config, j.stats)
			}
			d.behind.tell(func() { d.specialised(j) })
		}
	})
	return never
}

// loadGeneric loads a generic program behind the loop.
func (d *Datapath) loadGeneric(variant graph.Hook) {
	fixed := d.generic.fixed
	d.behind.start(func() {
		prog, err := d.generic.load(variant, fixed)
		d.behind.tell(func() {
			d.generic.loaded(variant, fixed, prog, err)
			d.lacking = time.Time{} // where it was made for a shape that is no longer wanted, the next waits as long
		})
	})
}

// lacks is a generic program that a port could use as it is configured, and how long it is to wait yet.
func (d *Datapath) lacks() (variant graph.Hook, lacks bool, yet time.Duration) {
	if variant, lacks = d.missing(); !lacks {
		d.lacking = time.Time{}
		return variant, false, never
	}
	if d.lacking.IsZero() {
		d.lacking = time.Now()
	}
	return variant, true, min(repose-time.Since(d.restless), longest-time.Since(d.lacking))
}

// missing finds a port that wants a generic program which there is not, and may yet be. It is asked with each beat, mostly for nothing, so it looks at no port whose hook has its own.
func (d *Datapath) missing() (graph.Hook, bool) {
	tc, xdp := d.generic.missing(graph.TC), d.generic.missing(graph.XDP) || d.generic.missing(linearXDP)
	if !tc && !xdp {
		return "", false
	}
	for key, a := range d.ports {
		if key.hook == graph.TC && !tc || key.hook == graph.XDP && !xdp {
			continue
		}
		want := &a.key.config
		if a.awaits() {
			want = &a.awaited.config
		}
		if v := a.variant(key.hook); serves(want) && d.generic.missing(v) {
			return v, true
		}
	}
	return "", false
}

// waiting says whether a port could have a program of its own that is to be made behind the loop.
func (d *Datapath) waiting() bool {
	for _, a := range d.ports {
		if a.pending() || a.waiting() && d.tier != Generic {
			return true
		}
	}
	return false
}

// ripe says how long a port that waits is to wait yet.
func (d *Datapath) ripe(a *attachment) time.Duration {
	quiet := settled
	if a.fresh {
		quiet = calm
	}
	return min(quiet-time.Since(d.unsettled), patience-time.Since(a.since))
}

// waits notes that a job leaves its port waiting.
func (d *Datapath) waits(a *attachment, j *job) {
	if j.number == 0 && !j.later {
		return
	}
	d.unsettled = time.Now()
	if !a.waiting() {
		a.since = d.unsettled
	}
}

func (a *attachment) waiting() bool {
	return a.awaits() || a.generic && (a.refused != a.key || a.again.due())
}

// awaits says whether everything goes to Linux until the port's first program is there.
func (a *attachment) awaits() bool { return a.awaited.loaded && a.refused != a.awaited }

// Awaited is the number of hooks where everything goes to Linux until their first program is there, and one more while both tiers are wanted from the start and the generic one is not complete.
func (d *Datapath) Awaited() (n int) {
	for _, a := range d.ports {
		if a.awaits() || a.pending() && a.prog != nil {
			n++
		}
	}
	if d.eager && !d.complete() {
		n++
	}
	return n
}

// young says whether a device has come only now: its programs are made behind the loop, since nobody had anything of them yet, and other work of the machine,
// such as starting the container that the device is for, goes first.
func (d *Datapath) young(index int) bool { return time.Since(d.seen[index]) < youth }

// meet notes when devices have come. Those of the first plan were there before.
func (d *Datapath) meet(plan *synth.Plan, fresh []*synth.Port) {
	for _, p := range fresh {
		if _, known := d.seen[p.Index]; known && d.lives[p.Index] == p.Life {
			continue
		}
		d.seen[p.Index] = time.Time{}
		if d.begun {
			d.seen[p.Index] = time.Now()
		}
	}
	if len(d.seen) > 2*len(plan.Ports) {
		maps.DeleteFunc(d.seen, func(index int, _ time.Time) bool { return !plan.Has(index) })
		maps.DeleteFunc(d.lives, func(index, _ int) bool { return !plan.Has(index) })
	}
}

// complete says whether every port that a generic program could serve has one that can.
func (d *Datapath) complete() bool {
	g := d.generic
	if _, lacks := d.missing(); lacks {
		return false
	}
	for _, a := range d.ports {
		if a.place == 0 && len(g.programs) > 0 && !g.broken && g.places+1 < portSlots {
			return false // its counters are not registered yet
		}
	}
	return true
}

// Settled says whether every port runs the program that is made for it, as far as there can be one, and nothing is under way. With both tiers from the start, the generic one is complete as well.
func (d *Datapath) Settled() bool {
	if d.eager && !d.complete() {
		return false
	}
	d.behind.mu.Lock()
	defer d.behind.mu.Unlock()
	return !d.behind.busy && len(d.behind.found) == 0 && !d.waiting()
}

// lasting are the programs to be made for ports that wait for one and need not wait longer, those first that have waited longest or, of a crowd, carry most; or how long to wait for the first.
func (d *Datapath) lasting() (jobs []*job, wait time.Duration) {
	wait = never
	for key, a := range d.ports {
		if !a.waiting() || d.tier == Generic {
			continue
		}
		if yet := d.ripe(a); yet > 0 {
			wait = min(wait, yet)
			continue
		}
		want := a.key
		if a.awaits() {
			want = a.awaited
		}
		stats, err := a.stats.Clone()
		if err != nil {
			d.refuse(key, a, want, err)
			continue
		}
		jobs = append(jobs, &job{key: key, want: want, counters: counters{stats: stats}, port: a})
	}
	slices.SortFunc(jobs, func(a, b *job) int { return a.port.since.Compare(b.port.since) })
	if len(jobs) > crowd {
		busiestFirst(jobs)
	}
	return jobs, wait
}

// busiestFirst orders the programs that are to be made for very many devices, which takes minutes where connections are looked up, by how many packets have come by each: that tells
// best by which the next will.
func busiestFirst(jobs []*job) {
	links, err := netlink.LinkList()
	if err != nil {
		return // they are made in the order of their waiting
	}
	came := map[int]uint64{}
	for _, l := range links {
		if s := l.Attrs().Statistics; s != nil {
			came[l.Attrs().Index] = s.RxPackets
		}
	}
	slices.SortStableFunc(jobs, func(a, b *job) int { return cmp.Compare(came[b.key.index], came[a.key.index]) })
}

// refuse notes that there is no program for what a port wants. One that runs the generic program stays with that, until it is tried again if memory was short; one that has none is tried once more in the
// next round, which tells what happened.
func (d *Datapath) refuse(key hookKey, a *attachment, want programKey, err error) {
	a.refused, a.planned, a.again = want, nil, a.again.after(err)
	what := "a port stays with the generic program"
	if !a.generic {
		what = "a new port waits for the next round"
	}
	d.log.Warn(what, "ifindex", key.index, "hook", key.hook, "err", err)
}

// specialised puts a program in place that was made for a port, if it is still what is wanted; if not, it may be wanted again.
func (d *Datapath) specialised(j *job) {
	j.stats.Close()
	a := j.port
	switch {
	case j.prog == nil && j.err == nil: // not begun: something else had changed
	case j.err != nil:
		d.refuse(j.key, a, j.want, j.err)
	case d.ports[j.key] == a && (a.generic && a.key == j.want || a.awaits() && a.awaited == j.want):
		if j.err = a.swap(j.prog, j.want); j.err != nil {
			j.prog.Close()
			d.refuse(j.key, a, j.want, j.err)
		}
	case d.ports[j.key] == a && a.key != j.want:
		a.keep(j.prog, j.want)
	default:
		j.prog.Close()
	}
}
