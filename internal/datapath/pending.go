// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
)

// pendingHold is a hook that is yet to be taken, behind the loop: the kernel waits for all its readers while it attaches to tcx, some ten milliseconds in which nobody
// can change a device. A container that is being started needs RTNL more, and on a host of a thousand that is most of the start of shunt.
type pendingHold struct{ gone bool }

var errPending = errors.New("the hook is not taken yet")

func (*pendingHold) attached() (ebpf.ProgramID, error) { return 0, errPending }
func (*pendingHold) update(*ebpf.Program) error        { return nil } // taken does it
func (h *pendingHold) remove() error                   { h.gone = true; return nil }
func (h *pendingHold) close()                          { h.gone = true }

// pending says whether the hook is yet to be taken.
func (a *attachment) pending() bool {
	_, is := a.hold.(*pendingHold)
	return is
}

// postpones says whether a new port's hook is taken behind the loop.
func (d *Datapath) postpones(j *job) bool { return j.aside && j.key.hook == graph.TC && d.features.TCX }

// untaken are the ports whose hooks are to be taken now, or how long to wait for the first.
func (d *Datapath) untaken() (keys []hookKey, wait time.Duration) {
	wait = never
	for key, a := range d.ports {
		if !a.pending() {
			continue
		}
		if yet := d.ripe(a); yet > 0 {
			wait = min(wait, yet)
			continue
		}
		keys = append(keys, key)
	}
	return keys, wait
}

// takeHooks attaches a program that leaves everything to Linux to each of some hooks, until anything changes.
func (d *Datapath) takeHooks(keys []hookKey) {
	turn, changes := d.behind.turns.Load(), d.changes
	holds := make([]hold, len(keys))
	for i, key := range keys {
		holds[i] = d.ports[key].hold
	}
	d.behind.start(func() {
		entered := unix.Setns(int(d.ns.Fd()), unix.CLONE_NEWNET) // numbers of devices are a namespace's; the thread ends with this
		for i, key := range keys {
			if d.behind.turns.Load() != turn {
				return
			}
			a, err := (*attachment)(nil), entered
			if err == nil {
				a, err = d.attachCounted(key.index)
			}
			d.behind.tell(func() {
				d.taken(key, holds[i], a, err)
				if err == nil && d.ports[key] != nil && d.ports[key].hold == a.hold {
					d.added(d.ports[key], a.adds, changes)
				}
			})
		}
	})
}

// attachCounted attaches what leaves everything to Linux to a device's tcx ingress, and says how that changes the sum of beats: by nothing where something else is there, too.
func (d *Datapath) attachCounted(index int) (*attachment, error) {
	before, errBefore := d.sum(index)
	a, err := d.attachTCX(index, d.objects.pass)
	if err != nil {
		return nil, err
	}
	after, errAfter := d.sum(index)
	there, errThere := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
	if errors.Join(errBefore, errAfter, errThere) == nil && len(there.Programs) == 1 {
		a.adds = after - before
	}
	return a, nil
}

// added takes it into the sum of the last beat that a port's hook was taken by the daemon itself, or the next beat would have the programs of all devices read: milliseconds
// on a host of hundreds of containers, for each one that starts or ends. Where a beat has found a change meanwhile, that was it.
func (d *Datapath) added(a *attachment, adds, changes uint64) {
	if a.adds = adds; d.changes == changes {
		d.attached += adds
	}
}

// taken gives a port the hook that was taken for it, and the hook the program that the port has by now.
func (d *Datapath) taken(key hookKey, pending hold, got *attachment, err error) {
	a := d.ports[key]
	if a == nil || a.hold != pending {
		if err == nil {
			err = got.remove()
		}
		d.log.Debug("a device went before its hook was taken", "ifindex", key.index, "err", err)
		return
	}
	if err == nil {
		a.hold = got.hold
		if a.prog != nil {
			err = a.replace(a.prog)
		}
	}
	if err != nil {
		if errors.Is(err, unix.ENODEV) { // its event is yet to come
			d.log.Info("a device has vanished before it could be attached to", "ifindex", key.index, "hook", key.hook)
		} else {
			d.log.Warn("a new port waits for the next round", "ifindex", key.index, "hook", key.hook, "err", fmt.Errorf("taking its hook: %w", err))
		}
		if err := d.drop(key, a); err != nil {
			d.log.Debug("letting go of a device", "ifindex", key.index, "err", err)
		}
	}
}
