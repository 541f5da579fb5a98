// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/shuntnet/shunt/internal/model"
)

// switches is a kernel whose files below /proc/sys/net all say 0, but for those that begin so.
type switches struct {
	kernel
	missing, empty string
}

func (k switches) file(path string) (string, error) {
	switch f := strings.TrimPrefix(path, "/proc/sys/net/"); {
	case k.missing != "" && strings.HasPrefix(f, k.missing):
		return "", fs.ErrNotExist
	case k.empty != "" && strings.HasPrefix(f, k.empty):
		return "", nil
	}
	return "0", nil
}

// TestHiddenSwitches: a switch that every kernel has and that cannot be seen is not one that the kernel lacks: rp_filter, say, would be taken for off.
func TestHiddenSwitches(t *testing.T) {
	for name, c := range map[string]struct {
		kernel switches
		faults int
	}{
		"all are there":                         {switches{}, 0},
		"something is mounted over /proc/sys":   {switches{missing: "ipv"}, 1},
		"and over one of them":                  {switches{missing: "ipv4/conf/all/rp_filter"}, 1},
		"a container engine masks one":          {switches{empty: "ipv4/conf/all/rp_filter"}, 1},
		"no IPv6":                               {switches{missing: "ipv6/"}, 0},
		"no br_netfilter":                       {switches{missing: "bridge/"}, 0},
		"no multipath routes (CONFIG_IP_ROUTE…": {switches{missing: "ipv4/fib_multipath"}, 0},
	} {
		r := newReader(Options{}, c.kernel)
		r.readSysctl(&model.Network{})
		if got := r.faults[Sysctl]; len(got) != c.faults {
			t.Errorf("%s: %v, want %d faults", name, got, c.faults)
		}
	}
}
