// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/synth"
)

// tiered is a data path with both tiers between two hosts.
type tiered struct {
	*testing.T
	*Datapath
	net  *lab.Net
	hook graph.Hook
	key  hookKey
}

// withTiers runs f on a data path that is in force on both ports of a router, on a thread in the router.
func withTiers(t *testing.T, hook graph.Hook, tier Tier, f func(*tiered)) {
	t.Helper()
	n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(50), V6: lab.V6Prefixes(50), Receive: lab.ReceiveGRO})
	pins := t.TempDir() + "/bpf"
	err := n.Node(lab.Dut).Do(func() error {
		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Tier: tier, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer d.Detach()
		r := &tiered{T: t, Datapath: d, net: n, hook: hook, key: hookKey{n.Port(lab.Dut, "in").Index, hook}}
		r.apply(func(*bpfobj.Config) {})
		f(r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// apply puts a plan in force that differs from the plain one by what change does to the ingress port's configuration.
func (r *tiered) apply(change func(*bpfobj.Config)) {
	r.Helper()
	net, g := handmade(r.net, r.hook)
	plan := synth.Build(net, g)
	for i := range plan.Ports {
		if plan.Ports[i].Index == r.key.index {
			change(&plan.Ports[i].Programs[0].Config)
		}
	}
	s, err := r.Snapshot(false)
	if err != nil {
		r.Fatal(err)
	}
	if failed, err := r.Apply(plan, &s); err != nil || len(failed) > 0 {
		r.Fatal(err, failed)
	}
}

// tend does what the loop does between changes until a condition holds.
func (r *tiered) tend(until func() bool) {
	r.Helper()
	for end := time.Now().Add(30 * time.Second); !until(); time.Sleep(time.Millisecond) {
		if r.Tend(); time.Now().After(end) {
			r.Fatal("the work behind the loop did not end")
		}
	}
}

// idle waits until there is nothing left to do behind the loop.
func (r *tiered) idle() {
	r.Helper()
	r.tend(func() bool {
		wait := r.Tend()
		return wait == never && !r.busy()
	})
}

// busy says whether something is being done behind the loop, or was and has not been taken in.
func (r *tiered) busy() bool {
	r.behind.mu.Lock()
	defer r.behind.mu.Unlock()
	return r.behind.busy || len(r.behind.found) > 0
}

func (r *tiered) id() ebpf.ProgramID {
	r.Helper()
	info, err := r.ports[r.key].prog.Info()
	if err != nil {
		r.Fatal(err)
	}
	id, _ := info.ID()
	return id
}

func (r *tiered) udp() []byte {
	return r.net.Port(lab.Src, "tx").Flow("10.0.0.2", lab.V4Prefixes(1).Host(3, 9).String()).UDP("x")
}

func (r *tiered) explained(frame []byte) reason.Code {
	r.Helper()
	tr, err := r.Explain(r.key.index, r.hook, frame)
	if err != nil {
		r.Fatal(err)
	}
	return tr.Reason
}

func slow4(c *bpfobj.Config) { c.In.Ip4 = uint8(reason.NetfilterIP4Forward) }
func plain(*bpfobj.Config)   {}

// A change of structure that was never made before is in force without a program being loaded for it: with the program that runs for every
// port. The program for it comes behind, once nothing changes any more, and counters go on throughout.
func TestStructureNeedsNoLoad(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) { withTiers(t, hook, Both, testStructure) })
	}
}

func testStructure(r *tiered) {
	if tier := r.Tier(r.key.index, r.hook); tier != Specialised {
		r.Fatalf("at first a port runs in the %s tier", tier)
	}
	r.idle()
	generic := r.generic.programs[r.hook]
	wire, err := r.net.Port(lab.Src, "tx").Wire()
	if err != nil {
		r.Fatal(err)
	}
	defer wire.Close()
	sent := uint64(0)
	forwarded := func(by Tier) {
		r.Helper()
		if tier := r.Tier(r.key.index, r.hook); tier != by {
			r.Fatalf("it runs in the %s tier, want %s", tier, by)
		}
		if err := wire.Send(r.udp()); err != nil {
			r.Fatal(err)
		}
		sent++
		for end := time.Now().Add(3 * time.Second); fast(r.T, r.Datapath, r.key.index, r.hook) < sent && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if got := fast(r.T, r.Datapath, r.key.index, r.hook); got != sent {
			r.Fatalf("in the %s tier: %d packets are counted as fast, want %d", by, got, sent)
		}
	}
	forwarded(Specialised)
	r.apply(slow4)
	if r.ports[r.key].prog != generic {
		r.Fatal("a change of structure is not in the generic tier")
	}
	if got := r.explained(r.udp()); got != reason.NetfilterIP4Forward {
		r.Errorf("after the change a packet leaves by %s", got)
	}
	r.apply(func(c *bpfobj.Config) { c.In.Local6 = 1 })
	if r.ports[r.key].prog != generic {
		r.Fatal("the next change of structure is not in the generic tier")
	}
	forwarded(Generic)
	r.idle()
	forwarded(Specialised)
	if n := len(r.generic.old); n != 0 {
		r.Errorf("%d old configurations are not deleted", n)
	}
	if n := configurations(r); n != 1 {
		r.Errorf("%d configurations are in the kernel, want that of the one port", n)
	}
}

