// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Generator sends [Traffic] out of a port as XDP frames, from one CPU, at up to 5 to
// 10 million packets per second: a program run over and over in live-frames mode.
// The receiver recycles the frames' memory, so that every packet's header is
// written anew.
//
// Traffic without a rate is steered: it comes a little faster than the receiver takes it. More would spoil what is measured. Frames that are refused
// go back to the pool that the receiver gives its frames back to, under the same lock, and waiting for that was half of a router's time.
type Generator struct {
	port  *Port
	cpu   int
	size  int
	fixed bool // the traffic has a rate
	burst int
	prog  *liveProgram
	order *ebpf.Map // what the program is told; apart from state, since a write replaces a whole value
	state *ebpf.Map
	dev   *ebpf.Map

	mu       sync.Mutex
	told     [2]uint32    // the order map: stop, interval
	thread   atomic.Int32 // id of the thread that sends
	done     chan error   // nil while stopped
	steering chan error   // nil unless it is steered
}

// Offsets in the only value of the order map.
const (
	orderStop     = 0 // u32
	orderInterval = 4 // u32: nanoseconds between bursts
	orderSize     = 8
)

// Offsets in the only value of the state map.
const (
	stateSent = 0 // u64: packets handed to the port
	stateNext = 8 // u64: CLOCK_MONOTONIC time of the next burst
	stateSize = 16
)

// One system call makes so many packets; a paced generator spends most runs of its
// program waiting for the time of the next one.
const (
	generatorRepeat = 1 << 18
	generatorBatch  = 64
)

// Generator prepares to send the traffic from the CPU; the port's peer must take
// XDP frames, as for [Port.Wire].
func (p *Port) Generator(t Traffic, cpu int) (*Generator, error) {
	g := &Generator{port: p, cpu: cpu, size: t.Size, fixed: t.Rate > 0, burst: t.burst()}
	rate := t.Rate
	if !g.fixed {
		rate = firstRate
	}
	g.told[1] = g.interval(float64(rate))
	if err := g.load(t); err != nil {
		return nil, errors.Join(fmt.Errorf("making a generator at %s: %w", p, err), g.Close())
	}
	return g, nil
}

func (g *Generator) load(t Traffic) error {
	if err := g.port.Peer.takesXDP(); err != nil {
		return err
	}
	m, err := t.template()
	if err != nil {
		return err
	}
	for _, m := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&g.order, ebpf.MapSpec{Name: "lab_order", Type: ebpf.Array, KeySize: 4, ValueSize: orderSize, MaxEntries: 1}},
		{&g.state, ebpf.MapSpec{Name: "lab_state", Type: ebpf.Array, KeySize: 4, ValueSize: stateSize, MaxEntries: 1}},
		{&g.dev, ebpf.MapSpec{Name: "lab_dev", Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1}},
	} {
		if *m.to, err = ebpf.NewMap(&m.spec); err != nil {
			return fmt.Errorf("making map %s: %w", m.spec.Name, err)
		}
	}
	// A device map looks interfaces up in the namespace of whoever writes it.
	if err := g.port.NS.Do(func() error { return g.dev.Put(uint32(0), uint32(g.port.Index)) }); err != nil {
		return fmt.Errorf("naming the port in the device map: %w", err)
	}
	g.prog, err = loadLive("lab_generator", t.program(m, g.order.FD(), g.state.FD(), g.dev.FD()))
	return err
}

// Start begins to send and returns at once.
func (g *Generator) Start() error {
	if g.done != nil {
		return errors.New("the generator is running already")
	}
	if err := g.setStop(false); err != nil {
		return err
	}
	g.done = make(chan error, 1)
	go func() { g.done <- g.run() }()
	if !g.fixed {
		g.steering = make(chan error, 1)
		go func() { g.steering <- g.steer() }()
	}
	return nil
}

// Stop ends the sending and reports what went wrong while it lasted. When it
// returns the last packet has been handed over.
func (g *Generator) Stop() error {
	if g.done == nil {
		return nil
	}
	if err := g.setStop(true); err != nil {
		return err
	}
	err := <-g.done
	g.done = nil
	if g.steering != nil {
		err = errors.Join(err, <-g.steering)
		g.steering = nil
	}
	return err
}

