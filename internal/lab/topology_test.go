// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEndsAreAsDescribed asks the kernel about every field of an End.
func TestEndsAreAsDescribed(t *testing.T) {
	t.Parallel()
	top := Line(LineOptions{MTU: 9000, Queues: 3, Threaded: true, Receive: ReceiveGRO})
	top.End(Dut, "out").NoTxChecksum = true
	top.End(Dut, "out").Receive = ReceiveXDP
	n := BuildT(t, top)
	dut := n.Node(Dut)
	for command, wants := range map[string][]string{
		"ip -d link show dev in":        {"mtu 9000", "link/ether 02:00:00:00:01:02", "numtxqueues 3 numrxqueues 3", "state UP"},
		"ip -d link show dev out":       {"mtu 9000", "link/ether 02:00:00:00:02:01", "prog/xdp"},
		"ip addr show dev in":           {"10.0.0.1/24", "fd00:0:0:1::1/64"},
		"ip neigh show dev out":         {"10.0.1.2 lladdr 02:00:00:00:02:02 PERMANENT", "fd00:0:0:2::2 lladdr 02:00:00:00:02:02 PERMANENT"},
		"sysctl -n net.ipv4.ip_forward": {"1"},
		"ip -6 addr show tentative":     {},
		"ethtool -k in":                 {"generic-receive-offload: on", "tx-checksumming: on"},
		"ethtool -k out":                {"generic-receive-offload: off", "tx-checksumming: off", "tcp-segmentation-offload: off"},
		"sysctl -a --pattern ipv6.conf.in.(acc|aut|dad|router)": {
			"accept_ra = 0", "accept_dad = 0", "dad_transmits = 0", "router_solicitations = 0", "autoconf = 0",
		},
	} {
		out, err := dut.Output("%s", command)
		must(t, err)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in the output of %s:\n%s", want, command, out)
			}
		}
		if len(wants) == 0 && out != "" {
			t.Errorf("%s is not empty:\n%s", command, out)
		}
	}
	wire, err := n.Node(SinkNode).Output("ip addr show dev rx")
	must(t, err)
	if strings.Contains(wire, "inet") || !strings.Contains(wire, "NOARP") {
		t.Errorf("a wire has addresses or ARP:\n%s", wire)
	}
	for _, name := range []string{"in", "out"} {
		pids, err := n.Port(Dut, name).NAPIThreads()
		must(t, err)
		if len(pids) != 3 {
			t.Errorf("%s: %d NAPI threads for 3 queues", name, len(pids))
		}
		must(t, n.Port(Dut, name).PinNAPI(0, 1))
	}
	if _, err := n.Port(Src, "tx").NAPIThreads(); err == nil || !strings.Contains(err.Error(), "Threaded") {
		t.Errorf("an end without threads gives %v", err)
	}
}

// TestTwins: two builds of one topology are the same to whoever looks from inside.
func TestTwins(t *testing.T) {
	t.Parallel()
	top := Star(3)
	var seen [2]string
	for i := range seen {
		n := BuildT(t, top)
		for _, p := range n.Ports() {
			seen[i] += fmt.Sprintln(p, p.Index, p.MAC, p.MTU, p.Peer)
		}
		for _, what := range []string{"ip addr", "ip route", "ip -6 route", "ip neigh", "ip -6 neigh"} {
			out, err := n.Node(Dut).Output("%s", what)
			must(t, err)
			for _, line := range slices.Sorted(strings.Lines(out)) { // hash tables are dumped in any order
				if !strings.Contains(line, "link-netns") { // names the peer's namespace
					seen[i] += line
				}
			}
		}
	}
	if seen[0] != seen[1] {
		t.Errorf("one twin is\n%s\nthe other\n%s", seen[0], seen[1])
	}
}

// TestStarForwardsBetweenAllPorts fires one packet from each port to each other
// port's neighbour, all in one call, each way of sending, and checks where every
// one of them comes out.
func TestStarForwardsBetweenAllPorts(t *testing.T) {
	t.Parallel()
	const ports = 4
	n := BuildT(t, Star(ports))
	var wires []*Port
	for i := range ports {
		wires = append(wires, n.Port("wire", fmt.Sprintf("w%d", i)))
	}
	wire, err := NewWire(wires...)
	must(t, err)
	defer wire.Close()
	c := captureT(t, wires...)

	var shots []Shot
	want := map[string]int{}
	for i, from := range wires {
		for j, to := range wires {
			if i == j {
				continue
			}
			frame := from.Flow(fmt.Sprintf("10.0.%d.2", i), fmt.Sprintf("10.0.%d.2", j)).UDP(fmt.Sprint(i, j))
			shots = append(shots, Shot{from, frame})
			want[to.String()+": "+Describe(routed(frame, to.Peer))]++
		}
	}
	for how, fire := range map[string]func(...Shot) error{"skb": Send, "xdp": wire.Fire} {
		must(t, fire(shots...))
		_, err := c.Wait(len(shots), patience)
		must(t, err)
		frames, err := c.Take(0, quiet)
		must(t, err)
		got := map[string]int{}
		for _, f := range frames {
			if !Noise(f.Data) {
				got[f.String()]++
			}
		}
		for line := range want {
			if got[line] != 1 {
				t.Errorf("as %s: %d times %s", how, got[line], line)
			}
			delete(got, line)
		}
		for line := range got {
			t.Errorf("as %s, unexpected: %s", how, line)
		}
	}
}
