// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/synth"
)

// attachment is what runs at one hook of one device.
type attachment struct {
	hold   hold
	slot   *ebpf.Map // PROG_ARRAY of the stub; nil for tcx, where the program itself is attached
	linear bool      // the driver refused frames in several buffers: the stub and what its slot takes are without
	prog   *ebpf.Program
	key    programKey
	counters
	generic bool           // prog is the generic one, which is not the attachment's own
	refused programKey     // the configuration for which no program could be made behind the loop, so that what is there stays
	again   again          // when it is tried again
	awaited programKey     // while prog is nil: the configuration for which a first program is made behind the loop
	since   time.Time      // when it began to wait for such a program
	fresh   bool           // it has not had a program of its own yet
	at      hookKey        // see Own
	id      ebpf.ProgramID // of what the kernel runs at the hook: the stub, or for tcx the program; 0 until asked for
	adds    uint64         // what is attached has to do with the sum of beats; see added

	turn    uint64         // of the last plan that wants it
	planned *synth.Program // of that plan, as long as what runs, or is made behind the loop, is what it comes to
	left    bool           // a word of that had no slot

	kept      []kept    // what ran before, newest last
	emptied   time.Time // when everything began to go to Linux, while prog is nil
	explained Counts    // what Explain added to stats
}

// kept is a program that ran earlier. Configurations come back (a capture ends, a rule is added and removed), and loading is most of what a
// change of structure costs.
type kept struct {
	prog *ebpf.Program
	key  programKey
}

// maxKept bounds what an attachment keeps; a program takes some 30 KiB in the kernel.
const maxKept = 3

// keep puts a program aside that ran, or was to.
func (a *attachment) keep(prog *ebpf.Program, key programKey) {
	if len(a.kept) == maxKept {
		a.kept[0].prog.Close()
		a.kept = a.kept[1:]
	}
	a.kept = append(a.kept, kept{prog, key})
}

// take gives back a program that was kept, nil if there is none of that key.
func (a *attachment) take(key programKey) *ebpf.Program {
	for i, k := range a.kept {
		if k.key == key {
			a.kept = append(a.kept[:i:i], a.kept[i+1:]...)
			return k.prog
		}
	}
	return nil
}

// forget lets go of what is kept.
func (a *attachment) forget() {
	for _, k := range a.kept {
		k.prog.Close()
	}
	a.kept = nil
}

// programID asks the kernel once: with a thousand devices each is compared with a thousand programs.
func (a *attachment) programID() ebpf.ProgramID {
	if a.id == 0 {
		if id, err := a.hold.attached(); err == nil {
			a.id = id
		}
	}
	return a.id
}

// hold is our grip on a hook of a device.
type hold interface {
	// attached is the program that the kernel runs there: a stub, or for tcx the program itself.
	attached() (ebpf.ProgramID, error)
	// update replaces the attached program at once.
	update(*ebpf.Program) error
	// remove detaches for good.
	remove() error
	// close lets go; what is not pinned is detached by the kernel.
	close()
}

// linkHold is a BPF link: XDP, pinned, or tcx, not pinned.
type linkHold struct{ link.Link }

func (h linkHold) attached() (ebpf.ProgramID, error) {
	info, err := h.Info()
	if err != nil {
		return 0, err
	}
	return info.Program, nil
}

// severed says whether the device is gone that the link was made for; a link outlives it.
func (h linkHold) severed() bool {
	info, err := h.Info()
	if err != nil {
		return false
	}
	xdp, tcx := info.XDP(), info.TCX()
	return xdp != nil && xdp.Ifindex == 0 || tcx != nil && tcx.Ifindex == 0
}

func (h linkHold) update(p *ebpf.Program) error { return h.Update(p) }
func (h linkHold) close()                       { h.Close() }

// remove detaches at once, where closing the last reference would do so a little later, and lets the pin go.
func (h linkHold) remove() error {
	detached := h.Detach()
	err := h.Unpin()
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, link.ErrNotSupported) {
		err = nil
	}
	return errors.Join(detached, err, h.Close())
}

// swap puts a program that is made for the attachment into the slot, or, for tcx, updates the link. The packets after it meet the new program.
func (a *attachment) swap(prog *ebpf.Program, key programKey) error {
	if err := a.replace(prog); err != nil {
		return err
	}
	a.leaveProgram()
	a.prog, a.key, a.generic, a.awaited, a.fresh, a.again = prog, key, false, programKey{}, false, again{}
	return nil
}

// join makes the attachment run the generic program, for which its configuration is in place.
func (a *attachment) join(prog *ebpf.Program, key programKey) error {
	if a.prog != prog {
		if err := a.replace(prog); err != nil {
			return err
		}
		a.leaveProgram()
	}
	a.prog, a.key, a.generic, a.awaited = prog, key, true, programKey{}
	return nil
}

// leaveProgram keeps what ran, if it is the attachment's own.
func (a *attachment) leaveProgram() {
	if a.prog != nil && !a.generic {
		a.keep(a.prog, a.key)
	}
}

func (a *attachment) replace(prog *ebpf.Program) error {
	if a.slot != nil {
		if err := a.slot.Put(uint32(0), prog); err != nil {
			return fmt.Errorf("putting the program into its slot: %w", err)
		}
	} else {
		if err := a.hold.update(prog); err != nil {
			return fmt.Errorf("updating the tcx link: %w", err)
		}
		a.id = 0
	}
	return nil
}

// empty makes everything go to Linux: the stub finds its slot empty, the tcx link gets the program that passes everything.
func (a *attachment) empty(pass *ebpf.Program) error {
	a.awaited, a.planned = programKey{}, nil
	if a.prog == nil {
		return nil
	}
	if a.slot == nil {
		if err := a.hold.update(pass); err != nil {
			return fmt.Errorf("updating the tcx link: %w", err)
		}
		a.id = 0
	} else if err := a.slot.Delete(uint32(0)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("emptying the slot: %w", err)
	}
	a.leaveProgram()
	a.prog, a.key, a.generic, a.emptied = nil, programKey{}, false, time.Now()
	return nil
}

// runs says whether packets still meet the program that was put in place last: also after an attempt to replace it, or to empty the hook, that failed.
func (a *attachment) runs() bool {
	h, is := a.hold.(linkHold)
	return a.prog != nil && !(is && h.severed())
}

// unused says for how long everything has gone to Linux.
func (a *attachment) unused() time.Duration {
	if a.prog != nil {
		return 0
	}
	return time.Since(a.emptied)
}

// close lets go of descriptors. A stub stays attached, with an empty slot; a tcx program is detached by the kernel.
func (a *attachment) close() {
	a.closeParts()
	a.hold.close()
}

// remove takes everything out of the kernel.
func (a *attachment) remove() error {
	defer a.closeParts()
	if a.slot != nil {
		if err := a.slot.Delete(uint32(0)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return errors.Join(fmt.Errorf("emptying the slot: %w", err), a.hold.remove())
		}
	}
	return a.hold.remove()
}

func (a *attachment) closeParts() {
	a.forget()
	if a.slot != nil {
		a.slot.Close()
	}
	if a.prog != nil && !a.generic {
		a.prog.Close()
	}
}

// variant is the sort of program that fits.
func (a *attachment) variant(hook graph.Hook) graph.Hook {
	if a.linear {
		return linearXDP
	}
	return hook
}
