// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

// bare is a kernel with modules and without their folder. It stands on the running one for its symbols.
type bare struct {
	kernel
	unreadable bool
}

func (bare) file(path string) (string, error) {
	switch {
	case path == "/proc/modules":
		return "nvidia 1 0 - Live 0x0", nil
	case path == "/proc/sys/kernel/osrelease":
		return "6.18.0-own", nil
	}
	return "", fs.ErrNotExist
}

func (bare) list(string) ([]string, error) { return nil, fs.ErrNotExist }

func (b bare) builtin(functions []string) (map[string]bool, error) {
	if b.unreadable {
		return nil, errors.New("not permitted")
	}
	return b.kernel.builtin(functions)
}

// TestBuiltinWithoutList: without modules.builtin the kernel's symbols tell, and what cannot be told at all is a fault.
func TestBuiltinWithoutList(t *testing.T) {
	const every, none = "tcp_v4_rcv", "no_kernel_has_this"
	found, err := newLive().builtin([]string{every, none, functions["nf_tables"]})
	if err != nil || !found[every] || found[none] {
		t.Fatalf("built in are %v, %v", found, err)
	}
	r := newReader(Options{}, bare{kernel: newLive()})
	if got, want := r.loaded("nf_tables"), found[functions["nf_tables"]]; got != want {
		t.Errorf("nf_tables built in: %v, the kernel's symbols say %v", got, want)
	}
	if len(r.faults) != 0 {
		t.Errorf("faults: %v", r.faults)
	}
	r = newReader(Options{}, bare{unreadable: true})
	for n := 1; n <= 2; n++ {
		if r.loaded("nf_tables") {
			t.Error("taken for built in without a sign of it")
		}
		if f := r.faults[Netfilter]; len(f) != n || !strings.Contains(f[0].Err, "not permitted") {
			t.Errorf("faults after asking %d times: %v", n, f)
		}
	}
}
