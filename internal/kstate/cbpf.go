// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"slices"

	"golang.org/x/sys/unix"
)

// The classic BPF filter of a packet socket tells what it can see. Only what it does to ordinary forwarded packets matters:
// if it rejects all of those, the socket loses nothing when they bypass Linux. So the filter is run on an abstract packet:
// one that the fast path could forward. What the fast path knows of it is fixed (of what it routes ethertype, version,
// no fragment, unicast MAC), everything else is unknown, and at a branch on
// an unknown value both ways are followed. If any way can accept, the socket is not harmless.

// filterSteps bounds the work; a filter that needs more is not understood.
const filterSteps = 20000

// value is a number that is known, or of which only some bits are: v where mask is set. It is none of those in not; nil for none.
type value struct {
	v, mask uint32
	not     *[]uint32
}

func exactly(v uint32) value { return value{v: v, mask: ^uint32(0)} }

func (a value) min() uint32 { return a.v & a.mask }
func (a value) max() uint32 { return a.v&a.mask | ^a.mask }

func (a value) known() bool { return a.mask == ^uint32(0) }

// may says whether it can be n.
func (a value) may(n uint32) bool {
	return (a.v^n)&a.mask == 0 && (a.not == nil || !slices.Contains(*a.not, n))
}

// cpu is the state of the classic BPF machine.
type cpu struct {
	pc   int
	a, x value
	mem  [16]value
}

// filterHarmless says whether a filter (an array of struct sock_filter) rejects every packet of some kinds that the fast path could
// forward, as a socket of the given type and protocol sees them.
func filterHarmless(raw []byte, typ byte, proto uint16, kinds []abstractPacket) bool {
	prog := make([]unix.SockFilter, len(raw)/8)
	for i := range prog {
		b := raw[8*i:]
		prog[i] = unix.SockFilter{Code: get16(b, 0), Jt: b[2], Jf: b[3], K: get32(b, 4)}
	}
	if len(prog) == 0 || len(raw)%8 != 0 {
		return false
	}
	base := 0
	if typ == unix.SOCK_DGRAM { // sees the packet from its network header on
		base = 14
	}
	for _, p := range kinds {
		if (proto == unix.ETH_P_ALL || p.ethertype.may(uint32(proto))) && mayAccept(prog, p, base) {
			return false
		}
	}
	return true
}

// mayAccept follows every way through the program; it says true when it gives up.
func mayAccept(prog []unix.SockFilter, p abstractPacket, base int) bool {
	steps := 0
	todo := []cpu{{}}
	todo[0].a, todo[0].x = exactly(0), exactly(0)
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for {
			if steps++; steps > filterSteps || c.pc >= len(prog) {
				return true
			}
			in := prog[c.pc]
			c.pc++
			if in.Code&7 == unix.BPF_RET {
				ret := exactly(in.K)
				if in.Code&0x18 == 0x10 { // A
					ret = c.a
				}
				if !ret.known() || ret.v != 0 {
					return true
				}
				break
			}
			if in.Code&7 == unix.BPF_JMP {
				if in.Code&0xf0 == unix.BPF_JA {
					c.pc += int(in.K)
					continue
				}
				yes, no := c.branch(in)
				if yes && no {
					other := c
					other.pc += int(in.Jf)
					todo = append(todo, other)
				}
				switch {
				case yes:
					c.pc += int(in.Jt)
				default:
					c.pc += int(in.Jf)
				}
				continue
			}
			if !c.step(in, p, base) {
				return true
			}
		}
	}
	return false
}

// branch says which ways a conditional jump can go.
func (c *cpu) branch(in unix.SockFilter) (yes, no bool) {
	k := exactly(in.K)
	if in.Code&unix.BPF_X != 0 {
		k = c.x
	}
	switch op := in.Code & 0xf0; {
	case op == unix.BPF_JEQ:
		if common := c.a.mask & k.mask; c.a.v&common != k.v&common || k.known() && !c.a.may(k.v) {
			return false, true
		}
		if c.a.known() && k.known() {
			return true, false
		}
	case op == unix.BPF_JSET && k.known():
		if c.a.v&c.a.mask&k.v != 0 {
			return true, false
		}
		if k.v&^c.a.mask == 0 {
			return false, true
		}
	case op == unix.BPF_JGT && k.known():
		return c.a.max() > k.v, c.a.min() <= k.v
	case op == unix.BPF_JGE && k.known():
		return c.a.max() >= k.v, c.a.min() < k.v
	}
	return true, true
}

