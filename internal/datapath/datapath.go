// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/synth"
)

// Options configure a Datapath.
type Options struct {
	PinDir   string        // folder for pinned links, on a BPF file system that is mounted if need be
	Watchdog time.Duration // without a Beat for this long, everything goes to Linux
	Tier     Tier          // the only one to use; "": both, the generic one until a program has been specialised; Both: the generic one at once, see Awaited
	NoCast   bool          // for tests: kernel memory is read as where bpf_rdonly_cast() does not serve (before Linux 6.17)
	Wake     func()        // called from any goroutine when Tend has something to do; may be nil
	Log      *slog.Logger
}

// Datapath is what shunt has in the kernel for one network namespace.
type Datapath struct {
	log             *slog.Logger
	ns              *os.File // the namespace
	pins            pins
	objects         *objects
	features        Features
	watchdogJiffies uint64
	handled         map[int]handled // of devices that no program watches
	ports           map[hookKey]*attachment
	runs            map[ebpf.ProgramID]*attachment // what Own found last
	retired         map[hookKey]Counts             // of attachments that are gone while their device is there
	tables          synth.Tables
	rules           ruleStore
	slots           map[synth.Word]uint16
	free            []uint16           // slots below their number that no word has any more
	watched         map[int]int        // words that have a slot, by ifindex
	wanted          [guardSlots]uint64 // by slot, as programs have it
	epochMu         sync.Mutex
	epoch           uint64
	forgot          time.Time         // when the last round ended what is remembered
	changed         bool              // the round has changed something
	lives           map[int]int       // by ifindex: the device that attachments and tables speak of
	seen            map[int]time.Time // by ifindex: when a plan first had the device; not those of the first plan
	attachXDP       func(link.XDPOptions) (link.Link, error)
	neighSeen       uint64 // stamp up to which used neighbours were reported
	neighNewest     uint64 // the newest stamp at the last report
	tier            Tier
	generic         *generic
	behind          behind
	eager           bool                 // generic programs are loaded before all else
	restless        time.Time            // when a port last wanted another program
	lacking         time.Time            // since when a generic program is missing
	unsettled       time.Time            // when a port last began to wait for a program that is made behind the loop
	begun           bool                 // a plan has been in force
	last            *applied             // nil if a plan failed since
	inForce         synth.Tables         // the very tables of that; none where something was done to one since
	devices         map[int]*deviceWords // of the snapshot that was committed last
	moves           int                  // see basis
	turn            uint64               // of the last plan
	attached        uint64               // the sum of the last beat, with what was added since; see Beat
	changes         uint64               // of it that beats have found
}

// applied is a plan that is in force, with the basis that its programs have.
type applied struct {
	plan  *synth.Plan
	basis *basis
}

type hookKey struct {
	index int
	hook  graph.Hook
}

// programKey identifies a program: two equal keys need no new program.
type programKey struct {
	config bpfobj.Config
	loaded bool
	linear bool // see attachment
}

// Failure is a device at which something could not be put in place; everything there goes to Linux.
type Failure struct {
	Index int
	Hook  graph.Hook
	Err   error
}

// Open probes the kernel, makes the shared maps, and adopts what an earlier daemon left attached.
func Open(o Options) (*Datapath, error) {
	kernel, err := kernelTypes()
	if err != nil {
		return nil, err
	}
	objects, err := loadObjects(o.Log, kernel)
	if err != nil {
		return nil, err
	}
	objects.noCast = o.NoCast
	d := &Datapath{
		log: o.Log, objects: objects, ports: map[hookKey]*attachment{}, retired: map[hookKey]Counts{},
		tables: emptyTables(), rules: ruleStore{clock: time.Now}, slots: map[synth.Word]uint16{}, watched: map[int]int{}, attachXDP: link.AttachXDP, lives: map[int]int{}, seen: map[int]time.Time{}, runs: map[ebpf.ProgramID]*attachment{}, tier: o.Tier, eager: o.Tier == Both,
	}
	if d.eager {
		d.tier = ""
	}
	if d.behind.wake = o.Wake; o.Wake == nil {
		d.behind.wake = func() {}
	}
	if err := d.prepare(o, kernel); err != nil {
		if d.ns != nil {
			d.ns.Close()
		}
		objects.close()
		return nil, err
	}
	if err := errors.Join(d.adopt(), d.adoptClsact()); err != nil {
		d.Close()
		return nil, err
	}
	_, err = d.Beat()
	return d, err
}

// prepare finds out what the kernel can do, and opens what needs no attachment.
func (d *Datapath) prepare(o Options, kernel []*btf.Spec) (err error) {
	if d.features, err = probe(d.objects, kernel); err != nil {
		return err
	}
	if d.generic, err = newGeneric(d.objects, d.features); err != nil {
		return err
	}
	if d.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return fmt.Errorf("opening the namespace: %w", err)
	}
	d.watchdogJiffies = d.features.jiffies(o.Watchdog)
	d.pins, err = openPins(o.PinDir)
	return err
}

