// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const maxFrame = 96 // MAX_FRAME of bpf/flow.bpf.c

// A flowKey is struct shunt_flow, and a flowFrame struct frame of bpf/flow.bpf.c.
type flowKey struct {
	From, To         [16]byte
	FromPort, ToPort [2]byte
	Protocol, Family uint8
	Zero             uint16
}

type flowFrame struct {
	Key  flowKey
	Out  int32
	Len  uint32
	Byte [maxFrame]byte
}

// flowOf reads a frame as the text at the top of <shunt/flow.h> has it.
func flowOf(frame []byte) (key flowKey, ok bool) {
	tags, at := 0, 12
	for {
		if len(frame) < at+2 {
			return key, false
		}
		kind := binary.BigEndian.Uint16(frame[at:])
		if kind != 0x8100 && kind != 0x88a8 || tags == 2 {
			break
		}
		if len(frame) < at+6 { // a tag that is not whole, or nothing behind it
			return key, false
		}
		tags++
		at += 4
	}
	packet := frame[at+2:]
	var from, to netip.Addr
	var ports []byte
	switch kind := binary.BigEndian.Uint16(frame[at:]); {
	case kind == 0x0800 && len(packet) >= 20 && packet[0]>>4 == 4 && packet[0]&15 >= 5:
		from, to = netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:]))
		key.Family, key.Protocol = 4, packet[9]
		moreFragments, offset := packet[6]&0x20 != 0, binary.BigEndian.Uint16(packet[6:])&0x1fff
		if header := int(packet[0]&15) * 4; !moreFragments && offset == 0 && len(packet) > header {
			ports = packet[header:]
		}
	case kind == 0x86dd && len(packet) >= 40 && packet[0]>>4 == 6:
		from, to = netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:]))
		key.Family, key.Protocol = 6, packet[6]
		ports = packet[40:]
	default:
		return flowKey{}, false
	}
	key.From, key.To = from.As16(), to.As16()
	if slices.Contains([]uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP}, key.Protocol) && len(ports) >= 4 {
		key.FromPort, key.ToPort = [2]byte(ports), [2]byte(ports[2:])
	}
	return key, true
}

// flowFrameOf makes a frame up: most of them tagged or not, IPv4 with options and fragments, IPv6 with extension headers, all of them cut
// off anywhere; some are noise.
func flowFrameOf(r *rand.Rand, f *flowFrame) {
	for i := 0; i < maxFrame; i += 8 {
		binary.LittleEndian.PutUint64(f.Byte[i:], r.Uint64())
	}
	f.Len = maxFrame
	if r.IntN(5) == 0 {
		f.Len = 14 + r.Uint32N(maxFrame-13)
	}
	at := 12
	for tags := []int{0, 0, 0, 1, 1, 2, 2, 3}[r.IntN(8)]; tags > 0; tags-- {
		binary.BigEndian.PutUint16(f.Byte[at:], []uint16{0x8100, 0x8100, 0x8100, 0x88a8, 0x88a8, 0x9100}[r.IntN(6)])
		at += 4
	}
	kind := []uint16{0x0800, 0x0800, 0x0800, 0x86dd, 0x86dd, 0x86dd, 0x0806, uint16(r.Uint32())}[r.IntN(8)]
	binary.BigEndian.PutUint16(f.Byte[at:], kind)
	packet := f.Byte[at+2:]
	protocols := []uint8{6, 6, 6, 17, 17, 17, 33, 132, 136, 1, 58, 47, 0, 43, 44, 60, 51, uint8(r.Uint32())}
	protocol := protocols[r.IntN(len(protocols))]
	switch version := r.IntN(16); {
	case version == 0: // any
	case kind == 0x0800:
		packet[0] = 0x45
		if r.IntN(3) == 0 {
			packet[0] = 0x40 | uint8(r.Uint32N(16))
		}
		if r.IntN(4) > 0 {
			binary.BigEndian.PutUint16(packet[6:], []uint16{0, 0, 0x4000, 0x8000, 0x2000, 1, 0x20b9, 0x1f00, 0x0100}[r.IntN(9)])
		}
		packet[9] = protocol
	case kind == 0x86dd:
		packet[0] = 0x60 | packet[0]&15
		packet[6] = protocol
	}
	if r.IntN(8) == 0 { // to the byte around the end of what is read
		ends := []int{at + 2, at + 22, at + 26, at + 42, at + 46, at + 2 + int(packet[0]&15)*4 + 4}
		f.Len = uint32(min(maxFrame, max(14, ends[r.IntN(len(ends))]+r.IntN(3)-1)))
	}
}

// TestFlow: the keys of frames of every kind are those of a plain reader.
func TestFlow(t *testing.T) {
	m := load(t, "flow", nil)
	raw, err := unix.Mmap(m.coll.Maps["frames"].FD(), 0, maxSteps*int(unsafe.Sizeof(flowFrame{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(raw)
	frames := unsafe.Slice((*flowFrame)(unsafe.Pointer(&raw[0])), maxSteps)
	r := rand.New(rand.NewPCG(*seed, 8))
	none, ported, unported := 0, 0, 0
	for done := 0; done < *operations; done += maxSteps {
		for i := range frames {
			flowFrameOf(r, &frames[i])
			frames[i].Key.Family, frames[i].Out = 99, 99
		}
		ret, err := m.coll.Programs["flows"].Run(&ebpf.RunOptions{Data: make([]byte, maxFrame)})
		for errors.Is(err, unix.EINTR) {
			ret, err = m.coll.Programs["flows"].Run(&ebpf.RunOptions{Data: make([]byte, maxFrame)})
		}
		if err != nil || ret != 2 {
			t.Fatalf("running the program: %d, %v", ret, err)
		}
		for i := range frames {
			f := &frames[i]
			want, ok := flowOf(f.Byte[:f.Len])
			if (f.Out == 0) != ok || ok && f.Key != want {
				t.Fatalf("frame %d (seed %d): %x: %d, %+v, the twin says %v, %+v", done+i, *seed, f.Byte[:f.Len], f.Out, f.Key, ok, want)
			}
			switch {
			case !ok:
				none++
			case want.FromPort != [2]byte{}:
				ported++
			default:
				unported++
			}
		}
	}
	if least := *operations / 10; none < least || ported < least || unported < least {
		t.Errorf("%d frames have no flow, %d one with ports, %d one without: one of these is hardly tested", none, ported, unported)
	}
	t.Logf("%d frames have no flow, %d one with ports, %d one without", none, ported, unported)
}