func configurations(r *tiered) (n int) {
	r.Helper()
	var number uint64
	var value []byte
	for it := r.objects.maps["configs"].Iterate(); it.Next(&number, &value); n++ {
	}
	return n
}

// Programs are specialised when nothing has changed for a while, and for the last change alone.
func TestSettling(t *testing.T) {
	withTiers(t, graph.XDP, Both, func(r *tiered) {
		r.idle()
		for i := range uint8(20) {
			r.apply(func(c *bpfobj.Config) { c.In.Local6 = 1 + i })
			if wait := r.Tend(); r.Tier(r.key.index, r.hook) != Generic || wait != never && wait > settled {
				t.Fatalf("change %d: tier %s, wants to be called in %v", i, r.Tier(r.key.index, r.hook), wait)
			}
		}
		before := len(r.ports[r.key].kept)
		r.idle()
		if tier, kept := r.Tier(r.key.index, r.hook), len(r.ports[r.key].kept); tier != Specialised || kept > before+1 {
			t.Errorf("after 20 changes at once, tier %s, %d programs kept, %d before", tier, kept, before)
		}
		// What was specialised comes back without either.
		id := r.id()
		r.apply(plain)
		r.apply(func(c *bpfobj.Config) { c.In.Local6 = 20 })
		if r.id() != id {
			t.Error("a kept program was not preferred to the generic one")
		}
	})
}

// Generic programs cost half a second of a CPU, and none is loaded while changes come: those have programs of their own. Once nothing has changed for a while there is one.
func TestGenericOnceAtRest(t *testing.T) {
	withTiers(t, graph.TC, "", func(r *tiered) {
		for i := range uint8(10) {
			r.apply(func(c *bpfobj.Config) { c.In.Local6 = 1 + i })
			if wait := r.Tend(); wait <= repose/2 || wait > repose {
				t.Fatalf("change %d: wants to be called in %v", i, wait)
			}
			if got := r.Tier(r.key.index, r.hook); got != Specialised || len(r.generic.programs) != 0 {
				t.Fatalf("change %d: tier %s, %d generic programs", i, got, len(r.generic.programs))
			}
		}
		r.idle()
		if quiet := time.Since(r.restless); len(r.generic.programs) != 1 || quiet < repose {
			t.Fatalf("%v after the last change: %d generic programs", quiet, len(r.generic.programs))
		}
		r.apply(func(c *bpfobj.Config) { c.In.Local6 = 11 })
		if got := r.Tier(r.key.index, r.hook); got != Generic {
			t.Errorf("a change behind that: tier %s", got)
		}
	})
}

// What was refused for want of memory is tried again, each time later; what the kernel does not take is not.
func TestShortOfMemory(t *testing.T) {
	withTiers(t, graph.TC, Both, func(r *tiered) {
		r.idle()
		g, a := r.generic, r.ports[r.key]
		due := func() { g.again[r.hook] = again{time.Now(), g.again[r.hook].pause} }
		short := fmt.Errorf("loading: %w", unix.ENOMEM)

		g.loaded(r.hook, g.fixed, nil, errors.New("refused"))
		if g.missing(r.hook) || g.again[r.hook].pause != 0 {
			t.Error("a generic program that the kernel does not take is tried again")
		}
		for n, pause := range []time.Duration{firstAgain, 2 * firstAgain, 4 * firstAgain} {
			g.loaded(r.hook, g.fixed, nil, short)
			if got := g.again[r.hook].pause; got != pause || g.missing(r.hook) {
				t.Errorf("after %d failures it is tried in %v (at once: %v), want %v", n+1, got, g.missing(r.hook), pause)
			}
		}
		due()
		r.lacking = time.Now().Add(-longest)
		r.idle()
		if g.programs[r.hook] == nil || len(g.failed) > 0 || len(g.again) > 0 {
			t.Errorf("with memory there is no generic program: %v", g.failed)
		}

		r.apply(func(c *bpfobj.Config) { c.In.Local6 = 3 })
		if r.Tier(r.key.index, r.hook) != Generic {
			t.Fatal("a change does not run by the generic program")
		}
		r.refuse(r.key, a, a.key, short)
		if r.idle(); r.Tier(r.key.index, r.hook) != Generic {
			t.Error("a program of its own is tried again at once")
		}
		a.again.next = time.Now()
		if r.idle(); r.Tier(r.key.index, r.hook) != Specialised || a.again.pause != 0 {
			t.Error("with memory there is no program of its own")
		}
	})
}

