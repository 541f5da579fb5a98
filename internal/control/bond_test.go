// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// bondRouter joins p0 and p1 into bond0, with a VLAN on it; p2 and p3 are as ever. The mode is to be filled in.
const bondRouter = `
ip addr flush dev p0
ip addr flush dev p1
ip link add bond0 type bond miimon 50 mode %s
ip link set p0 down
ip link set p1 down
ip link set p0 master bond0
ip link set p1 master bond0
ip link set bond0 up
ip link add link bond0 name bond0.5 type vlan id 5
ip link set bond0.5 up
`

var bondAddresses = interfaces("bond0 30 1", "bond0.5 31 1") + `
ip route add 10.90.0.0/16 via 10.30.0.2
ip route add 10.91.0.0/16 via 10.31.0.2
`

// lacpPartner makes the wire's ends of p0 and p1 the other side of the aggregation.
const lacpPartner = `
sysctl -qw net.ipv6.conf.default.disable_ipv6=1
ip link add bond9 type bond miimon 50 mode 802.3ad
ip link set w0 down
ip link set w1 down
ip link set w0 master bond9
ip link set w1 master bond9
ip link set bond9 up
`

func TestBond(t *testing.T) {
	kinds(t, "b0 type bond", "d0 type dummy", "link d0 name v0 type vlan id 5")
	for mode, xdp := range map[string]reason.Code{
		"balance-xor xmit_hash_policy layer2+3": reason.Fast,
		"802.3ad":                               reason.Fast,
		"active-backup":                         slow, // XDP would take packets of the slave that Linux does not listen to
	} {
		for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
			name, _, _ := strings.Cut(mode, " ")
			t.Run(name+"/"+string(hook), func(t *testing.T) { testBond(t, mode, hook, xdp) })
		}
	}
}

func testBond(t *testing.T, mode string, hook graph.Hook, xdp reason.Code) {
	w := newTwin(t, 4, fmt.Sprintf(bondRouter, mode)+bondAddresses)
	if strings.HasPrefix(mode, "802.3ad") {
		for _, line := range strings.Split(strings.TrimSpace(lacpPartner), "\n") {
			if err := w.net.Node("wire").Exec("%s", line); err != nil {
				t.Fatal(err)
			}
		}
	}
	shots := bondShots(w, xdp)
	if strings.HasPrefix(mode, "802.3ad") {
		w.aggregated()
	}
	w.until("the bond carries packets", shots[0], func(frames []string) bool { return len(frames) == 1 })
	w.until("the bond takes packets", shots[1], func(frames []string) bool { return len(frames) == 1 })
	w.alone(shots)
	w.start(hook)
	w.compare(shots)
	if w.Failed() {
		return
	}
	// A slave less, a slave more.
	w.exec("ip link set p1 nomaster")
	shots = slices.DeleteFunc(shots, func(s shot) bool { return s.port == "w1" })
	w.attachWire(w.net.Port("wire", "w0"), w.net.Port("wire", "w2")) // p1 is down now
	w.settles("one slave", shots[0], "wire/w0")
	w.exec("ip link set p1 master bond0")
	w.until("two slaves again", shots[1], func(frames []string) bool { return len(frames) == 1 })
	w.settles("two slaves again", shots[1], "wire/w2")
	// A port of the router becomes a slave: its program must be out of the way by then.
	w.exec("ip link set p3 down")
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = w.net.Node(lab.Dut).Exec("ip link set p3 master bond0"); err == nil {
			break
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// aggregated waits until both slaves distribute packets at both ends of the link.
func (w *twin) aggregated() {
	w.Helper()
	var said string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		said = ""
		for _, slave := range []string{"p0", "p1"} {
			out, err := w.net.Node(lab.Dut).Output("ip -d link show %s", slave)
			if err != nil {
				w.Fatal(err)
			}
			said += out
		}
		if strings.Count(said, "distributing") == 4 {
			return
		}
	}
	w.Fatalf("the link is not aggregated:\n%s", said)
}

func bondShots(w *twin, xdp reason.Code) (shots []shot) {
	add := func(name, port string, frame []byte, xdp, tc reason.Code) {
		shots = append(shots, shot{name: name, port: port, frame: frame, xdp: xdp, tc: tc})
	}
	out := func(i int) []byte { return w.flow("w2", "10.0.2.2", fmt.Sprintf("10.90.0.%d", i)).UDP("hello") }
	// Slaves have the bond's address, which was p0's.
	in := func(port, src, dst string, vlans ...uint16) []byte {
		f := w.flow(port, src, dst, vlans...)
		f.DstMAC = w.net.Port(lab.Dut, "p0").MAC
		return f.UDP("hello")
	}
	add("out by the bond", "w2", out(1), xdp, reason.Fast)
	add("in by the first slave", "w0", in("w0", "10.30.0.2", "10.0.2.2"), xdp, reason.Fast)
	for i := range 6 {
		add(fmt.Sprintf("out by the bond, flow %d", i), "w2", out(2+i), xdp, reason.Fast)
	}
	if xdp == reason.Fast {
		add("in by the second slave", "w1", in("w1", "10.30.0.2", "10.0.2.2"), xdp, reason.Fast)
		add("in by the second slave, tagged", "w1", in("w1", "10.31.0.2", "10.0.2.2", 5), xdp, reason.Fast)
	} else {
		add("in by the slave that is not active", "w1", in("w1", "10.30.0.2", "10.0.2.2"), slow, slow)
	}
	add("in, tagged", "w0", in("w0", "10.31.0.2", "10.0.2.2", 5), xdp, reason.Fast)
	add("out, tagged", "w2", w.flow("w2", "10.0.2.2", "10.91.0.1").UDP("hello"), xdp, reason.Fast)
	add("from tagged to untagged", "w0", in("w0", "10.31.0.2", "10.90.0.1", 5), xdp, reason.Fast)
	add("not the bond's address", "w0", w.flow("w0", "10.30.0.2", "10.0.2.2").UDP("hello")[:], slow, slow)
	shots[len(shots)-1].frame = lab.Edited(shots[len(shots)-1].frame, lab.L2(0, 2, 9, 9, 9, 9, 9))
	return shots
}

// until waits until Linux, with or without shunt, makes of a shot what it should.
func (w *twin) until(what string, s shot, ok func(frames []string) bool) {
	w.Helper()
	var got []string
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if got = w.send(s, 0); ok(got) {
			return
		}
	}
	w.Fatalf("waiting in vain: %s: %s", what, got)
}

// settles waits until a shot goes the way that it should, and leaves by the port.
func (w *twin) settles(what string, s shot, port string) {
	w.Helper()
	want := s.xdp
	if w.hook == graph.TC {
		want = s.tc
	}
	var frames, way []string
	for end := time.Now().Add(patience + 5*time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		before := w.counters()
		frames = w.send(s, 1)
		if way = left(before, w.counters()); agrees(want, way) && len(frames) == 1 && strings.HasPrefix(frames[0], port+" ") {
			return
		}
	}
	w.Errorf("%s: %s left by %q, want %s; %s", what, s.name, way, wantName(want), frames)
	w.explain()
}
