// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/shuntnet/shunt/internal/lab"
)

// outsideHosts is a bridge that is routed to: hosts at its first ports, and behind the third, which is none of its ports, a host outside.
func outsideHosts(t *testing.T, receive lab.Receive) (*lab.Net, *daemon) {
	t.Helper()
	topology := streamTopology()
	topology.Links[2].A.Addrs = []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd09::2/64")}
	topology.Links[2].B.Addrs = []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd09::1/64")}
	topology.Links[1].A.Receive = receive
	n, d := bridgedHosts(t, topology, "ageing_time 1000")
	commands := []string{"ip link set p2 nomaster", "ip link set p2 up", "ip -6 address replace fd09::1/64 dev p2 nodad", "ip address add 10.0.0.254/24 dev br0", "ip address add fd00::fe/64 dev br0 nodad", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"}
	for _, dev := range []string{"all", "default", "br0", "p2"} {
		commands = append(commands, "sysctl -qw net.ipv4.conf."+dev+".accept_redirects=0")
	}
	for _, c := range commands {
		if err := n.Node(lab.Dut).Shell(c); err != nil {
			t.Fatal(err)
		}
	}
	for host, via := range map[string][2]string{"h0": {"10.0.0.254", "fd00::fe"}, "h1": {"10.0.0.254", "fd00::fe"}, "h2": {"10.9.0.1", "fd09::1"}} {
		if err := n.Node(host).Shell("ip route add default via " + via[0] + " && ip -6 route add default via " + via[1]); err != nil {
			t.Fatal(err)
		}
	}
	return n, d
}

// counters of a device.
func countersOf(t *testing.T, ns *lab.NS, name string) netlink.LinkStatistics {
	t.Helper()
	link, err := ns.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return *link.Attrs().Statistics
}

// TestOnto has a host outside ping hosts behind a bridge: what is routed to the bridge leaves by the right port without the bridge's own device, and goes straight into the other
// end of a veth, unless something on that way would see or do anything. Which way it took is told by the counters of the bridge and its port.
func TestOnto(t *testing.T) {
	requireShunt(t)
	n, d := outsideHosts(t, lab.ReceiveGRO)
	dut, to := n.Node(lab.Dut), n.Node("h1")
	if err := to.Shell("ip link add link eth0 name mv0 address 02:00:00:00:0a:01 type macvlan mode bridge && ip address add 10.0.0.9/24 dev mv0 && sysctl -qw net.ipv4.conf.all.arp_ignore=1 && ip link set mv0 up"); err != nil {
		t.Fatal(err)
	}
	const pings = 20
	type way struct{ bridge, port bool } // whose counters show what was sent
	straight, byPort, byBridge := way{}, way{port: true}, way{true, true}
	through := func(what, addr string, want way) {
		t.Helper()
		if _, err := d.settle(*boundFlag); err != nil {
			t.Fatal(err)
		}
		n.Node("h2").Shell("ping -q -c 5 -i 0.05 -W 1 " + addr) // until everybody is known
		time.Sleep(50 * time.Millisecond)
		bridge, port := countersOf(t, dut, "br0").TxPackets, countersOf(t, dut, "p1").TxPackets
		if err := n.Node("h2").Shell("ping -q -s 1200 -i 0.01 -W 1 -c 20 " + addr); err != nil {
			t.Fatalf("%s: pings to %s: %v", what, addr, err)
		}
		bridge, port = countersOf(t, dut, "br0").TxPackets-bridge, countersOf(t, dut, "p1").TxPackets-port
		for _, c := range []struct {
			dev  string
			sent uint64
			want bool
		}{{"br0", bridge, want.bridge}, {"p1", port, want.port}} {
			if (c.sent >= pings) != c.want || !c.want && c.sent > pings/2 {
				t.Errorf("%s: %s has sent %d packets of %d", what, c.dev, c.sent, pings)
			}
		}
	}
	run := func(ns *lab.NS, command string) {
		t.Helper()
		if err := ns.Shell(command); err != nil {
			t.Fatal(err)
		}
	}
	through("nothing minds", "10.0.0.2", straight)
	through("nothing minds, IPv6", "fd00::2", straight)
	through("another address at the other end", "10.0.0.9", byPort)

	run(dut, "tc qdisc add dev br0 root tbf rate 100mbit burst 100k latency 50ms")
	through("a shaper on the bridge", "10.0.0.2", byBridge)
	run(dut, "tc qdisc del dev br0 root")
	run(dut, "tc qdisc add dev p1 root tbf rate 100mbit burst 100k latency 50ms")
	through("a shaper on the port", "10.0.0.2", byPort)
	run(dut, "tc qdisc del dev p1 root")

	run(dut, "nft add table bridge t && nft 'add chain bridge t c { type filter hook forward priority 0; }' && nft add rule bridge t c counter drop")
	through("a chain for frames between ports", "10.0.0.2", straight)
	run(dut, "nft 'add chain bridge t o { type filter hook output priority 0; }' && nft add rule bridge t o ip daddr 10.0.0.2 counter")
	through("a chain for what this host sends", "10.0.0.2", byBridge)
	run(dut, "nft delete table bridge t")

	run(dut, "ip link set br0 promisc on")
	through("a promiscuous bridge", "10.0.0.2", byBridge)
	run(dut, "ip link set br0 promisc off")

	run(dut, "ip link set p1 type bridge_slave isolated on")
	through("an isolated port", "10.0.0.2", straight) // of other isolated ports

	run(dut, "bridge link set dev p1 learning off")
	n.Node(lab.Dut).Shell("bridge fdb del " + n.Port("h1", "eth0").MAC.String() + " dev p1 master")
	through("a station that is not known", "10.0.0.2", byBridge)
	run(dut, "bridge link set dev p1 learning on")
	through("it is known again", "10.0.0.2", straight)

	run(to, "ip link set eth0 mtu 1000")
	before := countersOf(t, dut, "p1").TxDropped
	if _, err := d.settle(*boundFlag); err != nil {
		t.Fatal(err)
	}
	if n.Node("h2").Shell("ping -q -s 1200 -i 0.01 -W 1 -c 20 10.0.0.2") == nil {
		t.Error("pings that are too long for the other end have been answered")
	}
	if dropped := countersOf(t, dut, "p1").TxDropped - before; dropped < pings {
		t.Errorf("p1 has dropped %d of %d packets that are too long for its other end", dropped, pings)
	}
}

// TestRoutedStreams has real TCP go through bridge and route between a host behind the bridge and one outside, with all offloads on, in both directions and both families.
func TestRoutedStreams(t *testing.T) {
	requireShunt(t)
	n, d := outsideHosts(t, lab.ReceiveGRO)
	if _, err := d.settle(*boundFlag); err != nil {
		t.Fatal(err)
	}
	talks := make(chan error, 2)
	for _, addr := range []string{"10.0.0.2", "fd00::2"} {
		go func() { talks <- talkTCP(n.Node("h2"), n.Node("h1"), netip.MustParseAddr(addr), wholeStream, nil) }()
	}
	for range 2 {
		if err := <-talks; err != nil {
			t.Error(err)
		}
	}
	const sent = 2 * streamBytes // two connections
	dut := n.Node(lab.Dut)
	for _, name := range []string{"br0", "p1"} {
		if c := countersOf(t, dut, name); c.TxBytes > sent/4 || c.TxDropped > 0 {
			t.Errorf("%s has sent %d bytes of %d and dropped %d packets: they should have gone past it", name, c.TxBytes, sent, c.TxDropped)
		}
	}
	if c := countersOf(t, n.Node("h1"), "eth0"); c.RxBytes < sent || c.RxBytes > sent*5/4 {
		t.Errorf("h1 has received %d bytes; they were %d and their headers", c.RxBytes, sent)
	}
	if list, err := dut.Netlink().NeighList(0, netlink.FAMILY_ALL); err != nil {
		t.Fatal(err)
	} else {
		for _, nb := range list {
			if nb.IP.String() == "10.0.0.2" && nb.State&(netlink.NUD_REACHABLE|netlink.NUD_DELAY|netlink.NUD_PROBE) == 0 {
				t.Errorf("the neighbour that was in use is %+v", nb)
			}
		}
	}
	now, err := d.status()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", now)
}
