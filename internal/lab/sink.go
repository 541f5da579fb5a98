// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Sink counts and drops every frame that arrives at a port, in XDP.
type Sink struct {
	port   *Port
	counts *ebpf.Map // per CPU: Count
	prog   *ebpf.Program
}

// Count is what a sink has seen.
type Count struct{ Packets, Bytes uint64 }

// Sink turns the port into a sink until it is closed; then the port receives as
// its End says. The counters begin at zero.
func (p *Port) Sink() (*Sink, error) {
	s := &Sink{port: p}
	if err := s.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("making a sink of %s: %w", p, err), s.free())
	}
	return s, nil
}

// Count returns the counters, added up over the CPUs.
func (s *Sink) Count() (Count, error) {
	perCPU, err := s.CountPerCPU()
	var total Count
	for _, c := range perCPU {
		total.Packets += c.Packets
		total.Bytes += c.Bytes
	}
	return total, err
}

// CountPerCPU returns the counters of each possible CPU.
func (s *Sink) CountPerCPU() ([]Count, error) {
	var counts []Count
	if err := s.counts.Lookup(uint32(0), &counts); err != nil {
		return nil, fmt.Errorf("reading the counters of the sink at %s: %w", s.port, err)
	}
	return counts, nil
}

// Close stops counting and dropping.
func (s *Sink) Close() error {
	if s.port.pass {
		return errors.Join(s.port.attachPass(), s.free())
	}
	return errors.Join(s.port.attach(nil), s.free())
}

func (s *Sink) free() error { return errors.Join(s.prog.Close(), s.counts.Close()) }

func (s *Sink) start() (err error) {
	s.counts, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "lab_counts", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1,
	})
	if err != nil {
		return fmt.Errorf("making the counter map: %w", err)
	}
	// The bytes counted are those of the whole frame, in however many buffers.
	s.prog, err = loadXDP("lab_sink", asm.Instructions{
		asm.FnXdpGetBuffLen.Call(),
		asm.Mov.Reg(asm.R6, asm.R0),

		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, s.counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord),
		asm.Add.Reg(asm.R1, asm.R6),
		asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),

		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"),
		asm.Return(),
	})
	if err != nil {
		return err
	}
	return s.port.attach(s.prog)
}
