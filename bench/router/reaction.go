// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var reaction = suite.Section{
	Name:  "reaction",
	Title: "Reaction",
	About: "From the moment when a command's system call has returned to the moment when the first packet was treated anew. One thread makes the change and then sends packets, one after the other, " +
		"each as soon as the last one's treatment shows in the program's counters (about 10 µs a packet, which is the resolution). The first value of a pair takes the fast path from a packet, the " +
		"second gives it back. At rest every change is made as if for the first time: what the daemon keeps for configurations that come back is dropped before it; \"again\" is with that. " +
		"A change is \"attach\" if a program had to be attached, for which the kernel needs milliseconds, \"structure\" if another program runs after it, \"data\" if only maps were written, and \"live\" if the data path needed nothing, since it reads the kernel's own state. " +
		"A structure that never was is put in force by the generic program, which serves every interface and is there when nothing has changed for some seconds; \"specialised\" is when the program made for it has taken over, from the return of the system call.",
	Run: runReaction,
}

// again is a change that was made before: programs are kept for it. At rest each is made as if for the first time.
const again = "again"

const reactionLimit = 5 * time.Second

func runReaction(b *suite.Bench) error {
	for _, part := range []struct {
		hook graph.Hook
		n    int
	}{{graph.XDP, b.Size.Reactions}, {graph.TC, max(1, b.Size.Reactions/4)}} {
		if err := reactAt(b, part.hook, part.n); err != nil {
			return fmt.Errorf("at %s: %w", part.hook, err)
		}
		if err := b.Undo(); err != nil {
			return err
		}
	}
	return nil
}

func reactAt(b *suite.Bench, hook graph.Hook, n int) error {
	l, err := threePortLane(b, "shunt "+string(hook))
	if err != nil {
		return err
	}
	if err := l.Shunt(graph.Policy{Hook: string(hook)}); err != nil {
		return err
	}
	commands, err := commands(b, l)
	if err != nil {
		return err
	}
	l.Engine.Settle()
	// The prober never sleeps, so the daemon is kept off its CPU; a machine with more of them does that by itself.
	if err := l.Engine.Do(context.Background(), func(*datapath.Datapath) error { return suite.Pin(b.DutCPU) }); err != nil {
		return err
	}
	p, err := suite.NewProber(b, l)
	if err != nil {
		return err
	}
	r := &reactor{Bench: b, lane: l, prober: p}
	for _, c := range commands {
		b.Say("%s, at %s: %d times at rest", c.name, hook, n)
		if err := <-suite.Pinned(b.GenCPU, func() error { return r.times(c, "at rest", n, c.do, c.undo) }); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.Say("%s, at %s: %d times again", c.name, hook, n/4)
		if err := <-suite.Pinned(b.GenCPU, func() error { return r.times(c, again, max(1, n/4), c.do, c.undo) }); err != nil {
			return fmt.Errorf("%s again: %w", c.name, err)
		}
		if err := <-suite.Pinned(b.GenCPU, func() error {
			return r.times(c, "typed", b.Size.Processes, r.typed(c.typed[0]), r.typed(c.typed[1]))
		}); err != nil {
			return fmt.Errorf("%s, typed: %w", c.name, err)
		}
	}
	stop, err := churn(b, l)
	if err != nil {
		return err
	}
	for _, c := range commands {
		b.Say("%s, at %s: %d times under churn", c.name, hook, n)
		if err := <-suite.Pinned(b.GenCPU, func() error { return r.times(c, "under churn", n, c.do, c.undo) }); err != nil {
			stop()
			return fmt.Errorf("%s under churn: %w", c.name, err)
		}
	}
	done, took, err := stop()
	b.Fact("churn reached at "+string(hook), fmt.Sprintf("%.0f changes/s", float64(done)/took.Seconds()))
	return err
}

// reactor measures reactions at one lane.
type reactor struct {
	*suite.Bench
	lane   *suite.Lane
	prober *suite.Prober
}

func (r *reactor) typed(commands string) func() error {
	return func() error {
		for _, line := range strings.Split(commands, "\n") {
			if err := r.lane.Node(lab.Dut).Exec("%s", line); err != nil {
				return err
			}
		}
		return nil
	}
}

// times makes a change and takes it back, over and over.
func (r *reactor) times(c command, how string, n int, do, undo func() error) error {
	frame := r.lane.TX().Flow(c.src, c.dst).UDP("x")
	if _, err := r.prober.Until(frame, true, reactionLimit); err != nil {
		return fmt.Errorf("before the first change: %w", err)
	}
	for range n {
		if r.Interrupted.Load() {
			return suite.ErrInterrupted
		}
		if err := r.once(c.name, how, frame, false, do); err != nil {
			return err
		}
		if err := r.once(c.name+", taken back", how, frame, true, undo); err != nil {
			return err
		}
	}
	return nil
}

