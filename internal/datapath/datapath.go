// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

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
	short           time.Time // when some of them could not be tried
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
	growth          growthOf4
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

// Open probes the kernel, makes the shared maps, and adopts what an earlier daemon left attached.
func Open(o Options) (*Datapath, error) {
	kernel, found, err := typesOf(moduleTypes)
	if err != nil {
		return nil, err
	}
	objects, err := loadObjects(o.Log, kernel, found)
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
