// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/lib/capability"
)

// moduleFile is where test/vm puts a module for the kernel at hand; the test is skipped without.
func moduleFile(t *testing.T, name string) string {
	file := filepath.Join("..", "kmod", name)
	switch _, err := os.Stat(file); {
	case errors.Is(err, fs.ErrNotExist):
		t.Skipf("no %s for this kernel: `make test-vm-lib` builds it", name)
	case err != nil:
		t.Fatal(err)
	case os.Getenv("SHUNT_VM") == "":
		t.Skip("modules are loaded in the virtual machine only")
	}
	return file
}

// tryInsert loads the module and returns the error with what the kernel's log then says of it.
func tryInsert(t *testing.T, name, parameters string) (string, error) {
	t.Helper()
	log, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.Seek(0, 2); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(moduleFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	inserted := unix.FinitModule(int(file.Fd()), parameters, 0)
	var said []string
	buffer := make([]byte, 8192)
	for {
		n, err := unix.Read(int(log.Fd()), buffer) // a record each; EAGAIN after the last
		if err != nil {
			break
		}
		if _, line, ok := strings.Cut(string(buffer[:n]), ";"); ok {
			line, _, _ = strings.Cut(line, "\n")
			said = append(said, line)
		}
	}
	return strings.Join(said, "\n"), inserted
}

// insert loads the module for the rest of the test; on a kernel that it is not made for the test is skipped, after TestModuleRefuses.
func insert(t *testing.T, name string) {
	t.Helper()
	said, err := tryInsert(t, name, "")
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("this kernel is refused: %s", said)
	}
	if err != nil {
		t.Fatalf("loading the module: %v; the kernel says: %s", err, said)
	}
	t.Log(said)
	t.Cleanup(func() { remove(t) })
}

// remove unloads the module. What a closed program held is let go a little later.
func remove(t *testing.T) {
	t.Helper()
	var err error
	for range 200 {
		if err = unix.DeleteModule("shunt_lib", unix.O_NONBLOCK); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("unloading the module: %v", err)
}

// olderThan says whether this kernel is older than a version.
func olderThan(t *testing.T, major, minor int) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var have [2]int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &have[0], &have[1]); err != nil {
		t.Fatal(err)
	}
	return have[0] < major || have[0] == major && have[1] < minor
}

// TestModuleRefuses: a module that cannot serve does not load, and says why. Before Linux 6.12 that is any; elsewhere one without type information,
// which the kernel would take in silence, and one that is asked for nothing that this processor has.
func TestModuleRefuses(t *testing.T) {
	refused := func(name, parameters string, want error, because string) {
		t.Helper()
		said, err := tryInsert(t, name, parameters)
		if err == nil {
			remove(t)
		}
		if !errors.Is(err, want) || !strings.Contains(said, "shunt_lib: ") || !strings.Contains(said, because) {
			t.Errorf("%s %s: %v and %q, want %v because of %q", name, parameters, err, said, want, because)
		} else {
			t.Logf("%s %s: %v: %s", name, parameters, err, said)
		}
		if w, reasons := capability.Detect(); w != 0 || len(reasons) == 0 {
			t.Errorf("a refused module, and yet %v, %q", w, reasons)
		}
	}
	if olderThan(t, 6, 12) {
		refused("shunt_lib.ko", "", unix.EOPNOTSUPP, "6.12")
		return
	}
	refused("shunt_lib.ko", "capabilities=0", unix.ENODEV, "nothing")
	refused("shunt_lib-nobtf.ko", "", unix.ENOENT, "BTF")
}

// TestModulePart: a module that was told to leave a function out offers the others.
func TestModulePart(t *testing.T) {
	said, err := tryInsert(t, "shunt_lib.ko", "capabilities=5")
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("this kernel is refused: %s", said)
	}
	if err != nil {
		t.Fatalf("loading the module: %v; the kernel says: %s", err, said)
	}
	defer remove(t)
	w, reasons := capability.Detect()
	if w != capability.CRC32c|capability.Hash8 || len(reasons) != 1 || !strings.Contains(reasons[0], "match16x16") {
		t.Errorf("loaded without match16x16: %v, %q", w, reasons)
	}
}
