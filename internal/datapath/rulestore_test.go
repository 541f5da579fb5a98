// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/rules/image"
	"github.com/shuntnet/shunt/internal/synth"
)

// Images that fit, but for what lies in their way, are put in force; packets go to Linux until the plan is in place.
func TestImagesArePutTogetherAnew(t *testing.T) {
	lab.RequireRoot(t)
	n := lab.BuildLineT(t, lab.LineOptions{V4: lab.V4Prefixes(1), Receive: lab.ReceiveGRO})
	pins := t.TempDir() + "/bpf"
	err := n.Node(lab.Dut).Do(func() error {
		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer d.Detach()
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
			if _, err := s.memory.ReadAt(got, int64(binary.NativeEndian.Uint64(at[:]))); err != nil || !bytes.Equal(got, im.Bytes) {
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
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
