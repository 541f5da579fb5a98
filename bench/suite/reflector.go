// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// The histogram of round trips: a bucket for every 512 ns up to 8 ms, the last for all above.
const (
	bucketShift = 9
	Buckets     = 16384
	stampAt     = 14 + 20 + 8 // of the time of sending, in the UDP payload; the checksum is absent
)

// WireTurn measures round trips of frames through a line of the variant as a turn.
func (b *Bench) WireTurn(c string, v Variant, o lab.LineOptions) (t measure.Turn, err error) {
	o.Threaded, o.Receive = true, lab.ReceiveGRO
	n, err := b.BuildLine(o)
	if err != nil {
		return t, fmt.Errorf("building a line: %w", err)
	}
	b.Later(n.Close)
	l := &Lane{Net: n, Bench: b, Variant: v.Name, Want: reason.Fast}
	if v.Setup != nil {
		if err := v.Setup(l); err != nil {
			return t, err
		}
	}
	histogram, err := b.reflect(l)
	if err != nil {
		return t, err
	}
	return measure.Turn{Name: v.Name, Run: func(set *measure.Set) error {
		var s measure.Stat
		var rate float64
		err := l.Retry(func() error {
			before, err := l.Counters()
			if err != nil {
				return err
			}
			s, rate, err = b.bounce(l, histogram)
			return errors.Join(err, l.Check(before))
		})
		if err = l.accept(err, s.N > 0); err != nil {
			return err
		}
		AddLatency(set, c, v.Name, s, rate)
		l.keepShare(set, c)
		return nil
	}}, nil
}

// reflect makes the ends of the line send every frame of ours back to where it came from; the source's end also takes the time.
func (b *Bench) reflect(l *Lane) (*ebpf.Map, error) {
	histogram, err := ebpf.NewMap(&ebpf.MapSpec{Name: "bench_rtt", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: Buckets})
	if err != nil {
		return nil, fmt.Errorf("making the histogram: %w", err)
	}
	b.Later(histogram.Close)
	for port, times := range map[*lab.Port]*ebpf.Map{l.RX(): nil, l.TX(): histogram} {
		if err := attachReflector(port, times); err != nil {
			return nil, err
		}
		if err := port.NS.SetThreaded(port.Name, true); err != nil {
			return nil, err
		}
		if err := port.PinNAPI(b.GenCPU); err != nil {
			return nil, err
		}
	}
	return histogram, nil
}

func attachReflector(port *lab.Port, histogram *ebpf.Map) error {
	self, err := deviceMap(port)
	if err != nil {
		return err
	}
	defer self.Close()
	prog, err := LoadXDP("bench_reflect", reflector(histogram, self))
	if err != nil {
		return err
	}
	return errors.Join(AttachXDP(port, prog), prog.Close())
}

// reflector swaps MAC addresses, IPv4 addresses and UDP ports of UDP frames, sets the TTL to 64 again with the checksum put right, and
// sends them back. With a histogram it counts the time since the stamp and stamps anew; a stamp of 0 is not counted. They go back by a redirect
// to the port itself, since a veth's XDP_TX wakes its peer only if that one has a program (veth_xdp_flush()).
func reflector(histogram, self *ebpf.Map) asm.Instructions {
	const data, stamp = asm.R6, asm.R8
	swap := func(a, b int16, size asm.Size) asm.Instructions {
		return asm.Instructions{
			asm.LoadMem(asm.R1, data, a, size), asm.LoadMem(asm.R2, data, b, size),
			asm.StoreMem(data, a, asm.R2, size), asm.StoreMem(data, b, asm.R1, size),
		}
	}
	insns := asm.Instructions{
		asm.LoadMem(data, asm.R1, 0, asm.Word),   // xdp_md.data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // xdp_md.data_end
		asm.Mov.Reg(asm.R4, data), asm.Add.Imm(asm.R4, stampAt+8),
		asm.JGT.Reg(asm.R4, asm.R3, "drop"),
		asm.LoadMem(asm.R1, data, 12, asm.Half), // ETH_P_IP, IHL 5, UDP
		asm.JNE.Imm(asm.R1, int32(binary.NativeEndian.Uint16([]byte{8, 0})), "drop"),
		asm.LoadMem(asm.R1, data, 23, asm.Byte),
		asm.JNE.Imm(asm.R1, 17, "drop"),
	}
	insns = append(insns, swap(0, 6, asm.Word)...)
	insns = append(insns, swap(4, 10, asm.Half)...)
	insns = append(insns, swap(26, 30, asm.Word)...)
	insns = append(insns, swap(34, 36, asm.Half)...)
	// The router has taken 1 from the TTL and added 0x0100 to the checksum: take both back, unless the router is not on the way.
	insns = append(insns,
		asm.LoadMem(asm.R1, data, 22, asm.Byte), asm.JNE.Imm(asm.R1, 63, "whole"),
		asm.StoreImm(data, 22, 64, asm.Byte),
		asm.LoadMem(asm.R1, data, 24, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.Add.Imm(asm.R1, 0xffff-0x0100), // ones' complement subtraction
		asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 16), asm.And.Imm(asm.R1, 0xffff), asm.Add.Reg(asm.R1, asm.R2),
		asm.HostTo(asm.BE, asm.R1, asm.Half), asm.StoreMem(data, 24, asm.R1, asm.Half),
		asm.LoadMem(stamp, data, stampAt, asm.DWord).WithSymbol("whole"),
	)
	if histogram != nil {
		insns = append(insns,
			asm.FnKtimeGetNs.Call(),
			asm.StoreMem(data, stampAt, asm.R0, asm.DWord),
			asm.JEq.Imm(stamp, 0, "sent"),
			asm.Sub.Reg(asm.R0, stamp),
			asm.RSh.Imm(asm.R0, bucketShift),
			asm.JLT.Imm(asm.R0, Buckets, "fits"),
			asm.Mov.Imm(asm.R0, Buckets-1),
			asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word).WithSymbol("fits"),
			asm.LoadMapPtr(asm.R1, histogram.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "sent"),
			asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		)
	}
	return append(insns,
		asm.LoadMapPtr(asm.R1, self.FD()).WithSymbol("sent"),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRedirectMap.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"), asm.Return(),
	)
}

