// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
)

// daemon is `shunt run` as a process of its own in a namespace, for what is about the process: its life and its memory.
type daemon struct {
	b      *suite.Bench
	ns     *lab.NS
	dir    string // runtime directory
	binary string
	cmd    *exec.Cmd // nil: not running
	output bytes.Buffer
	exited chan error
}

// newDaemon prepares a daemon that is not running yet and is gone, with all traces, at the end of the section.
func newDaemon(b *suite.Bench, ns *lab.NS) (*daemon, error) {
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
	d := &daemon{b: b, ns: ns, dir: filepath.Join(dir, "run"), binary: binary}
	b.Later(func() error {
		if err := d.start("xdp"); err != nil { // also after a kill: only a daemon removes what one left
			return err
		}
		return d.stop(true)
	})
	return d, nil
}

// start runs the daemon if it is not, and returns when it says that it is ready (sd_notify).
func (d *daemon) start(hook string) error {
	if d.cmd != nil {
		return nil
	}
	path := filepath.Join(filepath.Dir(d.dir), "notify")
	os.Remove(path)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("listening for the daemon's readiness: %w", err)
	}
	defer conn.Close()
	cmd := exec.Command(d.binary, "run", "--runtime-dir", d.dir, "--hook", hook)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
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

// kill ends the daemon by a signal that it cannot catch.
func (d *daemon) kill() error {
	err := d.cmd.Process.Kill()
	<-d.exited
	d.cmd = nil
	return err
}

// stop asks the daemon to end, with or without taking everything away.
func (d *daemon) stop(detach bool) error {
	if d.cmd == nil {
		return nil
	}
	args := []string{"stop", "--runtime-dir", d.dir}
	if detach {
		args = append(args, "--detach")
	}
	if out, err := exec.Command(d.binary, args...).CombinedOutput(); err != nil {
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

func (d *daemon) signal(s syscall.Signal) error { return d.cmd.Process.Signal(s) }

// status asks the daemon for what `shunt status --json` prints.
func (d *daemon) status() (*api.Status, error) {
	out, err := exec.Command(d.binary, "status", "--json", "--runtime-dir", d.dir).Output()
	if err != nil {
		return nil, fmt.Errorf("asking the daemon for its status: %w", err)
	}
	s := &api.Status{}
	if err := json.Unmarshal(out, s); err != nil {
		return nil, fmt.Errorf("understanding the daemon's status: %w", err)
	}
	return s, nil
}

// fast is how many packets shunt has forwarded that came in at an interface.
func (d *daemon) fast(iface string) (uint64, error) {
	s, err := d.status()
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

// untilQuiet waits for the rounds that follow attaching.
func (d *daemon) untilQuiet() error {
	var last uint64
	for {
		s, err := d.status()
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
