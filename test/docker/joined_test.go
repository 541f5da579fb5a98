// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"cmp"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/test/beside"
)

// tenant is a network that two hosts share: a bridge of each one's Docker, and a tunnel, made by hand and a port of it, between them. Tenants are told apart by the tunnel's number.
type tenant struct {
	name, net string // net is the address without its last number
	vni       int
	mtu       int    // of its containers
	options   string // of the tunnel
}

// Red's tunnel is bound to the underlay and has room for its headers, as people are told to make it. Blue's is not, and what is too long for the underlay is the tunnel's to say.
var tenants = []tenant{{"red", "10.5.0", 10, 1450, "dev eth0"}, {"blue", "10.6.0", 20, 1500, ""}}

// container is a tenant's at a host, 1 or 2, and has the address beside it.
func (t tenant) container(host int) (name, address string) {
	return fmt.Sprint(t.name, host), fmt.Sprintf("%s.1%d", t.net, host)
}

func (t tenant) bridge() string { return "br-" + t.name }
func (t tenant) tunnel() string { return "vx-" + t.name }

// same is an address that one container of each tenant has at a host, since tenants know nothing of each other.
func same(host int) string { return fmt.Sprintf("10.99.0.%d", host) }

// joined are two hosts twice, first Linux alone: at[0] is the first host of both, at[1] the second.
type joined struct {
	*testing.T
	at [2]*twins
}

// TestJoined has Docker on two hosts whose networks are joined by tunnels, as in the thesis that shunt follows: containers reach those of their tenant on the other host, and no others, behind
// few rules and many, of which the last ones match, exactly as without shunt on the hosts.
func TestJoined(t *testing.T) {
	if !*long {
		t.Skip("only with -long (make test-docker LONG=1)")
	}
	j := newJoined(t)
	j.oversize()
	for _, rules := range []int{0, 100, 900} {
		j.conversation(rules)
	}
	j.faults()
	for _, w := range j.at {
		w.well()
	}
}

func newJoined(t *testing.T) *joined {
	t.Helper()
	j := newPair(t, nil, nil)
	for i, w := range j.at {
		w.both(func(_ int, h *host) { h.join(i + 1) })
	}
	return j
}

// newPair makes both hosts twice, with a dockerd in each, and runs shunt in two. Options are dockerd's; more are options of shunt, and may be nil.
func newPair(t *testing.T, options []string, more func(*host) []string) *joined {
	t.Helper()
	agent := prepare(t)
	j := &joined{T: t, at: [2]*twins{{T: t}, {T: t}}}
	defer j.at[0].phase("two hosts, twice: dockers")()
	for v, variant := range []string{"linux", "shunt"} {
		end := func(i int) lab.End {
			return lab.End{Node: fmt.Sprint("host", i), Name: "eth0", Addrs: prefixes(fmt.Sprintf("192.0.2.%d/24", i))}
		}
		n := lab.BuildT(t, lab.Topology{Links: []lab.Link{{A: end(1), B: end(2)}}, Nodes: []lab.Node{{Name: "host1"}, {Name: "host2"}}})
		for i, w := range j.at {
			node := fmt.Sprint("host", i+1)
			h := newHostIn(t, n, node, nil, variant+"-"+node, agent, stack{}, nil, options)
			w.hosts[v] = h
			h.serve(h.ns.Path())
			if v == 1 {
				var args []string
				if more != nil {
					args = more(h)
				}
				h.shunt = beside.StartShunt(t, *program, h.ns, h.dir, args...) // before the first network: everything is discovered
			}
		}
	}
	return j
}

// join makes what one host has of the tenants.
func (h *host) join(number int) {
	h.Helper()
	for _, t := range tenants {
		h.docker("network", "create", "--subnet", t.net+".0/24", "--gateway", fmt.Sprintf("%s.%d", t.net, number), "-o", "com.docker.network.bridge.name="+t.bridge(),
			"-o", fmt.Sprint("com.docker.network.driver.mtu=", t.mtu), t.name)
		h.tunnel(t, number, t.vni)
		name, address := t.container(number)
		h.run(name, "--network", t.name, "--ip", address)
		h.in(name, "ip address add %s/24 dev eth0", same(number))
	}
}

