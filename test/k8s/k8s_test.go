// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/test/beside"
)

var (
	program = flag.String("shunt", "../../bin/shunt", "the program to run on nodes")
	tools   = flag.String("tools", "../../.cache/k8s", "folder of Kubernetes' programs (test/k8s/tools.sh)")
	flannel = flag.String("flannel-tools", "../../.cache/flannel", "folder of flanneld, cnitool and the plugins (test/flannel/tools.sh)")
	asked   = flag.Bool("k8s", false, "run Kubernetes (make test-k8s)")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Geteuid() == 0 {
		if err := beside.Sweep("k8s"); err != nil {
			fmt.Fprintln(os.Stderr, "k8s: removing what an earlier run left:", err)
		}
	}
	code := lab.Main(m)
	os.RemoveAll(beside.Folder("k8s"))
	os.Exit(code)
}

// prepared skips where something is missing, and gives the agent.
func prepared(t *testing.T, also ...string) (agent string) {
	t.Helper()
	if !*asked {
		t.Skip("takes some minutes, and a quarter of an hour once to build Kubernetes: make test-k8s runs it")
	}
	for folder, names := range map[*string][]string{
		tools:   append([]string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"}, also...),
		flannel: {"flanneld", "cnitool", "bridge", "portmap", "host-local"},
	} {
		absolute, err := filepath.Abs(*folder)
		if err != nil {
			t.Fatal(err)
		}
		*folder = absolute
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(*folder, name)); err != nil {
				t.Skipf("no %s in %s (test/k8s/tools.sh and test/flannel/tools.sh make them)", name, *folder)
			}
		}
	}
	for _, name := range []string{"ping", "nsenter", "openssl", "nft", "iptables-save"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s here", name)
		}
	}
	*program, agent = beside.Build(t, beside.Folder("k8s"), *program)
	return agent
}

// setups are kube-proxy's modes. In its nftables mode its chains and those that Flannel makes by iptables-nft are called at the same priority.
var setups = []setup{{name: "iptables", proxy: "iptables"}, {name: "nftables", proxy: "nftables"}, {name: "nftables-beside-legacy", proxy: "nftables", legacy: true}}

// twins are two clusters of the same kind; the second has shunt.
type twins struct {
	*testing.T
	setup    setup
	clusters [2]*cluster
}

// both does the same to both at once.
func (w *twins) both(do func(c *cluster)) {
	w.Helper()
	var wg sync.WaitGroup
	for _, c := range w.clusters {
		wg.Add(1)
		go func() { defer wg.Done(); do(c) }()
	}
	wg.Wait()
	if w.Failed() {
		w.FailNow()
	}
}

// compare asks both and tells the differences.
func (w *twins) compare(what string, questions []string) (linux map[string]string) {
	w.Helper()
	started := time.Now()
	for _, n := range w.clusters[1].nodes {
		n.shunt.Settled()
	}
	linux, found, first := beside.Lasting(func() (map[string]string, map[string]string) {
		var said [2]map[string]string
		w.both(func(c *cluster) { said[slices.Index(w.clusters[:], c)] = c.askAll(questions) })
		return said[0], said[1]
	})
	if len(first) > 0 {
		w.Logf("%s: asked again, since it differed: %q", what, first)
	}
	for _, d := range found {
		w.Errorf("%s: %s", what, d)
	}
	w.Logf("%5.1f s  %s: %d questions, %d differences", time.Since(started).Seconds(), what, len(questions), len(found))
	return linux
}

// TestServices asks the same of clusters with shunt and without, by both of kube-proxy's modes, and after everything that happens to services.
func TestServices(t *testing.T) {
	agent := prepared(t)
	for _, s := range setups {
		t.Run(s.name, func(t *testing.T) {
			if _, err := os.Stat(legacyTables); s.legacy && err != nil {
				t.Skip("no iptables-legacy here")
			}
			w := &twins{T: t, setup: s}
			started := time.Now()
			w.clusters = [2]*cluster{newCluster(t, "linux", s, agent, 3), newCluster(t, "shunt", s, agent, 3, 1, 2, 3)}
			w.both(func(c *cluster) {
				for _, n := range c.nodes[:2] {
					n.join()
				}
				c.have(services()...)
				for _, from := range []string{"pod1a", "pod2b"} {
					c.reachable(from, services()[0])
				}
				c.must(c.sw, "ip route add 10.43.0.0/16 via 192.0.2.1", "ip route add 198.51.100.88 via 192.0.2.2")
			})
			t.Logf("%5.1f s  clusters with services", time.Since(started).Seconds())
			w.conversation()
			w.life()
			w.faster()
			w.leftovers()
		})
	}
}

