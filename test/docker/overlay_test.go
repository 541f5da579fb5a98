// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/api"
)

// overlays are networks of Docker's overlay driver; their containers at a host, 1 or 2, have the address beside it.
var overlays = []tenant{{name: "red", net: "10.5.0"}, {name: "blue", net: "10.6.0"}}

// TestOverlayDriver has a swarm of two hosts with networks of Docker's overlay driver, whose bridges and tunnels are in network namespaces of Docker's own: shunt serves those
// beside the host's (--netns), and containers reach each other, and no others, exactly as without.
func TestOverlayDriver(t *testing.T) {
	if !*long {
		t.Skip("only with -long (make test-docker LONG=1)")
	}
	j := newSwarm(t)
	j.overlaid("at first")
	for _, w := range j.at {
		w.hosts[1].shunt.Kill()
		w.hosts[1].shunt.Start()
	}
	j.overlaid("after shunt was killed")
	j.lastLeaves()
	for _, w := range j.at {
		w.well()
	}
}

func newSwarm(t *testing.T) *joined {
	t.Helper()
	j := newPair(t, []string{"--live-restore=false"}, func(h *host) []string { return []string{"--netns", h.execRoot() + "/netns/1-*"} }) // a swarm has no live restore
	for _, w := range j.at {
		h := w.hosts[1]
		t.Cleanup(func() { h.ns.Output("%s stop --detach --runtime-dir %s", *program, filepath.Join(h.dir, "shunt")) })
	}
	j.at[0].both(func(_ int, h *host) { h.joinSwarm(1, "") })
	var tokens [2]string
	j.at[0].both(func(v int, h *host) {
		tokens[v] = h.docker("swarm", "join-token", "-q", "worker")
		for _, o := range overlays {
			h.docker("network", "create", "-d", "overlay", "--attachable", "--subnet", o.net+".0/24", o.name)
		}
	})
	j.at[1].both(func(v int, h *host) { h.joinSwarm(2, tokens[v]) })
	for i, w := range j.at {
		w.both(func(_ int, h *host) {
			for _, o := range overlays {
				name, address := o.container(i + 1)
				h.run(name, "--network", o.name, "--ip", address)
			}
		})
	}
	return j
}

// joinSwarm makes a host one of a swarm; the first one begins it.
func (h *host) joinSwarm(number int, token string) {
	h.Helper()
	at := fmt.Sprint("192.0.2.", number)
	if number == 1 {
		h.docker("swarm", "init", "--advertise-addr", at, "--listen-addr", at+":2377")
	} else {
		h.docker("swarm", "join", "--advertise-addr", at, "--listen-addr", at+":2377", "--token", token, "192.0.2.1:2377")
	}
	h.Cleanup(func() {
		for c := range h.pids {
			h.try("rm", "-f", c)
		}
		h.try("swarm", "leave", "--force")
	})
}

// overlaid asks the same of both and sees that the fast path had its part, in the namespaces of the networks.
func (j *joined) overlaid(title string) {
	j.Helper()
	defer j.at[0].phase(title)()
	const size = 16 * megabyte
	before := [2]map[string]uint64{}
	for i, w := range j.at {
		for end := time.Now().Add(20 * time.Second); len(before[i]) != len(overlays); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				w.Fatalf("%s: host%d: shunt serves the networks %v, want %d", title, i+1, before[i], len(overlays))
			}
			w.hosts[1].shunt.Settled()
			before[i] = w.hosts[1].overlayBytes()
		}
	}
	answers, works := 0, 0
	for i, w := range j.at {
		to := map[string]string{"host": fmt.Sprint("192.0.2.", 2-i)}
		var questions []probe
		for k, o := range overlays {
			name, _ := o.container(i + 1)
			other, address := o.container(2 - i)
			stranger, far := overlays[1-k].container(2 - i)
			to[other], to[stranger] = address, far
			for _, words := range []string{fmt.Sprint("get {to}:80 ", size), fmt.Sprint("put {to}:80 ", size), "who {to}:80", "ping 56", "ping 8000", "ping 1422 -M do", "ping 1423 -M do",
				"udp {to}:80 200 100 0", "udp {to}:80 50 1422 0", "udp {to}:80 20 9000 0"} {
				questions = append(questions, probe{name, other, words})
			}
			for _, words := range []string{"who {to}:80", "ping 56", "get {to}:80 1000000"} { // by docker_gwbridge, and masqueraded
				questions = append(questions, probe{name, "host", words})
			}
			for _, words := range []string{"who {to}:80", "ping 56"} {
				questions = append(questions, probe{name, stranger, words})
			}
		}
		for question, answer := range w.compare(title, func(h *host) map[string]string { return h.askAllOf(to, questions) }) {
			answers++
			if strings.Contains(answer, "as sent: true") {
				works++
			}
			stranger := strings.HasPrefix(question, "red") && strings.Contains(question, "→ blue") || strings.HasPrefix(question, "blue") && strings.Contains(question, "→ red")
			if silent := answer == "no answer" || answer == "no route" || answer == "nothing received"; silent != (stranger || strings.Contains(question, "1423")) {
				w.Errorf("%s: Linux answers %s: %s", title, question, answer)
			}
		}
	}
	if works < 8 {
		j.Errorf("%s: only %d transfers came through on Linux alone", title, works)
	}
	j.Logf("%s: %d answers are the same, among them %d transfers of up to %d MB", title, answers, works, size/megabyte)
	for i, w := range j.at {
		for network, now := range w.hosts[1].overlayBytes() {
			fast := now - before[i][network]
			j.Logf("%s: host%d, %s: %.1f MB by the fast path", title, i+1, network, float64(fast)/megabyte)
			if fast < size {
				w.Errorf("%s: host%d: in %s %d bytes by the fast path, want at least %d", title, i+1, network, fast, size)
			}
		}
	}
}

// overlayBytes is how much shunt has forwarded in the namespace of each network.
func (h *host) overlayBytes() map[string]uint64 {
	h.Helper()
	out := map[string]uint64{}
	for _, o := range overlays {
		ns := "1-" + h.docker("network", "inspect", "-f", "{{.ID}}", o.name)[:10]
		var s api.Status
		h.shunt.JSON(&s, "status", "--netns", ns)
		for _, i := range s.Interfaces {
			out[o.name] += i.Packets.Bytes
		}
	}
	return out
}

// lastLeaves ends a network's last container at a host, with which Docker ends the network's namespace there.
func (j *joined) lastLeaves() {
	j.Helper()
	w := j.at[1]
	name, _ := overlays[0].container(2)
	h := w.hosts[1]
	ns := "1-" + h.docker("network", "inspect", "-f", "{{.ID}}", overlays[0].name)[:10]
	folder := filepath.Join(h.dir, "shunt/netns", ns)
	if _, err := os.Stat(folder); err != nil {
		w.Error(err)
	}
	w.both(func(_ int, h *host) {
		h.docker("rm", "-f", name)
		delete(h.pids, name)
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(folder); os.IsNotExist(err) {
			break
		}
		if time.Now().After(end) {
			w.Fatalf("%s is still there after the network's last container at this host has gone", folder)
		}
	}
	red, blue := overlays[0], overlays[1]
	one, _ := blue.container(1)
	other, address := blue.container(2)
	j.at[0].compare("beside a network that is gone", func(h *host) map[string]string {
		_, gone := red.container(2)
		from, _ := red.container(1)
		return h.askAllOf(map[string]string{other: address, name: gone}, []probe{{one, other, "get {to}:80 1000000"}, {from, name, "ping 56"}})
	})
}
