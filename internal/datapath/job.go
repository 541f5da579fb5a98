// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/synth"
)

// job is one program of a plan on its way into the kernel.
type job struct {
	key      hookKey
	program  *synth.Program
	want     programKey
	left     bool          // words had no slot
	counters               // the attachment's, or new ones; without them what runs is what is wanted
	prog     *ebpf.Program // to be put in place, once loaded
	number   uint64        // of the configuration, where prog is the generic program
	later    bool          // prog is made behind the loop, and everything goes to Linux until then
	aside    bool          // a new hook is taken behind the loop, where it can be
	port     *attachment   // for work behind the loop: what it is done for
	err      error
}

// variant is the program to specialise: the hook's, or its form for drivers without frags.
func (j *job) variant() graph.Hook {
	if j.want.linear {
		return linearXDP
	}
	return j.key.hook
}

// jobs finds out which programs have to be loaded. Where a program that runs must be replaced, all are switched off at once until the plan
// is in place: loading takes milliseconds, and a change that takes a right from packets should not have to wait for it.
// Nothing is worked out again for a program that is as it was, on the same basis.
func (d *Datapath) jobs(plan *synth.Plan, basis *basis, s *Snapshot) (jobs []*job) {
	same := d.last != nil && *d.last.basis == *basis
	for _, port := range plan.Ports {
		for i := range port.Programs {
			p := &port.Programs[i]
			key := hookKey{port.Index, p.Hook}
			a := d.ports[key]
			if same && a != nil && a.planned == p && !(a.left && d.vacant()) {
				a.turn = d.turn
				continue
			}
			j := &job{key: key, program: p, want: programKey{config: p.Config, loaded: true}}
			jobs = append(jobs, j)
			if j.left, j.err = d.resolve(&j.want.config, p.Words, basis, s); j.err != nil {
				continue
			}
			if a == nil {
				j.counters, j.err = d.newCounters()
			} else if j.want.linear = a.linear; a.key != j.want && !(a.awaits() && a.awaited == j.want) {
				j.counters, j.prog = a.counters, a.take(j.want)
				if a.prog != nil {
					d.store(offStale, 1)
				}
			}
			if j.stats != nil {
				d.behind.turns.Add(1)
				d.restless = time.Now()
				if j.prog == nil && d.tier != Specialised {
					d.generic.offer(j)
				}
				j.later = j.prog == nil && d.tier == "" && (a == nil && d.young(j.key.index) || a != nil && a.awaits())
				j.aside = j.later
			}
		}
	}
	d.disperse(jobs)
	return jobs
}

// crowd is how many programs are loaded at once before anything is in place, at most. Each takes tens of milliseconds.
const crowd = 32

// disperse keeps a host of very many devices from waiting until each has a program of its own, when shunt starts or all their configurations change: they begin
// with the generic program, for which even the start waits then, and those that it cannot serve with Linux.
func (d *Datapath) disperse(jobs []*job) {
	var loads []*job
	for _, j := range jobs {
		if j.loads() {
			loads = append(loads, j)
		}
	}
	if len(loads) <= crowd || d.tier != "" {
		return
	}
	d.register(loads)
	for _, j := range loads {
		if variant := j.variant(); serves(&j.want.config) && d.generic.missing(variant) {
			prog, err := d.generic.load(variant, d.generic.fixed)
			d.generic.loaded(variant, d.generic.fixed, prog, err)
		}
		d.generic.offer(j)
		j.later, j.aside = j.prog == nil, true
	}
}

// register has the generic program count for new ports.
func (d *Datapath) register(loads []*job) {
	var fresh []*job
	e := &errand{}
	for _, j := range loads {
		if j.place != 0 || d.generic.broken {
			continue
		}
		if place, ok := d.generic.newPlace(); ok {
			j.place = place
			e.register = append(e.register, j.counters)
			fresh = append(fresh, j)
		}
	}
	if err := e.run(d.objects); err != nil {
		d.generic.fail(err)
		for _, j := range fresh {
			j.place = 0
		}
	}
}

