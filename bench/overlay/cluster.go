// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

// The ways by which Flannel joins nodes.
const (
	vxlan  = "vxlan"
	hostGW = "host-gw"
)

// kind is what a cluster is.
type kind struct {
	backend string
	pairs   int    // of pods
	rules   int    // of the user's in the chain forward, before Flannel's
	own     string // what else a node gets, for nft
}

// cluster is two nodes with pods: of pair i, "src" and "near" on the first node and "dst" on the second.
type cluster struct {
	*lab.Net
	kind
	variant string
}

const (
	podMTU  = 1450
	service = "10.96.0.10" // of the first pair's "dst", any port
)

var nodes = [2]string{"node0", "node1"}

// podOf is a pod's address: 10 and on for those that talk to the other node's, 110 and on for "near".
func podOf(node, last int) [4]byte { return [4]byte{10, 244, byte(node), byte(last)} }

func podName(name string, pair int) string { return fmt.Sprint(name, pair) }

// topology is the nodes, the wire between them, and pods with their links.
func (k kind) topology() lab.Topology {
	var t lab.Topology
	for _, n := range nodes {
		t.Nodes = append(t.Nodes, lab.Node{Name: n, Sysctls: []string{"net.ipv4.ip_forward=1"}})
	}
	at := func(i int) []netip.Prefix {
		return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", i+1))}
	}
	t.Links = append(t.Links, lab.Link{
		A: lab.End{Node: nodes[0], Name: "eth0", Quiet: true, Receive: lab.ReceiveGRO, Addrs: at(0)},
		B: lab.End{Node: nodes[1], Name: "eth0", Quiet: true, Receive: lab.ReceiveGRO, Addrs: at(1)},
	})
	pod := func(name string, node, last int) {
		addr := netip.PrefixFrom(netip.AddrFrom4(podOf(node, last)), 24)
		t.Nodes = append(t.Nodes, lab.Node{Name: name, Commands: []string{fmt.Sprintf("ip route add default via 10.244.%d.1", node)}})
		t.Links = append(t.Links, lab.Link{MTU: podMTU,
			A: lab.End{Node: name, Name: "eth0", Quiet: true, Receive: lab.ReceiveGRO, Addrs: []netip.Prefix{addr}},
			B: lab.End{Node: nodes[node], Name: "veth-" + name, Quiet: true, Receive: lab.ReceiveGRO},
		})
	}
	for i := range k.pairs {
		pod(podName("src", i), 0, 10+i)
		pod(podName("near", i), 0, 110+i)
		pod(podName("dst", i), 1, 10+i)
	}
	return t
}

// vtep is the address of a node's tunnel device.
func vtep(node int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0, 0, 0, 0xfa, byte(node + 1)}
}

// links are what the bridge plugin and flanneld configure on a node, as `ip -batch` takes it.
func (k kind) links(node int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	other := 1 - node
	line("link add cni0 mtu %d type bridge", podMTU)
	line("address add 10.244.%d.1/24 dev cni0", node)
	for i := range k.pairs {
		for at, name := range []string{"src", "near", "dst"} {
			if at/2 == node {
				line("link set veth-%s master cni0", podName(name, i))
				line("link set veth-%s type bridge_slave hairpin on", podName(name, i))
			}
		}
	}
	line("link set cni0 up")
	if k.backend == hostGW {
		line("route add 10.244.%d.0/24 via 192.0.2.%d dev eth0", other, other+1)
		return b.String()
	}
	line("link add flannel.1 address %s type vxlan id 1 local 192.0.2.%d dev eth0 dstport 8472 nolearning", vtep(node), node+1)
	line("address add 10.244.%d.0/32 dev flannel.1", node)
	line("link set flannel.1 up")
	line("neighbour add 10.244.%d.0 lladdr %s dev flannel.1 nud permanent", other, vtep(other))
	line("route add 10.244.%d.0/24 via 10.244.%d.0 dev flannel.1 onlink", other, other)
	return b.String()
}

