// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Programs of other people, which a router can carry beside shunt. Each drops some of the packets that cases send, UDP over IPv4 to port 2000, so that it
// shows when a packet goes by without meeting it.

// dropUDP is the same for any port as a classic tc filter, in the words of `tc filter … bpf da bytecode`.
func dropUDP(port int) string {
	return fmt.Sprintf(`"9,40 0 0 12,21 0 6 2048,48 0 0 23,21 0 4 17,177 0 0 14,72 0 0 16,21 0 1 %d,6 0 0 2,6 0 0 4294967295"`, port)
}

const foreignPort = 2000

// foreign reads "KIND WHERE" and attaches such a program: "xdp PORT" and "xdpgeneric PORT" as `ip link` does, "xdp-link PORT", "tcx-ingress PORT" and "tcx-egress PORT"
// by BPF links, of which no event tells, "tcx-egress-from PORT DEVICE" alike, which drops of these packets those alone that came by a device, and "netfilter4 forward" or "netfilter6 forward" at a hook of netfilter, which no table knows of, and "route PREFIX GATEWAY PORT" for what a route leads out. "none" takes all links away.
func (t *twin) foreign(args string) error {
	kind, where, _ := strings.Cut(args, " ")
	if kind == "none" {
		return t.closeForeign()
	}
	if family, ok := map[string]link.NetfilterProtocolFamily{"netfilter4": unix.NFPROTO_IPV4, "netfilter6": unix.NFPROTO_IPV6}[kind]; ok {
		return t.foreignNetfilter(family)
	}
	if kind == "route" {
		return t.foreignRoute(where)
	}
	where, input, _ := strings.Cut(where, " ")
	dev, err := t.dut.Netlink().LinkByName(where)
	if err != nil {
		return fmt.Errorf("foreign %s: %w", args, err)
	}
	from := 0
	if input != "" {
		l, err := t.dut.Netlink().LinkByName(input)
		if err != nil {
			return fmt.Errorf("foreign %s: %w", args, err)
		}
		from = l.Attrs().Index
	}
	spec := &ebpf.ProgramSpec{Name: "foreign", Type: ebpf.XDP, License: "GPL", Instructions: dropXDP(), Flags: unix.BPF_F_XDP_HAS_FRAGS}
	if strings.HasPrefix(kind, "tcx") {
		spec = &ebpf.ProgramSpec{Name: "foreign", Type: ebpf.SchedCLS, License: "GPL", Instructions: dropTC(from)}
	}
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		return fmt.Errorf("foreign %s: %w", args, err)
	}
	defer prog.Close()
	return t.dut.Do(func() error {
		const generic, native = 1 << 1, 1 << 2 // XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE
		var l link.Link
		var err error
		switch kind {
		case "xdp":
			err = netlink.LinkSetXdpFdWithFlags(dev, prog.FD(), native)
		case "xdpgeneric":
			err = netlink.LinkSetXdpFdWithFlags(dev, prog.FD(), generic)
		case "xdp-link":
			l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Attrs().Index, Flags: link.XDPDriverMode})
		case "tcx-ingress":
			l, err = link.AttachTCX(link.TCXOptions{Program: prog, Interface: dev.Attrs().Index, Attach: ebpf.AttachTCXIngress})
		case "tcx-egress", "tcx-egress-from":
			l, err = link.AttachTCX(link.TCXOptions{Program: prog, Interface: dev.Attrs().Index, Attach: ebpf.AttachTCXEgress})
		default:
			err = errors.New("no such kind")
		}
		if err != nil {
			return fmt.Errorf("foreign %s: %w", args, err)
		}
		if l != nil {
			t.foreigners = append(t.foreigners, l)
		}
		return nil
	})
}

func (t *twin) closeForeign() error {
	var errs []error
	for _, c := range t.foreigners {
		errs = append(errs, c.Close())
	}
	t.foreigners = nil
	return errors.Join(errs...)
}

// dropXDP is the program for XDP.
func dropXDP() asm.Instructions {
	const drop, pass, length = 1, 2, 42
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Mov.Imm(asm.R0, pass),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, length),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R5, asm.R2, 12, asm.Half),
		asm.HostTo(asm.BE, asm.R5, asm.Half),
		asm.JNE.Imm(asm.R5, unix.ETH_P_IP, "out"),
		asm.LoadMem(asm.R5, asm.R2, 23, asm.Byte),
		asm.JNE.Imm(asm.R5, unix.IPPROTO_UDP, "out"),
		asm.LoadMem(asm.R5, asm.R2, 36, asm.Half),
		asm.HostTo(asm.BE, asm.R5, asm.Half),
		asm.JNE.Imm(asm.R5, foreignPort, "out"),
		asm.Mov.Imm(asm.R0, drop),
		asm.Return().WithSymbol("out"),
	}
}

