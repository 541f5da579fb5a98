// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// twin is a router that first forwards alone and then with an engine: what it sends must be the same, and where it says so, fast.
type twin struct {
	*testing.T
	net    *lab.Net
	wire   *lab.Wire
	sinks  *lab.Capture
	engine *Engine
	hook   graph.Hook
	linux  map[string][]string // what left the router without an engine, by shot
}

// shot is one packet into the router.
type shot struct {
	name    string
	port    string // of the wire's namespace
	frame   []byte
	xdp, tc reason.Code
	unheard bool // no protocol of Linux takes such a frame
}

// slow in place of a reason is any but reason.Fast; nowhere means that no program of ours sees the packet.
const (
	slow    = reason.Count
	nowhere = reason.Count + 1
)

// newTwin builds a star of n ports and runs commands in the router, one to a line.
func newTwin(t *testing.T, n int, commands string) *twin { return newTwinOf(t, lab.Star(n), commands) }

func newTwinOf(t *testing.T, top lab.Topology, commands string) *twin {
	t.Helper()
	dut := top.Node(lab.Dut)
	// Devices that the commands make are to be as quiet as the ports, and every error that Linux answers with is to be seen.
	for _, s := range []string{"accept_dad=0", "router_solicitations=0", "accept_ra=0", "autoconf=0"} {
		dut.Sysctls = append(dut.Sysctls, "net.ipv6.conf.default."+s)
	}
	dut.Sysctls = append(dut.Sysctls, "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0", "net.ipv4.icmp_msgs_per_sec=100000")
	w := &twin{T: t, net: lab.BuildT(t, top), linux: map[string][]string{}}
	w.exec(commands)
	var ports []*lab.Port
	for _, p := range w.net.Ports() {
		if p.Node == "wire" {
			ports = append(ports, p)
		}
	}
	w.attachWire(ports...)
	var err error
	if w.sinks, err = lab.NewCapture(ports...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.sinks.Close() })
	return w
}

// attachWire makes the ports those that shots can be sent from. All have to be up.
func (w *twin) attachWire(ports ...*lab.Port) {
	w.Helper()
	wire, err := lab.NewWire(ports...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { wire.Close() })
	w.wire = wire
}

// exec runs commands in the router, one to a line; those of ip in batches.
func (w *twin) exec(commands string) {
	w.Helper()
	for _, line := range strings.Split(commands, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := w.net.Node(lab.Dut).Exec("%s", line); err != nil {
			w.Fatal(err)
		}
	}
}

// flow is a packet's addressing at a port of the wire.
func (w *twin) flow(port, src, dst string, vlans ...uint16) lab.Flow {
	f := w.net.Port("wire", port).Flow(src, dst)
	f.VLANs = vlans
	return f
}

// send sends a shot and gives what left the router for it, in order of ports.
func (w *twin) send(s shot, expect int) []string {
	w.Helper()
	w.wire.Unchecked = s.unheard
	if err := w.wire.Fire(lab.Shot{Port: w.net.Port("wire", s.port), Frame: s.frame}); err != nil {
		w.Fatalf("%s: %v", s.name, err)
	}
	var out []string
	for {
		want, limit := 1, 5*time.Second // one at a time as long as some must come: a host's own do not count
		if len(out) >= expect {
			if want, limit = 0, quiet; expect > 0 {
				limit = 20 * time.Millisecond // for one that must not come
			}
		}
		got, err := w.sinks.Take(want, limit)
		if err != nil {
			w.Fatal(err)
		}
		for _, f := range got {
			if !lab.Noise(f.Data) && !isSlowProtocol(f.Data) {
				data := withoutID(f.Data)
				out = append(out, fmt.Sprintf("%s %s\n%s", f.Port, lab.Describe(data), lab.Dump(data)))
			}
		}
		if want == 0 || len(got) == 0 {
			break
		}
	}
	slices.Sort(out)
	return out
}

// withoutID takes the identification out of IPv4 headers that the router itself wrote (ICMP errors, and what tunnels put around packets), and with it the checksum.
func withoutID(frame []byte) []byte {
	l3 := 14
	for len(frame) > l3 && (frame[l3-2] == 0x81 && frame[l3-1] == 0 || frame[l3-2] == 0x88 && frame[l3-1] == 0xa8) {
		l3 += 4
	}
	if len(frame) < l3+21 || frame[l3-2] != 8 {
		return frame
	}
	switch protocol := frame[l3+9]; {
	case protocol == 1 && (frame[l3+20] == 3 || frame[l3+20] == 11):
	case protocol == 4, protocol == 41, protocol == 47:
	default:
		return frame
	}
	frame = slices.Clone(frame)
	clear(frame[l3+4 : l3+6])
	clear(frame[l3+10 : l3+12])
	return frame
}

// isSlowProtocol says whether a frame is link aggregation's own (IEEE 802.3, annex 57A).
func isSlowProtocol(frame []byte) bool {
	return len(frame) > 13 && frame[12] == 0x88 && frame[13] == 0x09
}

