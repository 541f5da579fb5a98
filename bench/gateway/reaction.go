// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var reactionSection = suite.Section{
	Name:   "reaction",
	Title:  "Reaction",
	Budget: budget(180),
	About: "A rule is added that drops one source, and taken away again, beside others that do not match. Time runs from the return of the command: for nft of the system call, for iptables-legacy of the process. " +
		"Single packets of that source are sent until the fast path itself drops (forwards) them: that is \"effect\". \"Obeyed\" is the last moment at which the fast path treated one by the old rules; it is " +
		"0 where the packets in between went to Linux, which obeys anyway. A restore replaces 100 rules by very many: it is effective when the fast path drops by the new ones, and specialised when " +
		"shunt has loaded or changed nothing more for half a second. Shunt at XDP.",
	Run: runReaction,
}

// victim is the source that the rules come and go for. No other rule speaks of it.
var victim = netip.MustParseAddr("21.9.9.9")

// reactionLimit is how long an effect is waited for.
const reactionLimit = 3 * time.Second

func runReaction(b *suite.Bench) error {
	e := extents[b.Size.Name]
	for _, d := range []dialect{nft, legacy} {
		for _, n := range []int{100, e.many} {
			times := max(2, b.Size.Reactions/4)
			if d == legacy {
				times = max(2, b.Size.Processes/2)
			}
			if err := b.Part(addedCase(d, n), func() error { return reactTo(b, d, n, times) }); err != nil {
				return err
			}
		}
	}
	for _, d := range []dialect{legacy, nft} {
		if err := b.Part(restoredCase(d, e.many), func() error { return restores(b, d, e) }); err != nil {
			return err
		}
	}
	return nil
}

// addedCase and restoredCase name the cases for the page.
func addedCase(d dialect, n int) string    { return fmt.Sprintf("one rule beside %d, %s", n, d) }
func restoredCase(d dialect, n int) string { return fmt.Sprintf("restore of %d rules, %s", n, d) }

// reactor measures reactions at one lane.
type reactor struct {
	*suite.Lane
	prober *suite.Prober
	frame  []byte // of the victim
}

// newReactor makes a lane with rules. If packets are not fast with them there is nothing to measure: ok is false, and the section says why.
func newReactor(b *suite.Bench, c string, d dialect, rs table) (r *reactor, ok bool, err error) {
	lanes, err := openLanes(b, []suite.Variant{{Name: suite.ShuntXDP, Setup: suite.ShuntAt(graph.XDP)}})
	if err != nil {
		return nil, false, err
	}
	r = &reactor{Lane: lanes[0]}
	if err := give(d, rs, r.Lane); err != nil {
		return nil, false, err
	}
	// The prober never sleeps, so the daemon is kept off its CPU; a machine with more of them does that by itself.
	if err := r.Engine.Do(context.Background(), func(*datapath.Datapath) error { return suite.Pin(b.DutCPU) }); err != nil {
		return nil, false, err
	}
	if r.prober, err = suite.NewProber(b, r.Lane); err != nil {
		b.Skip(c, fmt.Sprintf("packets are not fast with these rules: %v", err))
		return nil, false, nil
	}
	r.frame = r.TX().Flow(victim.String(), prefixes.Host(3, 9).String()).UDP("x")
	before, err := r.Counters()
	if err != nil {
		return nil, false, err
	}
	_, effect, err := r.until(suite.Forwarded, suite.Dropped)
	if err != nil || effect < 0 {
		b.Skip(c, "packets are not fast with these rules: "+r.Why(before))
		return nil, false, err
	}
	return r, true, nil
}

// until sends packets of the victim until one meets the fate that is wanted. obeyed is when one last met the other fate; effect is negative where
// the limit passed. A packet from before may be counted late, on a busy machine.
func (r *reactor) until(want, other suite.Fate) (obeyed, effect time.Duration, err error) {
	start := time.Now()
	if err := r.prober.Sync(); err != nil {
		return 0, 0, err
	}
	for {
		fate, err := r.prober.Send(r.frame)
		now := time.Since(start)
		switch {
		case err != nil:
			return 0, 0, err
		case fate == want:
			return obeyed, now, nil
		case fate == other:
			obeyed = now
		}
		if now > reactionLimit {
			return obeyed, -1, nil
		}
	}
}

// change makes a change and keeps how long it took to have its effect.
func (r *reactor) change(c, name string, do func() error, want, other suite.Fate) error {
	if err := do(); err != nil {
		return err
	}
	obeyed, effect, err := r.until(want, other)
	if err != nil {
		return err
	}
	if effect < 0 {
		return fmt.Errorf("%s: no packet was %s by the fast path within %s", name, want, reactionLimit)
	}
	r.Bench.Add(c, name, "effect", "ms", millis(effect))
	r.Bench.Add(c, name, "obeyed", "ms", millis(obeyed))
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// Names of the two changes.
const (
	added = "added"
	taken = "taken away"
)

func reactTo(b *suite.Bench, d dialect, n, times int) error {
	c := addedCase(d, n)
	b.Say("%s: %d times", c, times)
	rs := source(n)
	if d == nft {
		rs = withLive(rs)
	}
	r, ok, err := newReactor(b, c, d, rs)
	if err != nil || !ok {
		return err
	}
	add, remove, err := r.commands(d)
	if err != nil {
		return err
	}
	return <-suite.Pinned(b.GenCPU, func() error {
		for range times {
			if b.Interrupted.Load() {
				return suite.ErrInterrupted
			}
			if b.Late() {
				b.Note("%s: fewer than %d times, since the section's time was up", c, times)
				return nil
			}
			if err := r.change(c, added, add, suite.Dropped, suite.Forwarded); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
			if err := r.change(c, taken, remove, suite.Forwarded, suite.Dropped); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	})
}

// commands add the victim's rule and take it away.
func (r *reactor) commands(d dialect) (add, remove func() error, err error) {
	dut := r.Node(lab.Dut)
	if d == nft {
		c, err := newChanger(r.Bench, dut)
		if err != nil {
			return nil, nil, err
		}
		return c.add, c.flush, nil
	}
	return func() error { return dut.Exec("iptables-legacy -I FORWARD 1 -s %s -j DROP", victim) },
		func() error { return dut.Exec("iptables-legacy -D FORWARD 1") }, nil
}

// restores replaces few rules by many, the first of which is the victim's.
func restores(b *suite.Bench, d dialect, e extent) error {
	c := restoredCase(d, e.many)
	few := source(100)
	many := source(e.many)
	many.forward[0] = rule{src: single(victim), does: "DROP"}
	r, ok, err := newReactor(b, c, d, few)
	if err != nil || !ok {
		return err
	}
	for i := range e.replays {
		if b.Late() {
			b.Note("%s: %d times instead of %d, since the section's time was up", c, i, e.replays)
			return nil
		}
		b.Say("%s: %d of %d", c, i+1, e.replays)
		var returned time.Time
		err := r.change(c, added, func() error {
			err := d.replace(r.Node(lab.Dut), many)
			returned = time.Now()
			return err
		}, suite.Dropped, suite.Forwarded)
		if err != nil {
			return err
		}
		last, err := lastChange(500*time.Millisecond, 10*time.Second, r.Lane)
		if err != nil {
			return err
		}
		b.Add(c, added, "specialised", "ms", millis(max(0, last.Sub(returned))))
		err = r.change(c, taken, func() error { return d.replace(r.Node(lab.Dut), few) }, suite.Forwarded, suite.Dropped)
		if err = errors.Join(err, ready(r.Lane)); err != nil {
			return err
		}
	}
	return nil
}
