// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Offsets in struct __sk_buff.
const (
	markOffset     = 8
	priorityOffset = 32
)

// dropBy reads "PORT VALUE" and puts a classic tc filter on the way out of a port that drops packets with that value in a word of struct __sk_buff: the
// only way to see a packet's priority or mark from outside without a queue that fills up.
func (t *twin) dropBy(offset int16, args string) error {
	var port, value int
	if _, err := fmt.Sscan(args, &port, &value); err != nil {
		return fmt.Errorf("drop-priority or drop-mark %q: want a port's number and a value: %w", args, err)
	}
	const shot, pass = 2, 0 // TC_ACT_SHOT, TC_ACT_OK
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "drop_by", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, offset, asm.Word),
			asm.Mov.Imm(asm.R0, shot),
			asm.JEq.Imm(asm.R1, int32(value), "out"),
			asm.Mov.Imm(asm.R0, pass),
			asm.Return().WithSymbol("out"),
		},
	})
	if err != nil {
		return fmt.Errorf("loading a filter: %w", err)
	}
	defer prog.Close()
	attrs := netlink.QdiscAttrs{LinkIndex: t.port(port).Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := t.dut.Netlink().QdiscReplace(&netlink.Clsact{QdiscAttrs: attrs}); err != nil {
		return fmt.Errorf("adding clsact to %s: %w", t.port(port), err)
	}
	return t.dut.Do(func() error {
		err := netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: t.port(port).Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
			Fd:          prog.FD(), Name: "drop_by", DirectAction: true,
		})
		if err != nil {
			return fmt.Errorf("adding a filter to %s: %w", t.port(port), err)
		}
		return nil
	})
}
