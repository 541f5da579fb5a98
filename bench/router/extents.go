// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// extent says how much of what only a router has is measured.
type extent struct {
	routes []int         // sizes of the routing table
	lives  int           // rounds of each event in the daemon's life
	life   time.Duration // traffic around such an event
	gap    time.Duration // longest silence in which a stream still counts as flowing
}

// extents by the name of the size.
var extents = map[string]extent{
	"full":  {[]int{1, 50, 1000, 100_000, 1_000_000}, 5, 2 * time.Second, 10 * time.Millisecond},
	"quick": {[]int{1, 50, 1000, 100_000}, 1, time.Second, 10 * time.Millisecond},
	"smoke": {[]int{1, 50, 1000}, 1, 200 * time.Millisecond, time.Second},
}
