// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/test/beside"
)

// event is something that happens to clusters while pods talk.
type event struct {
	what  string
	do    func(c *cluster)
	stops []string // the traffic that it is in the way of: that stops, and goes on after what ends it, with shunt as without; in all other traffic nothing may fail
	then  string
	undo  func(c *cluster)
	more  []probe          // asked besides
	where func(setup) bool // nil: in each setup
}

// The traffic of traffic(): one connection and calls between two nodes, calls on one node, and calls by a port of a node.
const (
	connection, there, back, within, published = "a connection from pod1a to pod2a", "calls from pod1a to pod2b", "calls from pod2b to pod1b", "calls from pod1a to pod1b", "calls by a port of node1"
)

var across = []string{connection, there, back}

// traffic starts what goes on while something happens.
func (c *cluster) traffic() beside.Traffic {
	c.Helper()
	talk := func(from, what, to string, more ...string) *beside.Talker {
		ns, _ := c.place(from)
		_, addrs := c.place(to)
		port := map[bool]int{true: hostPort, false: 80}[to == "node1"]
		return beside.Talk(c.T, ns, c.agent, append([]string{what, netip.AddrPortFrom(addrs[0], uint16(port)).String()}, more...)...)
	}
	return beside.Traffic{
		Streams: map[string]*beside.Talker{connection: talk("pod1a", "stream", "pod2a", "0")},
		Calls:   map[string]*beside.Talker{there: talk("pod1a", "calls", "pod2b", "20"), back: talk("pod2b", "calls", "pod1b", "20"), within: talk("pod1a", "calls", "pod1b", "20"), published: talk("sw", "calls", "node1", "20")},
	}
}

// events are what happens, in order.
func events() []event {
	node := func(c *cluster, i int) *node { return c.nodes[i-1] }
	vxlan := setup.vxlan
	return []event{
		{what: "a node joins", do: func(c *cluster) { node(c, 3).join(); c.reaches("pod1b", "pod3a"); c.reaches("pod3b", "pod2a") }},
		{what: "a pod comes", do: func(c *cluster) { node(c, 1).addPod("c", false) }},
		{what: "flanneld is killed", do: func(c *cluster) { node(c, 1).stopFlannel(unix.SIGKILL) }},
		{what: "and comes back", do: func(c *cluster) { node(c, 1).startFlannel() }},
		{what: "etcd is killed", do: func(c *cluster) { c.etcd.Process.Kill(); c.etcd.Wait() }},
		{what: "a pod goes without it", do: func(c *cluster) { node(c, 1).removePod("c", false) }},
		{what: "etcd comes back", do: func(c *cluster) { c.startEtcd() }},
		{what: "shunt is killed", do: func(c *cluster) {
			if n := node(c, 1); n.shunt != nil {
				n.shunt.Kill()
			}
		}},
		{what: "shunt comes back", do: func(c *cluster) {
			if n := node(c, 1); n.shunt != nil {
				n.shunt.Start()
			}
		}},
		{what: "shunt hangs", do: func(c *cluster) {
			if n := node(c, 1); n.shunt != nil {
				n.shunt.Hang(1500 * time.Millisecond) // longer than its watchdog waits
			}
		}},
		{what: "a second device of Flannel's network", where: vxlan, do: func(c *cluster) {
			for _, device := range []string{"id 1 dev eth0 dstport 8472 local 192.0.2.1 nolearning", "id 1 dstport 8472", "id 2 dev eth0 dstport 8472 nolearning"} {
				c.note(node(c, 1).ns, "ip link add clash type vxlan "+device)
			}
			c.must(node(c, 1).ns, "ip link set clash up")
		}},
		{what: "and no longer", where: vxlan, do: func(c *cluster) { c.must(node(c, 1).ns, "ip link del clash") }},
		{what: "a foreign host is in Flannel's network, by the address of another node's device", where: vxlan, more: []probe{{"sw", "pod1a", "who {to}:80"}, {"sw", "pod1b", "get {to}:80 500000"}, {"sw", "pod2a", "who {to}:80"}}, do: func(c *cluster) {
			n, network := node(c, 1), node(c, 1).network()
			c.must(c.sw, "ip link add clash address "+c.mac(node(c, 2).ns, "flannel.1")+" type vxlan id 1 dev br0 local 192.0.2.254 dstport 8472 nolearning", "ip link set clash up", "ip address add 10.99.0.1/32 dev clash",
				fmt.Sprintf("ip neighbour replace %s lladdr %s dev clash nud permanent", network.Addr(), c.mac(n.ns, "flannel.1")), fmt.Sprintf("bridge fdb append %s dev clash dst 192.0.2.1", c.mac(n.ns, "flannel.1")),
				fmt.Sprintf("ip route add %s via %s dev clash onlink src 10.99.0.1", network, network.Addr()))
		}},
		{what: "and leaves it", where: vxlan, do: func(c *cluster) { c.must(c.sw, "ip link del clash") }},
		{what: "the tunnel's device goes", stops: across, where: vxlan, do: func(c *cluster) { c.must(node(c, 2).ns, "ip link del flannel.1") },
			then: "and flanneld is told to make it anew", undo: func(c *cluster) { node(c, 2).stopFlannel(unix.SIGTERM); node(c, 2).startFlannel() }},
		{what: "the other end of the tunnel is forgotten", stops: across, where: vxlan, do: func(c *cluster) { node(c, 1).peer(node(c, 2), "del", "del") },
			then: "and known again", undo: func(c *cluster) { node(c, 1).peer(node(c, 2), "replace", "append") }},
		{what: "the underlay goes down", stops: across, do: func(c *cluster) { c.must(node(c, 2).ns, "ip link set eth0 down") },
			then: "and comes back", undo: func(c *cluster) {
				node(c, 2).wire()
				if !c.setup.vxlan() { // routes to other nodes went with it, for which flanneld looks every ten seconds, and when it starts
					node(c, 2).stopFlannel(unix.SIGTERM)
					node(c, 2).startFlannel()
				}
			}},
		{what: "a node loses power", do: func(c *cluster) { node(c, 3).powerOff() }},
		{what: "and starts again", do: func(c *cluster) { node(c, 3).boot(); c.reaches("pod1b", "pod3a"); c.reaches("pod3b", "pod2a") }},
		{what: "a node leaves", do: func(c *cluster) {
			node(c, 3).stopFlannel(unix.SIGTERM)
			c.must(node(c, 3).ns, "ip link set eth0 down")
		}},
		{what: "and comes back", do: func(c *cluster) {
			node(c, 3).wire()
			node(c, 3).startFlannel()
			c.reaches("pod1b", "pod3a")
			c.reaches("pod3b", "pod2a")
		}},
		{what: "a policy forbids what one pod asks another", stops: []string{connection}, do: func(c *cluster) {
			_, to := c.place("pod2a")
			c.must(node(c, 2).ns, fmt.Sprintf("iptables -I FORWARD -d %s -p tcp --dport 80 -j DROP", to[0]))
		}, then: "and no longer", undo: func(c *cluster) { c.must(node(c, 2).ns, "iptables -D FORWARD 1") }},
	}
}

