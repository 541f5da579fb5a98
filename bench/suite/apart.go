// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The distance of two CPUs is the time that a line of the cache takes from the one that makes packets to the one that takes them and
// back. The host of a virtual machine may move its CPUs while they are measured: below one common cache it is some 70 ns, else five times
// that. A program that does not wait for what a packet holds pays for it once per packet, for the queue; one that looks the packet up in a table pays
// twice; so ratios of one distance are not those of another.
type distance struct {
	least, most float64
	waited      time.Duration
}

// patience is how long a section waits in all for its CPUs to be near each other.
const patience = 8 * time.Minute

// WaitNear waits until the two CPUs are about as near to each other as they have ever been in this section, and says on the page how far apart
// they were. A section whose patience is at its end goes on with what there is.
func (b *Bench) WaitNear() error {
	if b.Size.Name == "smoke" || b.GenCPU == b.DutCPU {
		return nil
	}
	for {
		ns := math.Inf(1)
		for range 3 { // other work may have one of the CPUs for longer than a try takes
			once, err := Apart(b.GenCPU, b.DutCPU)
			if err != nil {
				return err
			}
			ns = min(ns, once)
		}
		d := &b.distance
		if d.least == 0 {
			d.least = ns
		}
		d.least = min(d.least, ns)
		if ns < 10_000 { // else it is not the way that took so long
			d.most = max(d.most, ns)
		}
		b.Fact("a line's way to the other CPU and back", fmt.Sprintf("%.0f to %.0f ns; waited %.0f s for the shorter", d.least, d.most, d.waited.Seconds()))
		if ns < 2*d.least || d.waited >= patience || b.Interrupted.Load() {
			return nil
		}
		time.Sleep(time.Second)
		d.waited += time.Second
	}
}

// Apart is the time in nanoseconds that a line takes from one CPU to another and back; of many tries the fastest, since other work on the CPUs can only
// add.
func Apart(one, other int) (float64, error) {
	var line struct {
		_ [128]byte
		v atomic.Uint32
		_ [128]byte
	}
	var stop atomic.Bool
	pinned := func(cpu int, run func()) chan error {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // the thread ends with it
			var set unix.CPUSet
			set.Set(cpu)
			err := unix.SchedSetaffinity(0, &set)
			if err == nil {
				run()
			} else {
				err = fmt.Errorf("pinning a thread to CPU %d: %w", cpu, err)
			}
			stop.Store(true)
			done <- err
		}()
		return done
	}
	// The line is odd while the other CPU has it to answer.
	answers := pinned(other, func() {
		for !stop.Load() {
			if v := line.v.Load(); v&1 == 1 {
				line.v.Store(v + 1)
			}
		}
	})
	const times = 64
	least := math.Inf(1)
	asks := pinned(one, func() {
		for end := time.Now().Add(5 * time.Millisecond); !stop.Load() && time.Now().Before(end); {
			from := time.Now()
			for range times {
				v := line.v.Load() + 1
				line.v.Store(v)
				for line.v.Load() == v && !stop.Load() {
				}
			}
			least = min(least, float64(time.Since(from))/times)
		}
	})
	err := <-asks
	if other := <-answers; err == nil {
		err = other
	}
	return least, err
}
