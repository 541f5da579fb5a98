// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
)

// Rooms that were given up a moment ago are used again after running programs have ended, not after a time on a clock: a router whose
// rules change many times a second must not stand still.
func TestRoomsComeBackAfterRunningPrograms(t *testing.T) {
	lab.RequireRoot(t)
	now := time.Now()
	s := ruleStore{size: ruleHead + 4096, clock: func() time.Time { return now }}
	first, err := s.take(3000)
	if err != nil {
		t.Fatal(err)
	}
	s.free(first)
	second, err := s.take(3000)
	if err != nil {
		t.Fatalf("room that nobody reads any more: %v", err)
	}
	if second != (room{from: first.from, to: first.to}) {
		t.Errorf("took %v, not %v again", second, first)
	}
	if _, err := s.take(3000); err == nil {
		t.Error("took room that is in use")
	}
	if small, err := s.take(512); err != nil || small.from < second.to {
		t.Errorf("room beside what is in use: %v, %v", small, err)
	}
	s.free(second)
	now = now.Add(2 * graceTime)
	if third, err := s.take(200); err != nil || third.from != first.from {
		t.Errorf("room given up long ago: %v, %v", third, err)
	}
}

// Large images take each other's room by turns, whatever small ones come and go meanwhile: each has to fit beside the one that it replaces.
func TestSmallImagesAreOutOfTheWay(t *testing.T) {
	const large = 100_000
	now := time.Now()
	s := ruleStore{size: ruleHead + 2*large + large/2, clock: func() time.Time { return now }}
	take := func(n int) room {
		t.Helper()
		r, err := s.take(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range s.rooms {
			if other != r && other.from < r.to && r.from < other.to || r.from < ruleHead || r.to > s.size {
				t.Fatalf("%+v of %d bytes lies over %+v", r, s.size, other)
			}
		}
		return r
	}
	old := take(large)
	var over []room
	for i := range 50 {
		over = append(over, take(2000+i))
		next := take(large)
		over = append(over, take(500+i))
		s.free(old)
		old = next
		for len(over) > 6 {
			s.free(over[0])
			over = over[1:]
		}
		now = now.Add(2 * graceTime)
	}
}
