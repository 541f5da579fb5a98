// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
)

// LineOptions shape a [Line].
type LineOptions struct {
	V4, V6   Prefixes // routed by the device under test to the sink; empty: none
	MTU      int      // of both links; 0: 1500
	Queues   int      // of both links; 0: 1
	Threaded bool     // poll the device under test from kernel threads
	Receive  Receive  // of the device under test's two ends
}

// Names in a [Line].
const (
	Src, Dut, SinkNode = "src", "dut", "sink"
)

// Line returns src – dut – sink, where dut is a Linux router for IPv4 and IPv6:
//
//	src/tx ── dut/in   10.0.0.1/24 fd00:0:0:1::1/64
//	          dut/out  10.0.1.1/24 fd00:0:0:2::1/64 ── sink/rx
//
// src/tx and sink/rx are wires. dut has the given prefixes routed to 10.0.1.2 and
// fd00:0:0:2::2, permanent neighbours that have the MAC address of sink/rx; dut/in
// has the neighbours 10.0.0.2 and fd00:0:0:1::2 at src/tx. A frame sent from src/tx
// to dut/in's MAC address and an address in the prefixes leaves at sink/rx.
func Line(o LineOptions) Topology {
	srcMAC, sinkMAC := defaultMAC(0, 0), defaultMAC(1, 1)
	t := Topology{
		Nodes: []Node{
			{Name: Src},
			{Name: Dut, Sysctls: []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}},
			{Name: SinkNode},
		},
		Links: []Link{{
			A: End{Node: Src, Name: "tx", Wire: true, Receive: ReceiveXDP},
			B: lineEnd("in", 0, srcMAC, o),
		}, {
			A: lineEnd("out", 1, sinkMAC, o),
			B: End{Node: SinkNode, Name: "rx", Wire: true, Receive: ReceiveXDP},
		}},
	}
	for i := range t.Links {
		t.Links[i].MTU, t.Links[i].Queues = o.MTU, o.Queues
	}
	return t
}

func lineEnd(name string, link int, peer net.HardwareAddr, o LineOptions) End {
	return End{
		Node: Dut, Name: name, Quiet: true, Threaded: o.Threaded, Receive: o.Receive,
		Addrs: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.0.%d.1/24", link)),
			netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%d::1/64", link+1)),
		},
		Neighbours: map[netip.Addr]net.HardwareAddr{
			netip.MustParseAddr(fmt.Sprintf("10.0.%d.2", link)):        peer,
			netip.MustParseAddr(fmt.Sprintf("fd00:0:0:%d::2", link+1)): peer,
		},
	}
}

// BuildLine builds a [Line] and adds its routes.
func BuildLine(prefix string, o LineOptions) (*Net, error) {
	n, err := Build(prefix, Line(o))
	if err != nil {
		return nil, err
	}
	for _, r := range []struct {
		to  Prefixes
		via string
	}{{o.V4, "10.0.1.2"}, {o.V6, "fd00:0:0:2::2"}} {
		if err := n.Node(Dut).AddRoutes(r.to, "via "+r.via+" dev out"); err != nil {
			n.Close()
			return nil, err
		}
	}
	return n, nil
}

// Star returns one router, dut, with n ports p0 … pN-1, each wired to w0 … wN-1 in
// one namespace, wire, where frames are injected and captured:
//
//	dut/pI  10.0.I.1/24 fd00:0:0:I+1::1/64 ── wire/wI
//
// 10.0.I.2 and fd00:0:0:I+1::2 are permanent neighbours at wire/wI. n is at most 250.
func Star(n int) Topology {
	t := Topology{Nodes: []Node{
		{Name: Dut, Sysctls: []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}},
		{Name: "wire"},
	}}
	for i := range n {
		port := lineEnd(fmt.Sprintf("p%d", i), i, defaultMAC(i, 1), LineOptions{Receive: ReceiveGRO})
		t.Links = append(t.Links, Link{
			A: port,
			B: End{Node: "wire", Name: fmt.Sprintf("w%d", i), Wire: true, Receive: ReceiveXDP},
		})
	}
	return t
}
