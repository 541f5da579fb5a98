// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/shuntnet/shunt/internal/lab"
)

// TestSeedsRepeat: one seed gives one case, bytes and all, and what a file keeps is the whole of it.
func TestSeedsRepeat(t *testing.T) {
	for seed := range uint64(20) {
		a, b := Generate(seed, 200, "xdp", stackedKinds), Generate(seed, 200, "xdp", stackedKinds)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d gave two cases", seed)
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		back := &Case{}
		if err := json.Unmarshal(text, back); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(back)
		if err != nil || !bytes.Equal(text, again) {
			t.Fatalf("seed %d: a saved case reads differently (%v)", seed, err)
		}
	}
}

// TestCompareSees: every kind of change to what leaves a port is a difference.
func TestCompareSees(t *testing.T) {
	own := newAddresses()
	f := flowOf(0, h0, h1)
	base := output{1: {f.UDP("one"), f.UDP("two"), f.TCP("S", 1, "")}}
	for name, change := range map[string]func(o *output){
		"lost":       func(o *output) { o[1] = o[1][1:] },
		"twice":      func(o *output) { o[1] = append(o[1], o[1][0]) },
		"other port": func(o *output) { o[2], o[1] = o[1][:1], o[1][1:] },
		"ttl":        func(o *output) { o[1][0] = lab.Edited(o[1][0], lab.TTL(9)) },
		"mac":        func(o *output) { o[1][0] = lab.Edited(o[1][0], lab.L2(5, 9)) },
		"checksum":   func(o *output) { o[1][0] = lab.Edited(o[1][0], lab.BadIPChecksum()) },
		"id":         func(o *output) { o[1][0] = lab.Edited(o[1][0], lab.L3(4, 1, 1), lab.FixIPChecksum()) },
		"padding":    func(o *output) { o[1][0] = lab.Edited(o[1][0], lab.Pad(80)) },
		"arp":        func(o *output) { o[0] = append(o[0], arps()[0].Frame) },
	} {
		other := base
		other[1] = append([][]byte{}, base[1]...)
		if diffs := compare(&base, &other, own); len(diffs) != 0 {
			t.Fatalf("equal outputs differ: %s", diffs)
		}
		change(&other)
		if diffs := compare(&base, &other, own); len(diffs) == 0 {
			t.Errorf("%s: no difference seen", name)
		}
	}
	swapped := output{1: {base[1][1], base[1][0], base[1][2]}}
	if diffs := compareOrder(&base, &swapped, func([]byte) bool { return true }); len(diffs) == 0 {
		t.Error("order within a flow: no difference seen")
	}
}

// TestPlainIsStrict: the model calls no packet plain that has anything in it for Linux.
func TestPlainIsStrict(t *testing.T) {
	for _, h := range packetTraps() {
		switch h.name {
		case "ttl", "options", "fragments", "extension-headers", "vlan-tags", "foreign-macs", "partial-checksums":
		default:
			continue
		}
		for _, p := range h.steps[0].packets {
			f, ok := readIP(p.Frame)
			odd := !ok || f.l3 != 14 || p.How == Offload || string(p.Frame[:6]) != string(portMAC(0)) || f.version == 4 && (p.Frame[14] != 0x45 || p.Frame[20]&0x3f|p.Frame[21] != 0 || p.Frame[22] < 2) ||
				f.version == 6 && (p.Frame[21] < 2 || f.proto == 0 || f.proto == 43 || f.proto == 44 || f.proto == 60 || f.proto == 51)
			if odd && plain(p) {
				t.Errorf("%s: called plain: %s", h.name, p)
			}
		}
	}
}