// conversation compares answers, and says what of it was fast.
func (w *twins) conversation() {
	w.Helper()
	before := w.fast()
	answers := w.compare("as kube-proxy sets it up", conversation())
	for question, want := range map[string]string{
		"pod1a where 10.43.0.80:80 30": "pod1b pod2a", "sw where {node1}:30080 30": "pod1b pod2a", "pod1a who 10.43.0.83:80": "pod1a", "pod1a who 10.43.0.87:80": "refused",
		"sw who {node2}:30085": "sw", fmt.Sprint("sw where {node1}:", hostPort, " 3"): "pod1a",
	} {
		if answers[question] != want {
			w.Errorf("%s: Linux alone says %q, not %q: this cluster does not work", question, answers[question], want)
		}
	}
	moved := w.since(before)
	w.Logf("forwarded by shunt: %s", told(moved))
	if why := slow(w.T, w.clusters[1].nodes[0].shunt.Status()); strings.Contains(why, unordered) {
		w.Logf("not fast on this kernel (it was built without CONFIG_NETFILTER_NETLINK_HOOK, and two tables have chains of one priority): %s", unordered)
		return
	}
	// Both large transfers each by ClusterIP to the other node and to the same, by NodePort to either, by a port of the pod's: five pass node1 and are not its own.
	if want := uint64(5 * 2 * 8 * megabyte); moved["node1"] < want*3/4 {
		w.Errorf("node1's shunt forwarded %d MB itself, of %d at least", moved["node1"]/1e6, want/1e6)
	}
}

// fast is what each node's shunt has forwarded, in bytes.
func (w *twins) fast() map[string]uint64 {
	out := map[string]uint64{}
	for _, n := range w.clusters[1].nodes {
		for _, i := range n.shunt.Status().Interfaces {
			out[n.String()] += i.Packets.Bytes
		}
	}
	return out
}

// unordered is why chains of one priority in two tables of nf_tables are Linux's where the kernel cannot list its hooks.
const unordered = "this kernel does not tell which of the chains of this priority is called first"

// slow tells why what a shunt did not forward went to Linux.
func slow(t *testing.T, s *api.Status) (why string) {
	t.Helper()
	for _, i := range s.Interfaces {
		raw, err := json.Marshal([]any{i.Packets.Slow, i.Reasons})
		if err != nil {
			t.Fatal(err)
		}
		why += string(raw)
		t.Logf("%s: %s, %d packets fast; %.400s", i.Name, i.State, i.Packets.Fast, raw)
	}
	return why
}

func (w *twins) since(before map[string]uint64) map[string]uint64 {
	now := w.fast()
	for name := range now {
		now[name] -= before[name]
	}
	return now
}