// A panic behind the loop is the loop's, with the place.
func TestFaultBehind(t *testing.T) {
	b := &behind{wake: func() {}}
	b.start(func() { panic("made for this test") })
	b.wg.Wait()
	found, busy := b.results()
	if len(found) != 1 || busy {
		t.Fatalf("%d results, busy %v", len(found), busy)
	}
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "made for this test in") || !strings.Contains(said, "TestFaultBehind") {
			t.Errorf("the loop gets %q", said)
		}
	}()
	found[0]()
}

// Where changes never end, generic programs wait for so long and no longer.
func TestGenericAmongChanges(t *testing.T) {
	withTiers(t, graph.TC, "", func(r *tiered) {
		r.Tend()
		r.lacking = r.lacking.Add(-longest)
		r.apply(func(c *bpfobj.Config) { c.In.Local6 = 1 })
		if r.Tend(); !r.busy() {
			t.Error("a generic program that was lacking for long is not loaded")
		}
	})
}

// A packet sees one configuration from beginning to end, however fast they change. One has the MAC address of the packet and a watchdog that has
// always run out, the other another address and a good watchdog: a packet that met the first's address and the second's watchdog
// would be forwarded. Packets are held up between the two, for longer than changes take, and which configuration follows which has no
// order, so that memory that is used again too early has the other's contents by then.
func TestOneConfigurationPerPacket(t *testing.T) {
	withTiers(t, graph.XDP, Generic, func(r *tiered) {
		key := r.ports[r.key].key
		hung, foreign := key.config, key.config
		hung.Cache4, foreign.Cache4 = 0, 0 // every packet looks its route up
		hung.WatchdogJiffies = 1 << 63
		foreign.In.Mac[5] ^= 1
		hung.Counters, foreign.Counters = r.ports[r.key].place, r.ports[r.key].place
		prog := r.ports[r.key].prog
		quit, done := make(chan struct{}), make(chan error, 1)
		number, err := r.generic.write(&foreign) // the first packet meets one of the two as well
		if err != nil {
			t.Fatal(err)
		}
		r.generic.point(r.key, number)
		holdUp(t)
		const repeat = 200
		packets, interrupted := uint64(0), uint64(0) // a signal of the runtime ends a run early, and all of it is run again
		go func() {
			ctx := xdpContext{DataEnd: uint32(len(r.udp())), IngressIfindex: uint32(r.key.index)}
			for {
				select {
				case <-quit:
					done <- nil
					return
				default:
				}
				if err := r.net.Node(lab.Dut).Do(func() error {
					_, err := prog.Run(&ebpf.RunOptions{Data: r.udp(), Context: ctx, Repeat: repeat, Reset: func() { interrupted++ }})
					return err
				}); err != nil {
					done <- err
					return
				}
				packets += repeat
			}
		}()
		flips := 0
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); flips++ {
			config := &hung
			if rand.IntN(2) == 1 {
				config = &foreign
			}
			number, err := r.generic.write(config)
			if err != nil {
				t.Fatal(err)
			}
			r.generic.point(r.key, number)
			for r.Tend(); len(r.generic.old) > 1000; r.Tend() {
				time.Sleep(time.Millisecond)
			}
		}
		close(quit)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		got, _, err := r.Counters(r.key.index, r.hook)
		if err != nil {
			t.Fatal(err)
		}
		if got[reason.Watchdog].Packets == 0 || got[reason.DstMAC].Packets == 0 || flips < 100 {
			t.Errorf("%d changes, %d packets by the one and %d by the other: nothing was tried", flips, got[reason.Watchdog].Packets, got[reason.DstMAC].Packets)
		}
		counted := uint64(0)
		for code, c := range got {
			counted += c.Packets
			if code := reason.Code(code); c.Packets > 0 && code != reason.Watchdog && code != reason.DstMAC {
				t.Errorf("%d packets left by %s, of which neither configuration knows", c.Packets, code)
			}
		}
		if counted < packets || counted > packets+interrupted*repeat {
			t.Errorf("of %d packets, and up to %d in runs that were interrupted, %d found a configuration", packets, interrupted*repeat, counted)
		}
	})
}

