// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/shuntnet/shunt/lib/geo"
)

// xorshift is the generator of rand.h (xorshift64*).
func xorshift(state *uint64) uint64 {
	x := *state
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*state = x
	return x * 0x2545f4914f6cdd1d
}

// put writes a value into the only entry of a map.
func (m *machine) put(name string, value any) {
	m.t.Helper()
	if err := m.coll.Maps[name].Update(uint32(0), value, ebpf.UpdateAny); err != nil {
		m.t.Fatalf("writing %s: %v", name, err)
	}
}

// get reads the only entry of a map.
func (m *machine) get(name string, value any) {
	m.t.Helper()
	if err := m.coll.Maps[name].Lookup(uint32(0), value); err != nil {
		m.t.Fatalf("reading %s: %v", name, err)
	}
}

// TestRand: the generator gives the published sequence, and numbers below n are below n and all of them.
func TestRand(t *testing.T) {
	m := load(t, "rand", nil)
	var seen [7]int
	m.compare("rand_steps", func(r *rand.Rand) (step, uint64, bool) {
		s := step{Op: uint32(r.IntN(2)), A: r.Uint64() | 1, Arg: 7}
		state := s.A
		want := xorshift(&state)
		if s.Op == 1 {
			want = want >> 32 * 7 >> 32
			seen[want]++
		}
		return s, want, true
	})
	for i, n := range seen {
		if n == 0 {
			t.Errorf("%d never came", i)
		}
	}
}

// TestGeometric: draws have the distribution's mean, variance and single probabilities, also where the table ends and the draw is repeated.
func TestGeometric(t *testing.T) {
	m := load(t, "rand", nil)
	for _, p := range []float64{0.5, 0.1, 0.02, 0.002} {
		m.put("geo", geo.NewTable(p))
		const draws = 1 << 18
		r := rand.New(rand.NewPCG(*seed, 2))
		steps := make([]step, draws)
		for i := range steps {
			steps[i] = step{Op: 2, A: r.Uint64() | 1}
		}
		m.run("rand_steps", steps)
		var sum, squares float64
		zero, tail := 0, 0
		for _, s := range steps {
			v := float64(s.Out)
			sum += v
			squares += v * v
			if s.Out == 0 {
				zero++
			}
			if s.Out >= 300 { // beyond one table
				tail++
			}
		}
		mean, wantMean := sum/draws, (1-p)/p
		deviation := math.Sqrt(1-p) / p
		if limit := 5 * deviation / math.Sqrt(draws); math.Abs(mean-wantMean) > limit {
			t.Errorf("p=%v: mean %v, want %v within %v", p, mean, wantMean, limit)
		}
		if got := math.Sqrt(squares/draws - mean*mean); math.Abs(got/deviation-1) > 0.03 {
			t.Errorf("p=%v: standard deviation %v, want %v", p, got, deviation)
		}
		within := func(what string, got int, share float64) {
			if limit := 5*math.Sqrt(draws*share*(1-share)) + 1; math.Abs(float64(got)-draws*share) > limit {
				t.Errorf("p=%v: %s: %d of %d, want %v within %v", p, what, got, draws, draws*share, limit)
			}
		}
		within("no failure", zero, p)
		within("300 failures and more", tail, math.Pow(1-p, 300))
	}
}

// TestSampler: the share of packets sampled is the probability.
func TestSampler(t *testing.T) {
	m := load(t, "rand", nil)
	const p = 0.02
	m.put("geo", geo.NewTable(p))
	m.put("sampler", struct {
		State         uint64
		Skip, Padding uint32
	}{State: *seed})
	steps := make([]step, *operations)
	for i := range steps {
		steps[i].Op = 3
	}
	taken := 0
	for _, s := range m.run("rand_steps", steps) {
		taken += int(s.Out)
	}
	n := float64(len(steps))
	if limit := 5 * math.Sqrt(n*p*(1-p)); math.Abs(float64(taken)-n*p) > limit {
		t.Errorf("%d of %v packets, want %v within %v", taken, n, n*p, limit)
	}
}

// nth is shunt_hash_nth().
func nth(h uint64, i int) uint32 { return uint32(h) + uint32(i)*(uint32(h>>32)|1) }