// bounce sets the sessions going, lets them run, and takes them off the line again.
func (b *Bench) bounce(l *Lane, histogram *ebpf.Map) (s measure.Stat, rate float64, err error) {
	if _, err := (Work{[]*lab.Port{l.In(), l.Out()}, []int{b.DutCPU}}).Threads(); err != nil {
		return s, 0, err
	}
	wire, err := l.TX().Wire()
	if err != nil {
		return s, 0, err
	}
	defer wire.Close()
	for i := range sessions {
		f := l.TX().Flow("10.0.0.2", "10.0.1.2")
		f.SrcPort = uint16(3000 + i)
		frame := lab.Edited(f.UDP(string(make([]byte, 18))), lab.L4(6, 0, 0))
		if err := wire.Send(frame); err != nil {
			return s, 0, fmt.Errorf("starting the sessions: %w", err)
		}
	}
	time.Sleep(b.Size.Warm)
	before, err := readHistogram(histogram)
	if err != nil {
		return s, 0, err
	}
	start := time.Now()
	time.Sleep(b.Size.Measure)
	after, err := readHistogram(histogram)
	if err != nil {
		return s, 0, err
	}
	took := time.Since(start).Seconds()
	for i := range after {
		after[i] -= before[i]
	}
	if err := b.drain(l); err != nil {
		return s, 0, err
	}
	if s = FromHistogram(after); s.N == 0 {
		return s, 0, Spoiled("no frame came back")
	}
	return s, float64(s.N) / took, nil
}

// drain takes the sessions off the line: the router drops while its way out is down.
func (b *Bench) drain(l *Lane) error {
	if err := l.Node(lab.Dut).Exec("ip link set out down"); err != nil {
		return err
	}
	time.Sleep(20 * time.Millisecond)
	dut := l.Node(lab.Dut)
	err := errors.Join(dut.Exec("ip link set out up"), dut.Exec("ip neigh replace 10.0.1.2 lladdr %s nud permanent dev out", l.RX().MAC))
	if l.Engine != nil {
		l.Engine.Settle()
	}
	return err
}

func readHistogram(m *ebpf.Map) ([]uint64, error) {
	out := make([]uint64, Buckets)
	for i := range out {
		var perCPU []uint64
		if err := m.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("reading the histogram: %w", err)
		}
		for _, n := range perCPU {
			out[i] += n
		}
	}
	return out, nil
}

// FromHistogram takes every value for the middle of its bucket; microseconds.
func FromHistogram(counts []uint64) (s measure.Stat) {
	at := func(i int) float64 { return (float64(i) + 0.5) * (1 << bucketShift) / 1e3 }
	var n, sum float64
	for i, c := range counts {
		n += float64(c)
		sum += float64(c) * at(i)
	}
	s.N, s.Mean = int(n), sum/n
	var squares, seen float64
	for i, c := range counts {
		squares += float64(c) * (at(i) - s.Mean) * (at(i) - s.Mean)
		if seen < 0.5*n && seen+float64(c) >= 0.5*n {
			s.Median = at(i)
		}
		if seen < 0.99*n && seen+float64(c) >= 0.99*n {
			s.P99 = at(i)
		}
		seen += float64(c)
	}
	s.SD = math.Sqrt(squares / n)
	return s
}
