// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Operations of bpf/wheel.bpf.c and results of <shunt/wheel.h>.
const (
	wheelAdd = iota
	wheelNext
	wheelCancel
	wheelBeyondCount

	wheelBeyond = 1
	wheelEmpty  = ^uint64(0)
	wheelAdded  = ^uint64(1)
	wheelHandle = ^uint64(2)
	wheelLater  = ^uint64(3)
)

// A wheelTwin is the wheel as a sorted list.
type wheelTwin struct {
	slots, slotNs uint64
	handles       uint32
	at            uint64 // the slot at which the window begins
	now           uint64 // the test's clock
	beyond        uint64
	timers        []wheelTimer // by slot, then by age
}

type wheelTimer struct {
	slot   uint64
	handle uint32
}

func (w *wheelTwin) has(handle uint32) bool {
	return slices.ContainsFunc(w.timers, func(t wheelTimer) bool { return t.handle == handle })
}

func (w *wheelTwin) add(handle uint32, when, now uint64) (out uint64) {
	if handle >= w.handles {
		return wheelHandle
	}
	if w.has(handle) {
		return wheelAdded
	}
	if len(w.timers) == 0 {
		w.at = max(w.at, now/w.slotNs)
	}
	due := when / w.slotNs
	if when%w.slotNs != 0 {
		due++
	}
	due = max(due, w.at)
	if due-w.at >= w.slots {
		due, out = w.at+w.slots-1, wheelBeyond
		w.beyond++
	}
	at := 0
	for at < len(w.timers) && w.timers[at].slot <= due {
		at++
	}
	w.timers = slices.Insert(w.timers, at, wheelTimer{due, handle})
	return out
}

// next also returns when the first timer is due, which the program does for an empty wheel too (0).
func (w *wheelTwin) next(now uint64) (handle, when uint64) {
	if len(w.timers) == 0 {
		return wheelEmpty, 0
	}
	first := w.timers[0]
	if first.slot > now/w.slotNs {
		w.at = max(w.at, now/w.slotNs)
		return wheelLater, first.slot * w.slotNs
	}
	w.at = first.slot
	w.timers = slices.Delete(w.timers, 0, 1)
	return uint64(first.handle), first.slot * w.slotNs
}

func (w *wheelTwin) cancel(handle uint32) uint64 {
	if handle >= w.handles {
		return wheelHandle
	}
	if !w.has(handle) {
		return wheelEmpty
	}
	w.timers = slices.DeleteFunc(w.timers, func(t wheelTimer) bool { return t.handle == handle })
	return 0
}

// time makes one up that hurts: borders of slots and of the horizon, long ago, never.
func (w *wheelTwin) time(r *rand.Rand) uint64 {
	horizon := w.slots * w.slotNs
	switch n := r.IntN(100); {
	case n == 0:
		return ^uint64(0) - r.Uint64N(2)
	case n == 1:
		return 0
	case n < 10:
		return w.now - r.Uint64N(min(w.now, horizon)+1)
	case n < 30:
		return (w.now/w.slotNs+r.Uint64N(w.slots+2))*w.slotNs + r.Uint64N(3) - 1
	case n < 40:
		return (w.now/w.slotNs+[]uint64{0, 1, 2, 63, 64, 65, w.slots - 2, w.slots - 1, w.slots, w.slots + 1}[r.IntN(10)])*w.slotNs + r.Uint64N(2)
	}
	return w.now + r.Uint64N(horizon)
}

// tick lets some time pass: mostly little, rarely more than all slots.
func (w *wheelTwin) tick(r *rand.Rand) {
	switch n := r.IntN(1000); {
	case n == 0:
		w.now += r.Uint64N(4 * w.slots * w.slotNs)
	case n < 5:
		w.now -= min(w.now, r.Uint64N(4*w.slotNs)) // another CPU's clock
	case n < 300:
		w.now += r.Uint64N(3 * w.slotNs)
	case n < 330:
		w.now += r.Uint64N(max(w.slots*w.slotNs/16, 1))
	}
}

