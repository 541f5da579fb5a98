// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// tunnelRouter has a tunnel of each kind that is Linux's alone to the host behind p1, one that takes its other end from routes, and a GRE device that carries frames as a port of br0 beside p2.
const tunnelRouter = `
sysctl -qw net.ipv4.conf.all.send_redirects=0
sysctl -qw net.ipv4.conf.default.send_redirects=0
ip link add gre1 type gre local 10.0.1.1 remote 10.0.1.2 ttl 64
ip link add ipip1 type ipip local 10.0.1.1 remote 10.0.1.2 ttl 64
ip link add sit1 type sit local 10.0.1.1 remote 10.0.1.2 ttl 64
ip link add gre6 type ip6gre local fd00:0:0:2::1 remote fd00:0:0:2::2
ip link add six6 type ip6tnl mode any local fd00:0:0:2::1 remote fd00:0:0:2::2
ip link add any1 type gre external
ip link add tap1 type gretap local 10.0.1.1 remote 10.0.1.3 ttl 64
ip neigh replace 10.0.1.3 lladdr 02:00:00:00:02:02 nud permanent dev p1
ip link set gre1 up
ip link set ipip1 up
ip link set sit1 up
ip link set gre6 up
ip link set six6 up
ip link set any1 up
ip route add 10.41.0.0/16 dev gre1
ip route add 10.42.0.0/16 dev ipip1
ip -6 route add fd00:43::/32 dev sit1
ip route add 10.44.0.0/16 dev gre6
ip -6 route add fd00:44::/32 dev gre6
ip route add 10.45.0.0/16 dev six6
ip -6 route add fd00:45::/32 dev six6
ip route add 10.46.0.0/16 encap ip id 7 dst 10.0.1.2 dev any1
ip link add br0 type bridge forward_delay 0 mcast_snooping 0
sysctl -qw net.ipv6.conf.br0.disable_ipv6=1
sysctl -qw net.ipv6.conf.tap1.disable_ipv6=1
ip link set p2 master br0
ip link set tap1 master br0
ip link set tap1 up
ip link set br0 up
bridge fdb replace 02:aa:00:00:00:01 dev p2 master static
bridge fdb replace 02:aa:00:00:00:02 dev tap1 master static
`

// tunnelReasons are why the devices of tunnelRouter are not fast.
var tunnelReasons = map[string]reason.Code{
	"gre1": reason.LinkNoEthernet, "ipip1": reason.LinkNoEthernet, "sit1": reason.LinkNoEthernet, "gre6": reason.LinkNoEthernet, "six6": reason.LinkNoEthernet, "any1": reason.LinkNoEthernet, "tap1": reason.LinkKind,
}

// TestTunnels: what is routed or bridged into tunnels that are Linux's alone, and comes out of them, is as without shunt, by a named reason; their underlay is as fast as ever.
func TestTunnels(t *testing.T) {
	kinds(t, "g0 type gre local 10.0.1.1 remote 10.0.1.2", "i0 type ipip local 10.0.1.1 remote 10.0.1.2", "s0 type sit local 10.0.1.1 remote 10.0.1.2", "g6 type ip6gre local fd00::1 remote fd00::2",
		"t6 type ip6tnl local fd00::1 remote fd00::2", "t0 type gretap local 10.0.1.1 remote 10.0.1.3", "b0 type bridge")
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			w := newTwin(t, 3, tunnelRouter)
			w.exec(withoutCalls())
			shots := tunnelShots(w)
			w.alone(shots)
			w.start(hook)
			w.compare(shots)
			w.named(tunnelReasons)
		})
	}
}

// named says whether devices are kept out by these reasons, both as ways in and as ways out.
func (w *twin) named(want map[string]reason.Code) {
	w.Helper()
	has := func(why []graph.Why, code reason.Code) bool {
		return slices.ContainsFunc(why, func(y graph.Why) bool { return y.Reason == code })
	}
	found := 0
	s := w.engine.State()
	for _, e := range s.Graph.Egress {
		if code, ok := want[e.Name]; ok && (!has(e.XDP, code) || !has(e.TC, code)) {
			w.Errorf("as a way out %s has %v at xdp and %v at tc, want %s", e.Name, e.XDP, e.TC, code)
		} else if ok {
			found++
		}
	}
	for i := range s.Graph.Ports {
		p := s.Graph.Ports[i]
		if code, ok := want[p.Name]; ok && (!has(p.XDP, code) || !has(p.TC, code) || len(p.Hooks) > 0) {
			w.Errorf("%s has programs at %v, and %v at xdp and %v at tc, want %s", p.Name, p.Hooks, p.XDP, p.TC, code)
		} else if ok {
			found++
		}
	}
	if found < 2*len(want) {
		w.Errorf("only %d of %d were looked at", found, 2*len(want))
		w.explain()
	}
}

// outer puts a packet into another one from the host behind p1.
func (w *twin) outer(src, dst string, inner []byte, above ...gopacket.SerializableLayer) []byte {
	return w.flow("w1", src, dst).Carry(append(above, gopacket.Payload(inner))...)
}

