// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"
	"time"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/synth"
)

// applied is a plan that is in force, with the basis that its programs have.
type applied struct {
	plan  *synth.Plan
	basis *basis
}

// Failure is a device at which something could not be put in place; everything there goes to Linux.
type Failure struct {
	Index int
	Hook  graph.Hook
	Err   error
}

// Apply brings the kernel from what it has to the plan. The snapshot must be older than the reading that the plan came from. Failures
// of single devices are returned and leave those devices to Linux; an error means that the shared tables are in doubt, or that some device could not be left to Linux, and then
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
	failures := d.put(jobs)
	more, stuck := d.releaseOthers(plan)
	if failures = append(failures, more...); stuck != nil {
		return failures, d.stop(stuck)
	}
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

// releaseOthers stops the programs that the plan of this turn does not want; stuck is the error of one that goes on.
func (d *Datapath) releaseOthers(plan *synth.Plan) (failures []Failure, stuck error) {
	for key, a := range d.ports {
		if a.turn == d.turn {
			continue
		}
		a.planned = nil
		d.changed = d.changed || a.prog != nil
		if err := d.release(key, a, plan); err != nil {
			failures = append(failures, Failure{key.index, key.hook, err})
			if a.runs() {
				stuck = fmt.Errorf("device %d goes on by what is no longer so (%s): %w", key.index, key.hook, err)
			}
		}
	}
	return failures, stuck
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