// TestWheel: wheels of 64, 512 and 4096 slots answer as a sorted list of timers does, and never give a handle early.
func TestWheel(t *testing.T) {
	m := load(t, "wheel", nil)
	twins := []*wheelTwin{
		{slots: 64, slotNs: 1 << 10, handles: 64},
		{slots: 512, slotNs: 1, handles: 1024},
		{slots: 4096, slotNs: 1 << 14, handles: 4096, now: 1_764_000_000_000_000_000},
	}
	r := rand.New(rand.NewPCG(*seed, 10))
	gave := 0
	for done := 0; done < *operations; done += maxSteps {
		steps := make([]step, maxSteps)
		want := make([]step, maxSteps)
		for i := range steps {
			which := r.IntN(3)
			w := twins[which]
			w.tick(r)
			s := step{B: w.now, Arg: r.Uint32N(min(w.handles, 200))}
			filling := done/40_000%2 == 0
			switch n := r.IntN(20); {
			case n == 0:
				s.Arg = r.Uint32N(2 * w.handles)
				s.Op = uint32(r.IntN(4))
			case n == 1:
				s.Op = wheelCancel
			case n < 14 == filling:
				s.Op = wheelAdd
			default:
				s.Op = wheelNext
			}
			if s.Op == wheelAdd {
				s.A = w.time(r)
			}
			steps[i], want[i] = s, s
			steps[i].Op |= uint32(which+1) << 3
			switch s.Op {
			case wheelAdd:
				want[i].Out = w.add(s.Arg, s.A, s.B)
			case wheelNext:
				want[i].Out, want[i].A = w.next(s.B)
				if want[i].Out < uint64(w.handles) {
					gave++
				}
			case wheelCancel:
				want[i].Out = w.cancel(s.Arg)
			default:
				want[i].Out = w.beyond
			}
		}
		for i, s := range m.run("wheel", steps) {
			if s.Out != want[i].Out || s.A != want[i].A {
				t.Fatalf("operation %d (seed %d): %+v, the twin says %+v", done+i, *seed, s, want[i])
			}
		}
	}
	for _, w := range twins {
		if w.beyond == 0 {
			t.Errorf("nothing was ever beyond the horizon of %d slots", w.slots)
		}
	}
	if gave < *operations/10 {
		t.Errorf("only %d handles came out", gave)
	}
}

// TestWheelNeverEarly: each handle comes out at or after its time and less than a slot later, if someone asks all the time.
func TestWheelNeverEarly(t *testing.T) {
	m := load(t, "wheel", nil)
	const slot = 1 << 14
	r := rand.New(rand.NewPCG(*seed, 11))
	start := uint64(5_000_000_123)
	var steps []step
	when := map[uint64]uint64{}
	for handle := range uint32(1000) {
		when[uint64(handle)] = start + r.Uint64N(4094*slot)
		steps = append(steps, step{Op: 3<<3 | wheelAdd, Arg: handle, A: when[uint64(handle)], B: start})
	}
	for _, s := range m.run("wheel", steps) {
		if s.Out != 0 {
			t.Fatalf("%+v", s)
		}
	}
	for now := start; len(when) > 0; now += slot / 4 {
		steps = slices.Repeat([]step{{Op: 3<<3 | wheelNext, B: now}}, 16)
		for _, s := range m.run("wheel", steps) {
			if s.Out >= 1000 {
				continue
			}
			if want := when[s.Out]; now < want || now >= want+slot+slot/4 {
				t.Fatalf("handle %d came at %d, its time was %d", s.Out, now, want)
			}
			delete(when, s.Out)
		}
		if now > start+5000*slot {
			t.Fatalf("%d handles never came", len(when))
		}
	}
}

// TestWheelBothCPUs: under a lock, two CPUs lose no handle and get none twice.
func TestWheelBothCPUs(t *testing.T) {
	m := load(t, "wheel", nil)
	var in, out [2][1024]int
	err := bothCPUs(func(cpu int) error {
		first := cpu * maxSteps / 2
		mine := m.steps[first : first+maxSteps/2]
		r := rand.New(rand.NewPCG(*seed, uint64(cpu)))
		for turn := range uint64(150) {
			for i := range mine {
				now := turn*600 + uint64(i)/4
				mine[i] = step{Op: uint32(r.IntN(2)), Arg: r.Uint32N(1024), A: now + r.Uint64N(600), B: now}
				if r.IntN(8) == 0 {
					mine[i].Op = wheelCancel
				}
			}
			if err := m.trySpan("locked", first, len(mine)); err != nil {
				return err
			}
			for _, s := range mine {
				switch {
				case s.Op == wheelAdd && s.Out <= 1:
					in[cpu][s.Arg]++
				case s.Op == wheelNext && s.Out < 1024:
					out[cpu][s.Out]++
				case s.Op == wheelCancel && s.Out == 0:
					out[cpu][s.Arg]++
				case s.Out != wheelEmpty && s.Out != wheelAdded && s.Out != wheelLater:
					t.Errorf("%+v", s)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range m.run("locked", slices.Repeat([]step{{Op: wheelNext, B: 1 << 40}}, 1025)) {
		if s.Out < 1024 {
			out[0][s.Out]++
		}
	}
	for h := range 1024 {
		if in[0][h]+in[1][h] != out[0][h]+out[1][h] || in[0][h] == 0 {
			t.Errorf("handle %d went in %d times and came out %d times", h, in[0][h]+in[1][h], out[0][h]+out[1][h])
		}
	}
}
