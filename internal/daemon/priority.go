// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// starting is the nice value until the first programs are in place. Until then Linux forwards, and needs the CPU that folding and
// verifying would take from it: receive queues of a few hundred packets run over within milliseconds.
const starting = 19

// asideMost is how long that may last. On a machine whose CPUs are busy with ordinary work nothing of this priority comes to its turn: what takes a second would take a minute,
// in which a service manager loses its patience, and nothing is fast.
const asideMost = 3 * time.Second

// stepAside lowers the priority of the whole process for a while; back restores it earlier. Without the right to restore it nothing is done.
//
// Priorities belong to threads, and new threads take theirs from the one that starts them. One that has chosen another meanwhile, as work behind the loop
// does, keeps it.
func stepAside(most time.Duration) (back func()) {
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return func() {}
	}
	nice := 20 - before // the system call gives 20 less the nice value
	if nice >= starting || !mayRaise(nice) {
		return func() {}
	}
	everyThread(nice, starting)
	restore := sync.OnceFunc(func() { everyThread(starting, nice) })
	late := time.AfterFunc(most, restore)
	return func() { late.Stop(); restore() }
}

// mayRaise says whether a thread that was lowered could come back to a nice value: with CAP_SYS_NICE, or by RLIMIT_NICE.
func mayRaise(nice int) bool {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NICE, &limit); err == nil && limit.Cur >= uint64(20-nice) {
		return true
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_NICE) != 0
}

// everyThread gives another nice value to all threads that have one. A thread that starts meanwhile may be missed by the first look, not by the second.
func everyThread(from, to int) {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if has, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && 20-has == from { // one that has just ended has none
				unix.Setpriority(unix.PRIO_PROCESS, tid, to)
			}
		}
	}
}
