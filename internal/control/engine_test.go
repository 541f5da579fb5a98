// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// rig is a line of namespaces with an engine in the middle.
type rig struct {
	*testing.T
	net    *lab.Net
	engine *Engine
	hook   graph.Hook
	wire   *lab.Wire
	sink   *lab.Capture
	sent   int            // by send
	tune   func(*Options) // of the engines to come; may be nil
	stop   func()
}

func newRig(t *testing.T, hook graph.Hook) *rig {
	return newRigOn(t, lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), V6: lab.V6Prefixes(50), Receive: lab.ReceiveGRO}), hook)
}

func newRigOn(t *testing.T, n *lab.Net, hook graph.Hook) *rig {
	r := &rig{T: t, net: n, hook: hook}
	r.start(t.TempDir() + "/bpf")
	var err error
	if r.wire, err = n.Port(lab.Src, "tx").Wire(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.wire.Close() })
	if r.sink, err = n.Port(lab.SinkNode, "rx").Capture(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.sink.Close() })
	return r
}

// start runs an engine until stop is called, at the latest at the end of the test.
func (r *rig) start(pins string) { r.Helper(); r.startWith(pins, watchdog) }

func (r *rig) startWith(pins string, watchdog time.Duration) {
	r.Helper()
	o := Options{
		Namespace: "dut", NetnsPath: r.net.Node(lab.Dut).Path(), PinDir: pins,
		Policy: graph.Policy{Hook: string(r.hook)}, Watchdog: watchdog, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if r.tune != nil {
		r.tune(&o)
	}
	r.engine = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	engine := r.engine
	go func() { done <- engine.Run(ctx) }()
	r.stop = func() {
		engine.DetachOnStop()
		cancel()
		if err := <-done; err != nil {
			r.Error(err)
		}
		r.stop = func() {}
	}
	r.Cleanup(func() { r.stop() })
	select {
	case <-r.engine.Ready():
	case err := <-done:
		done <- err
		r.Fatal(err)
	case <-time.After(time.Minute):
		r.Fatal("the engine was not ready in a minute")
	}
}

func (r *rig) exec(command string) {
	r.Helper()
	if err := r.net.Node(lab.Dut).Exec("%s", command); err != nil {
		r.Fatal(err)
	}
}

// counters of the ingress port.
func (r *rig) counters() (c [reason.Count]uint64) {
	r.Helper()
	err := r.engine.Do(context.Background(), func(d *datapath.Datapath) error {
		got, ok, err := d.Counters(r.net.Port(lab.Dut, "in").Index, r.hook)
		if !ok && err == nil {
			err = fmt.Errorf("nothing is attached to dut/in at %s", r.hook)
		}
		for i := range got {
			c[i] = got[i].Packets
		}
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// send sends one packet and says by which reason it left shunt and whether it arrived. Packets bear their number, so that one that comes late is not taken for the next.
func (r *rig) send(dst string) (reason.Code, bool) {
	r.Helper()
	r.sent++
	mark := fmt.Sprintf("packet %d.", r.sent)
	before := r.counters()
	if err := r.wire.Send(r.net.Port(lab.Src, "tx").Flow("10.0.0.2", dst).UDP(mark)); err != nil {
		r.Fatal(err)
	}
	arrived := r.arrives(mark, 100*time.Millisecond)
	after := r.counters()
	for i := range after {
		if after[i] > before[i] {
			return reason.Code(i), arrived
		}
	}
	return reason.Count, arrived
}

// arrives says whether a packet that bears a mark comes out within a time.
func (r *rig) arrives(mark string, within time.Duration) (arrived bool) {
	r.Helper()
	for end := time.Now().Add(within); !arrived && time.Now().Before(end); {
		got, err := r.sink.Take(1, time.Until(end))
		if err != nil {
			r.Fatal(err)
		}
		arrived = slices.ContainsFunc(got, func(f lab.Frame) bool { return bytes.Contains(f.Data, []byte(mark)) })
	}
	return arrived
}

// leaves waits until a packet leaves by the reason; changes have seconds, so that a slow machine does not matter.
func (r *rig) leaves(what, dst string, want reason.Code, arrives bool) {
	r.Helper()
	var got reason.Code
	var arrived bool
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got, arrived = r.send(dst); got == want && arrived == arrives {
			return
		}
	}
	name := "nothing"
	if got < reason.Count {
		name = got.String()
	}
	r.Errorf("%s: left by %s, arrived %v; want %s, %v", what, name, arrived, want, arrives)
	s := r.engine.State()
	r.Logf("failures %+v\nunknown %+v\nfaults %+v", s.Failures, s.Network.Unknown, s.Network.Faults)
	for _, command := range []string{"ip neigh", "ip route get " + dst} {
		out, err := r.net.Node(lab.Dut).Output("%s", command)
		r.Logf("%s: %s %v", command, out, err)
	}
}

func TestEngine(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) { testEngine(t, hook) })
	}
}

