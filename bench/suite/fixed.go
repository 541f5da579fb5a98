// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/shuntnet/shunt/internal/lab"
)

// Verdicts of tc programs, and where they find a packet.
const (
	tcNext = -1 // TCX_NEXT
	tcDrop = 2  // TC_ACT_SHOT

	skbData, skbDataEnd = 76, 80 // of struct __sk_buff
)

// AttachTC loads a program and lets it see what comes in at a port, until the end of the section.
func (b *Bench) AttachTC(p *lab.Port, name string, insns asm.Instructions) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "GPL", Instructions: insns})
	if err != nil {
		return fmt.Errorf("loading %s: %w", name, err)
	}
	defer prog.Close()
	err = p.NS.Do(func() error {
		held, err := link.AttachTCX(link.TCXOptions{Interface: p.Index, Program: prog, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			b.Later(held.Close)
		}
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return skipf("the kernel has no tcx")
	}
	if err != nil {
		return fmt.Errorf("attaching %s to %s: %w", name, p, err)
	}
	return nil
}

// read waits for the packet's first bytes, as everyone does that looks at packets: one that has no sender goes on to Linux.
func read() asm.Instructions {
	const source, behind = 26, 30 // bytes from the beginning of the frame
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, skbData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, skbDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, behind),
		asm.JGT.Reg(asm.R4, asm.R3, "next"),
		asm.LoadMem(asm.R4, asm.R2, source, asm.Word),
		asm.JEq.Imm(asm.R4, 0, "next"),
	}
}

// goOn ends a program that has read.
func goOn() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, tcNext).WithSymbol("next"), asm.Return()}
}

// DropTC drops what comes in at a port, unseen, or after a look.
func (b *Bench) DropTC(at *lab.Port, reading bool) error {
	drop := asm.Instructions{asm.Mov.Imm(asm.R0, tcDrop), asm.Return()}
	if reading {
		drop = append(append(read(), drop...), goOn()...)
	}
	return b.AttachTC(at, "bench_drop", drop)
}

// RedirectTC sends what comes in at a port out by another one after a look, or, peer, straight to where that one leads.
func (b *Bench) RedirectTC(at, to *lab.Port, peer bool) error {
	call := asm.FnRedirect.Call()
	if peer {
		call = asm.FnRedirectPeer.Call()
	}
	insns := append(read(), asm.Mov.Imm(asm.R1, int32(to.Index)), asm.Mov.Imm(asm.R2, 0), call, asm.Return())
	return b.AttachTC(at, "bench_redirect", append(insns, goOn()...))
}
