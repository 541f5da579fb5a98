// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Folder is that of a test's run, below /tmp.
func Folder(name string) string { return fmt.Sprint(folders(name), os.Getpid()) }

// folders is how those of all runs begin; the process id is that of the test.
func folders(name string) string { return "/tmp/shunt-" + name + "-" }

// Sweep ends the processes and removes the folders of runs that were killed.
func Sweep(name string) error {
	left, err := filepath.Glob(folders(name) + "*")
	for _, dir := range left {
		pid, bad := strconv.Atoi(strings.TrimPrefix(dir, folders(name)))
		if bad != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		err = errors.Join(err, Discard(dir))
	}
	return err
}

// Discard ends what runs in a folder and removes it, with what is mounted in it.
func Discard(dir string) error {
	for range 50 {
		pids := processesOf(dir)
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		if len(pids) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("looking for mounts below %s: %w", dir, err)
	}
	var points []string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			points = append(points, f[1])
		}
	}
	slices.Reverse(points)
	for _, point := range points {
		unix.Unmount(point, unix.MNT_DETACH)
	}
	return os.RemoveAll(dir)
}

// processesOf gives the processes that have a folder in their command lines, and the descendants of those, which are containers and carry no sign.
func processesOf(dir string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	parents := map[int]int{}
	for _, p := range all {
		pid, _ := strconv.Atoi(filepath.Base(p))
		line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if pid != os.Getpid() && bytes.Contains(line, []byte(dir+"/")) {
			pids = append(pids, pid)
		}
		stat, _ := os.ReadFile(filepath.Join(p, "stat"))
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			if f := strings.Fields(rest); len(f) > 1 && f[0] != "Z" {
				parents[pid], _ = strconv.Atoi(f[1])
			}
		}
	}
	for i := 0; i < len(pids); i++ {
		for pid, parent := range parents {
			if parent == pids[i] && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return slices.DeleteFunc(pids, func(pid int) bool { _, alive := parents[pid]; return !alive })
}
