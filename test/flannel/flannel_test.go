// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/test/beside"
)

var (
	program = flag.String("shunt", "../../bin/shunt", "the program to run beside Flannel")
	tools   = flag.String("tools", "../../.cache/flannel", "folder of flanneld, cnitool and the plugins (test/flannel/tools.sh)")
	asked   = flag.Bool("flannel", false, "run flanneld (make test-flannel)")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Geteuid() == 0 {
		if err := beside.Sweep("flannel"); err != nil {
			fmt.Fprintln(os.Stderr, "flannel: removing what an earlier run left:", err)
		}
	}
	code := lab.Main(m)
	os.RemoveAll(beside.Folder("flannel"))
	os.Exit(code)
}

// setups are Flannel's backends, in the ways in which they are used, and in which dialect rules for services and policies are written.
var setups = []setup{
	{name: "vxlan", network: `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}`, masq: true, life: true, rules: "iptables"},
	{name: "host-gw", network: `{"Network":"10.244.0.0/16","Backend":{"Type":"host-gw"}}`, masq: true, life: true, rules: "nft"},
	{name: "vxlan-without-masquerade", network: `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}`, rules: "nft"},
	{name: "host-gw-without-masquerade", network: `{"Network":"10.244.0.0/16","Backend":{"Type":"host-gw"}}`, rules: "iptables"},
	{name: "vxlan-by-nft-direct-where-it-can", network: `{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan","DirectRouting":true}}`, masq: true, rules: "nft"},
	{name: "dual-stack", network: `{"EnableIPv4":true,"EnableIPv6":true,"Network":"10.244.0.0/16","IPv6Network":"2001:db8:f000::/48","Backend":{"Type":"vxlan"}}`, masq: true, six: true, rules: "iptables"},
	{name: "host-gw-dual-stack", network: `{"EnableIPv4":true,"EnableIPv6":true,"Network":"10.244.0.0/16","IPv6Network":"2001:db8:f000::/48","Backend":{"Type":"host-gw"}}`, masq: true, six: true, rules: "nft"},
}

// twins are two clusters of the same kind; the second has shunt.
type twins struct {
	*testing.T
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

// compare asks both and tells the differences. It asks once more what differs, since a resolution may time out on a busy machine.
func (w *twins) compare(what string, questions []probe) (linux map[string]string) {
	w.Helper()
	started := time.Now()
	var settling sync.WaitGroup
	for _, n := range w.clusters[1].nodes {
		if n.shunt.Running() {
			settling.Add(1)
			go func() { defer settling.Done(); n.shunt.Settled() }()
		}
	}
	settling.Wait()
	linux, found, first := beside.Lasting(func() (map[string]string, map[string]string) {
		var said [2]map[string]string
		var wg sync.WaitGroup
		for i, c := range w.clusters {
			wg.Add(1)
			go func() { defer wg.Done(); said[i] = c.askAll(questions) }()
		}
		wg.Wait()
		return said[0], said[1]
	})
	if len(first) > 0 {
		w.Logf("%s: asked again, since it differed: %q", what, first)
	}
	for _, d := range found {
		w.Errorf("%s: %s", what, d)
	}
	works := 0
	for _, a := range linux {
		if strings.Contains(a, "as sent: true") {
			works++
		}
	}
	w.Logf("%5.2f s  %s: %d questions, %d transfers among the answers, %d differences", time.Since(started).Seconds(), what, len(questions), works, len(found))
	return linux
}

// TestFlannel asks the same of clusters with shunt and without, for each of Flannel's backends, with rules for services and policies; and, for some, after everything that happens to clusters.
func TestFlannel(t *testing.T) {
	if !*asked {
		t.Skip("takes eight minutes: make test-flannel runs it")
	}
	for _, name := range []string{"flanneld", "cnitool", "bridge", "portmap", "host-local"} {
		if _, err := os.Stat(filepath.Join(*tools, name)); err != nil {
			t.Skipf("no %s in %s (test/flannel/tools.sh makes them)", name, *tools)
		}
	}
	for _, name := range []string{"etcd", "etcdctl", "ping", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s here", name)
		}
	}
	var err error
	if *tools, err = filepath.Abs(*tools); err != nil {
		t.Fatal(err)
	}
	var agent string
	*program, agent = beside.Build(t, beside.Folder("flannel"), *program)
	for _, s := range setups {
		t.Run(s.name, func(t *testing.T) {
			w := &twins{T: t}
			started := time.Now()
			for i, name := range []string{"linux", "shunt"} {
				w.clusters[i] = newCluster(t, name, agent, s, i == 1)
			}
			t.Logf("%5.2f s  clusters", time.Since(started).Seconds())
			w.conversation(s)
			w.services(s)
			w.policies(s)
			if s.life {
				w.life(s)
			}
			w.leftovers()
		})
	}
}