// Features tells what the probes found.
func (d *Datapath) Features() Features { return d.features }

// Apply brings the kernel from what it has to the plan. The snapshot must be older than the reading that the plan came from. Failures
// of single devices are returned and leave those devices to Linux; an error means that the shared tables are in doubt, and then
// nothing is forwarded until an Apply succeeds. A plan that was applied is never changed: what the next one shares with it needs nothing done.
func (d *Datapath) Apply(plan *synth.Plan, s *Snapshot) ([]Failure, error) {
	d.changed = d.Stale()
	d.turn++
	fresh, alike := plan.Ports, false
	if d.last != nil {
		fresh, alike = others(plan.Ports, d.last.plan.Ports)
	}
	d.meet(plan, fresh)
	d.moved(s)
	d.replaced(fresh, s)
	d.fit(plan.Routes4)
	if err := d.stricter(&plan.Tables); err != nil {
		return nil, d.stop(err)
	}
	if d.changed {
		d.Forget() // with a route it is remembered that an interface may be entered
	}
	if err := d.prepareRules(&plan.Rules); err != nil {
		return nil, d.stop(err)
	}
	d.fix(plan)
	if err := d.onlyGeneric(plan); err != nil {
		return nil, d.stop(err)
	}
	basis := d.basis(s)
	jobs := d.jobs(plan, basis, s)
	if err := d.installRules(&plan.Rules); err != nil {
		for _, j := range jobs {
			d.abandon(j)
		}
		return nil, d.stop(err)
	}
	d.load(jobs)
	failures := slices.Concat(d.put(jobs), d.releaseOthers(plan))
	if !alike {
		maps.DeleteFunc(d.retired, func(key hookKey, _ Counts) bool { return !plan.Has(key.index) })
	}
	if err := d.relax(&plan.Tables); err != nil {
		return failures, d.stop(err)
	}
	d.commit(s)
	if !alike {
		d.unwatch(plan, s)
	}
	d.begun, d.last, d.inForce = true, &applied{plan, basis}, plan.Tables
	return failures, nil
}

// put puts what was loaded in place.
func (d *Datapath) put(jobs []*job) (failures []Failure) {
	for _, j := range jobs {
		err := j.err
		switch {
		case err != nil:
			d.abandon(j)
		case j.prog != nil || j.later:
			d.changed = true
			err = d.install(j)
		}
		if err != nil {
			failures = append(failures, Failure{j.key.index, j.key.hook, err})
		} else if a := d.ports[j.key]; a != nil {
			a.turn, a.planned, a.left = d.turn, j.program, j.left
		}
	}
	return failures
}

// releaseOthers stops the programs that the plan of this turn does not want.
func (d *Datapath) releaseOthers(plan *synth.Plan) (failures []Failure) {
	for key, a := range d.ports {
		if a.turn == d.turn {
			continue
		}
		a.planned = nil
		d.changed = d.changed || a.prog != nil
		if err := d.release(key, a, plan); err != nil {
			failures = append(failures, Failure{key.index, key.hook, err})
		}
	}
	return failures
}

// others are the ports that a plan had otherwise or not at all, and whether the devices are the same. Both are in the order of their numbers.
func others(ports, last []*synth.Port) (out []*synth.Port, alike bool) {
	alike = len(ports) == len(last)
	for i, p := range ports {
		alike = alike && last[i].Index == p.Index
	}
	for _, p := range ports {
		for len(last) > 0 && last[0].Index < p.Index {
			last = last[1:]
		}
		if len(last) == 0 || last[0] != p {
			out = append(out, p)
		}
	}
	return out, alike
}

// replaced forgets what belonged to devices that are gone and whose numbers were given again, all between two plans: the kernel took
// programs and entries of the device map away with them.
func (d *Datapath) replaced(ports []*synth.Port, s *Snapshot) {
	for _, p := range ports {
		if d.lives[p.Index] == p.Life {
			continue
		}
		d.lives[p.Index] = p.Life
		d.moves++
		delete(s.devices, p.Index) // its words lie elsewhere
		for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
			key := hookKey{p.Index, hook}
			delete(d.retired, key)
			if a := d.ports[key]; a != nil {
				if err := d.drop(key, a); err != nil {
					d.log.Debug("letting go of a device that is gone", "ifindex", p.Index, "hook", hook, "err", err)
				}
			}
		}
		for out, port := range d.tables.TxXDP {
			if port == uint32(p.Index) {
				d.objects.maps["tx_xdp"].Delete(out) // most likely gone already
				delete(d.tables.TxXDP, out)
				d.inForce.TxXDP = nil
			}
		}
	}
}

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

// lingering is how long a tcx link stays with a program that passes everything, before it is detached. Attaching and detaching hold RTNL for
// milliseconds, and a device that goes down often comes up again.
const lingering = 10 * time.Second