// slice is the i-th slice of so many bits of a hash, as the rows of sketches take it.
func slice(h uint64, i, bits int) int {
	each := 48 / bits
	if word := i / each; word > 0 {
		h *= 0x9fb21c651e98df25 + uint64(word)*0x9e3779b97f4a7c16
	}
	return int(h >> (64 - bits*(i%each+1)) & (1<<bits - 1))
}

// A countMin is the sketch in plain Go.
type countMin struct {
	rows, log2cols int
	counter        []uint32
}

func newCountMin(rows, log2cols int) *countMin {
	return &countMin{rows, log2cols, make([]uint32, rows<<log2cols)}
}

func (c *countMin) at(hash uint64, i int) *uint32 {
	return &c.counter[i<<c.log2cols+slice(hash, i, c.log2cols)]
}

func (c *countMin) get(hash uint64) uint32 {
	least := ^uint32(0)
	for i := range c.rows {
		least = min(least, *c.at(hash, i))
	}
	return least
}

func saturated(c, n uint32) uint32 { return uint32(min(uint64(c)+uint64(n), math.MaxUint32)) }

func (c *countMin) add(hash uint64, n uint32, conservative bool) uint32 {
	now := saturated(c.get(hash), n)
	for i := range c.rows {
		at := c.at(hash, i)
		if !conservative {
			*at = saturated(*at, n)
		} else if *at < now {
			*at = now
		}
	}
	return now
}

// keyed is the hash of a key of eight bytes as the test programs take it.
func keyed(key, seed uint64) uint64 {
	var b [8]byte
	for i := range b {
		b[i] = byte(key >> (8 * i))
	}
	return fasthash(b[:], seed)
}

// TestCountMin: every counter's every answer, also of sketches that are full, is the twin's.
func TestCountMin(t *testing.T) {
	m := load(t, "cms", nil)
	twins := []*countMin{newCountMin(4, 10), newCountMin(4, 10), newCountMin(8, 2)}
	m.compare("cms_steps", func(r *rand.Rand) (step, uint64, bool) {
		s := step{Op: uint32(r.IntN(6)), A: uint64(r.ExpFloat64() * 300), Arg: uint32(r.IntN(4))}
		if s.Op == 4 && r.IntN(8) == 0 {
			s.Arg = r.Uint32() // the tiny one is soon full
		}
		twin, hash := twins[s.Op/2], keyed(s.A, 7)
		if s.Op%2 == 1 {
			return s, uint64(twin.get(hash)), true
		}
		now := twin.add(hash, s.Arg, s.Op == 2)
		if s.Op != 2 {
			now = 0
		}
		return s, uint64(now), true
	})
	got := make([]uint32, len(twins[0].counter))
	for i, name := range []string{"usual", "careful"} {
		m.get(name, got)
		if !slices.Equal(got, twins[i].counter) {
			t.Errorf("%s: counters differ from the twin's", name)
		}
	}
}

// TestCountMinBound: no answer is too low, and no more are too high than the bound allows; conservative update does better.
func TestCountMinBound(t *testing.T) {
	m := load(t, "cms", nil)
	r := rand.New(rand.NewPCG(*seed, 3))
	zipf := rand.NewZipf(r, 1.1, 1, 20000)
	truth := map[uint64]uint32{}
	const packets = 200_000
	var steps []step
	for range packets {
		key := zipf.Uint64()
		truth[key]++
		steps = append(steps, step{Op: 0, A: key, Arg: 1}, step{Op: 2, A: key, Arg: 1})
	}
	m.run("cms_steps", steps)
	steps = steps[:0]
	for key := range truth {
		steps = append(steps, step{Op: 1, A: key}, step{Op: 3, A: key})
	}
	bound := math.E * packets / 1024
	var beyond int
	var errors [2]float64
	for _, s := range m.run("cms_steps", steps) {
		over := float64(s.Out) - float64(truth[s.A])
		if over < 0 {
			t.Fatalf("key %d: %d counted, %d seen: too low", s.A, truth[s.A], s.Out)
		}
		errors[s.Op/2] += over
		if s.Op == 1 && over > bound {
			beyond++
		}
	}
	if limit := math.Exp(-4) * float64(len(truth)); float64(beyond) > limit {
		t.Errorf("%d of %d answers are too high by more than %v; the bound allows %v", beyond, len(truth), bound, limit)
	}
	if errors[1] > errors[0]/1.5 {
		t.Errorf("conservative update: errors of %v, without %v", errors[1], errors[0])
	}
}