// conversation compares answers, counters of rules, and that what pods sent each other was fast.
func (w *twins) conversation(s setup) {
	w.Helper()
	w.awaitFast()
	before := w.fastBytes()
	answers := w.compare("as Flannel sets it up", s.probes(8*megabyte))
	for _, must := range []string{"pod1a → pod2a: who {to}:80", "pod1a → pod1b: who {to}:80"} {
		if answers[must] != "pod1a" {
			w.Errorf("%s is answered with %q by Linux alone: this cluster does not work", must, answers[must])
		}
	}
	// Two transfers between nodes each way and two on the first node, of 8 MB.
	large := slices.DeleteFunc(s.probes(8*megabyte), func(p probe) bool { return !strings.Contains(p.words, fmt.Sprint(8*megabyte)) })
	w.mustBeFast("between pods", before, 40*megabyte, large)
	w.counters()
}

// mustBeFast asks again, some times, until the first node's shunt has forwarded that much since before: one that is held up for longer than its watchdog waits leaves all to
// Linux, and a busy machine holds it up.
func (w *twins) mustBeFast(what string, before map[string]uint64, least uint64, again []probe) {
	w.Helper()
	for try := 1; ; try++ {
		moved := w.fastBytes()
		var fast []string
		for name, n := range moved {
			fast = append(fast, fmt.Sprintf("%s %d MB", name, (n-before[name])/1e6))
		}
		slices.Sort(fast)
		w.Logf("         fast, %s: %s", what, strings.Join(fast, ", "))
		n := moved["node1"] - before["node1"]
		if n >= least {
			return
		}
		if try == 4 {
			w.Errorf("%s: node1 forwarded %d MB itself, of more than %d: %s", what, n/1e6, least/1e6, w.slow())
			return
		}
		before = moved
		w.compare(what+", again", again)
	}
}

// awaitFast waits until the shunts of the first two nodes have programs where pods and nodes are: a busy machine may take its time.
func (w *twins) awaitFast() {
	w.Helper()
	for _, n := range w.clusters[1].nodes[:2] {
		n.shunt.Until("fast", func(s *api.Status) bool {
			return !slices.ContainsFunc(s.Interfaces, func(i api.Interface) bool { return i.Name != "lo" && i.Name != "cni0" && i.State != "fast" })
		})
	}
}

// slow tells why what the first node's shunt did not forward went to Linux, and what it said.
func (w *twins) slow() string {
	w.Helper()
	d := w.clusters[1].nodes[0].shunt
	s := d.Status()
	var out []string
	for _, i := range s.Interfaces {
		out = append(out, fmt.Sprintf("%s: %s, %d fast, %v, %v", i.Name, i.State, i.Packets.Fast, i.Packets.Slow, i.Reasons))
	}
	return fmt.Sprintf("%s; %+v; its log: %s", strings.Join(out, "; "), s.Sync, d.Log())
}

// fastBytes is what each node's shunt has forwarded.
func (w *twins) fastBytes() map[string]uint64 {
	out := map[string]uint64{}
	for _, n := range w.clusters[1].nodes {
		for _, i := range n.shunt.Status().Interfaces {
			out[n.String()] += i.Packets.Bytes
		}
	}
	return out
}

// counted moves the same number of packets each time.
var counted = []probe{
	{"pod1a", "pod2a", "udp {to}:80 100 500 2001"}, {"pod1b", "pod1a", "udp {to}:80 100 500 2002"}, {"pod2b", "pod1b", "ping -s 56 {to}"}, {"pod1b", "sw", "udp {to}:80 50 100 2003"}, {"sw", "pod1a", "udp {to}:80 2 10 2004"},
}

// counters compares what the rules of each node count: iptables' and those of the named tables of nft.
func (w *twins) counters(tables ...string) {
	w.Helper()
	read := func(c *cluster) map[string]map[string]beside.Count {
		out := map[string]map[string]beside.Count{}
		for _, n := range c.nodes[:2] {
			counts := map[string]beside.Count{}
			for _, table := range []string{"filter", "nat", "mangle"} {
				saved, err := n.ns.Output("iptables-save -c -t %s", table)
				if err != nil {
					w.Fatal(err)
				}
				beside.ReadCounters(counts, table, saved)
			}
			for _, table := range tables {
				if listed, err := n.ns.Output("nft -j list table ip %s", table); err == nil { // else this setup has it not
					if err := beside.ReadNftCounters(counts, listed); err != nil {
						w.Fatal(err)
					}
				}
			}
			if n.shunt != nil {
				n.shunt.AddCounters(counts)
			}
			out[n.String()] = counts
		}
		return out
	}
	var before, after [2]map[string]map[string]beside.Count
	for i, c := range w.clusters {
		before[i] = read(c)
	}
	w.compare("counted", counted)
	for i, c := range w.clusters {
		after[i] = read(c)
	}
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(after[0])) {
		var grew [2]map[string]string
		for i := range grew {
			grew[i] = beside.Since(before[i][name], after[i][name])
			for key := range grew[i] { // what hosts say to each other meanwhile (etcd, leases) is in the chains of local packets
				if !strings.Contains(key, "FORWARD") && !strings.Contains(key, "FWD") && !strings.HasPrefix(key, "policies ") {
					delete(grew[i], key)
				}
			}
		}
		compared += len(grew[0])
		for _, d := range beside.Differences(grew[0], grew[1]) {
			w.Errorf("rules of %s: %s", name, d)
		}
	}
	w.Logf("%d counters of rules compared", compared)
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
