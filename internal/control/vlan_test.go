// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"testing"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// vlanRouter has a VLAN and a QinQ interface on each of p0 and p1, and p2 without tags. p0's QinQ interface checks the reverse path, p1's
// VLAN has a small MTU.
var vlanRouter = `
ip link add link p0 name p0.5 type vlan id 5
ip link add link p0 name p0.100 type vlan protocol 802.1ad id 100
ip link add link p0.100 name p0.100.7 type vlan id 7
ip link add link p1 name p1.6 type vlan id 6
ip link add link p1 name p1.200 type vlan protocol 802.1ad id 200
ip link add link p1.200 name p1.200.8 type vlan id 8
ip link set p1.6 mtu 1400
sysctl -qw net.ipv4.conf.p0/100/7.rp_filter=1
sysctl -qw net.ipv4.conf.all.send_redirects=0
sysctl -qw net.ipv4.conf.p0/5.send_redirects=0
ip link set p0.5 up
ip link set p0.100 up
ip link set p0.100.7 up
ip link set p1.6 up
ip link set p1.200 up
ip link set p1.200.8 up
` + interfaces("p0.5 5 1", "p1.6 6 2", "p0.100.7 7 1", "p1.200.8 8 2") + `
ip route add 10.95.0.0/16 via 10.5.0.2
ip route add 10.96.0.0/16 via 10.6.0.2
ip route add 10.97.0.0/16 via 10.7.0.2
ip route add 10.98.0.0/16 via 10.8.0.2
ip -6 route add fd00:95::/32 via fd00:5::2
ip -6 route add fd00:96::/32 via fd00:6::2
ip -6 route add fd00:97::/32 via fd00:7::2
ip -6 route add fd00:98::/32 via fd00:8::2
`

// interfaces gives devices addresses and neighbours: "DEV NET LINK" has 10.NET.0.1/24 and fd00:NET::1/64, and .2 lives at the wire's
// end of that link.
func interfaces(list ...string) (out string) {
	for _, s := range list {
		var dev string
		var net, link int
		if _, err := fmt.Sscan(s, &dev, &net, &link); err != nil {
			panic(err)
		}
		out += fmt.Sprintf("ip addr add 10.%d.0.1/24 dev %s\nip addr add fd00:%d::1/64 dev %s nodad\n", net, dev, net, dev)
		out += fmt.Sprintf("ip neigh replace 10.%d.0.2 lladdr 02:00:00:00:%02x:02 nud permanent dev %s\n", net, link, dev)
		out += fmt.Sprintf("ip neigh replace fd00:%d::2 lladdr 02:00:00:00:%02x:02 nud permanent dev %s\n", net, link, dev)
	}
	return out
}

// way is where packets come in or go out.
type way struct {
	name  string
	port  string
	vlans []uint16
	src4  string
	src6  string
	dst4  string
	dst6  string
}

var vlanWays = []way{
	{"p0", "w0", nil, "10.0.0.2", "fd00:0:0:1::2", "10.0.0.2", "fd00:0:0:1::2"},
	{"p0.5", "w0", []uint16{5}, "10.5.0.2", "fd00:5::2", "10.95.1.1", "fd00:95::1"},
	{"p0.100.7", "w0", []uint16{100, 7}, "10.7.0.2", "fd00:7::2", "10.97.1.1", "fd00:97::1"},
	{"p1.6", "w1", []uint16{6}, "10.6.0.2", "fd00:6::2", "10.96.1.1", "fd00:96::1"},
	{"p1.200.8", "w1", []uint16{200, 8}, "10.8.0.2", "fd00:8::2", "10.98.1.1", "fd00:98::1"},
	{"p2", "w2", nil, "10.0.2.2", "fd00:0:0:3::2", "10.0.2.2", "fd00:0:0:3::2"},
}

func TestVLAN(t *testing.T) {
	kinds(t, "d0 type dummy", "link d0 name v0 type vlan id 5")
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			w := newTwin(t, 3, vlanRouter)
			shots := vlanShots(w)
			w.alone(shots)
			w.start(hook)
			w.compare(shots)
		})
	}
}

