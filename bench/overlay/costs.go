// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var costsSection = suite.Section{
	Name:   "costs",
	Title:  "Into a tunnel and out of it",
	Budget: budget(240),
	About: "60-byte UDP packets of 50 flows through one node: routed into a tunnel (encapsulated on the way), and taken out of one and routed on (decapsulated). One queue; a generator on a CPU of its own, the node's polling thread on another, " +
		"its run time per packet that arrives at the other end is the cost. The tunnel's device encapsulates and decapsulates for Linux and for shunt; what shunt saves is the way to it and from it. " +
		"\"Own tunnel\" is the ceiling of a program at tc that does the device's work itself: it makes the same packets but for the outer identification and UDP's checksum, without a check, or with the routes and neighbours of the inner and the outer packet looked up; \"redirect\" sends them on as they came.",
	Run: runCosts,
}

// direction is into the tunnel, or out of it.
type direction struct {
	name string
	out  bool
}

var directions = []direction{{"encapsulated", false}, {"decapsulated", true}}

var innerFlows = lab.V4Prefixes(50)

func runCosts(b *suite.Bench) error {
	for _, d := range directions {
		if err := b.Part(d.name, func() error { return measureCosts(b, d) }); err != nil {
			return err
		}
	}
	return nil
}

func measureCosts(b *suite.Bench, d direction) error {
	setup := func(hook graph.Hook, more func(*suite.Lane) error) func(*suite.Lane) error {
		return func(l *suite.Lane) error {
			l.Open = true
			if err := d.tunnel(l); err != nil {
				return err
			}
			if more != nil {
				if err := more(l); err != nil {
					return err
				}
			}
			if hook == "" {
				return nil
			}
			if err := l.Shunt(graph.Policy{Hook: string(hook)}); err != nil {
				return err
			}
			l.Engine.Settle()
			return nil
		}
	}
	variants := []suite.Variant{
		{Name: suite.LinuxGRO, Setup: setup("", nil)},
		{Name: suite.LinuxNoGRO, Line: suite.LinuxWithoutGRO.Line, Setup: setup("", suite.LinuxWithoutGRO.Setup)},
		{Name: suite.ShuntTC, Setup: setup(graph.TC, nil)},
		{Name: ceiling, Setup: setup("", func(l *suite.Lane) error { return d.ownTunnel(l, false) })},
		{Name: ceilingRoutes, Setup: setup("", func(l *suite.Lane) error { return d.ownTunnel(l, true) })},
		{Name: suite.RedirectRead, Setup: setup("", func(l *suite.Lane) error { return b.RedirectTC(l.In(), l.Out(), false) })},
	}
	lanes, err := b.Lanes(variants, lab.LineOptions{V4: innerFlows})
	if err != nil {
		return err
	}
	var turns []measure.Turn
	for _, l := range lanes {
		turns = append(turns, l.Turn(d.name, l.AtIngress(), d.stream(l)))
	}
	return b.Turns(d.name, b.Size.Rounds, turns)
}

// tunnel makes the node's tunnel: to a host behind "out", or from one behind "in".
func (d direction) tunnel(l *suite.Lane) error {
	dut := l.Node(lab.Dut)
	dev, local, remote := "out", "10.0.1.1", "10.0.1.2"
	if d.out {
		dev, local, remote = "in", "10.0.0.1", "10.0.0.2"
	}
	lines := fmt.Sprintf("link add flannel.1 address %s type vxlan id 1 local %s dev %s dstport 8472 nolearning\nlink set flannel.1 up\n", vtep(0), local, dev)
	if !d.out {
		lines += fmt.Sprintf("neighbour add 10.244.1.0 lladdr %s dev flannel.1 nud permanent\n", vtep(1))
		for i := range innerFlows.Count {
			lines += fmt.Sprintf("route replace %s via 10.244.1.0 dev flannel.1 onlink\n", innerFlows.At(i))
		}
	}
	if err := dut.Feed(lines, "ip -batch -"); err != nil {
		return err
	}
	if err := dut.Sysctl("net/ipv4/conf/flannel.1/rp_filter=0"); err != nil {
		return err
	}
	if d.out {
		link, err := dut.Netlink().LinkByName("flannel.1")
		if err != nil {
			return err
		}
		l.Decides = link.Attrs().Index
		return nil
	}
	return dut.Exec("bridge fdb append %s dev flannel.1 dst %s", vtep(1), remote)
}

// stream is what the generator sends: packets to the flows' destinations, or such in the tunnel, whose outer source ports are those of 50 flows.
func (d direction) stream(l *suite.Lane) suite.Stream {
	s := l.Forward(d.name, false, innerFlows)
	if !d.out {
		return s
	}
	t := &s.Traffic
	t.Payload = inTunnel()
	t.Size = 14 + 20 + 8 + len(t.Payload)
	t.Dst, t.Host = lab.Prefixes{First: netip.MustParsePrefix("10.0.0.1/32"), Count: 1}, 0
	t.Flows, t.DstPort, t.SrcPort = innerFlows.Count, 8472, 50000
	t.DstMAC = net.HardwareAddr(l.In().MAC)
	return s
}

// inTunnel is what follows the outer UDP header of a packet.
func inTunnel() []byte {
	inner := lab.Flow{SrcMAC: vtep(1), DstMAC: vtep(0), Src: netip.MustParseAddr("10.244.1.10"), Dst: innerFlows.Host(0, 1), SrcPort: 1000, DstPort: 2000}.UDP(string(make([]byte, 18)))
	head := make([]byte, 8)
	head[0] = 0x08
	binary.BigEndian.PutUint32(head[4:], 1<<8)
	return append(head, inner...)
}
