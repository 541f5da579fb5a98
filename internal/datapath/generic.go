// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/synth"
)

// Tier says which sort of program runs at a hook.
type Tier string

const (
	Specialised Tier = "specialised" // made for the port's configuration
	Generic     Tier = "generic"     // serves every port and finds the configuration in a map
	Both        Tier = "both"        // in Options alone
	Awaited     Tier = "awaited"     // none yet: the first is made behind the loop, and everything goes to Linux
)

// generic is the tier in which a change of structure needs no load: programs compiled from the same nodes, loaded once, that find a port's
// configuration in maps (bpf/include/port.h). They cost more per packet, so a port stays with one only until the program that is made for its
// configuration has been loaded behind it (behind.go). They cost more to load, too, and until nothing has changed for a while there are none: a change of structure then waits for its programs.
//
// Invariant: a configuration is complete before a port's number says it; it is deleted, and counters are given to another port, only after every
// packet that may have seen the number is through.
type generic struct {
	objects  *objects
	fixed    bpfobj.Config                // what is the same for every port, the shape of rules and the sizes of maps included
	programs map[graph.Hook]*ebpf.Program // by variant, see genericOf
	made     map[graph.Hook]bpfobj.Config // what is fixed in them, or was in an attempt that failed
	failed   map[graph.Hook]error         // those that could not be had, and why
	again    map[graph.Hook]again         // and when they are tried again, if at all
	outworn  []*ebpf.Program              // made for an earlier shape of rules; ports may still run them
	numbers  *ebpf.Memory                 // port_config
	last     uint64                       // number given last
	owners   map[uint32]int               // ifindex by place in port_config
	places   uint32                       // the highest given so far, of port_stats
	vacant   []uint32                     // those below that are free again
	spare    []counters                   // zero and registered
	old      []uint64                     // configurations that no new packet meets
	released []counters                   // of ports that are gone
	broken   bool                         // its maps could not be kept up: nothing new is offered
}

// counters are a port's, at one hook.
type counters struct {
	stats *ebpf.Map
	place uint32 // in port_stats; 0 while generic programs cannot count there
}

const (
	portSlots  = 4096 // SHUNT_PORT_SLOTS
	spares     = 4    // counters that are kept ready for new ports, at least
	mostSpares = 32   // and at most: a host starts a few dozen containers at once, not a thousand
)

// genericOf is the generic program that fits where a variant of a hook's program does.
var genericOf = map[graph.Hook]graph.Hook{graph.XDP: genericXDP, linearXDP: genericLinearXDP, graph.TC: genericTC}

func newGeneric(o *objects, f Features) (*generic, error) {
	g := &generic{objects: o, programs: map[graph.Hook]*ebpf.Program{}, made: map[graph.Hook]bpfobj.Config{}, failed: map[graph.Hook]error{}, again: map[graph.Hook]again{}, owners: map[uint32]int{}}
	g.fixed = bpfobj.Config{Generic: bpfobj.GenericWhole, Peek: f.Peek, KernCtx: f.Ctx, SkipNeigh: flag(f.SkipNeigh), SkbBorn: flag(f.VethSKB)}
	var err error
	if g.numbers, err = o.maps["port_config"].Memory(); err != nil {
		return nil, fmt.Errorf("mapping port_config: %w", err)
	}
	return g, nil
}

// fix notes what a plan asks for that is fixed in the generic programs. It only grows, so that a change back costs nothing.
func (d *Datapath) fix(plan *synth.Plan) {
	fixed := &d.generic.fixed
	d.rules.configure(fixed)
	fixed.Lines4 = d.objects.lines4
	if plan.Bridges() {
		known := fixed.Bridges.PortVlans
		fixed.Bridges = d.objects.bridges
		if !plan.BridgeVLANs() {
			fixed.Bridges.PortVlans = known // 0 leaves all out that asks for VLANs
		}
	}
}

// fits says whether there is a program for a variant that has what is fixed now.
func (g *generic) fits(variant graph.Hook) bool {
	return g.programs[variant] != nil && g.made[variant] == g.fixed
}

// missing says whether there may yet be one.
func (g *generic) missing(variant graph.Hook) bool {
	made, tried := g.made[variant]
	return !tried || made != g.fixed || g.again[variant].due()
}

// load makes the generic program for a variant. It may be called from any goroutine.
func (g *generic) load(variant graph.Hook, fixed bpfobj.Config) (*ebpf.Program, error) {
	return g.objects.load(genericOf[variant], fixed, nil)
}

// loaded takes in what load gave.
func (g *generic) loaded(variant graph.Hook, fixed bpfobj.Config, prog *ebpf.Program, err error) {
	if old := g.programs[variant]; old != nil {
		g.outworn = append(g.outworn, old)
	}
	g.made[variant] = fixed
	delete(g.programs, variant)
	delete(g.failed, variant)
	if err != nil {
		g.failed[variant], g.again[variant] = err, g.again[variant].after(err)
		what := []any{"hook", variant, "err", err}
		if pause := g.again[variant].pause; pause != 0 {
			what = append(what, "again", pause)
		}
		g.objects.log.Warn("every change of structure waits for a program to be loaded: this kernel does not take the generic one", what...)
		return
	}
	delete(g.again, variant)
	g.programs[variant] = prog
}

