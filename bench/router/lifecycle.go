// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

var lifecycle = suite.Section{
	Name:  "lifecycle",
	Title: "Life and death of the daemon",
	About: "Packets at half of Linux's loss-free rate, evenly spaced and counted one by one at both ends, while something happens to the daemon; before each such run there is a control run " +
		"of the same length without the event. First attach and `stop --detach` touch the device itself and are listed apart. So is a restart \"elsewhere\": of another daemon, in another namespace, with " +
		"nothing in common with this router but the machine. What is lost then is lost for want of CPU time: on a machine whose two CPUs both have packets to carry, a program that starts keeps one of them busy for longer than a queue of 256 packets lasts. " +
		"The scheduler's trace of 28 November (Intel, kernel without preemption) shows the thread that polls the device waiting for up to 4 ms, a whole turn of another program, behind the process that starts " +
		"and behind the kernel's workers that free maps and programs after one has ended (bpf_map_free_deferred). Turns of 0.1 ms for shunt's processes (sched_setattr) made no difference beyond the spread.",
	Run: runLifecycle,
}

// patient is a line with a daemon process that things happen to.
type patient struct {
	*suite.Lane
	d, elsewhere *suite.Daemon
	sink         *suite.WatchSink
	rate         int
	runs         int
}

func newPatient(b *suite.Bench) (*patient, error) {
	l, err := newBareLane(b)
	if err != nil {
		return nil, err
	}
	p := &patient{Lane: l}
	if p.sink, err = b.Watch(l.RX(), 2000); err != nil {
		return nil, err
	}
	if p.d, err = suite.NewDaemon(b, l.Node(lab.Dut)); err != nil {
		return nil, err
	}
	other, err := newBareLane(b)
	if err != nil {
		return nil, err
	}
	if p.elsewhere, err = suite.NewDaemon(b, other.Node(lab.Dut)); err != nil {
		return nil, err
	}
	_, err = (l.AtIngress()).Threads()
	return p, err
}

// newBareLane is the line without sinks.
func newBareLane(b *suite.Bench) (*suite.Lane, error) {
	n, err := b.BuildLine(lab.LineOptions{V4: lab.V4Prefixes(50), Threaded: true, Receive: lab.ReceiveGRO})
	if err != nil {
		return nil, fmt.Errorf("building a line: %w", err)
	}
	b.Later(n.Close)
	return &suite.Lane{Net: n, Bench: b, Variant: "shunt xdp", Gens: map[string]*lab.Generator{}}, nil
}

// event is something that happens to a running daemon; afterwards it may be gone.
type event struct {
	name     string
	detached bool // begins without a daemon and with nothing attached
	apart    bool // published without a target
	prepare  func(*patient) error
	happen   func(*patient) error
}

var events = []event{
	{"kill -9", false, false, nil, func(p *patient) error { return p.d.Kill() }},
	{"SIGSTOP, SIGCONT", false, false, nil, func(p *patient) error {
		if err := p.d.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(extents[p.Bench.Size.Name].life / 2)
		return p.d.Signal(syscall.SIGCONT)
	}},
	{"stop", false, false, nil, func(p *patient) error { return p.d.Stop(false) }},
	{"restart", false, false, nil, (*patient).restart},
	{"upgrade", false, false, (*patient).install, (*patient).restart},
	{"first attach", true, true, nil, func(p *patient) error { return p.d.Start("xdp") }},
	{"stop --detach", false, true, nil, func(p *patient) error { return p.d.Stop(true) }},
	{"restart elsewhere", false, true, func(p *patient) error { return p.elsewhere.Start("xdp") }, func(p *patient) error { return errors.Join(p.elsewhere.Stop(false), p.elsewhere.Start("xdp")) }},
}

func (p *patient) restart() error { return errors.Join(p.d.Stop(false), p.d.Start("xdp")) }

// install puts another file where the daemon will be started from, as a package manager does before an upgrade: writing it is not
// what is measured.
func (p *patient) install() error {
	data, err := os.ReadFile(p.d.Binary)
	if err != nil {
		return err
	}
	p.runs++
	next := filepath.Join(filepath.Dir(p.d.Dir), fmt.Sprintf("shunt-%d", p.runs))
	if err := os.WriteFile(next, data, 0o755); err != nil {
		return err
	}
	p.d.Binary = next
	return nil
}

