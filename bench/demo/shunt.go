// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
)

// shunt is the program, run in the router's namespace as a user would run it.
type shunt struct {
	path    string // absolute
	ns      *lab.NS
	runtime string // folder for its socket and pins
	daemon  *exec.Cmd
}

// folders of runs: the process id is that of the demo.
const folders = "/run/shunt-demo-"

func newShunt(path string, ns *lab.NS) (*shunt, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(abs); err != nil {
		return nil, fmt.Errorf("looking for the program (make build makes it): %w", err)
	}
	if err := sweep(abs); err != nil {
		return nil, err
	}
	s := &shunt{path: abs, ns: ns, runtime: folders + strconv.Itoa(os.Getpid())}
	return s, os.Mkdir(s.runtime, 0o700)
}

// sweep ends the daemons and removes the folders of demos that were killed.
func sweep(program string) error {
	left, err := filepath.Glob(folders + "*")
	if err != nil {
		return err
	}
	for _, dir := range left {
		pid, err := strconv.Atoi(strings.TrimPrefix(dir, folders))
		if err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		exec.Command(program, "stop", "--detach", "--runtime-dir", dir).Run() // there may be none any more
		if err := discard(dir); err != nil {
			return err
		}
	}
	return nil
}

// start runs the daemon and returns once it forwards.
func (s *shunt) start(ctx context.Context, hook string) error {
	if err := s.run(ctx, hook); err != nil {
		return err
	}
	_, err := s.until(ctx, "forwarding at "+hook, func(st *api.Status) bool { return fast(st, "in") && fast(st, "out") })
	return err
}

// run runs the daemon and returns once it is ready, whatever it makes of the configuration.
func (s *shunt) run(ctx context.Context, hook string) error {
	log, err := os.Create(s.logPath())
	if err != nil {
		return err
	}
	defer log.Close() // the daemon has its own descriptor
	s.daemon = exec.Command(s.path, "run", "--runtime-dir", s.runtime, "--hook", hook)
	s.daemon.Stdout, s.daemon.Stderr = log, log
	s.daemon.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // ctrl-C is for the demo, which then ends the daemon
	if err := s.ns.Start(s.daemon); err != nil {
		s.daemon = nil
		return fmt.Errorf("starting shunt: %w", err)
	}
	_, err = s.until(ctx, "getting ready", func(st *api.Status) bool { return st.Ready })
	return err
}

// settled waits until no round has followed the last one for a while.
func (s *shunt) settled(ctx context.Context) (*api.Status, error) {
	var generation uint64
	last := time.Now()
	return s.until(ctx, "settling", func(st *api.Status) bool {
		if st.Generation != generation {
			generation, last = st.Generation, time.Now()
		}
		return st.Ready && time.Since(last) > 300*time.Millisecond
	})
}

func port(st *api.Status, name string) *api.Interface {
	for i := range st.Interfaces {
		if st.Interfaces[i].Name == name {
			return &st.Interfaces[i]
		}
	}
	return nil
}

func fast(st *api.Status, name string) bool {
	i := port(st, name)
	return i != nil && st.Ready && i.State == api.StateFast
}

// until asks for the status until it is as wanted, for twenty seconds: a busy machine may need them.
func (s *shunt) until(ctx context.Context, what string, ok func(*api.Status) bool) (*api.Status, error) {
	var last error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return nil, errors.New("interrupted")
		}
		st, err := s.status()
		if err == nil && ok(st) {
			return st, nil
		}
		last = err
	}
	log, _ := os.ReadFile(s.logPath())
	return nil, fmt.Errorf("waiting for shunt, %s, took more than twenty seconds (%v); its log:\n%s", what, last, log)
}

func (s *shunt) logPath() string { return filepath.Join(s.runtime, "demo.log") }

func (s *shunt) status() (*api.Status, error) {
	out, err := s.ask("status", "--json")
	if err != nil {
		return nil, err
	}
	var st api.Status
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		return nil, fmt.Errorf("reading the answer of shunt status --json: %w", err)
	}
	return &st, nil
}

// ask runs one of shunt's commands and returns what it printed.
func (s *shunt) ask(args ...string) (string, error) {
	cmd := exec.Command(s.path, append(args, "--runtime-dir", s.runtime)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := s.ns.Start(cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("shunt %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// kill ends the daemon as nothing else would: no handler runs, nothing is tidied up.
func (s *shunt) kill() error {
	if err := s.daemon.Process.Signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("killing the daemon: %w", err)
	}
	s.daemon.Wait()
	s.daemon = nil
	return nil
}

// remove stops the daemon and takes everything out of the kernel.
func (s *shunt) remove() error {
	if _, err := s.ask("stop", "--detach"); err != nil {
		return err
	}
	if s.daemon != nil {
		s.daemon.Wait()
		s.daemon = nil
	}
	return nil
}

// cleanUp is for every way out: it leaves neither process nor folder.
func (s *shunt) cleanUp() error {
	if s.daemon != nil {
		s.kill()
	}
	return discard(s.runtime)
}

// discard removes a folder with the BPF file system in it; what a killed daemon left pinned goes with that.
func discard(dir string) error {
	if err := unix.Unmount(filepath.Join(dir, "bpf"), unix.MNT_DETACH); err != nil &&
		!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting the pins: %w", err)
	}
	return os.RemoveAll(dir)
}