// alone records what Linux does without shunt.
func (w *twin) alone(shots []shot) {
	w.Helper()
	w.sinks.Take(0, 100*time.Millisecond) // what was still under way
	for _, s := range shots {
		expect := 0
		if s.xdp == reason.Fast || s.tc == reason.Fast {
			expect = 1
		}
		w.linux[s.name] = w.send(s, expect)
	}
}

// start runs an engine until the end of the test.
func (w *twin) start(hook graph.Hook) { w.Helper(); w.startWith(hook, func(*Options) {}) }

// startWith runs one with other options than usual.
func (w *twin) startWith(hook graph.Hook, change func(*Options)) {
	w.Helper()
	w.hook = hook
	opts := Options{
		Namespace: "dut", NetnsPath: w.net.Node(lab.Dut).Path(), PinDir: w.TempDir() + "/bpf",
		Policy: graph.Policy{Hook: string(hook)}, Watchdog: watchdog, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	change(&opts)
	w.engine = New(opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.engine.Run(ctx) }()
	w.Cleanup(func() {
		w.engine.DetachOnStop()
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	select {
	case <-w.engine.Ready():
	case err := <-done:
		done <- err
		w.Fatal(err)
	case <-time.After(60 * time.Second):
		w.Fatal("the engine was not ready in a minute")
	}
}

// counters are those of every program of the router: by device and reason.
func (w *twin) counters() map[string]uint64 {
	w.Helper()
	out := map[string]uint64{}
	err := w.engine.Do(context.Background(), func(d *datapath.Datapath) error {
		for _, p := range w.engine.State().Plan.Ports {
			for _, prog := range p.Programs {
				c, ok, err := d.Counters(p.Index, prog.Hook)
				if err != nil {
					return err
				}
				for code := range c {
					if ok && c[code].Packets > 0 {
						out[p.Name+" "+reason.Code(code).String()] = c[code].Packets
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// left says how a shot left shunt: "device reason", sorted, once for each program that saw it.
func left(before, after map[string]uint64) (out []string) {
	for k, n := range after {
		if n > before[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// agrees says whether a shot left as it should have.
func agrees(want reason.Code, got []string) bool {
	fast := slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, " "+reason.Fast.String()) })
	switch want {
	case reason.Fast:
		return fast
	case nowhere:
		return len(got) == 0
	case slow:
		return !fast
	}
	return !fast && slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, " "+want.String()) })
}

// compare sends every shot again and compares bytes and ways. A shot is repeated while a change of the configuration is still on its way
// and when the machine held up the daemon, which the watchdog then says.
func (w *twin) compare(shots []shot) {
	w.Helper()
	failed := w.Failed()
	for _, s := range shots {
		want := s.xdp
		if w.hook == graph.TC {
			want = s.tc
		}
		var frames, way []string
		wait := patience
		if w.Failed() {
			wait = time.Second // the machine is not what is slow
		}
		for end := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
			w.sinks.Take(0, 10*time.Millisecond)
			before := w.counters()
			frames = w.send(s, len(w.linux[s.name]))
			way = left(before, w.counters())
			if agrees(want, way) && slices.Equal(frames, w.linux[s.name]) || time.Now().After(end) {
				break
			}
		}
		if !slices.Equal(frames, w.linux[s.name]) {
			w.Errorf("%s (%s): Linux sends\n%s\nwith shunt\n%s", s.name, way, strings.Join(w.linux[s.name], "\n"), strings.Join(frames, "\n"))
		}
		if !agrees(want, way) {
			w.Errorf("%s: left by %q, want %s", s.name, way, wantName(want))
		}
		if w.Failed() && !failed {
			failed = true
			w.explain()
		}
	}
}

func wantName(c reason.Code) string {
	switch c {
	case slow:
		return "any reason but fast"
	case nowhere:
		return "no program to see it"
	}
	return c.String()
}

// explain shows what the engine thinks of the router.
func (w *twin) explain() {
	s := w.engine.State()
	w.Logf("failures %+v\nunknown %+v\nfaults %+v\n%s", s.Failures, s.Network.Unknown, s.Network.Faults, s.Graph.Text())
}

// kinds are the kinds of devices that a test needs. A kernel without one skips it; the machines of test/vm have all.
func kinds(t *testing.T, probes ...string) {
	t.Helper()
	var commands []string
	for _, p := range probes {
		_, kind, _ := strings.Cut(p, " type ")
		kind, _, _ = strings.Cut(kind, " ")
		if lab.Since(kind) == "" {
			t.Fatalf("lab.Since does not know which kernels have devices of kind %s", kind)
		}
		commands = append(commands, "ip link add "+p)
		hasAll(t, fmt.Sprintf("devices of kind %s (%s)", kind, lab.Since(kind)), commands...)
	}
}
