// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/rules/image"
	"github.com/shuntnet/shunt/internal/synth"
)

// onLine hands a data path in the router of a line, without anything in force, to a test.
func onLine(t *testing.T, do func(*lab.Net, *Datapath)) {
	t.Helper()
	lab.RequireRoot(t)
	n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(1), V6: lab.V6Prefixes(1), Receive: lab.ReceiveGRO})
	pins := t.TempDir() + "/bpf"
	err := n.Node(lab.Dut).Do(func() error {
		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer d.Detach()
		do(n, d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Images that fit, but for what lies in their way, are put in force; packets go to Linux until the plan is in place.
func TestImagesArePutTogetherAnew(t *testing.T) {
	onLine(t, func(_ *lab.Net, d *Datapath) {
		s := &d.rules
		install := func(images ...*image.Image) {
			t.Helper()
			want := &synth.Rules{}
			copy(want.Images[:], images)
			if err := d.prepareRules(want); err != nil {
				t.Fatal(err)
			}
			if err := d.installRules(want); err != nil {
				t.Fatal(err)
			}
		}
		holds := func(stage int, im *image.Image) {
			t.Helper()
			var at [8]byte
			d.objects.live.ReadAt(at[:], offRules+8*int64(stage))
			got := make([]byte, len(im.Bytes))
			if _, err := s.memory.ReadAt(got, int64(uint32(binary.NativeEndian.Uint64(at[:])))); err != nil || !bytes.Equal(got, im.Bytes) {
				t.Errorf("the image of stage %d is not where programs look for it: %v", stage, err)
			}
		}
		of := func(b byte, size int) *image.Image { return &image.Image{Bytes: bytes.Repeat([]byte{b}, size)} }
		const part = firstRuleSize / 16
		first, low, large := of(1, 4*part), of(2, part), of(3, 7*part-1024)
		install(first, low)
		d.store(offStale, 0)
		install(nil, low)
		if d.Stale() {
			t.Error("one image less is no reason to stop")
		}
		if _, err := s.take(5 * part); err != nil { // as if a third one were there: before it and behind it there is room, and nowhere enough
			t.Fatal(err)
		}
		install(large, low)
		if !d.Stale() {
			t.Error("packets could meet what is being written over")
		}
		holds(0, large)
		holds(1, low)
		if s.size != firstRuleSize || len(s.rooms) != 2 {
			t.Errorf("%d bytes, %+v", s.size, s.rooms)
		}
	})
}

// TestVerdictsOfOtherRules: what is remembered is never met by rules, or by programs, that could say something else: a new image has a new number, and programs that ask for other
// things have another table. Few rules are not remembered.
func TestVerdictsOfOtherRules(t *testing.T) {
	onLine(t, func(_ *lab.Net, d *Datapath) {
		install := func(images ...*image.Image) (numbers []uint32, table *ebpf.Map) {
			t.Helper()
			want := &synth.Rules{}
			copy(want.Images[:], images)
			if err := d.prepareRules(want); err != nil {
				t.Fatal(err)
			}
			if err := d.installRules(want); err != nil {
				t.Fatal(err)
			}
			for i := range images {
				var at [8]byte
				d.objects.live.ReadAt(at[:], offRules+8*int64(i))
				numbers = append(numbers, uint32(binary.NativeEndian.Uint64(at[:])>>32))
			}
			return numbers, d.objects.maps[verdictsMap]
		}
		of := func(entries int, asks uint32) *image.Image {
			return &image.Image{Bytes: make([]byte, 128), Entries: entries, Shape: image.Shape{On: true, Asks: asks}}
		}
		check := func(what string, got []uint32, want ...uint32) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: numbers %d, want %d", what, got, want)
			}
		}
		config := func() (c bpfobj.Config) { d.rules.configure(&c); return c }
		few, many, other := of(1, 0), of(20, 0), of(20, 0)
		numbers, none := install(few, few)
		check("few rules", numbers, 0, 0)
		if c := config(); c.Verdicts != 0 {
			t.Errorf("programs remember few rules: %d places", c.Verdicts)
		}
		numbers, table := install(many, few)
		check("many rules", numbers, 1, 0)
		if c := config(); c.Verdicts == 0 || table == none || table.MaxEntries()%c.Verdicts != 0 {
			t.Errorf("%d places of %d for each CPU", table.MaxEntries(), c.Verdicts)
		}
		numbers, same := install(other, many)
		check("changed rules", numbers, 2, 3)
		if same != table {
			t.Error("programs that are the same have another table")
		}
		numbers, same = install(other, many)
		check("unchanged rules", numbers, 2, 3)
		if same != table {
			t.Error("without a change there is another table")
		}
		before := config()
		numbers, wider := install(of(20, 1<<markValue), many)
		check("rules that ask for more", numbers, 4, 3)
		if wider == table || config() == before {
			t.Error("programs that ask for more have the table of those that do not")
		}
		numbers, grown := install(&image.Image{Bytes: make([]byte, firstRuleSize), Entries: 20, Shape: image.Shape{On: true}}, many)
		check("in a larger map", numbers, 5, 6)
		if grown == wider {
			t.Error("programs with other maps have the same table")
		}
		tooMany := &synth.Rules{Images: [synth.Ways * image.Stages]*image.Image{{Bytes: make([]byte, maxRuleSize), Entries: 20, Shape: image.Shape{On: true, Asks: 1}}}}
		if err := d.prepareRules(tooMany); err == nil {
			t.Error("there was room for too many rules")
		}
		if _, later := install(other, many); later == grown {
			t.Error("once rules were refused, programs that ask for what those would have share the table of those that do not")
		}
	})
}

func TestVerdictPlaces(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		cpus         int
		memory, want uint64
	}{{2, 4096 * mib, maxVerdicts}, {2, 512 * mib, maxVerdicts}, {2, 256 * mib, maxVerdicts / 2}, {64, 4096 * mib, maxVerdicts / 4}, {256, 16 * mib, minVerdicts}} {
		if got := verdictPlaces(c.cpus, c.memory); uint64(got) != c.want {
			t.Errorf("%d CPUs, %d MiB: %d places, want %d", c.cpus, c.memory/mib, got, c.want)
		}
	}
}
