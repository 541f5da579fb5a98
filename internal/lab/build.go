// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/vishvananda/netlink"
)

// Net is a topology that exists.
type Net struct {
	Prefix string // of the namespaces' names

	nodes map[string]*NS
	ports map[[2]string]*Port
	order []*Port
}

// Port is an interface of a built network.
type Port struct {
	Node, Name string
	Index      int
	MAC        net.HardwareAddr
	MTU        int
	NS         *NS
	Peer       *Port

	pass bool // has the program of attachPass

	mu       sync.Mutex
	injector *Injector // opened by the first Send
}

// String is the port as "node/name".
func (p *Port) String() string { return p.Node + "/" + p.Name }

// Build makes the topology. Its namespaces are called prefix+node; an empty
// prefix gives plain names for people to use. On an error nothing is left.
func Build(prefix string, t Topology) (*Net, error) {
	n := &Net{Prefix: prefix, nodes: map[string]*NS{}, ports: map[[2]string]*Port{}}
	if err := n.build(t.fill()); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Node returns the namespace of a node; asking for one that the topology lacks
// is a mistake in the caller and panics.
func (n *Net) Node(name string) *NS {
	ns, ok := n.nodes[name]
	if !ok {
		panic(fmt.Sprintf("lab: no node %q in this topology", name))
	}
	return ns
}

// Port returns an interface of a node; it panics as Node does.
func (n *Net) Port(node, name string) *Port {
	p, ok := n.ports[[2]string{node, name}]
	if !ok {
		panic(fmt.Sprintf("lab: no interface %q at node %q in this topology", name, node))
	}
	return p
}

// Ports returns all interfaces, in the order of the topology's links.
func (n *Net) Ports() []*Port { return n.order }

// Close deletes every namespace of the network and so all that is in them.
func (n *Net) Close() error {
	var errs []error
	for _, p := range n.order {
		if p.injector != nil {
			errs = append(errs, p.injector.Close())
			p.injector = nil
		}
	}
	for name, ns := range n.nodes {
		errs = append(errs, ns.Delete())
		delete(n.nodes, name)
	}
	return errors.Join(errs...)
}

// build goes stage by stage over all nodes and links, since each stage needs the
// one before to be complete on both ends.
func (n *Net) build(t Topology) error {
	for _, node := range t.Nodes {
		if _, dup := n.nodes[node.Name]; dup {
			return fmt.Errorf("node %q is in the topology twice", node.Name)
		}
		ns, err := NewNS(n.Prefix + node.Name)
		if err != nil {
			return err
		}
		n.nodes[node.Name] = ns
	}
	for _, l := range t.Links {
		if err := n.addLink(l); err != nil {
			return fmt.Errorf("linking %s/%s to %s/%s: %w", l.A.Node, l.A.Name, l.B.Node, l.B.Name, err)
		}
	}
	for _, node := range t.Nodes {
		for _, s := range node.Sysctls {
			if err := n.nodes[node.Name].Sysctl(s); err != nil {
				return err
			}
		}
	}
	for _, stage := range []func(*Port, End) error{(*Port).quieten, (*Port).bringUp, (*Port).assign, (*Port).settled} {
		for _, l := range t.Links {
			for _, e := range []End{l.A, l.B} {
				if err := stage(n.Port(e.Node, e.Name), e); err != nil {
					return fmt.Errorf("setting up %s/%s: %w", e.Node, e.Name, err)
				}
			}
		}
	}
	for _, node := range t.Nodes {
		for _, c := range node.Commands {
			if err := n.nodes[node.Name].Exec("%s", c); err != nil {
				return err
			}
		}
	}
	return nil
}

// addLink creates the pair, down, with names, addresses, MTU and queues.
func (n *Net) addLink(l Link) error {
	a, b := n.nodes[l.A.Node], n.nodes[l.B.Node]
	if a == nil || b == nil {
		return errors.New("one of the nodes is not in the topology")
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = l.A.Name, l.A.MAC, l.MTU
	attrs.NumTxQueues, attrs.NumRxQueues = l.Queues, l.Queues
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerMTU = l.B.Name, l.B.MAC, uint32(l.MTU)
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(l.Queues), uint32(l.Queues)
	veth.PeerNamespace = netlink.NsFd(b.file.Fd())
	if err := a.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding the veth pair: %w", err)
	}
	pa, err := n.addPort(l, l.A)
	if err != nil {
		return err
	}
	pb, err := n.addPort(l, l.B)
	if err != nil {
		return err
	}
	pa.Peer, pb.Peer = pb, pa
	return nil
}

func (n *Net) addPort(l Link, e End) (*Port, error) {
	ns := n.nodes[e.Node]
	link, err := ns.nl.LinkByName(e.Name)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", e.Name, err)
	}
	p := &Port{Node: e.Node, Name: e.Name, Index: link.Attrs().Index, MAC: e.MAC, MTU: l.MTU, NS: ns}
	n.ports[[2]string{e.Node, e.Name}] = p
	n.order = append(n.order, p)
	return p, nil
}
