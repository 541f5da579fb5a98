// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"time"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/synth"
)

// counterSlots gives counters of rules slots that stay theirs as long as the counters are there, whatever image speaks of them.
type counterSlots struct {
	limit  int
	of     map[string]uint32 // by ruleset.CounterPlace.ID
	at     []slot
	unused []uint32    // given up, the oldest first
	taken  []handover  // from these, and not yet rebased
	untold []RuleCount // what slots that changed hands still held
	last   synth.Rules
	// Counters of the images that are asked of all packets: the slot by family and ruleset.CounterID, and how many changes of those images there were. Counters
	// of what newer rules decide.
	images  [synth.Ways][]uint32
	changes uint64
	over    map[string]*ruleset.CounterPlace
}

// handover is a slot that a counter got from another.
type handover struct {
	slot uint32
	from slot
}

// slot is one counter of the data path.
type slot struct {
	place ruleset.CounterPlace // of the last that it was given to
	id    string               // of the place
	since time.Time            // when it was given up; zero while it is not
	named uint64               // the last change of images that speak of it
	base  bpfobj.Count         // what the map's value is to be reduced by: what was counted there and taken
}

// RuleCount is what the fast path counted for a counter of Linux.
type RuleCount struct {
	Place ruleset.CounterPlace
	ID    string // of the place
	ruleset.Amount
}

// TakeRuleCounts gives what the counters of rules have moved since they were last taken, those of rules that went meanwhile among them.
func (d *Datapath) TakeRuleCounts() (out []RuleCount, err error) {
	raw, err := d.rules.read()
	if err != nil {
		return nil, err
	}
	out, d.rules.slots.untold = d.rules.slots.untold, nil
	for i, v := range raw {
		s := &d.rules.slots.at[i]
		if v == s.base {
			continue
		}
		out = append(out, RuleCount{s.place, s.id, ruleset.Amount{Packets: v.Packets - s.base.Packets, Bytes: v.Bytes - s.base.Bytes}})
		s.base = v
	}
	return out, nil
}

// countBuffer is room for what the kernel says of all counters, which may be tens of thousands and are asked for with each change of legacy tables.
type countBuffer struct {
	keys   []uint32
	values []bpfobj.Count // by slot and CPU
	sums   []bpfobj.Count
}

func (b *countBuffer) grow(slots, cpus int) {
	if len(b.keys) < slots {
		b.keys, b.values, b.sums = make([]uint32, slots), make([]bpfobj.Count, slots*cpus), make([]bpfobj.Count, slots)
	}
}

// known is the number of slots that the map has of those that were given out.
func (s *ruleStore) known() int {
	if s.counts == nil {
		return 0
	}
	return min(len(s.slots.at), int(s.counts.MaxEntries()))
}

// read sums the counters over the CPUs. The answer is good until the next call.
func (s *ruleStore) read() ([]bpfobj.Count, error) {
	n := s.known()
	if n == 0 {
		return nil, nil
	}
	cpus, err := possibleCPUs()
	if err != nil {
		return nil, err
	}
	s.buffer.grow(n, cpus)
	keys, values, out := s.buffer.keys[:n], s.buffer.values[:n*cpus], s.buffer.sums[:n]
	got, err := readPerCPU(s.counts, keys, values)
	if err != nil {
		return nil, fmt.Errorf("reading the counters of rules: %w", err)
	}
	clear(out)
	for i := range got {
		out[i] = sum(values[i*cpus : (i+1)*cpus])
	}
	return out, nil
}

// readSlot sums one counter over the CPUs.
func (s *ruleStore) readSlot(n uint32) (bpfobj.Count, error) {
	var values []bpfobj.Count
	if err := s.counts.Lookup(n, &values); err != nil {
		return bpfobj.Count{}, fmt.Errorf("reading a counter of rules: %w", err)
	}
	return sum(values), nil
}

// fewTaken is the number of slots that are sooner read one by one than all at once.
const fewTaken = 64