// once makes one change and times what follows from it.
func (r *reactor) once(name, how string, frame []byte, fast bool, change func() error) error {
	atRest := how == "at rest"
	before := r.lane.Engine.State().Generation
	var programs suite.IDSet
	var held int
	if atRest {
		if err := r.settle(); err != nil {
			return err
		}
		if err := r.lane.Engine.Do(context.Background(), func(d *datapath.Datapath) error { d.Unkeep(); held = hooksHeld(d); return nil }); err != nil {
			return err
		}
		ids, err := r.lane.Engine.Programs()
		if err != nil {
			return err
		}
		programs = ids
	}
	if err := change(); err != nil {
		return err
	}
	returned := time.Now()
	at, err := r.prober.Until(frame, fast, reactionLimit)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	variant := r.lane.Variant
	r.Add(name, variant+", "+how, "reaction", "µs", micros(at.Sub(returned)))
	if !atRest {
		time.Sleep(2 * time.Millisecond)
		return nil
	}
	// What the daemon did meanwhile, or is about to: the first round after the change.
	for end := time.Now().Add(20 * time.Millisecond); r.lane.Engine.State().Generation == before && time.Now().Before(end); {
		time.Sleep(200 * time.Microsecond)
	}
	if s := r.lane.Engine.State(); s.Generation != before {
		r.Add(name, variant, "event to installed", "µs", micros(s.Took))
		r.Add(name, variant, "of which reading", "µs", micros(s.Stages.Read))
		r.Add(name, variant, "of which deciding", "µs", micros(s.Stages.Decide))
		r.Add(name, variant, "of which applying", "µs", micros(s.Stages.Apply))
	}
	ids, err := r.lane.Engine.Programs()
	if err != nil {
		return err
	}
	loaded := 0.0
	for id := range ids {
		if !programs[id] {
			loaded = 1
		}
	}
	r.Add(name, variant, "program loaded", "share", loaded)
	if loaded == 0 {
		return nil
	}
	attached := 0.0
	if err := r.lane.Engine.Do(context.Background(), func(d *datapath.Datapath) error {
		if hooksHeld(d) > held {
			attached = 1
		}
		return nil
	}); err != nil {
		return err
	}
	r.Add(name, variant, "attached", "share", attached)
	if err := r.settle(); err != nil {
		return err
	}
	r.Add(name, variant, "specialised", "µs", micros(time.Since(returned)))
	return nil
}

// settle waits until every interface runs the program that is made for it.
func (r *reactor) settle() error {
	for end := time.Now().Add(reactionLimit); !r.lane.Engine.Settled(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("after %v an interface still runs the generic program", reactionLimit)
		}
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// churn changes the router's configuration a thousand times a second until stopped: of ten changes, eight are routes, one is a
// neighbour and one is an address.
func churn(b *suite.Bench, l *suite.Lane) (stop func() (int, time.Duration, error), err error) {
	var handle *netlink.Handle
	if err := l.Node(lab.Dut).Do(func() (err error) { handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); return err }); err != nil {
		return nil, fmt.Errorf("opening a netlink socket for churn: %w", err)
	}
	alt, err := handle.LinkByName("alt")
	if err != nil {
		return nil, err
	}
	quit, done := make(chan struct{}), make(chan error, 1)
	start, count := time.Now(), 0
	go func() {
		defer handle.Close()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				done <- nil
				return
			case <-tick.C:
			}
			// A tick that was missed is made up for.
			for due := int(time.Since(start).Milliseconds()); count < due; count++ {
				if err := oneChange(handle, alt, count); err != nil {
					done <- fmt.Errorf("churning: %w", err)
					<-quit
					return
				}
			}
		}
	}()
	return func() (int, time.Duration, error) { close(quit); err := <-done; return count, time.Since(start), err }, nil
}

// oneChange adds things in even rounds of ten changes and removes them in odd ones.
func oneChange(h *netlink.Handle, alt netlink.Link, i int) error {
	add, slot := i/10%2 == 0, byte(i%10)
	switch slot {
	case 8:
		return h.NeighSet(neighbour(alt.Attrs().Index, "10.0.2.99", []byte{2, 0, 0, 0, 9, byte(i / 10)}))
	case 9:
		addr := &netlink.Addr{IPNet: host("10.9.9.9")}
		if add {
			return h.AddrReplace(alt, addr)
		}
		return h.AddrDel(alt, addr)
	}
	route := &netlink.Route{Dst: host(fmt.Sprintf("50.0.0.%d", slot)), Type: unix.RTN_UNREACHABLE}
	if add {
		return h.RouteReplace(route)
	}
	return h.RouteDel(route)
}

func hooksHeld(d *datapath.Datapath) int { return d.Attachments(graph.XDP) + d.Attachments(graph.TC) }
