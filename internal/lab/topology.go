// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"net/netip"
)

// Topology describes namespaces and the links between them. It is a plain value:
// take one from [Line] or [Star], amend it, give it to [Build].
type Topology struct {
	Nodes []Node
	Links []Link
}

// Node is one network namespace.
type Node struct {
	Name string
	// Sysctls are written in order after the node's interfaces exist and before
	// they are up: "net.ipv4.ip_forward=1".
	Sysctls []string
	// Commands run in order, as [NS.Exec] does, once all links are up.
	Commands []string
}

// Link is a veth pair. Its two ends may lie in the same node.
type Link struct {
	A, B   End
	MTU    int // 0: 1500
	Queues int // receive and transmit queues per end; 0: 1
}

// End is one end of a link: an interface of a node.
type End struct {
	Node, Name string

	// MAC is the address; nil: 02:00:00:NN:NN:EE from the position of the link
	// in the topology (NN) and of the end in the link (EE), both from 1.
	MAC net.HardwareAddr
	// Addrs are assigned without duplicate address detection.
	Addrs []netip.Prefix
	// Neighbours are permanent entries: address to MAC.
	Neighbours map[netip.Addr]net.HardwareAddr

	// Receive says how frames are taken from the peer.
	Receive Receive
	// NoTxChecksum makes local senders fill in checksums, as seen on a real wire;
	// it also ends TSO. XDP redirects need it for traffic born in this node.
	NoTxChecksum bool
	// Threaded polls this end from kernel threads ([NS.SetThreaded]).
	Threaded bool
	// Wire makes the end a mere socket in the wall: no addresses, no ARP, no
	// IPv6, nothing sent that nobody injected. For ends where frames are injected
	// and captured.
	Wire bool
	// Quiet keeps an end with addresses from talking by itself: no duplicate
	// address detection, router solicitations or address autoconfiguration.
	// Multicast reports remain: see [Noise].
	Quiet bool
}

// Receive is the way a veth end takes frames from its peer. XDP frames redirected
// to the peer arrive only if this end polls with NAPI; without, the kernel drops
// them silently.
type Receive int

const (
	// ReceivePlain is the kernel's default for veth: packets enter the backlog
	// queue, XDP frames are lost.
	ReceivePlain Receive = iota
	// ReceiveGRO polls with NAPI and merges TCP segments, as NICs do.
	ReceiveGRO
	// ReceiveXDP polls with NAPI through a program that passes everything, and
	// does not merge: right for ends where single frames are captured. It takes
	// segmentation offload from the peer.
	ReceiveXDP
)

// defaultMAC is the address of an end that has none of its own.
func defaultMAC(link, end int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0, 0, byte((link + 1) >> 8), byte(link + 1), byte(end + 1)}
}

// fill returns a copy of the topology with every default written out.
func (t Topology) fill() Topology {
	links := make([]Link, len(t.Links))
	for i, l := range t.Links {
		if l.MTU == 0 {
			l.MTU = 1500
		}
		if l.Queues == 0 {
			l.Queues = 1
		}
		if l.A.MAC == nil {
			l.A.MAC = defaultMAC(i, 0)
		}
		if l.B.MAC == nil {
			l.B.MAC = defaultMAC(i, 1)
		}
		links[i] = l
	}
	t.Links = links
	return t
}

// Node returns the named node of a topology for amending, or nil.
func (t *Topology) Node(name string) *Node {
	for i := range t.Nodes {
		if t.Nodes[i].Name == name {
			return &t.Nodes[i]
		}
	}
	return nil
}

// End returns the named interface of a node for amending, or nil.
func (t *Topology) End(node, name string) *End {
	for i := range t.Links {
		for _, e := range []*End{&t.Links[i].A, &t.Links[i].B} {
			if e.Node == node && e.Name == name {
				return e
			}
		}
	}
	return nil
}
