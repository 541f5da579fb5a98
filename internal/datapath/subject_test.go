// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/synth"
)

// snapshot has a value for each word, of the namespace and of devices; with none of devices they were not read.
func snapshot(value uint64, devices ...int) Snapshot {
	s := Snapshot{words: new([bpfobj.WordNetCount]bpfobj.WordValue)}
	for w := range s.words {
		s.words[w] = bpfobj.WordValue{Addr: 1 + uint64(w), Value: value}
	}
	for _, index := range devices {
		if s.devices == nil {
			s.devices = map[int]*deviceWords{}
		}
		words := &deviceWords{}
		for w := range words {
			words[w] = bpfobj.WordValue{Addr: uint64(1000*index + w), Value: value}
		}
		s.devices[index] = words
	}
	return s
}

// A round makes the words current of what it reads, and no others: neither where it read the words of devices nor where it left them.
func TestSnapshotsKeepWhatWasNotRead(t *testing.T) {
	const old, now = 1, 2
	forwarding, sockets := bpfobj.WordDevForwarding6, bpfobj.WordDevSockets
	for _, c := range []struct {
		name    string
		unread  Subject
		devices []int
		word    synth.Word
		want    uint64
	}{
		{"rules, which were read", OfSwitches, []int{7}, synth.Word{Word: bpfobj.WordNFTBaseSeq}, now},
		{"rules, which were not", OfNetfilter, []int{7}, synth.Word{Word: bpfobj.WordNFTBaseSeq}, old},
		{"a switch that was read", OfSockets, []int{7}, synth.Word{Word: forwarding, Index: 7}, now},
		{"a switch that was not", OfSwitches, []int{7}, synth.Word{Word: forwarding, Index: 7}, old},
		{"sockets beside switches that were not read", OfSwitches, []int{7}, synth.Word{Word: sockets, Index: 7}, now},
		{"no device", OfSwitches | OfSockets, nil, synth.Word{Word: sockets, Index: 7}, old},
		{"a device that the last round did not know", OfSwitches, []int{7, 8}, synth.Word{Word: forwarding, Index: 8}, now},
	} {
		last, s := snapshot(old, 7), snapshot(now, c.devices...)
		s.Keep(last, c.unread)
		if v, known := s.word(c.word); !known || v.Value != c.want {
			t.Errorf("%s: %+v, %v, want %d", c.name, v, known, c.want)
		}
	}
	if Devices(OfSwitches|OfSockets|OfNetfilter) || !Devices(OfSwitches) || !Devices(OfSockets) || !Devices(0) {
		t.Error("words of devices are read where nothing of them would be taken, or are not where something would")
	}
}

// Words of devices that are elsewhere than before, and devices that are gone, leave nothing to be taken over.
func TestWordsOfOtherDevicesAreNotTakenOver(t *testing.T) {
	d := &Datapath{slots: map[synth.Word]uint16{}, watched: map[int]int{}, lives: map[int]int{}}
	s := snapshot(1, 7, 8)
	d.devices = s.devices
	again := snapshot(2, 7, 8)
	if d.moved(&again); d.moves != 0 {
		t.Error("other values are taken for other places")
	}
	again.devices[8][1].Addr++
	if d.moved(&again); d.moves != 1 {
		t.Error("a word that is elsewhere is not noticed")
	}
	d.replaced([]*synth.Port{{Index: 7}, {Index: 8, Life: 1}}, &again)
	if again.devices[7] == nil || again.devices[8] != nil || d.moves != 2 {
		t.Errorf("with another device 8 there are the words of %v, moves %d", again.devices, d.moves)
	}
	d.unwatch(&synth.Plan{Ports: []*synth.Port{{Index: 9}}}, &again)
	if len(again.devices) != 0 {
		t.Errorf("words of devices that are gone: %v", again.devices)
	}
}

// The ports to look at again are those that a plan had otherwise.
func TestOthersAreThosePortsThatChanged(t *testing.T) {
	a, b, c := &synth.Port{Index: 1}, &synth.Port{Index: 2}, &synth.Port{Index: 4}
	other := &synth.Port{Index: 2}
	for _, x := range []struct {
		now, last []*synth.Port
		others    int
		alike     bool
	}{
		{[]*synth.Port{a, b, c}, []*synth.Port{a, b, c}, 0, true},
		{[]*synth.Port{a, other, c}, []*synth.Port{a, b, c}, 1, true},
		{[]*synth.Port{a, c}, []*synth.Port{a, b, c}, 0, false},
		{[]*synth.Port{a, b, c}, []*synth.Port{a, c}, 1, false},
		{[]*synth.Port{a, b}, []*synth.Port{a, c}, 1, false},
		{[]*synth.Port{a}, nil, 1, false},
	} {
		if got, alike := others(x.now, x.last); len(got) != x.others || alike != x.alike {
			t.Errorf("of %v after %v: %v, %v", x.now, x.last, got, alike)
		}
	}
}

// Devices that come and go leave nothing: a host of containers sees millions.
func TestDevicesThatAreGoneAreForgotten(t *testing.T) {
	d := &Datapath{lives: map[int]int{}, seen: map[int]time.Time{}, retired: map[hookKey]Counts{}}
	for i := range 1000 {
		port := &synth.Port{Index: 10 + i, Life: i}
		plan := &synth.Plan{Ports: []*synth.Port{{Index: 2}, port}}
		d.meet(plan, []*synth.Port{port})
		d.replaced([]*synth.Port{port}, &Snapshot{})
	}
	if len(d.lives) > 8 || len(d.seen) > 8 {
		t.Errorf("after a thousand devices, of which two are there, %d lives and %d births are remembered", len(d.lives), len(d.seen))
	}
}

// A configuration that no port came to point at, since rules could not be installed, is taken back.
func TestConfigurationsOfAbandonedJobs(t *testing.T) {
	d := &Datapath{generic: &generic{}}
	d.abandon(&job{number: 7})
	d.abandon(&job{})
	if !slices.Equal(d.generic.old, []uint64{7}) {
		t.Errorf("to be taken back: %v, want [7]", d.generic.old)
	}
}
