// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var outsideSection = suite.Section{
	Name:   "outside",
	Title:  "A container and the outside",
	Budget: budget(300),
	About: "60-byte UDP packets of 50 flows through bridge and route, as every host of containers has them: received by a container from outside, which is routed to the bridge and handed to the " +
		"container's port, and sent by one, which the port takes for the bridge's own address and routes to the outside. One queue; made, polled and counted as under \"Bridging\", but that a container that receives drops them behind " +
		"its interface (nft, ingress), as no XDP program stands in a container. Cost is the polling thread's run time per packet that arrived.",
	Run: runOutside,
}

// direction is which of the line's ends is the container: its port is the bridge's only one.
type direction struct{ name, port, addr string }

var (
	received   = direction{"received by a container", "out", "10.0.1.1/24"}
	sent       = direction{"sent by a container", "in", "10.0.0.1/24"}
	directions = []direction{received, sent}
)

func (d direction) of(s situation) string { return s.name + ", " + d.name }

func runOutside(b *suite.Bench) error {
	for _, s := range []situation{plain, called} {
		for _, d := range directions {
			if err := b.Part(d.of(s), func() error { return measureOutside(b, s, d) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func measureOutside(b *suite.Bench, s situation, d direction) error {
	setup := func(hook graph.Hook, more func(*suite.Lane) error) func(*suite.Lane) error {
		return func(l *suite.Lane) error {
			l.Open = true
			if err := d.bridge(l, s); err != nil {
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
			return l.Shunt(graph.Policy{Hook: string(hook)})
		}
	}
	lanes, err := b.Lanes([]suite.Variant{
		{Name: suite.LinuxGRO, Setup: setup("", nil)},
		{Name: suite.LinuxNoGRO, Line: suite.LinuxWithoutGRO.Line, Setup: setup("", suite.LinuxWithoutGRO.Setup)},
		{Name: suite.ShuntTC, Setup: setup(graph.TC, nil)},
	}, lab.LineOptions{V4: flows})
	if err != nil {
		return err
	}
	settle(lanes)
	var turns []measure.Turn
	for _, l := range lanes {
		turns = append(turns, l.Turn(d.of(s), l.AtIngress(), l.Forward("outside", false, flows)))
	}
	return b.Turns(d.of(s), extents[b.Size.Name].rounds, turns)
}

// bridge puts the container's port into a bridge that has its address, and lets that hear the container.
func (d direction) bridge(l *suite.Lane, s situation) error {
	dut := l.Node(lab.Dut)
	container := map[string]*lab.Port{"in": l.TX(), "out": l.RX()}[d.port]
	if err := dut.Feed(fmt.Sprintf("address flush dev %s\nlink add br0 address %s type bridge ageing_time 3600000\nlink set %s master br0\nlink set br0 up\naddress add %s dev br0\n",
		d.port, l.Port(lab.Dut, d.port).MAC, d.port, d.addr), "ip -batch -"); err != nil {
		return err
	}
	for _, dev := range []string{"all", "br0"} {
		if err := dut.Sysctl("net.ipv4.conf." + dev + ".accept_redirects=0"); err != nil {
			return err
		}
	}
	if d == received { // what left with the port's address
		if err := dut.Exec("ip neighbour replace 10.0.1.2 lladdr %s dev br0 nud permanent", container.MAC); err != nil {
			return err
		}
		if err := dut.ChangeRoutes(flows, "10.0.1.2", true); err != nil {
			return err
		}
		if err := dropBehind(l, container); err != nil {
			return err
		}
	}
	if err := s.configure(dut); err != nil {
		return err
	}
	return heard(dut, container, d.port)
}

// dropBehind has a container drop what it receives behind its interface, instead of an XDP program that would keep packets from going straight into it.
func dropBehind(l *suite.Lane, container *lab.Port) error {
	if err := l.Sinks[0].Close(); err != nil {
		return err
	}
	if err := container.NS.Exec("ip link set dev %s xdp off", container.Name); err != nil { // that of an end of a line
		return err
	}
	rules := fmt.Sprintf("table netdev bench { chain end { type filter hook ingress device %s priority 0; policy drop; }; }\n", container.Name)
	if err := container.NS.Feed(rules, "nft -f -"); err != nil {
		return err
	}
	return countReceived(l, container)
}

// countReceived has a lane count what a port has received, without asking netlink, which waits for whoever configures a network.
func countReceived(l *suite.Lane, p *lab.Port) error {
	root, err := p.NS.Sysfs()
	if err != nil {
		return err
	}
	l.Bench.Later(root.Close)
	l.Count = func() (uint64, error) {
		text, err := root.ReadFile("class/net/" + p.Name + "/statistics/rx_packets")
		if err != nil {
			return 0, fmt.Errorf("reading the counters of %s: %w", p, err)
		}
		return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	return nil
}

// heard has a container broadcast until the bridge knows it.
func heard(dut *lab.NS, container *lab.Port, port string) error {
	f := lab.Flow{SrcMAC: container.MAC, DstMAC: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, Src: source, Dst: netip.MustParseAddr("10.0.0.255"), SrcPort: 9, DstPort: 9}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err := container.Send(f.UDP("hello")); err != nil {
			return fmt.Errorf("telling the bridge where the container is: %w", err)
		}
		text, err := dut.Output("bridge fdb show br br0")
		if err != nil {
			return err
		}
		if strings.Contains(text, container.MAC.String()+" dev "+port+" ") {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the bridge has not learned where the container is: %s", text)
		}
	}
}
