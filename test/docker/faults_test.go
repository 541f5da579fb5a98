// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
)

// flow is a TCP connection that is kept busy.
type flow struct {
	cmd    *exec.Cmd
	stop   io.Closer
	echoes atomic.Int64
	last   atomic.Value // what it said last
	ended  chan struct{}
}

func (h *host) stream(from, addr string, port int) *flow {
	h.Helper()
	f := &flow{cmd: h.inside(h.at(from), "stream", addr, fmt.Sprint(port)), ended: make(chan struct{})}
	in, err := f.cmd.StdinPipe()
	if err != nil {
		h.Fatal(err)
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		h.Fatal(err)
	}
	f.stop = in
	f.last.Store("")
	if err := f.cmd.Start(); err != nil {
		h.Fatal(err)
	}
	go func() {
		defer close(f.ended)
		for s := bufio.NewScanner(out); s.Scan(); f.echoes.Add(1) {
			f.last.Store(s.Text())
		}
	}()
	if !f.moves(5 * time.Second) {
		h.Errorf("%s: the stream from %s to %s does not begin: %s", h.name, from, addr, f.last.Load())
	}
	return f
}

// moves says whether an echo comes within a time.
func (f *flow) moves(within time.Duration) bool {
	before := f.echoes.Load()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f.echoes.Load() > before+2 {
			return true
		}
	}
	return false
}

// state is how a flow is, in a word.
func (f *flow) state(within time.Duration) string {
	if f.moves(within) {
		return "flows"
	}
	select {
	case <-f.ended:
		return fmt.Sprint("ended: ", f.last.Load())
	default:
		return "stands still"
	}
}

func (f *flow) end() {
	f.stop.Close()
	select {
	case <-f.ended:
	case <-time.After(time.Second):
		f.cmd.Process.Kill()
	}
	f.cmd.Wait()
}

const (
	soon    = 5 * time.Second        // an echo has to come within it where one must; TCP repeats after up to 1.6 s here
	silence = 700 * time.Millisecond // without an echo in it nothing goes through
)

// faults does the same to both hosts while connections are in use, and compares what became of those.
func (w *twins) faults() {
	w.Helper()
	defer w.phase("faults")()
	said := w.compare("faults", func(h *host) map[string]string {
		said := map[string]string{}
		h.filtering(0) // most is fast then
		a := h.addresses()
		within := h.stream("zeroa", a["zerob"]+":80", 3001)
		routed := h.stream("routeda", a["outside"]+":80", 3002)
		published := h.stream("outside", a["host"]+":8080", 3003)
		note := func(what string) {
			for name, f := range map[string]*flow{"within docker0": within, "routed": routed, "published": published} {
				said[what+": "+name] = f.state(soon)
			}
		}
		note("before")
		for i := range 3 {
			h.docker("run", "--rm", "--network", []string{"bridge", "one", "routed"}[i], image, "/agent", "true")
		}
		note("other containers came and went")
		h.docker("network", "create", "-o", "com.docker.network.bridge.name=br-brief", "brief")
		h.docker("run", "--rm", "--network", "brief", image, "/agent", "true")
		h.docker("network", "rm", "brief")
		note("a network came and went")
		h.docker("rename", "zerob", "renamed")
		note("renamed")
		h.docker("rename", "renamed", "zerob")
		h.stopDocker(unix.SIGKILL)
		said["dockerd is killed"] = within.state(soon) + ", " + routed.state(soon)
		h.startDocker()
		h.filtering(0)
		note("dockerd was killed")
		h.stopDocker(unix.SIGTERM)
		h.startDocker()
		h.filtering(0)
		note("dockerd was restarted")

		// A port moves to another bridge, by hand: the two are on different wires from then on.
		veth := h.veth("zerob", "eth0")
		h.exec("ip link set %s master br-two", veth)
		said["the port moved away"] = within.state(silence)
		h.exec("ip link set %s master docker0", veth)
		said["the port moved back"] = within.state(soon)

		// Docker does it with a new veth. The container's connections stay open without one.
		one := h.stream("onea", a["oneb"]+":80", 3004)
		h.docker("network", "disconnect", "one", "oneb")
		said["disconnected"] = one.state(silence)
		h.docker("network", "connect", "two", "oneb")
		said["in another network: the connection"] = one.state(silence)
		moved := h.address("oneb", "two")
		ask := func(from, addr string) string {
			return h.ask(map[string]string{"x": addr}, probe{from, "x", "who {to}:80"})
		}
		said["in another network: from there"], said["in another network: from the old one"] = ask("twoa", moved), ask("onea", moved)
		h.docker("network", "disconnect", "two", "oneb")
		h.docker("network", "connect", "--ip", a["oneb"], "one", "oneb")
		said["back in its network"] = ask("onea", a["oneb"])
		one.end()

		// Killed in the middle of a connection, and started again: the same address behind another port.
		h.docker("kill", "zerob")
		said["killed"], _, _ = strings.Cut(within.state(silence), ":") // by FIN or RST, as what was under way has it
		h.docker("start", "zerob")
		h.find("zerob")
		said["started again"] = h.ask(a, probe{"zeroa", "zerob", "get {to}:80 1000000"}) + ", " + h.ask(a, probe{"outside", "host", "who {to}:8080"})
		for _, f := range []*flow{within, routed, published} {
			f.end()
		}
		return said
	})
	// What has to be so on Linux, or the comparison would be of two hosts that stand still.
	for what, want := range map[string]string{
		"other containers came and went: routed": "flows", "dockerd is killed": "flows, flows", "dockerd was killed: published": "flows", "dockerd was restarted: within docker0": "flows",
		"the port moved away": "stands still", "the port moved back": "flows", "disconnected": "stands still", "in another network: from the old one": "no answer",
		"in another network: from there": "172.20.2.2", "back in its network": "172.20.1.2", "started again": "1000000 bytes, 04f3afd5, as sent: true, 192.0.2.2",
	} {
		if said[what] != want {
			w.Errorf("faults: %s: Linux says %q, want %q", what, said[what], want)
		}
	}
	w.Logf("faults: %d states of connections are the same", len(said))
}

// leftovers removes all containers and networks, and asks shunt what it still has.
func (w *twins) leftovers() {
	w.Helper()
	defer w.phase("leftovers")()
	h := w.hosts[1]
	w.both(func(_ int, h *host) {
		for _, c := range h.stack.containers {
			h.docker("rm", "-f", c.name)
			delete(h.pids, c.name)
		}
		for _, n := range h.stack.networks {
			h.docker("network", "rm", n[0])
		}
	})
	status := h.shunt.Settled()
	for _, i := range status.Interfaces {
		if i.Name != "lo" && i.Name != "eth0" && i.Name != "docker0" {
			w.Errorf("shunt still has %s", i.Name)
		}
	}
	var programs []api.ProgramRow
	h.shunt.JSON(&programs, "show", "programs")
	for _, p := range programs {
		if p.Interface != "eth0" {
			w.Errorf("a program for %s is left: %+v", p.Interface, p)
		}
	}
	w.well()
}

// well asks whether anything went wrong in shunt.
func (w *twins) well() {
	w.Helper()
	shunt := w.hosts[1].shunt
	for line := range strings.Lines(shunt.Log()) {
		if strings.Contains(line, "level=ERROR") {
			w.Errorf("shunt said: %s", line)
		}
	}
	if s := shunt.Status(); s.Sync.Failures > 0 || len(s.Faults) > 0 {
		w.Errorf("%d rounds of shunt failed, and faults are %v", s.Sync.Failures, s.Faults)
	}
}
