// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TestProbeFindsWhatTheKernelHas compares the probes with the versions in which the features came: a probe that always says no would only
// make shunt slower.
func TestProbeFindsWhatTheKernelHas(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	f, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	version := major*100 + minor
	for _, w := range []struct {
		what  string
		have  bool
		since int
		early bool // stable releases of older kernels may have it too: 6.1 got the flags up to SRC
	}{
		{"bpf_cast_to_kern_ctx", f.KernCtx, 602, false}, {"BPF_FIB_LOOKUP_SKIP_NEIGH", f.SkipNeigh, 603, true},
		{"xdp_features", f.XDPFeatures, 603, false}, {"tcx", f.TCX, 606, false}, {"BPF_FIB_LOOKUP_MARK", f.FibMark, 610, true},
	} {
		if w.have != (version >= w.since) && !(w.early && w.have) {
			t.Errorf("%s: found %v on Linux %d.%d, it came with %d.%d", w.what, w.have, major, minor, w.since/100, w.since%100)
		}
	}
}

// A kernel that is too old is told by what it lacks, and by what would help; a probe that could not be made is no such answer.
func TestKernelTooOld(t *testing.T) {
	err := lacks([]needed{
		{"one thing (Linux 5.10)", nil},
		{"another (Linux 5.14)", errors.New("no memory for a probe")},
		{"multi-buffer XDP (Linux 5.18)", fmt.Errorf("probing: %w", ebpf.ErrNotSupported)},
	})
	if want := "this kernel lacks multi-buffer XDP (Linux 5.18); shunt needs Linux 6.1 or newer"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := lacks([]needed{{"one thing (Linux 5.10)", nil}}); err != nil {
		t.Error(err)
	}
}