func told(moved map[string]uint64) string {
	var out []string
	for name, n := range moved {
		out = append(out, fmt.Sprintf("%s %.1f MB", name, float64(n)/1e6))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// life is what happens to services, while some talk to them: no call may fail and no connection end.
func (w *twins) life() {
	w.Helper()
	web := services()[0]
	node := func(c *cluster, i int) *node { return c.nodes[i-1] }
	var rules [2]string
	at := func(c *cluster) *string { return &rules[slices.Index(w.clusters[:], c)] }
	steps := []struct {
		what  string
		nodes int
		do    func(c *cluster)
	}{
		{"more endpoints", 2, func(c *cluster) {
			node(c, 1).addPod("c", false)
			node(c, 2).addPod("c", false)
			web := web
			web.pods = []string{"pod1b", "pod2a", "pod1c", "pod2c"}
			c.have(web)
			c.reachable("pod1a", web)
		}},
		{"fewer endpoints", 2, func(c *cluster) {
			web := web
			web.pods = []string{"pod2a", "pod1c"}
			c.have(web)
			c.reachable("pod1a", web)
			c.reachable("pod2b", web)
		}},
		{"kube-proxy is killed", 2, func(c *cluster) { *at(c) = node(c, 1).rules(); c.end(node(c, 1).proxy) }},
		{"kube-proxy writes its rules anew", 2, func(c *cluster) {
			n := node(c, 1)
			n.startProxy()
			web := web
			web.pods = []string{"pod2a", "pod1b"} // what the old one never heard of
			c.have(web)
			c.reachable("pod1a", web)
			web.pods = []string{"pod2a", "pod1c"}
			c.have(web)
			c.reachable("pod1a", web)
			c.await("kube-proxy's rules are those from before", "kube-proxy-node1", func() bool { return n.rules() == *at(c) })
		}},
		{"a node joins", 3, func(c *cluster) {
			node(c, 3).join()
			web := web
			web.pods = []string{"pod2a", "pod1c", "pod3b"}
			c.have(web)
			c.reachable("pod1a", web)
			c.reachable("pod3a", web)
		}},
		{"a thousand rules of other services", 3, func(c *cluster) {
			var more []service
			for i := range 100 {
				more = append(more, service{name: fmt.Sprint("more", i), ip: fmt.Sprintf("10.43.1.%d", i), pods: []string{"pod1c", "pod2c", "pod3a"}})
			}
			c.have(more...)
			c.reachable("pod2b", more[99])
			c.reachable("pod1a", more[99])
		}},
	}
	for _, s := range steps {
		var said [2]string
		w.both(func(c *cluster) {
			traffic := beside.Traffic{Calls: map[string]*beside.Talker{
				"calls by ClusterIP": c.talk("pod1a", "calls", web.ip+":80"),
				"calls by NodePort":  c.talk("sw", "calls", "192.0.2.1:30080"),
				"calls from a node":  c.talk("node2", "calls", web.ip+":80"),
				"calls by hostPort":  c.talk("sw", "calls", fmt.Sprint("192.0.2.1:", hostPort)),
			}, Streams: map[string]*beside.Talker{"one connection": c.talk("pod1a", "stream", "10.43.0.83:80", "0")}}
			time.Sleep(500 * time.Millisecond)
			s.do(c)
			time.Sleep(500 * time.Millisecond)
			heard, wrong := traffic.End()
			for name, said := range wrong {
				c.Errorf("%s, %s: %s: %s", c.name, s.what, name, said)
			}
			said[slices.Index(w.clusters[:], c)] = heard
		})
		w.Logf("         %s: Linux: %s", s.what, said[0])
		w.Logf("         %s: shunt: %s", s.what, said[1])
		w.compare(s.what, near(s.nodes))
	}
}

// faster prints how many round trips each cluster makes, one after the other, in turns. What it says hangs on what else the machine does: bench/overlay measures.
func (w *twins) faster() {
	w.Helper()
	for _, q := range []struct{ what, from, to string }{
		{"ClusterIP, other node", "pod1a", "10.43.0.83:80"}, {"ClusterIP, same node", "pod1a", "10.43.0.84:80"}, {"NodePort, other node", "sw", "192.0.2.1:30083"}, {"hostPort", "sw", fmt.Sprint("192.0.2.1:", hostPort)},
	} {
		var ratios []float64
		var rates [2]float64
		fast, trips := w.packets(), 0.0
		for round := range 6 {
			for k := range w.clusters {
				i := (k + round) % 2
				c := w.clusters[i]
				said := ask(c, c.place(q.from), nil, "rate "+q.to+" 400")
				rate, err := strconv.ParseFloat(said, 64)
				if err != nil {
					w.Errorf("%s, %s: %s", c.name, q.what, said)
					return
				}
				rates[i] = rate
			}
			trips += rates[1] * 0.4
			ratios = append(ratios, rates[1]/rates[0])
		}
		slices.Sort(ratios)
		w.Logf("round trips, %s: %.2f times as many with shunt (median of %d; %.2f to %.2f), %.0f/s at last; %.1f fast packets for each", q.what, (ratios[2]+ratios[3])/2, len(ratios), ratios[0], ratios[5], rates[1], float64(w.packets()-fast)/trips)
	}
}

// packets is how many all nodes' shunts have forwarded; on two nodes each counts.
func (w *twins) packets() (n uint64) {
	for _, node := range w.clusters[1].nodes {
		for _, i := range node.shunt.Status().Interfaces {
			n += i.Packets.Fast
		}
	}
	return n
}

// leftovers looks for what shunt says of itself and for state of what is gone.
func (w *twins) leftovers() {
	w.Helper()
	for _, n := range w.clusters[1].nodes {
		s := n.shunt.Settled()
		if s.Sync.Failures > 0 || len(s.Faults) > 0 {
			w.Errorf("%s: %d failures, faults %q", n, s.Sync.Failures, s.Faults)
		}
		for line := range strings.Lines(n.shunt.Log()) {
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
				w.Errorf("%s: shunt said: %s", n, line)
			}
		}
		links, err := n.ns.Output("ip -o link show")
		if err != nil {
			w.Fatal(err)
		}
		if have := strings.Count(links, "\n"); have != len(s.Interfaces) {
			w.Errorf("%s: %d interfaces, shunt knows %d", n, have, len(s.Interfaces))
		}
	}
}
