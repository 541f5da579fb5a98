// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// Program is the program that runs at a hook of an interface.
func (e *Engine) Program(index int, hook graph.Hook) (prog *ebpf.Program, err error) {
	doErr := e.Do(context.Background(), func(d *datapath.Datapath) error {
		d.Programs(func(i int, h graph.Hook, p *ebpf.Program) {
			if i == index && h == hook && p != nil {
				prog, err = p.Clone()
			}
		})
		return nil
	})
	if err = errors.Join(doErr, err); err == nil && prog == nil {
		err = fmt.Errorf("no program at interface %d", index)
	}
	return prog, err
}

// Describe keeps what the kernel says about the program.
func (b *Bench) Describe(c, variant string, prog *ebpf.Program) error {
	info, err := prog.Info()
	if err != nil {
		return err
	}
	bytes, err := info.TranslatedSize()
	if err != nil {
		return err
	}
	b.Add(c, variant, "instructions", "", float64(bytes)/8)
	if verified, ok := info.VerifiedInstructions(); ok {
		b.Add(c, variant, "verified", "instructions", float64(verified))
	}
	jited, err := info.JitedSize()
	if err == nil {
		b.Add(c, variant, "machine code", "bytes", float64(jited))
	}
	return nil
}

// Runner runs one program by hand.
type Runner struct {
	Prog, Nothing *ebpf.Program
	Index         int
	Size          size
}

// Run runs a program once on a frame, in the calling thread's namespace, by the kernel's clock.
func (r Runner) Run(prog *ebpf.Program, frame []byte) (ns float64, verdict uint32, err error) {
	return lab.TestRun(prog, r.Index, frame, 1)
}

// Verdicts of a program that forwards.
const xdpRedirect, tcRedirect = 4, 7

// Wake runs the program on a packet that it forwards until it does: after thousands that it left to Linux it looks at few (`resting`).
func (r Runner) Wake(frame []byte) error {
	for range 64 {
		_, verdict, err := r.Run(r.Prog, frame)
		if err != nil || verdict == xdpRedirect || verdict == tcRedirect {
			return err
		}
	}
	return Spoiled("the packet was not forwarded in 64 runs")
}

// Once is the median time of single runs, less that of nothing, in nanoseconds.
func (r Runner) Once(frame []byte) (float64, error) {
	if err := r.Wake(frame); err != nil {
		return 0, err
	}
	var with, without []float64
	for range r.Size.runs / max(1, r.Size.Rounds) {
		for prog, times := range map[*ebpf.Program]*[]float64{r.Prog: &with, r.Nothing: &without} {
			ns, verdict, err := r.Run(prog, frame)
			if err != nil {
				return 0, err
			}
			if prog == r.Prog && verdict != xdpRedirect && verdict != tcRedirect {
				return 0, Spoiled(fmt.Sprintf("the packet was not forwarded: the program returned %d", verdict))
			}
			*times = append(*times, ns)
		}
	}
	return measure.Of(with).Median - measure.Of(without).Median, nil
}

// Loop is the mean time of many runs on a packet that passes, less that of nothing; another that is forwarded keeps the program from resting meanwhile.
func (r Runner) Loop(frame, forwarded []byte) (float64, error) {
	const atOnce = 2000 // fewer than it takes to rest: SHUNT_REST_AFTER; before each the kernel waits for milliseconds
	var with, without []float64
	for range 15 {
		if err := r.Wake(forwarded); err != nil {
			return 0, err
		}
		for prog, times := range map[*ebpf.Program]*[]float64{r.Prog: &with, r.Nothing: &without} {
			ns, _, err := lab.TestRun(prog, r.Index, frame, atOnce)
			if err != nil {
				return 0, err
			}
			*times = append(*times, ns)
		}
	}
	return measure.Of(with).Median - measure.Of(without).Median, nil
}
