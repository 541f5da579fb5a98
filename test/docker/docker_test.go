// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"cmp"
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

// newTwins makes both hosts with their networks and containers, and starts shunt in one. options are dockerd's.
func newTwins(t *testing.T, s stack, environ []string, options ...string) *twins {
	t.Helper()
	agent := prepare(t)
	w := &twins{T: t}
	defer w.phase("dockers, networks and containers")()
	for i, name := range []string{"linux", "shunt"} {
		w.hosts[i] = newHost(t, name, agent, s, environ, options)
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
	w := newTwins(t, assorted, nil)
	w.conversation(apart("as Docker sets it up", 1))
	w.conversation(apart("without br_netfilter", 0))
	w.faults()
	w.leftovers()
	w.starts()
}

// TestLegacy is the same with the older iptables, whose counters shunt adds to.
func TestLegacy(t *testing.T) {
	if !*long {
		t.Skip("only with -long (make test-docker LONG=1)")
	}
	w := newTwins(t, assorted, []string{"PATH=" + legacyFirst(t) + ":" + os.Getenv("PATH")})
	w.conversation(apart("as Docker sets it up", 1))
	w.conversation(apart("without br_netfilter", 0))
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

// size is that of a large transfer.
func size() int {
	if *long {
		return 64 * megabyte
	}
	return 16 * megabyte
}

// talk is what is asked of both hosts.
type talk struct {
	title     string
	filtering int // br_netfilter's calls
	questions []probe
	names     [][2]string    // of whom, and what name
	counted   []probe        // packets that counters of rules count
	works     int            // how many transfers come through on Linux, at least
	fast      map[string]int // bytes that have to be fast, by who sends them
}

// apart is the talk of the assorted containers. What it is about has to be fast: bridged, by Docker's rules or without them, and routed from a bridge.
func apart(title string, filtering int) talk {
	few := size() / 16 // the rest is beginnings, and moments in which a busy machine keeps the daemon from its heartbeat
	return talk{title, filtering, probes(size()), [][2]string{{"onea", "oneb"}, {"onea", "twoa"}}, counted, 15, map[string]int{"zeroa": few, "onea": few, "routeda": few}}
}

func (w *twins) conversation(k talk) {
	w.Helper()
	w.both(func(_ int, h *host) { h.filtering(k.filtering) })
	daemon := w.hosts[1].shunt
	daemon.Settled()
	daemon.Until("at every device", func(s *api.Status) bool { return s.Sync.Awaited == 0 })
	defer w.phase(k.title)()
	fast := w.hosts[1].fastOf()
	answers := w.compare(k.title+": probes", func(h *host) map[string]string {
		said := h.askAll(k.questions)
		for _, n := range k.names {
			said["the name "+n[1]+" as "+n[0]+" knows it"] = h.docker("exec", n[0], "/agent", "name", n[1])
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
	if works < k.works {
		w.Errorf("only %d transfers came through on Linux alone: %v", works, answers)
	}
	before := [2]map[string]beside.Count{}
	w.both(func(i int, h *host) { before[i] = h.counters() })
	w.compare(k.title+": counted probes", func(h *host) map[string]string { return h.askAll(k.counted) })
	w.compare(k.title+": counters of rules", func(h *host) map[string]string {
		i := 0
		if h.shunt != nil {
			i = 1
		}
		return beside.Since(before[i], h.counters())
	})
	w.compare(k.title+": tracked connections", (*host).connections)
	w.Logf("%s: %d answers are the same, among them %d transfers", k.title, len(answers), works)
	now := w.hosts[1].fastOf()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		w.Logf("%s: from %-12s %s", k.title, name, now[name].since(fast[name]))
	}
	for name, want := range k.fast {
		if n := now[name].Bytes - fast[name].Bytes; n < uint64(want) {
			w.Errorf("%s: from %s %d bytes by the fast path, want at least %d", k.title, name, n, want)
		}
	}
}

// sent is what came from somewhere.
type sent struct{ api.Packets }

// since says how much of it was fast, and for what reasons the rest was not.
func (s sent) since(before sent) string {
	fast := s.Fast - before.Fast
	all, slow := fast, map[string]uint64{}
	for reason, n := range s.Slow {
		if n -= before.Slow[reason]; n > 0 {
			slow[reason] = n
			all += n
		}
	}
	if all == 0 {
		return "nothing"
	}
	names := slices.SortedFunc(maps.Keys(slow), func(a, b string) int { return cmp.Or(cmp.Compare(slow[b], slow[a]), cmp.Compare(a, b)) })
	out := fmt.Sprintf("%.1f MB fast, %.0f %% of %d packets", float64(s.Bytes-before.Bytes)/megabyte, 100*float64(fast)/float64(all), all)
	for _, reason := range names[:min(len(names), 6)] {
		out += fmt.Sprintf(", %s %d", reason, slow[reason])
	}
	return out
}

// fastOf says how much of what each container, and the outside, sent was fast.
func (h *host) fastOf() map[string]sent {
	h.Helper()
	out := map[string]sent{}
	status := h.shunt.Status()
	note := func(name, device string) {
		for _, i := range status.Interfaces {
			if i.Name == device {
				out[name] = sent{i.Packets}
			}
		}
	}
	note("outside", "eth0")
	for _, c := range h.stack.containers {
		if c.network == hostDriver {
			continue
		}
		note(c.name, h.veth(c.name, "eth0"))
		if c.also != "" {
			note(c.name+" in "+c.also, h.veth(c.name, "eth1"))
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
