// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
)

var chains = suite.Section{
	Name:  "chains",
	Title: "Inline against tail calls",
	About: "1 to 16 trivial steps, each of which reads a byte of the packet and adds it to a sum: in one program, as functions of one program, and as programs that tail-call each other " +
		"with an index that the verifier knows (which the kernel patches into a jump) or does not know. BPF_PROG_TEST_RUN; nothing writes to the packet, so repeating is sound. " +
		"shunt composes its nodes inline and uses one tail call with a known index, to swap programs.",
	Run: runChains,
}

var chainLengths = []int{1, 2, 4, 8, 16}

func runChains(b *suite.Bench) error {
	repeat := 1_000_000
	if b.Size.Name != "full" {
		repeat = 50_000
	}
	var turns []measure.Turn
	for _, kind := range []struct {
		name string
		make func(n int) (*ebpf.Program, func() error, error)
	}{{"inline", inlineChain}, {"function calls", callChain}, {"tail calls, known index", knownTails}, {"tail calls, unknown index", unknownTails}} {
		for _, n := range chainLengths {
			prog, undo, err := kind.make(n)
			if err != nil {
				return fmt.Errorf("making a chain of %d %s: %w", n, kind.name, err)
			}
			b.Later(undo)
			turns = append(turns, measure.Turn{Name: kind.name, Run: func(set *measure.Set) error {
				ns, err := perRun(prog, make([]byte, 64), repeat)
				set.Add(plural(n, "step"), kind.name, "run", "ns", ns)
				return err
			}})
		}
	}
	return b.Turns("chains", b.Size.Rounds, turns)
}

// perRun is the mean time of one run of a program in nanoseconds, by the kernel's clock.
func perRun(prog *ebpf.Program, data []byte, repeat int) (float64, error) {
	_, took, err := prog.Benchmark(data, repeat, nil)
	if err != nil {
		return 0, fmt.Errorf("running a program: %w", err)
	}
	return float64(took), nil
}

// Between steps R6 is the context; the sum goes through the packet-independent part of the stack, as parameters of nodes do.
func step(i int) asm.Instructions {
	drop := fmt.Sprintf("short%d", i)
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // xdp_md.data_end
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, 32),
		asm.JGT.Reg(asm.R4, asm.R3, drop),
		asm.LoadMem(asm.R5, asm.R2, int16(i), asm.Byte),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(drop),
	}
}

func load(insns asm.Instructions) (*ebpf.Program, error) { return suite.LoadXDP("bench_chain", insns) }

var begin, end = asm.Mov.Reg(asm.R6, asm.R1), asm.Instructions{asm.Mov.Imm(asm.R0, suite.XDPPass), asm.Return()}

func inlineChain(n int) (*ebpf.Program, func() error, error) {
	insns := asm.Instructions{begin}
	for i := range n {
		insns = append(insns, step(i)...)
	}
	prog, err := load(append(insns, end...))
	return prog, prog.Close, err
}

func callChain(n int) (*ebpf.Program, func() error, error) {
	insns := asm.Instructions{begin}
	for i := range n {
		insns = append(insns, asm.Mov.Reg(asm.R1, asm.R6), asm.Call.Label(fmt.Sprintf("step%d", i)))
	}
	insns = append(insns, end...)
	for i := range n {
		body := append(asm.Instructions{begin.WithSymbol(fmt.Sprintf("step%d", i))}, step(i)...)
		insns = append(insns, append(body, end...)...)
	}
	prog, err := load(insns)
	return prog, prog.Close, err
}

func knownTails(n int) (*ebpf.Program, func() error, error) {
	return tailChain(n, func(i int) asm.Instructions { return asm.Instructions{asm.Mov.Imm(asm.R3, int32(i))} })
}

// unknownTails takes the next index from the packet: byte 32+i holds 0, and the index is that plus i.
func unknownTails(n int) (*ebpf.Program, func() error, error) {
	return tailChain(n, func(i int) asm.Instructions {
		short := fmt.Sprintf("none%d", i)
		return asm.Instructions{
			asm.Mov.Imm(asm.R7, 0),
			asm.LoadMem(asm.R2, asm.R6, 0, asm.Word),
			asm.LoadMem(asm.R3, asm.R6, 4, asm.Word),
			asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, 64),
			asm.JGT.Reg(asm.R4, asm.R3, short),
			asm.LoadMem(asm.R7, asm.R2, int16(32+i), asm.Byte),
			asm.Mov.Reg(asm.R3, asm.R7).WithSymbol(short), asm.Add.Imm(asm.R3, int32(i)),
		}
	})
}

// tailChain makes n programs, program i with the step i and a tail call to program i+1; index leaves that number in R3.
func tailChain(n int, index func(int) asm.Instructions) (*ebpf.Program, func() error, error) {
	slots, err := ebpf.NewMap(&ebpf.MapSpec{Name: "bench_chain", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: uint32(n + 1)})
	if err != nil {
		return nil, nil, err
	}
	undo := []func() error{slots.Close}
	closeAll := func() (err error) {
		for _, fn := range undo {
			err = errors.Join(err, fn())
		}
		return err
	}
	var first *ebpf.Program
	for i := range n {
		insns := append(asm.Instructions{begin}, step(i)...)
		if i+1 < n {
			insns = append(insns, index(i+1)...)
			insns = append(insns, asm.Mov.Reg(asm.R1, asm.R6), asm.LoadMapPtr(asm.R2, slots.FD()), asm.FnTailCall.Call())
		}
		prog, err := load(append(insns, end...))
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		undo = append(undo, prog.Close)
		if i == 0 {
			first = prog
		}
		if err := slots.Put(uint32(i), prog); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("putting program %d into its slot: %w", i, err), closeAll())
		}
	}
	return first, closeAll, nil
}