// tables are the rules of flanneld and kube-proxy (mode iptables, one service) on a node, as iptables-restore takes them, with the user's before.
func (k kind) tables(node int) string {
	var own strings.Builder
	for i := range k.rules {
		fmt.Fprintf(&own, "-A FORWARD -s 192.168.%d.%d -p tcp -m tcp --dport %d -j DROP\n", i/250, 1+i%250, 20000+i)
	}
	return fmt.Sprintf(`*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:FLANNEL-FWD - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
%s-A FORWARD -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-A FORWARD -j FLANNEL-FWD
-A OUTPUT -j KUBE-FIREWALL
-A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT
-A FLANNEL-FWD -d 10.244.0.0/16 -j ACCEPT
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:FLANNEL-POSTRTG - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SEP - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A POSTROUTING -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -j RETURN
-A FLANNEL-POSTRTG -s 10.244.%[2]d.0/24 -d 10.244.0.0/16 -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.%[2]d.0/24 -j RETURN
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.%[2]d.0/24 -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/16 -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-SEP -s 10.244.1.10/32 -j KUBE-MARK-MASQ
-A KUBE-SEP -p tcp -m tcp -j DNAT --to-destination 10.244.1.10
-A KUBE-SERVICES -d %[3]s/32 -p tcp -m tcp -j KUBE-SVC
-A KUBE-SVC ! -s 10.244.0.0/16 -d %[3]s/32 -p tcp -m tcp -j KUBE-MARK-MASQ
-A KUBE-SVC -j KUBE-SEP
COMMIT
`, own.String(), node, service)
}

// build makes the cluster, with shunt on both nodes where the variant says so.
func (k kind) build(b *suite.Bench, variant string) (*cluster, error) {
	n, err := lab.Build(lab.UniquePrefix("bench"), k.topology())
	if err != nil {
		return nil, fmt.Errorf("building nodes: %w", err)
	}
	b.Later(n.Close)
	c := &cluster{Net: n, kind: k, variant: variant}
	for i, name := range nodes {
		node := n.Node(name)
		if err := node.Feed(k.links(i), "ip -batch -"); err != nil {
			return nil, err
		}
		if k.backend == vxlan {
			if err := node.Exec("bridge fdb append %s dev flannel.1 dst 192.0.2.%d", vtep(1-i), 2-i); err != nil {
				return nil, err
			}
		}
		if err := node.Feed(k.tables(i), "iptables-nft-restore"); err != nil {
			return nil, err
		}
		if variant != shuntAuto {
			continue
		}
		if _, err := b.StartEngine(node, graph.Policy{Hook: "auto"}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// between are sockets in two pods of a pair, the client in "src".
func (c *cluster) between(server string, node, last int, addr [4]byte) *suite.SocketLane {
	return &suite.SocketLane{Net: c.Net, Variant: c.variant, Ends: func(pair int) (client, to suite.Endpoint) {
		to = suite.Endpoint{NS: c.Node(podName(server, pair)), Addr: podOf(node, last+pair)}
		if addr != [4]byte{} {
			to.Addr = addr
		}
		return suite.Endpoint{NS: c.Node(podName("src", pair)), Addr: podOf(0, 10+pair)}, to
	}}
}

// across are pods of both nodes, near those of one, served the first again by the service's address, and bare the nodes themselves.
func (c *cluster) across() *suite.SocketLane { return c.between("dst", 1, 10, [4]byte{}) }
func (c *cluster) near() *suite.SocketLane   { return c.between("near", 0, 110, [4]byte{}) }
func (c *cluster) served() *suite.SocketLane {
	return c.between("dst", 1, 10, netip.MustParseAddr(service).As4())
}

func (c *cluster) bare() *suite.SocketLane {
	return &suite.SocketLane{Net: c.Net, Variant: bareHosts, Ends: func(int) (client, server suite.Endpoint) {
		return suite.Endpoint{NS: c.Node(nodes[0]), Addr: [4]byte{192, 0, 2, 1}}, suite.Endpoint{NS: c.Node(nodes[1]), Addr: [4]byte{192, 0, 2, 2}}
	}}
}
