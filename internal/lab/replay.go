// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Replay measures a program by BPF_PROG_TEST_RUN with many given frames, each for itself, one right behind the other as a busy interface has them.
//
// A call for each frame would have the kernel's way in and out between two of them, which takes longer than the program and leaves it caches that no
// packet meets under load. So, as in a [Feeder], a small program puts the next frame in place and jumps to the one that is measured; in each run it notes the time
// since the one before. What it takes itself is in that too: compare programs, or take an empty one off.
type Replay struct {
	prog                       *ebpf.Program
	slot, frames, times, state *ebpf.Map
	first                      []byte
	n                          int
}

// A replay's state: when the last run was (u64, of the kernel's clock) and which frame it had (u32).
const (
	replayWhen  = 0
	replayWhich = 8
	replayState = 16
)

// NewReplay prepares test runs of programs of one type, XDP (with frags) or SchedCLS, loaded for one point of attachment. All frames have to be of the
// same length, an even number.
func NewReplay(frames [][]byte, kind ebpf.ProgramType, at ebpf.AttachType) (r *Replay, err error) {
	if len(frames) < 2 {
		return nil, fmt.Errorf("preparing a replay: %d frames, at least 2 are needed", len(frames))
	}
	r = &Replay{first: frames[0], n: len(frames)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("preparing a replay: %w", err), r.Close())
		}
	}()
	size := len(r.first)
	for _, m := range []struct {
		at   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&r.slot, ebpf.MapSpec{Name: "lab_slot", Type: ebpf.ProgramArray, ValueSize: 4, MaxEntries: 1}},
		{&r.frames, ebpf.MapSpec{Name: "lab_frames", Type: ebpf.Array, ValueSize: uint32(size), MaxEntries: uint32(r.n)}},
		{&r.times, ebpf.MapSpec{Name: "lab_times", Type: ebpf.Array, ValueSize: 8, MaxEntries: uint32(r.n)}},
		{&r.state, ebpf.MapSpec{Name: "lab_replay", Type: ebpf.Array, ValueSize: replayState, MaxEntries: 1}},
	} {
		m.spec.KeySize = 4
		if *m.at, err = ebpf.NewMap(&m.spec); err != nil {
			return r, err
		}
	}
	for i, f := range frames {
		if len(f) != size || size%2 != 0 {
			return r, fmt.Errorf("frame %d has %d bytes, the first one %d", i, len(f), size)
		}
		if err = r.frames.Put(uint32(i), f); err != nil {
			return r, err
		}
	}
	spec := &ebpf.ProgramSpec{Name: "lab_replay", Type: kind, AttachType: at, License: "GPL"}
	var data int16 = 76 // in struct __sk_buff
	if kind == ebpf.XDP {
		data, spec.Flags = 0, unix.BPF_F_XDP_HAS_FRAGS
	}
	spec.Instructions = r.program(data, size)
	r.prog, err = ebpf.NewProgram(spec)
	return r, err
}

// program is, in C:
//
//	now = ktime();
//	times[state->which] = now - state->when;
//	state->when = now;
//	if (++state->which >= n) state->which = 0;
//	if (data + size > data_end) return -1;
//	memcpy(data, frames[state->which], size);
//	tail call
func (r *Replay) program(data int16, size int) asm.Instructions {
	const key = -4 // on the stack
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMapValue(asm.R7, r.state.FD(), 0),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.LoadMem(asm.R1, asm.R7, replayWhen, asm.DWord),
		asm.Sub.Reg(asm.R8, asm.R1),
		asm.StoreMem(asm.R7, replayWhen, asm.R0, asm.DWord),
		asm.LoadMem(asm.R9, asm.R7, replayWhich, asm.Word),
	}
	look := func(m *ebpf.Map) asm.Instructions {
		return asm.Instructions{
			asm.StoreMem(asm.RFP, key, asm.R9, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, key),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
		}
	}
	insns = append(insns, look(r.times)...)
	insns = append(insns,
		asm.StoreMem(asm.R0, 0, asm.R8, asm.DWord),
		asm.Add.Imm(asm.R9, 1),
		asm.JLT.Imm(asm.R9, int32(r.n), "next"),
		asm.Mov.Imm(asm.R9, 0),
		asm.StoreMem(asm.R7, replayWhich, asm.R9, asm.Word).WithSymbol("next"),
	)
	insns = append(insns, look(r.frames)...)
	insns = append(insns,
		asm.LoadMem(asm.R1, asm.R6, data, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, data+4, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, int32(size)),
		asm.JGT.Reg(asm.R3, asm.R2, "out"),
	)
	for at := 0; at < size; {
		part := asm.Word
		if size-at < part.Sizeof() {
			part = asm.Half
		}
		insns = append(insns, asm.LoadMem(asm.R3, asm.R0, int16(at), part), asm.StoreMem(asm.R1, int16(at), asm.R3, part))
		at += part.Sizeof()
	}
	return append(insns,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, r.slot.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"),
		asm.Return(),
	)
}

// Run feeds all frames to a program, in their order, as if the device with the index had received them, and returns the time of each in nanoseconds, from when it was
// about to be put in place until the next one was.
func (r *Replay) Run(prog *ebpf.Program, index int) ([]float64, error) {
	if err := r.slot.Put(uint32(0), prog); err != nil {
		return nil, fmt.Errorf("putting a program into a replay's slot: %w", err)
	}
	var state [replayState / 4]uint32
	state[replayWhich/4] = uint32(r.n - 1) // the first run goes on to frame 0
	if err := r.state.Put(uint32(0), state); err != nil {
		return nil, fmt.Errorf("starting a replay: %w", err)
	}
	// One run more than frames: it notes the last one's time, and has the first frame again.
	if _, _, err := TestRun(r.prog, index, r.first, r.n+1); err != nil {
		return nil, err
	}
	times := make([]float64, 0, r.n)
	var key uint32
	var ns uint64
	for iter := r.times.Iterate(); iter.Next(&key, &ns); {
		times = append(times, float64(ns))
	}
	if len(times) != r.n {
		return nil, fmt.Errorf("reading a replay's times: %d of %d frames", len(times), r.n)
	}
	return times, nil
}

// Close frees the replay.
func (r *Replay) Close() (err error) {
	if r.prog != nil {
		err = r.prog.Close()
	}
	for _, m := range []*ebpf.Map{r.slot, r.frames, r.times, r.state} {
		err = errors.Join(err, m.Close()) // nil is closed already
	}
	return err
}
