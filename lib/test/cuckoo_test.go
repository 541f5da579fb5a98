// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

const (
	cuckooFull     = 0xffffffff
	cuckooNew      = 0
	cuckooReplaced = 1
	absent         = ^uint64(0)
)

// TestCuckoo: a table answers as a Go map does, at every load and with keys that collide, and refuses only when it is nearly full or a
// key's two buckets are.
func TestCuckoo(t *testing.T) {
	m := load(t, "cuckoo", nil, "cuckoo_steps")
	type key struct {
		a    uint64
		lost uint32
	}
	twin := map[key]uint64{}
	var refused []key // by the program; taken out of the twin when a batch's answers are known
	var keys []key
	r := rand.New(rand.NewPCG(*seed, 6))
	fresh := func() key {
		k := key{a: r.Uint64N(1 << 13)}
		if r.IntN(64) == 0 {
			k.lost = 1
		}
		return k
	}
	fill, early, inserts := 0.0, 0, 0
	for done := 0; done < *operations; done += 1024 {
		// Waves: up to full, down to a third.
		wanted := 4300.0
		if done/300_000%2 == 1 {
			wanted = 1300
		}
		steps := make([]step, 1024)
		for i := range steps {
			k := fresh()
			if len(keys) > 0 && r.IntN(3) == 0 {
				k = keys[r.IntN(len(keys))]
			}
			s := step{A: k.a, Arg: k.lost, B: r.Uint64() >> 1}
			switch n := r.IntN(10); {
			case n < 4:
				s.Op = 1
			case float64(len(twin)) < wanted == (n < 8):
				s.Op = 0
			default:
				s.Op = 2
			}
			steps[i] = s
		}
		m.run("cuckoo_steps", steps)
		for i, s := range steps {
			k := key{s.A, s.Arg}
			was, there := twin[k]
			want := absent
			switch s.Op {
			case 0:
				want = cuckooNew
				if there {
					want = cuckooReplaced
				}
				if s.Out == cuckooFull && !there {
					if float64(len(twin))/4096 < 0.9 && k.lost == 0 {
						early++
					}
					refused = append(refused, k)
					continue
				}
				twin[k] = s.B
				inserts++
				fill = max(fill, float64(len(twin))/4096)
			case 1:
				if there {
					want = was
				}
			case 2:
				want = 0
				if there {
					want = 1
				}
				delete(twin, k)
			}
			if s.Out != want {
				t.Fatalf("operation %d (seed %d): %+v, the twin says %#x", done+i, *seed, s, want)
			}
		}
		keys = keys[:0]
		for k := range twin {
			if keys = append(keys, k); len(keys) == 256 {
				break
			}
		}
	}
	if fill < 0.95 {
		t.Errorf("the table was never fuller than %.3f", fill)
	}
	// Keys that lost their hash fill eight buckets and lead nowhere else: a key with both its buckets among these has no way out.
	if early > inserts/500 {
		t.Errorf("%d inserts were refused at a load below 0.9, %d went in", early, inserts)
	}
	if len(refused) == 0 {
		t.Error("nothing was ever refused: the full table was not tested")
	}
	// Everything that should be there is, and is there once.
	var steps []step
	for k := range twin {
		steps = append(steps, step{Op: 1, A: k.a, Arg: k.lost})
	}
	for _, s := range m.run("cuckoo_steps", steps) {
		if s.Out != twin[key{s.A, s.Arg}] {
			t.Fatalf("%+v, the twin says %#x", s, twin[key{s.A, s.Arg}])
		}
	}
	checkCuckooPlaces(t, m, "table", len(twin))
	t.Logf("fullest %.3f, %d inserts refused, %d of them early, of %d", fill, len(refused), early, inserts)
}

// checkCuckooPlaces: the table in a map has so many places taken.
func checkCuckooPlaces(t *testing.T, m *machine, name string, want int) {
	t.Helper()
	raw := m.value(name) // begins with the fingerprints
	places := 0
	for place := range 4096 {
		if binary.NativeEndian.Uint16(raw[2*place:]) != 0 {
			places++
		}
	}
	if places != want {
		t.Errorf("%d places are taken, for %d keys", places, want)
	}
}

