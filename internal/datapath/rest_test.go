// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"log/slog"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/synth"
)

// Where thousands of packets in a row go to Linux the next are not looked at, but for a few, until one of those is fast. Who asks is told the truth all the while.
func TestRest(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) { testRest(t, hook) })
	}
}

func testRest(t *testing.T, hook graph.Hook) {
	const after, probe = 4096, 16 // bpf/include/rest.h
	n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), Receive: lab.ReceiveGRO})
	pins := t.TempDir() + "/bpf"
	err := n.Node(lab.Dut).Do(func() error {
		runtime.LockOSThread() // a CPU rests by itself
		defer runtime.UnlockOSThread()
		var was, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &was); err != nil {
			return err
		}
		one.Set(0)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		defer unix.SchedSetaffinity(0, &was)

		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.Default()})
		if err != nil {
			return err
		}
		defer d.Detach()
		net, g := handmade(n, hook)
		for i := range net.Links {
			net.Links[i].Kind = "" // a test run has nothing of veth's to look at
		}
		s, err := d.Snapshot(false)
		if err != nil {
			return err
		}
		if failures, err := d.Apply(synth.Build(net, g), &s); err != nil || len(failures) > 0 {
			t.Fatal(err, failures)
		}
		index := n.Port(lab.Dut, "in").Index
		good := n.Port(lab.Src, "tx").Flow("10.0.0.2", lab.V4Prefixes(1).Host(3, 9).String()).UDP("hello")
		slow := lab.Edited(good, lab.TTL(1))
		send := func(frame []byte, times int) (moved Counts) {
			t.Helper()
			before, _, err := d.Counters(index, hook)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := lab.TestRun(d.ports[hookKey{index, hook}].prog, index, frame, times); err != nil {
				t.Fatal(err)
			}
			now, _, err := d.Counters(index, hook)
			if err != nil {
				t.Fatal(err)
			}
			for i := range now {
				moved[i].Packets = now[i].Packets - before[i].Packets
			}
			return moved
		}
		expect := func(what string, moved Counts, want map[reason.Code]uint64) {
			t.Helper()
			for code := range reason.Count {
				if moved[code].Packets != want[code] {
					t.Errorf("%s: %d packets by %s, want %d", what, moved[code].Packets, code, want[code])
				}
			}
		}
		expect("a fast one resolves nothing", send(good, 1), map[reason.Code]uint64{reason.Fast: 1})
		expect("slow packets", send(slow, after-1), map[reason.Code]uint64{reason.TTL: after - 1})
		expect("one fast among them", send(good, 1), map[reason.Code]uint64{reason.Fast: 1})
		expect("as many again", send(slow, after), map[reason.Code]uint64{reason.TTL: after})
		expect("at rest", send(slow, 100*probe), map[reason.Code]uint64{reason.TTL: 100, reason.Resting: 100 * (probe - 1)})
		if tr, err := d.Explain(index, hook, slow); err != nil || tr.Reason != reason.TTL {
			t.Errorf("explained at rest as %s, %v", tr.Reason, err)
		}
		woken := Counts{}
		for range 3 * probe {
			for i, c := range send(good, 1) {
				woken[i].Packets += c.Packets
			}
		}
		expect("the end of it", woken, map[reason.Code]uint64{reason.Resting: 2 * (probe - 1), reason.Fast: probe + 2})
		expect("slow packets after it", send(slow, after), map[reason.Code]uint64{reason.TTL: after})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
