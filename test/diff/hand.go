// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// hand is a case written by hand: what a known trap looks like.
type hand struct {
	name string
	why  string
	// steps alternate commands and the packets that follow them.
	steps []handStep
	// slow is what the configuration excuses from being fast.
	slow Excuse
	// hooks to run at; empty: both.
	hooks []string
	// reasons must be hit, by some hook, or by the one that stands before ("xdp fast"); "fast" counts too. A trap that nothing ran into proves nothing.
	reasons []string
	// needs is a kind of link, or a type of ipset, that the kernel must have ("vlan", "vrf", "ipset hash:mac").
	needs string
	// exact: see Case.Exact.
	exact bool
	// loads: every command has to be taken; a rule set that does not load proves nothing.
	loads bool
	// bare leaves out the common configuration.
	bare bool
	// strict is shunt's --strict.
	strict bool
	// wires are ports that shunt, left to choose its hooks, takes for cards; the others are containers (Case.Wires). The case runs once.
	wires string
	// late: shunt starts after the first step's commands.
	late bool
}

type handStep struct {
	do        []string
	immediate bool
	frozen    bool
	killed    bool
	packets   []Packet
}

// common is a router between p0, p1 and p2 that nearly all cases start from. Networks 10.1/16 and 2001:db8:1::/48 are behind
// 10.0.1.10 at p1, 10.2/16 and 2001:db8:2::/48 behind 10.0.2.10 at p2, everything else of 10.3/16 behind p0.
func common() []string {
	var out []string
	for i := range 3 {
		out = append(out,
			fmt.Sprintf("ip address add 10.0.%d.1/24 dev p%d", i, i),
			fmt.Sprintf("ip address add %s/64 dev p%d nodad", addr6(i, 0, 1), i))
		for n := range 2 {
			out = append(out,
				fmt.Sprintf("ip neighbour replace 10.0.%d.%d lladdr %s dev p%d nud permanent", i, 10+n, hostMAC(i, n), i),
				fmt.Sprintf("ip neighbour replace %s lladdr %s dev p%d nud permanent", addr6(i, 0, byte(0x10+n)), hostMAC(i, n), i))
		}
	}
	return append(out,
		"ip route add 10.1.0.0/16 via 10.0.1.10", "ip route add 2001:db8:1::/48 via fd00::2:0:0:0:10",
		"ip route add 10.2.0.0/16 via 10.0.2.10", "ip route add 2001:db8:2::/48 via fd00::3:0:0:0:10",
		"ip route add 10.3.0.0/16 via 10.0.0.11", "ip route add 2001:db8:3::/48 via fd00::1:0:0:0:11")
}

// toCase makes the case for a hook.
func (h *hand) toCase(hook string) *Case {
	c := &Case{Name: h.name + "/" + hook, Why: h.why, Hook: hook, Slow: h.slow, Strict: h.strict, Late: h.late, Exact: h.exact && hook == "xdp"}
	if h.wires != "" {
		c.Name, c.Hook, c.Wires = h.name+"/auto", "auto", h.wires
	}
	for i, s := range h.steps {
		step := Step{Commands: s.do, Immediate: s.immediate, Frozen: s.frozen, Killed: s.killed, Packets: s.packets}
		if i == 0 && !h.bare {
			step.Commands = append(common(), s.do...)
		}
		c.Steps = append(c.Steps, step)
	}
	return c
}

// flowOf is a flow into a port of the common router.
func flowOf(port int, src, dst string) lab.Flow {
	return lab.Flow{
		SrcMAC: hostMAC(port, 0), DstMAC: portMAC(port), SrcPort: 1000, DstPort: 2000,
		Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst),
	}
}

// in makes packets of frames for a port, each by wire and as a socket buffer.
func in(port int, frames ...[]byte) []Packet {
	var out []Packet
	for _, f := range frames {
		if len(f) <= lab.MaxWireFrame {
			out = append(out, Packet{Port: port, How: WireFrame, Frame: f})
		}
		out = append(out, Packet{Port: port, How: SKB, Frame: f})
	}
	return out
}

// udp is a UDP packet to a port, edited.
func udp(port int, src, dst string, edits ...lab.Edit) []Packet {
	return in(port, lab.Edited(flowOf(port, src, dst).UDP("payload"), edits...))
}

// sized is a UDP packet of n bytes from the IP header on.
func sized(port int, src, dst string, n int, edits ...lab.Edit) []Packet {
	f := flowOf(port, src, dst)
	head := 28
	if f.Dst.Is6() {
		head = 48
	}
	return in(port, lab.Edited(f.UDP(strings.Repeat("x", n-head)), edits...))
}

// some are packets that the common router forwards from p0 to p1 and p2, of each protocol.
func some() []Packet {
	var out []Packet
	for _, pair := range [][2]string{
		{"10.0.0.10", "10.1.2.3"}, {"10.0.0.10", "10.0.1.11"}, {"10.0.0.10", "10.2.9.9"}, {"10.3.4.5", "10.1.7.7"},
		{"fd00::1:0:0:0:10", "2001:db8:1::9"}, {"fd00::1:0:0:0:10", "fd00::2:0:0:0:11"}, {"2001:db8:3::4", "2001:db8:2::9"},
	} {
		f := flowOf(0, pair[0], pair[1])
		out = append(out, in(0, f.UDP("u"), f.TCP("S", 1, ""), f.Echo(1, 1, "ping"))...)
	}
	return out
}

// join concatenates packets.
func join(lists ...[]Packet) []Packet {
	var out []Packet
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// step is commands and the packets after them.
func step(packets []Packet, do ...string) handStep { return handStep{do: do, packets: packets} }

// frozen: shunt's process is stopped before the commands and until the packets have left.
func frozen(packets []Packet, do ...string) handStep {
	return handStep{do: do, packets: packets, frozen: true}
}

// killed: shunt's process is killed before the commands, and another is started when the packets have left.
func killed(packets []Packet, do ...string) handStep {
	return handStep{do: do, packets: packets, killed: true}
}

// at once: the packets follow the commands without a pause.
func atOnce(packets []Packet, do ...string) handStep {
	return handStep{do: do, packets: packets, immediate: true}
}
