// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
)

// WatchSink counts the benchmark's own packets at a port, and remembers when the last one came: a router also sends some of its own,
// which must not hide a loss.
type WatchSink struct{ counts *ebpf.Map }

// watched is the value of its map: packets, and CLOCK_MONOTONIC of the last one.
type watched struct{ Packets, Last uint64 }

// Watch replaces whatever is attached at the port.
func (b *Bench) Watch(p *lab.Port, dstPort uint16) (*WatchSink, error) {
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Name: "bench_watch", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("making the sink's map: %w", err)
	}
	b.Later(counts.Close)
	port := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, dstPort))
	prog, err := LoadXDP("bench_watch", asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, 42),
		asm.JGT.Reg(asm.R4, asm.R3, "drop"),
		asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
		asm.JNE.Imm(asm.R4, int32(binary.NativeEndian.Uint16([]byte{8, 0})), "drop"),
		asm.LoadMem(asm.R4, asm.R2, 23, asm.Byte),
		asm.JNE.Imm(asm.R4, 17, "drop"),
		asm.LoadMem(asm.R4, asm.R2, 36, asm.Half),
		asm.JNE.Imm(asm.R4, int32(port), "drop"),

		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R6, 0, asm.R1, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R6, 8, asm.R0, asm.DWord),

		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"), asm.Return(),
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(AttachXDP(p, nil), AttachXDP(p, prog), prog.Close()); err != nil {
		return nil, err
	}
	return &WatchSink{counts}, nil
}

func (w *WatchSink) Read() (sum watched, err error) {
	var perCPU []watched
	if err := w.counts.Lookup(uint32(0), &perCPU); err != nil {
		return sum, fmt.Errorf("reading the sink: %w", err)
	}
	for _, c := range perCPU {
		sum.Packets += c.Packets
		sum.Last = max(sum.Last, c.Last)
	}
	return sum, nil
}

// Drained waits until nothing has arrived for a while.
func (w *WatchSink) Drained() (watched, error) {
	for {
		before, err := w.Read()
		if err != nil {
			return before, err
		}
		time.Sleep(20 * time.Millisecond)
		after, err := w.Read()
		if err != nil || after == before {
			return after, err
		}
	}
}

// Monotonic is the clock of bpf_ktime_get_ns.
func Monotonic() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // a clock that every Linux has
	}
	return uint64(t.Nano())
}
