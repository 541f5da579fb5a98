// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/shuntnet/shunt/internal/lab"
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

// named puts owners' names in the place of addresses.
func named(owners map[netip.Addr]string, said string) string {
	words := strings.FieldsFunc(said, func(r rune) bool { return strings.ContainsRune(" \t\n,()=", r) })
	for _, w := range words {
		w = strings.TrimSuffix(w, ":")
		if a, err := netip.ParseAddr(w); err == nil && owners[a.Unmap()] != "" {
			said = strings.ReplaceAll(said, w, owners[a.Unmap()])
		}
	}
	return said
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
	args := append([]string{"--net=" + from.Path()}, strings.Fields(words)...)
	if args[1] == "ping" {
		args = slices.Concat(args[:2], []string{"-q", "-n", "-c", "3", "-i", "0.02", "-W", "1", "-w", "2"}, args[2:])
		out, _ := exec.Command("nsenter", args...).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "packets transmitted") { // without how often an unanswered ping repeats, and "time …ms"
				if _, after, _ := strings.Cut(line, "transmitted, "); strings.HasPrefix(after, "0 received") {
					return "nothing received"
				}
				line, _, _ = strings.Cut(line, ", time")
				return line
			}
		}
		return named(owners, strings.TrimSpace(string(out)))
	}
	args[1] = c.agent + " " + args[1]
	args = append(append([]string{args[0]}, strings.Fields(args[1])...), args[2:]...)
	out, err := exec.Command("nsenter", args...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return named(owners, strings.TrimSpace(string(out)))
}

// askAll asks all questions, those that move much one after the other.
func (c *cluster) askAll(questions []probe) map[string]string {
	out, owners := map[string]string{}, c.owners()
	var mu sync.Mutex
	var wg sync.WaitGroup
	large := make(chan struct{}, 1)
	for _, p := range questions {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if strings.Contains(p.words, "000") {
				large <- struct{}{}
				defer func() { <-large }()
			}
			answer := c.ask(owners, p)
			mu.Lock()
			defer mu.Unlock()
			out[p.String()] = answer
		}()
	}
	wg.Wait()
	return out
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
