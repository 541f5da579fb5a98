// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// quiet is how long a capture must see nothing to count as complete, and patience
// how long it waits for frames that are known to come: these tests run in parallel,
// on machines that may be emulated.
const (
	quiet    = 100 * time.Millisecond
	patience = 5 * time.Second
)

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// captureT captures at the ports for the length of the test.
func captureT(t *testing.T, ports ...*Port) *Capture {
	t.Helper()
	c, err := NewCapture(ports...)
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// take returns the captured frames that are not noise, of which n are expected.
func take(t *testing.T, c *Capture, n int) [][]byte {
	t.Helper()
	if n > 0 {
		_, err := c.Wait(n, patience)
		must(t, err)
	}
	frames, err := c.Take(0, quiet)
	must(t, err)
	var out [][]byte
	for _, f := range frames {
		if !Noise(f.Data) {
			out = append(out, f.Data)
		}
	}
	return out
}
