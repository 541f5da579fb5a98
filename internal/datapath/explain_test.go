// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"regexp"
	"testing"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// explains asks what will happen to a frame, which must be what then does: forwarded to egress as want. At TC the addresses are not yet written.
func explains(t *testing.T, d *Datapath, index int, hook graph.Hook, frame []byte, egress int, want []byte) {
	t.Helper()
	before := fast(t, d, index, hook)
	tr, err := d.Explain(index, hook, frame)
	if err != nil {
		t.Fatal(err)
	}
	if tr.Reason != reason.Fast || tr.Egress != egress {
		t.Errorf("explained as %s to %d, want fast to %d", tr.Reason, tr.Egress, egress)
	}
	got := tr.Frame
	if hook == graph.TC {
		got = lab.Edited(got, lab.L2(0, want[:12]...))
	}
	if diff := lab.Diff(want, got); diff != "" {
		t.Errorf("explained rewriting:\n%s", diff)
	}
	ttl, err := d.Explain(index, hook, lab.Edited(frame, lab.TTL(1)))
	if err != nil || ttl.Reason != reason.TTL || ttl.Egress != 0 {
		t.Errorf("TTL 1: %+v, %v", ttl, err)
	}
	if diff := lab.Diff(lab.Edited(frame, lab.TTL(1)), ttl.Frame); diff != "" {
		t.Errorf("a packet that goes to Linux was changed:\n%s", diff)
	}
	if after := fast(t, d, index, hook); after != before {
		t.Errorf("explaining counted: %d packets before, %d after", before, after)
	}
	if _, err := d.Explain(egress+1000, hook, frame); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("an interface without a program: %v", err)
	}
	if _, err := d.Explain(index, hook, frame[:13]); err == nil {
		t.Error("13 bytes are accepted as a frame")
	}
}

// The bound that a frame is beyond is the one that is told.
func TestFrameSize(t *testing.T) {
	for length, want := range map[int]string{20: "20 bytes: .*too short", 9000: "9000 bytes: .*up to about 3500"} {
		if err := frameSize(length); !errors.Is(err, ErrFrameSize) || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
}
