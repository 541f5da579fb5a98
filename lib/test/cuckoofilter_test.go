// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"math/rand/v2"
	"testing"
)

// Operations of bpf/cuckoofilter.bpf.c and the result that matters.
const (
	filterInsert = iota
	filterLookup
	filterDelete
	filterCount

	filterFull  = ^uint64(0)
	filterOften = ^uint64(1)
)

// A print is all that a filter keeps of a key: its fingerprint and its two buckets.
type print struct {
	tag  uint16
	a, b uint32
}

// printOf sorts the buckets: which of them a key calls its first does not matter.
func printOf(hash uint64, buckets uint32) print {
	tag := uint16(hash >> 48)
	if tag == 0 {
		tag = 1
	}
	a := uint32(hash) % buckets
	b := (a ^ (uint32(tag)*0x5bd1e995 | 1)) % buckets
	return print{tag, min(a, b), max(a, b)}
}

// A filterTwin is a multiset of prints: where they lie and how they are moved is the filter's affair.
type filterTwin struct {
	buckets uint32
	has     map[print]int
	n       int
}

// do says what the filter has to answer to what it did; an insert may be refused, so the filter's own answer says whether it was.
func (f *filterTwin) do(s step) (want uint64) {
	p := printOf(s.A, f.buckets)
	switch s.Op & 3 {
	case filterInsert:
		if s.Out == filterFull {
			return filterFull
		}
		if f.has[p] >= 4 {
			return filterOften
		}
		f.has[p]++
		f.n++
	case filterLookup:
		if f.has[p] > 0 {
			return 1
		}
	case filterDelete:
		if f.has[p] > 0 {
			if f.has[p]--; f.has[p] == 0 {
				delete(f.has, p)
			}
			f.n--
			return 1
		}
	case filterCount:
		return uint64(f.n)
	}
	return 0
}

// TestCuckooFilter: at every load, and with keys that share fingerprints and buckets, the filter knows exactly the prints that were
// inserted and not deleted; it refuses only when it is nearly full, or the fifth of a kind.
func TestCuckooFilter(t *testing.T) {
	m := load(t, "cuckoofilter", nil, "cuckoofilter")
	f := &filterTwin{buckets: 1024, has: map[print]int{}}
	r := rand.New(rand.NewPCG(*seed, 14))
	var alive []uint64
	refused, early, often, homeless, fill := 0, 0, 0, 0, 0
	for done := 0; done < *operations; done += 1024 {
		wanted := 4200
		if done/100_000%2 == 1 {
			wanted = 2000
		}
		steps := make([]step, 1024)
		for i := range steps {
			s := step{Op: filterLookup, A: hashU64(r.Uint64N(1<<14), 5)}
			switch n := r.IntN(100); {
			case n == 0:
				s.A = r.Uint64N(2)<<48 | r.Uint64N(2) // few keys, often
			case n < 40 && len(alive) > 0:
				s.A = alive[r.IntN(len(alive))]
			}
			switch n := r.IntN(10); {
			case n < 4:
			case n < 8 == (f.n < wanted):
				s.Op = filterInsert
			default:
				s.Op = filterDelete
			}
			if r.IntN(100) == 0 {
				s.Op = filterCount
			}
			steps[i] = s
		}
		m.run("cuckoofilter", steps)
		for i, s := range steps {
			if s.Op == filterInsert && s.Out == filterFull {
				if refused++; f.n < 4096*80/100 { // keys that are there several times have less of a choice
					early++
				}
			}
			if s.Op == filterInsert && s.Out == filterOften {
				often++
			}
			if want := f.do(s); s.Out != want {
				t.Fatalf("operation %d (seed %d): %+v, the twin says %#x", done+i, *seed, s, want)
			}
			switch {
			case s.Op == filterInsert && s.Out == 0 && len(alive) < 4096:
				alive = append(alive, s.A)
			case s.Op == filterInsert && s.Out == 0:
				alive[r.IntN(len(alive))] = s.A
			}
			fill = max(fill, f.n)
		}
		raw := make([]byte, 16+8*1024)
		m.get("filter", raw)
		if raw[4] != 0 || raw[5] != 0 {
			homeless++
		}
		places := 0
		for at := 16; at < len(raw); at += 2 {
			if raw[at] != 0 || raw[at+1] != 0 {
				places++
			}
		}
		if raw[4] != 0 || raw[5] != 0 {
			places++
		}
		if places != f.n {
			t.Fatalf("after operation %d (seed %d) %d fingerprints are stored, the twin has %d", done, *seed, places, f.n)
		}
	}
	if fill < 4096*92/100 || homeless == 0 || often == 0 {
		t.Errorf("fullest %d of 4096, %d times with a homeless fingerprint, %d keys refused after four of their like: not tested", fill, homeless, often)
	}
	if early > 0 {
		t.Errorf("%d of %d refusals came at a load below 0.8", early, refused)
	}
	t.Logf("fullest %.3f, %d refused", float64(fill)/4096, refused)
}

