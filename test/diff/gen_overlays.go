// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
)

// overlayShare is the percentage of configurations that have tunnels, where the kernel has VXLAN.
var overlayShare = 25

// overlayKinds are the links that genOverlays makes, where the kernel has them.
var overlayKinds = []string{"vxlan"}

// genOverlays puts the networks of some ports into tunnels: hosts that would be at the port's wire are behind a host there, and what the router and they say to each other is
// wrapped. Addresses, neighbours, routes, rules and switches of the features behind this one then go to the tunnel's device.
func genOverlays(_ *rand.Rand, c *Config) {
	rng := c.Tunneling
	if !slices.Contains(c.Kinds, "vxlan") || !chance(rng, overlayShare) {
		return
	}
	for i := range c.N {
		if c.Top[i] == "" && chance(rng, 60) {
			c.tunnel(i)
			c.Slow.Tunnel = true
		}
	}
}

// tunnel makes a port's tunnel, with options.
func (c *Config) tunnel(port int) {
	rng := c.Tunneling
	six := chance(rng, 25)
	local, remote := netip.AddrFrom4([4]byte{203, 0, byte(113 + port), 1}), netip.AddrFrom4([4]byte{203, 0, byte(113 + port), 2})
	prefix, head := netip.PrefixFrom(local, 24), 50
	if six {
		local, remote = addr6(port, 0x77, 1), addr6(port, 0x77, 2)
		prefix, head = netip.PrefixFrom(local, 64), 70
	}
	udp := pick(rng, []uint16{vxlanPort, vxlanPort, flannelPort})
	t := &tunnel{port: port, vni: uint32(1 + rng.IntN(1<<24-1)), outer: lab.Flow{SrcMAC: hostMAC(port, 0), DstMAC: portMAC(port), Src: remote, Dst: local, SrcPort: 50000, DstPort: udp}}
	under, dev := portName(port), fmt.Sprintf("x%d", port)
	c.add("ip address add %s dev %s%s", prefix, under, map[bool]string{true: " nodad"}[six])
	c.add("ip neighbour replace %s lladdr %s dev %s nud permanent", remote, hostMAC(port, 0), under)
	var options []string
	named := chance(rng, 85)
	if named {
		options = append(options, "dev "+under)
	}
	for _, o := range []struct {
		percent int
		option  string
	}{
		{20, pick(rng, []string{"ttl 1", "ttl 7", "ttl inherit"})}, {20, pick(rng, []string{"tos 0x28", "tos 0x10", "tos inherit"})}, {20, pick(rng, []string{"df set", "df inherit"})},
		{20, "srcport 40000 40010"}, {30, "nolearning"}, {10, "proxy"}, {5, "rsc"}, {10, "ageing 100000"},
		{map[bool]int{true: 0, false: 50}[six], "noudpcsum"}, {map[bool]int{true: 50}[six], "udp6zerocsumtx udp6zerocsumrx"}, {map[bool]int{true: 10}[six], "flowlabel 0x12345"},
	} {
		if chance(rng, o.percent) {
			options = append(options, o.option)
		}
	}
	c.add("ip link add %s address %s type vxlan id %d local %s remote %s dstport %d %s", dev, portMAC(port), t.vni, local, remote, udp, strings.Join(options, " "))
	c.quietTop(port, dev)
	room := c.MTU[port] - head
	if !named && chance(rng, 50) {
		room += 10 + rng.IntN(200)
	}
	if chance(rng, 20) {
		room -= rng.IntN(100)
	}
	c.MTU[port] = max(room, 400)
	c.add("ip link set %s mtu %d", dev, c.MTU[port])
	c.Tunnels[port] = t
	if !named {
		c.Slow.Out = append(c.Slow.Out, port) // whether it fits depends on every other device
	}
}

// excuseOverlays: a port's MTU that is changed behind the tunnel's may be too small for it, what binds the MTU of any route may bind the outer packets, and rules see the tunnel's device, which the model of what they allow does not know.
func (c *Config) excuseOverlays() {
	sized := slices.ContainsFunc(c.Commands, func(do string) bool { return strings.Contains(do, "route") && strings.Contains(do, " mtu ") })
	for i, t := range c.Tunnels {
		switch {
		case t == nil:
		case c.filtered():
			c.excusePort(i)
		case sized || c.narrowed(i):
			c.Slow.Out = append(c.Slow.Out, i)
		}
	}
}

// narrowed says whether a port's MTU was set after its tunnel was made.
func (c *Config) narrowed(port int) bool {
	made := slices.IndexFunc(c.Commands, func(do string) bool { return strings.HasPrefix(do, fmt.Sprintf("ip link add x%d ", port)) })
	return slices.ContainsFunc(c.Commands[made+1:], func(do string) bool { return strings.HasPrefix(do, fmt.Sprintf("ip link set p%d mtu ", port)) })
}

// within wraps most frames for a port with a tunnel, and changes something about the outer packet of every tenth.
func (g *packetGen) within(p Packet) []Packet {
	rng, t := g.c.Tunneling, g.c.Tunnels[p.Port]
	if t == nil || p.How == Offload || len(p.Frame) < 14 || chance(rng, 5) {
		return []Packet{p}
	}
	to := *t
	to.outer.ID = uint16(rng.IntN(1 << 16))
	to.outer.SrcPort = uint16(32768 + rng.IntN(1000))
	to.outer.TOS = pick(rng, []uint8{0, 0, 0, 0, 1, 2, 3, 0xb8})
	if chance(rng, 3) {
		to.vni ^= 1
	}
	f := to.wrap(p.Frame)
	if chance(rng, 10) {
		f = lab.Edited(f, pick(rng, []lab.Edit{lab.TTL(1), lab.BadTransportChecksum(), lab.L4(6, 0, 0), lab.L4(2, 0x30, 0x39), lab.L4(8, 0), lab.L4(8, 0x88), lab.L4(11, 1), lab.L4(15, 1)}))
	}
	out := [][]byte{f}
	if room := len(f) - 14; room > 1500 || room > 100 && chance(rng, 5) {
		out = lab.Fragments(f, pick(rng, []int{576, 1280, 1400, 1500}))
	}
	var packets []Packet
	for _, f := range out {
		q := p
		q.Frame, q.Merge = f, false
		if len(f) > lab.MaxWireFrame {
			q.How = SKB
		}
		packets = append(packets, q)
	}
	return packets
}

// answerWithin is what a host behind a tunnel replies to a frame in it.
func (h hosts) answerWithin(port int, frame, inner []byte, at int) []byte {
	reply := h.answer(port, inner)
	ip, ok := readIP(frame)
	if reply == nil || !ok {
		return nil
	}
	out := tunnel{outer: lab.Flow{SrcMAC: net.HardwareAddr(frame[:6]), DstMAC: net.HardwareAddr(frame[6:12]), Src: ip.dst, Dst: ip.src, SrcPort: 50000, DstPort: uint16(frame[ip.l4+2])<<8 | uint16(frame[ip.l4+3])}}
	out.vni = uint32(frame[at-4])<<16 | uint32(frame[at-3])<<8 | uint32(frame[at-2])
	return out.wrap(reply)
}
