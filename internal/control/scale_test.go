// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// resident is the process's resident memory in MiB.
func resident(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			return kib / 1024
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// Routes are read live by the data path; a hundred thousand more must cost neither the daemon's memory nor its way of reacting.
func TestManyRoutesCostNoMemory(t *testing.T) {
	r := newRig(t, graph.TC)
	dst := lab.V4Prefixes(1).Host(3, 9).String()
	r.leaves("before", dst, reason.Fast, true)
	runtime.GC()
	debug.FreeOSMemory()
	before := resident(t)
	more := lab.Prefixes{First: netip.MustParsePrefix("18.0.0.0/24"), Count: 100_000}
	if err := r.net.Node(lab.Dut).AddRoutes(more, "via 10.0.1.2 dev out"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	r.leaves("after", dst, reason.Fast, true)
	runtime.GC()
	debug.FreeOSMemory()
	if grown := resident(t) - before; grown > 40 {
		t.Errorf("100k routes cost %.0f MiB", grown)
	}
	r.exec("ip addr add 192.0.2.1/32 dev out") // a change makes the next round
	time.Sleep(100 * time.Millisecond)
	if s := r.engine.State(); s.Network.Routes.Count4 < 100_000 {
		t.Errorf("the model counts %d routes; %+v", s.Network.Routes.Count4, s.Reader)
	}
}
