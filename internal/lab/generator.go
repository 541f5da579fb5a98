// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Generator sends [Traffic] out of a port as XDP frames, from one CPU, at 5 to 10
// million packets per second: a program run over and over in live-frames mode.
// The receiver recycles the frames' memory, so that every packet's header is
// written anew.
type Generator struct {
	port  *Port
	cpu   int
	size  int
	prog  *liveProgram
	stop  *ebpf.Map // u32; apart from state, since a write replaces a whole value
	state *ebpf.Map
	dev   *ebpf.Map

	stopping atomic.Bool  // what the stop map says
	thread   atomic.Int32 // id of the thread that sends
	done     chan error   // nil while stopped
}

// Offsets in the only value of the state map.
const (
	stateSent = 0 // u64: packets handed to the port
	stateNext = 8 // u64: CLOCK_MONOTONIC time of the next packet, if paced
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
	g := &Generator{port: p, cpu: cpu, size: t.Size}
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
		{&g.stop, ebpf.MapSpec{Name: "lab_stop", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}},
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
	g.prog, err = loadLive("lab_generator", t.program(m, g.stop.FD(), g.state.FD(), g.dev.FD()))
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
	return errors.Join(g.Stop(), g.prog.Close(), g.stop.Close(), g.state.Close(), g.dev.Close())
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
		if g.stopping.Load() {
			return nil
		}
	}
}

// setStop tells run, and the program in the middle of its repetitions, to stop or
// not to.
func (g *Generator) setStop(stop bool) error {
	g.stopping.Store(stop)
	var word uint32
	if stop {
		word = 1
	}
	if err := g.stop.Put(uint32(0), word); err != nil {
		return fmt.Errorf("telling the generator to start or stop: %w", err)
	}
	return nil
}
