// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/test/beside"
)

var (
	program = flag.String("shunt", "../../bin/shunt", "the program to run beside Docker")
	docker  = flag.Bool("docker", false, "run dockerd (make test-docker)")
	long    = flag.Bool("long", false, "more of everything: a minute of churn, 200 starts, 64 MB a transfer, iptables-legacy too")
)

func runFolder() string { return beside.Folder("docker") }

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Geteuid() == 0 {
		if err := beside.Sweep("docker"); err != nil {
			fmt.Fprintln(os.Stderr, "docker: removing what an earlier run left:", err)
		}
	}
	code := lab.Main(m)
	os.RemoveAll(runFolder())
	os.Exit(code)
}

// twins are two hosts of the same kind; the second has shunt.
type twins struct {
	*testing.T
	hosts [2]*host
}

// prepare skips where there is no Docker, or it was not asked for.
func prepare(t *testing.T) (agent string) {
	t.Helper()
	if !*docker && !*long {
		t.Skip("takes a minute: make test-docker runs it")
	}
	if left := lacking(); len(left) > 0 {
		t.Skipf("no Docker here: %s not found (apt-get install docker.io iputils-ping)", strings.Join(left, ", "))
	}
	return prepareAgent(t)
}

// prepareAgent builds the containers' program, and shunt unless it is built.
func prepareAgent(t *testing.T) (agent string) {
	t.Helper()
	*program, agent = beside.Build(t, runFolder(), *program)
	return agent
}

// both does the same on both hosts at once.
func (w *twins) both(do func(i int, h *host)) {
	w.Helper()
	var wg sync.WaitGroup
	for i, h := range w.hosts {
		wg.Add(1)
		go func() { defer wg.Done(); do(i, h) }()
	}
	wg.Wait()
	if w.Failed() {
		w.FailNow()
	}
}

// newTwins makes both hosts with their networks and containers, and starts shunt in one.
func newTwins(t *testing.T, environ ...string) *twins {
	t.Helper()
	agent := prepare(t)
	w := &twins{T: t}
	defer w.phase("dockers, networks and containers")()
	for i, name := range []string{"linux", "shunt"} {
		w.hosts[i] = newHost(t, name, agent, environ)
	}
	w.hosts[1].shunt = beside.StartShunt(t, *program, w.hosts[1].ns, w.hosts[1].dir) // before the first network: everything is discovered
	w.both(func(_ int, h *host) { h.populate() })
	return w
}

// phase says afterwards how long something took.
func (w *twins) phase(what string) func() {
	started := time.Now()
	return func() { w.Logf("%5.2f s  %s", time.Since(started).Seconds(), what) }
}

// compare asks both and tells the differences.
func (w *twins) compare(what string, ask func(h *host) map[string]string) (linux map[string]string) {
	w.Helper()
	var said [2]map[string]string
	w.both(func(i int, h *host) { said[i] = ask(h) })
	for _, d := range beside.Differences(said[0], said[1]) {
		w.Errorf("%s: %s", what, d)
	}
	if len(said[0]) == 0 {
		w.Errorf("%s: Linux says nothing, so nothing was compared", what)
	}
	return said[0]
}

// filtering turns br_netfilter's calls on or off. dockerd turns them on when it starts.
func (h *host) filtering(on int) {
	for _, f := range []string{"iptables", "ip6tables"} { // as docs/operations.md says
		h.exec("sysctl -qw net.bridge.bridge-nf-call-%s=%d", f, on)
	}
}

// counted sends what is the same number of packets each time, so that counters can be compared exactly.
var counted = []probe{
	{"zeroa", "zerob", "udp {to}:80 200 100 2001"}, {"onea", "oneb", "udp {to}:80 200 100 2002"}, {"routeda", "outside", "udp {to}:80 200 1400 2003"},
	{"zeroa", "outside", "udp {to}:80 100 500 2004"}, {"outside", "host", "udp {to}:8080 100 500 2005"}, {"zeroa", "onea", "udp {to}:80 3 100 2006"},
	{"outside", "routeda", "udp {to}:80 3 100 2007"}, {"routeda", "outside", "ping 56"}, {"zeroa", "zerob", "ping 8000"}, {"mutea", "muteb", "udp {to}:80 3 10 2008"},
}

// TestDocker asks the same of a host with shunt and of one without, with Docker's networks as they are and without br_netfilter's calls, and does
// the same to both under traffic.
func TestDocker(t *testing.T) {
	w := newTwins(t)
	w.conversation("as Docker sets it up", 1)
	w.conversation("without br_netfilter", 0)
	w.faults()
	w.leftovers()
	w.starts()
}

// TestLegacy is the same with the older iptables, whose counters shunt adds to.
func TestLegacy(t *testing.T) {
	if !*long {
		t.Skip("only with -long (make test-docker)")
	}
	w := newTwins(t, "PATH="+legacyFirst(t)+":"+os.Getenv("PATH"))
	w.conversation("as Docker sets it up", 1)
	w.conversation("without br_netfilter", 0)
	w.leftovers()
}

