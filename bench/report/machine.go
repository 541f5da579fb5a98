// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Here describes the machine and the checkout that the process runs in. Of programs, the first line of what they say about their
// version is kept; those that are not there are left out.
func Here(size string, programs map[string][]string) Provenance {
	p := Provenance{
		Commit: commit(), Size: size, Taken: time.Now().UTC().Truncate(time.Second),
		CPUs: runtime.NumCPU(), Versions: map[string]string{"go": runtime.Version()},
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		p.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		p.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	p.CPU, p.MHz = processor()
	for name, command := range programs {
		if v := line(command[0], command[1:]...); v != "" {
			p.Versions[name] = v
		}
	}
	return p
}

// commit is the checkout's, with "-dirty" if anything but results and documents differs from it: a run writes those itself.
func commit() string {
	git := func(args ...string) string {
		return line("git", append([]string{"-c", "safe.directory=*"}, args...)...)
	}
	id := git("rev-parse", "--short=12", "HEAD")
	if id != "" && git("status", "--porcelain", "--", ":/", ":(exclude,top)bench/results", ":(exclude,top)docs") != "" {
		id += "-dirty"
	}
	return id
}

func line(command string, args ...string) string {
	out, err := exec.Command(command, args...).CombinedOutput()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return first
}

// processor reads the CPU's name and the speed of its time stamp counter, in MHz, from /proc/cpuinfo. Half of bogomips is that
// speed where the counter's rate is known to the kernel, and does not follow the CPU's current clock as "cpu MHz" does.
func processor() (name string, mhz float64) {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "model name":
			name = value
		case "bogomips":
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				mhz = v / 2
			}
		}
	}
	return name, mhz
}
