// SPDX-License-Identifier: Apache-2.0

package docker

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

// daemon is shunt, run in a namespace as a user would run it.
type daemon struct {
	*testing.T
	ns      *lab.NS
	runtime string
	cmd     *exec.Cmd
}

// startShunt runs shunt in a namespace and returns when it is ready.
func startShunt(t *testing.T, ns *lab.NS, dir string, args ...string) *daemon {
	t.Helper()
	d := &daemon{T: t, ns: ns, runtime: filepath.Join(dir, "shunt")}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(d.logPath())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(*program, append([]string{"run", "--runtime-dir", d.runtime}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := ns.Start(d.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	d.until("ready", func(s *api.Status) bool { return s.Ready })
	return d
}

func (d *daemon) logPath() string { return d.runtime + ".log" }

func (d *daemon) log() string {
	said, _ := os.ReadFile(d.logPath())
	return string(said)
}

func (d *daemon) close() {
	if d.cmd != nil {
		exec.Command(*program, "stop", "--detach", "--runtime-dir", d.runtime).Run()
		d.cmd.Process.Kill()
		d.cmd.Wait()
	}
	unix.Unmount(filepath.Join(d.runtime, "bpf"), unix.MNT_DETACH)
}

// goroutines ends the daemon in a way that makes it say what its goroutines do, and counts them.
func (d *daemon) goroutines() int {
	d.cmd.Process.Signal(unix.SIGQUIT)
	d.cmd.Wait()
	d.cmd = nil
	n := 0
	for line := range strings.Lines(d.log()) {
		if strings.HasPrefix(line, "goroutine ") {
			n++
		}
	}
	return n
}

// json asks shunt something.
func (d *daemon) json(answer any, args ...string) {
	d.Helper()
	if err := d.try(answer, args...); err != nil {
		d.Fatalf("%v; its log:\n%s", err, d.log())
	}
}

func (d *daemon) try(answer any, args ...string) error {
	out, err := d.ns.Output("%s %s --json --runtime-dir %s", *program, strings.Join(args, " "), d.runtime)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), answer)
}

func (d *daemon) status() *api.Status {
	d.Helper()
	var s api.Status
	d.json(&s, "status")
	return &s
}

// until waits until the status is as wanted.
func (d *daemon) until(what string, ok func(*api.Status) bool) {
	d.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var s api.Status
		err := d.try(&s, "status")
		if err == nil && ok(&s) {
			return
		}
		if time.Now().After(end) {
			d.Fatalf("shunt is not %s after twenty seconds: %v; its log:\n%s", what, err, d.log())
		}
	}
}

// settled waits until nothing has changed for a while.
func (d *daemon) settled() *api.Status {
	d.Helper()
	var rounds uint64
	since := time.Now()
	d.until("settled", func(s *api.Status) bool {
		if s.Sync.Events != rounds {
			rounds, since = s.Sync.Events, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
	return d.status()
}

// holding is what the daemon has of the machine.
type holding struct {
	Interfaces, Descriptors, Programs, Maps, Entries, Pins, Threads int
	RSS                                                             int // KiB
}

// holds counts it. Entries are those of hash maps, which have one for each thing known; arrays have all from the start.
func (d *daemon) holds() (h holding, err error) {
	proc := fmt.Sprintf("/proc/%d/", d.cmd.Process.Pid)
	descriptors, err := filepath.Glob(proc + "fdinfo/*")
	if err != nil {
		return h, err
	}
	h.Descriptors, h.Interfaces = len(descriptors), len(d.status().Interfaces)
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

// cpu is the processor time that the daemon has used.
func (d *daemon) cpu() time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}
