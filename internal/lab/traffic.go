// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf/asm"
)

// Traffic is what a [Generator] sends: UDP packets, each of a flow drawn at random,
// uniformly and independently of the others.
type Traffic struct {
	SrcMAC, DstMAC   net.HardwareAddr
	Src              netip.Addr
	Sources          int    // adjacent addresses from Src on, drawn at random beside the flow; 0: Src alone. IPv4 only
	SrcPort, DstPort uint16 // SrcPort is that of flow 0
	Dst              Prefixes
	Host             int    // host number within each destination prefix
	Size             int    // of the frame in bytes, without FCS: 60 to 1514, with IPv6 from 62
	Payload          []byte // of every packet; nil: zeros
	Flows            int    // distinct pairs of destination and source port; 0: one per prefix
	Rate             int    // packets per second, evenly spaced; 0: as fast as the receiver takes them
}

// Flow number f goes to prefix f mod Dst.Count and has source port SrcPort +
// f div Dst.Count: with fewer flows than prefixes, only so many prefixes are hit.
func (t Traffic) flows() int {
	if t.Flows == 0 {
		return t.Dst.Count
	}
	return t.Flows
}

// template is a frame of flow 0, and where its parts are.
type template struct {
	frame  []byte
	header int // bytes to rewrite in each packet, since receivers change them
	v6     bool
	l3     int
}

func (t Traffic) template() (template, error) {
	f := Flow{SrcMAC: t.SrcMAC, DstMAC: t.DstMAC, Src: t.Src, SrcPort: t.SrcPort, DstPort: t.DstPort}
	m := template{v6: t.Src.Is6(), l3: 14, header: 14 + 20 + 8}
	if m.v6 {
		m.header = 14 + 40 + 8
	}
	switch {
	case t.Dst.Count < 1:
		return m, fmt.Errorf("no destination prefix")
	case t.Dst.First.Addr().Is6() != m.v6:
		return m, fmt.Errorf("source %s and destination %s are of two families", t.Src, t.Dst.First)
	case t.Rate != 0 && t.Rate < 100:
		return m, fmt.Errorf("rate %d: must be 100 packets per second or more", t.Rate)
	case t.Size < max(60, m.header) || t.Size > 1514:
		return m, fmt.Errorf("frame size %d: must be %d to 1514", t.Size, max(60, m.header))
	case t.Payload != nil && t.Size != m.header+len(t.Payload):
		return m, fmt.Errorf("frame size %d: with this payload it is %d", t.Size, m.header+len(t.Payload))
	case t.flows() < 1 || int(f.SrcPort)+(t.flows()-1)/t.Dst.Count > 65535:
		return m, fmt.Errorf("%d flows from source port %d on do not fit 16 bits", t.flows(), f.SrcPort)
	case t.Sources < 0 || t.Sources > 1 && m.v6:
		return m, fmt.Errorf("%d sources: several are for IPv4 only", t.Sources)
	case t.Dst.First.Bits() == 0 || uint64(t.Dst.Count)*uint64(max(t.Dst.Step, 1)) > 1<<32:
		return m, fmt.Errorf("destinations %d times %s do not fit 32 bits", t.Dst.Count, t.Dst.First)
	}
	f.Dst = t.Dst.Host(0, t.Host)
	if t.Payload == nil {
		t.Payload = make([]byte, t.Size-m.header)
	} else {
		m.header = t.Size &^ 1 // receivers may change any of it
	}
	m.frame = f.UDP(string(t.Payload))
	if !m.v6 { // a checksum is optional here
		m.frame = Edited(m.frame, L4(6, 0, 0))
	}
	return m, nil
}

// Registers of the generator program. The helper calls keep R6 to R9.
const (
	genCtx  = asm.R6
	genData = asm.R7
	genFlow = asm.R8 // number of the flow, then of the source port
	genSum  = asm.R9 // running checksum
)

// program makes one packet per run and redirects it through the device map. The
// shape of the traffic is constants in the code: what is not asked for costs
// nothing. In C:
//
//	if (order->stop || early(order->interval) || data + header > data_end) return XDP_DROP;
//	memcpy(data, template, header);
//	flow = prandom() * flows >> 32;
//	ip->saddr = src + (prandom() * sources >> 32);
//	ip->daddr = first + flow % count * stride;
//	udp->source = port + flow / count;
//	fix the checksum; state->sent++;
//	return bpf_redirect_map(&devmap, 0, 0);
func (t Traffic) program(m template, order, state, devmap int) asm.Instructions {
	insns := asm.Instructions{
		asm.Mov.Reg(genCtx, asm.R1),
		asm.LoadMapValue(asm.R1, order, orderStop),
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.JNE.Imm(asm.R2, 0, "drop"),
	}
	insns = append(insns, t.pace(order, state)...)
	insns = append(insns, t.packet(m, 0)...)
	return append(insns,
		asm.LoadMapValue(asm.R1, state, stateSent),
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord),
		asm.LoadMapPtr(asm.R1, devmap),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRedirectMap.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"),
		asm.Return(),
	)
}

