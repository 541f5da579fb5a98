// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
)

// daemon is `shunt run` in a twin, asked through its socket.
type daemon struct {
	bin, dir string
	dut      *lab.NS
	cmd      *exec.Cmd
	log      *bytes.Buffer
	ended    chan error
}

// status is what the rig reads of `shunt status --json`.
type status struct {
	Ready      bool   `json:"ready"`
	Generation uint64 `json:"generation"`
	Interfaces []struct {
		Name    string `json:"name"`
		Kind    string `json:"kind"`
		Ifindex int    `json:"ifindex"`
		Hook    string `json:"hook"`
		State   string `json:"state"`
		Reasons []struct {
			Reason string `json:"reason"`
			Detail string `json:"detail"`
		} `json:"reasons"`
		Graph  []string `json:"graph"`
		Bridge *struct {
			Name string `json:"name"`
		} `json:"bridge"`
		Packets packets `json:"packets"`
		Hooks   map[string]packets
	} `json:"interfaces"`
	Sync struct {
		Events, Resyncs, Rounds uint64
		Awaited                 int
	} `json:"sync"`
	Faults []string `json:"faults"`
}

type packets struct {
	Fast    uint64            `json:"fast"`
	Slow    map[string]uint64 `json:"slow"`
	Dropped map[string]uint64 `json:"dropped"`
	Bytes   uint64            `json:"fast_bytes"`
}

// readyWithin is patience: emulated machines are a hundred times slower.
const readyWithin = 90 * time.Second

// startDaemon starts shunt in a router and waits until it says that it is ready.
func startDaemon(bin string, dut *lab.NS, hook, tier string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "shunt-diff-")
	if err != nil {
		return nil, fmt.Errorf("making a runtime directory: %w", err)
	}
	d := &daemon{bin: bin, dir: dir, dut: dut, log: &bytes.Buffer{}, ended: make(chan error, 1)}
	d.cmd = exec.Command(bin, "run", "--runtime-dir", dir, "--hook", hook)
	d.cmd.Env = append(os.Environ(), "SHUNT_TIER="+tier)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := dut.Start(d.cmd); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() { d.ended <- d.cmd.Wait() }()
	for deadline := time.Now().Add(readyWithin); ; time.Sleep(10 * time.Millisecond) {
		s, err := d.status()
		if err == nil && s.Ready {
			return d, nil
		}
		select {
		case <-d.ended:
			os.RemoveAll(dir)
			return nil, fmt.Errorf("shunt ended at start: %s", strings.TrimSpace(d.log.String()))
		default:
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("shunt is not ready after %v (%v): %s", readyWithin, err, d.log), d.stop())
		}
	}
}

// ask puts a question as the command line does, but without starting a process for it: that takes longer than the answer.
func (d *daemon) ask(verb api.Verb, args, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := api.Client{RuntimeDir: d.dir}
	if err := client.Call(ctx, verb, args, into); err != nil {
		return fmt.Errorf("asking shunt for %s: %w", verb, err)
	}
	return nil
}

func (d *daemon) status() (s status, err error) {
	return s, d.ask(api.VerbStatus, nil, &s)
}

// explanation is what the rig reads of `shunt explain --json`.
type explanation struct {
	Fast   bool   `json:"fast"`
	Reason string `json:"reason"`
	Egress string `json:"egress"`
}

func (d *daemon) explain(port int, frame []byte) (e explanation, err error) {
	return e, d.ask(api.VerbExplain, api.ExplainArgs{Interface: portName(port), Packet: hex.EncodeToString(frame)}, &e)
}

// settle waits until the daemon has nothing left to do: as long as a change may take, and then until its counts
// of events and rounds stand still. Its patience grows with the bound: machines that are emulated have a long one.
func (d *daemon) settle(bound time.Duration) (status, error) {
	time.Sleep(bound)
	last, err := d.status()
	patience := 125 * bound
	for deadline := time.Now().Add(patience); err == nil; {
		time.Sleep(bound / 4)
		var now status
		if now, err = d.status(); err == nil && now.Sync == last.Sync && now.Sync.Awaited == 0 {
			return now, nil
		}
		if time.Now().After(deadline) {
			return now, fmt.Errorf("shunt has not come to rest in %v", patience)
		}
		last = now
	}
	return last, err
}

// stop ends the daemon and takes away what it left. A daemon that ended by itself is an error.
func (d *daemon) stop() error {
	select {
	case err := <-d.ended:
		os.RemoveAll(d.dir)
		return fmt.Errorf("shunt ended by itself (%w): %s", err, strings.TrimSpace(d.log.String()))
	default:
	}
	errs := []error{d.cmd.Process.Signal(syscall.SIGTERM)}
	select {
	case <-d.ended:
	case <-time.After(10 * time.Second):
		errs = append(errs, errors.New("shunt does not end on SIGTERM"), d.cmd.Process.Kill())
		<-d.ended
	}
	unmount(d.dir)
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}
