// SPDX-License-Identifier: Apache-2.0

// Package functest puts an example on a real device and real packets through it.
//
// Problem: a program that answers well under BPF_PROG_TEST_RUN may still be refused by a driver, or read a frame that no wire ever has.
//
// Mechanism: a pair of veth devices in network namespaces of the test's own; the function sits on one end, frames are sent from the other.
//
// Invariant: everything ends with the test. Only the examples' tests import it.
package functest

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/examples/function"
)

// A Site is a function at work on device p0 of a namespace, and the far end of its wire.
type Site struct {
	t    testing.TB
	Net  *lab.Net
	Coll *ebpf.Collection
	Far  *lab.Port
}

// Attach loads the function and attaches it to a device of a new network.
func Attach(t testing.TB, f *function.Function) *Site {
	t.Helper()
	return AttachAll(t, f, 1)
}

// AttachAll is Attach for n devices, p0 and so on; the far ends are w0 and so on of node "wire".
func AttachAll(t testing.TB, f *function.Function, ports int) *Site {
	t.Helper()
	n := lab.BuildT(t, lab.Star(ports))
	var names []string
	for i := range ports {
		names = append(names, fmt.Sprintf("p%d", i))
	}
	coll, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(coll.Close)
	err = n.Node(lab.Dut).Do(func() error {
		links, err := f.AttachAll(coll, names)
		for _, l := range links {
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Errorf("detaching: %v", err)
				}
			})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &Site{t: t, Net: n, Coll: coll, Far: n.Port("wire", "w0")}
}

// Send sends frames to the function, a few hundred at a time so that none is lost.
func (s *Site) Send(frames ...[]byte) {
	s.t.Helper()
	for len(frames) > 0 {
		n := min(len(frames), 200)
		if err := s.Far.Send(frames[:n]...); err != nil {
			s.t.Fatal(err)
		}
		frames = frames[n:]
		time.Sleep(time.Millisecond)
	}
}

// Await waits until done says so, for five seconds.
func (s *Site) Await(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(5 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: not after five seconds", what)
		}
	}
}

// Main is the tests' main function: it removes the namespaces that killed runs left behind.
func Main(m *testing.M) int { return lab.Main(m) }
