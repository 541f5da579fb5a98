// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Every thread steps aside and comes back, but for one that has chosen another priority meanwhile.
func TestStepAside(t *testing.T) {
	nices := func() map[int]bool {
		seen := map[int]bool{}
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				t.Fatal(err)
			}
			if p, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil {
				seen[20-p] = true
			}
		}
		return seen
	}
	before := nices()
	if len(before) != 1 || before[starting] || !mayRaise(0) {
		t.Skipf("this process may not change its priority, or has several (nice %v)", before)
	}
	back := stepAside(patience)
	if now := nices(); len(now) != 1 || !now[starting] {
		t.Errorf("while starting: nice %v, want %d", now, starting)
	}
	const other = starting - 5
	chosen, end := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		chosen <- unix.Setpriority(unix.PRIO_PROCESS, 0, other)
		<-end
		chosen <- unix.Setpriority(unix.PRIO_PROCESS, 0, slices.Collect(maps.Keys(before))[0])
	}()
	defer func() { close(end); <-chosen }()
	if err := <-chosen; err != nil {
		t.Fatal(err)
	}
	back()
	now := nices()
	if !now[other] {
		t.Errorf("afterwards: nice %v, and no thread with the %d that it chose", now, other)
	}
	if delete(now, other); len(now) != 1 || now[starting] {
		t.Errorf("afterwards: nice %v, want %v", now, before)
	}
}

// Nobody stays aside for long, also where the start takes longer.
func TestStepAsideEnds(t *testing.T) {
	nice := func() int {
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		return 20 - raw
	}
	before := nice()
	if before == starting || !mayRaise(before) {
		t.Skip("this process may not change its priority (no CAP_SYS_NICE and no RLIMIT_NICE, both were asked)")
	}
	defer stepAside(50 * time.Millisecond)()
	until(t, "the priority is back", func() bool { return nice() == before })
}
