// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// What the fast path counts for rules of legacy tables stands in Linux's own counters, whatever becomes of the daemon or the rules, and never twice.
func TestLegacyCountersAreLinuxs(t *testing.T) {
	for _, c := range []struct {
		hook     graph.Hook
		tool     string
		src, dst string
	}{
		{graph.XDP, "iptables-legacy", "10.0.0.2", lab.V4Prefixes(1).Host(0, 9).String()},
		{graph.TC, "ip6tables-legacy", "fd00::2", lab.V6Prefixes(1).Host(0, 9).String()},
	} {
		t.Run(string(c.hook), func(t *testing.T) {
			n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), V6: lab.V6Prefixes(50), Receive: lab.ReceiveGRO})
			dut := n.Node(lab.Dut)
			run := func(format string, args ...any) {
				t.Helper()
				if err := dut.Exec(c.tool+" -w "+format, args...); err != nil {
					t.Fatal(err)
				}
			}
			run("-A FORWARD -d %s -j ACCEPT", c.dst)
			wire, err := n.Port(lab.Src, "tx").Wire()
			if err != nil {
				t.Fatal(err)
			}
			defer wire.Close()
			frame := n.Port(lab.Src, "tx").Flow(c.src, c.dst).UDP("12345678")
			send := func(packets int) {
				t.Helper()
				for range packets {
					if err := wire.Send(frame); err != nil {
						t.Fatal(err)
					}
				}
			}
			count := func() (packets, bytes int) {
				t.Helper()
				text, err := dut.Output("%s-save -c -t filter", c.tool)
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(text) {
					if strings.Contains(line, "-A FORWARD -d "+c.dst) {
						fmt.Sscanf(line, "[%d:%d]", &packets, &bytes)
					}
				}
				return packets, bytes
			}
			length := len(frame) - 14
			becomes := func(what string, want int) {
				t.Helper()
				var packets, bytes int
				for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
					if packets, bytes = count(); packets == want && bytes == want*length {
						return
					}
					if time.Now().After(end) {
						t.Fatalf("%s: the rule shows %d packets, %d bytes, want %d, %d", what, packets, bytes, want, want*length)
					}
				}
			}
			pins := t.TempDir() + "/bpf"
			t.Cleanup(func() { detachAll(t, n, pins) })
			d := startChild(t, n, pins, c.hook)
			send(100)
			becomes("in use", 100)

			d.signal(syscall.SIGSTOP)
			send(20)
			if packets, _ := count(); packets != 100 {
				t.Errorf("with the daemon stopped Linux counts %d packets more: they were not fast", packets-100)
			}
			d.signal(syscall.SIGCONT)
			becomes("stopped for a while", 120)

			send(10)
			run("-I FORWARD -d %s -p tcp", c.dst)
			becomes("with a rule before it", 130)
			send(10)
			becomes("at its new place", 140)

			run("-Z FORWARD")
			send(5)
			becomes("set to zero", 5)
			time.Sleep(reconcileEvery + 200*time.Millisecond)
			becomes("a period later", 5)

			send(50)
			d.end(syscall.SIGKILL)
			left, _ := count()
			if left < 5 || left > 55 {
				t.Errorf("after a crash the rule shows %d packets, of which 5 had been given to Linux and 50 sent since", left)
			}
			d = startChild(t, n, pins, c.hook)
			send(10)
			becomes("after a crash", left+10)

			send(10)
			d.end(syscall.SIGTERM)
			if packets, _ := count(); packets != left+20 {
				t.Errorf("after the end the rule shows %d packets, want %d", packets, left+20)
			}
		})
	}
}