// TestCuckooFilterSingleBucket: four places and the homeless one, no more, and a deletion makes room.
func TestCuckooFilterSingleBucket(t *testing.T) {
	m := load(t, "cuckoofilter", nil, "cuckoofilter")
	f := &filterTwin{buckets: 1, has: map[print]int{}}
	results := map[uint64]int{}
	m.compare("cuckoofilter", func(r *rand.Rand) (step, uint64, bool) {
		s := step{Op: 4 | uint32(r.IntN(4)), A: uint64(1+r.IntN(9)) << 48}
		if s.Op&3 == filterInsert && (f.n == 5) {
			s.Out = filterFull
		}
		want := f.do(s)
		s.Out = 0
		if s.Op&3 == filterInsert {
			results[want]++
		}
		return s, want, true
	})
	if results[0] == 0 || results[filterFull] == 0 {
		t.Errorf("%d inserts taken, %d refused: not tested", results[0], results[filterFull])
	}
}

// TestCuckooFilterError: a filter at its fullest is wrong as rarely as the header says.
func TestCuckooFilterError(t *testing.T) {
	m := load(t, "cuckoofilter", nil, "cuckoofilter")
	steps := make([]step, 4096)
	for i := range steps {
		steps[i] = step{Op: filterInsert, A: hashU64(uint64(i), 6)}
	}
	in := 0.0
	for _, s := range m.run("cuckoofilter", steps) {
		if s.Out == 0 {
			in++
		}
	}
	if in/4096 < 0.93 {
		t.Errorf("refused at a load of %.3f", in/4096)
	}
	const asked = 2_000_000
	strangers := make([]step, asked)
	for i := range strangers {
		strangers[i] = step{Op: filterLookup, A: hashU64(uint64(i)+1<<32, 6)}
	}
	wrong := 0.0
	for _, s := range m.run("cuckoofilter", strangers) {
		wrong += float64(s.Out)
	}
	want := 8 * in / 4096 / 65536 * asked
	if wrong < want/1.5 || wrong > want*1.5 {
		t.Errorf("%.0f of %d strangers were known, the header says %.0f", wrong, asked, want)
	}
	t.Logf("full at %.3f; %.0f of %d strangers were known, the header says %.0f", in/4096, wrong, asked, want)
}

// TestCuckooFilterBothCPUs: under a lock, two CPUs that insert and delete keys of their own lose none.
func TestCuckooFilterBothCPUs(t *testing.T) {
	m := load(t, "cuckoofilter", nil, "locked")
	var has [2]map[uint64]int
	err := bothCPUs(func(cpu int) error {
		mineNow := map[uint64]int{}
		has[cpu] = mineNow
		first := cpu * maxSteps / 2
		mine := m.steps[first : first+maxSteps/2]
		r := rand.New(rand.NewPCG(*seed, uint64(cpu)))
		for range 100 {
			there := map[uint64]int{} // so that nobody deletes what is another's
			for k, n := range mineNow {
				there[k] = n
			}
			for i := range mine {
				key := uint64(cpu)<<32 | r.Uint64N(1500)
				mine[i] = step{Op: filterInsert, A: hashU64(key, 6), B: key}
				if there[key] > 0 {
					mine[i].Op = filterDelete
					there[key]--
				}
			}
			if err := m.trySpan("locked", first, len(mine)); err != nil {
				return err
			}
			for _, s := range mine {
				switch {
				case s.Op == filterInsert && s.Out == 0:
					mineNow[s.B]++
				case s.Op == filterDelete && s.Out == 1:
					mineNow[s.B]--
				case s.Op == filterDelete:
					t.Errorf("key %#x was lost", s.B)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for _, keys := range has {
		for key, n := range keys {
			if n > 0 {
				steps = append(steps, step{Op: filterLookup, A: hashU64(key, 6), B: key})
			}
		}
	}
	if len(steps) < 500 {
		t.Errorf("only %d keys were left", len(steps))
	}
	for _, s := range m.run("locked", steps) {
		if s.Out != 1 {
			t.Errorf("key %#x is there and not known", s.B)
		}
	}
}
