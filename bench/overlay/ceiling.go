// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"net"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

// The ceiling of own encapsulation and decapsulation: a program at tc that does no more than any such program would have to, with every address a constant and
// without a single check. What it cannot win, nobody can who does the tunnel's work there. The second one has the kernel look up the routes and neighbours that
// it would have to know, of the inner packet and of the outer one, and still checks nothing.
const (
	ceiling       = "own tunnel, no checks"
	ceilingRoutes = "own tunnel, routes looked up"
)

const (
	outerHeaders = 14 + 20 + 8 + 8 // Ethernet, IPv4, UDP and VXLAN in front of the inner frame

	// Flags and modes of bpf_skb_adjust_room().
	roomBehindMAC = 1
	fixedGSO      = 1 << 0
	encapIPv4     = 1 << 1
	encapUDP      = 1 << 4
	encapEthernet = 1 << 6
	encapL2Len    = 14 << 56

	skbLen, skbData, skbDataEnd = 0, 76, 80 // of struct __sk_buff
	tcNext                      = -1        // TCX_NEXT

	// struct bpf_fib_lookup, and a flag of bpf_fib_lookup().
	fibSize, fibIfindex, fibSource, fibDestination = 64, 8, 16, 32
	lookUpOutput                                   = 2

	outerRoute = 0x02_01_00_0a_01_01_00_0a // from 10.0.1.1 to 10.0.1.2, as a little-endian machine has them in memory

	// The range of ip_local_port_range, from which a tunnel's device takes its source ports.
	firstPort, ports = 32768, 60999 - 32768
)

// ownTunnel does at the lane's first port what the tunnel's device and the way to it would do.
func (d direction) ownTunnel(l *suite.Lane, routes bool) error {
	insns, shape := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, encapsulate
	if d.out {
		shape = decapsulate
	}
	if routes && !d.out {
		insns = append(insns, lookUp(l.In().Index, 0, 0)...)
		insns = append(insns, lookUp(l.Out().Index, lookUpOutput, outerRoute)...)
	}
	insns = append(insns, shape(l)...)
	if routes && d.out {
		insns = append(insns, lookUp(l.Decides, 0, 0)...)
	}
	insns = append(insns,
		asm.Mov.Imm(asm.R1, int32(l.Out().Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, tcNext).WithSymbol("next"), asm.Return())
	return l.Bench.AttachTC(l.In(), "bench_tunnel", insns)
}

// encapsulate puts the headers of flannel.1 around a packet, its source port from the hash of the packet as the device takes it (udp_flow_src_port()).
func encapsulate(l *suite.Lane) asm.Instructions {
	frame := outer(l)
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6), asm.FnGetHashRecalc.Call(),
		asm.Mov.Reg32(asm.R7, asm.R0), asm.LSh.Imm32(asm.R7, 16), asm.Xor.Reg32(asm.R7, asm.R0),
		asm.Mul.Imm(asm.R7, ports), asm.RSh.Imm(asm.R7, 32), asm.Add.Imm(asm.R7, firstPort), asm.HostTo(asm.BE, asm.R7, asm.Half),
		asm.LoadMem(asm.R8, asm.R6, skbLen, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, outerHeaders), asm.Mov.Imm(asm.R3, roomBehindMAC),
		asm.LoadImm(asm.R4, fixedGSO|encapIPv4|encapUDP|encapEthernet|encapL2Len, asm.DWord), asm.FnSkbAdjustRoom.Call(),
	}
	insns = append(insns, bounds(outerHeaders+14+20)...)
	insns = append(insns, write(frame)...)
	insns = append(insns,
		asm.StoreMem(asm.R2, 34, asm.R7, asm.Half),
		asm.Mov.Reg(asm.R3, asm.R8), asm.Add.Imm(asm.R3, 8+8), asm.HostTo(asm.BE, asm.R3, asm.Half), asm.StoreMem(asm.R2, 38, asm.R3, asm.Half), // UDP's length
		asm.Add.Imm(asm.R8, 20+8+8), asm.HostTo(asm.BE, asm.R8, asm.Half), asm.StoreMem(asm.R2, 16, asm.R8, asm.Half), // IP's
		asm.Add.Imm(asm.R8, sum(frame[14:34])), asm.Mov.Reg(asm.R3, asm.R8), asm.RSh.Imm(asm.R3, 16), asm.And.Imm(asm.R8, 0xffff), asm.Add.Reg(asm.R8, asm.R3),
		asm.Mov.Reg(asm.R3, asm.R8), asm.RSh.Imm(asm.R3, 16), asm.Add.Reg(asm.R8, asm.R3),
		asm.Xor.Imm(asm.R8, 0xffff), asm.StoreMem(asm.R2, 24, asm.R8, asm.Half),
	)
	return append(insns, hop(outerHeaders+14)...)
}