func runLifecycle(b *suite.Bench) error {
	p, err := newPatient(b)
	if err != nil {
		return err
	}
	if err := p.findRate(); err != nil {
		return err
	}
	var turns []measure.Turn
	for _, e := range events {
		turns = append(turns, measure.Turn{Name: e.name, Run: func(set *measure.Set) error { return p.live(set, e) }})
	}
	return b.Turns(fmt.Sprintf("at %d packets/s", p.rate), extents[b.Size.Name].lives, turns)
}

// paced is traffic at an even rate.
func (p *patient) paced(rate int) (*lab.Generator, error) {
	s := p.Forward(fmt.Sprintf("paced %d", rate), false, lab.V4Prefixes(50))
	s.Traffic.Rate = rate
	return p.Generator(s)
}

// findRate looks for the highest rate at which Linux, without shunt, loses nothing, and takes half.
func (p *patient) findRate() error {
	const highest, lowest = 1_000_000, 10_000
	for rate := highest; rate >= lowest; rate = rate * 4 / 5 {
		lost, sent, err := p.lossAt(rate, extents[p.Bench.Size.Name].life/2, nil)
		if err != nil {
			return err
		}
		// The generator may not make the rate that is asked of it; what it made counts.
		made := int(float64(sent) / (extents[p.Bench.Size.Name].life / 2).Seconds())
		if lost == 0 && sent > 0 {
			p.rate = max(made/2, 1000)
			p.Bench.Fact("Linux's loss-free rate", fmt.Sprintf("%d packets/s", made))
			return nil
		}
	}
	p.rate = lowest / 2
	p.Bench.Note("Linux lost packets at every rate down to %d packets/s; the events are measured at %d", lowest, p.rate)
	return nil
}

// lossAt sends for a while, with something happening a quarter into it.
func (p *patient) lossAt(rate int, length time.Duration, happen func() error) (lost, sent int64, err error) {
	g, err := p.paced(rate)
	if err != nil {
		return 0, 0, err
	}
	before, err := p.sink.Drained()
	if err != nil {
		return 0, 0, err
	}
	sentBefore, err := g.Sent()
	if err != nil {
		return 0, 0, err
	}
	if err := g.Start(); err != nil {
		return 0, 0, err
	}
	end := time.Now().Add(length)
	time.Sleep(length / 4)
	if happen != nil {
		err = happen()
	}
	time.Sleep(max(time.Until(end), length/4))
	if err = errors.Join(err, g.Stop()); err != nil {
		return 0, 0, err
	}
	after, err := p.sink.Drained()
	if err != nil {
		return 0, 0, err
	}
	sentAfter, err := g.Sent()
	sent = int64(sentAfter - sentBefore)
	return sent - int64(after.Packets-before.Packets), sent, err
}

// live measures one event and the control run before it.
func (p *patient) live(set *measure.Set, e event) error {
	if err := p.d.Start("xdp"); err != nil {
		return err
	}
	if err := p.d.UntilQuiet(); err != nil {
		return err
	}
	if e.detached {
		if err := p.d.Stop(true); err != nil {
			return err
		}
	}
	// XDP on the device remakes nothing of its thread's pinning, but a fresh attach may have made a new thread.
	if _, err := p.AtIngress().Threads(); err != nil {
		return err
	}
	var fast uint64
	var err error
	if !e.detached {
		if fast, err = p.d.Fast("in"); err != nil {
			return err
		}
	}
	lost, sent, err := p.lossAt(p.rate, extents[p.Bench.Size.Name].life, nil)
	if err != nil {
		return err
	}
	if !e.detached {
		now, err := p.d.Fast("in")
		if err != nil {
			return err
		}
		set.Add(e.name, "control", "fast", "share", float64(now-fast)/float64(sent))
	}
	set.Add(e.name, "control", "lost", "packets", float64(lost))
	set.Add(e.name, "control", "sent", "packets", float64(sent))
	if e.prepare != nil {
		if err := e.prepare(p); err != nil {
			return err
		}
	}
	if lost, sent, err = p.lossAt(p.rate, extents[p.Bench.Size.Name].life, func() error { return e.happen(p) }); err != nil {
		return err
	}
	if err := p.elsewhere.Stop(false); err != nil {
		return err
	}
	set.Add(e.name, "event", "lost", "packets", float64(lost))
	set.Add(e.name, "event", "sent", "packets", float64(sent))
	return nil
}
