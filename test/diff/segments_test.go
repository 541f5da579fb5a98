// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/shuntnet/shunt/internal/lab"
)

// TestSegmentsOfGuests has a virtual machine's tap at a bridge hand over what is still to be segmented, for a host behind a veth: nobody has looked at the headers yet, and the veth is
// where Linux does. One whose TCP header says nonsense is dropped and counted there; shunt must not take it past the veth.
func TestSegmentsOfGuests(t *testing.T) {
	requireShunt(t)
	n := bridgeAlone(t, streamTopology(), "")
	dut, to := n.Node(lab.Dut), n.Node("h1")
	guest := net.HardwareAddr{2, 0, 0, 0, 0x0b, 1}
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "t0"}, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR, Queues: 1}
	if err := dut.Do(func() error { return netlink.LinkAdd(tap) }); err != nil {
		t.Fatal(err)
	}
	defer tap.Fds[0].Close()
	if err := dut.Shell("ip link set t0 up master br0"); err != nil {
		t.Fatal(err)
	}
	d, err := startDaemon(*shuntFlag, dut, &Case{Hook: "auto"}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	host, err := to.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Shell("ip neighbour replace 10.0.0.77 lladdr " + guest.String() + " dev eth0; ping -q -c 1 -W 1 10.0.0.1"); err != nil { // the bridge knows the host
		t.Fatal(err)
	}
	flow := lab.Flow{SrcMAC: guest, DstMAC: host.Attrs().HardwareAddr, Src: netip.MustParseAddr("10.0.0.77"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: 5000, DstPort: 5001}
	write := func(header [10]byte, frame []byte) {
		t.Helper()
		if _, err := tap.Fds[0].Write(append(header[:], frame...)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.settle(*boundFlag); err != nil {
		t.Fatal(err)
	}
	write([10]byte{}, flow.UDP("here I am")) // and the guest
	time.Sleep(100 * time.Millisecond)

	const segments, size = 4, 1000
	type counts struct{ sent, dropped, wrong uint64 }
	read := func() (c counts) {
		t.Helper()
		port, err := dut.Netlink().LinkByName("p1")
		if err != nil {
			t.Fatal(err)
		}
		snmp, err := to.Output("cat /proc/net/snmp")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(snmp) {
			var x uint64
			fields := strings.Fields(line)
			if len(fields) > 13 && fields[0] == "Tcp:" {
				if n, _ := fmt.Sscan(fields[13], &x); n == 1 {
					c.wrong = x
				}
			}
		}
		return counts{port.Attrs().Statistics.TxPackets, port.Attrs().Statistics.TxDropped, c.wrong}
	}
	const frames = 20
	for _, c := range []struct {
		what string
		doff byte // the upper half: words of the TCP header
		want counts
	}{{"good headers", 5 << 4, counts{sent: frames}}, {"a TCP header longer than the packet", 15 << 4, counts{dropped: frames}}, {"one that is too short", 2 << 4, counts{dropped: frames}}} {
		frame := lab.Edited(flow.TCP("A", 1, string(make([]byte, segments*size))), lab.L4(12, c.doff))
		if c.doff == 15<<4 {
			frame = frame[:14+20+40]
		}
		var header [10]byte // struct virtio_net_hdr: NEEDS_CSUM, TCPv4
		header[0], header[1] = 1, 1
		binary.LittleEndian.PutUint16(header[2:], 14+20+20)
		binary.LittleEndian.PutUint16(header[4:], size)
		binary.LittleEndian.PutUint16(header[6:], 14+20)
		binary.LittleEndian.PutUint16(header[8:], 16)
		if c.doff == 15<<4 {
			binary.LittleEndian.PutUint16(header[4:], 10)
		}
		before := read()
		for range frames {
			write(header, frame)
		}
		time.Sleep(200 * time.Millisecond)
		after := read()
		got := counts{after.sent - before.sent, after.dropped - before.dropped, after.wrong - before.wrong}
		if got.dropped != c.want.dropped || got.wrong != c.want.wrong || got.sent < c.want.sent || c.want.sent == 0 && got.sent > frames/2 {
			t.Errorf("%s: p1 has sent %d and dropped %d, the host found %d wrong; want %+v", c.what, got.sent, got.dropped, got.wrong, c.want)
		}
	}
}