// step runs an instruction that is neither jump nor return; false if it is not understood.
func (c *cpu) step(in unix.SockFilter, p abstractPacket, base int) bool {
	switch in.Code & 7 {
	case unix.BPF_LD, unix.BPF_LDX:
		v, ok := c.load(in, p, base)
		if !ok {
			return false
		}
		if in.Code&7 == unix.BPF_LD {
			c.a = v
		} else {
			c.x = v
		}
	case unix.BPF_ST, unix.BPF_STX:
		if in.K >= uint32(len(c.mem)) {
			return false
		}
		if in.Code&7 == unix.BPF_ST {
			c.mem[in.K] = c.a
		} else {
			c.mem[in.K] = c.x
		}
	case unix.BPF_ALU:
		k := exactly(in.K)
		if in.Code&unix.BPF_X != 0 {
			k = c.x
		}
		c.a = alu(in.Code&0xf0, c.a, k)
	case unix.BPF_MISC:
		if in.Code&0xf8 == unix.BPF_TAX {
			c.x = c.a
		} else {
			c.a = c.x
		}
	}
	return true
}

func alu(op uint16, a, k value) value {
	if op == unix.BPF_AND { // bits that either side forces to zero are known
		zero := a.mask&^a.v | k.mask&^k.v
		return value{v: a.v & k.v, mask: a.mask&k.mask | zero}
	}
	if op == unix.BPF_RSH && k.known() && k.v < 32 {
		return value{v: a.v >> k.v, mask: a.mask>>k.v | ^(^uint32(0) >> k.v)}
	}
	if op == unix.BPF_LSH && k.known() && k.v < 32 {
		return value{v: a.v << k.v, mask: a.mask<<k.v | (1<<k.v - 1)}
	}
	if !a.known() || !k.known() {
		return value{}
	}
	switch op {
	case unix.BPF_ADD:
		return exactly(a.v + k.v)
	case unix.BPF_SUB:
		return exactly(a.v - k.v)
	case unix.BPF_MUL:
		return exactly(a.v * k.v)
	case unix.BPF_OR:
		return exactly(a.v | k.v)
	case unix.BPF_XOR:
		return exactly(a.v ^ k.v)
	}
	return value{}
}

// Ancillary loads (SKF_AD_*) lie at negative offsets from here.
const skfAdOff = 0xfffff000

func (c *cpu) load(in unix.SockFilter, p abstractPacket, base int) (value, bool) {
	size := map[uint16]int{unix.BPF_W: 4, unix.BPF_H: 2, unix.BPF_B: 1}[in.Code&0x18]
	switch in.Code & 0xe0 {
	case unix.BPF_IMM:
		return exactly(in.K), true
	case unix.BPF_MEM:
		if in.K >= uint32(len(c.mem)) {
			return value{}, false
		}
		return c.mem[in.K], true
	case unix.BPF_LEN:
		return value{}, true
	case unix.BPF_MSH: // X = 4 * (byte & 15): the length of an IPv4 header
		b := p.bytes(base+int(in.K), 1)
		return alu(unix.BPF_LSH, alu(unix.BPF_AND, b, exactly(15)), exactly(2)), true
	case unix.BPF_ABS:
		if in.K >= skfAdOff {
			return p.ancillary(in.K - skfAdOff), true
		}
		if in.K >= 1<<31 { // SKF_NET_OFF, SKF_LL_OFF
			return value{}, true
		}
		return p.bytes(base+int(in.K), size), true
	case unix.BPF_IND:
		if !c.x.known() || in.K >= 1<<31 || c.x.v >= 1<<16 {
			return value{}, true
		}
		return p.bytes(base+int(in.K)+int(c.x.v), size), true
	}
	return value{}, false
}
