// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// hashU64 is shunt_hash_u64().
func hashU64(key, seed uint64) uint64 {
	return fasthash(binary.LittleEndian.AppendUint64(nil, key), seed)
}

// A bloomTwin is a filter of bpf/bloom.bpf.c as a set of bits.
type bloomTwin struct {
	name     string
	log2bits int
	k        int
	blocked  bool
	set      map[uint64]bool
	added    map[uint64]bool
}

func bloomTwins() []*bloomTwin {
	twins := []*bloomTwin{
		{name: "word", log2bits: 6, k: 1}, {name: "classic", log2bits: 17, k: 7}, {name: "many", log2bits: 18, k: 16},
		{name: "line", log2bits: 9, k: 3, blocked: true}, {name: "blocked", log2bits: 17, k: 7, blocked: true},
	}
	for _, b := range twins {
		b.set, b.added = map[uint64]bool{}, map[uint64]bool{}
	}
	return twins
}

// places returns the numbers of a key's bits, as the header describes them.
func (b *bloomTwin) places(key uint64) (at []uint64) {
	h := hashU64(key, 1)
	mixed := h * 0x880355f21e6d1965
	mixed ^= mixed >> 23
	mixed *= 0x2127599bf4325c37
	mixed ^= mixed >> 47
	for i := range b.k {
		if b.blocked {
			lines := uint64(1) << (b.log2bits - 9)
			at = append(at, h%lines*512+mixed>>(9*i)%512)
		} else {
			at = append(at, uint64(uint32(h)+uint32(i)*(uint32(h>>32)|1))%(1<<b.log2bits))
		}
	}
	return at
}

func (b *bloomTwin) add(key uint64) {
	b.added[key] = true
	for _, at := range b.places(key) {
		b.set[at] = true
	}
}

func (b *bloomTwin) test(key uint64) uint64 {
	for _, at := range b.places(key) {
		if !b.set[at] {
			return 0
		}
	}
	return 1
}

// wrong is how often, by theory, a filter with n keys is wrong.
func (b *bloomTwin) wrong(n int) float64 {
	k := float64(b.k)
	if !b.blocked {
		return math.Pow(1-math.Exp(-k*float64(n)/float64(uint64(1)<<b.log2bits)), k)
	}
	// Putze, Sanders and Singler: the mean over lines that have i keys each, which is Poisson distributed.
	mean := float64(n) / float64(uint64(1)<<(b.log2bits-9))
	p, sum := math.Exp(-mean), 0.0
	for i := 1; i < 400; i++ {
		p *= mean / float64(i)
		sum += p * math.Pow(1-math.Pow(1-1.0/512, k*float64(i)), k)
	}
	return sum
}

// TestBloom: filters say what sets of bits say, and "yes" for everything that was added.
func TestBloom(t *testing.T) {
	m := load(t, "bloom", nil)
	twins := bloomTwins()
	yes, no := 0, 0
	m.compare("bloom", func(r *rand.Rand) (step, uint64, bool) {
		which := r.IntN(len(twins))
		b := twins[which]
		s := step{Op: 2, A: r.Uint64N(1 << 15)}
		if r.IntN(max(4, len(b.added)/(1<<b.log2bits/32+1)*100)) == 0 { // until it is well filled, and a little after that
			s.Op = uint32(r.IntN(2))
		}
		want := uint64(0)
		if s.Op < 2 {
			b.add(s.A)
		} else if want = b.test(s.A); want == 1 {
			yes++
		} else {
			no++
		}
		if s.Op == 2 && b.added[s.A] && want == 0 {
			t.Fatalf("%s: the twin forgot %#x", b.name, s.A)
		}
		s.Op |= uint32(which) << 2
		return s, want, true
	})
	if yes < *operations/10 || no < *operations/10 {
		t.Errorf("%d times yes and %d times no: too few of one", yes, no)
	}
}

// TestBloomError: filters are wrong as often as theory says, for keys that were never added.
func TestBloomError(t *testing.T) {
	for _, n := range []int{4000, 13107} { // 10 bits per key in 2^17
		m := load(t, "bloom", nil)
		for which, b := range bloomTwins() {
			if b.log2bits < 17 {
				continue
			}
			steps := make([]step, n)
			for i := range steps {
				steps[i] = step{Op: uint32(which) << 2, A: uint64(i)}
			}
			m.run("bloom", steps)
			const asked = 300_000
			steps = make([]step, asked)
			for i := range steps {
				steps[i] = step{Op: uint32(which)<<2 | 2, A: uint64(i) + 1<<32}
			}
			wrong := 0.0
			for _, s := range m.run("bloom", steps) {
				wrong += float64(s.Out)
			}
			want := b.wrong(n)
			if spread := 5*math.Sqrt(want*asked) + 0.1*want*asked + 1; math.Abs(wrong-want*asked) > spread {
				t.Errorf("%s with %d keys: %.0f of %d answers are wrong, theory says %.1f", b.name, n, wrong, asked, want*asked)
			}
			t.Logf("%s with %d keys: %.5f, theory %.5f", b.name, n, wrong/asked, want)
		}
	}
}

// TestBloomBothCPUs: two CPUs that add at once to the same words lose no bit and set no other. Rounds are short, since what one
// key loses another sets again.
func TestBloomBothCPUs(t *testing.T) {
	m := load(t, "bloom", nil)
	const each = maxSteps / 2
	keys := func(cpu, round int) uint64 { return uint64(round*2+cpu) << 32 }
	words := make([]uint64, 1<<11)
	for round := range 60 {
		m.put("blocked", make([]uint64, 1<<11))
		for i := range maxSteps {
			m.steps[i] = step{Op: 4<<2 | 1, A: keys(i/each, round) + uint64(i%each)/3} // some twice
		}
		var ready atomic.Int32
		err := bothCPUs(func(cpu int) error {
			for ready.Add(1); ready.Load() < 2; { // start at once: a round takes 0.1 ms
			}
			return m.trySpan("bloom", cpu*each, each)
		})
		if err != nil {
			t.Fatal(err)
		}
		b := bloomTwins()[4]
		for cpu := range 2 {
			for i := range uint64(each) {
				b.add(keys(cpu, round) + i/3)
			}
		}
		m.get("blocked", words)
		for i, w := range words {
			for bit := range 64 {
				if w>>bit&1 == 1 != b.set[uint64(64*i+bit)] {
					t.Fatalf("round %d: bit %d of word %d is %d", round, bit, i, w>>bit&1)
				}
			}
		}
	}
}
