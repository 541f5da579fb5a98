// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
	"github.com/shuntnet/shunt/internal/synth"
)

// What a slot holds that nobody took before it went to another counter belongs to the one that had it, be it one or one of many.
func TestSlotThatChangesHands(t *testing.T) {
	lab.RequireRoot(t)
	for _, many := range []int{1, fewTaken + 1} {
		t.Run(fmt.Sprint(many), func(t *testing.T) { testSlotsThatChangeHands(t, many) })
	}
}

func testSlotsThatChangeHands(t *testing.T, many int) {
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: uint32(4 * many)})
	if err != nil {
		t.Fatal(err)
	}
	defer counts.Close()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	d := &Datapath{}
	s := &d.rules
	s.counts = counts
	now := time.Now()
	want := func(name string) {
		t.Helper()
		im := &image.Image{}
		var places []ruleset.CounterPlace
		for i := range many {
			im.Counters = append(im.Counters, ruleset.CounterID(i))
			places = append(places, ruleset.CounterPlace{Kind: ruleset.NamedCounter, Family: ruleset.IP4, Table: "t", Name: fmt.Sprint(name, i)})
		}
		s.slots.want(&synth.Rules{Images: [synth.Ways * image.Stages]*image.Image{im}, Places: [synth.Ways][]ruleset.CounterPlace{places}}, now)
		if err := s.rebase(false); err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * graceTime)
	}
	value := make([]bpfobj.Count, cpus)
	put := func(packets uint64) { // what the slots that were given out first stand at
		t.Helper()
		value[packets%uint64(cpus)] = bpfobj.Count{Packets: packets, Bytes: 60 * packets}
		for i := range many {
			if err := counts.Put(uint32(i), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	want("first")
	want("second") // the first ones' slots may still be counted in
	put(3)
	want("third") // have them now
	put(4)
	told, err := d.TakeRuleCounts()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]ruleset.Amount{}
	for _, c := range told {
		sums[c.Place.Name] = sums[c.Place.Name].Add(c.Amount)
	}
	last := uint64(4)
	if cpus == 1 { // the second value is written over the first
		last = 1
	}
	for i := range many {
		if got := sums[fmt.Sprint("first", i)]; got != (ruleset.Amount{Packets: 3, Bytes: 180}) {
			t.Errorf("the first have %+v", got)
		}
		if got := sums[fmt.Sprint("third", i)]; got != (ruleset.Amount{Packets: last, Bytes: 60 * last}) {
			t.Errorf("the third have %+v", got)
		}
	}
	if len(sums) != 2*many {
		t.Errorf("told %d counters", len(sums))
	}
}
