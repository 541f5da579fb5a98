// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
)

// stack is what runs on a host: networks, beside docker0 (network "bridge"), and containers, which are made in this order.
type stack struct {
	networks   [][]string // name, and options of `docker network create`
	containers []container
}

// container has a network, and perhaps more of them; those with publish are reached by ports of the host.
type container struct {
	name, network string
	publish       []string
	also          string // one more network
}

// assorted is one of each kind. The containers of docker0 are zero*; networks one and two are as users make them, routed without masquerade, mute without
// communication between containers (which only br_netfilter can enforce), and short with a smaller MTU.
var assorted = stack{
	[][]string{
		{"one", "--subnet", "172.20.1.0/24"},
		{"two", "--subnet", "172.20.2.0/24"},
		{"routed", "--subnet", "172.20.3.0/24", "-o", "com.docker.network.bridge.enable_ip_masquerade=false"},
		{"mute", "--subnet", "172.20.4.0/24", "-o", "com.docker.network.bridge.enable_icc=false"},
		{"short", "--subnet", "172.20.5.0/24", "-o", "com.docker.network.driver.mtu=1300"},
	},
	[]container{
		{name: "zeroa", network: "bridge"},
		{name: "zerob", network: "bridge", publish: []string{"-p", "8080:80", "-p", "8080:80/udp"}},
		{name: "onea", network: "one"},
		{name: "oneb", network: "one", publish: []string{"-p", "8081:80"}},
		{name: "twoa", network: "two"},
		{name: "routeda", network: "routed"},
		{name: "mutea", network: "mute"},
		{name: "muteb", network: "mute"},
		{name: "shorta", network: "short"},
		{name: "hosta", network: hostDriver}, // answers at the host's own port 80
	},
}

// hostDriver is the network of containers that have the host's own interfaces.
const hostDriver = "host"

// populate makes networks and containers, one after the other, so that addresses are the same on every host.
func (h *host) populate() {
	h.Helper()
	for _, n := range h.stack.networks {
		h.docker(append([]string{"network", "create", "-o", "com.docker.network.bridge.name=br-" + n[0]}, append(n[1:], n[0])...)...)
	}
	for _, c := range h.stack.containers {
		h.run(c.name, append([]string{"--network", c.network}, c.publish...)...)
		if c.also != "" {
			h.docker("network", "connect", c.also, c.name)
		}
	}
}

// addresses names whoever can be asked.
func (h *host) addresses() map[string]string {
	out := map[string]string{"outside": "192.0.2.2", "host": "192.0.2.1"}
	for _, c := range h.stack.containers {
		if c.network == hostDriver {
			out[c.name] = out["host"]
			continue
		}
		out[c.name] = h.address(c.name, c.network)
		if c.also != "" {
			out[c.name+" in "+c.also] = h.address(c.name, c.also)
		}
	}
	return out
}

// probe is a question, asked from one place about another; {to} in its words is the other's address.
type probe struct {
	from, to, words string
}

func (p probe) String() string { return fmt.Sprintf("%s → %s: %s", p.from, p.to, p.words) }

const megabyte = 1 << 20

