// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Meter reads how much CPU time threads have used. For the NAPI threads of a
// device under test that is the cost of its packets, whatever else the machine
// does: being preempted takes time, but not theirs.
type Meter struct {
	pids []int
}

// NewMeter meters the threads with the given process ids, all added up. See
// [Port.NAPIThreads].
func NewMeter(pids ...int) *Meter { return &Meter{pids: pids} }

// SoftirqThread is the kernel thread that takes a CPU's receive work over when there is too much of it to be done on the way: where packets
// are received right behind their sending, some of their cost is its run time.
func SoftirqThread(cpu int) (pid int, err error) {
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, err
	}
	name := fmt.Sprintf("ksoftirqd/%d", cpu)
	for _, comm := range comms {
		if text, err := os.ReadFile(comm); err == nil && strings.TrimSpace(string(text)) == name {
			return strconv.Atoi(filepath.Base(filepath.Dir(comm)))
		}
	}
	return 0, fmt.Errorf("no kernel thread is called %s", name)
}

// CPU returns the time that the threads have run since they began, from their
// /proc/PID/schedstat. The kernel brings a running thread's figure up to date
// with each scheduler tick, 1 to 10 ms: measure over a second or so.
func (m *Meter) CPU() (time.Duration, error) {
	var total time.Duration
	for _, pid := range m.pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			return 0, fmt.Errorf("reading the run time of thread %d: %w", pid, err)
		}
		first, _, _ := strings.Cut(string(stat), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the run time of thread %d: %w", pid, err)
		}
		total += time.Duration(ns)
	}
	return total, nil
}

// Sample is what happened in an interval.
type Sample struct {
	Packets uint64
	CPU     time.Duration // of the metered threads
	Wall    time.Duration
}

// PerPacket is the CPU time per packet in nanoseconds.
func (s Sample) PerPacket() float64 { return float64(s.CPU) / float64(max(s.Packets, 1)) }

// Rate is packets per second.
func (s Sample) Rate() float64 { return float64(s.Packets) / s.Wall.Seconds() }

// Load is the share of one CPU that the threads used; with several it may pass 1.
func (s Sample) Load() float64 { return float64(s.CPU) / float64(s.Wall) }

// String is the sample in one line.
func (s Sample) String() string {
	return fmt.Sprintf("%.0f ns/packet, %.3f Mpps, load %.2f", s.PerPacket(), s.Rate()/1e6, s.Load())
}

// Measure lets the interval pass and returns what the packet counter and the
// threads did in it.
func (m *Meter) Measure(interval time.Duration, packets func() (uint64, error)) (Sample, error) {
	before, err := m.read(packets)
	if err != nil {
		return Sample{}, err
	}
	time.Sleep(interval)
	after, err := m.read(packets)
	if err != nil {
		return Sample{}, err
	}
	return Sample{
		Packets: after.packets - before.packets,
		CPU:     after.cpu - before.cpu,
		Wall:    after.at.Sub(before.at),
	}, nil
}

type reading struct {
	at      time.Time
	cpu     time.Duration
	packets uint64
}

func (m *Meter) read(packets func() (uint64, error)) (r reading, err error) {
	r.at = time.Now()
	if r.cpu, err = m.CPU(); err != nil {
		return r, err
	}
	r.packets, err = packets()
	return r, err
}
