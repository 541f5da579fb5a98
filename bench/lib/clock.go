// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/suite"
)

// batches is how often in one turn a program is timed. The fastest counts: what else the machine does can only add.
const batches = 20

// timed runs a program that does much in one run again and again, as long as the size of the bench allows, and returns how long a run
// takes, in nanoseconds.
func timed(b *suite.Bench, prog *ebpf.Program, frame []byte) (float64, error) {
	batch := 2 * time.Millisecond
	if b.Size.Name == "smoke" {
		batch /= 20
	}
	least, repeat := math.Inf(1), 1
	for i := range 1 + batches { // the first tells how many runs a batch can have
		_, took, err := prog.Benchmark(frame, repeat, nil)
		if err != nil {
			return 0, fmt.Errorf("timing a program: %w", err)
		}
		if i == 0 {
			repeat = int(max(batch/max(took, 1), 1))
		} else {
			least = min(least, float64(took))
		}
	}
	return least, nil
}

// timedWarm is timed for what works on more memory than a core has of its own: each run is a call of its own. Before runs that repeat the kernel waits until
// nobody uses its old dispatcher (bpf_prog_change_xdp), and sleeps; the caches belong to others meanwhile, and of the batch that follows
// a good part goes into filling them again, which native code in a loop does not have to do.
func timedWarm(b *suite.Bench, prog *ebpf.Program, frame []byte) (float64, error) {
	batch, most := 2*time.Millisecond, 1000
	if b.Size.Name == "smoke" {
		batch /= 20
	}
	least := math.Inf(1)
	for range 1 + batches { // the first warms up
		var all time.Duration
		runs := 0
		for ; runs == 0 || all < batch && runs < most; runs++ {
			_, took, err := prog.Benchmark(frame, 1, nil)
			if err != nil {
				return 0, fmt.Errorf("timing a program: %w", err)
			}
			all += took
		}
		least = min(least, float64(all)/float64(runs))
	}
	return least, nil
}

// cpuTime is the time that f spent on a CPU, to a nanosecond. BPF_PROG_TEST_RUN gives whole nanoseconds per run, which are too coarse for
// a packet, and counts the time in which others had the CPU.
func cpuTime(f func() error) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &before); err != nil {
		return 0, fmt.Errorf("reading the thread's clock: %w", err)
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &after); err != nil {
		return 0, fmt.Errorf("reading the thread's clock: %w", err)
	}
	return time.Duration(after.Nano() - before.Nano()), nil
}
