// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/check"
	"github.com/shuntnet/shunt/internal/control"
)

// TestExitStatuses is the contract with scripts, for errors that a test cannot bring about as well as for those that scenarios do.
func TestExitStatuses(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
		show bool
	}{
		{errors.New("broken"), 1, true},
		{control.ErrAnother, 1, true},
		{fmt.Errorf("starting: %w", check.ErrPrivilege), 1, true},
		{usagef("what?"), 2, true},
		{fmt.Errorf("asking: %w", api.Errorf(api.KindUsage, "no such interface")), 2, true},
		{fmt.Errorf("%w: this kernel lacks multi-buffer XDP", check.ErrUnsupported), 3, true},
		{api.Errorf(api.KindUnsupported, "another protocol"), 3, true},
		{api.Errorf(api.KindNoDaemon, "nobody"), 4, true},
		{api.Errorf(api.KindFailed, "failed"), 1, true},
		{api.Errorf("a kind of the future", "failed"), 1, true},
		{silentError{3}, 3, false},
	} {
		if got, show := status(c.err); got != c.want || show != c.show {
			t.Errorf("%v: status %d, shown %v; want %d, %v", c.err, got, show, c.want, c.show)
		}
	}
}