// testEngine changes Linux's configuration in all the ways that the router knows and watches where packets go.
func testEngine(t *testing.T, hook graph.Hook) {
	r := newRig(t, hook)
	dst := lab.V4Prefixes(1).Host(3, 9).String()
	r.leaves("a router", dst, reason.Fast, true)

	r.exec("nft add table ip t")
	r.exec("nft add chain ip t c { type filter hook forward priority 0 ; }")
	r.leaves("an empty chain", dst, reason.Fast, true)
	r.exec("nft add rule ip t c ip daddr " + dst + " drop")
	r.leaves("a rule that drops", dst, reason.RuleDrop, false)
	r.exec("nft flush chain ip t c")
	r.exec("nft add rule ip t c ip daddr " + dst + " log")
	r.leaves("a rule that only Linux can evaluate", dst, reason.NetfilterRule, true)
	r.exec("nft delete table ip t")
	r.leaves("no table any more", dst, reason.Fast, true)

	r.exec("ip route add blackhole " + dst)
	r.leaves("a blackhole route", dst, reason.Blackhole, false)
	r.exec("ip route del blackhole " + dst)
	r.exec("ip route add " + dst + " via 10.0.1.2 mtu 600")
	r.leaves("a route with an mtu that fits", dst, reason.Fast, true)
	r.exec("ip route del " + dst)

	r.exec("sysctl -qw net.ipv4.conf.in.forwarding=0")
	r.leaves("forwarding off", dst, reason.ForwardingOff, false)
	r.exec("sysctl -qw net.ipv4.conf.in.forwarding=1")
	r.leaves("forwarding on again", dst, reason.Fast, true)

	r.exec("ip addr add 10.0.0.2/32 dev out")
	r.leaves("the source is now ours", dst, reason.LocalSource, false)
	r.exec("ip addr del 10.0.0.2/32 dev out")
	r.leaves("the source is not ours any more", dst, reason.Fast, true)
}

// What the XDP path remembers of a route must end with the route, and with the neighbour's MAC.
// TestLostEvents: from the moment in which the daemon sees that events were lost, until it has read everything anew, nothing is forwarded by
// what it knew before. Routes are what is changed, since no guard word of the data path tells of them.
func TestLostEvents(t *testing.T) {
	r := newRig(t, graph.XDP)
	dst := lab.V4Prefixes(1).Host(3, 9).String()
	r.leaves("a router", dst, reason.Fast, true)
	r.stop()
	r.startWith(t.TempDir()+"/bpf", 10*patience) // being held up is not what is to be seen
	r.leaves("a router", dst, reason.Fast, true)

	churned := lab.V4Prefixes(40_000)
	churned.First = netip.MustParsePrefix("60.0.0.0/24")
	before, resyncs := r.counters(), r.engine.State().Reader.Resyncs
	frame := r.net.Port(lab.Src, "tx").Flow("10.0.0.2", dst).UDP("in the meantime")
	read, sent := make(chan struct{}), make(chan error, 1)
	go func() { // not only after the changes: what is to be seen takes milliseconds
		for {
			select {
			case <-read:
				sent <- nil
				return
			default:
				if err := r.wire.Send(frame); err != nil {
					sent <- err
					return
				}
			}
		}
	}()
	err := r.engine.Do(context.Background(), func(*datapath.Datapath) error {
		for _, add := range []bool{true, false, true} { // they stay, so that reading them anew takes a while
			if err := r.net.Node(lab.Dut).ChangeRoutes(churned, "10.0.1.2", add); err != nil {
				return err
			}
		}
		return nil
	})
	for end := time.Now().Add(patience); err == nil && r.engine.State().Reader.Resyncs == resyncs; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("so many changes while nobody read did not overflow the socket")
		}
	}
	close(read)
	if err := errors.Join(err, <-sent); err != nil {
		t.Fatal(err)
	}
	if after := r.counters(); after[reason.Stale] == before[reason.Stale] {
		t.Error("no packet met a data path that says it is stale while everything was read anew")
	}
	r.leaves("everything was read anew", dst, reason.Fast, true)
}

func TestRememberedRoutes(t *testing.T) {
	t.Run("ip4", func(t *testing.T) {
		testRemembered(t, "10.0.0.2", lab.V4Prefixes(1).Host(3, 9).String(), "10.0.1.2", "10.0.1.3")
	})
	t.Run("ip6", func(t *testing.T) {
		testRemembered(t, "fd00:0:0:1::2", lab.V6Prefixes(1).Host(3, 9).String(), "fd00:0:0:2::2", "fd00:0:0:2::3")
	})
}