// holdUp makes every lookup of a route by this process take some 50 microseconds longer, by a program at its tracepoint.
func holdUp(t *testing.T) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(os.Getpid()), "out"),
		asm.Mov.Imm(asm.R1, 100_000),
		asm.Sub.Imm(asm.R1, 1).WithSymbol("again"),
		asm.JNE.Imm(asm.R1, 0, "again"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	at, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "fib_table_lookup", Program: prog})
	if err != nil {
		t.Logf("packets cannot be held up here: %v", err)
		return
	}
	t.Cleanup(func() { at.Close() })
}

// The two tiers do the same with every packet under every configuration.
func TestTiersAgree(t *testing.T) {
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) { withTiers(t, hook, Generic, testAgreement) })
	}
}

func testAgreement(r *tiered) {
	random := rand.New(rand.NewPCG(7, uint64(len(r.hook))))
	base := r.ports[r.key].key.config
	stats, err := r.objects.newStats()
	if err != nil {
		r.Fatal(err)
	}
	defer stats.Close()
	seen := map[reason.Code]int{}
	frames := r.frames()
	for range 60 {
		c := base
		for _, f := range shapeFeatures {
			// What rules ask is fixed in the generic program.
			if random.IntN(3) == 0 && f.name != "lower" && f.name != "cache4" && f.name != "cache6" && !strings.HasPrefix(f.name, "rules") {
				f.on(&c)
			}
		}
		for _, change := range contradictions {
			if random.IntN(12) == 0 {
				change(&c)
			}
		}
		if random.IntN(2) == 0 {
			c.Cache4, c.Cache6 = 0, 0
		}
		own, err := r.objects.load(r.hook, c, stats)
		if err != nil {
			r.Fatal(err)
		}
		c.Counters = r.ports[r.key].place
		number, err := r.generic.write(&c)
		if err != nil {
			r.Fatal(err)
		}
		r.generic.point(r.key, number)
		for name, frame := range frames {
			r.store(offStale, 0)
			want, err := r.run(own, frame)
			if err != nil {
				r.Fatal(name, err)
			}
			r.store(offStale, 0)
			got, err := r.run(r.generic.programs[r.hook], frame)
			if err != nil {
				r.Fatal(name, err)
			}
			seen[want.Reason]++
			if diff := lab.Diff(want.Frame, got.Frame); got.Reason != want.Reason || got.Egress != want.Egress || diff != "" {
				r.Errorf("%s: %s to %d in the generic tier, %s to %d specialised\n%s\n%+v", name, got.Reason, got.Egress, want.Reason, want.Egress, diff, c)
			}
		}
		own.Close()
	}
	r.Logf("%v", seen)
	if len(seen) < 12 || seen[reason.Fast] < 50 {
		r.Errorf("only these reasons were met: %v", seen)
	}
	// The test can fail: a configuration that differs in one number is told from the other.
	c := base
	slow4(&c)
	number, err := r.generic.write(&c)
	if err != nil {
		r.Fatal(err)
	}
	r.generic.point(r.key, number)
	if got, err := r.run(r.generic.programs[r.hook], r.udp()); err != nil || got.Reason != reason.NetfilterIP4Forward {
		r.Errorf("a planted difference gives %s, %v", got.Reason, err)
	}
}

// contradictions make the guard and its like say no.
var contradictions = []func(*bpfobj.Config){
	slow4,
	func(c *bpfobj.Config) { c.In.Ip6 = uint8(reason.ForwardingOff) },
	func(c *bpfobj.Config) { c.In.Mac[0] ^= 2 },
	func(c *bpfobj.Config) { c.Port++ },
	func(c *bpfobj.Config) { c.Net += 8 },
	func(c *bpfobj.Config) { c.WatchdogJiffies = 1 << 63 },
	func(c *bpfobj.Config) {
		c.Guards, c.Guard[0] = 1, bpfobj.GuardWord{Addr: c.NexthopSeq, Slot: 300, Width: 4}
	},
	func(c *bpfobj.Config) { c.Guards4, c.Guard4[0] = 1, bpfobj.GuardWord{Addr: c.Net, Slot: 301, Width: 8} },
	func(c *bpfobj.Config) { c.Guards6, c.Guard6[0] = 1, bpfobj.GuardWord{Addr: c.Net, Slot: 302, Width: 8} },
}

