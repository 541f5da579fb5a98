// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
)

// XDP verdicts of <linux/bpf.h>.
const (
	xdpDrop = 1
	XDPPass = 2
)

func LoadXDP(name string, insns asm.Instructions) (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.XDP, License: "GPL", Instructions: insns, Flags: unix.BPF_F_XDP_HAS_FRAGS,
	})
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", name, err)
	}
	return prog, nil
}

// AttachXDP attaches to a port in native mode; the port owns the program from then on. nil detaches.
func AttachXDP(p *lab.Port, prog *ebpf.Program) error {
	const native = 1 << 2 // XDP_FLAGS_DRV_MODE
	fd := -1
	if prog != nil {
		fd = prog.FD()
	}
	err := p.NS.Do(func() error {
		link, err := netlink.LinkByIndex(p.Index)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(link, fd, native)
	})
	if err != nil {
		return fmt.Errorf("attaching XDP to %s: %w", p, err)
	}
	return nil
}

// deviceMap makes a device map that has the port in slot 0.
func deviceMap(p *lab.Port) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "bench_dev", Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("making a device map: %w", err)
	}
	// It looks interfaces up in the namespace of whoever writes it.
	if err := p.NS.Do(func() error { return m.Put(uint32(0), uint32(p.Index)) }); err != nil {
		return nil, errors.Join(fmt.Errorf("naming %s in the device map: %w", p, err), m.Close())
	}
	return m, nil
}

// dropAfterReading attaches a program that drops every IPv4 packet that has a sender.
func dropAfterReading(in *lab.Port) error {
	const source, behind = 26, 30 // bytes from the beginning of the frame
	prog, err := LoadXDP("bench_drop_read", asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // xdp_md.data_end
		asm.Mov.Imm(asm.R0, XDPPass),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, behind),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R4, asm.R2, source, asm.Word),
		asm.JEq.Imm(asm.R4, 0, "out"),
		asm.Mov.Imm(asm.R0, xdpDrop),
		asm.Return().WithSymbol("out"),
	})
	if err != nil {
		return err
	}
	return errors.Join(AttachXDP(in, prog), prog.Close())
}

// redirectOnly attaches the ceiling: a program that writes the MAC addresses and redirects every frame to one port, looking at nothing; or, reading,
// at whether the sender's address is 0, for which it has to wait until the frame's first bytes are in this CPU's cache.
func redirectOnly(in, out *lab.Port, reading bool) error {
	devs, err := deviceMap(out)
	if err != nil {
		return err
	}
	defer devs.Close()
	macs := append(append([]byte{}, out.Peer.MAC...), out.MAC...)
	insns := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // xdp_md.data_end
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, 14),
		asm.JGT.Reg(asm.R4, asm.R3, "drop"),
	}
	if reading {
		const source, behind = 26, 30 // bytes from the beginning of the frame
		insns = append(insns,
			asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, behind),
			asm.JGT.Reg(asm.R4, asm.R3, "drop"),
			asm.LoadMem(asm.R4, asm.R2, source, asm.Word),
			asm.JEq.Imm(asm.R4, 0, "drop"),
		)
	}
	for at := 0; at < len(macs); at += 4 {
		word := int64(int32(binary.NativeEndian.Uint32(macs[at:])))
		insns = append(insns, asm.StoreImm(asm.R2, int16(at), word, asm.Word))
	}
	insns = append(insns,
		asm.LoadMapPtr(asm.R1, devs.FD()),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRedirectMap.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"),
		asm.Return(),
	)
	prog, err := LoadXDP("bench_redirect", insns)
	if err != nil {
		return err
	}
	return errors.Join(AttachXDP(in, prog), prog.Close())
}
