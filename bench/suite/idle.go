// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// The least that a program at a hook can do: pass everything. What that costs is the kernel's; shunt answers for what it adds.
const (
	IdleXDP = "empty program, xdp"
	IdleTC  = "empty program, tc"
)

// Idle attaches such a program to the router's ports, until the end of the section.
func (l *Lane) Idle(hook graph.Hook, ports ...*lab.Port) error {
	if hook == graph.XDP {
		prog, err := LoadXDP("bench_idle", asm.Instructions{asm.Mov.Imm(asm.R0, XDPPass), asm.Return()})
		if err != nil {
			return err
		}
		defer prog.Close()
		for _, p := range ports {
			if err := attachXDP(p, prog); err != nil {
				return err
			}
		}
		return nil
	}
	const next = -1 // TCX_NEXT
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "bench_idle", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, next), asm.Return()}})
	if err != nil {
		return fmt.Errorf("loading a program that passes everything: %w", err)
	}
	defer prog.Close()
	for _, p := range ports {
		err := p.NS.Do(func() error {
			held, err := link.AttachTCX(link.TCXOptions{Interface: p.Index, Program: prog, Attach: ebpf.AttachTCXIngress})
			if err == nil {
				l.Bench.Later(held.Close)
			}
			return err
		})
		if errors.Is(err, ebpf.ErrNotSupported) {
			return skipf("the kernel has no tcx")
		}
		if err != nil {
			return fmt.Errorf("attaching an empty program to %s: %w", p, err)
		}
	}
	return nil
}
