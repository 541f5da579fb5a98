// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/lab"
)

// Daemon is `shunt run` as a process of its own in a namespace, for what is about the process: its life and its memory.
type Daemon struct {
	Dir    string // for what it keeps while it runs
	Binary string // what the next start runs

	b      *Bench
	ns     *lab.NS
	cmd    *exec.Cmd // nil: not running
	output bytes.Buffer
	exited chan error
}

// NewDaemon prepares a daemon that is not running yet and is gone, with all traces, at the end of the section.
func NewDaemon(b *Bench, ns *lab.NS) (*Daemon, error) {
	if _, err := os.Stat(b.Shunt); err != nil {
		return nil, fmt.Errorf("looking for the daemon (make build): %w", err)
	}
	dir, err := b.TempDir()
	if err != nil {
		return nil, err
	}
	binary, err := filepath.Abs(b.Shunt)
	if err != nil {
		return nil, err
	}
	d := &Daemon{b: b, ns: ns, Dir: filepath.Join(dir, "run"), Binary: binary}
	b.Later(func() error {
		if err := d.Start("xdp"); err != nil { // also after a kill: only a daemon removes what one left
			return err
		}
		return d.Stop(true)
	})
	return d, nil
}

// Start runs the daemon if it is not, and returns when it says that it is ready (sd_notify).
func (d *Daemon) Start(hook string) error {
	if d.cmd != nil {
		return nil
	}
	path := filepath.Join(filepath.Dir(d.Dir), "notify")
	os.Remove(path)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("listening for the daemon's readiness: %w", err)
	}
	defer conn.Close()
	cmd := exec.Command(d.Binary, "run", "--runtime-dir", d.Dir, "--hook", hook)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path, "SHUNT_TIER="+string(datapath.Both)) // as in StartEngine
	d.output.Reset()
	cmd.Stderr = &d.output
	if err := d.ns.Start(cmd); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	d.cmd, d.exited = cmd, exited
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 256)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			cmd.Process.Kill()
			<-exited
			d.cmd = nil
			return fmt.Errorf("waiting for the daemon: %w: %s", err, strings.TrimSpace(d.output.String()))
		}
		if strings.Contains(string(buf[:n]), "READY=1") {
			return nil
		}
	}
}

// Kill ends the daemon by a signal that it cannot catch.
func (d *Daemon) Kill() error {
	err := d.cmd.Process.Kill()
	<-d.exited
	d.cmd = nil
	return err
}

// Stop asks the daemon to end, with or without taking everything away.
func (d *Daemon) Stop(detach bool) error {
	if d.cmd == nil {
		return nil
	}
	args := []string{"stop", "--runtime-dir", d.Dir}
	if detach {
		args = append(args, "--detach")
	}
	if out, err := exec.Command(d.Binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("stopping the daemon: %w: %s", err, out)
	}
	select {
	case err := <-d.exited:
		d.cmd = nil
		if err != nil {
			return fmt.Errorf("the daemon ended: %w: %s", err, strings.TrimSpace(d.output.String()))
		}
		return nil
	case <-time.After(30 * time.Second):
		return errors.New("the daemon did not end within 30 s")
	}
}

// PID is the process of a daemon that runs.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

func (d *Daemon) Signal(s syscall.Signal) error { return d.cmd.Process.Signal(s) }

// Status asks the daemon for what `shunt status --json` prints.
func (d *Daemon) Status() (*api.Status, error) {
	out, err := exec.Command(d.Binary, "status", "--json", "--runtime-dir", d.Dir).Output()
	if err != nil {
		return nil, fmt.Errorf("asking the daemon for its status: %w", err)
	}
	s := &api.Status{}
	if err := json.Unmarshal(out, s); err != nil {
		return nil, fmt.Errorf("understanding the daemon's status: %w", err)
	}
	return s, nil
}

// Reaction is the longest time that a round of the daemon took since a moment, from the kernel's first event to its effect, in milliseconds. It waits until the
// daemon has noticed something.
func (d *Daemon) Reaction(since time.Time) (ms float64, err error) {
	for range 20 {
		events, err := d.events()
		if err != nil {
			return 0, err
		}
		some := false
		for _, e := range events {
			if e.When.After(since) {
				ms, some = max(ms, e.TookMS), true
			}
		}
		if some {
			return ms, nil
		}
		time.Sleep(250 * time.Millisecond)
	}
	return 0, Spoiled("the daemon noticed nothing in 5 s")
}

func (d *Daemon) events() (events []api.Event, err error) {
	out, err := exec.Command(d.Binary, "show", "events", "--json", "--runtime-dir", d.Dir).Output()
	if err != nil {
		return nil, fmt.Errorf("asking the daemon for its events: %w", err)
	}
	if err := json.Unmarshal(out, &events); err != nil {
		return nil, fmt.Errorf("understanding the daemon's events: %w", err)
	}
	return events, nil
}

// Fast is how many packets shunt has forwarded that came in at an interface.
func (d *Daemon) Fast(iface string) (uint64, error) {
	s, err := d.Status()
	if err != nil {
		return 0, err
	}
	for _, i := range s.Interfaces {
		if i.Name == iface {
			return i.Packets.Fast, nil
		}
	}
	return 0, fmt.Errorf("the daemon knows no interface %q", iface)
}

// UntilQuiet waits for the rounds that follow attaching.
func (d *Daemon) UntilQuiet() error {
	var last uint64
	for {
		s, err := d.Status()
		if err != nil {
			return err
		}
		if s.Generation == last {
			return nil
		}
		last = s.Generation
		time.Sleep(60 * time.Millisecond)
	}
}

// Memory reads a size of the daemon's process from /proc/PID/status, such as VmRSS, in MiB.
func (d *Daemon) Memory(field string) (float64, error) {
	pid := d.cmd.Process.Pid
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", pid, field)
}