// rebase takes what slots that change hands hold for theirs that had them before; moved says that the map is about to be replaced by an empty one.
func (s *ruleStore) rebase(moved bool) error {
	if len(s.slots.taken) == 0 && !moved {
		return nil
	}
	var raw []bpfobj.Count
	if moved || len(s.slots.taken) > fewTaken {
		var err error
		if raw, err = s.read(); err != nil {
			return err
		}
	}
	for ; len(s.slots.taken) > 0; s.slots.taken = s.slots.taken[1:] { // after an error it goes on where it was
		h := &s.slots.taken[0]
		if int(h.slot) >= s.known() {
			continue
		}
		var now bpfobj.Count
		if raw != nil {
			now = raw[h.slot]
		} else {
			var err error
			if now, err = s.readSlot(h.slot); err != nil {
				return err
			}
		}
		if was := h.from.base; now != was {
			s.slots.untold = append(s.slots.untold, RuleCount{h.from.place, h.from.id, ruleset.Amount{Packets: now.Packets - was.Packets, Bytes: now.Bytes - was.Bytes}})
		}
		s.slots.at[h.slot].base = now
	}
	s.slots.taken = nil
	for i := range raw[:len(raw)*int(flag(moved))] {
		s.slots.at[i].base.Packets -= raw[i].Packets
		s.slots.at[i].base.Bytes -= raw[i].Bytes
	}
	return nil
}

// want gives every counter of a plan a slot, and takes those of others away. Those of images that stay are not looked at again, since they may be very many.
func (c *counterSlots) want(rules *synth.Rules, now time.Time) {
	same := c.last.Images == rules.Images && sameWays(&c.last, rules)
	if same && c.last.Overs[0].Image == rules.Overs[0].Image && c.last.Overs[1].Image == rules.Overs[1].Image {
		return
	}
	c.last = *rules
	over := map[string]*ruleset.CounterPlace{}
	for i := range rules.Overs {
		o := &rules.Overs[i]
		for j := range o.Places {
			over[o.Places[j].ID()] = &o.Places[j]
		}
	}
	if same {
		for id := range c.over {
			if over[id] == nil && !c.lasts(c.of[id]) {
				c.release(id, now)
			}
		}
	} else {
		c.follow(rules, now)
		for id, n := range c.of {
			if over[id] == nil && !c.lasts(n) {
				c.release(id, now)
			}
		}
	}
	for id, place := range over {
		c.acquire(id, place, now)
	}
	c.over = over
}

// follow gives the counters of the images slots.
func (c *counterSlots) follow(rules *synth.Rules, now time.Time) {
	c.changes++
	for way := range c.images {
		c.images[way] = make([]uint32, len(rules.Places[way]))
	}
	for stage, im := range rules.Images {
		if im == nil {
			continue
		}
		way := synth.WayOf(stage)
		for _, n := range im.Counters {
			place := &rules.Places[way][n]
			slot := c.acquire(place.ID(), place, now)
			c.at[slot].named = c.changes
			c.images[way][n] = slot
		}
	}
}

// lasts says whether an image that is asked of all packets speaks of a slot.
func (c *counterSlots) lasts(slot uint32) bool { return c.changes > 0 && c.at[slot].named == c.changes }

func (c *counterSlots) release(id string, now time.Time) {
	n := c.of[id]
	delete(c.of, id)
	c.at[n].since = now
	c.unused = append(c.unused, n)
}

func (c *counterSlots) acquire(id string, place *ruleset.CounterPlace, now time.Time) uint32 {
	if n, ok := c.of[id]; ok {
		return n
	}
	if c.of == nil {
		c.of = map[string]uint32{}
	}
	n := uint32(len(c.at))
	if len(c.unused) > 0 && now.Sub(c.at[c.unused[0]].since) >= graceTime {
		n, c.unused = c.unused[0], c.unused[1:]
		c.taken = append(c.taken, handover{n, c.at[n]})
	} else {
		c.at = append(c.at, slot{})
	}
	c.of[id] = n
	s := &c.at[n]
	s.id, s.place, s.since, s.named = id, *place, time.Time{}, 0
	return n
}

// sameWays says whether two plans count in the same places.
func sameWays(a, b *synth.Rules) bool {
	for way := range a.Places {
		if !samePlaces(a.Places[way], b.Places[way]) {
			return false
		}
	}
	return true
}

// samePlaces says whether two lists are one.
func samePlaces(a, b []ruleset.CounterPlace) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (c *counterSlots) needed() int { return len(c.at) }

// ofImage gives the slots of an image's counters; those of what newer rules decide are in places.
func (c *counterSlots) ofImage(stage int, places []ruleset.CounterPlace) func(ruleset.CounterID) uint32 {
	if stage < ruleStages {
		return func(n ruleset.CounterID) uint32 { return c.images[synth.WayOf(stage)][n] }
	}
	return func(n ruleset.CounterID) uint32 { return c.of[places[n].ID()] }
}
