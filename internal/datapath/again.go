// SPDX-License-Identifier: Apache-2.0

package datapath

import "time"

// again is when a program is tried once more that could not be had for want of memory or descriptors: each time a program is made that costs a CPU something, so the pause grows.
type again struct {
	next  time.Time
	pause time.Duration // 0: it is not tried again
}

const (
	firstAgain = 10 * time.Second
	lastAgain  = 10 * time.Minute
)

// after is what follows a failure. One that says something of the kernel or the program is not repeated.
func (a again) after(err error) again {
	if shortage(err) == nil {
		return again{}
	}
	pause := min(max(2*a.pause, firstAgain), lastAgain)
	return again{time.Now().Add(pause), pause}
}

func (a again) due() bool { return a.pause != 0 && !time.Now().Before(a.next) }