func (r *tiered) run(prog *ebpf.Program, frame []byte) (Trace, error) {
	if r.hook == graph.XDP {
		return runXDP(prog, r.key.index, frame)
	}
	return runTC(prog, r.key.index, frame)
}

// frames are packets of many fates.
func (r *tiered) frames() map[string][]byte {
	tx := r.net.Port(lab.Src, "tx")
	out := map[string][]byte{}
	for name, f := range map[string]lab.Flow{
		"v4": tx.Flow("10.0.0.2", lab.V4Prefixes(1).Host(3, 9).String()), "v6": tx.Flow("fd00:0:0:1::2", lab.V6Prefixes(1).Host(3, 9).String()),
		"martian": tx.Flow("127.0.0.1", "10.1.0.9"), "local source": tx.Flow("10.0.1.1", lab.V4Prefixes(1).Host(3, 9).String()),
		"same interface": tx.Flow("10.0.0.2", "10.0.0.3"), "no route": tx.Flow("10.0.0.2", "203.0.113.1"), "local": tx.Flow("10.0.0.2", "10.0.0.1"),
	} {
		udp := f.UDP("hello")
		out[name+" udp"], out[name+" tcp"], out[name+" echo"] = udp, f.TCP("S", 1, ""), f.Echo(1, 2, "ping")
		out[name+" ttl"] = lab.Edited(udp, lab.TTL(1))
		out[name+" padded"] = lab.Edited(udp, lab.Pad(90))
		out[name+" for another"] = lab.Edited(udp, lab.L2(0, 2, 2, 2, 2, 2, 2))
		out[name+" tagged"] = append(append(append([]byte{}, udp[:12]...), 0x81, 0, 0, 5), udp[12:]...)
	}
	for name, frame := range out {
		if len(frame) < shortFrame {
			delete(out, name)
		}
	}
	return out
}

// TestGenericOnlyWhereItServes: half a second of a CPU is not spent on a program that no port could run.
func TestGenericOnlyWhereItServes(t *testing.T) {
	for name, c := range map[string]struct {
		config bpfobj.Config
		want   bool
	}{
		"a router":                       {bpfobj.Config{}, true},
		"connections are looked up":      {bpfobj.Config{Track: 1}, false},
		"a device on another":            {bpfobj.Config{Lower: 3}, false},
		"bridged packets meet rules":     {bpfobj.Config{Shown4: 1}, false},
		"bridged packets meet ip6 rules": {bpfobj.Config{Shown6: 1}, false},
	} {
		for _, awaits := range []bool{false, true} {
			a := &attachment{}
			if a.key.config = c.config; awaits {
				a.key, a.awaited = programKey{}, programKey{loaded: true, config: c.config}
			}
			d := &Datapath{ports: map[hookKey]*attachment{{1, graph.XDP}: a}, generic: &generic{}}
			if _, got := d.missing(); got != c.want {
				t.Errorf("%s, awaits %v: a generic program is to be loaded: %v, want %v", name, awaits, got, c.want)
			}
		}
	}
}

// TestSparesAreBounded: counters of a hundred devices that went at once are not kept, and their places are given again.
func TestSparesAreBounded(t *testing.T) {
	withTiers(t, graph.TC, Generic, func(r *tiered) {
		g := r.generic
		tidy := func() {
			for e := r.errand(); e != nil; e = r.errand() {
				r.done(e, e.run(r.objects))
			}
		}
		registered := func() (n int) {
			for place := uint32(1); place < portSlots; place++ { // 0 is nobody's
				var id uint32
				if r.objects.maps["port_stats"].Lookup(place, &id) == nil {
					n++
				}
			}
			return n
		}
		tidy()
		before, spare := registered(), len(g.spare)
		for range 100 {
			stats, err := r.objects.newStats()
			if err != nil {
				r.Error(err)
				return
			}
			place, _ := g.newPlace()
			if err := r.objects.maps["port_stats"].Put(place, stats); err != nil {
				r.Error(err)
				return
			}
			g.leave(hookKey{900, graph.TC}, counters{stats, place})
		}
		tidy()
		if len(g.spare) != mostSpares || registered() != before-spare+mostSpares {
			r.Errorf("%d spare counters, want %d; %d are registered, want %d", len(g.spare), mostSpares, registered(), before-spare+mostSpares)
		}
		highest := g.places
		if place, ok := g.newPlace(); !ok || place > highest {
			r.Errorf("place %d is given before those that are vacant", place)
		}
	})
}
