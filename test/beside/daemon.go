// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
)

// Daemon is shunt, run in a namespace as a user would run it.
type Daemon struct {
	*testing.T
	NS      *lab.NS
	program string
	runtime string // its runtime directory
	args    []string
	cmd     *exec.Cmd // nil: not running
}

// StartShunt runs shunt in a namespace, with what it keeps in a folder, and returns when it is ready.
func StartShunt(t *testing.T, program string, ns *lab.NS, dir string, args ...string) *Daemon {
	t.Helper()
	d := &Daemon{T: t, NS: ns, program: program, runtime: filepath.Join(dir, "shunt"), args: args}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	d.Start()
	return d
}

// Start runs it again after Kill or PowerOff, and returns when it is ready. Its log goes on.
func (d *Daemon) Start() {
	d.Helper()
	log, err := os.OpenFile(d.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(d.program, append([]string{"run", "--runtime-dir", d.runtime}, d.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := d.NS.Start(cmd); err != nil {
		d.Fatal(err)
	}
	d.cmd = cmd
	d.Until("ready", func(s *api.Status) bool { return s.Ready })
}

// Kill ends it as kill -9 does; what it attached stays.
func (d *Daemon) Kill() {
	d.cmd.Process.Kill()
	d.cmd.Wait()
	d.cmd = nil
}

// Hang stops its process for a while.
func (d *Daemon) Hang(length time.Duration) {
	d.cmd.Process.Signal(unix.SIGSTOP)
	time.Sleep(length)
	d.cmd.Process.Signal(unix.SIGCONT)
}

// PowerOff ends it with all that it attached, as when the machine stops.
func (d *Daemon) PowerOff() {
	d.Kill()
	unix.Unmount(filepath.Join(d.runtime, "bpf"), unix.MNT_DETACH)
	os.RemoveAll(d.runtime)
}

// Running says whether it was started and not ended.
func (d *Daemon) Running() bool { return d.cmd != nil }

func (d *Daemon) logPath() string { return d.runtime + ".log" }

// Log is what it has said.
func (d *Daemon) Log() string {
	said, _ := os.ReadFile(d.logPath())
	return string(said)
}

func (d *Daemon) close() {
	if d.cmd != nil {
		exec.Command(d.program, "stop", "--detach", "--runtime-dir", d.runtime).Run()
		d.cmd.Process.Kill()
		d.cmd.Wait()
	}
	unix.Unmount(filepath.Join(d.runtime, "bpf"), unix.MNT_DETACH)
}

// Goroutines ends the daemon in a way that makes it say what its goroutines do, and counts them.
func (d *Daemon) Goroutines() int {
	d.cmd.Process.Signal(unix.SIGQUIT)
	d.cmd.Wait()
	d.cmd = nil
	n := 0
	for line := range strings.Lines(d.Log()) {
		if strings.HasPrefix(line, "goroutine ") {
			n++
		}
	}
	return n
}

// JSON asks shunt something.
func (d *Daemon) JSON(answer any, args ...string) {
	d.Helper()
	if err := d.try(answer, args...); err != nil {
		d.Fatalf("%v; its log:\n%s", err, d.Log())
	}
}

func (d *Daemon) try(answer any, args ...string) error {
	out, err := d.NS.Output("%s %s --json --runtime-dir %s", d.program, strings.Join(args, " "), d.runtime)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), answer)
}

// Status is `shunt status`.
func (d *Daemon) Status() *api.Status {
	d.Helper()
	var s api.Status
	d.JSON(&s, "status")
	return &s
}

// patience is how long a state may be waited for; emulated machines are a hundred times slower.
var patience = map[bool]time.Duration{true: 20 * time.Second, false: 3 * time.Minute}[os.Getenv("SHUNT_VM") == ""]

// Until waits until the status is as wanted.
func (d *Daemon) Until(what string, ok func(*api.Status) bool) {
	d.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(30 * time.Millisecond) { // each asks by a process of its own
		var s api.Status
		err := d.try(&s, "status")
		if err == nil && ok(&s) {
			return
		}
		if time.Now().After(end) {
			d.Fatalf("shunt is not %s after %v: %v; its log:\n%s", what, patience, err, d.Log())
		}
	}
}

// Settled waits until nothing has changed for a while.
func (d *Daemon) Settled() *api.Status {
	d.Helper()
	var rounds uint64
	since := time.Now()
	d.Until("settled", func(s *api.Status) bool {
		if s.Sync.Events != rounds {
			rounds, since = s.Sync.Events, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
	return d.Status()
}

// Holding is what the daemon has of the machine.
type Holding struct {
	Interfaces, Descriptors, Programs, Maps, Entries, Pins, Threads int
	RSS                                                             int // KiB
}

// Holds counts it. Entries are those of hash maps, which have one for each thing known; arrays have all from the start.
func (d *Daemon) Holds() (h Holding, err error) {
	proc := fmt.Sprintf("/proc/%d/", d.cmd.Process.Pid)
	descriptors, err := filepath.Glob(proc + "fdinfo/*")
	if err != nil {
		return h, err
	}
	h.Descriptors, h.Interfaces = len(descriptors), len(d.Status().Interfaces)
	seen := map[int]bool{}
	for _, path := range descriptors {
		info, _ := os.ReadFile(path)
		for line := range strings.Lines(string(info)) {
			key, value, _ := strings.Cut(line, ":")
			id, _ := strconv.Atoi(strings.TrimSpace(value))
			switch {
			case key == "prog_id":
				h.Programs++
			case key == "map_id" && !seen[id]:
				seen[id] = true
				n, failed := entries(ebpf.MapID(id))
				err = errors.Join(err, failed)
				h.Entries += n
			}
		}
	}
	h.Maps = len(seen)
	filepath.WalkDir(filepath.Join(d.runtime, "bpf"), func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			h.Pins++
		}
		return nil
	})
	status, _ := os.ReadFile(proc + "status")
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		switch f[0] {
		case "Threads:":
			h.Threads, _ = strconv.Atoi(f[1])
		case "VmRSS:":
			h.RSS, _ = strconv.Atoi(f[1])
		}
	}
	return h, err
}

func entries(id ebpf.MapID) (n int, err error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return 0, fmt.Errorf("opening map %d: %w", id, err)
	}
	defer m.Close()
	switch m.Type() {
	case ebpf.Hash, ebpf.LRUHash, ebpf.PerCPUHash, ebpf.LRUCPUHash, ebpf.LPMTrie, ebpf.DevMapHash, ebpf.HashOfMaps:
	default:
		return 0, nil
	}
	key := make([]byte, m.KeySize())
	for err = m.NextKey(nil, &key); err == nil; err = m.NextKey(key, &key) {
		n++
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	return n, err
}

// Rest waits until the daemon has forgotten what it keeps for a while on purpose, and counts what it holds.
func (d *Daemon) Rest() (h Holding) {
	d.Helper()
	d.Settled()
	same := 0
	// Generic programs come when nothing has changed for five seconds.
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && same < 17; time.Sleep(400 * time.Millisecond) {
		last := h
		var err error
		if h, err = d.Holds(); err != nil {
			d.Errorf("counting what shunt holds: %v", err)
		}
		last.RSS, last.Threads = h.RSS, h.Threads
		if same++; last != h {
			same = 0
		}
	}
	return h
}

// Grown says what there is more of after something that should leave nothing. Where configurations changed, up to three programs of each attachment are kept for
// their return, which is kept programs more.
func (before Holding) Grown(after Holding, kept int) (out []string) {
	const spare = 40 // counters that are kept ready for the next devices, with their descriptors
	// Resident memory has the garbage of the largest burst in it, which the runtime gives back in its own time: it differed by 22 MiB between runs of the
	// same events. Only what no burst explains counts here; what a configuration takes is measured by the heap, internal/control's TestManyRoutesCostNoMemory.
	const burst = 64 << 10
	for _, what := range []struct {
		name          string
		was, is, more int
	}{
		{"interfaces", before.Interfaces, after.Interfaces, 0}, {"entries of maps", before.Entries, after.Entries, 0}, {"pins", before.Pins, after.Pins, 0}, {"programs", before.Programs, after.Programs, kept},
		{"maps", before.Maps, after.Maps, spare}, {"descriptors", before.Descriptors, after.Descriptors, spare + kept}, {"KiB of resident memory", before.RSS, after.RSS, burst},
	} {
		if what.is > what.was+what.more {
			out = append(out, fmt.Sprintf("%d %s before, %d after", what.was, what.name, what.is))
		}
	}
	return out
}

// CPU is the processor time that the daemon has used.
func (d *Daemon) CPU() time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}
