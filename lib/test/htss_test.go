// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// Operations of bpf/htss.bpf.c and results of <shunt/htss.h>.
const (
	htssAdd = iota
	htssPut
	htssLookup
	htssDelete

	htssChanged = 1
	htssEvicted = 2
	htssFull    = ^uint64(0)
	htssNoSet   = ^uint64(1)
)

// An htssTwin is the table entry by entry, without words and lanes.
type htssTwin struct {
	bucket [][16]struct{ print, set uint16 }
	n      int
}

func newHTSSTwin(buckets int) *htssTwin {
	return &htssTwin{bucket: make([][16]struct{ print, set uint16 }, buckets)}
}

// of returns the key's signature and buckets.
func (h *htssTwin) of(hash uint64) (print uint16, first, second uint32) {
	if print = uint16(hash >> 48); print == 0 {
		print = 1
	}
	mask := uint32(len(h.bucket) - 1)
	return print, uint32(hash) & mask, (uint32(hash) ^ (uint32(print)*0x5bd1e995 | 1)) & mask
}

func (h *htssTwin) free(bucket uint32) (n, lowest int) {
	lowest = -1
	for i := 15; i >= 0; i-- {
		if h.bucket[bucket][i].print == 0 {
			n++
			lowest = i
		}
	}
	return n, lowest
}

func (h *htssTwin) add(hash uint64, set uint16) uint64 {
	print, a, b := h.of(hash)
	n, at := h.free(a)
	if other, place := h.free(b); other > n {
		a, at = b, place
	}
	if at < 0 {
		return htssFull
	}
	h.bucket[a][at].print, h.bucket[a][at].set = print, set
	h.n++
	return 0
}

func (h *htssTwin) do(s step) uint64 {
	set := uint16(s.Arg)
	print, first, second := h.of(s.A)
	switch s.Op {
	case htssAdd:
		if set == 0 {
			return htssNoSet
		}
		return h.add(s.A, set)
	case htssPut:
		if set == 0 {
			return htssNoSet
		}
		for _, b := range []uint32{first, second} {
			for i, e := range h.bucket[b] {
				if e.print == print {
					h.bucket[b][i].set = set
					return htssChanged
				}
			}
		}
		if out := h.add(s.A, set); out != htssFull {
			return out
		}
		at := s.A >> 40 % 16
		h.bucket[first][at].print, h.bucket[first][at].set = print, set
		return htssEvicted
	case htssLookup:
		for _, b := range []uint32{first, second} {
			for _, e := range h.bucket[b] {
				if e.print == print {
					return uint64(e.set)
				}
			}
		}
		return 0
	}
	for _, b := range []uint32{first, second} {
		for i, e := range h.bucket[b] {
			if e.print == print && e.set == set {
				h.bucket[b][i].print = 0
				h.n--
				return 1
			}
		}
	}
	return 0
}

// htssHash makes a hash up: of few keys, so that they meet again; or of few signatures and buckets.
func htssHash(r *rand.Rand) uint64 {
	switch r.IntN(8) {
	case 0:
		return r.Uint64N(4)<<48 | r.Uint64N(3)
	case 1:
		return r.Uint64()
	}
	return hashU64(r.Uint64N(6000), 3)
}

// TestHTSS: tables of 4096 and of 16 entries answer as a twin without tricks does, filling up and emptying.
func TestHTSS(t *testing.T) {
	m := load(t, "htss", nil)
	twins := []*htssTwin{newHTSSTwin(256), newHTSSTwin(1)}
	results := map[uint64]int{}
	done := 0
	m.compare("htss", func(r *rand.Rand) (step, uint64, bool) {
		which := r.IntN(2)
		s := step{Op: htssLookup, A: htssHash(r), Arg: uint32(r.IntN(4))}
		switch n := r.IntN(10); {
		case n < 4 && done/100_000%2 == 0:
			s.Op = uint32(r.IntN(2))
		case n < 5:
			s.Op = htssDelete
		case n == 9:
			s.Op = uint32(r.IntN(4))
		}
		done++
		want := twins[which].do(s)
		if s.Op < 2 {
			results[want]++
		}
		s.Op |= uint32(which) << 2
		return s, want, true
	})
	for _, result := range []uint64{0, htssChanged, htssEvicted, htssFull, htssNoSet} {
		if results[result] < 100 {
			t.Errorf("%d additions gave %#x: not tested", results[result], result)
		}
	}
}

