// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"testing"

	"github.com/shuntnet/shunt/internal/model"
)

// TestLivesAreForgotten: however many devices come and go, few are remembered; those that are there stay the same devices, and no number that comes again is taken for an earlier one.
func TestLivesAreForgotten(t *testing.T) {
	l := lives{of: map[int]int{}}
	l.end(7) // another device has this number now
	there := []*model.Link{{Index: 2}, {Index: 7}}
	two, seven := l.life(2), l.life(7)
	last := map[int]int{}
	for i := range 100_000 {
		index := 10 + i%5000
		life := l.life(index)
		if before, known := last[index]; known && life == before {
			t.Fatalf("device %d with number %d has the life of the one before it, %d", i, index, life)
		}
		last[index] = life
		l.end(index)
		l.forget(there)
		if l.life(2) != two || l.life(7) != seven {
			t.Fatalf("after %d devices, those that are there have lives %d and %d, had %d and %d", i, l.life(2), l.life(7), two, seven)
		}
	}
	if most := manyLives + 2*len(there); len(l.of) > most {
		t.Errorf("%d lives are remembered, want %d at most", len(l.of), most)
	}
}