// probes are asked of both hosts. size is that of a large transfer.
func probes(size int) (out []probe) {
	add := func(from, to string, words ...string) {
		for _, w := range words {
			out = append(out, probe{from, to, w})
		}
	}
	large := []string{fmt.Sprint("get {to}:80 ", size), fmt.Sprint("put {to}:80 ", size)}
	pings := []string{"ping 56", "ping 8000", "ping 1472 -M do", "ping 1473 -M do"}
	datagrams := []string{"udp {to}:80 200 100 0", "udp {to}:80 50 1472 0", "udp {to}:80 20 9000 0"}
	add("zeroa", "zerob", large...)
	add("zeroa", "zerob", pings...)
	add("zeroa", "zerob", datagrams...)
	add("onea", "oneb", large...)
	add("onea", "oneb", "ping 56", "who {to}:80")
	add("routeda", "outside", large...)
	add("routeda", "outside", pings...)
	add("routeda", "outside", datagrams...)
	add("routeda", "outside", "who {to}:80")
	add("zeroa", "outside", "who {to}:80", "ping 8000", "udp {to}:80 50 1000 0")
	add("zeroa", "outside", large...)
	add("shorta", "outside", "ping 1300 -M do", "who {to}:80")
	add("shorta", "outside", large...)
	// Published ports: from beyond, from another network, from the host itself by its address and by loopback.
	add("outside", "host", fmt.Sprint("get {to}:8080 ", size), fmt.Sprint("put {to}:8080 ", size), "who {to}:8080", "udp {to}:8080 100 1000 0", "who {to}:8081")
	for _, from := range []string{"host", "zeroa", "onea", "oneb", "routeda"} {
		add(from, "host", "get {to}:8080 1000000", "who {to}:8081")
	}
	add("host", "zeroa", "get {to}:80 1000000", "ping 56")
	// The host driver: from beyond, from containers, and from such a container to both.
	add("outside", "hosta", large...)
	add("outside", "hosta", "who {to}:80", "ping 8000", "udp {to}:80 50 1000 0")
	add("zeroa", "hosta", "get {to}:80 1000000", "who {to}:80")
	add("routeda", "hosta", "get {to}:80 1000000", "who {to}:80")
	add("hosta", "outside", large...)
	add("hosta", "zeroa", "get {to}:80 1000000", "who {to}:80", "ping 56")
	// Isolation: between networks, from beyond to what is not published, and within a network.
	blocked := []string{"who {to}:80", "ping 56", "udp {to}:80 2 100 0"}
	add("zeroa", "onea", blocked...)
	add("onea", "twoa", blocked...)
	add("twoa", "zeroa", blocked...)
	add("onea", "routeda", blocked...)
	add("outside", "routeda", blocked...)
	add("outside", "zeroa", blocked...)
	add("mutea", "muteb", blocked...)
	add("outside", "oneb", "who {to}:80")
	return out
}

// ask asks one question and gives the answer in a line.
func (h *host) ask(addresses map[string]string, p probe) string {
	words := strings.Fields(strings.ReplaceAll(p.words, "{to}", addresses[p.to]))
	var cmd *exec.Cmd
	if words[0] == "ping" {
		args := append([]string{"--net=" + h.at(p.from), "ping", "-q", "-n", "-c", "3", "-i", "0.02", "-W", "1", "-w", "2", "-s"}, words[1:]...)
		out, _ := exec.Command("nsenter", append(args, addresses[p.to])...).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "packets transmitted") { // without "time …ms", and how often an unanswered ping repeats
				if _, after, _ := strings.Cut(line, "transmitted, "); strings.HasPrefix(after, "0 received") {
					return "nothing received"
				}
				line, _, _ = strings.Cut(line, ", time")
				return line
			}
		}
		return strings.TrimSpace(string(out))
	}
	cmd = h.inside(h.at(p.from), words...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// askAll asks one question after the other, except those about what is blocked, which take their timeouts.
func (h *host) askAll(questions []probe) map[string]string {
	return h.askAllOf(h.addresses(), questions)
}

// askAllOf is the same with other names for addresses.
func (h *host) askAllOf(addresses map[string]string, questions []probe) map[string]string {
	out := map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	gate := make(chan struct{}, 1)
	for _, p := range questions {
		wg.Add(1)
		one := func() {
			defer wg.Done()
			answer := h.ask(addresses, p)
			mu.Lock()
			defer mu.Unlock()
			out[p.String()] = answer
		}
		if strings.Contains(p.words, "000") {
			go func() { gate <- struct{}{}; one(); <-gate }()
		} else {
			go one()
		}
	}
	wg.Wait()
	return out
}

func prefixes(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
