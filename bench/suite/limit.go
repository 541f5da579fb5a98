// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limit holds the threads that enter it to a share of one CPU together, by a control group of their own.
type Limit struct{ inside, outside string } // files that take threads

// limitPeriod is short beside a measurement.
const limitPeriod = 10 * time.Millisecond

// NewLimit makes one, which is there until the section's or the part's end. Where the machine has none to give, that is a skip.
func (b *Bench) NewLimit(share float64) (*Limit, error) {
	period := limitPeriod.Microseconds()
	quota := int64(share * float64(period))
	name := fmt.Sprintf("shunt-bench-%d", os.Getpid())
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("reading the process's control groups: %w", err)
	}
	type file struct{ name, text string }
	var dir, tasks string
	var files []file
	for line := range strings.Lines(string(groups)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(part) != 3:
		case part[1] == "cpu", strings.HasPrefix(part[1], "cpu,"), strings.HasSuffix(part[1], ",cpu"): // of version 1
			dir, tasks = filepath.Join("/sys/fs/cgroup", part[1], part[2], name), "tasks"
			files = []file{{"cpu.cfs_period_us", fmt.Sprint(period)}, {"cpu.cfs_quota_us", fmt.Sprint(quota)}}
		case part[1] == "" && dir == "": // version 2, where threads of one process may be in several groups that are told so
			dir, tasks = filepath.Join("/sys/fs/cgroup", part[2], name), "cgroup.threads"
			files = []file{{"cgroup.type", "threaded"}, {"../cgroup.subtree_control", "+cpu"}, {"cpu.max", fmt.Sprint(quota, period)}}
		}
	}
	if dir == "" {
		return nil, skipf("the machine has no control groups for CPU time")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, skipf("no control group can be made: %v", err)
	}
	b.Later(func() error { return os.Remove(dir) })
	for _, f := range files {
		if err := os.WriteFile(dir+"/"+f.name, []byte(f.text), 0o644); err != nil {
			return nil, skipf("the control group cannot be limited: %v", err)
		}
	}
	return &Limit{filepath.Join(dir, tasks), filepath.Join(filepath.Dir(dir), tasks)}, nil
}

// Pinned is [Pinned] under the limit; none: nil. The thread leaves the group again: Go's first one does not end with what it runs.
func (l *Limit) Pinned(cpu int, fn func() error) <-chan error {
	if l == nil {
		return Pinned(cpu, fn)
	}
	return Pinned(cpu, func() error {
		to := func(group string) error {
			if err := os.WriteFile(group, []byte(fmt.Sprint(unix.Gettid())), 0o644); err != nil {
				return fmt.Errorf("moving between control groups: %w", err)
			}
			return nil
		}
		if err := to(l.inside); err != nil {
			return err
		}
		return errors.Join(fn(), to(l.outside))
	})
}