// packet makes one packet in the frame of the context, which has its data and data_end at the offset.
func (t Traffic) packet(m template, data int16) asm.Instructions {
	insns := asm.Instructions{
		asm.LoadMem(genData, genCtx, data, asm.Word),
		asm.LoadMem(asm.R2, genCtx, data+4, asm.Word),
		asm.Mov.Reg(asm.R1, genData), asm.Add.Imm(asm.R1, int32(m.header)),
		asm.JGT.Reg(asm.R1, asm.R2, "drop"),
	}
	insns = append(insns, m.store()...)
	if !m.v6 {
		insns = append(insns, t.source4(m)...)
	}
	insns = append(insns, t.draw()...)
	if m.v6 {
		return append(insns, t.address6(m)...)
	}
	return append(insns, t.address4(m)...)
}

// burst is how many packets share one look at the clock: looking takes as long as making a packet.
func (t Traffic) burst() int {
	if t.Rate > 0 {
		return 1
	}
	return 16
}

// looks bounds how often one run looks at the clock: some 60 microseconds. The verifier walks each time.
const looks = 2048

// pace waits until the next burst's time has come. Spinning on the clock is dear, but spaces packets far better than sleeping could; a packet
// that is dropped instead takes the lock of the pool of frames, which the receiver needs when it gives a frame back: its packets would cost
// twice as much. A generator that fell behind (it was preempted) does not catch up with a long burst: time missed is skipped.
func (t Traffic) pace(order, state int) asm.Instructions {
	const behind = 100 // intervals that are caught up with
	var insns asm.Instructions
	if n := t.burst(); n > 1 {
		insns = asm.Instructions{
			asm.LoadMapValue(asm.R1, state, stateSent),
			asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
			asm.And.Imm(asm.R2, int32(n-1)),
			asm.JNE.Imm(asm.R2, 0, "go"),
		}
	}
	return append(insns,
		asm.Mov.Imm(genFlow, 0),
		asm.FnKtimeGetNs.Call().WithSymbol("look"),
		asm.LoadMapValue(asm.R1, state, stateNext),
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R2, "due"),
		asm.Add.Imm(genFlow, 1),
		asm.JLT.Imm(genFlow, looks, "look"),
		asm.Ja.Label("drop"),

		asm.LoadMapValue(asm.R3, order, orderInterval).WithSymbol("due"),
		asm.LoadMem(asm.R3, asm.R3, 0, asm.Word),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.Mul.Imm(asm.R3, behind),
		asm.Mov.Reg(asm.R4, asm.R0), asm.Sub.Reg(asm.R4, asm.R3),
		asm.JGE.Reg(asm.R2, asm.R4, "paced"),
		asm.Mov.Reg(asm.R2, asm.R0),
		asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord).WithSymbol("paced"),
		asm.Mov.Imm(genFlow, 0).WithSymbol("go"),
	)
}

// store writes the template's header with immediate stores.
func (m template) store() asm.Instructions {
	var insns asm.Instructions
	at := 0
	for ; at+4 <= m.header; at += 4 {
		word := int64(int32(binary.NativeEndian.Uint32(m.frame[at:])))
		insns = append(insns, asm.StoreImm(genData, int16(at), word, asm.Word))
	}
	if at < m.header { // headers are of even length
		half := int64(binary.NativeEndian.Uint16(m.frame[at:]))
		insns = append(insns, asm.StoreImm(genData, int16(at), half, asm.Half))
	}
	return insns
}

// draw leaves the prefix number in R1 and, where flows differ in it, the source
// port number in genFlow, written to the packet.
func (t Traffic) draw() asm.Instructions {
	insns := asm.Instructions{
		asm.FnGetPrandomU32.Call(),
		asm.LoadImm(asm.R1, int64(t.flows()), asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R0),
		asm.RSh.Imm(asm.R1, 32),
	}
	if t.flows() <= t.Dst.Count {
		return append(insns, asm.Mov.Imm(genFlow, int32(t.SrcPort)))
	}
	count := int32(t.Dst.Count)
	return append(insns,
		asm.Mov.Reg(genFlow, asm.R1), asm.Div.Imm(genFlow, count),
		asm.Mod.Imm(asm.R1, count),
		asm.Add.Imm(genFlow, int32(t.SrcPort)),
	)
}

// source4 begins the checksum with the source, which it writes where there are several.
func (t Traffic) source4(m template) asm.Instructions {
	src := binary.BigEndian.Uint32(m.frame[m.l3+12:])
	if t.Sources <= 1 {
		return asm.Instructions{asm.Mov.Imm(genSum, int32(src>>16+src&0xffff))}
	}
	return append(asm.Instructions{
		asm.FnGetPrandomU32.Call(),
		asm.Mov.Imm(asm.R1, int32(t.Sources)),
		asm.Mul.Reg(asm.R1, asm.R0),
		asm.RSh.Imm(asm.R1, 32),
		asm.LoadImm(asm.R2, int64(src), asm.DWord),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.Mov.Imm(genSum, 0),
	}, storeAddress(m.l3+12)...)
}