// header is an outer header that says by itself what it carries.
func (w *twin) header(src, dst string, protocol layers.IPProtocol, inner []byte) []byte {
	f := w.flow("w1", src, dst)
	eth := &layers.Ethernet{SrcMAC: f.SrcMAC, DstMAC: f.DstMAC}
	if f.Dst.Is4() {
		return lab.Packet(eth, &layers.IPv4{SrcIP: f.Src.AsSlice(), DstIP: f.Dst.AsSlice(), Protocol: protocol}, gopacket.Payload(inner))
	}
	return lab.Packet(eth, &layers.IPv6{SrcIP: f.Src.AsSlice(), DstIP: f.Dst.AsSlice(), NextHeader: protocol}, gopacket.Payload(inner))
}

func tunnelShots(w *twin) (shots []shot) {
	add := func(name, port string, frame []byte, want reason.Code) {
		shots = append(shots, shot{name: name, port: port, frame: frame, xdp: want, tc: want})
	}
	const far, near, far6, near6 = "10.0.1.2", "10.0.1.1", "fd00:0:0:2::2", "fd00:0:0:2::1"
	inner := func(src, dst string) []byte { return w.flow("w1", src, dst).UDP("inner")[14:] }
	gre := func(v6 bool) *layers.GRE {
		if v6 {
			return &layers.GRE{Protocol: layers.EthernetTypeIPv6}
		}
		return &layers.GRE{Protocol: layers.EthernetTypeIPv4}
	}
	// Into them.
	for name, dst := range map[string]string{"gre1": "10.41.1.1", "ipip1": "10.42.1.1", "gre6": "10.44.1.1", "six6": "10.45.1.1"} {
		f := w.flow("w0", "10.0.0.2", dst)
		add("into "+name, "w0", f.UDP("hello"), reason.EgressSlow)
		add("too long for "+name, "w0", lab.Edited(f.UDP(fill(1500-28)), lab.FragmentField(2, 0)), slow)
	}
	add("TTL 1 into gre1", "w0", lab.Edited(w.flow("w0", "10.0.0.2", "10.41.1.1").UDP("x"), lab.TTL(1)), reason.TTL)
	add("TCP into gre1", "w0", w.flow("w0", "10.0.0.2", "10.41.1.1").TCP("S", 1, ""), reason.EgressSlow)
	add("by a route with its other end", "w0", w.flow("w0", "10.0.0.2", "10.46.1.1").UDP("hello"), slow)
	for name, dst := range map[string]string{"sit1": "fd00:43::1", "gre6": "fd00:44::1", "six6": "fd00:45::1"} {
		f := w.flow("w0", "fd00:0:0:1::2", dst)
		add("IPv6 into "+name, "w0", f.UDP("hello"), reason.EgressSlow)
		add("IPv6 too long for "+name, "w0", f.UDP(fill(1500-48)), slow)
	}
	// Out of them, and from one into another.
	for name, dst := range map[string]string{"": "10.0.0.2", " into another": "10.42.9.9", " and back": "10.41.9.9"} {
		add("out of gre1"+name, "w1", w.outer(far, near, inner("10.41.1.1", dst), gre(false)), slow)
		add("out of gre6"+name, "w1", w.header(far6, near6, layers.IPProtocolGRE, append([]byte{0, 0, 8, 0}, inner("10.44.1.1", dst)...)), slow)
	}
	add("out of ipip1", "w1", w.header(far, near, layers.IPProtocolIPv4, inner("10.42.1.1", "10.0.0.2")), slow)
	add("out of sit1", "w1", w.header(far, near, layers.IPProtocolIPv6, inner("fd00:43::1", "fd00:0:0:1::2")), slow)
	add("out of six6", "w1", w.header(far6, near6, layers.IPProtocolIPv4, inner("10.45.1.1", "10.0.0.2")), slow)
	add("IPv6 out of six6", "w1", w.header(far6, near6, layers.IPProtocolIPv6, inner("fd00:45::1", "fd00:0:0:1::2")), slow)
	add("out of gre1, from another host", "w1", w.outer("10.0.1.9", near, inner("10.41.1.1", "10.0.0.2"), gre(false)), slow)
	add("out of gre1, with a key", "w1", w.outer(far, near, inner("10.41.1.1", "10.0.0.2"), &layers.GRE{Protocol: layers.EthernetTypeIPv4, KeyPresent: true, Key: 9}), slow)
	// Bridged.
	add("bridged into tap1", "w2", w.between("w2", station(1), station(2)).UDP("hello"), reason.EgressSlow)
	back := w.between("w1", station(2), station(1))
	back.Src, back.Dst = netip.MustParseAddr("10.50.0.2"), netip.MustParseAddr("10.50.0.1")
	add("bridged out of tap1", "w1", w.outer("10.0.1.3", near, back.UDP("hello"), &layers.GRE{Protocol: layers.EthernetTypeTransparentEthernetBridging}), slow)
	// Beside them.
	add("over the underlay", "w0", w.flow("w0", "10.0.0.2", far).UDP("hello"), reason.Fast)
	add("IPv6 over the underlay", "w0", w.flow("w0", "fd00:0:0:1::2", far6).UDP("hello"), reason.Fast)
	add("other hosts' tunnel", "w0", w.flow("w0", "10.0.0.2", far).Carry(gre(false), gopacket.Payload(inner("10.41.1.1", "10.41.1.2"))), reason.Fast)
	return shots
}
