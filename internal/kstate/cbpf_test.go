// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// compiled reads testdata/filters.txt.
func compiled(t *testing.T, each func(name string, routed, bridged bool, raw []byte)) {
	t.Helper()
	text, err := os.ReadFile("testdata/filters.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), " | ")
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(f[3])
		var raw []byte
		for i := 1; i < len(words); i += 4 {
			n := [4]uint64{}
			for j := range n {
				if n[j], err = strconv.ParseUint(words[i+j], 10, 32); err != nil {
					t.Fatal(err)
				}
			}
			raw = binary.NativeEndian.AppendUint16(raw, uint16(n[0]))
			raw = append(raw, byte(n[1]), byte(n[2]))
			raw = binary.NativeEndian.AppendUint32(raw, uint32(n[3]))
		}
		each(f[0], f[1] == "yes", f[2] == "yes", raw)
	}
}

func TestFilters(t *testing.T) {
	compiled(t, func(name string, routed, bridged bool, raw []byte) {
		if got := filterHarmless(raw, unix.SOCK_RAW, unix.ETH_P_ALL, routedPackets); got != routed {
			t.Errorf("%q: harmless for what is routed = %t, want %t", name, got, routed)
		}
		if got := filterHarmless(raw, unix.SOCK_RAW, unix.ETH_P_ALL, bridgedPackets); got != bridged {
			t.Errorf("%q: harmless for what is bridged = %t, want %t", name, got, bridged)
		}
	})
}

// TestFiltersAgainstPackets runs filters that are said to be harmless on random packets of the kind that the fast path
// forwards: none may be accepted. The machine is that of golang.org/x/net/bpf.
func TestFiltersAgainstPackets(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	compiled(t, func(name string, _, _ bool, raw []byte) {
		var makes []func(*rand.Rand) []byte
		if filterHarmless(raw, unix.SOCK_RAW, unix.ETH_P_ALL, routedPackets) {
			makes = append(makes, routed)
		}
		if filterHarmless(raw, unix.SOCK_RAW, unix.ETH_P_ALL, bridgedPackets) {
			makes = append(makes, bridged)
		}
		var prog []bpf.Instruction
		for i := 0; i < len(raw); i += 8 {
			prog = append(prog, bpf.RawInstruction{Op: get16(raw, i), Jt: raw[i+2], Jf: raw[i+3], K: get32(raw, i+4)}.Disassemble())
		}
		vm, err := bpf.NewVM(prog)
		if err != nil {
			return // an extension that the machine lacks
		}
		for _, next := range makes {
			for range 5000 {
				p := next(rnd)
				if n, err := vm.Run(p); err != nil || n != 0 {
					t.Errorf("%q accepts %x (%v)", name, p, err)
					return
				}
			}
		}
	})
}

// bridged is a frame that may pass from one port of a bridge to another: half of them of the protocols that filters like to ask for.
func bridged(rnd *rand.Rand) []byte {
	p := make([]byte, 60+rnd.IntN(100))
	for i := range p {
		p[i] = byte(rnd.Uint32())
	}
	p[0] &^= 1
	if rnd.IntN(2) == 0 {
		binary.BigEndian.PutUint16(p[12:], []uint16{0x800, 0x86dd, 0x8863, 0x8864, 0x888e, 0x88cc, 0x8100, 0x88a8, 0x0042}[rnd.IntN(9)])
		p[14] = []byte{0x45, 0x46, 0x60, 0x42}[rnd.IntN(4)]
	}
	switch binary.BigEndian.Uint16(p[12:]) {
	case 0x806, 0x8035, 0x88e3, 0x8902:
		p[12] = 9
	}
	return p
}

// forwarded makes a random packet that a router forwards fast.
func routed(rnd *rand.Rand) []byte {
	p := make([]byte, 60+rnd.IntN(100))
	for i := range p {
		p[i] = byte(rnd.Uint32())
	}
	p[0] &^= 1
	l4 := 34
	if rnd.IntN(2) == 0 {
		p[12], p[13] = 8, 0
		p[14] = 0x45
		p[20] &= 0xc0
		p[21] = 0
		p[23] = []byte{1, 6, 17, 50, byte(rnd.Uint32())}[rnd.IntN(5)]
	} else {
		p[12], p[13] = 0x86, 0xdd
		p[14] = 0x60 | p[14]&0xf
		p[20] = []byte{6, 17, 58, byte(rnd.Uint32())}[rnd.IntN(4)]
		l4 = 54
	}
	for _, off := range []int{l4, l4 + 2} { // all but DHCP, see dhcp
		switch binary.BigEndian.Uint16(p[off:]) {
		case 67, 68, 546, 547:
			p[off] = 1
		}
	}
	return p
}

// TestFilterBounds: what is malformed or too much work is not harmless.
func TestFilterBounds(t *testing.T) {
	ins := func(code uint16, jt, jf byte, k uint32) []byte {
		b := binary.NativeEndian.AppendUint16(nil, code)
		return binary.NativeEndian.AppendUint32(append(b, jt, jf), k)
	}
	reject := ins(unix.BPF_RET, 0, 0, 0)
	if !filterHarmless(reject, unix.SOCK_RAW, unix.ETH_P_ALL, routedPackets) {
		t.Error("a filter that rejects all should be harmless")
	}
	var wide []byte // 2^60 ways through
	for range 60 {
		wide = append(wide, ins(unix.BPF_LD|unix.BPF_B|unix.BPF_ABS, 0, 0, 40)...)
		wide = append(wide, ins(unix.BPF_JMP|unix.BPF_JEQ, 0, 1, 7)...)
		wide = append(wide, ins(unix.BPF_LD|unix.BPF_IMM, 0, 0, 1)...)
	}
	for name, f := range map[string][]byte{
		"empty": {}, "half an instruction": reject[:5], "no return": ins(unix.BPF_LD|unix.BPF_IMM, 0, 0, 1),
		"unknown load": append(ins(unix.BPF_LD|0xe0, 0, 0, 0), reject...), "too many ways": append(wide, reject...),
		"scratch out of range": append(ins(unix.BPF_ST, 0, 0, 99), reject...),
	} {
		if filterHarmless(f, unix.SOCK_RAW, unix.ETH_P_ALL, routedPackets) {
			t.Errorf("%s: harmless", name)
		}
	}
}