// tunnel makes one end of a tenant's tunnel, and joins it to the bridge.
func (h *host) tunnel(t tenant, number, vni int) {
	h.Helper()
	h.exec("ip link add %s mtu %d type vxlan id %d local 192.0.2.%d remote 192.0.2.%d dstport 4789 %s", t.tunnel(), t.mtu, vni, number, 3-number, t.options)
	h.exec("ip link set %s master %s", t.tunnel(), t.bridge())
	h.exec("ip link set %s up", t.tunnel())
}

// in runs a command in a container's namespace and gives what it said.
func (h *host) in(container, format string, args ...any) string {
	h.Helper()
	line := strings.Fields(fmt.Sprintf(format, args...))
	out, err := exec.Command("nsenter", append([]string{"--net=" + h.at(container)}, line...)...).CombinedOutput()
	if err != nil {
		h.Errorf("%s: in %s: %s: %v", h.name, container, strings.Join(line, " "), said(err, out))
	}
	return string(out)
}

// addressesOf names whoever a container of a host can ask: those of the other one, and that host.
func addressesOf(number int) map[string]string {
	other := 3 - number
	out := map[string]string{"host": fmt.Sprintf("192.0.2.%d", other), "same": same(other)}
	for _, t := range tenants {
		name, address := t.container(other)
		out[name] = address
	}
	return out
}

// questions are what containers of a host ask.
func questions(number, size int) (out []probe) {
	add := func(from, to string, words ...string) {
		for _, w := range words {
			out = append(out, probe{from, to, w})
		}
	}
	for i, t := range tenants {
		name, _ := t.container(number)
		to, _ := t.container(3 - number)
		stranger, _ := tenants[1-i].container(3 - number)
		add(name, to, fmt.Sprint("get {to}:80 ", size), fmt.Sprint("put {to}:80 ", size), "who {to}:80", "ping 56", "ping 8000", "ping 1422 -M do", "ping 1423 -M do",
			"udp {to}:80 200 100 0", "udp {to}:80 50 1422 0", "udp {to}:80 20 9000 0")
		add(name, "same", "who {to}:80", "ping 56", "udp {to}:80 50 100 0")
		add(name, "host", "who {to}:80", "ping 56", "get {to}:80 1000000") // routed, and masqueraded
		add(name, stranger, "who {to}:80", "ping 56", "udp {to}:80 2 100 0")
	}
	return out
}

// oversize asks what becomes of packets that are too long, before anybody has learned what is.
func (j *joined) oversize() {
	j.Helper()
	for i, w := range j.at {
		said := w.compare("too long", func(h *host) map[string]string {
			out := map[string]string{}
			for _, t := range tenants {
				name, _ := t.container(i + 1)
				to, address := t.container(2 - i)
				for _, words := range []string{"ping 56", "ping 1472 -M do", "udp {to}:80 1 1472 0"} {
					p := probe{name, to, words}
					out[p.String()] = h.ask(addressesOf(i+1), p)
				}
				_, learned, _ := strings.Cut(h.in(name, "ip route get %s", address), " mtu ")
				out[name+" has learned"] = learned
			}
			return out
		})
		if blue := fmt.Sprint("blue", i+1, " has learned"); !strings.HasPrefix(said[blue], "1450") {
			w.Errorf("nobody told blue%d what the tunnel carries: %q", i+1, said[blue])
		}
	}
}

// rule sets a number of rules before Docker's, of which the last ones match.
func (h *host) rule(rules int) {
	h.Helper()
	var b strings.Builder
	b.WriteString("*filter\n:DOCKER-USER - [0:0]\n")
	last := min(rules, len(tenants)+1)
	for i := range rules - last {
		fmt.Fprintf(&b, "-A DOCKER-USER -s 192.168.%d.%d -p tcp -m tcp --dport %d -j DROP\n", i/250, 1+i%250, 20000+i)
	}
	for i := range last {
		net := "10.99.0"
		if i < len(tenants) {
			net = tenants[i].net
		}
		fmt.Fprintf(&b, "-A DOCKER-USER -s %[1]s.0/24 -d %[1]s.0/24 -j ACCEPT\n", net)
	}
	b.WriteString("-A DOCKER-USER -j RETURN\nCOMMIT\n")
	h.must("rules", func() error { return h.ns.Feed(b.String(), "iptables-restore --noflush") })
}

