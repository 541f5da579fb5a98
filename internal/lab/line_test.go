// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
)

// routed is the frame as a router sends it from port out.
func routed(frame []byte, out *Port) []byte {
	return Edited(frame, L2(0, out.Peer.MAC...), L2(6, out.MAC...), TTL(63))
}

func lineCases(n *Net) map[string][]byte {
	tx := n.Port(Src, "tx")
	v4 := tx.Flow("10.0.0.2", V4Prefixes(1).Host(3, 9).String())
	v6 := tx.Flow("fd00:0:0:1::2", V6Prefixes(1).Host(3, 9).String())
	return map[string][]byte{
		"udp": v4.UDP("hello"), "tcp": v4.TCP("S", 1, ""), "icmp": v4.Echo(1, 2, "ping"),
		"padded": Edited(v4.UDP("x"), Pad(60)),
		"udp6":   v6.UDP("hello"), "tcp6": v6.TCP("PA", 7, "data"), "icmp6": v6.Echo(1, 2, "ping"),
	}
}

// TestLinuxForwards sends one packet of each kind through a Linux router, both as
// an sk_buff and as an XDP frame, and expects what a router must make of it.
func TestLinuxForwards(t *testing.T) {
	t.Parallel()
	n := BuildLineT(t, LineOptions{V4: V4Prefixes(50), V6: V6Prefixes(50), Receive: ReceiveGRO})
	tx, out := n.Port(Src, "tx"), n.Port(Dut, "out")
	wire, err := tx.Wire()
	must(t, err)
	defer wire.Close()
	c := captureT(t, n.Port(SinkNode, "rx"))

	for name, frame := range lineCases(n) {
		want := routed(frame, out)
		if name == "padded" {
			want = want[:14+29] // ip_rcv trims to the IP length
		}
		for how, send := range map[string]func(...[]byte) error{"skb": tx.Send, "xdp": wire.Send} {
			must(t, send(frame))
			got := take(t, c, 1)
			if len(got) != 1 {
				t.Errorf("%s as %s: %d frames arrived, want 1", name, how, len(got))
				continue
			}
			if d := Diff(want, got[0]); d != "" {
				t.Errorf("%s as %s:\n%s", name, how, d)
			}
		}
	}
}

// TestLinuxDrops shows that the edits break what they say: Linux, which forwards
// the untouched frame, drops each of these.
func TestLinuxDrops(t *testing.T) {
	t.Parallel()
	n := BuildLineT(t, LineOptions{V4: V4Prefixes(50), V6: V6Prefixes(50)})
	tx := n.Port(Src, "tx")
	c := captureT(t, n.Port(SinkNode, "rx"))
	cases := lineCases(n)

	for name, frame := range map[string][]byte{
		"ip checksum":     Edited(cases["udp"], BadIPChecksum()),
		"version":         Edited(cases["udp"], IPVersion(5), FixIPChecksum()),
		"header length 4": Edited(cases["udp"], IHL(4)),
		"length too long": Edited(cases["udp"], IPLength(200)),
		"truncated":       Edited(cases["tcp"], Truncate(30)),
		"ttl 1":           Edited(cases["udp"], TTL(1)),
		"hop limit 1":     Edited(cases["udp6"], TTL(1)),
		"not our mac":     Edited(cases["udp"], L2(5, 0x77)),
		"v6 length":       Edited(cases["udp6"], IPLength(1000)),
	} {
		must(t, tx.Send(frame))
		if got := take(t, c, 0); len(got) != 0 {
			t.Errorf("%s: %s was forwarded as %s", name, Describe(frame), Describe(got[0]))
		}
	}
	must(t, tx.Send(cases["udp"]))
	if got := take(t, c, 1); len(got) != 1 {
		t.Errorf("the untouched frame: %d arrived, want 1", len(got))
	}
}

// TestLinuxReassembles sends pings in fragments and expects whole answers.
func TestLinuxReassembles(t *testing.T) {
	t.Parallel()
	n := BuildLineT(t, LineOptions{Receive: ReceiveGRO})
	tx := n.Port(Src, "tx")
	c := captureT(t, tx)
	payload := strings.Repeat("0123456789", 100)
	for _, f := range []Flow{tx.Flow("10.0.0.2", "10.0.0.1"), tx.Flow("fd00:0:0:1::2", "fd00:0:0:1::1")} {
		ping := f.Echo(1, 2, payload)
		must(t, tx.Send(Fragments(ping, 400)...))
		got := take(t, c, 1)
		if len(got) != 1 || len(got[0]) != len(ping) || !strings.HasSuffix(string(got[0]), payload) {
			t.Errorf("%s in fragments was answered by %d packets", Describe(ping), len(got))
			for _, g := range got {
				t.Log(Describe(g))
			}
		}
	}
}
