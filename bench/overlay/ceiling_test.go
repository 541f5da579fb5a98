// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/lab"
)

// The ceilings make the packets that the tunnel's device and the way to it make: a ceiling that did less would promise what nobody can have.
func TestCeilingIsTheTunnel(t *testing.T) {
	lab.RequireRoot(t)
	for _, d := range directions {
		for _, routes := range []bool{false, true} {
			n, err := lab.BuildLine(lab.UniquePrefix("bench"), lab.LineOptions{V4: innerFlows})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { n.Close() })
			b := &suite.Bench{}
			t.Cleanup(func() { b.Undo() })
			l := &suite.Lane{Net: n, Bench: b}
			if err := d.tunnel(l); err != nil {
				t.Fatal(err)
			}
			want := through(t, d, l)
			if err := d.ownTunnel(l, routes); err != nil {
				t.Fatal(err)
			}
			got := through(t, d, l)
			if !bytes.Equal(got, want) {
				t.Errorf("%s, routes %v:\n got %x\nwant %x", d.name, routes, got, want)
			}
		}
	}
}

// forwarded waits for a packet of IPv4, which is what is sent, until there is a second in which nothing comes; of IPv6 is what hosts say to their links by themselves.
func forwarded(c *lab.Capture) ([]lab.Frame, error) {
	for n := 1; ; {
		frames, err := c.Wait(n, time.Second)
		if err != nil {
			return nil, err
		}
		own := slices.DeleteFunc(slices.Clone(frames), func(f lab.Frame) bool { return binary.BigEndian.Uint16(f.Data[12:]) == 0x86dd })
		if len(own) > 0 || len(frames) < n {
			return own, nil
		}
		n = len(frames) + 1
	}
}

// through is what comes out of the node of a packet, without what Linux chooses anew for every packet and what a card would fill in.
func through(t *testing.T, d direction, l *suite.Lane) []byte {
	t.Helper()
	c, err := l.RX().Capture()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := lab.Flow{SrcMAC: l.TX().MAC, DstMAC: l.In().MAC, Src: netip.MustParseAddr("10.0.0.2"), Dst: innerFlows.Host(0, 1), SrcPort: 1000, DstPort: 2000}
	payload := string(make([]byte, 18))
	if d.out {
		f.Dst, f.SrcPort, f.DstPort, payload = netip.MustParseAddr("10.0.0.1"), 50000, 8472, string(inTunnel())
	}
	var frames []lab.Frame
	for range 5 { // the first may find that a link's other end is not up yet, on a busy machine
		if err := l.TX().Send(f.UDP(payload)); err != nil {
			t.Fatal(err)
		}
		if frames, err = forwarded(c); err != nil || len(frames) > 0 {
			break
		}
	}
	if err != nil || len(frames) != 1 {
		t.Fatalf("%s: %d frames came out of the node: %v", d.name, len(frames), err)
	}
	out := bytes.Clone(frames[0].Data)
	var header uint32
	for i := 14; i < 34; i += 2 {
		header += uint32(binary.BigEndian.Uint16(out[i:]))
	}
	if header%0xffff != 0 {
		t.Errorf("%s: the header's checksum of %x is wrong", d.name, out)
	}
	if !d.out {
		for _, at := range [][2]int{{18, 20}, {24, 26}, {40, 42}} { // identification, and with it the header's checksum; UDP's
			clear(out[at[0]:at[1]])
		}
	}
	return out
}