// conversation asks the same of both, behind a number of rules, and compares answers, counters and connections.
func (j *joined) conversation(rules int) {
	j.Helper()
	title := fmt.Sprintf("%d rules", rules)
	defer j.at[0].phase(title)()
	for _, w := range j.at {
		w.both(func(_ int, h *host) { h.rule(rules) })
	}
	var before [2]map[string]share
	for i, w := range j.at {
		w.hosts[1].shunt.Settled()
		before[i] = w.hosts[1].shares()
	}
	size := 16 * megabyte
	answers, works := 0, 0
	for i, w := range j.at {
		for question, answer := range w.compare(title, func(h *host) map[string]string { return h.askAllOf(addressesOf(i+1), questions(i+1, size)) }) {
			answers++
			if strings.Contains(answer, "as sent: true") {
				works++
			} else if strings.Contains(answer, "as sent: false") {
				w.Errorf("%s: a transfer was changed on the way: %s", title, answer)
			}
			stranger := strings.HasPrefix(question, "red") && strings.Contains(question, "→ blue") || strings.HasPrefix(question, "blue") && strings.Contains(question, "→ red")
			if silent := answer == "no answer" || answer == "nothing received" || strings.HasPrefix(answer, "0 of "); silent != (stranger || strings.Contains(question, "1423")) {
				w.Errorf("%s: Linux answers %s: %s", title, question, answer)
			}
		}
		for _, t := range tenants { // by one address, and each tenant its own
			name, _ := t.container(i + 1)
			to, _ := t.container(2 - i)
			w.both(func(v int, h *host) {
				_, station, _ := strings.Cut(j.at[1-i].hosts[v].in(to, "ip -o link show dev eth0"), "link/ether ")
				station, _, _ = strings.Cut(station, " ")
				if entry := h.in(name, "ip neighbour show %s", same(2-i)); station == "" || !strings.Contains(entry, station) {
					h.Errorf("%s: %s: %s is not that of %s at %s, but %s", title, name, same(2-i), to, station, entry)
				}
			})
		}
	}
	if works < 12 {
		j.Errorf("%s: only %d transfers came through on Linux alone", title, works)
	}
	j.counted(title)
	j.Logf("%s: %d answers are the same, among them %d transfers of up to %d MB", title, answers, works, size/megabyte)
	for i, w := range j.at {
		now := w.hosts[1].shares()
		var told []string
		for _, name := range slices.Sorted(maps.Keys(now)) {
			told = append(told, name+" "+now[name].since(before[i][name]))
			if n := now[name].bytes - before[i][name].bytes; n < uint64(size)/8 { // the rest is beginnings, fragments, and moments in which a busy machine keeps the daemon from its heartbeat
				w.Errorf("%s: host%d: of %s %d bytes by the fast path, want at least %d", title, i+1, name, n, size/8)
			}
		}
		j.Logf("%s: host%d, of the packets that came by each device were fast: %s", title, i+1, strings.Join(told, ", "))
	}
}

// counted compares what rules counted and what is tracked on each host, after the same number of packets.
func (j *joined) counted(title string) {
	j.Helper()
	var before [2][2]map[string]beside.Count
	for i, w := range j.at {
		w.both(func(v int, h *host) { before[i][v] = h.counters() })
	}
	j.at[0].compare(title+": counted", func(h *host) map[string]string {
		return h.askAllOf(addressesOf(1), []probe{{"red1", "red2", "udp {to}:80 200 100 2001"}, {"blue1", "blue2", "udp {to}:80 200 1400 2002"}, {"red1", "same", "udp {to}:80 100 500 2003"},
			{"blue1", "same", "udp {to}:80 100 500 2005"}, {"red1", "blue2", "udp {to}:80 3 100 2004"}, {"blue1", "host", "ping 56"}, {"red1", "red2", "ping 8000"}})
	})
	for i, w := range j.at {
		w.compare(fmt.Sprintf("%s: counters of rules of host%d", title, i+1), func(h *host) map[string]string {
			v := slices.Index(w.hosts[:], h)
			return inner(beside.Since(before[i][v], h.counters()))
		})
		w.compare(fmt.Sprintf("%s: tracked connections of host%d", title, i+1), func(h *host) map[string]string { return inner(h.connections()) })
	}
}

// inner leaves out how many connections outer packets make: their source ports are drawn for each socket, anew when it repeats something, and two may be the same by chance.
// Of connections it keeps those of counted questions, by their ports: others may be about to be forgotten.
func inner(said map[string]string) map[string]string {
	maps.DeleteFunc(said, func(what, _ string) bool {
		return strings.Contains(what, "src=") && !strings.Contains(what, "port=200") || what == "nat PREROUTING 1" || strings.HasPrefix(what, "nat ") && strings.HasSuffix(what, " policy")
	})
	return said
}