// loads says whether a job has to load a program before its plan is in place.
func (j *job) loads() bool { return j.stats != nil && j.prog == nil && !j.later && j.err == nil }

// abandon gives back what a job has got that is not done after all: the counters of a new port, and its configuration.
func (d *Datapath) abandon(j *job) {
	if j.stats != nil && d.ports[j.key] == nil {
		d.generic.leave(j.key, j.counters)
		j.counters = counters{}
	}
	if j.number != 0 { // nobody points at it
		d.generic.old = append(d.generic.old, j.number)
		j.number = 0
	}
}

// discard gives back what a job that failed had got.
func (j *job) discard() {
	if j.number == 0 && j.prog != nil {
		j.prog.Close()
	}
}

// load specialises and loads what is missing, several at a time.
func (d *Datapath) load(jobs []*job) {
	var wg sync.WaitGroup
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, j := range jobs {
		if !j.loads() {
			continue
		}
		wg.Add(1)
		limit <- struct{}{}
		go func() {
			defer func() { <-limit; wg.Done() }()
			j.prog, j.err = d.objects.load(j.variant(), j.want.config, j.stats)
		}()
	}
	wg.Wait()
}

// install makes a device run a loaded program, attaching first if need be.
func (d *Datapath) install(j *job) error {
	if j.number != 0 {
		d.generic.point(j.key, j.number)
	}
	a := d.ports[j.key]
	if a == nil {
		var err error
		if a, err = d.attach(j); err != nil {
			j.discard()
			d.generic.leave(j.key, j.counters)
			return err
		}
		a.counters, a.fresh = j.counters, d.young(j.key.index)
		d.ports[j.key] = a
		if j.later {
			j.want.linear = a.linear
			a.emptied = time.Now()
		} else if a.slot == nil {
			d.waits(a, j)
			a.prog, a.key, a.generic = j.prog, j.want, j.number != 0
			return nil
		} else if a.linear {
			if err := d.reloadLinear(j); err != nil {
				return err
			}
		}
	}
	d.waits(a, j)
	if j.later {
		if err := a.empty(d.objects.pass); err != nil {
			return err
		}
		a.awaited = j.want
		return nil
	}
	put := a.swap
	if j.number != 0 {
		put = a.join
	}
	if err := put(j.prog, j.want); err != nil {
		j.discard()
		return err
	}
	return nil
}

// reloadLinear replaces a loaded program by its form for a driver that, as only attaching told, refuses frags.
func (d *Datapath) reloadLinear(j *job) (err error) {
	j.discard()
	j.want.linear = true
	if j.number != 0 {
		if d.generic.fits(linearXDP) {
			j.prog = d.generic.programs[linearXDP]
			return nil
		}
		j.number = 0
	}
	j.prog, err = d.objects.load(j.variant(), j.want.config, j.stats)
	return err
}

// attach takes hold of a hook: with a stub, or at tcx with the program itself.
func (d *Datapath) attach(j *job) (*attachment, error) {
	if d.postpones(j) {
		return &attachment{hold: &pendingHold{}}, nil
	}
	a, err := d.attachNow(j)
	var none netlink.LinkNotFoundError
	if err == nil || errors.Is(err, unix.ENODEV) {
		return a, err
	}
	if _, missing := netlink.LinkByIndex(j.key.index); errors.As(missing, &none) { // XDP says EINVAL
		return nil, fmt.Errorf("%w: %w", unix.ENODEV, err)
	}
	return nil, err
}

func (d *Datapath) attachNow(j *job) (*attachment, error) {
	switch {
	case j.key.hook == graph.XDP:
		return d.attachStub(j.key.index)
	case d.features.TCX:
		return d.attachTCX(j.key.index, j.prog)
	}
	return d.attachClsact(j.key.index)
}