func testRemembered(t *testing.T, src, dst, gateway, other string) {
	// Each CPU remembers for itself: all packets are to come by one. The thread stays locked, and so ends with the test.
	runtime.LockOSThread()
	if err := unix.SchedSetaffinity(0, &unix.CPUSet{1}); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, graph.XDP)
	frame := r.net.Port(lab.Src, "tx").Flow(src, dst).UDP("x")
	mac := func() string {
		if err := r.wire.Send(frame); err != nil {
			t.Fatal(err)
		}
		if _, err := r.sink.Wait(1, 3*time.Second); err != nil {
			t.Fatal(err)
		}
		got, err := r.sink.Take(0, 20*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		got = slices.DeleteFunc(got, func(f lab.Frame) bool { return lab.Noise(f.Data) })
		if len(got) != 1 {
			return fmt.Sprintf("%d frames", len(got))
		}
		return net.HardwareAddr(got[0].Data[:6]).String()
	}
	// fast waits until a packet takes the fast path to a MAC. A daemon that the machine held up leaves packets to Linux for a while, but as long as they are
	// fast an event has to be taken in within the time that docs/architecture.md gives a daemon that hangs.
	fast := func(what, want string) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			before, sent := r.counters()[reason.Fast], time.Since(began)
			got := mac()
			isFast := r.counters()[reason.Fast] > before
			if got == want && isFast {
				return
			}
			if isFast && sent > watchdog || sent > patience {
				t.Fatalf("%s: after %v sent to %s (fast: %v), want %s by the fast path", what, sent, got, isFast, want)
			}
		}
	}
	const first, second, third = "02:00:00:00:02:02", "02:00:00:00:aa:01", "02:00:00:00:aa:02"
	fast("a router", first)
	time.Sleep(1500 * time.Millisecond) // Linux itself still ends all remembered routes while devices come up, and so it would hide what nothing else ends
	fast("a remembered route", first)
	r.exec("ip neigh replace " + gateway + " lladdr " + second + " dev out nud permanent")
	fast("the neighbour changed its MAC", second)
	r.exec("ip neigh add " + other + " lladdr " + third + " dev out nud permanent")
	fast("another neighbour", second)
	r.exec("ip route add " + dst + " via " + other)
	if got := mac(); got != third {
		t.Errorf("the first packet after the route changed was sent to %s", got)
	}
	fast("the route changed", third)
	r.exec("ip route del " + dst)
	fast("the route went", second)
}

// TestRefusalIsOfOneDevice: a device that has the number of one that was refused is tried; that one went before it could be attached to.
func TestRefusalIsOfOneDevice(t *testing.T) {
	at := graph.Attachment{Index: 7, Hook: graph.TC}
	for _, c := range []struct {
		links []*model.Link
		want  bool
	}{
		{[]*model.Link{{Index: 7}}, true}, {[]*model.Link{{Index: 7, Life: 1}}, false}, {nil, false},
	} {
		e := &Engine{failed: map[graph.Attachment]refusal{at: {message: "no such device", when: time.Now()}}}
		if _, got := e.refused(&model.Network{Links: c.links})[at]; got != c.want {
			t.Errorf("with %+v: refused %v, want %v", c.links, got, c.want)
		}
		if _, kept := e.failed[at]; kept != c.want {
			t.Errorf("with %+v: remembered %v, want %v", c.links, kept, c.want)
		}
	}
}

// What stays empty is an error, and says which device and why; a device that has vanished meanwhile is none, and the log says that.
func TestTellEmpty(t *testing.T) {
	for _, c := range []struct {
		err  error
		link *model.Link
		want string
	}{
		{unix.EBUSY, &model.Link{Name: "c1"}, `level=ERROR msg="a hook of a device stays empty" device=c1 ifindex=7 hook=tc err="attaching: device or resource busy"`},
		{unix.ENODEV, &model.Link{Name: "c2"}, `level=INFO msg="a device has vanished before it could be attached to" device=c2 ifindex=7 hook=tc err="attaching: no such device"`},
		{unix.ENOLINK, nil, `level=INFO msg="a device has vanished before it could be attached to" device="" ifindex=7 hook=tc`},
	} {
		var log bytes.Buffer
		tellEmpty(slog.New(slog.NewTextHandler(&log, nil)), datapath.Failure{Index: 7, Hook: graph.TC, Err: fmt.Errorf("attaching: %w", c.err)}, c.link)
		if !strings.Contains(log.String(), c.want) {
			t.Errorf("%v: %s, want %s", c.err, &log, c.want)
		}
	}
}