// TestNitro: answers are right on average, and as near as the paper's bound says.
func TestNitro(t *testing.T) {
	m := load(t, "nitro", nil)
	for _, p := range []float64{1, 0.1, 0.02} {
		m.put("sketch", make([]byte, m.coll.Maps["sketch"].ValueSize()))
		m.put("geo", geo.NewTable(p))
		m.put("nitro", struct {
			State      uint64
			Skip, Step uint32
		}{*seed, 0, uint32(math.Round(256 / p))})
		r := rand.New(rand.NewPCG(*seed, 4))
		zipf := rand.NewZipf(r, 1.2, 1, 50000)
		truth := map[uint64]float64{}
		steps := make([]step, *operations)
		for i := range steps {
			key := zipf.Uint64()
			truth[key]++
			steps[i] = step{A: key}
		}
		taken := 0
		for _, s := range m.run("nitro_steps", steps) {
			taken += int(s.Out)
		}
		n := float64(len(steps))
		if share := 1 - math.Pow(1-p, 5); math.Abs(float64(taken)-n*share) > 5*math.Sqrt(n*share*(1-share))+1 {
			t.Errorf("p=%v: %d of %v packets were taken, want a share of %v", p, taken, n, share)
		}
		// Of a row: the variance of sampling, count * (1/p - 1), and of others in the column, F2 / columns (and their sampling's).
		var f2, sum float64
		for _, c := range truth {
			f2 += c * c
		}
		collisions := (f2 + n*(1/p-1)) / 4096
		steps = steps[:0]
		for key := range truth {
			steps = append(steps, step{Op: 1, A: key})
		}
		beyond := 0
		for _, s := range m.run("nitro_steps", steps) {
			estimate := float64(int32(uint32(s.Out))) / 256
			off := estimate - truth[s.A]
			sum += off
			if deviation := math.Sqrt(truth[s.A]*(1/p-1) + collisions); math.Abs(off) > 4*deviation+1 {
				beyond++
			}
		}
		// Outside four deviations is one of 16 rows at most (Chebyshev), so the median of five rows in fewer than one of 400.
		if limit := float64(len(truth)) / 400; float64(beyond) > limit {
			t.Errorf("p=%v: %d of %d answers beyond four deviations, at most %v may be", p, beyond, len(truth), limit)
		}
		if mean := sum / float64(len(truth)); math.Abs(mean) > math.Sqrt(collisions) {
			t.Errorf("p=%v: answers are off by %v on average", p, mean)
		}
	}
}

// loadNitroOfOne loads a sketch that counts every packet in every row.
func loadNitroOfOne(t *testing.T) *machine {
	m := load(t, "nitro", nil)
	m.put("geo", geo.NewTable(1))
	m.put("nitro", struct {
		State      uint64
		Skip, Step uint32
	}{1, 0, 256})
	return m
}

// TestNitroRange: what a probability of one counts is exact, also the mean of an even number of rows.
func TestNitroRange(t *testing.T) {
	m := loadNitroOfOne(t)
	steps := make([]step, 1000, 1003)
	for i := range steps {
		steps[i].A = 42
	}
	steps = append(steps, step{Op: 1, A: 42}, step{Op: 2, A: 42}, step{Op: 1, A: 43})
	out := m.run("nitro_steps", steps)[1000:]
	for i, want := range []uint64{1000 * 256, 1000 * 256, 0} {
		if out[i].Out != want {
			t.Errorf("answer %d is %d, want %d", i, out[i].Out, want)
		}
	}
}

// TestNitroWraps: a counter at its end goes on at the other one, and no other counter is touched.
func TestNitroWraps(t *testing.T) {
	m := loadNitroOfOne(t)
	const last, first = math.MaxInt32 - 127, math.MinInt32 + 128
	counters := make([]int32, 5<<12)
	for i := range counters {
		counters[i] = last
	}
	m.put("sketch", counters)
	m.run("nitro_steps", []step{{A: 42}, {A: 43}, {A: 44}})
	m.get("sketch", counters)
	wrapped, lowered := 0, 0
	for i, c := range counters {
		switch c {
		case last:
		case first:
			wrapped++
		case last - 256:
			lowered++
		default:
			t.Errorf("counter %d is %d", i, c)
		}
	}
	if wrapped == 0 || wrapped+lowered != 15 {
		t.Errorf("%d counters wrapped and %d were lowered, want 15 in all", wrapped, lowered)
	}
}
