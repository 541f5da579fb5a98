// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Feeder measures forwarding programs by BPF_PROG_TEST_RUN with [Traffic].
//
// A test run that repeats gives a program its own output, with other MAC addresses and a smaller TTL, and always the same flow. So a small
// program makes a packet of the traffic in each run, as a [Generator] does, and jumps to the one that is measured. What it takes itself is
// measured with an empty program in the slot.
type Feeder struct {
	prog  *ebpf.Program
	slot  *ebpf.Map
	frame []byte
}

// Feeder prepares test runs of programs of one type, XDP (with frags) or SchedCLS, loaded for one point of attachment: the kernel lets only
// like jump to like.
func (t Traffic) Feeder(kind ebpf.ProgramType, at ebpf.AttachType) (*Feeder, error) {
	m, err := t.template()
	if err != nil {
		return nil, err
	}
	f := &Feeder{frame: m.frame}
	f.slot, err = ebpf.NewMap(&ebpf.MapSpec{Name: "lab_slot", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("making the slot of a feeder: %w", err)
	}
	spec := &ebpf.ProgramSpec{Name: "lab_feeder", Type: kind, AttachType: at, License: "GPL"}
	var data int16 = 76 // in struct __sk_buff
	if kind == ebpf.XDP {
		data, spec.Flags = 0, unix.BPF_F_XDP_HAS_FRAGS
	}
	spec.Instructions = append(asm.Instructions{asm.Mov.Reg(genCtx, asm.R1)}, t.packet(m, data)...)
	spec.Instructions = append(spec.Instructions,
		asm.Mov.Reg(asm.R1, genCtx),
		asm.LoadMapPtr(asm.R2, f.slot.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("drop"),
		asm.Return(),
	)
	if f.prog, err = ebpf.NewProgram(spec); err != nil {
		return nil, errors.Join(fmt.Errorf("loading a feeder: %w", err), f.slot.Close())
	}
	return f, nil
}

// Run feeds a program as if the device with the index had received the packets, and returns the mean time of a run in nanoseconds, the feeder's
// own included, and what the last run returned.
func (f *Feeder) Run(prog *ebpf.Program, index, packets int) (ns float64, verdict uint32, err error) {
	if err := f.slot.Put(uint32(0), prog); err != nil {
		return 0, 0, fmt.Errorf("putting a program into a feeder's slot: %w", err)
	}
	return TestRun(f.prog, index, f.frame, packets)
}

// Close frees the feeder.
func (f *Feeder) Close() error { return errors.Join(f.prog.Close(), f.slot.Close()) }
