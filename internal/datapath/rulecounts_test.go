// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules/image"
	"github.com/shuntnet/shunt/internal/synth"
)

// What a slot holds that nobody took before it went to another counter belongs to the one that had it.
func TestSlotThatChangesHands(t *testing.T) {
	lab.RequireRoot(t)
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 4})
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
		s.slots.want(&synth.Rules{
			Images: [2 * image.Stages]*image.Image{{Counters: []ruleset.CounterID{0}}},
			Places: []ruleset.CounterPlace{{Kind: ruleset.NamedCounter, Family: ruleset.IP4, Table: "t", Name: name}},
		}, now)
		if err := s.rebase(false); err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * graceTime)
	}
	want("first")
	want("second") // the first one's slot may still be counted in
	value := make([]bpfobj.Count, cpus)
	value[cpus-1] = bpfobj.Count{Packets: 3, Bytes: 180}
	if err := counts.Put(uint32(0), value); err != nil {
		t.Fatal(err)
	}
	want("third") // has it now
	value[0] = bpfobj.Count{Packets: 1, Bytes: 60}
	if err := counts.Put(uint32(0), value); err != nil {
		t.Fatal(err)
	}
	told, err := d.TakeRuleCounts()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]ruleset.Amount{}
	for _, c := range told {
		got[c.Place.Name] = got[c.Place.Name].Add(c.Amount)
	}
	if len(got) != 2 || got["first"] != (ruleset.Amount{Packets: 3, Bytes: 180}) || got["third"] != (ruleset.Amount{Packets: 1, Bytes: 60}) {
		t.Errorf("told %+v", got)
	}
}
