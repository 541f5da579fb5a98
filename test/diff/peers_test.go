// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/shuntnet/shunt/internal/lab"
)

// TestPeers has hosts at a bridge's veths ping each other: frames go straight into the other end of a veth, unless something on the way through it would see
// or do anything. Which way they took is told by the counters of the bridge's end, which count what goes through.
func TestPeers(t *testing.T) {
	requireShunt(t)
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
		device, err := dut.Netlink().LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return device.Attrs().Statistics
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

	run(dut, "ethtool -K p1 tx off")
	through("checksums that the kernel has to give", "p1", "10.0.0.2", true)
	run(dut, "ethtool -K p1 tx on")
	through("none any more", "p1", "10.0.0.2", false)

	// Also where the frame has to go through the veth, bpf_redirect() would have it pass by a generic program.
	run(dut, "tc qdisc add dev p1 root tbf rate 100mbit burst 100k latency 50ms")
	end := dropAll(t, to, "eth0", link.XDPGenericMode)
	ping("10.0.0.2", false)
	end()
	ping("10.0.0.2", true)
	run(dut, "tc qdisc del dev p1 root")
	for _, mode := range []link.XDPAttachFlags{link.XDPGenericMode, link.XDPDriverMode} { // by a link, as the newer tools attach
		end := dropAll(t, to, "eth0", mode)
		ping("10.0.0.2", false)
		end()
		ping("10.0.0.2", true)
	}

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

// dropAll attaches an XDP program that drops everything, until the function that it returns is called.
func dropAll(t *testing.T, ns *lab.NS, name string, mode link.XDPAttachFlags) (end func()) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}}) // XDP_DROP
	if err != nil {
		t.Fatal(err)
	}
	device, err := ns.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	var attached link.Link
	err = ns.Do(func() (err error) {
		attached, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: device.Attrs().Index, Flags: mode})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		attached.Close()
		prog.Close()
	}
}
