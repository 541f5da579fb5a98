// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/reason"
)

// errand is what the maps of the generic tier need from time to time, most of it waiting for packets to be through.
type errand struct {
	register []counters // into port_stats
	ports    []hookKey  // whose counters these are, as far as they are a port's
	of       []*attachment
	forget   []uint64
	recycle  []counters
	shed     []counters // more than are kept
}

// errand gathers what there is to do; nil is nothing.
func (d *Datapath) errand() *errand {
	g := d.generic
	if len(g.programs) == 0 || g.broken {
		return nil
	}
	e := &errand{forget: g.old, recycle: g.released}
	add := func(stats *ebpf.Map, err error) bool {
		if err != nil {
			return false
		}
		place, ok := g.newPlace()
		if !ok {
			stats.Close()
			return false
		}
		e.register = append(e.register, counters{stats, place})
		return true
	}
	for key, a := range d.ports {
		if a.place == 0 && add(a.stats.Clone()) {
			e.ports, e.of = append(e.ports, key), append(e.of, a)
		}
	}
	for n := len(g.spare) + len(g.released); n < spares && add(g.objects.newStats()); n++ {
	}
	if keep := max(0, mostSpares-len(g.released)); len(g.spare) > keep { // devices come and go; the most that there ever were at once need not be kept ready
		g.spare, e.shed = slices.Clone(g.spare[:keep]), g.spare[keep:]
	}
	if len(e.register)+len(e.forget)+len(e.recycle)+len(e.shed) == 0 {
		return nil
	}
	g.old, g.released = nil, nil
	return e
}

// run does it. Any goroutine may call it.
func (e *errand) run(o *objects) error {
	if err := o.register(e.register); err != nil {
		return err
	}
	var errs []error
	for _, c := range e.shed {
		errs = append(errs, o.maps["port_stats"].Delete(c.place))
	}
	if len(e.forget)+len(e.recycle) == 0 {
		return errors.Join(errs...)
	}
	// The kernel returns from a change of a map of maps when every program that may have seen the old entry has ended.
	if err := o.maps["port_stats"].Put(uint32(0), o.nobody); err != nil {
		return fmt.Errorf("waiting for packets: %w", err)
	}
	for _, number := range e.forget {
		errs = append(errs, o.maps["configs"].Delete(number))
	}
	for _, c := range e.recycle {
		errs = append(errs, clearStats(c.stats))
	}
	return errors.Join(errs...)
}

// register makes counters known to the generic programs, all at once where there are several: each change of a map of maps waits for the kernel's readers, which
// takes milliseconds.
func (o *objects) register(all []counters) error {
	places, ids := make([]uint32, len(all)), make([]uint32, len(all))
	for i, c := range all {
		places[i], ids[i] = c.place, uint32(c.stats.FD())
	}
	if len(all) == 0 {
		return nil
	}
	if _, err := o.maps["port_stats"].BatchUpdate(places, ids, nil); err != nil {
		return fmt.Errorf("registering counters: %w", err)
	}
	runtime.KeepAlive(all)
	return nil
}

// done takes an errand's result in.
func (d *Datapath) done(e *errand, err error) {
	g := d.generic
	if err != nil {
		g.fail(err)
	}
	for i, c := range e.register {
		switch {
		case err != nil:
			c.stats.Close()
		case i >= len(e.of):
			g.spare = append(g.spare, c)
		case d.ports[e.ports[i]] == e.of[i]:
			e.of[i].place = c.place
			c.stats.Close() // the port has it
		default:
			g.released = append(g.released, c)
		}
	}
	g.spare = append(g.spare, e.recycle...)
	for _, c := range e.shed {
		c.stats.Close()
		g.vacant = append(g.vacant, c.place)
	}
}

// newCounters are for a port that is new.
func (d *Datapath) newCounters() (counters, error) {
	if d.tier == Generic && len(d.generic.spare) == 0 {
		if e := d.errand(); e != nil {
			d.done(e, e.run(d.objects))
		}
	}
	return d.generic.take()
}

func clearStats(m *ebpf.Map) error {
	cpus, err := possibleCPUs()
	if err != nil {
		return err
	}
	zero := make([]bpfobj.Count, cpus)
	for code := range uint32(reason.Count) {
		if err := m.Put(code, zero); err != nil {
			return fmt.Errorf("clearing counters: %w", err)
		}
	}
	return nil
}
