// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// fasthash is the published algorithm (Z. Tan, fast-hash) over bytes.
func fasthash(key []byte, seed uint64) uint64 {
	const m = 0x880355f21e6d1965
	mix := func(h uint64) uint64 {
		h ^= h >> 23
		h *= 0x2127599bf4325c37
		return h ^ h>>47
	}
	h := seed ^ uint64(len(key))*m
	for ; len(key) >= 8; key = key[8:] {
		h = (h ^ mix(binary.LittleEndian.Uint64(key))) * m
	}
	if len(key) > 0 {
		var rest [8]byte
		copy(rest[:], key)
		h = (h ^ mix(binary.LittleEndian.Uint64(rest[:]))) * m
	}
	return mix(h)
}

// lanesEqual is the match of fingerprints one by one.
func lanesEqual(words []uint64, width int, v uint64) (mask uint64) {
	for lane := range 16 {
		bit := lane * width
		if words[bit/64]>>(bit%64)&(1<<width-1) == v&(1<<width-1) {
			mask |= 1 << lane
		}
	}
	return mask
}

// below takes the top bit of all lanes of 16.
func below(words []uint64) []uint64 {
	for i := range words {
		words[i] &= 0x7fff7fff7fff7fff
	}
	return words
}

// spread puts lane l of word w to bit 16 l + 4 w + 3.
func spread(mask uint64) (hits uint64) {
	for w := range 4 {
		for l := range 4 {
			hits |= mask >> (4*w + l) & 1 << (16*l + 4*w + 3)
		}
	}
	return hits
}

// wordTwin says what bpf/words.bpf.c has to answer.
func wordTwin(s step) uint64 {
	w := []uint64{s.A, s.B, s.A ^ s.B, ^s.A}
	var key []byte
	for _, v := range w {
		key = binary.LittleEndian.AppendUint64(key, v)
	}
	switch s.Op {
	case 0:
		return uint64(bits.OnesCount64(s.A))
	case 1:
		return uint64(bits.OnesCount32(uint32(s.A)))
	case 2:
		return uint64(bits.TrailingZeros64(s.A))
	case 3:
		return uint64(bits.TrailingZeros32(uint32(s.A)))
	case 4:
		if s.A == 0 {
			return 0
		}
		return uint64(bits.TrailingZeros64(s.A)) + 1
	case 5:
		return uint64(bits.LeadingZeros64(s.A))
	case 6:
		return uint64(uint32(bits.Len64(s.A) - 1))
	case 7:
		return uint64(bits.RotateLeft32(uint32(s.A), int(s.Arg%32)))
	case 8:
		return bits.RotateLeft64(s.A, int(s.Arg%64))
	case 9:
		if s.A <= 1 {
			return 1
		}
		return 1 << bits.Len64(s.A-1) // 0 where that is 64
	case 10:
		return fasthash(key[:8], s.B)
	case 11:
		return fasthash(key[:4], s.B)
	case 12:
		return fasthash(key[:13], uint64(s.Arg))
	case 13:
		return fasthash(key[:16], uint64(s.Arg))
	case 14:
		return fasthash(key, uint64(s.Arg))
	case 15:
		return uint64(uint32(s.A) + s.Arg*(uint32(s.A>>32)|1))
	case 16:
		return lanesEqual(w, 8, uint64(s.Arg))
	case 17:
		return lanesEqual(w, 16, uint64(s.Arg))
	case 18:
		return lanesEqual(below(w), 16, uint64(s.Arg&0x7fff))
	case 19:
		return spread(lanesEqual(below(w), 16, uint64(s.Arg&0x7fff)))
	case 20:
		hits := spread(lanesEqual(below(w), 16, uint64(s.Arg&0x7fff)))
		if hits == 0 {
			return 16
		}
		return uint64(bits.TrailingZeros64(hits) / 4)
	}
	return ^uint64(0)
}

// word is random, or one that hurts: few bits, all bits, equal lanes, a carry's way through lanes.
func word(r *rand.Rand) uint64 {
	switch r.IntN(6) {
	case 0:
		return 0
	case 1:
		return ^uint64(0) >> r.IntN(64)
	case 2:
		return 1 << r.IntN(64)
	case 3:
		return uint64(r.IntN(3)) * 0x0001000100010001
	case 4:
		lanes := []uint64{0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff}
		var w uint64
		for lane := 0; lane < 64; lane += 16 {
			w |= lanes[r.IntN(len(lanes))] << lane
		}
		return w
	}
	return r.Uint64()
}

// TestWords: bits, hashes and matches give what their plain forms give.
func TestWords(t *testing.T) {
	m := load(t, "words", nil)
	m.compare("words", func(r *rand.Rand) (step, uint64, bool) {
		s := step{Op: uint32(r.IntN(21)), A: word(r), B: word(r), Arg: uint32(word(r))}
		if s.Op >= 16 && r.IntN(2) == 0 { // a fingerprint that is there
			s.Arg = uint32(s.A >> (16 * r.IntN(4)))
		}
		return s, wordTwin(s), true
	})
}
