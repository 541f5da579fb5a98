// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// flows is how many there are: as many destination addresses behind the sink, one drawn for each packet.
var flows = lab.V4Prefixes(50)

// source is the address that packets come from.
var source = netip.MustParseAddr("10.0.0.2")

// situation is what a bridge is set to, and what it is called in the results.
type situation struct {
	name  string
	calls bool   // br_netfilter
	rules string // for nft
	track bool   // the flows are established connections by then
}

const (
	stateful = `table inet bench {
	chain way { type filter hook forward priority 0; ct state established,related accept; ct state new accept; }
}
`
	family = `table bridge bench {
	chain way { type filter hook forward priority 0; ether saddr 02:00:00:00:99:01 drop; udp dport 9 drop; }
}
`
)

// The situations that targets speak of, and one with rules of the bridge's own family.
var (
	plain      = situation{name: "bridge"}
	called     = situation{name: "bridge, br_netfilter", calls: true}
	tracked    = situation{name: "bridge, br_netfilter and a conntrack rule", calls: true, rules: stateful, track: true}
	filtered   = situation{name: "bridge, two rules of the bridge family", rules: family}
	situations = []situation{plain, called, tracked, filtered}
)

// compared are Linux in two ways, shunt in two, what redirects unseen and after a look, and the floor.
func compared(s situation) []suite.Variant {
	return []suite.Variant{
		{Name: suite.LinuxGRO, Setup: s.setup("", nil)},
		{Name: suite.LinuxNoGRO, Line: suite.LinuxWithoutGRO.Line, Setup: s.setup("", suite.LinuxWithoutGRO.Setup)},
		{Name: suite.ShuntXDP, Setup: s.setup(graph.XDP, nil)},
		{Name: suite.ShuntTC, Setup: s.setup(graph.TC, nil)},
		suite.Ceiling,
		suite.CeilingRead,
		suite.Floor,
	}
}

// setup makes the line's router a bridge, and starts shunt there if a hook is named.
func (s situation) setup(hook graph.Hook, more func(*suite.Lane) error) func(*suite.Lane) error {
	return func(l *suite.Lane) error {
		l.Open = true
		if err := s.bridge(l); err != nil {
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

// commands make a bridge of the router's two ports. Entries stay for as long as a section takes.
const commands = `link add br0 type bridge ageing_time 3600000
link set in master br0
link set out master br0
link set br0 up
`

// bridge makes the bridge, and lets it hear both ends.
func (s situation) bridge(l *suite.Lane) error {
	dut := l.Node(lab.Dut)
	for _, port := range []string{"in", "out"} {
		if err := dut.Exec("ip address flush dev %s", port); err != nil {
			return err
		}
	}
	if err := dut.Feed(commands, "ip -batch -"); err != nil {
		return err
	}
	if err := s.configure(dut); err != nil {
		return err
	}
	return hello(l)
}

// configure sets switches and rules.
func (s situation) configure(ns *lab.NS) error {
	for _, name := range []string{"iptables", "ip6tables"} {
		err := ns.Sysctl(fmt.Sprintf("net.bridge.bridge-nf-call-%s=%d", name, map[bool]int{true: 1}[s.calls]))
		if err != nil && s.calls {
			return fmt.Errorf("calling netfilter for bridged packets: %w", err)
		}
	}
	if s.rules == "" {
		return nil
	}
	return ns.Feed(s.rules, "nft -f -")
}

// hello is a broadcast from each end, so that the bridge learns where both are, and another one until it has.
func hello(l *suite.Lane) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		for _, p := range []*lab.Port{l.TX(), l.RX()} {
			f := lab.Flow{SrcMAC: p.MAC, DstMAC: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, Src: source, Dst: netip.MustParseAddr("10.0.0.255"), SrcPort: 9, DstPort: 9}
			if err := p.Send(f.UDP("hello")); err != nil {
				return fmt.Errorf("telling the bridge where a station is: %w", err)
			}
		}
		text, err := l.Node(lab.Dut).Output("bridge fdb show br br0")
		if err != nil {
			return err
		}
		if strings.Contains(text, l.TX().MAC.String()+" dev in ") && strings.Contains(text, l.RX().MAC.String()+" dev out ") {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the bridge has not learned where the stations are: %s", text)
		}
	}
}

// across is the usual stream: from the source to the sink, by the sink's own address.
func across(l *suite.Lane, name string) suite.Stream {
	s := l.Forward(name, false, flows)
	s.Traffic.DstMAC = l.RX().MAC
	return s
}

// assured is how long a UDP flow must have gone both ways before the kernel counts it as a stream.
const assured = 2200 * time.Millisecond

// establish sends a packet of each flow there and back, twice with the time between that the kernel asks for.
func establish(lanes []*suite.Lane) error {
	for i := range 2 {
		if i > 0 {
			time.Sleep(assured)
		}
		for _, l := range lanes {
			if err := errors.Join(l.TX().Send(packets(l, true)...), l.RX().Send(packets(l, false)...)); err != nil {
				return fmt.Errorf("establishing flows: %w", err)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// packets are one of each flow of the stream, or of the answers to them.
func packets(l *suite.Lane, there bool) (out [][]byte) {
	t := across(l, "").Traffic
	for i := range flows.Count {
		f := lab.Flow{SrcMAC: t.SrcMAC, DstMAC: t.DstMAC, Src: t.Src, Dst: flows.Host(i, t.Host), SrcPort: t.SrcPort, DstPort: t.DstPort}
		if !there {
			f.SrcMAC, f.DstMAC, f.Src, f.Dst, f.SrcPort, f.DstPort = f.DstMAC, f.SrcMAC, f.Dst, f.Src, f.DstPort, f.SrcPort
		}
		out = append(out, f.UDP(string(make([]byte, 18))))
	}
	return out
}
