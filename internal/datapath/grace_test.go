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
	if third, err := s.take(100); err != nil || third.from != first.from {
		t.Errorf("room given up long ago: %v, %v", third, err)
	}
}
