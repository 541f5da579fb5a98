// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"testing"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// keyOf is the key that the test programs make of a step.
func keyOf(s step) (key []byte) {
	for _, v := range []uint64{s.A, s.B, s.A ^ s.B, ^s.A} {
		key = binary.LittleEndian.AppendUint64(key, v)
	}
	return key
}

// xxh32 is xxHash32 as its specification describes it, byte by byte.
func xxh32(key []byte, seed uint32) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h, rest := seed+p5, key
	if len(key) >= 16 {
		lanes := [4]uint32{seed, seed, seed, seed}
		lanes[0] += p1
		lanes[0] += p2
		lanes[1] += p2
		lanes[3] -= p1
		for ; len(rest) >= 16; rest = rest[16:] {
			for i := range lanes {
				lanes[i] += binary.LittleEndian.Uint32(rest[4*i:]) * p2
				lanes[i] = bits.RotateLeft32(lanes[i], 13) * p1
			}
		}
		h = 0
		for i, by := range [4]int{1, 7, 12, 18} {
			h += bits.RotateLeft32(lanes[i], by)
		}
	}
	h += uint32(len(key))
	for ; len(rest) >= 4; rest = rest[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(rest)*p3, 17) * p4
	}
	for _, b := range rest {
		h = bits.RotateLeft32(h+uint32(b)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}

// TestTwins: the twins themselves give what the algorithms' authors publish.
func TestTwins(t *testing.T) {
	for key, want := range map[string]uint32{"": 0x02cc5d05, "abc": 0x32d153ff} {
		if got := xxh32([]byte(key), 0); got != want {
			t.Errorf("xxHash32 of %q: %#x, want %#x", key, got, want)
		}
	}
	if got := crc32.Checksum([]byte("123456789"), castagnoli); got != 0xe3069283 {
		t.Errorf("CRC32c of 123456789: %#x", got)
	}
}

// crcTwin says what bpf/crc32c.bpf.c has to answer.
func crcTwin(s step) uint64 {
	key := keyOf(s)
	switch s.Op {
	case 6:
		return uint64(crc32.Update(s.Arg, castagnoli, key[:23]))
	case 7, 8, 9:
		return uint64(xxh32(key[:[]int{0, 3, 31}[s.Op-7]], s.Arg))
	}
	return uint64(crc32.Update(s.Arg, castagnoli, key[:[]int{0, 4, 8, 13, 16, 32}[s.Op]]))
}

// TestCRC32c: plain BPF gives what hash/crc32 gives, for a whole key and in pieces; and xxHash32 for the lengths that accel leaves out.
func TestCRC32c(t *testing.T) {
	m := load(t, "crc32c", nil)
	m.compare("crc32c", func(r *rand.Rand) (step, uint64, bool) {
		s := step{Op: uint32(r.IntN(10)), A: word(r), B: word(r), Arg: uint32(word(r))}
		return s, crcTwin(s), true
	})
}