// TestHTSSError: keys that were added are found in their set, others as rarely as the header says; and the table fills as it says.
func TestHTSSError(t *testing.T) {
	m := load(t, "htss", nil)
	var steps []step
	for i := range uint64(4096) {
		steps = append(steps, step{Op: htssAdd, A: hashU64(i, 4), Arg: uint32(i%1000 + 1)})
	}
	full := len(steps)
	for i, s := range m.run("htss", steps) {
		if s.Out != 0 {
			full = i
			break
		}
	}
	if full < 4096*85/100 {
		t.Errorf("refused at a load of %.3f", float64(full)/4096)
	}
	t.Logf("refused at a load of %.3f", float64(full)/4096)
	m = load(t, "htss", nil)
	m.run("htss", steps[:full])
	for i := range steps {
		steps[i].Op = htssLookup
	}
	other := 0
	for _, s := range m.run("htss", steps[:full]) {
		switch s.Out {
		case uint64(s.Arg):
		case 0:
			t.Fatalf("%+v was forgotten", s)
		default:
			other++
		}
	}
	if other > full/200 {
		t.Errorf("%d of %d keys are in another's set", other, full)
	}
	const asked = 1_000_000
	strangers := make([]step, asked)
	for i := range strangers {
		strangers[i] = step{Op: htssLookup, A: hashU64(uint64(i)+1<<32, 4)}
	}
	wrong := 0.0
	for _, s := range m.run("htss", strangers) {
		if s.Out != 0 {
			wrong++
		}
	}
	want := 32 * float64(full) / 4096 / 65536 * asked
	if wrong < want/1.3 || wrong > want*1.3 {
		t.Errorf("%.0f of %d strangers were found, the header says %.0f", wrong, asked, want)
	}
	t.Logf("%.0f of %d strangers were found, the header says %.0f", wrong, asked, want)
}

// TestHTSSWhileWritten: keys that nobody touches are found in their set on one CPU, without the lock, while another CPU writes.
func TestHTSSWhileWritten(t *testing.T) {
	m := load(t, "htss", nil)
	const still = 500
	var steps []step
	for i := range uint64(still) {
		steps = append(steps, step{Op: htssAdd, A: hashU64(1<<40|i, 4), Arg: 7})
	}
	m.run("locked", steps)
	err := bothCPUs(func(cpu int) error {
		first := cpu * maxSteps / 2
		r := rand.New(rand.NewPCG(*seed, uint64(cpu)))
		for range 100 {
			mine := m.steps[first : first+maxSteps/2]
			for i := range mine {
				switch {
				case cpu == 0:
					mine[i] = step{Op: htssLookup, A: hashU64(1<<40|r.Uint64N(still), 4)}
				case r.IntN(2) == 0:
					mine[i] = step{Op: htssAdd, A: hashU64(r.Uint64N(2000), 4), Arg: 9}
				default:
					mine[i] = step{Op: htssDelete, A: hashU64(r.Uint64N(2000), 4), Arg: 9}
				}
			}
			if err := m.trySpan("locked", first, len(mine)); err != nil {
				return err
			}
			wrong := 0
			for _, s := range mine {
				if cpu == 0 && s.Out != 7 {
					wrong++
				}
			}
			if wrong > 20 { // of 2048: keys with the signature of another are 1 in 2000
				t.Errorf("%d lookups did not find their key's set", wrong)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHTSSBothCPUs: two CPUs put keys in and out under one lock, each its own, and look them up without it.
func TestHTSSBothCPUs(t *testing.T) {
	m := load(t, "htss", nil)
	// Keys of a CPU, so many that there is room for both; none with the signature of another, so that each answer is known.
	const half, each = maxSteps / 2, 1200
	var keys [2][]uint64
	signatures := map[uint64]bool{0: true}
	for i := uint64(0); len(keys[1]) < each; i++ {
		hash := hashU64(i, 4)
		if cpu := i & 1; !signatures[hash>>48] && len(keys[cpu]) < each {
			signatures[hash>>48] = true
			keys[cpu] = append(keys[cpu], hash)
		}
	}
	in := [2][]uint32{make([]uint32, each), make([]uint32, each)} // the set that a key is in
	err := bothCPUs(func(cpu int) error {
		r := rand.New(rand.NewPCG(*seed, uint64(cpu)))
		mine, want := m.steps[cpu*half:][:half], make([]uint64, half)
		for batch := range 120 {
			for i := range mine {
				key := r.IntN(each)
				s, was := step{Op: htssLookup, A: keys[cpu][key], Arg: 1 + r.Uint32N(65535)}, &in[cpu][key]
				switch {
				case r.IntN(3) == 0:
					want[i] = uint64(*was)
				case *was == 0:
					s.Op = htssAdd
					want[i], *was = 0, s.Arg
				case r.IntN(4) == 0 && s.Arg != *was: // of a set that it is not in
					s.Op = htssDelete
					want[i] = 0
				default:
					s.Op, s.Arg = htssDelete, *was
					want[i], *was = 1, 0
				}
				mine[i] = s
			}
			if err := m.trySpan("locked", cpu*half, half); err != nil {
				return err
			}
			for i, s := range mine {
				if s.Out != want[i] {
					return fmt.Errorf("CPU %d, batch %d, operation %d: %+v, want %#x", cpu, batch, i, s, want[i])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	entries := 0
	raw := m.value("shared")
	for bucket := range 256 {
		for place := range 16 {
			if binary.NativeEndian.Uint16(raw[64*bucket+2*place:]) != 0 {
				entries++
			}
		}
	}
	for _, sets := range in {
		for _, set := range sets {
			if set != 0 {
				entries--
			}
		}
	}
	if entries != 0 {
		t.Errorf("%d entries more than keys", entries)
	}
}
