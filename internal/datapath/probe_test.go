// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/lab"
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

// Without descriptors, or memory, nothing is found out about the kernel: a data path is not opened with less than the kernel offers, and one that is open asks again.
func TestShortageIsNoAnswer(t *testing.T) {
	lab.RequireRoot(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	set := func(limit unix.Rlimit) {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	without := func(do func()) { // what is open stays so
		t.Helper()
		set(unix.Rlimit{Cur: 3, Max: limit.Max})
		defer set(limit)
		do()
	}
	pins := t.TempDir() + "/bpf"
	err := lab.BuildLineT(t, lab.LineOptions{}).Node(lab.Dut).Do(func() error {
		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer d.Detach()
		mode := d.Features().Peek
		all := Needs{Conntrack: true, Sets: true, Bridges: true}
		without(func() {
			for what, probe := range map[string]func() error{
				"a flag of the lookup": func() error { _, err := fibFlag(1 << 2); return err },
				"tcx":                  func() error { _, err := haveTCX(); return err },
				"the guard":            func() error { _, err := peekMode(d.objects, true); return err },
			} {
				if err := probe(); !errors.Is(err, unix.EMFILE) {
					t.Errorf("without descriptors %s is found out: %v", what, err)
				}
			}
			d.Meet(all)
		})
		if f := d.Features(); f.Conntrack || f.Sets || f.Bridge {
			t.Errorf("without descriptors this is found: %+v", f)
		}
		d.Meet(all)
		if f := d.Features(); f.Conntrack || f.Sets || f.Bridge {
			t.Error("it is asked again at once")
		}
		d.short = time.Now().Add(-2 * meetAgain)
		d.Meet(all)
		var want Features
		want.knowConntrack(mustKernelTypes(t))
		if f := d.Features(); mode != bpfobj.PeekNone && (f.Conntrack != (want.lacksConntrack == nil) || !f.Sets || f.NoBridge == untried) {
			t.Errorf("a minute later this is found: %+v", f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func mustKernelTypes(t *testing.T) []*btf.Spec {
	t.Helper()
	kernel, err := kernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	return kernel
}
