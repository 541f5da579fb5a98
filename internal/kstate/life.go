// SPDX-License-Identifier: Apache-2.0

package kstate

import "github.com/shuntnet/shunt/internal/model"

// lives tells devices apart that have the same ifindex one after the other (model.Link.Life). A host of containers sees millions of devices go, so those of long ago are forgotten
// together: what is new since then has a higher number than any of them.
type lives struct {
	gone  int         // devices seen to go
	of    map[int]int // by ifindex: what gone was when the last device with it went
	since int         // and for all others, when they were forgotten
}

// manyLives is how many are remembered beyond twice those that are there.
const manyLives = 1024

func (l *lives) end(index int) {
	l.gone++
	l.of[index] = l.gone
}

func (l *lives) life(index int) int {
	if life, ok := l.of[index]; ok {
		return life
	}
	return l.since
}

// forget leaves the devices that are there as they are.
func (l *lives) forget(links []*model.Link) {
	if len(l.of) <= 2*len(links)+manyLives {
		return
	}
	kept := make(map[int]int, len(links))
	for _, link := range links {
		kept[link.Index] = l.life(link.Index)
	}
	l.gone++
	l.of, l.since = kept, l.gone
}