// release stops a program. A stub stays attached while its device exists and shunt runs, since detaching can lose packets; a tcx link goes
// after a while. A device that is down has nothing to lose, and Linux takes none with a program into a bond that has one: there the XDP
// stub goes as well, and where a driver loses frames while there is one.
func (d *Datapath) release(key hookKey, a *attachment, plan *synth.Plan) error {
	port := plan.Port(key.index)
	away := port != nil && (port.Down || port.NoXDP) && key.hook == graph.XDP
	if port != nil && (a.slot != nil || a.unused() < lingering) && !away {
		return a.empty(d.objects.pass)
	}
	d.retire(key, a)
	return d.drop(key, a)
}

// drop takes a hook of a device out of the kernel.
func (d *Datapath) drop(key hookKey, a *attachment) error {
	delete(d.ports, key)
	d.attached -= a.adds
	err := a.remove()
	d.generic.leave(key, a.counters)
	return err
}

// stop turns every program off after a failure that leaves the tables in doubt.
func (d *Datapath) stop(cause error) error {
	d.store(offStale, 1)
	d.last, d.inForce = nil, synth.Tables{}
	return cause
}

// Holds says whether a hook is held, with a program or without.
func (d *Datapath) Holds(index int, hook graph.Hook) bool {
	return d.ports[hookKey{index, hook}] != nil
}

// Severed lists the devices that are held and are no more, whatever was heard of them: another may have the number of each by now.
func (d *Datapath) Severed() (indexes []int) {
	for key, a := range d.ports {
		if h, is := a.hold.(linkHold); is && h.severed() && !slices.Contains(indexes, key.index) {
			indexes = append(indexes, key.index)
		}
	}
	return indexes
}

// Attachments counts the hooks of a kind that are held. Attaching at XDP changes what drivers can do, so a reader looks again when it grows.
func (d *Datapath) Attachments(hook graph.Hook) (n int) {
	for key := range d.ports {
		if key.hook == hook {
			n++
		}
	}
	return n
}

// Unkeep lets go of everything that is kept for configurations that come back, so that the next change pays what a new one costs.
func (d *Datapath) Unkeep() {
	for _, a := range d.ports {
		a.forget()
	}
	d.objects.mu.Lock()
	defer d.objects.mu.Unlock()
	clear(d.objects.folded)
}

// Pause turns every program off until the next Apply.
func (d *Datapath) Pause() { d.store(offStale, 1) }

// Programs lists what is loaded: attached device, hook, program (nil while its slot is empty).
func (d *Datapath) Programs(visit func(index int, hook graph.Hook, prog *ebpf.Program)) {
	for key, a := range d.ports {
		visit(key.index, key.hook, a.prog)
	}
}

// NoGeneric says why there is no generic tier, "" if there is one or will be.
func (d *Datapath) NoGeneric() string {
	switch g := d.generic; {
	case d.tier == Specialised:
		return "switched off"
	case g.broken:
		return "its maps could not be kept up"
	default:
		for _, err := range g.failed {
			return err.Error()
		}
	}
	return ""
}

// Tier says which sort of program runs at a hook, "" if none does.
func (d *Datapath) Tier(index int, hook graph.Hook) Tier {
	switch a := d.ports[hookKey{index, hook}]; {
	case a == nil:
		return ""
	case a.awaits(), a.pending() && a.prog != nil:
		return Awaited
	case a.prog == nil:
		return ""
	case a.generic:
		return Generic
	}
	return Specialised
}

// Own says whether a program is one of ours in this namespace.
func (d *Datapath) Own(id ebpf.ProgramID) bool {
	if id == d.objects.passID { // at a hook that was taken, as the loop has yet to hear
		return true
	}
	if a := d.runs[id]; a != nil && a.id == id && d.ports[a.at] == a {
		return true
	}
	for key, a := range d.ports {
		if a.programID() == id {
			if len(d.runs) > 2*len(d.ports) {
				clear(d.runs)
			}
			a.at, d.runs[id] = key, a
			return true
		}
	}
	return false
}

// Close lets go: XDP stubs stay attached with empty slots, TC links are detached. Nothing is forwarded by shunt afterwards.
func (d *Datapath) Close() {
	d.Pause() // nobody keeps the programs true while work behind the loop ends
	d.behind.end()
	for _, a := range d.ports {
		if err := a.empty(d.objects.pass); err != nil {
			d.log.Error("letting go of a device", "err", err)
		}
		a.close()
		a.stats.Close()
	}
	d.generic.close()
	d.objects.close()
	d.ns.Close()
}

// Detach removes everything that Close would leave, and the folder of pins.
func (d *Datapath) Detach() error {
	d.Pause()
	d.behind.end()
	var errs []error
	for _, a := range d.ports {
		errs = append(errs, a.remove())
		a.stats.Close()
	}
	d.generic.close()
	d.objects.close()
	d.ns.Close()
	return errors.Join(append(errs, d.pins.remove())...)
}
