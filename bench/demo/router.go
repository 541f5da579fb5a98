// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
)

// prefixes is how many destination networks the router has routes to.
const prefixes = 50

// router is the device under test with what feeds and measures it.
type router struct {
	net      *lab.Net
	dut      *lab.NS
	sink     *lab.Sink
	meter    *lab.Meter
	pids     []int // of the router's threads
	interval time.Duration
}

// newRouter builds the line. The router polls from a kernel thread on a CPU of its own, so that its work
// can be told from the generator's; the sink's work is done by the same thread, as on a router whose
// packets go out by a real card.
func newRouter(interval time.Duration) (*router, error) {
	o := lab.LineOptions{V4: lab.V4Prefixes(prefixes), V6: lab.V6Prefixes(prefixes), Threaded: true, Receive: lab.ReceiveGRO}
	n, err := lab.BuildLine(lab.UniquePrefix("demo"), o)
	if err != nil {
		return nil, err
	}
	r := &router{net: n, dut: n.Node(lab.Dut), interval: interval}
	if err := r.prepare(); err != nil {
		n.Close()
		return nil, err
	}
	return r, nil
}

func (r *router) prepare() (err error) {
	in := r.net.Port(lab.Dut, "in")
	cpu := min(1, runtime.NumCPU()-1)
	if err := in.PinNAPI(cpu); err != nil {
		return err
	}
	pids, err := in.NAPIThreads()
	if err != nil {
		return err
	}
	// The sink's packets are received right behind the router's sending, or, when that takes long, by this
	// CPU's softirq thread: its time belongs to them too.
	softirq, err := lab.SoftirqThread(cpu)
	if err != nil {
		return err
	}
	r.pids, r.meter = pids, lab.NewMeter(append(pids[:len(pids):len(pids)], softirq)...)
	for _, pid := range pids { // before whatever else this machine does
		if err := unix.Setpriority(unix.PRIO_PROCESS, pid, -20); err != nil {
			return fmt.Errorf("giving the router's thread %d priority: %w", pid, err)
		}
	}
	r.sink, err = r.net.Port(lab.SinkNode, "rx").Sink()
	return err
}

func (r *router) close() error { return r.net.Close() }

// generator sends to random addresses behind the router; rate 0 is as fast as possible.
func (r *router) generator(rate int) (*lab.Generator, error) {
	tx := r.net.Port(lab.Src, "tx")
	traffic := tx.Traffic("10.0.0.2", lab.V4Prefixes(prefixes))
	traffic.Rate = rate
	return tx.Generator(traffic, 0)
}

func (r *router) received() (uint64, error) {
	c, err := r.sink.Count()
	return c.Packets, err
}

// measure floods the router and gives the median of three intervals, by CPU time per packet.
func (r *router) measure() (lab.Sample, error) {
	g, err := r.generator(0)
	if err != nil {
		return lab.Sample{}, err
	}
	defer g.Close()
	if err := g.Start(); err != nil {
		return lab.Sample{}, err
	}
	time.Sleep(300 * time.Millisecond)
	samples := make([]lab.Sample, 3)
	for i := range samples {
		if samples[i], err = r.meter.Measure(r.interval, r.received); err != nil {
			return lab.Sample{}, err
		}
	}
	if err := g.Stop(); err != nil {
		return lab.Sample{}, err
	}
	slices.SortFunc(samples, func(a, b lab.Sample) int { return int(a.PerPacket() - b.PerPacket()) })
	if samples[1].Packets == 0 {
		return samples[1], fmt.Errorf("no packet came through the router")
	}
	return samples[1], nil
}

// schedule sets how the router's threads share their CPU.
func (r *router) schedule(policy, priority uint32) error {
	for _, pid := range r.pids {
		if err := unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority, Nice: -20}, 0); err != nil {
			return fmt.Errorf("setting the scheduling of the router's thread %d: %w", pid, err)
		}
	}
	return nil
}

// loss is the outcome of a paced run in which every packet is counted.
type loss struct{ sent, received uint64 }

func (l loss) lost() int64 { return int64(l.sent) - int64(l.received) }

// count sends at a rate that the router can well sustain while fn runs, and counts at both ends. The
// router's thread runs whenever it can, as interrupts do: its queue holds a few hundred packets, and what
// is lost because another process had the CPU would say nothing.
func (r *router) count(rate int, fn func() error) (l loss, err error) {
	if err := r.schedule(unix.SCHED_FIFO, 1); err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, r.schedule(unix.SCHED_NORMAL, 0)) }()
	before, err := r.received()
	if err != nil {
		return l, err
	}
	g, err := r.generator(rate)
	if err != nil {
		return l, err
	}
	defer g.Close()
	if err := g.Start(); err != nil {
		return l, err
	}
	time.Sleep(500 * time.Millisecond)
	if err := fn(); err != nil {
		return l, err
	}
	time.Sleep(500 * time.Millisecond)
	if err := g.Stop(); err != nil {
		return l, err
	}
	time.Sleep(100 * time.Millisecond) // what is still queued
	if l.sent, err = g.Sent(); err != nil {
		return l, err
	}
	after, err := r.received()
	l.received = after - before
	return l, err
}