// Sent returns how many packets have been handed to the port since the generator
// was made. The receiver's queue drops those that it has no room for.
func (g *Generator) Sent() (uint64, error) {
	var state [stateSize / 8]uint64
	if err := g.state.Lookup(uint32(0), &state); err != nil {
		return 0, fmt.Errorf("reading the generator's counter: %w", err)
	}
	return state[stateSent/8], nil
}

// Close stops the generator and frees it.
func (g *Generator) Close() error {
	return errors.Join(g.Stop(), g.prog.Close(), g.order.Close(), g.state.Close(), g.dev.Close())
}

// run sends until told to stop, on a thread of its own, which ends with it since
// it stays locked to the goroutine.
func (g *Generator) run() error {
	runtime.LockOSThread()
	g.thread.Store(int32(unix.Gettid()))
	if err := pin(0, g.cpu); err != nil {
		return err
	}
	if err := unix.Setns(int(g.port.NS.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering namespace %q: %w", g.port.NS.Name, err)
	}
	data := make([]byte, g.size)
	for {
		if err := g.prog.run(data, generatorRepeat, generatorBatch); err != nil {
			return fmt.Errorf("generating at %s: %w", g.port, err)
		}
		if g.stopping() {
			return nil
		}
	}
}

// setStop tells run, and the program in the middle of its repetitions, to stop or
// not to.
func (g *Generator) setStop(stop bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told[0] = 0
	if stop {
		g.told[0] = 1
	}
	if err := g.order.Put(uint32(0), g.told); err != nil {
		return fmt.Errorf("telling the generator to start or stop: %w", err)
	}
	return nil
}

func (g *Generator) stopping() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.told[0] != 0
}

// interval is the time between two bursts at a rate.
func (g *Generator) interval(rate float64) uint32 {
	return uint32(float64(g.burst) * 1e9 / rate)
}

// How a generator is steered. The share that the receiver refuses should be small enough not to disturb it and large enough to show that there is
// always a packet for it to take.
const (
	firstRate  = 1e6 // packets per second; where the last run ended, afterwards
	slowest    = 1e3
	fastest    = 2e7
	fewRefused = 0.05
	steerEvery = 4 * time.Millisecond
)

// steer keeps the rate at what the receiver takes, and a little more, until the generator stops. What is refused is counted for the port, where other generators may
// send too: the receiver is taken to refuse the same share of each one's.
func (g *Generator) steer() error {
	read := func() (sent, taken, refused uint64, err error) {
		if sent, err = g.Sent(); err == nil {
			taken, refused, err = g.port.answered()
		}
		return sent, taken, refused, err
	}
	sent, taken, refused, err := read()
	if err != nil {
		return err
	}
	last, step, order := time.Now(), 1.5, g.rate()
	for !g.stopping() {
		time.Sleep(steerEvery)
		s, t, r, err := read()
		if err != nil {
			return err
		}
		now := time.Now()
		made := float64(s - sent)
		lost := made * float64(r-refused) / max(float64(t-taken)+float64(r-refused), 1)
		if made < float64(2*g.burst) {
			continue // too few to say anything
		}
		rate := made / now.Sub(last).Seconds()
		switch {
		case lost > made*fewRefused: // or the receiver's CPU was somebody else's for a moment, so only a little down at once
			order, step = max(rate*(1-lost/made+fewRefused), 0.95*order), 1.05
		case rate > 0.9*order: // else something kept it from making more
			order, step = order*step, min(1+1.5*(step-1), 1.5)
		}
		order = min(max(order, slowest), fastest)
		if err := g.setRate(order); err != nil {
			return err
		}
		sent, taken, refused, last = s, t, r, now
	}
	return nil
}

func (g *Generator) rate() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return float64(g.burst) * 1e9 / float64(g.told[1])
}

func (g *Generator) setRate(rate float64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told[1] = g.interval(rate)
	if err := g.order.Put(uint32(0), g.told); err != nil {
		return fmt.Errorf("telling the generator its rate: %w", err)
	}
	return nil
}