func vlanShots(w *twin) (shots []shot) {
	fast := func(name, port string, frame []byte) {
		shots = append(shots, shot{name: name, port: port, frame: frame})
	}
	other := func(name, port string, frame []byte, xdp, tc reason.Code) {
		shots = append(shots, shot{name: name, port: port, frame: frame, xdp: xdp, tc: tc})
	}
	unheard := func(name, port string, frame []byte, xdp, tc reason.Code) {
		other(name, port, frame, xdp, tc)
		shots[len(shots)-1].unheard = true
	}
	// From every interface to every other one.
	for _, in := range vlanWays {
		for _, out := range vlanWays {
			if in.name == out.name {
				continue
			}
			fast(in.name+" to "+out.name+" ip4", in.port, w.flow(in.port, in.src4, out.dst4, in.vlans...).UDP("hello"))
			fast(in.name+" to "+out.name+" ip6", in.port, w.flow(in.port, in.src6, out.dst6, in.vlans...).UDP("hello"))
		}
	}
	five := w.flow("w0", "10.5.0.2", "10.96.1.1", 5)
	other("back to where it came from", "w0", w.flow("w0", "10.5.0.2", "10.95.1.1", 5).UDP("x"), reason.SameInterface, reason.SameInterface)
	fast("padded", "w0", lab.Edited(five.UDP("x"), lab.Pad(96)))
	fast("priority and DEI in the tag", "w0", lab.Edited(five.UDP("x"), lab.L2(14, 0xb0, 5)))
	fast("TOS", "w0", func() []byte { f := five; f.TOS = 0x10; return f.UDP("x") }())
	fast("as long as the VLAN's MTU", "w0", five.UDP(fill(1400-28)))
	other("longer than the VLAN's MTU", "w0", lab.Edited(five.UDP(fill(1401-28)), lab.FragmentField(2, 0)), reason.MTU, reason.MTU)
	fast("as long as two tags allow", "w0", w.flow("w0", "10.7.0.2", "10.98.1.1", 100, 7).UDP(fill(1496-28)))
	fast("as long as two tags allow, put on", "w2", w.flow("w2", "10.0.2.2", "10.98.1.1").UDP(fill(1496-28)))
	other("TTL 1", "w0", lab.Edited(five.UDP("x"), lab.TTL(1)), reason.TTL, reason.TTL)
	other("bad checksum", "w0", lab.Edited(five.UDP("x"), lab.BadIPChecksum()), reason.IP4Checksum, reason.IP4Checksum)
	other("not our address", "w0", lab.Edited(five.UDP("x"), lab.L2(0, 2, 9, 9, 9, 9, 9)), reason.DstMAC, reason.PacketType)
	other("wrong VID", "w0", w.flow("w0", "10.5.0.2", "10.96.1.1", 9).UDP("x"), reason.VLANUnknown, reason.VLANUnknown)
	unheard("wrong inner VID", "w0", w.flow("w0", "10.7.0.2", "10.96.1.1", 100, 9).UDP("x"), reason.VLANUnknown, reason.VLANUnknown)
	other("outer tag alone", "w0", lab.Edited(w.flow("w0", "10.7.0.2", "10.96.1.1", 100).UDP("x"), lab.L2(12, 0x88, 0xa8)), reason.Fast, reason.Fast)
	other("right VID, other protocol", "w0", lab.Edited(five.UDP("x"), lab.L2(12, 0x88, 0xa8)), reason.VLANUnknown, reason.VLANUnknown)
	unheard("a tag too many", "w0", w.flow("w0", "10.5.0.2", "10.96.1.1", 5, 7).UDP("x"), slow, slow)
	other("priority tag", "w0", w.flow("w0", "10.0.0.2", "10.96.1.1", 0).UDP("x"), reason.VLANUnknown, slow)
	unheard("priority tag in the VLAN", "w0", lab.Edited(w.flow("w0", "10.5.0.2", "10.96.1.1", 5, 0).UDP("x"), lab.L2(12, 0x81, 0)), slow, slow)
	other("tag where there are none", "w2", w.flow("w2", "10.0.2.2", "10.96.1.1", 5).UDP("x"), reason.VLANUnknown, reason.VLANUnknown)
	// p0.100.7 checks the reverse path, the others do not.
	fast("foreign source without rp_filter", "w0", w.flow("w0", "10.6.0.9", "10.0.2.2", 5).UDP("x"))
	fast("own source with rp_filter", "w0", w.flow("w0", "10.97.3.3", "10.0.2.2", 100, 7).UDP("x"))
	other("foreign source with rp_filter", "w0", w.flow("w0", "10.6.0.9", "10.0.2.2", 100, 7).UDP("x"), reason.RPFilter, reason.RPFilter)
	other("source of the router's VLAN interface", "w0", w.flow("w0", "10.6.0.1", "10.0.2.2", 5).UDP("x"), reason.LocalSource, reason.LocalSource)
	other("to the router's VLAN interface", "w0", w.flow("w0", "10.5.0.2", "10.5.0.1", 5).UDP("x"), slow, slow)
	return shots
}

// fill is a payload of n bytes.
func fill(n int) string { return fmt.Sprintf("%0*d", n, 7) }