// decapsulate takes a packet out of its headers and routes it on.
func decapsulate(l *suite.Lane) asm.Instructions {
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, -outerHeaders), asm.Mov.Imm(asm.R3, roomBehindMAC), asm.Mov.Imm(asm.R4, fixedGSO), asm.FnSkbAdjustRoom.Call(),
	}
	insns = append(insns, bounds(14+20)...)
	insns = append(insns, write(append(ethernet(l.Out(), l.RX()), 0x45, 0))...) // sixteen bytes: what follows a header of Ethernet is known
	return append(insns, hop(14)...)
}

// lookUp asks the kernel for the route and the neighbour of the packet at the beginning of the frame, or of addresses that are known.
func lookUp(ifindex int, flags int32, addrs int64) asm.Instructions {
	const at = -fibSize
	insns := asm.Instructions{asm.Mov.Imm(asm.R3, 0)}
	for i := int16(0); i < fibSize; i += 8 {
		insns = append(insns, asm.StoreMem(asm.RFP, at+i, asm.R3, asm.DWord))
	}
	insns = append(insns, asm.StoreImm(asm.RFP, at, unix.AF_INET, asm.Byte), asm.StoreImm(asm.RFP, at+fibIfindex, int64(ifindex), asm.Word))
	if addrs != 0 {
		insns = append(insns, asm.LoadImm(asm.R4, addrs, asm.DWord), asm.Mov.Reg(asm.R5, asm.R4), asm.RSh.Imm(asm.R5, 32))
	} else {
		insns = append(insns, bounds(14+20)...)
		insns = append(insns, asm.LoadMem(asm.R4, asm.R2, 14+12, asm.Word), asm.LoadMem(asm.R5, asm.R2, 14+16, asm.Word))
	}
	return append(insns,
		asm.StoreMem(asm.RFP, at+fibSource, asm.R4, asm.Word), asm.StoreMem(asm.RFP, at+fibDestination, asm.R5, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, at), asm.Mov.Imm(asm.R3, fibSize), asm.Mov.Imm(asm.R4, flags),
		asm.FnFibLookup.Call(), asm.JNE.Imm(asm.R0, 0, "next"))
}

// bounds leaves the beginning of the frame in R2, of which so many bytes are there.
func bounds(n int32) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R6, skbData, asm.Word), asm.LoadMem(asm.R3, asm.R6, skbDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, n), asm.JGT.Reg(asm.R4, asm.R3, "next"),
	}
}

// write puts bytes, by eights, at the beginning of the frame.
func write(b []byte) (insns asm.Instructions) {
	for i := 0; i < len(b); i += 8 {
		insns = append(insns, asm.LoadImm(asm.R3, int64(binary.LittleEndian.Uint64(b[i:])), asm.DWord), asm.StoreMem(asm.R2, int16(i), asm.R3, asm.DWord))
	}
	return insns
}

// hop takes one off the TTL of the IPv4 header at an offset, and keeps its checksum right.
func hop(at int16) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R3, asm.R2, at+8, asm.Byte), asm.Sub.Imm(asm.R3, 1), asm.StoreMem(asm.R2, at+8, asm.R3, asm.Byte),
		asm.LoadMem(asm.R3, asm.R2, at+10, asm.Half), asm.Add.Imm(asm.R3, 1), asm.Mov.Reg(asm.R4, asm.R3), asm.RSh.Imm(asm.R4, 16), asm.Add.Reg(asm.R3, asm.R4),
		asm.StoreMem(asm.R2, at+10, asm.R3, asm.Half),
	}
}

// outer is what flannel.1 would put around every packet, and the inner Ethernet header; lengths, checksum and source port are zero.
func outer(l *suite.Lane) []byte {
	b := ethernet(l.Out(), l.RX())
	b = append(b, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 1, 10, 0, 1, 2)
	b = append(b, 0, 0, 8472>>8, 8472&0xff, 0, 0, 0, 0)
	b = append(b, 0x08, 0, 0, 0, 0, 0, 1, 0)
	return append(append(append(b, vtep(1)...), vtep(0)...), 0x08, 0)
}

func ethernet(from, to *lab.Port) []byte {
	b := append([]byte{}, net.HardwareAddr(to.MAC)...)
	return append(append(b, net.HardwareAddr(from.MAC)...), 0x08, 0)
}

// sum adds words as they lie in memory.
func sum(b []byte) (s int32) {
	for i := 0; i < len(b); i += 2 {
		s += int32(binary.LittleEndian.Uint16(b[i:]))
	}
	return s
}
