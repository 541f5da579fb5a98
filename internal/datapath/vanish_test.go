// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// A device that vanishes between its event and being attached to is told as what it is, whatever the kernel says of it at each hook, and is not held on to.
func TestVanishedDevice(t *testing.T) {
	const nobody = 4711
	n := lab.BuildLineT(t, lab.LineOptions{})
	pins := t.TempDir() + "/bpf"
	err := n.Node(lab.Dut).Do(func() error {
		var log bytes.Buffer
		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			return err
		}
		defer d.Detach()
		for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
			if a, err := d.attach(&job{key: hookKey{nobody, hook}, prog: d.objects.pass}); a != nil || !errors.Is(err, unix.ENODEV) {
				t.Errorf("%s: %v", hook, err)
			}
		}
		key, hold := hookKey{nobody, graph.TC}, &pendingHold{}
		d.ports[key] = &attachment{hold: hold}
		d.taken(key, hold, nil, fmt.Errorf("attaching to tcx: %w", unix.ENODEV))
		if d.ports[key] != nil || !strings.Contains(log.String(), `level=INFO msg="a device has vanished before it could be attached to" ifindex=4711 hook=tc`) {
			t.Errorf("held: %t; log: %s", d.ports[key] != nil, &log)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
