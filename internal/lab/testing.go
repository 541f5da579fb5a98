// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// TB is the part of testing.TB that this package uses, so that programs which
// are not tests can import it without the testing flags.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// RequireRoot skips the test, saying why, where networks cannot be made.
func RequireRoot(t TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root to make network namespaces; run it with sudo")
	}
}

// BuildT builds a topology for the length of a test, under names of its own.
func BuildT(t TB, top Topology) *Net {
	t.Helper()
	RequireRoot(t)
	return ownedBy(t)(Build(UniquePrefix(t.Name()), top))
}

// BuildLineT is [BuildLine] for the length of a test.
func BuildLineT(t TB, o LineOptions) *Net {
	t.Helper()
	RequireRoot(t)
	return ownedBy(t)(BuildLine(UniquePrefix(t.Name()), o))
}

func ownedBy(t TB) func(*Net, error) *Net {
	return func(n *Net, err error) *Net {
		t.Helper()
		if err != nil {
			t.Fatalf("building the network: %v", err)
		}
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Errorf("removing the network: %v", err)
			}
		})
		return n
	}
}

var prefixes atomic.Int64

// UniquePrefix returns a prefix for namespace names that no other call, in this
// or another process, returns: labPID-SERIAL-NAME-, with NAME cut to what helps a
// person who looks at `ip netns`.
func UniquePrefix(name string) string {
	short := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(strings.TrimPrefix(name, "Test"), ".")
	short = strings.ToLower(short[:min(len(short), 24)])
	return fmt.Sprintf("lab%d-%d-%s-", os.Getpid(), prefixes.Add(1), strings.Trim(short, "."))
}

var ownedName = regexp.MustCompile(`^lab([0-9]+)-[0-9]+-`)

// Leftovers returns the namespaces with names by [UniquePrefix] that the process
// made and has not removed.
func Leftovers(pid int) []string {
	return owned(func(owner int) bool { return owner == pid })
}

// Sweep removes the namespaces whose process has ended without doing so.
func Sweep() error {
	var errs []error
	for _, name := range owned(func(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }) {
		errs = append(errs, deleteNS(name))
	}
	return errors.Join(errs...)
}

func owned(match func(pid int) bool) []string {
	paths, _ := filepath.Glob(filepath.Join(netnsDir, "lab*"))
	var names []string
	for _, path := range paths {
		name := filepath.Base(path)
		if m := ownedName.FindStringSubmatch(name); m != nil {
			if pid, err := strconv.Atoi(m[1]); err == nil && match(pid) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Main is the body of a TestMain in packages that use networks:
//
//	func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }
//
// It removes what killed runs left, runs the tests, and fails if they leave
// namespaces themselves.
func Main(m interface{ Run() int }) int {
	if err := Sweep(); err != nil && os.Geteuid() == 0 {
		fmt.Fprintln(os.Stderr, "lab: sweeping:", err)
	}
	code := m.Run()
	if left := Leftovers(os.Getpid()); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "lab: namespaces left behind:", strings.Join(left, " "))
		return 1
	}
	return code
}