// dropTC is the program for tcx; what it does not drop goes on to the next one. Where from is not 0, it drops only what came by that device.
func dropTC(from int) asm.Instructions {
	const drop, next, ingressIfindex = 2, -1, 36 // in struct __sk_buff
	insns := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	if from != 0 {
		insns = append(insns, asm.LoadMem(asm.R2, asm.R6, ingressIfindex, asm.Word), asm.JNE.Imm(asm.R2, int32(from), "next"))
	}
	return append(insns, asm.Instructions{
		asm.LoadAbs(12, asm.Half),
		asm.JNE.Imm(asm.R0, unix.ETH_P_IP, "next"),
		asm.LoadAbs(23, asm.Byte),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "next"),
		asm.LoadAbs(36, asm.Half),
		asm.JNE.Imm(asm.R0, foreignPort, "next"),
		asm.Mov.Imm(asm.R0, drop),
		asm.Return(),
		asm.Mov.Imm(asm.R0, next).WithSymbol("next"),
		asm.Return(),
	}...)
}

// foreignNetfilter puts a program at the forward hook of a family that drops UDP packets with a payload of one byte.
func (t *twin) foreignNetfilter(family link.NetfilterProtocolFamily) error {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("reading the kernel's types: %w", err)
	}
	var skb *btf.Struct
	if err := spec.TypeByName("sk_buff", &skb); err != nil {
		return fmt.Errorf("looking for sk_buff: %w", err)
	}
	at := -1
	for _, m := range skb.Members {
		if m.Name == "len" {
			at = int(m.Offset.Bytes())
		}
	}
	if at < 0 {
		return fmt.Errorf("sk_buff has no len")
	}
	length := int32(29)
	if family == unix.NFPROTO_IPV6 {
		length = 49
	}
	const forward, drop, accept = 2, 0, 1 // NF_INET_FORWARD, NF_DROP, NF_ACCEPT
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "foreign", Type: ebpf.Netfilter, AttachType: ebpf.AttachNetfilter, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 8, asm.DWord), // struct bpf_nf_ctx's skb
		asm.LoadMem(asm.R3, asm.R2, int16(at), asm.Word),
		asm.Mov.Imm(asm.R0, drop),
		asm.JEq.Imm(asm.R3, length, "out"),
		asm.Mov.Imm(asm.R0, accept),
		asm.Return().WithSymbol("out"),
	}})
	if err != nil {
		return fmt.Errorf("loading a program for netfilter: %w", err)
	}
	defer prog.Close()
	return t.dut.Do(func() error {
		l, err := link.AttachNetfilter(link.NetfilterOptions{Program: prog, ProtocolFamily: family, Hook: forward, Priority: 7})
		if err != nil {
			return fmt.Errorf("attaching a program to netfilter: %w", err)
		}
		t.foreigners = append(t.foreigners, l)
		return nil
	})
}

// foreignRoute makes a route whose packets a program drops (lwtunnel) if they are UDP over IPv4 with a payload of one byte.
func (t *twin) foreignRoute(args string) error {
	var prefix, gateway, port string
	if _, err := fmt.Sscan(args, &prefix, &gateway, &port); err != nil {
		return fmt.Errorf("foreign route %q: want a prefix, a gateway and a port: %w", args, err)
	}
	dev, err := t.dut.Netlink().LinkByName(port)
	if err != nil {
		return fmt.Errorf("foreign route %s: %w", args, err)
	}
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		return fmt.Errorf("foreign route %s: %w", args, err)
	}
	const length, drop, ok = 29, 2, 0 // BPF_DROP, BPF_OK
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "foreign", Type: ebpf.LWTOut, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // struct __sk_buff's len
		asm.Mov.Imm(asm.R0, drop),
		asm.JEq.Imm(asm.R2, length, "out"),
		asm.Mov.Imm(asm.R0, ok),
		asm.Return().WithSymbol("out"),
	}})
	if err != nil {
		return fmt.Errorf("loading a program for a route: %w", err)
	}
	defer prog.Close()
	encap := &netlink.BpfEncap{}
	if err := encap.SetProg(nl.LWT_BPF_OUT, prog.FD(), "foreign"); err != nil {
		return fmt.Errorf("foreign route %s: %w", args, err)
	}
	route := &netlink.Route{LinkIndex: dev.Attrs().Index, Dst: dst, Gw: net.ParseIP(gateway), Encap: encap}
	if err := t.dut.Netlink().RouteAdd(route); err != nil {
		return fmt.Errorf("foreign route %s: %w", args, err)
	}
	return nil
}

// hasForeign says whether the kernel has a kind of programs: "tcx" (Linux 6.6), "netfilter programs" (6.4).
func hasForeign(kind string) bool {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	if kind == "tcx" {
		var attach *btf.Func
		return spec.TypeByName("tcx_prog_attach", &attach) == nil
	}
	var ctx *btf.Struct
	return spec.TypeByName("bpf_nf_ctx", &ctx) == nil
}
