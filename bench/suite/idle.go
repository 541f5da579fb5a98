// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"github.com/cilium/ebpf/asm"

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
			if err := AttachXDP(p, prog); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range ports {
		if err := l.Bench.AttachTC(p, "bench_idle", asm.Instructions{asm.Mov.Imm(asm.R0, tcNext), asm.Return()}); err != nil {
			return err
		}
	}
	return nil
}
