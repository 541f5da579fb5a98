// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/shuntnet/shunt/test/beside"
)

// counters gives those of all rules of iptables, shunt's part among them.
func (h *host) counters() map[string]beside.Count {
	h.Helper()
	out := map[string]beside.Count{}
	for _, table := range []string{"filter", "nat"} {
		saved, err := h.iptables("iptables-save", "-c", "-t", table)
		if err != nil {
			h.Fatal(err)
		}
		beside.ReadCounters(out, table, saved)
	}
	if h.shunt != nil {
		h.shunt.AddCounters(out)
	}
	return out
}

// iptables runs a program of iptables as dockerd finds it: with the host's PATH.
func (h *host) iptables(args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"--net=" + h.ns.Path(), "env"}, args...)...)
	cmd.Env = h.environ
	out, err := cmd.CombinedOutput()
	return string(out), said(err, out)
}

var (
	// What depends on the moment: the time that is left, users of the entry, ports that the kernel chose.
	untimely  = regexp.MustCompile(`^ipv4 +2 (\w+) +\d+ \d+ (.*?) mark=.*$`)
	ephemeral = regexp.MustCompile(`port=([0-9]+)`)
	identity  = regexp.MustCompile(` id=[0-9]+`)
)

// connections gives the tracked connections of the host's namespace, each as often as it is there. Loopback and Docker's own are left out.
func (h *host) connections() map[string]string {
	h.Helper()
	table, err := h.ns.Output("cat /proc/net/nf_conntrack")
	if err != nil {
		h.Skipf("this kernel does not list connections in /proc (CONFIG_NF_CONNTRACK_PROCFS, Linux 2.6.15): %v", err)
	}
	times := map[string]int{}
	for line := range strings.Lines(table) {
		m := untimely.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || strings.Contains(line, "127.0.0.") {
			continue
		}
		entry := m[1] + " " + ephemeral.ReplaceAllStringFunc(identity.ReplaceAllString(m[2], ""), func(p string) string {
			if n, _ := strconv.Atoi(p[5:]); n >= 32768 {
				return "port=*"
			}
			return p
		})
		if m[1] == "udp" { // assured is what went on for two seconds, as it does when the first datagram waits for ARP
			entry = strings.TrimSuffix(entry, " [ASSURED]")
		}
		times[entry]++
	}
	out := map[string]string{}
	for entry, n := range times {
		out[entry] = fmt.Sprint(n)
	}
	return out
}