// serves says whether generic programs can serve a configuration: with the lookup of connections they are more than the verifier takes, and with rules for bridged
// packets more than there is stack for.
func serves(c *bpfobj.Config) bool { return c.Lower == 0 && c.Track == 0 && c.Shown4|c.Shown6 == 0 }

// offer makes a job's configuration ready for the generic program, where that can serve it. Nothing is in force before point.
func (g *generic) offer(j *job) {
	c := j.want.config
	if !g.fits(j.variant()) || g.broken || j.place == 0 || !serves(&c) {
		return
	}
	if owner, taken := g.owners[j.key.place()]; taken && owner != j.key.index {
		return // a port with the same low bits
	}
	c.Counters = j.place
	number, err := g.write(&c)
	if err != nil {
		g.objects.log.Warn("a change waits for its program to be loaded", "ifindex", j.key.index, "hook", j.key.hook, "err", err)
		return
	}
	j.prog, j.number = g.programs[j.variant()], number
}

// write makes a configuration known under a number of its own.
func (g *generic) write(c *bpfobj.Config) (uint64, error) {
	value := make([]byte, binary.Size(c))
	if _, err := binary.Encode(value, binary.NativeEndian, c); err != nil {
		return 0, fmt.Errorf("encoding the configuration: %w", err)
	}
	if err := g.objects.maps["configs"].Update(g.last+1, value, ebpf.UpdateNoExist); err != nil {
		return 0, fmt.Errorf("writing a configuration: %w", err)
	}
	g.last++
	return g.last, nil
}

// point says which configuration the next packets of a port meet in the generic program; number 0 gives its place up.
func (g *generic) point(key hookKey, number uint64) {
	var b [8]byte
	at := 8 * int64(key.place())
	g.numbers.ReadAt(b[:], at) //nolint: here and below the offset is inside by construction
	if was := binary.NativeEndian.Uint64(b[:]); was != 0 {
		g.old = append(g.old, was)
	}
	binary.NativeEndian.PutUint64(b[:], number)
	g.numbers.WriteAt(b[:], at)
	if g.owners[key.place()] = key.index; number == 0 {
		delete(g.owners, key.place())
	}
}

// leave lets go of what belongs to a port that is gone.
func (g *generic) leave(key hookKey, c counters) {
	if g.owners[key.place()] == key.index {
		g.point(key, 0)
	}
	if c.place != 0 && !g.broken { // else nobody takes them up again
		g.released = append(g.released, c)
	} else if c.stats != nil {
		c.stats.Close()
	}
}

// newPlace gives a free place in port_stats.
func (g *generic) newPlace() (place uint32, ok bool) {
	if n := len(g.vacant); n > 0 {
		place, g.vacant = g.vacant[n-1], g.vacant[:n-1]
		return place, true
	}
	if g.places+1 == portSlots {
		return 0, false
	}
	g.places++
	return g.places, true
}

// fail gives the tier up after its maps could not be kept up.
func (g *generic) fail(err error) {
	g.broken = true
	g.objects.log.Warn("changes of structure wait for programs to be loaded from now on", "err", err)
}

// take gives counters to a new port: registered ones, if there are any.
func (g *generic) take() (counters, error) {
	if n := len(g.spare); n > 0 {
		c := g.spare[n-1]
		g.spare = g.spare[:n-1]
		return c, nil
	}
	stats, err := g.objects.newStats()
	return counters{stats: stats}, err
}

// place is where port_config has the number of a port's configuration.
func (k hookKey) place() uint32 {
	place := uint32(k.index) % portSlots * 2
	if k.hook == graph.TC {
		place++
	}
	return place
}

func (g *generic) close() {
	for _, p := range slices.AppendSeq(g.outworn, maps.Values(g.programs)) {
		p.Close()
	}
	for _, c := range append(g.spare, g.released...) {
		c.stats.Close()
	}
}

// onlyGeneric has the generic programs that a plan's ports need before they need them, where they are all that is to run.
func (d *Datapath) onlyGeneric(plan *synth.Plan) error {
	if d.tier != Generic {
		return nil
	}
	for _, port := range plan.Ports {
		for i := range port.Programs {
			key := hookKey{port.Index, port.Programs[i].Hook}
			variant := key.hook
			if a := d.ports[key]; a != nil {
				variant = a.variant(key.hook)
			}
			if !d.generic.missing(variant) {
				continue
			}
			prog, err := d.generic.load(variant, d.generic.fixed)
			if err != nil {
				return err
			}
			d.generic.loaded(variant, d.generic.fixed, prog, nil)
		}
	}
	return nil
}
