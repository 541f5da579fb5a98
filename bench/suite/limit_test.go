// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
)

// A thread under a limit gets its share and no more; other work on the machine can only make that less.
func TestLimit(t *testing.T) {
	lab.RequireRoot(t)
	b := &Bench{}
	limit, err := b.NewLimit(0.2)
	if why, ok := asSkip(err); ok {
		t.Skip(why)
	}
	if err != nil {
		t.Fatal(err)
	}
	const took = 300 * time.Millisecond
	var used time.Duration
	err = <-limit.Pinned(0, func() error {
		for began := time.Now(); time.Since(began) < took; {
		}
		var u unix.Rusage
		err := unix.Getrusage(unix.RUSAGE_THREAD, &u)
		used = time.Duration(u.Utime.Nano() + u.Stime.Nano())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if used > took*3/10 {
		t.Errorf("%v of CPU time in %v, with a limit of a fifth", used, took)
	}
	if err := b.Undo(); err != nil {
		t.Errorf("removing the control group: %v", err)
	}
}
