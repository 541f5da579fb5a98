// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/test/beside"
)

// place is a pod, a node or "sw", beyond all nodes.
func (c *cluster) place(name string) *lab.NS {
	if p := c.pods[name]; p != nil {
		return p.ns
	}
	for _, n := range c.nodes {
		if n.String() == name {
			return n.ns
		}
	}
	return c.sw
}

// owners names addresses: those of pods, of nodes, of their bridges and of their tunnels' devices.
func (c *cluster) owners() map[netip.Addr]string {
	out := map[netip.Addr]string{netip.MustParseAddr("192.0.2.254"): "sw"}
	for name, p := range c.pods {
		out[p.addr] = name
	}
	for _, n := range c.nodes {
		out[n.addr()] = n.String()
		for _, device := range []string{"cni0", "flannel.1"} {
			said, _ := n.ns.Output("ip -br -4 address show dev %s", device)
			for _, word := range strings.Fields(said) {
				if p, err := netip.ParsePrefix(word); err == nil {
					out[p.Addr()] = n.String() + "'s " + device
				}
			}
		}
	}
	return out
}

func (n *node) addr() netip.Addr { return netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", n.number)) }

func ask(c *cluster, from *lab.NS, owners map[netip.Addr]string, words string) string {
	return beside.Ask(from, c.agent, words, owners)
}

// count says how many words of an answer begin in a way.
func count(answer, begin string) string {
	n := 0
	for _, w := range strings.Fields(answer) {
		if strings.HasPrefix(w, begin) {
			n++
		}
	}
	return fmt.Sprint(n)
}

// askAll asks questions that begin with a place: "pod1a who {pod2a}:80", where {NAME} is an address.
func (c *cluster) askAll(questions []string) map[string]string {
	owners := c.owners()
	var addresses []string
	for addr, name := range owners {
		addresses = append(addresses, "{"+name+"}", addr.String())
	}
	resolve := strings.NewReplacer(addresses...)
	return beside.AskAll(questions, func(question string) string {
		from, words, _ := strings.Cut(question, " ")
		return ask(c, c.place(from), owners, resolve.Replace(words))
	})
}

const megabyte = 1 << 20

// conversation is asked of clusters as they are set up.
func conversation() (out []string) {
	add := func(from string, words ...string) {
		for _, w := range words {
			out = append(out, from+" "+w)
		}
	}
	large := func(to string) []string {
		return []string{fmt.Sprint("get ", to, " ", 8*megabyte), fmt.Sprint("put ", to, " ", 8*megabyte)}
	}
	add("pod1a", "who {pod2a}:80", "who {pod1b}:80", "ping -s 56 {pod2a}", "ping -s 1422 -M do {pod2a}", "ping -s 1423 -M do {pod2a}", "udp {pod2a}:80 100 1000 0")
	// By a service's address: from pods of the same node and of another, the endpoint itself, nodes and beyond.
	for _, from := range []string{"pod1a", "pod1b", "pod2a", "pod2b", "node1", "node2", "sw"} {
		add(from, "where 10.43.0.80:80 30", "who 10.43.0.83:80", "get 10.43.0.83:80 500000", "who 10.43.0.84:80", "udp 10.43.0.83:80 50 1000 0", "who 10.43.0.87:80", "udp 10.43.0.87:80 2 100 0", "who 10.43.0.99:80", "who 10.43.0.83:81", "who 198.51.100.88:80")
		// By a node's port, which every node has; by a pod's port of a node, which only the pod's node has.
		for _, n := range []string{"{node1}", "{node2}"} {
			add(from, "where "+n+":30080 30", "who "+n+":30083", "get "+n+":30083 500000", "who "+n+":30085", "udp "+n+":30083 20 1000 0", "who "+n+":30087", "who "+n+":30999", fmt.Sprint("who ", n, ":", hostPort), fmt.Sprint("where ", n, ":", hostPort, " 3"))
		}
	}
	add("pod1a", large("10.43.0.83:80")...)
	add("pod1a", large("10.43.0.84:80")...)
	add("pod2b", large("10.43.0.84:80")...)
	add("sw", large("{node1}:30083")...)
	add("sw", large("{node1}:30084")...)
	add("sw", large(fmt.Sprint("{node1}:", hostPort))...)
	add("pod1a", "who {sw}:80", "get {sw}:80 1000000")
	return out
}

// near are a few questions after something has happened.
func near(nodes int) (out []string) {
	for n := 1; n <= nodes; n++ {
		for _, from := range []string{fmt.Sprintf("pod%da", n), fmt.Sprintf("node%d", n)} {
			out = append(out, from+" where 10.43.0.80:80 40", from+" get 10.43.0.83:80 500000", from+" who 10.43.0.84:80", from+" who 10.43.0.87:80", from+" who {pod2a}:80")
		}
		out = append(out, fmt.Sprintf("sw where {node%d}:30080 40", n), fmt.Sprintf("sw get {node%d}:30083 500000", n), fmt.Sprintf("sw where {node%d}:%d 2", n, hostPort))
	}
	return out
}