// share is how much of what came by a device was fast.
type share struct {
	fast, bytes uint64
	slow        map[string]uint64 // by reason
}

// since says what came to it, in words, with the reasons of most of what was slow.
func (s share) since(before share) string {
	var slow uint64
	var why []string
	more := func(reason string) uint64 { return s.slow[reason] - before.slow[reason] }
	for reason := range s.slow {
		slow += more(reason)
		why = append(why, reason)
	}
	slices.SortFunc(why, func(a, b string) int { return cmp.Compare(more(b), more(a)) })
	for i, reason := range why {
		why[i] = fmt.Sprintf("%s %d", reason, more(reason))
	}
	fast := s.fast - before.fast
	return fmt.Sprintf("%.0f %% (%d packets, %.1f MB; slow: %s)", 100*float64(fast)/float64(max(fast+slow, 1)), fast, float64(s.bytes-before.bytes)/megabyte, strings.Join(why[:min(3, len(why))], ", "))
}

// shares are those of containers, by their names, and of tunnels.
func (h *host) shares() map[string]share {
	h.Helper()
	devices := map[string]string{}
	for _, t := range tenants {
		devices[t.tunnel()] = t.tunnel()
	}
	for name := range h.pids {
		devices[h.veth(name, "eth0")] = name
	}
	out := map[string]share{}
	for _, i := range h.shunt.Status().Interfaces {
		if name := devices[i.Name]; name != "" {
			out[name] = share{fast: i.Packets.Fast, bytes: i.Packets.Bytes, slow: i.Packets.Slow}
		}
	}
	return out
}

// faults does the same to both while containers of both tenants talk across the hosts.
func (j *joined) faults() {
	j.Helper()
	w, other := j.at[0], j.at[1]
	defer w.phase("faults")()
	red := tenants[0]
	told := w.compare("faults", func(h *host) map[string]string {
		peer := other.hosts[slices.Index(w.hosts[:], h)]
		out := map[string]string{}
		reds, blues := h.stream("red1", "10.5.0.12:80", 3001), h.stream("blue1", "10.6.0.12:80", 3002)
		note := func(what string) { out[what] = "red " + reds.state(soon) + ", blue " + blues.state(soon) }
		still := func(what string) { out[what] = "red " + reds.state(silence) + ", blue " + blues.state(soon) }
		try := func(what, command string) {
			out[what] = "taken"
			if err := h.ns.Exec("%s", command); err != nil {
				out[what] = strings.ReplaceAll(err.Error(), h.ns.Name, "host1")
			}
		}
		note("before")
		try("a second device of the network", "ip link add clash type vxlan id 10 dev eth0 local 192.0.2.1 dstport 4789")
		try("another number for the device", "ip link set vx-red type vxlan id 20")
		note("a number that is taken")
		h.exec("ip link set vx-red down")
		still("the tunnel is down")
		h.exec("ip link set vx-red up")
		note("the tunnel is up")
		h.exec("ip link del vx-red")
		still("the tunnel is gone")
		h.tunnel(red, 1, 30)
		still("the tunnel has another number")
		h.exec("ip link del vx-red")
		h.tunnel(red, 1, red.vni)
		note("the tunnel was made anew")
		peer.exec("ip link del vx-red")
		still("the other end is gone")
		peer.tunnel(red, 2, red.vni)
		note("the other end was made anew")
		h.exec("ip link set eth0 down")
		out["the underlay is down"] = "red " + reds.state(silence) + ", blue " + blues.state(silence)
		h.exec("ip link set eth0 up")
		note("the underlay is up")
		h.stopDocker(unix.SIGKILL)
		note("dockerd is killed")
		h.startDocker()
		note("dockerd was started again")
		reds.end()
		blues.end()
		return out
	})
	for what, want := range map[string]string{
		"before": "red flows, blue flows", "the tunnel is down": "red stands still, blue flows", "the tunnel is gone": "red stands still, blue flows", "the tunnel has another number": "red stands still, blue flows",
		"the tunnel was made anew": "red flows, blue flows", "the other end is gone": "red stands still, blue flows", "the underlay is down": "red stands still, blue stands still", "the underlay is up": "red flows, blue flows",
		"dockerd was started again": "red flows, blue flows",
	} {
		if told[what] != want {
			w.Errorf("faults: %s: Linux says %q, want %q", what, told[what], want)
		}
	}
	w.Logf("faults: %d states are the same: %v", len(told), told)
}
