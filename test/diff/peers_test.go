// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/shuntnet/shunt/internal/lab"
)

// TestPeers has hosts at a bridge's veths ping each other: frames go straight into the other end of a veth, unless something on the way through it would see
// or do anything. Which way they took is told by the counters of the bridge's end, which count what goes through.
func TestPeers(t *testing.T) {
	lab.RequireRoot(t)
	if *shuntFlag == "" {
		t.Skip("needs -shunt with the path of a built shunt; `make diff` runs this")
	}
	topology := streamTopology()
	topology.Links[2].A.Receive = lab.ReceiveXDP // native, in the third host's namespace
	n, d := bridgedHosts(t, topology, "")
	dut, to := n.Node(lab.Dut), n.Node("h1")
	if err := to.Shell("ip link add link eth0 name mv0 address 02:00:00:00:0a:01 type macvlan mode bridge && ip address add 10.0.0.9/24 dev mv0 && sysctl -qw net.ipv4.conf.all.arp_ignore=1 && ip link set mv0 up"); err != nil {
		t.Fatal(err)
	}
	const pings = 20
	counted := func(name string) *netlink.LinkStatistics {
		t.Helper()
		link, err := dut.Netlink().LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return link.Attrs().Statistics
	}
	ping := func(addr string, arrive bool) {
		t.Helper()
		if _, err := d.settle(*boundFlag); err != nil {
			t.Fatal(err)
		}
		n.Node("h0").Shell("ping -q -c 3 -i 0.05 -W 1 " + addr) // until the bridge knows both
		time.Sleep(50 * time.Millisecond)
		if err := n.Node("h0").Shell("ping -q -s 1200 -i 0.01 -W 1 -c 20 " + addr); (err == nil) != arrive {
			t.Fatalf("pings to %s: %v", addr, err)
		}
	}
	through := func(what, port, addr string, want bool) {
		t.Helper()
		before := counted(port).TxPackets
		ping(addr, true)
		if sent := counted(port).TxPackets - before; (sent >= pings) != want || !want && sent > pings/2 {
			t.Errorf("%s: %s has sent %d packets of %d", what, port, sent, pings)
		}
	}
	run := func(ns *lab.NS, command string) {
		t.Helper()
		if err := ns.Shell(command); err != nil {
			t.Fatal(err)
		}
	}
	through("nothing minds", "p1", "10.0.0.2", false)
	through("an XDP program at the other end", "p2", "10.0.0.3", true)
	through("another address at the other end", "p1", "10.0.0.9", true)

	run(dut, "tc qdisc add dev p1 root tbf rate 100mbit burst 100k latency 50ms")
	through("a shaper", "p1", "10.0.0.2", true)
	run(dut, "tc qdisc del dev p1 root")
	through("no shaper any more", "p1", "10.0.0.2", false)

	listener, err := n.Port(lab.Dut, "p1").Capture()
	if err != nil {
		t.Fatal(err)
	}
	through("a listener", "p1", "10.0.0.2", true)
	listener.Close()
	through("no listener any more", "p1", "10.0.0.2", false)

	run(to, "ip link set eth0 mtu 1000")
	before := counted("p1").TxDropped
	ping("10.0.0.2", false)
	if lost := counted("p1").TxDropped - before; lost != pings {
		t.Errorf("a smaller MTU at the other end: p1 has dropped %d packets of %d", lost, pings)
	}
}
