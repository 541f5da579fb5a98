// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// XDP verdicts of <linux/bpf.h>.
const (
	xdpDrop = 1
	xdpPass = 2
)

// loadXDP loads a small program of this package. It handles frames in several
// buffers, or interfaces with a large MTU would refuse it.
func loadXDP(name string, insns asm.Instructions) (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.XDP, License: "GPL", Instructions: insns,
		Flags: unix.BPF_F_XDP_HAS_FRAGS,
	})
	if err != nil {
		return nil, fmt.Errorf("loading XDP program %s: %w", name, err)
	}
	return prog, nil
}

// attach attaches a program to the port, replacing what [Port.attach] attached
// before; nil detaches. It goes by netlink rather than by a link, since the
// interface, not a descriptor, is to own it.
func (p *Port) attach(prog *ebpf.Program) error {
	const native = 1 << 2 // XDP_FLAGS_DRV_MODE
	fd := -1
	if prog != nil {
		fd = prog.FD()
	}
	return p.NS.Do(func() error {
		link, err := netlink.LinkByIndex(p.Index)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetXdpFdWithFlags(link, fd, native); err != nil {
			return fmt.Errorf("attaching an XDP program to %s: %w", p, err)
		}
		return nil
	})
}

// passProgram is shared by all ports of the process and kept anchored, which makes
// attaching it 10 ms cheaper.
var passProgram = sync.OnceValues(func() (*liveProgram, error) {
	return loadLive("lab_pass", asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()})
})

// attachPass attaches a program that passes everything, so that the port polls
// with NAPI.
func (p *Port) attachPass() error {
	prog, err := passProgram()
	if err != nil {
		return err
	}
	if err := p.attach(prog.prog); err != nil {
		return err
	}
	p.pass = true
	return nil
}
