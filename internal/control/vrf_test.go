// SPDX-License-Identifier: Apache-2.0

package control

import (
	"testing"

	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/reason"
)

// vrfRouter has p0 and p1 in the VRF red, p2 in blue and p3 in none; routes leak between them. p0 and p2 check the reverse path; that red
// is told to means nothing.
var vrfRouter = `
ip link add red type vrf table 100
ip link add blue type vrf table 200
ip link set red up
ip link set blue up
ip link set p0 master red
ip link set p1 master red
ip link set p2 master blue
sysctl -qw net.ipv4.conf.p2.rp_filter=1
sysctl -qw net.ipv4.conf.red.rp_filter=1
sysctl -qw net.ipv4.conf.p0.rp_filter=1
` + interfaces("p0 20 1", "p1 21 2", "p2 22 3", "p3 23 4") + `
ip route add vrf red unreachable default metric 4278198272
ip route add vrf red 10.90.0.0/16 via 10.20.0.2
ip route add vrf red 10.91.0.0/16 via 10.21.0.2
ip route add vrf red 10.92.0.0/16 via 10.22.0.2 dev p2 onlink
ip route add vrf red 10.93.0.0/16 via 10.23.0.2 dev p3 onlink
ip route add vrf blue 10.91.0.0/16 via 10.21.0.2 dev p1 onlink
ip route add vrf blue 10.82.0.0/16 via 10.22.0.2
ip route add 10.91.0.0/16 via 10.21.0.2 dev p1 onlink
ip -6 route add vrf red fd00:90::/32 via fd00:20::2
ip -6 route add vrf red fd00:91::/32 via fd00:21::2
`

func TestVRF(t *testing.T) {
	kinds(t, "r0 type vrf table 100")
	for _, hook := range []graph.Hook{graph.XDP, graph.TC} {
		t.Run(string(hook), func(t *testing.T) {
			w := newTwin(t, 4, vrfRouter)
			shots := vrfShots(w)
			w.alone(shots)
			w.start(hook)
			w.compare(shots)
		})
	}
}

func vrfShots(w *twin) (shots []shot) {
	for _, s := range []struct {
		name, port, src, dst string
		want                 reason.Code
	}{
		{"inside red", "w0", "10.20.0.2", "10.91.1.1", reason.Fast},
		{"inside red, back", "w1", "10.21.0.2", "10.90.1.1", reason.Fast},
		{"inside red, IPv6", "w0", "fd00:20::2", "fd00:91::1", reason.Fast},
		{"inside red, IPv6, back", "w1", "fd00:21::2", "fd00:90::1", reason.Fast},
		{"inside red, to a neighbour", "w0", "10.20.0.2", "10.21.0.2", reason.Fast},
		{"from red to no VRF", "w0", "10.20.0.2", "10.93.1.1", reason.Fast},
		{"from red to blue", "w0", "10.20.0.2", "10.92.1.1", reason.Fast},
		{"from no VRF to red", "w3", "10.23.0.2", "10.91.1.1", reason.Fast},
		{"from blue to red, source of blue", "w2", "10.22.0.2", "10.91.1.1", reason.Fast},
		{"from blue to red, source that blue routes back", "w2", "10.82.0.9", "10.91.1.1", reason.Fast},
		{"from blue to red, source of red", "w2", "10.20.0.9", "10.91.1.1", reason.RPFilter},
		{"from blue to red, source that only red routes to blue", "w2", "10.92.0.9", "10.91.1.1", reason.RPFilter},
		{"the slave's rp_filter decides", "w0", "10.21.0.9", "10.91.1.1", reason.RPFilter},
		{"the VRF's does not", "w1", "10.20.0.9", "10.90.1.1", reason.Fast},
		{"unknown to red", "w0", "10.20.0.2", "203.0.113.1", reason.Unreachable},
		{"unknown to blue", "w2", "10.22.0.2", "203.0.113.1", reason.NotForwarded},
		{"source of the router's own", "w0", "10.21.0.1", "10.91.1.1", reason.RPFilter},
		{"to the router", "w0", "10.20.0.2", "10.20.0.1", reason.NotForwarded},
	} {
		shots = append(shots, shot{name: s.name, port: s.port, frame: w.flow(s.port, s.src, s.dst).UDP("hello"), xdp: s.want, tc: s.want})
	}
	ttl := lab.Edited(w.flow("w0", "10.20.0.2", "10.91.1.1").UDP("x"), lab.TTL(1))
	return append(shots, shot{name: "TTL 1", port: "w0", frame: ttl, xdp: reason.TTL, tc: reason.TTL})
}