// storeAddress adds the address in R1 to the checksum and stores it.
func storeAddress(at int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 16),
		asm.Add.Reg(genSum, asm.R2),
		asm.Mov.Reg(asm.R2, asm.R1), asm.And.Imm(asm.R2, 0xffff),
		asm.Add.Reg(genSum, asm.R2),
		asm.HostTo(asm.BE, asm.R1, asm.Word),
		asm.StoreMem(genData, int16(at), asm.R1, asm.Word),
	}
}

// address4 writes destination, source port and header checksum.
func (t Traffic) address4(m template) asm.Instructions {
	base := m.frame[m.l3+16 : m.l3+20]
	fixed := sum(0, Edited(m.frame, L3(10, 0, 0), L3(12, make([]byte, 8)...))[m.l3:m.l3+20])
	insns := asm.Instructions{
		asm.LoadImm(asm.R2, int64(max(t.Dst.Step, 1))<<(32-t.Dst.First.Bits()), asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.LoadImm(asm.R2, int64(binary.BigEndian.Uint32(base)), asm.DWord),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.Add.Imm(genSum, int32(fixed)),
	}
	insns = append(insns, storeAddress(m.l3+16)...)
	insns = append(insns, storeSum(m.l3+10)...)
	return append(insns, storePort(m.l3+20)...)
}

// address6 writes the half of the destination that the prefixes differ in, the
// source port and the UDP checksum.
func (t Traffic) address6(m template) asm.Instructions {
	half, bits := m.l3+24, t.Dst.First.Bits()
	if bits > 64 {
		half, bits = half+8, bits-64
	}
	l4 := m.l3 + 40
	varying := Edited(m.frame, L2(half, make([]byte, 8)...), L4(0, 0, 0), L4(6, 0, 0))
	fixed := parse(varying).transportSum(varying)
	insns := asm.Instructions{
		asm.LoadImm(asm.R2, int64(max(t.Dst.Step, 1)), asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.LSh.Imm(asm.R1, int32(64-bits)),
		asm.LoadImm(asm.R2, int64(binary.BigEndian.Uint64(m.frame[half:])), asm.DWord),
		asm.Add.Reg(asm.R1, asm.R2),

		asm.Mov.Reg(genSum, asm.R1), asm.RSh.Imm(genSum, 32),
		asm.Mov.Reg32(asm.R2, asm.R1),
		asm.Add.Reg(genSum, asm.R2),
		asm.Add.Reg(genSum, genFlow),
		asm.Add.Imm(genSum, int32(fixed)),

		asm.HostTo(asm.BE, asm.R1, asm.DWord),
		asm.StoreMem(genData, int16(half), asm.R1, asm.DWord),
	}
	// Zero would mean that there is none, so UDP sends its other form. An IPv4
	// header, in contrast, has zero.
	insns = append(insns, storeSum(l4+6, asm.JNE.Imm(genSum, 0, "sum"), asm.Mov.Imm(genSum, 0xffff))...)
	return append(insns, storePort(l4)...)
}

// storeSum folds genSum, complements it and stores it at the offset.
func storeSum(at int, edit ...asm.Instruction) asm.Instructions {
	var insns asm.Instructions
	for range 3 {
		insns = append(insns,
			asm.Mov.Reg(asm.R2, genSum), asm.RSh.Imm(asm.R2, 16),
			asm.And.Imm(genSum, 0xffff),
			asm.Add.Reg(genSum, asm.R2),
		)
	}
	insns = append(insns, asm.Xor.Imm(genSum, 0xffff))
	insns = append(insns, edit...)
	return append(insns,
		asm.HostTo(asm.BE, genSum, asm.Half).WithSymbol("sum"),
		asm.StoreMem(genData, int16(at), genSum, asm.Half),
	)
}

func storePort(at int) asm.Instructions {
	return asm.Instructions{
		asm.HostTo(asm.BE, genFlow, asm.Half),
		asm.StoreMem(genData, int16(at), genFlow, asm.Half),
	}
}

// Traffic returns UDP traffic of 60-byte frames (62 with IPv6) that leaves this
// port towards its peer's MAC address.
func (p *Port) Traffic(src string, dst Prefixes) Traffic {
	t := Traffic{
		SrcMAC: p.MAC, DstMAC: p.Peer.MAC, Src: netip.MustParseAddr(src), SrcPort: 1024, DstPort: 2000,
		Dst: dst, Host: 1, Size: 60,
	}
	if t.Src.Is6() {
		t.Size = 62
	}
	return t
}
