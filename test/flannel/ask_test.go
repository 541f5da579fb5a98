// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/test/beside"
)

// probe is a question from one place about another; {to} in its words is the other's address, {to6} that in IPv6.
type probe struct{ from, to, words string }

func (p probe) String() string { return fmt.Sprintf("%s → %s: %s", p.from, p.to, p.words) }

// place is a pod, a node or "sw", beyond all nodes.
func (c *cluster) place(name string) (*lab.NS, []netip.Addr) {
	if p := c.pods[name]; p != nil {
		return p.ns, p.addrs
	}
	if name == "sw" {
		return c.sw, []netip.Addr{netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr(prefix6 + "fe")}
	}
	for _, n := range c.nodes {
		if n.String() == name {
			return n.ns, []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", n.number)), netip.MustParseAddr(fmt.Sprintf("%s%d", prefix6, n.number))}
		}
	}
	return nil, nil
}

// owners names addresses: those of pods, of nodes, of their bridges and of their tunnels' devices, which Flannel draws.
func (c *cluster) owners() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for name, p := range c.pods {
		for _, a := range p.addrs {
			out[a] = name
		}
	}
	for _, name := range []string{"sw", "node1", "node2", "node3"} {
		_, addrs := c.place(name)
		for _, a := range addrs {
			out[a] = name
		}
	}
	for _, n := range c.nodes {
		for _, key := range []string{"FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET"} {
			if p, err := netip.ParsePrefix(n.subnet()[key]); err == nil {
				out[p.Addr()] = n.String() + "'s bridge"
				out[p.Masked().Addr()] = n.String() + "'s tunnel"
			}
		}
	}
	return out
}

// ask asks one question and gives the answer in a line.
func (c *cluster) ask(owners map[netip.Addr]string, p probe) string {
	from, _ := c.place(p.from)
	_, addrs := c.place(p.to)
	if from == nil || len(addrs) == 0 {
		return "not there"
	}
	words := strings.ReplaceAll(p.words, "{to}", addrs[0].String())
	if i := slices.IndexFunc(addrs, netip.Addr.Is6); i >= 0 {
		words = strings.ReplaceAll(words, "{to6}", addrs[i].String())
	}
	said := beside.Ask(from, c.agent, words, owners)
	if strings.HasPrefix(words, "where ") { // in the order of addresses, which each cluster draws
		names := strings.Fields(said)
		slices.Sort(names)
		said = strings.Join(names, " ")
	}
	return said
}

// askAll asks all questions.
func (c *cluster) askAll(questions []probe) map[string]string {
	owners := c.owners()
	byName, names := map[string]probe{}, []string{}
	for _, p := range questions {
		if _, twice := byName[p.String()]; !twice {
			byName[p.String()], names = p, append(names, p.String())
		}
	}
	return beside.AskAll(names, func(name string) string { return c.ask(owners, byName[name]) })
}

const megabyte = 1 << 20

// probes are asked of both clusters: between pods of one node and of two, to nodes and beyond, and by a port of a node. size is that of a large transfer.
func (s setup) probes(size int) (out []probe) {
	add := func(from, to string, words ...string) {
		for _, w := range words {
			out = append(out, probe{from, to, w})
		}
	}
	large := []string{fmt.Sprint("get {to}:80 ", size), fmt.Sprint("put {to}:80 ", size)}
	pings := []string{"ping -s 56 {to}", "ping -s 8000 {to}", "ping -s 1422 -M do {to}", "ping -s 1423 -M do {to}", "ping -s 1472 -M do {to}"}
	add("pod1a", "pod2a", large...)
	add("pod1a", "pod2a", pings...)
	add("pod1a", "pod2a", "udp {to}:80 200 100 0", "udp {to}:80 50 1400 0", "udp {to}:80 20 9000 0", "who {to}:80")
	add("pod2b", "pod1b", large...)
	add("pod1a", "pod1b", large...)
	add("pod1a", "pod1b", pings...)
	add("pod1a", "pod1b", "udp {to}:80 200 100 0", "who {to}:80")
	add("pod1a", "node1", "who {to}:80", "get {to}:80 1000000", "ping -s 56 {to}")
	add("pod1a", "node2", "who {to}:80", "get {to}:80 1000000", "ping -s 56 {to}")
	add("node1", "pod1a", "who {to}:80", "get {to}:80 1000000")
	add("node1", "pod2a", "who {to}:80", "get {to}:80 1000000", "ping -s 1422 -M do {to}")
	add("pod1a", "sw", "who {to}:80", "udp {to}:80 50 1000 0", "ping -s 56 {to}")
	if s.masq { // else what is beyond the nodes knows no way back
		add("pod1a", "sw", large...)
	}
	published := fmt.Sprintf("{to}:%d", hostPort)
	add("sw", "node1", "who "+published, fmt.Sprint("get ", published, " ", size))
	add("pod2b", "node1", "who "+published, "get "+published+" 1000000")
	add("pod1b", "node1", "who "+published)
	add("pod1a", "node1", "who "+published) // back to itself
	add("node2", "node1", "who "+published)
	add("sw", "pod1a", "who {to}:80") // nobody routes that
	if s.six {
		six := []string{fmt.Sprint("get [{to6}]:80 ", size), fmt.Sprint("put [{to6}]:80 ", size), "who [{to6}]:80", "udp [{to6}]:80 100 1000 0", "ping -6 -s 1402 -M do {to6}", "ping -6 -s 1403 -M do {to6}"}
		add("pod1a", "pod2a", six...)
		add("pod1a", "pod1b", six...)
		add("pod2a", "node1", "who [{to6}]:80", "get [{to6}]:80 1000000")
	}
	return out
}

// near are a few questions after something has happened.
func near() (out []probe) {
	for _, pair := range [][2]string{{"pod1a", "pod2a"}, {"pod2b", "pod1b"}, {"pod1a", "pod1b"}, {"pod1b", "pod3a"}, {"pod3b", "pod2a"}, {"pod1a", "pod1c"}, {"pod2a", "pod1c"}, {"node1", "pod2b"}} {
		out = append(out, probe{pair[0], pair[1], "who {to}:80"}, probe{pair[0], pair[1], "get {to}:80 500000"})
	}
	return append(out, probe{"sw", "node1", fmt.Sprintf("who {to}:%d", hostPort)}, probe{"sw", "node3", fmt.Sprintf("who {to}:%d", hostPort)})
}