// TestCuckooSingleBucket: both of a key's buckets are the same one; sixteen fit and no more.
func TestCuckooSingleBucket(t *testing.T) {
	m := load(t, "cuckoo", nil, "cuckoo_single")
	twin := map[uint64]uint64{}
	m.compare("cuckoo_single", func(r *rand.Rand) (step, uint64, bool) {
		s := step{Op: uint32(r.IntN(3)), A: uint64(r.IntN(24)), B: uint64(r.Uint32()), Arg: 1}
		was, there := twin[s.A]
		switch s.Op {
		case 0:
			switch {
			case there:
				twin[s.A] = s.B
				return s, cuckooReplaced, true
			case len(twin) == 16:
				return s, cuckooFull, true
			}
			twin[s.A] = s.B
			return s, cuckooNew, true
		case 1:
			if !there {
				return s, absent, true
			}
			return s, was, true
		}
		delete(twin, s.A)
		if there {
			return s, 1, true
		}
		return s, 0, true
	})
}

// TestCuckooWhileWritten: keys that nobody touches are found on one CPU while another fills the table and empties it.
func TestCuckooWhileWritten(t *testing.T) {
	m := load(t, "cuckoo", nil, "cuckoo_steps")
	const still = 500
	var steps []step
	for a := range uint64(still) {
		steps = append(steps, step{Op: 0, A: 1<<40 | a, B: a})
	}
	m.run("cuckoo_steps", steps)
	missed, wrong := 0, 0
	err := bothCPUs(func(cpu int) error {
		first := cpu * maxSteps / 2
		r := rand.New(rand.NewPCG(*seed, uint64(cpu)))
		for range 150 {
			mine := m.steps[first : first+maxSteps/2]
			for i := range mine {
				switch {
				case cpu == 0:
					a := r.Uint64N(still)
					mine[i] = step{Op: 1, A: 1<<40 | a}
				case r.IntN(5) < 3:
					mine[i] = step{Op: 0, A: r.Uint64N(4200), B: 7}
				default:
					mine[i] = step{Op: 2, A: r.Uint64N(4200)}
				}
			}
			if err := m.trySpan("cuckoo_steps", first, len(mine)); err != nil {
				return err
			}
			if cpu == 0 {
				for _, s := range mine {
					switch s.Out {
					case s.A &^ (1 << 40):
					case absent:
						missed++
					default:
						wrong++
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if wrong > 0 {
		t.Errorf("%d lookups of %d found another key's value", wrong, 150*maxSteps/2)
	}
	// A miss needs an entry to move behind a reader's back in both directions: the header says so, and that it is rare.
	if missed > 150*maxSteps/2/1000 {
		t.Errorf("%d lookups of %d missed a key that was there", missed, 150*maxSteps/2)
	}
	t.Logf("%d misses", missed)
}

// TestCuckooBothCPUs: two CPUs insert, look up and delete under one lock, each keys of its own.
func TestCuckooBothCPUs(t *testing.T) {
	m := load(t, "cuckoo", nil, "cuckoo_locked")
	const half, each = maxSteps / 2, 1600 // keys of a CPU, so that there is room for both: 78 % of all places
	twins := [2]map[uint64]uint64{{}, {}}
	var sources [2]*rand.Rand
	for cpu := range sources {
		sources[cpu] = rand.New(rand.NewPCG(*seed, uint64(cpu)))
	}
	err := bothCPUs(func(cpu int) error {
		r, twin := sources[cpu], twins[cpu]
		mine, want := m.steps[cpu*half:][:half], make([]uint64, half)
		for batch := range 120 {
			for i := range mine {
				s := step{Op: []uint32{0, 0, 0, 1, 1, 2}[r.IntN(6)], A: r.Uint64N(each)<<1 | uint64(cpu), B: r.Uint64() >> 1}
				was, there := twin[s.A]
				switch {
				case s.Op == 0:
					twin[s.A] = s.B
					want[i] = cuckooNew
					if there {
						want[i] = cuckooReplaced
					}
				case s.Op == 1:
					want[i] = was
					if !there {
						want[i] = absent
					}
				default:
					delete(twin, s.A)
					want[i] = 0
					if there {
						want[i] = 1
					}
				}
				mine[i] = s
			}
			if err := m.trySpan("cuckoo_locked", cpu*half, half); err != nil {
				return err
			}
			for i, s := range mine {
				if s.Out != want[i] {
					return fmt.Errorf("CPU %d, batch %d, operation %d: %+v, the twin says %#x", cpu, batch, i, s, want[i])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for a := range uint64(2 * each) {
		steps = append(steps, step{Op: 1, A: a})
	}
	for _, s := range m.run("cuckoo_locked", steps) {
		want, there := twins[s.A&1][s.A]
		if !there {
			want = absent
		}
		if s.Out != want {
			t.Fatalf("afterwards: %+v, the twin says %#x", s, want)
		}
	}
	checkCuckooPlaces(t, m, "shared", len(twins[0])+len(twins[1]))
}