// legacyFirst makes a folder in which iptables is the older kind.
func legacyFirst(t *testing.T) string {
	t.Helper()
	multi, err := exec.LookPath("xtables-legacy-multi")
	if err != nil {
		t.Skip("no xtables-legacy-multi here")
	}
	dir := t.TempDir()
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink(multi, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (w *twins) conversation(title string, filtering int) {
	w.Helper()
	size := 16 * megabyte
	if *long {
		size = 64 * megabyte
	}
	w.both(func(_ int, h *host) { h.filtering(filtering) })
	daemon := w.hosts[1].shunt
	daemon.Settled()
	defer w.phase(title)()
	fast := w.hosts[1].fastBytes()
	answers := w.compare(title+": probes", func(h *host) map[string]string {
		said := h.askAll(probes(size))
		for _, name := range []string{"oneb", "twoa"} {
			said["the name "+name+" in network one"] = h.docker("exec", "onea", "/agent", "name", name)
		}
		return said
	})
	works := 0
	for _, a := range answers {
		if strings.Contains(a, "as sent: true") {
			works++
		} else if strings.Contains(a, "as sent: false") {
			w.Errorf("a transfer was changed on the way: %s", a)
		}
	}
	if works < 15 {
		w.Errorf("only %d transfers came through on Linux alone: %v", works, answers)
	}
	before := [2]map[string]beside.Count{}
	w.both(func(i int, h *host) { before[i] = h.counters() })
	w.compare(title+": counted probes", func(h *host) map[string]string { return h.askAll(counted) })
	w.compare(title+": counters of rules", func(h *host) map[string]string {
		i := 0
		if h.shunt != nil {
			i = 1
		}
		return beside.Since(before[i], h.counters())
	})
	w.compare(title+": tracked connections", (*host).connections)
	w.Logf("%s: %d answers are the same, among them %d transfers of up to %d MB", title, len(answers), works, size/megabyte)
	now := w.hosts[1].fastBytes()
	var shares []string
	for _, c := range containers {
		if c.network == hostDriver {
			continue
		}
		shares = append(shares, fmt.Sprintf("%s %.1f", c.name, float64(now[c.name]-fast[c.name])/megabyte))
	}
	w.Logf("%s: MB by the fast path: %s", title, strings.Join(shares, ", "))
	for _, name := range []string{"zeroa", "onea", "routeda"} { // what the comparison is about has to happen: bridged, by Docker's rules or without them, and routed from a bridge
		if n := now[name] - fast[name]; n < uint64(size)/16 { // the rest is beginnings, and moments in which a busy machine keeps the daemon from its heartbeat
			w.Errorf("%s: from %s %d bytes by the fast path, want at least %d", title, name, n, size/16)
		}
	}
}

// fastBytes says how much of what each container sent was fast.
func (h *host) fastBytes() map[string]uint64 {
	h.Helper()
	out := map[string]uint64{}
	status := h.shunt.Status()
	for _, c := range containers {
		if c.network == hostDriver {
			continue
		}
		veth := h.veth(c.name)
		for _, i := range status.Interfaces {
			if i.Name == veth {
				out[c.name] = i.Packets.Bytes
			}
		}
	}
	return out
}

// starts measures what shunt adds to the start of a container, in pairs, one on each host, and first now here, now there.
func (w *twins) starts() {
	w.Helper()
	pairs := 20
	if *long {
		pairs = 200
	}
	var took [2][]float64
	var more []float64
	cpu := w.hosts[1].shunt.CPU()
	for n := range pairs {
		var now [2]float64
		for i := range 2 {
			h := w.hosts[(i+n)%2]
			started := time.Now()
			h.docker("run", "--rm", image, "/agent", "true")
			now[(i+n)%2] = ms(time.Since(started))
		}
		took[0], took[1], more = append(took[0], now[0]), append(took[1], now[1]), append(more, now[1]-now[0])
	}
	for _, s := range [][]float64{took[0], took[1], more} {
		slices.Sort(s)
	}
	middle := func(s []float64) float64 { return (s[(len(s)-1)/2] + s[len(s)/2]) / 2 }
	w.Logf("shunt's own CPU time for each of them: %.1f ms", ms(w.hosts[1].shunt.CPU()-cpu)/float64(pairs))
	w.Logf("a container's start and end, %d pairs, medians: %.1f ms on Linux, %.1f ms beside shunt; of the differences %+.1f ms, half of them between %+.1f and %+.1f ms",
		pairs, middle(took[0]), middle(took[1]), middle(more), more[pairs/4], more[pairs*3/4])
	if d := middle(more); d > 100 {
		w.Errorf("shunt adds %.1f ms to a container's start", d)
	}
}
