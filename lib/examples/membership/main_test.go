// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/examples/function/functest"
)

func TestMain(m *testing.M) { os.Exit(functest.Main(m)) }

func frameFrom(addr netip.Addr, size int) []byte {
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 7}, DstMAC: []byte{2, 0, 0, 0, 0, 9}}
	udp := &layers.UDP{SrcPort: 4000, DstPort: 9}
	if addr.Is4() {
		return lab.Edited(lab.Packet(eth, &layers.IPv4{SrcIP: addr.AsSlice(), DstIP: []byte{192, 0, 2, 2}}, udp), lab.Pad(size))
	}
	to := netip.MustParseAddr("2001:db8::1").AsSlice()
	return lab.Edited(lab.Packet(eth, &layers.IPv6{SrcIP: addr.AsSlice(), DstIP: to}, udp), lab.Pad(size))
}

// TestSets: packets of 3000 addresses in three sets, and of strangers, are counted as a map of addresses counts them; those of one set do
// not arrive.
func TestSets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 15))
	o := &options{sets: []set{{name: "office"}, {name: "guests"}, {name: "banned"}}, drop: []string{"banned"}}
	twin := map[netip.Addr]int{}
	addr := func(n int) netip.Addr {
		if n%2 == 0 {
			return netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})
		}
		return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x:1", n))
	}
	for n := range 3000 {
		one := &o.sets[r.IntN(3)]
		one.addresses = append(one.addresses, addr(n))
		for i := range o.sets {
			if one == &o.sets[i] {
				twin[addr(n)] = i
			}
		}
	}
	f := newMembership(5, o)
	site := functest.Attach(t, f)
	// One address changes its set, another leaves: neither is remembered.
	moved, gone := addr(10), addr(11)
	for _, err := range []error{
		apply(site.Coll, moved, twin[moved]+1, true), apply(site.Coll, moved, (twin[moved]+1)%3+1, false),
		apply(site.Coll, gone, twin[gone]+1, true),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := apply(site.Coll, gone, twin[gone]+1, true); err == nil {
		t.Error("an address that is in no set was taken out of one")
	}
	twin[moved] = (twin[moved] + 1) % 3
	delete(twin, gone)

	const strangers = 3
	want := make([]tally, 4)
	var frames [][]byte
	arrive := 0
	for i := range 6000 {
		n := r.IntN(3600)
		if i < 40 {
			n = 10 + i%2
		}
		frame := frameFrom(addr(n), 60+r.IntN(100))
		which, ok := twin[addr(n)]
		if !ok {
			which = strangers
		}
		want[which].Packets++
		want[which].Bytes += uint64(len(frame))
		if which != 2 {
			arrive++
		}
		frames = append(frames, frame)
	}
	capture, err := lab.NewCapture(site.Net.Port(lab.Dut, "p0"))
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	site.Send(frames...)
	var got report
	site.Await("every packet of a set counted", func() bool {
		s, err := f.Report(site.Coll)
		if err != nil {
			t.Fatal(err)
		}
		got = s.(report)
		return got.Sets[strangers].Packets >= want[strangers].Packets && got.Sets[2].Packets >= want[2].Packets
	})
	for i, w := range want[:strangers] {
		if got.Sets[i].tally != w {
			t.Errorf("set %s: %+v, want %+v", got.Sets[i].Set, got.Sets[i].tally, w)
		}
	}
	arrived, err := capture.Take(arrive, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, fr := range arrived {
		if fr.Data[11] != 7 { // the port's own frames
			continue
		}
		passed++
	}
	if passed != arrive {
		t.Errorf("%d packets arrived, want %d: all but those of one set", passed, arrive)
	}
	text, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(text), `{"set":"office","packets":`) || !strings.Contains(got.String(), "guests") {
		t.Errorf("%s (%v)\n%s", text, err, got)
	}
}

// TestFull: more addresses than fit are an error that says so.
func TestFull(t *testing.T) {
	lab.RequireRoot(t)
	o := &options{sets: []set{{name: "all"}}}
	same := netip.MustParseAddr("192.0.2.1") // in one pair of buckets
	for range 33 {
		o.sets[0].addresses = append(o.sets[0].addresses, same)
	}
	if _, err := newMembership(5, o).Load(); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("33 addresses in two buckets of 16: %v", err)
	}
}

// TestErrors: what is wrong is said in words that help.
func TestErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(file, []byte("192.0.2.1\n2001:db8::5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := parseSet("x=@" + file); err != nil || len(s.addresses) != 2 {
		t.Errorf("a file of two addresses: %v, %v", s, err)
	}
	for _, test := range []struct{ args, want string }{
		{"", "wrong usage"},
		{"-dev lo -set nonsense", "wrong usage"},
		{"-dev lo -set x=300.0.0.1", "wrong usage"},
		{"-dev lo -set x=@/nonexistent", "wrong usage"},
		{"-dev lo -set x=192.0.2.1 -drop y", `no set is named "y"`},
		{"-dev nosuchdevice -set x=192.0.2.1", "`ip link` lists"},
	} {
		var out bytes.Buffer
		err := newMembership(1, new(options)).Run(context.Background(), strings.Fields(test.args), &out)
		if os.Geteuid() != 0 && strings.Contains(test.args, "nosuch") {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("membership %s: %v, want %q", test.args, err, test.want)
		}
	}
}
