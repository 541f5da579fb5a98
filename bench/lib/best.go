// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"math"
)

// bestSize is struct best_sampler of bpf/best.h.
const bestSize = 16 + 8*256

// bestSampler is that struct, which takes with a probability: as the C file says, an alias table (Vose's way) of how many to pass over.
func bestSampler(probability float64) []byte {
	raw := make([]byte, bestSize)
	binary.NativeEndian.PutUint64(raw, 0x2545f4914f6cdd1d)
	binary.NativeEndian.PutUint32(raw[12:], uint32(math.Round(256/probability)))
	const places = 256
	var chance [places]float64 // times places: 1 on average
	rest := float64(places)
	for i := range places - 1 {
		chance[i] = rest * probability
		rest -= chance[i]
	}
	chance[places-1] = rest // this many or more
	var small, large []int
	for i, c := range chance {
		if c < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	set := func(i, other int) {
		at := raw[16+8*i:]
		binary.NativeEndian.PutUint32(at, uint32(min(math.Round(chance[i]*(1<<32)), math.MaxUint32)))
		at[4], at[5] = byte(other), byte(i)
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		set(s, l)
		if chance[l] -= 1 - chance[s]; chance[l] < 1 {
			small, large = append(small, l), large[:len(large)-1]
		}
	}
	for _, i := range append(small, large...) { // 1, but for rounding
		set(i, i)
	}
	return raw
}
