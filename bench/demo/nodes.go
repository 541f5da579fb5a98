// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
)

// flannelCommands make a node's bridge and tunnel, as Flannel and its bridge plugin would; %[1]d is the node's number, %[2]d the other's.
const flannelCommands = `ip link add cni0 mtu 1450 type bridge
ip address add 10.244.%[1]d.1/24 dev cni0
ip link set veth0 master cni0
ip link set cni0 up
ip link add flannel.1 address 02:00:00:00:fa:0%[1]d type vxlan id 1 local 192.0.2.%[1]d dev eth0 dstport 8472 nolearning
ip address add 10.244.%[1]d.0/32 dev flannel.1
ip link set flannel.1 up
ip neighbour add 10.244.%[2]d.0 lladdr 02:00:00:00:fa:0%[2]d dev flannel.1 nud permanent
bridge fdb append 02:00:00:00:fa:0%[2]d dev flannel.1 dst 192.0.2.%[2]d
ip route add 10.244.%[2]d.0/24 via 10.244.%[2]d.0 dev flannel.1 onlink`

// kubeRules are how kube-proxy and Flannel begin on every node.
const kubeRules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -s 10.244.0.0/16 -j ACCEPT
-A FORWARD -d 10.244.0.0/16 -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 10.244.0.0/16 -d 10.244.0.0/16 -j RETURN
-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully
COMMIT
`

func twoNodes() lab.Topology {
	var t lab.Topology
	at := func(addr string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(addr)} }
	ends := [2]lab.End{}
	for i := range 2 {
		node, pod := fmt.Sprint("node", i+1), fmt.Sprint("pod", i+1)
		commands := strings.Split(fmt.Sprintf(flannelCommands, i+1, 2-i), "\n")
		t.Nodes = append(t.Nodes, lab.Node{Name: node, Sysctls: []string{"net.ipv4.ip_forward=1"}, Commands: commands},
			lab.Node{Name: pod, Commands: []string{fmt.Sprintf("ip route add default via 10.244.%d.1", i+1)}})
		t.Links = append(t.Links, lab.Link{MTU: 1450, A: lab.End{Node: node, Name: "veth0"}, B: lab.End{Node: pod, Name: "eth0", Addrs: at(fmt.Sprintf("10.244.%d.2/24", i+1))}})
		ends[i] = lab.End{Node: node, Name: "eth0", Addrs: at(fmt.Sprintf("192.0.2.%d/24", i+1))}
	}
	t.Links = append(t.Links, lab.Link{A: ends[0], B: ends[1]})
	return t
}

// nodes shows two nodes whose pods talk through a tunnel, with a shunt on each.
func (d *demo) nodes() error {
	d.screen.title("Two nodes of a cluster: pods that talk through VXLAN")
	n, err := lab.Build(lab.UniquePrefix("nodes"), twoNodes())
	if err != nil {
		return err
	}
	defer n.Close()
	p := &pods{Net: n, host: n.Node("node1"), outer: "eth0"}
	defer p.abandon()
	d.screen.say("pod1 ── [cni0  node1  flannel.1] ══ VXLAN over eth0 ══ [flannel.1  node2  cni0] ── pod2\nBridge, tunnel, routes and rules as Flannel and kube-proxy make them; one shunt on each node.")
	for i := range 2 {
		if err := n.Node(fmt.Sprint("node", i+1)).Feed(kubeRules, "iptables-restore"); err != nil {
			return err
		}
	}
	d.screen.command("ip route     # node1", head(routesOf(p.host), 4, 0))
	flow := podFlow{"pod1 → pod2, through the tunnel", "pod1", "pod2", "10.244.2.2:80", "10.244.2.2:80"}
	linux, err := p.stream(d.ctx, flow)
	if err != nil {
		return err
	}
	for i := range 2 {
		s, err := d.beside(p, n.Node(fmt.Sprint("node", i+1)))
		if err != nil {
			return err
		}
		if err := s.run(d.ctx, "auto"); err != nil {
			return err
		}
		if _, err := s.until(d.ctx, "serving the pods", func(st *api.Status) bool { return fast(st, "veth0") && fast(st, "flannel.1") }); err != nil {
			return err
		}
	}
	d.screen.command("shunt run &     # on both", "")
	if err := d.podFlow(p, flow, linux); err != nil {
		return err
	}
	d.screen.say("counted at the pods' and the tunnels' ends; the encapsulated packets at eth0 are each node's own")
	for _, s := range p.shunts {
		if err := s.remove(); err != nil {
			return err
		}
	}
	return nil
}

func routesOf(ns *lab.NS) string {
	out, err := ns.Output("ip route")
	if err != nil {
		return err.Error()
	}
	return out
}