// peer writes or removes what flanneld writes of another node's tunnel.
func (n *node) peer(other *node, neighbour, station string) {
	n.Helper()
	mac := n.mac(other.ns, "flannel.1")
	n.must(n.ns, fmt.Sprintf("ip neighbour %s %s lladdr %s dev flannel.1 nud permanent", neighbour, other.network().Addr(), mac), fmt.Sprintf("bridge fdb %s %s dev flannel.1 dst 192.0.2.%d", station, mac, other.number))
}

// life is what happens to clusters, under traffic. In the end all that there was once a node had joined is there again, and shunt holds no more than then.
func (w *twins) life(s setup) {
	w.Helper()
	var all [2]beside.Holding
	defer func(started time.Time) { w.Logf("%5.2f s  life", time.Since(started).Seconds()) }(time.Now())
	for i, e := range events() {
		if e.where == nil || e.where(s) {
			w.happens(e)
		}
		if i == 0 {
			w.churn(1)
			all = w.rest()
		}
	}
	before := w.rest()
	w.grown("all of this", all, before, 3*4) // eth0, the tunnel and two pods on each node
	w.churn(5)
	w.grown("pods that came and went", before, w.rest(), 0)
}

// churn has pods come, ask, and go.
func (w *twins) churn(rounds int) {
	w.Helper()
	started := time.Now()
	w.both(func(c *cluster) {
		for range rounds {
			for _, n := range c.nodes[:2] {
				n.addPod("d", false)
				for _, other := range []string{"pod1a", "pod2a"} {
					c.reaches(other, n.podName("d"))
					c.reaches(n.podName("d"), other)
				}
				n.removePod("d", false)
			}
		}
	})
	w.Logf("%5.2f s  %d pods came and went on each of two nodes", time.Since(started).Seconds(), rounds)
}

// rest is what the shunts of the first two nodes hold when nothing goes on.
func (w *twins) rest() (h [2]beside.Holding) {
	w.Helper()
	var wg sync.WaitGroup
	for i := range h {
		wg.Add(1)
		go func() { defer wg.Done(); h[i] = w.clusters[1].nodes[i].shunt.Rest() }()
	}
	wg.Wait()
	return h
}

