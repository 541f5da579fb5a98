// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// crowd are TCP connections through a router that take turns, packet by packet.
type crowd struct {
	*tracker
	says [2][]lab.Shot // what either side repeats: each time it is the other's turn, so Linux sees no repetition
}

// newCrowd has that many connections begin.
func newCrowd(w *twin, many int) *crowd {
	w.Helper()
	c := &crowd{tracker: &tracker{twin: w}}
	say := func(server bool, i int, tcp layers.TCP) lab.Shot {
		port, f := "w0", w.flow("w0", "10.0.0.2", "10.0.1.2")
		f.SrcPort, f.DstPort = uint16(10000+i), 80
		if server {
			port, f = "w1", w.flow("w1", "10.0.1.2", "10.0.0.2")
			f.SrcPort, f.DstPort = 80, uint16(10000+i)
		}
		tcp.SrcPort, tcp.DstPort, tcp.Window = layers.TCPPort(f.SrcPort), layers.TCPPort(f.DstPort), 60000
		return lab.Shot{Port: w.net.Port("wire", port), Frame: f.Carry(&tcp)}
	}
	var calls, answers []lab.Shot
	for i := range many {
		calls = append(calls, say(false, i, layers.TCP{SYN: true, Seq: 100}))
		answers = append(answers, say(true, i, layers.TCP{SYN: true, ACK: true, Seq: 500, Ack: 101}))
		c.says[0] = append(c.says[0], say(false, i, layers.TCP{ACK: true, Seq: 101, Ack: 501}))
		c.says[1] = append(c.says[1], say(true, i, layers.TCP{ACK: true, Seq: 501, Ack: 101}))
	}
	c.fire(calls)
	c.fire(answers)
	return c
}

func (c *crowd) fire(shots []lab.Shot) {
	c.Helper()
	for part := range slices.Chunk(shots, 256) {
		if err := c.wire.Fire(part...); err != nil {
			c.Fatal(err)
		}
	}
	c.sinks.Take(len(shots), quiet)
}

// round has each side of each connection say something, and counts what was fast.
func (c *crowd) round() int {
	c.Helper()
	before := c.fast()
	c.fire(c.says[0])
	c.fire(c.says[1])
	return int(c.fast() - before)
}

// becomeFast has them speak until all are fast, some rounds at most.
func (c *crowd) becomeFast(rounds int) {
	c.Helper()
	for n := range rounds {
		fast := c.round()
		if fast == 2*len(c.says[0]) {
			c.Logf("all fast after %d packets of either side", n)
			return
		}
		if n == rounds-1 {
			c.Errorf("after %d packets of either side %d of %d are fast: %v", n, fast, 2*len(c.says[0]), c.counters())
		}
	}
}

// dropsInvalid tracks, and drops what is invalid.
const dropsInvalid = "nft add table ip t { chain p { type nat hook postrouting priority srcnat; }; chain f { type filter hook forward priority filter; ct state invalid drop; }; }"

// Very many connections are all marked soon, though they share the slots in which their packets are counted, though the daemon is busy with something else for long, and though
// more are reported meanwhile than there is room for.
func TestManyConnectionsAreMarked(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			w := newTwin(t, 2, dropsInvalid)
			goOn := make(chan bool)
			release := sync.OnceFunc(func() { close(goOn) })
			defer release() // or the daemon never ends
			w.startWith(hook, func(o *Options) {
				o.trackSocket = func() (int, error) {
					<-goOn
					return unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
				}
			})
			c := newCrowd(w, 4096)
			for range 40 { // each is reported until there is no room, and again
				if fast := c.round(); fast > 0 {
					t.Errorf("%d packets were fast before any connection was marked", fast)
				}
			}
			release()
			c.becomeFast(100)
		})
	}
}

// Where Linux lets nobody mark connections they stay with it, which is told once as a warning; when it does again, they are fast.
func TestMarkingIsRefused(t *testing.T) {
	w := newTwin(t, 2, dropsInvalid)
	var log safeBuffer
	var mu sync.Mutex
	refused, asked := true, 0
	w.startWith(graph.TC, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.trackSocket = func() (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if asked++; refused {
				return -1, unix.EPERM
			}
			return unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		}
	})
	c := newCrowd(w, 5)
	for range 40 {
		if fast := c.round(); fast > 0 {
			t.Errorf("%d packets were fast though nothing was marked", fast)
		}
		time.Sleep(2 * time.Millisecond)
	}
	mu.Lock()
	if asked < 2 {
		t.Errorf("it was tried %d times", asked)
	}
	refused = false
	mu.Unlock()
	if n := strings.Count(log.String(), "level=WARN msg=\"TCP connections that Linux tracks stay with it"); n != 1 || !strings.Contains(log.String(), "operation not permitted") {
		t.Errorf("warned %d times:\n%s", n, log.String())
	}
	c.becomeFast(100)
}

// safeBuffer is a buffer that several write to.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
