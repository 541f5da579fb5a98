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
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/lab"
)

// daemon is `shunt run` in a twin, asked through its socket.
type daemon struct {
	bin, dir string
	options  []string // beside the runtime directory
	tier     string
	wires    string
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

// readyWithin is patience. Emulated machines are a hundred times slower, and a busy one under them can starve a start, which has the lowest priority, for minutes.
var readyWithin = map[bool]time.Duration{true: 90 * time.Second, false: 6 * time.Minute}[os.Getenv("SHUNT_VM") == ""]

// answersWithin is how long shunt may take to answer, or to end.
var answersWithin = map[bool]time.Duration{true: 10 * time.Second, false: 90 * time.Second}[os.Getenv("SHUNT_VM") == ""]

// startDaemon starts shunt in a router as a case wants it, and waits until it says that it is ready.
func startDaemon(bin string, dut *lab.NS, c *Case, tier string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "shunt-diff-")
	if err != nil {
		return nil, fmt.Errorf("making a runtime directory: %w", err)
	}
	d := &daemon{bin: bin, dir: dir, options: []string{"--hook", c.Hook}, tier: tier, wires: c.Wires, dut: dut}
	if c.Strict {
		d.options = append(d.options, "--strict")
	}
	return d.again()
}

// again starts a daemon where one has been, or none yet, and waits until it says that it is ready.
func (d *daemon) again() (*daemon, error) {
	d, err := d.launch()
	if err == nil {
		err = d.untilReady()
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// launch is again without the wait.
func (d *daemon) launch() (*daemon, error) {
	dir := d.dir
	d = &daemon{bin: d.bin, dir: dir, options: d.options, tier: d.tier, wires: d.wires, dut: d.dut, log: &bytes.Buffer{}, ended: make(chan error, 1)}
	d.cmd = exec.Command(d.bin, append([]string{"run", "--runtime-dir", dir}, d.options...)...)
	d.cmd.Env = append(os.Environ(), "SHUNT_TIER="+d.tier, "SHUNT_WIRES="+d.wires)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.dut.Start(d.cmd); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() { d.ended <- d.cmd.Wait() }()
	return d, nil
}

// untilReady waits for a daemon that was launched; one that does not come is stopped.
func (d *daemon) untilReady() error {
	for deadline := time.Now().Add(readyWithin); ; time.Sleep(10 * time.Millisecond) {
		s, err := d.status()
		if err == nil && s.Ready {
			return nil
		}
		select {
		case err := <-d.ended:
			d.ended <- err // for stop
			os.RemoveAll(d.dir)
			return fmt.Errorf("shunt ended at start: %s", strings.TrimSpace(d.log.String()))
		default:
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("shunt is not ready after %v (%v): %s", readyWithin, err, d.log), d.stop())
		}
	}
}

// ask puts a question as the command line does, but without starting a process for it: that takes longer than the answer.
func (d *daemon) ask(verb api.Verb, args, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), answersWithin)
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

// exits is what the rig reads of `shunt show graph --json`.
type exits struct {
	Egress []struct {
		XDP []exitReason `json:"xdp"`
		TC  []exitReason `json:"tc"`
	} `json:"egress"`
}

type exitReason struct {
	Reason string `json:"reason"`
}

func (d *daemon) exits() (e exits, err error) {
	return e, d.ask(api.VerbShow, api.ShowArgs{What: api.ShowGraph}, &e)
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
// of events and rounds stand still. Its patience grows with the bound: machines that are emulated have a long one. A pause between two looks
// counts as no longer than the bound: a machine that its host takes away for seconds gives that time neither to the daemon nor to the looks at it. What the daemon's answers take counts in full.
func (d *daemon) settle(bound time.Duration) (status, error) {
	time.Sleep(bound)
	last, err := d.status()
	patience := 125 * bound
	if d.tier == string(datapath.Both) {
		patience *= 3 // generic programs have to be there as well, for which no change waits
	}
	for left := patience; err == nil; {
		begun := time.Now()
		time.Sleep(bound / 4)
		left -= min(time.Since(begun), bound)
		asked := time.Now()
		var now status
		if now, err = d.status(); err == nil && now.Sync == last.Sync && now.Sync.Awaited == 0 {
			return now, nil
		}
		if left -= time.Since(asked); left < 0 {
			return now, fmt.Errorf("shunt has not come to rest in %v", patience)
		}
		last = now
	}
	return last, err
}

// kill ends the daemon without giving it time for anything.
func (d *daemon) kill() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing shunt: %w", err)
	}
	<-d.ended
	d.ended <- errors.New("it was killed") // for stop, if it is not started again
	return nil
}

// caughtUp waits until no port's program calls itself stale, as guard words made it: on a busy machine the daemon looks later than once a second.
func (d *daemon) caughtUp(within time.Duration) error {
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		stale := false
		for port := range Ports {
			said, err := d.explain(port, flowOf(port, h0, h1).UDP("probe"))
			if err != nil {
				return err
			}
			stale = stale || said.Reason == "stale"
		}
		if !stale || time.Now().After(deadline) {
			return nil // what is still stale then shows in the packets
		}
	}
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
	case <-time.After(answersWithin):
		errs = append(errs, errors.New("shunt does not end on SIGTERM"), d.cmd.Process.Kill())
		<-d.ended
	}
	unmount(d.dir)
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}
