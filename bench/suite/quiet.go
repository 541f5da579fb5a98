// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// quiet waits until the machine has little else to do, for the last section's namespaces take the kernel a while to take down, and returns
// the share of the CPUs' time that was idle in the end. A machine that does not become quiet is measured all the same: its idle share is
// published beside the figures.
func quiet(s size) (idle float64) {
	const enough, patience = 0.85, 30 * time.Second
	if s.Name == "smoke" {
		return idleShare(10 * time.Millisecond)
	}
	for end := time.Now().Add(patience); ; {
		idle = idleShare(500 * time.Millisecond)
		if idle >= enough {
			return idle
		}
		if time.Now().After(end) {
			fmt.Printf("%-11s the machine is busy with other work (%.0f %% idle): its figures will be poor\n", "", 100*idle)
			return idle
		}
	}
}

// idleShare looks at all CPUs for a while.
func idleShare(during time.Duration) float64 {
	idle, all := cpuTimes()
	time.Sleep(during)
	idleAfter, allAfter := cpuTimes()
	return (idleAfter - idle) / max(allAfter-all, 1)
}

// cpuTimes reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
func cpuTimes() (idle, all float64) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	for i, field := range strings.Fields(first)[1:] {
		if i == 8 {
			break // guest time is part of user time
		}
		v, _ := strconv.ParseFloat(field, 64)
		all += v
		if i == 3 || i == 4 {
			idle += v
		}
	}
	return idle, all
}