// grown tells what there is more of.
func (w *twins) grown(what string, before, after [2]beside.Holding, kept int) {
	w.Helper()
	for i := range before {
		w.Logf("         node%d before %s: %+v", i+1, what, before[i])
		w.Logf("         node%d after it: %+v", i+1, after[i])
		for _, more := range before[i].Grown(after[i], kept) {
			w.Errorf("node%d, %s: %s", i+1, what, more)
		}
	}
}

// index is which of the twins it is.
func (w *twins) index(c *cluster) int { return slices.Index(w.clusters[:], c) }

// happens has something happen to both while pods talk, asks, ends it where it is in the way of that, and asks again. It gives what Linux alone answered to the first.
func (w *twins) happens(e event) (linux map[string]string) {
	w.Helper()
	var traffic [2]beside.Traffic
	started := time.Now()
	w.both(func(c *cluster) {
		traffic[w.index(c)] = c.traffic()
		time.Sleep(300 * time.Millisecond)
		e.do(c)
		time.Sleep(300 * time.Millisecond)
		for _, name := range e.stops {
			c.await(name+" stops: "+e.what, "etcd", func() bool { return stopped(traffic[w.index(c)], name) })
		}
	})
	w.Logf("%5.2f s  %s", time.Since(started).Seconds(), e.what)
	for i, note := range w.clusters[0].notes {
		if with := w.clusters[1].notes[i]; note != with {
			w.Errorf("%s: Linux alone says %s, with shunt %s", e.what, note, with)
		}
		w.Logf("         %s", note)
	}
	w.clusters[0].notes, w.clusters[1].notes = nil, nil
	questions := append(near(), e.more...)
	linux = w.compare(e.what, questions)
	if len(e.stops) > 0 {
		w.recovers(e, traffic)
		w.compare(e.then, questions)
	}
	var kinds [2]map[string]string
	for i, c := range w.clusters {
		said, wrong := traffic[i].End()
		w.Logf("         %s: %s", c.name, said)
		kinds[i] = map[string]string{}
		for name, said := range wrong {
			if !slices.Contains(e.stops, name) {
				w.Errorf("%s, %s: %s: %s", c.name, e.what, name, said)
				continue
			}
			kinds[i][name] = kindsOf(said)
		}
	}
	for _, d := range beside.Differences(kinds[0], kinds[1]) {
		w.Errorf("%s: %s", e.what, d)
	}
	if len(e.stops) > 0 {
		w.Logf("         calls that failed: %v", kinds[0])
	}
	return linux
}

// stopped says whether nothing comes back any more.
func stopped(f beside.Traffic, name string) bool {
	if k := f.Calls[name]; k != nil {
		return strings.Contains(k.Last(), " s: ") && !strings.HasSuffix(k.Last(), " again")
	}
	k := f.Streams[name]
	before := k.Lines()
	time.Sleep(300 * time.Millisecond)
	return k.Lines() == before
}

// recovers ends what is in the way, and waits until the traffic goes on. The time that calls take for it is what Linux takes: a second is that after which a call is given up.
func (w *twins) recovers(e event, traffic [2]beside.Traffic) {
	w.Helper()
	var took, connected [2]float64
	w.both(func(c *cluster) {
		f := traffic[w.index(c)]
		lines := map[string]int{}
		for name, k := range f.Streams {
			lines[name] = k.Lines()
		}
		e.undo(c)
		began := time.Now()
		for _, name := range e.stops {
			if k := f.Calls[name]; k != nil {
				c.await(name+" are answered again: "+e.then, "flanneld-node2", func() bool { return !stopped(f, name) })
			}
		}
		took[w.index(c)] = time.Since(began).Seconds()
		for _, name := range e.stops {
			if k := f.Streams[name]; k != nil {
				c.await(name+" goes on: "+e.then, "flanneld-node2", func() bool { return k.Lines() > lines[name] || k.Ended() })
			}
		}
		connected[w.index(c)] = time.Since(began).Seconds()
	})
	w.Logf("         %s: calls after %.1f s by Linux, %.1f s with shunt; the connection after %.1f s, %.1f s", e.then, took[0], took[1], connected[0], connected[1])
	if math.Abs(took[0]-took[1]) > 2.5 {
		w.Errorf("%s: calls are answered %.1f s after it by Linux alone, %.1f s with shunt", e.then, took[0], took[1])
	}
}

// kindsOf says in what ways calls failed.
func kindsOf(said string) string {
	kinds := map[string]bool{}
	for line := range strings.Lines(said) {
		if _, kind, ok := strings.Cut(strings.TrimSpace(line), " s: "); ok && kind != "answered again" {
			if kind == "unreachable" { // that a neighbour does not answer is known after three seconds; a call that was given up before had no answer
				kind = "no answer"
			}
			kinds[kind] = true
		} else if strings.HasPrefix(line, "the connection") {
			kinds[line] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
}
