// SPDX-License-Identifier: Apache-2.0

package measure

import "fmt"

// Turn is one variant that waits for its turn: Run measures once and adds what it found to the set.
type Turn struct {
	Name string
	Run  func(*Set) error
}

// Turns lets every turn have one go in each round. The order is reversed in every other round, so that a drift of the machine
// does not favour whoever comes first. An error ends the whole, since a round with a hole could not be compared; before a
// round's first turn, more may end it too.
func Turns(set *Set, rounds int, turns []Turn, more func(round int, name string) bool) error {
	for round := range rounds {
		for i := range turns {
			t := turns[i]
			if round%2 == 1 {
				t = turns[len(turns)-1-i]
			}
			if !more(round, t.Name) && i == 0 {
				return nil
			}
			if err := t.Run(set); err != nil {
				return fmt.Errorf("measuring %s, round %d: %w", t.Name, round+1, err)
			}
		}
	}
	return nil
}
